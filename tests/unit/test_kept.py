"""A queue that was made stays made: what is left of its database is told from a new one, and never replaced."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import child, ended, row, submitted

from scheduler.config import Paths
from scheduler.errors import Corrupt, SchedqError, StoreError, Temporary, UsageError
from scheduler.store import engine, intake, peek
from scheduler.store.kept import is_made

VERBS: dict[str, Callable[[Paths], object]] = {
    "submit": lambda paths: intake.submit(paths, [row()]),
    "cancel": lambda paths: intake.cancel(paths, [1]),
    "status": peek.status,
    "wait": lambda paths: peek.states(paths, [1]),
    "result": lambda paths: peek.result(paths, 1),
    "upgrade": engine.upgrade,
    "check": engine.check,
    "backup": lambda paths: engine.backup(paths, paths.database + ".copy"),
}


def without_schema(database: Path) -> None:
    database.unlink()
    made = sqlite3.connect(database)
    made.execute("PRAGMA user_version = 1")
    made.execute("VACUUM")
    made.close()
    assert database.stat().st_size >= 512


LOST: dict[str, Callable[[Path], object]] = {
    "emptied": lambda database: database.write_bytes(b""),
    "gone": lambda database: database.unlink(),
    "one byte": lambda database: database.write_bytes(b"x"),
    "too short": lambda database: database.write_bytes(b"SQLite format 3\0" * 31),
    "without a schema": without_schema,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("lost", LOST)
def test_a_queue_of_which_only_the_database_is_lost_is_damaged_and_left_as_it_is(
    paths: Paths, verb: str, lost: str
) -> None:
    """No scheduler ran yet: there are no jobs' folders, results or backups that would show it."""
    submitted(paths, 15)
    database = Path(paths.database)
    LOST[lost](database)
    before = database.read_bytes() if database.exists() else None
    with pytest.raises(Corrupt) as caught:
        VERBS[verb](paths)
    said = str(caught.value)
    assert caught.value.exit_code == 3
    assert paths.database in said and paths.mark in said and paths.backups in said and "SCHEDQ_HOME" in said
    assert (database.read_bytes() if database.exists() else None) == before


def test_a_mark_names_the_queue_and_stays_when_everything_else_is_swept(paths: Paths) -> None:
    submitted(paths)
    asked = peek.open_reader(paths)
    (queue_id,) = asked.execute("SELECT queue_id FROM queue").fetchone()
    asked.close()
    assert Path(paths.mark).read_text().splitlines()[0] == f"queue {queue_id}"
    assert os.stat(paths.mark).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("use", ["submit", "upgrade"])
def test_a_queue_from_before_there_were_marks_gets_one_at_its_next_write(paths: Paths, use: str) -> None:
    submitted(paths)
    os.unlink(paths.mark)
    VERBS[use](paths)
    assert os.path.exists(paths.mark)


@pytest.mark.parametrize("size", [1, 511])
def test_a_file_too_short_for_a_database_is_never_taken_for_a_new_queue(paths: Paths, size: int) -> None:
    os.mkdir(paths.home)
    Path(paths.database).write_bytes(b"x" * size)
    for verb in ("submit", "status", "upgrade"):
        with pytest.raises(Corrupt, match=f"has {size} bytes"):
            VERBS[verb](paths)
    assert os.listdir(paths.backups) == [] and os.stat(paths.database).st_size == size


def test_a_making_that_was_cut_short_before_the_schema_becomes_a_queue(paths: Paths) -> None:
    os.mkdir(paths.home)
    Path(paths.database).touch()
    without_schema(Path(paths.database))
    assert peek.status(paths)["jobs"] == []
    assert submitted(paths) == [1] and os.path.exists(paths.mark)


def fifo(path: str) -> None:
    os.mkfifo(path)


def listening(path: str) -> None:
    here = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        socket.socket(socket.AF_UNIX).bind(os.path.basename(path))
    finally:
        os.chdir(here)


