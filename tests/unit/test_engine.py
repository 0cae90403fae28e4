from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from queues import AT, asked, row, submitted, writing

from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Refused, StoreError, Temporary
from scheduler.store import connection, content, engine, intake, peek, queue
from scheduler.store.engine import Store
from scheduler.store.turnstile import Turnstile


def test_every_writer_keeps_the_pragmas_that_durability_rests_on(paths: Paths, store: Store) -> None:
    submitted(paths)
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0, "wal_autocheckpoint": 0}
    with store.write() as tx:
        assert {name: tx.exec_driver_sql(f"PRAGMA {name}").scalar() for name in wanted} == wanted
        assert tx.exec_driver_sql("PRAGMA busy_timeout").scalar() == connection.BUSY_MS
    with writing(paths) as db:
        assert {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted} == wanted


def test_a_pragma_that_does_not_hold_is_an_error(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(paths)
    monkeypatch.setitem(connection.PRAGMAS, "page_size", 1234)
    with pytest.raises(StoreError, match="does not keep page_size = 1234"), writing(paths):
        pass


def test_a_write_is_inside_the_turnstile(paths: Paths, store: Store) -> None:
    with store.write(), pytest.raises(Temporary, match=f"process {os.getpid()}"):
        intake.submit(paths, [row()], timeout_s=0.05)
    assert submitted(paths) == [1]


def test_a_write_takes_the_lock_before_it_reads(paths: Paths, store: Store) -> None:
    with store.write():
        other = sqlite3.connect(paths.database, timeout=0, isolation_level=None)
        try:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
        finally:
            other.close()


def test_the_writing_connection_belongs_to_its_thread(paths: Paths, store: Store) -> None:
    with store.write():
        pass
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            with store.write() as tx:
                queue.pause(tx, AT)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(30)
    assert len(caught) == 1 and "thread" in str(caught[0])
    with store.write() as tx:
        assert not queue.paused(tx)


def test_reads_see_one_moment_and_cannot_write(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM jobs").scalar() == 1
        submitted(paths)
        assert tx.exec_driver_sql("SELECT count(*) FROM jobs").scalar() == 1
    with pytest.raises(Temporary, match="readonly"), store.read() as tx:
        tx.exec_driver_sql("DELETE FROM jobs")
    assert peek.ids(paths, {}) == [1, 2]


def test_reading_where_there_is_no_queue_says_so_and_makes_none(paths: Paths) -> None:
    with pytest.raises(NoSuchJob, match="no queue at"), Store(paths).read():
        pass
    with pytest.raises(NoSuchJob, match="no queue at"):
        engine.check(paths)
    with pytest.raises(NoSuchJob, match="no queue at"):
        engine.backup(paths, paths.home + "-copy")
    assert not os.path.exists(paths.home)


def test_closing_leaves_the_database_alone_on_the_disk(paths: Paths) -> None:
    submitted(paths)
    store = Store(paths, timeout_s=0.05)
    with store.write() as tx:
        queue.pause(tx, AT)
    assert os.path.exists(paths.database + "-wal")
    with Turnstile(paths).section(), pytest.raises(Temporary):
        store.close()
    store.close()
    assert not os.path.exists(paths.database + "-wal")
    store.close()
    assert asked(paths, "SELECT paused_at FROM queue") == [(AT,)]


def test_a_long_log_is_checkpointed_after_the_commit(paths: Paths, store: Store) -> None:
    with store.write() as tx:
        tx.exec_driver_sql("CREATE TABLE big (data BLOB)")
        for _ in range(150):
            tx.exec_driver_sql("INSERT INTO big VALUES (randomblob(65536))")
    assert os.stat(paths.database).st_size > 8 << 20
    with store.write() as tx:
        queue.pause(tx, AT)
    assert os.stat(paths.database + "-wal").st_size <= connection.WAL_LIMIT


def test_a_backup_is_one_moment_private_and_whole(paths: Paths, store: Store, tmp_path: Path) -> None:
    submitted(paths, 3)
    with store.write() as tx:
        queue.pause(tx, AT)
    target = engine.backup(paths, str(tmp_path / "copy.db"))
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    copy = sqlite3.connect(target)
    assert copy.execute("SELECT count(*), (SELECT paused_at FROM queue) FROM jobs").fetchone() == (3, AT)
    assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "queue"]
    with pytest.raises(Refused, match="exists"):
        engine.backup(paths, target)


def test_a_backup_can_be_put_in_the_queues_place(paths: Paths, tmp_path: Path) -> None:
    submitted(paths, 2)
    target = engine.backup(paths, str(tmp_path / "copy.db"))
    submitted(paths)
    os.rename(target, paths.database)
    assert submitted(paths) == [3]
    assert engine.check(paths) == []


def test_a_database_alone_is_a_queue_again(paths: Paths, tmp_path: Path) -> None:
    submitted(paths, 2)
    fresh = Paths(str(tmp_path / "fresh"))
    os.mkdir(fresh.home)
    os.rename(paths.database, fresh.database)
    assert intake.cancel(fresh, [1]) == [(1, "queued", "cancelled")]
    assert submitted(fresh) == [3]


def test_an_upgrade_removes_what_killed_submitters_left(paths: Paths) -> None:
    submitted(paths)
    Path(paths.content, f".staged-{2**22 + 7}-00ff").write_bytes(b"half")
    engine.upgrade(paths)
    assert os.listdir(paths.content) == []


def test_check_finds_nothing_in_a_good_queue(paths: Paths) -> None:
    intake.submit(paths, [row(data=b"x" * 70_000), row(state="held"), row(key="k")])
    intake.cancel(paths, [1])
    assert engine.check(paths) == []


def test_check_names_what_is_wrong(paths: Paths) -> None:
    intake.submit(paths, [row(data=b"x" * 70_000), row(data=b"y" * 70_000), row()])
    [(one,), (two,)] = asked(paths, "SELECT input_sha256 FROM jobs WHERE input IS NULL ORDER BY id")
    os.unlink(content.path(paths, one))
    os.chmod(content.path(paths, two), 0o600)
    Path(content.path(paths, two)).write_bytes(b"z")
    with writing(paths) as db:
        db.execute("UPDATE depth SET n = 5")
        db.execute("PRAGMA foreign_keys = 0")
        db.execute("UPDATE jobs SET worker_id = 99 WHERE id = 3")
    found = engine.check(paths)
    assert found[0] == "reference: row 3 of jobs names a row of workers that is not there"
    assert found[1] == "depth: boltz//queued/0 says 5, there are 3"
    assert "the input of job 1" in found[2] and "No such file" in found[2]
    assert "the input of job 2" in found[3] and "is not what was stored" in found[3]
    assert len(found) == 4
