"""Many processes at one queue, and processes that are killed in the middle: nothing is lost, nothing is half there."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import asked, child, ended, row, writing

from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.store import content, engine, intake, peek
from scheduler.store.turnstile import Turnstile

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
from scheduler.store import content, engine, intake, opening
def crash(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), 9)
for module in (content, engine, intake, opening):
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


OVERWRITES_UNTIL = """
import os
from queues import row
from scheduler.config import Paths
from scheduler.store import destinations, intake
def crash(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), 9)
for module in (destinations, intake):
    module.crashpoint = crash
intake.submit(Paths(sys.argv[1]), [row(out=out, overwrite=True) for out in sys.argv[3:]])
"""


def old_outputs(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "old.txt").write_text(folder.name)


def killed_at(point: str, paths: Paths, *outs: Path) -> None:
    assert ended(child(OVERWRITES_UNTIL, paths.home, point, *outs))[0] == -signal.SIGKILL


def _submits(paths: Paths) -> None:
    intake.submit(paths, [row()])


def _writes(paths: Paths) -> None:
    store = engine.Store(paths)
    with store.write():
        pass
    store.close()


NEXT_TO_WRITE: dict[str, Callable[[Paths], object]] = {
    "submit": _submits,
    "cancel": lambda paths: intake.cancel(paths, [1]),
    "the scheduler's turn": _writes,
    "the scheduler's start": engine.upgrade,
}


@pytest.mark.parametrize("point", ["aside.noted", "aside.moved", "intake.inserted"])
@pytest.mark.parametrize("who", NEXT_TO_WRITE)
def test_whoever_writes_next_puts_back_what_a_killed_submitter_moved_aside_and_says_so_once(
    paths: Paths, tmp_path: Path, caplog: pytest.LogCaptureFixture, point: str, who: str
) -> None:
    """Also of two destinations in one call."""
    intake.submit(paths, [row(out=str(tmp_path / "one"))])
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = submitted_at, outcome = 'ok'")
    outs = tmp_path / "one", tmp_path / "two"
    old_outputs(*outs)
    killed_at(point, paths, *outs)
    NEXT_TO_WRITE[who](paths)
    assert [(out / "old.txt").read_text() for out in outs] == ["one", "two"]
    assert list(tmp_path.rglob("*.before-*")) == []
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == {"aside.noted": 0, "aside.moved": 1, "intake.inserted": 2}[point], said
    assert all("was killed" in each and "back" in each for each in said)
    caplog.clear()
    intake.submit(paths, [row()])
    assert caplog.records == [] and not os.path.exists(paths.asides)


def test_a_scheduler_that_writes_all_the_time_puts_it_back_too(paths: Paths, tmp_path: Path) -> None:
    store = engine.Store(paths)
    with store.write():
        pass
    old_outputs(tmp_path / "d")
    killed_at("aside.moved", paths, tmp_path / "d")
    with store.write():
        pass
    store.close()
    assert (tmp_path / "d" / "old.txt").exists()


def test_what_a_job_that_went_in_has_moved_aside_stays_there(
    paths: Paths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_outputs(tmp_path / "d")
    killed_at("intake.committed", paths, tmp_path / "d")
    intake.cancel(paths, [1])
    intake.submit(paths, [row()])
    assert not (tmp_path / "d").exists() and len(list(tmp_path.glob("d.before-*"))) == 1
    assert caplog.records == [] and not os.path.exists(paths.asides)


def test_what_is_at_the_place_by_now_is_left_there_and_said(
    paths: Paths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old_outputs(tmp_path / "d")
    killed_at("aside.moved", paths, tmp_path / "d")
    (tmp_path / "d").write_text("new")
    intake.submit(paths, [row()])
    [aside] = tmp_path.glob("d.before-*")
    assert (tmp_path / "d").read_text() == "new" and (aside / "old.txt").exists()
    [said] = [record.getMessage() for record in caplog.records]
    assert str(aside) in said and "something else is there" in said


def test_a_check_names_what_a_killed_submitter_moved_aside_and_changes_nothing(paths: Paths, tmp_path: Path) -> None:
    intake.submit(paths, [row()])
    old_outputs(tmp_path / "d")
    killed_at("aside.moved", paths, tmp_path / "d")
    [aside] = tmp_path.glob("d.before-*")
    [fault] = engine.check(paths)
    assert fault == (
        f"destination: what was at {tmp_path / 'd'} lies at {aside}, since a submit was killed while it overwrote it;"
        " the next schedq up or schedq submit moves it back"
    )
    assert aside.exists()
    engine.upgrade(paths)
    assert engine.check(paths) == []


def test_a_check_waits_for_a_submit_that_is_under_way(paths: Paths, tmp_path: Path) -> None:
    """A note of one that lives is no fault."""
    intake.submit(paths, [row()])
    Path(paths.asides).write_text("", encoding="utf-8")
    with Turnstile(paths).section(), pytest.raises(Temporary, match="stayed locked"):
        engine.check(paths, timeout_s=0.01)


@pytest.mark.parametrize("text", ["", "{", '{"id": 9, "out"', "[]\n7\n", '{"id": 9}\n', "\udcff"])
def test_a_note_that_was_cut_short_is_of_nothing_that_was_moved(paths: Paths, text: str) -> None:
    intake.submit(paths, [row()])
    Path(paths.asides).write_bytes(text.encode(errors="surrogateescape"))
    intake.submit(paths, [row()])
    assert not os.path.exists(paths.asides)
