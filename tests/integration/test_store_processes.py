"""Many processes at one queue, and processes that are killed in the middle: nothing is lost, nothing is half there."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from queues import asked, child, ended, row

from scheduler.config import Paths
from scheduler.store import content, engine, intake, peek

SUBMIT = """
from queues import row
from scheduler.config import Paths
from scheduler.store import intake
paths, mark, count = Paths(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
for n in range(count):
    print(*intake.submit(paths, [row(name=f"{mark}-{n}"), row(name=f"{mark}-{n}b")]), flush=True)
"""

SUBMIT_FOR_EVER = """
import itertools, os
from queues import row
from scheduler.config import Paths
from scheduler.store import intake
paths, mark = Paths(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
for n in itertools.count():
    batch, big = f"{mark}-{n}", os.urandom(70_000)
    ids = intake.submit(paths, [row(batch=batch, data=big), row(batch=batch), row(batch=batch)])
    os.write(1, b"%d %d %d\\n" % tuple(ids))
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


def test_eight_processes_that_submit_at_once_lose_nothing(paths: Paths) -> None:
    """They also make the queue: all eight start where there is none."""
    children = [child(SUBMIT, paths.home, f"p{n}", 15) for n in range(8)]
    for each in children:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    printed: list[int] = []
    for each in children:
        code, out, err = ended(each)
        assert (code, err) == (0, "")
        printed += [int(word) for word in out.split()]
    assert sorted(printed) == list(range(1, 241))
    names = {name for (name,) in asked(paths, "SELECT name FROM jobs")}
    assert names == {f"p{p}-{n}{b}" for p in range(8) for n in range(15) for b in ("", "b")}
    assert asked(paths, "SELECT n FROM depth") == [(240,)]
    assert engine.check(paths) == []


def test_a_killed_submitter_leaves_all_of_a_call_or_nothing(paths: Paths) -> None:
    """And every id that it printed is a job."""
    draw = random.Random(7)
    intake.submit(paths, [row()])
    for round_number in range(12):
        process = child(SUBMIT_FOR_EVER, paths.home, f"r{round_number}")
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(draw.uniform(0.0, 0.12))
        process.send_signal(signal.SIGKILL)
        printed = [int(word) for word in ended(process)[1].split()]
        assert set(peek.states(paths, printed)) == set(printed)
        assert (
            asked(paths, "SELECT count(*) FROM jobs WHERE batch IS NOT NULL GROUP BY batch HAVING count(*) <> 3") == []
        )
    assert asked(paths, "SELECT count(*) FROM jobs")[0][0] > 1
    assert engine.check(paths) == []
    intake.submit(paths, [row()])
    content.tidy(paths)
    assert [name for name in os.listdir(paths.content) if name.startswith(".")] == []


STOPS_AT = """
import os
from queues import row
from scheduler.config import Paths
from scheduler.store import content, engine, intake
def crash(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), 9)
for module in (content, engine, intake):
    module.crashpoint = crash
intake.submit(Paths(sys.argv[1]), [row(data=os.urandom(70_000)), row()])
"""


@pytest.mark.parametrize(
    ("point", "jobs"),
    [
        ("intake.created", 0), ("content.staged", 0), ("content.placed", 0), ("intake.inserted", 0),
        ("intake.committed", 2),
    ],
)  # fmt: skip
def test_a_submitter_that_dies_at_any_point_leaves_a_queue_that_works(paths: Paths, point: str, jobs: int) -> None:
    assert ended(child(STOPS_AT, paths.home, point))[0] == -signal.SIGKILL
    assert len(peek.ids(paths, {})) == jobs
    assert intake.submit(paths, [row()]) == [jobs + 1]
    assert engine.check(paths) == []
