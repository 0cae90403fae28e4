"""Room that is kept for giving space back: who prunes a full disk has to write in the queue first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mounts import mounted
from queues import asked, submitted
from test_pruning import over

from scheduler.config import Paths
from scheduler.store import spare


def filled(folder: Path) -> None:
    """Write until the disk takes no more."""
    with open(folder / "somebody's", "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                pass


def prune(paths: Paths, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "scheduler", "prune", "--keep", "0", "--yes", *words]
    return subprocess.run(argv, env={**os.environ, "SCHEDQ_HOME": paths.home}, capture_output=True, text=True)


def test_a_full_disk_is_pruned_by_means_of_the_room_that_was_kept(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", options="size=64m") as small:
        paths = Paths(str(small / "queue"))
        submitted(paths, 40)
        for job_id in range(1, 41):
            over(paths, job_id)
            (Path(paths.results) / str(job_id) / "large").write_bytes(b"x" * (100 << 10))
        assert spare.keep(paths, 700 << 10)
        filled(small)
        done = prune(paths)
        assert done.returncode == 0, done
        assert "were kept for this are used now" in done.stderr and "pruned 40 jobs" in done.stderr, done
        assert asked(paths, "SELECT count(*) FROM jobs WHERE pruned_at IS NULL") == [(0,)]
        assert os.listdir(paths.results) == [] and not os.path.exists(paths.spare)


def test_without_it_a_full_disk_says_so_and_nothing_is_half_done(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", options="size=16m") as small:
        paths = Paths(str(small / "queue"))
        submitted(paths)
        over(paths, 1)
        assert not spare.keep(paths)
        filled(small)
        done = prune(paths)
        assert done.returncode == 75 and "took no more" in done.stderr, done
        assert os.listdir(paths.results) == ["1"]


def test_it_is_kept_once_and_only_where_it_is_a_small_part_of_what_is_free(paths: Paths) -> None:
    submitted(paths)
    assert spare.keep(paths, 4096) and spare.keep(paths, 4096)
    assert os.stat(paths.spare).st_blocks * 512 >= 4096
    assert spare.give(paths) and not spare.give(paths)
    assert not spare.keep(paths, 1 << 60)
    assert [name for name in os.listdir(paths.home) if name.startswith("spare")] == []
