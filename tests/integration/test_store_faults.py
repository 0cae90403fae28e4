"""Databases and disks that are not as they should be: named, refused, and left exactly as they were."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import asked, child, ended, row, scheduler, submitted, writing

from scheduler.config import Paths
from scheduler.errors import Corrupt, NewerSchema, OlderSchema, StoreError, Temporary
from scheduler.store import connection, engine, intake, peek

EVERY_VERB: dict[str, Callable[[Paths], object]] = {
    "submit": lambda paths: intake.submit(paths, [row()]),
    "cancel": lambda paths: intake.cancel(paths, [1]),
    "status": peek.status,
    "ids": lambda paths: peek.ids(paths, {}),
    "write": lambda paths: _write(paths),
    "upgrade": engine.upgrade,
    "check": engine.check,
}


def _write(paths: Paths) -> None:
    store = engine.Store(paths)
    try:
        with store.write():
            pass
    finally:
        store.close()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "queue"))
    submitted(made, 3)
    return made


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(paths: Paths, verb: str) -> None:
    Path(paths.database).write_bytes(b"my notes, not a database\n" * 500)
    before = Path(paths.database).read_bytes()
    with pytest.raises(Corrupt, match=r"queue\.db is damaged .*left as it is") as caught:
        EVERY_VERB[verb](paths)
    assert caught.value.exit_code == 3
    assert Path(paths.database).read_bytes() == before


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_a_damaged_database_is_refused_and_left_as_it_is(paths: Paths, verb: str) -> None:
    whole = Path(paths.database).read_bytes()
    Path(paths.database).write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    before = Path(paths.database).read_bytes()
    with pytest.raises(Corrupt):
        EVERY_VERB[verb](paths)
    assert Path(paths.database).read_bytes() == before


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_the_database_of_a_later_schedq_is_refused_and_left_as_it_is(paths: Paths, verb: str) -> None:
    with writing(paths) as db:
        db.execute("UPDATE alembic_version SET version_num = '0417'")
    before = Path(paths.database).read_bytes()
    with pytest.raises(NewerSchema, match=r"schema 0417, which a later schedq wrote") as caught:
        EVERY_VERB[verb](paths)
    assert caught.value.exit_code == 3
    assert Path(paths.database).read_bytes() == before


@pytest.mark.parametrize("verb", [verb for verb in EVERY_VERB if verb != "upgrade"])
def test_the_database_of_an_earlier_schedq_waits_for_an_upgrade(
    paths: Paths, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REVISIONS", (*connection.REVISIONS, "9999"))
    with pytest.raises(OlderSchema, match="run `schedq db upgrade`"):
        EVERY_VERB[verb](paths)
    with scheduler(paths), pytest.raises(OlderSchema, match="scheduler runs: `schedq restart`") as caught:
        EVERY_VERB[verb](paths)
    assert "db upgrade" not in str(caught.value), "that one refuses while a scheduler runs"


def test_somebody_elses_database_is_not_taken_for_a_queue(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    other = sqlite3.connect(paths.database)
    other.execute("CREATE TABLE recipes (cake TEXT)")
    other.close()
    with pytest.raises(StoreError, match="not a queue's"):
        submitted(paths)
    with pytest.raises(StoreError, match="not a queue's"):
        peek.status(paths)


def test_an_empty_file_is_a_queue_whose_making_was_cut_short(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    Path(paths.database).touch()
    assert peek.status(paths)["jobs"] == []
    assert submitted(paths) == [1]


def test_a_database_that_another_program_has_locked_is_temporary(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.PRAGMAS, "busy_timeout", 1)
    other = sqlite3.connect(paths.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(Temporary, match="locked by a program that is not schedq") as caught:
            submitted(paths)
    finally:
        other.close()
    assert caught.value.exit_code == 75
    assert submitted(paths) == [4]


SUBMIT_AS = """
import os, resource
from queues import row
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.store import engine, intake, peek
paths, uid, limit = Paths(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
if uid and os.getuid() == 0:
    os.setgid(uid)
    os.setuid(uid)
try:
    while True:
        print(*intake.submit(paths, [row(data=os.urandom(60_000)) for _ in range(20)]), flush=True)
except SchedqError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def _refused(paths: Paths, *, uid: int = 0, limit: int = 0) -> tuple[list[int], str]:
    """The ids that a submitter printed before the disk refused it, and its words; it left with 75."""
    code, out, err = ended(child(SUBMIT_AS, paths.home, uid, limit))
    assert code == 75, err
    return [int(word) for word in out.split()], err


def test_a_folder_that_may_only_be_read_is_temporary_and_says_which(open_folder: Path) -> None:
    paths = Paths(str(open_folder / "queue"))
    submitted(paths, 2)
    uid = 65534 if os.getuid() == 0 else 0
    subprocess.run(["chmod", "-R", "a+rX,u-w", paths.home], check=True)
    try:
        printed, err = _refused(paths, uid=uid)
        assert printed == []
        assert paths.home in err and "nothing was written" in err and "writable" in err
        fresh = Paths(str(open_folder / "none" / "queue"))
        if uid:
            printed, err = _refused(fresh, uid=uid)
            assert printed == [] and "SCHEDQ_HOME" in err
    finally:
        subprocess.run(["chmod", "-R", "u+w", paths.home], check=True)
    assert peek.ids(paths, {}) == [1, 2]


def test_a_full_disk_is_temporary_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.getuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], capture_output=True
    ).returncode == 0  # fmt: skip
    paths = Paths(str(disk / "queue"))
    try:
        submitted(paths)
        printed, err = _refused(paths, limit=0 if mounted else 3 << 20)
        assert "took no more" in err and "MiB are left" in err and "nothing was written" in err
        assert peek.ids(paths, {}) == [1, *printed]
        assert engine.check(paths) == []
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def test_a_file_that_may_not_grow_is_temporary_and_loses_nothing(paths: Paths) -> None:
    printed, err = _refused(paths, limit=4 << 20)
    assert "took no more" in err
    assert peek.ids(paths, {}) == [1, 2, 3, *printed]
    assert engine.check(paths) == []
    more = submitted(paths)
    assert asked(paths, "SELECT max(id) FROM jobs") == [(more[0],)]


