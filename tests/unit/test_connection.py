"""What a queue's folder tells before its database is opened: an emptied one is no new one, a read-only one is read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from mounts import mounted, read_only
from queues import asked, row, submitted

from scheduler.cli import stopping
from scheduler.config import Paths
from scheduler.errors import Corrupt, Temporary
from scheduler.store import engine, intake, peek


def emptied(paths: Paths) -> None:
    """The database has 0 bytes, as after a full disk or a careless redirection."""
    Path(paths.database).write_bytes(b"")


@pytest.mark.parametrize("left", ["jobs/1/log", "results/1/a.pdb", "backups/queue-1.db", "queue.db-wal"])
def test_an_empty_database_where_jobs_were_is_refused_and_stays_as_it_is(paths: Paths, left: str) -> None:
    submitted(paths)
    emptied(paths)
    remains = Path(paths.home) / left
    remains.parent.mkdir(parents=True, exist_ok=True)
    remains.write_bytes(b"x")
    for use in (
        lambda: intake.submit(paths, [row()]),
        lambda: intake.cancel(paths, [1]),
        lambda: engine.upgrade(paths),
        lambda: peek.status(paths),
    ):
        with pytest.raises(Corrupt) as caught:
            use()
        assert "0 bytes" in str(caught.value) and paths.backups in str(caught.value), caught.value
        assert left.split("/")[0] in str(caught.value)
        assert caught.value.exit_code == 3
    assert os.stat(paths.database).st_size == 0
    assert remains.read_bytes() == b"x"


def test_the_newest_backup_is_named(paths: Paths) -> None:
    submitted(paths)
    emptied(paths)
    for name in ("queue-2026-01-01-0001.db", "queue-2026-02-01-0001.db"):
        (Path(paths.backups) / name).write_bytes(b"x")
    with pytest.raises(Corrupt, match=r"queue-2026-02-01-0001\.db"):
        intake.submit(paths, [row()])


def test_a_database_that_is_gone_where_jobs_were_is_not_made_anew(paths: Paths) -> None:
    submitted(paths)
    os.unlink(paths.database)
    os.mkdir(paths.job(1))
    for use in (lambda: intake.submit(paths, [row()]), lambda: engine.upgrade(paths)):
        with pytest.raises(Corrupt, match="is not there"):
            use()
    assert not os.path.exists(paths.database)


def test_an_empty_database_in_a_fresh_folder_becomes_a_queue(paths: Paths) -> None:
    """As a submitter leaves it that was killed while it made the queue."""
    os.mkdir(paths.home)
    emptied(paths)
    assert peek.last_id(paths) is None
    assert submitted(paths) == [1]


def test_a_queue_on_a_read_only_filesystem_is_read_as_it_lies(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        paths = Paths(str(disk / "queue"))
        submitted(paths, 2)
        assert not os.path.exists(paths.database + "-wal")
        read_only(disk)
        assert peek.status(paths)["counts"] == {"queued": 2}
        assert peek.job(paths, 2)["name"] == "ligand"
        for use in (lambda: submitted(paths), lambda: intake.cancel(paths, [1])):
            with pytest.raises(Temporary, match="nothing was written") as caught:
                use()
            said = str(caught.value)
            assert "read-only" in said and "-wal is in it" not in said and "even status" not in said, said
        stopping.tidy(paths)


def test_with_a_log_in_a_read_only_folder_it_is_said_what_reading_needs(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        paths = Paths(str(disk / "queue"))
        submitted(paths)
        asked(paths, "SELECT 1")
        writer = intake.open_or_create(paths)
        writer.execute("UPDATE jobs SET name = 'logged'")
        shutil.copyfile(paths.database + "-wal", tmp_path / "log")
        writer.close()
        shutil.copyfile(tmp_path / "log", paths.database + "-wal")
        read_only(disk)
        with pytest.raises(Temporary) as caught:
            peek.status(paths)
        said = str(caught.value)
        assert "read-only" in said and "queue.db-shm" in said and paths.home in said