WRONG: dict[str, tuple[Callable[[str], object], str]] = {
    "pipe": (fifo, "is a pipe"),
    "folder": (os.mkdir, "is a folder"),
    "device": (lambda path: os.symlink("/dev/zero", path), "is a device"),
    "socket": (listening, "is a socket"),
    "dangling": (lambda path: os.symlink("/nowhere/at/all", path), "is a link to /nowhere/at/all"),
    "looped": (lambda path: os.symlink(os.path.basename(path), path), "cannot be looked at"),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", WRONG)
def test_a_database_that_is_no_file_is_named_for_what_it_is_and_never_opened(
    paths: Paths, verb: str, kind: str
) -> None:
    os.mkdir(paths.home)
    make, told = WRONG[kind]
    make(paths.database)
    with pytest.raises(StoreError, match=told) as caught:
        VERBS[verb](paths)
    assert caught.value.exit_code == 3 and paths.database in str(caught.value)


def test_a_log_of_the_database_that_is_no_file_is_named_too(paths: Paths) -> None:
    submitted(paths)
    os.mkfifo(paths.database + "-wal")
    with pytest.raises(StoreError, match="wal is a pipe"):
        peek.status(paths)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("home", ["/dev/null", "file", "file/below"])
def test_a_home_that_is_no_folder_is_not_reported_as_an_empty_queue(tmp_path: Path, verb: str, home: str) -> None:
    (tmp_path / "file").write_text("my notes")
    with pytest.raises(UsageError, match="set SCHEDQ_HOME to a folder of yours") as caught:
        VERBS[verb](Paths(os.path.join(tmp_path, home)))
    assert caught.value.exit_code == 2
    assert str(tmp_path / "file" if home[0] == "f" else home) in str(caught.value)
    assert (tmp_path / "file").read_text() == "my notes"


@pytest.mark.parametrize("verb", ["submit", "upgrade"])
def test_a_home_that_cannot_be_made_is_temporary(verb: str) -> None:
    with pytest.raises(Temporary, match="/proc/x"):
        VERBS[verb](Paths("/proc/x"))


@pytest.mark.parametrize("at", ["lock", "lock/next", "lock/owner"])
def test_a_file_where_the_queue_has_a_folder_is_named(paths: Paths, at: str) -> None:
    submitted(paths)
    subprocess.run(["rm", "-rf", os.path.join(paths.home, at)], check=True)
    Path(paths.home, at).write_text("")
    with pytest.raises(Temporary, match=f"{paths.home}/lock.*cannot be used.*move away what is in the way"):
        submitted(paths)


def test_a_table_of_revisions_without_its_column_is_no_queue(paths: Paths) -> None:
    os.mkdir(paths.home)
    made = sqlite3.connect(paths.database)
    made.execute("CREATE TABLE alembic_version (other TEXT)")
    made.close()
    for verb in ("submit", "status", "check"):
        with pytest.raises(StoreError, match="not a queue's"):
            VERBS[verb](paths)


def test_a_database_without_one_of_its_tables_is_damaged(paths: Paths) -> None:
    submitted(paths)
    broken = sqlite3.connect(paths.database)
    broken.execute("DROP TABLE timings")
    broken.close()
    with pytest.raises(Corrupt, match="no such table: timings"):
        peek.status(paths)


LOOK_AS = """
import os
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.store import peek
os.setgid(65534)
os.setuid(65534)
try:
    print(peek.status(Paths(sys.argv[1]))["jobs"])
except SchedqError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("closed", [".", ".."])
def test_a_queue_that_another_user_keeps_closed_is_not_reported_as_empty(open_folder: Path, closed: str) -> None:
    paths = Paths(str(open_folder / "private" / "queue"))
    submitted(paths)
    for folder in (Path(paths.home).parent, Path(paths.home)):
        folder.chmod(0o755)
    Path(paths.home, closed).chmod(0o700)
    code, out, err = ended(child(LOOK_AS, paths.home))
    assert (code, out) == (75, ""), err
    assert "Permission denied" in err and "belongs to root (mode 0700)" in err and "SCHEDQ_HOME" in err
    assert os.path.realpath(os.path.join(paths.home, closed)) in err


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_what_reading_cannot_do_is_not_said_to_have_written_nothing(open_folder: Path) -> None:
    paths = Paths(str(open_folder / "queue"))
    submitted(paths)
    os.chmod(paths.home, 0o755)
    code, _, err = ended(child(LOOK_AS, paths.home))
    assert code == 75 and "nothing was written" not in err and "readable" in err, err


def test_looking_whether_a_queue_is_there_makes_nothing(paths: Paths) -> None:
    assert not is_made(paths)
    assert not os.path.exists(paths.home)
    assert submitted(paths) == [1] and is_made(paths)


def test_every_answer_is_one_of_ours(paths: Paths) -> None:
    os.makedirs(paths.home)
    for content in (b"", b"\0" * 4096, b"SQLite format 3\0" + b"\0" * 4096, b"\xff" * 600):
        Path(paths.database).write_bytes(content)
        for verb in VERBS.values():
            try:
                verb(paths)
            except SchedqError as error:
                assert str(error)
            Path(paths.database).write_bytes(content)
            if os.path.exists(paths.mark):
                os.unlink(paths.mark)