FULL_AFTER_THE_COMMIT = """
import logging, resource
from queues import row, writing
from scheduler.config import Paths
from scheduler.store import intake
from scheduler.store.engine import Store
logging.basicConfig(stream=sys.stderr, format="%(message)s")
paths, how = Paths(sys.argv[1]), sys.argv[2]
intake.submit(paths, [row(data=os.urandom(60_000)) for _ in range(200)])
resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
if how == "submit":
    print(len(intake.submit(paths, [row(data=os.urandom(60_000)) for _ in range(160)])))
elif how == "cancel":
    with writing(paths) as db:
        db.execute("UPDATE jobs SET input = randomblob(180000) WHERE id <= 50")
    print(intake.cancel(paths, [1]))
else:
    store = Store(paths)
    for last in (50, 1):
        with store.write() as tx:
            tx.exec_driver_sql(f"UPDATE jobs SET input = randomblob(180000) WHERE id <= {last}")
    print("written")
    store.close()
"""


@pytest.mark.parametrize(
    ("how", "told"), [("submit", "160"), ("cancel", "[(1, 'queued', 'cancelled')]"), ("write", "written")]
)
def test_a_log_that_cannot_be_emptied_after_the_commit_undoes_nothing_and_is_no_error(
    tmp_path: Path, how: str, told: str
) -> None:
    """The database may not grow to take the log in, which lies there whole: what was said is what is stored."""
    paths = Paths(str(tmp_path / "queue"))
    code, out, err = ended(child("import os\n" + FULL_AFTER_THE_COMMIT, paths.home, how))
    assert (code, out.strip()) == (0, told), err
    if how == "write":
        assert err.count("stays as long as it is") == 1, "said once in the log, not in each turn"
    assert len(peek.ids(paths, {})) == (360 if how == "submit" else 200)
    assert engine.check(paths) == []
