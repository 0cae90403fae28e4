"""Validation cases judged beside the loop: what is kept, what is tried again, what is said of outputs that are gone."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import AT, asked, row, submitted, writing

from scheduler import judging
from scheduler.config import Paths
from scheduler.judging import Judging
from scheduler.simulate.clock import VirtualClock
from scheduler.store import checks, intake, results
from scheduler.store.engine import Store


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


@pytest.fixture
def store(paths: Paths) -> Iterator[Store]:
    submitted(paths)
    made = Store(paths)
    yield made
    made.close()


def case(paths: Paths, expect: dict[str, Any], **over: Any) -> int:
    """A case in the queue, which has not ended."""
    beside = {"check": {"case": "a", "expect": expect, "fresh": False}}
    return intake.submit(paths, [row(beside=beside, **over)])[0]


def succeed(store: Store, job_id: int, reply: Any = None, folder: Path | None = None) -> None:
    """Its job succeeded, with this reply and these outputs."""
    data = json.dumps(reply).encode()
    with store.write() as tx:
        results.put(tx, job_id, 1, data, None if folder is None else str(folder))
        raw = tx.connection.driver_connection
        raw.execute("UPDATE jobs SET state = 'succeeded', ended_at = ?, outcome = 'ok' WHERE id = ?", (AT, job_id))


class Judge:
    """The judge of a loop that turns when it is told to."""

    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, VirtualClock()
        self.judging = Judging(self.clock)

    def turn(self) -> int:
        """One turn, what it began done to its end; how many deeds there were."""
        with self.store.write() as tx:
            deeds = self.judging.after(tx)
        for deed in deeds:
            deed.do()
        if self.judging._thread is not None:
            self.judging._thread.join()
        return len(deeds)

    def verdict(self, job_id: int) -> tuple[str | None, list[str], int]:
        """(verdict, what is said, whether it is open)."""
        with self.store.read() as tx:
            raw = tx.connection.driver_connection
            found = raw.execute("SELECT verdict, faults, open FROM checks WHERE job_id = ?", (job_id,)).fetchone()
        return found[0], [f"{f['place']}: {f['expected']}: {f['found']}" for f in json.loads(found[1])], found[2]


@pytest.fixture
def judge(store: Store) -> Judge:
    return Judge(store)


def outputs(tmp_path: Path, job_id: int) -> Path:
    folder = tmp_path / f"out{job_id}"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "x.pdb").write_text("ATOM")
    (folder / ".hidden").write_text("")
    for name in ("job.json", "result.json"):
        (folder / name).write_text(json.dumps({"job": job_id}))
    return folder


def test_a_case_is_judged_when_its_job_has_succeeded_and_not_before(paths: Paths, store: Store, judge: Judge) -> None:
    good, bad = case(paths, {"/x": 1}), case(paths, {"/x": 2, "/y": {"min": 3}})
    assert judge.turn() == 0 and judge.verdict(good) == (None, [], 0)
    for job_id in (good, bad):
        succeed(store, job_id, {"x": 1})
    assert judge.turn() == 1 and judge.verdict(good)[0] is None
    judge.turn()
    assert judge.verdict(good) == ("passed", [], 0)
    assert judge.verdict(bad) == ("failed", ["/x: 2: 1", "/y: at least 3: nothing at /y; at the top there is x"], 0)
    assert asked(paths, "SELECT DISTINCT state, outcome FROM jobs WHERE id > 1") == [("succeeded", "ok")]
    assert judge.turn() == 0 and judge.judging.due_in_s() == []


def test_a_case_whose_job_failed_is_never_judged(paths: Paths, store: Store, judge: Judge) -> None:
    job_id = case(paths, {"/x": 1})
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'failed', ended_at = ? WHERE id = ?", (AT, job_id))
    assert judge.turn() == 0 and judge.verdict(job_id) == (None, [], 0)


def test_what_a_scheduler_did_not_judge_before_it_died_the_next_one_does(paths: Paths, store: Store) -> None:
    job_id = case(paths, {"/x": 1})
    succeed(store, job_id, {"x": 1})
    died, follows = Judge(store), Judge(store)
    died.turn()
    assert died.verdict(job_id)[0] is None
    follows.turn()
    follows.turn()
    assert follows.verdict(job_id)[0] == "passed"


def test_a_verdict_that_was_rolled_back_is_found_again(paths: Paths, store: Store, judge: Judge) -> None:
    job_id = case(paths, {"/x": 1})
    succeed(store, job_id, {"x": 1})
    judge.turn()
    with pytest.raises(RuntimeError, match="the disk is full"), store.write() as tx:
        judge.judging.after(tx)
        raise RuntimeError("the disk is full")
    judge.turn()
    judge.turn()
    assert judge.verdict(job_id)[0] == "passed"


def test_output_files_are_looked_for_sized_and_hashed(paths: Paths, store: Store, judge: Judge, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"ATOM").hexdigest()
    expect = {"files": {"**/*.pdb": {"min_bytes": 4, "sha256": sha256}, "*.json": False, "job.json": True}}
    good, bad, none = (case(paths, each) for each in (expect, {"files": ["*.cif"]}, {"files": ["*"]}))
    succeed(store, good, {}, outputs(tmp_path, good))
    succeed(store, bad, {}, outputs(tmp_path, bad))
    succeed(store, none, {})
    judge.turn()
    judge.turn()
    assert judge.verdict(good) == ("passed", [], 0)
    assert judge.verdict(bad)[1] == ["files *.cif: a file: none; there are .hidden, deep/x.pdb"]
    assert judge.verdict(none)[1] == ["files *: a file: none; there are no outputs"]


def test_outputs_that_went_or_were_overwritten_before_they_were_judged_are_a_fault_in_these_words(
    paths: Paths, store: Store, judge: Judge, tmp_path: Path
) -> None:
    expect = {"/x": 2, "files": ["**/*.pdb"]}
    gone, taken = case(paths, expect), case(paths, expect)
    for job_id in (gone, taken):
        succeed(store, job_id, {"x": 1}, outputs(tmp_path, job_id))
    shutil.rmtree(tmp_path / f"out{gone}")
    (tmp_path / f"out{taken}" / "job.json").write_text('{"job": 99}')
    judge.turn()
    judge.turn()
    verdict, said, _ = judge.verdict(gone)
    assert verdict == "failed" and said[0] == "/x: 2: 1" and "were pruned, moved or removed before they were" in said[1]
    assert "overwritten by job 99 before they were judged" in judge.verdict(taken)[1][1]


def test_a_reply_that_was_pruned_before_it_was_judged_is_a_fault(paths: Paths, store: Store, judge: Judge) -> None:
    small, large = case(paths, {"/x": 1}), case(paths, {"/x": 1})
    succeed(store, small, {"x": 1})
    succeed(store, large, {"x": "A" * 100_000})
    [(sha256,)] = asked(paths, "SELECT sha256 FROM results WHERE job_id = ?", large)
    os.unlink(paths.content_of(sha256))
    with writing(paths) as db:
        db.execute("DELETE FROM results WHERE job_id = ?", (small,))
    judge.turn()
    judge.turn()
    for job_id in (small, large):
        assert judge.verdict(job_id)[1] == ["the reply: to be there: it was pruned before it was judged"]


def test_a_large_reply_is_read_where_it_is_kept(paths: Paths, store: Store, judge: Judge) -> None:
    job_id = case(paths, {"/x": "A" * 100_000})
    succeed(store, job_id, {"x": "A" * 100_000})
    judge.turn()
    judge.turn()
    assert judge.verdict(job_id)[0] == "passed"


def test_a_disk_that_cannot_tell_now_is_asked_again_later(
    paths: Paths, store: Store, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, other = case(paths, {"files": ["**/*.pdb"]}), case(paths, {"/x": 1})
    succeed(store, job_id, {}, outputs(tmp_path, job_id))
    succeed(store, other, {"x": 1})

    def fail(*_: object) -> Iterator[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(judging, "_walked", fail)
        judge.turn()
        judge.turn()
        assert judge.verdict(job_id) == (None, [], 1) and judge.verdict(other)[0] == "passed"
        [again_s] = judge.judging.due_in_s()
        assert judge.turn() == 0 and again_s == 1.0
        judge.clock.sleep(again_s)
        assert judge.turn() == 1
        judge.turn()
        assert judge.judging.due_in_s() == [2.0]
    judge.clock.sleep(2.0)
    judge.turn()
    judge.turn()
    assert judge.verdict(job_id)[0] == "passed" and judge.judging.due_in_s() == []


def test_outputs_that_are_nobodys_to_read_are_a_fault(
    paths: Paths, store: Store, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = case(paths, {"files": ["**/*.pdb"]})
    folder = outputs(tmp_path, job_id)
    succeed(store, job_id, {}, folder)

    def fail(*_: object) -> Iterator[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder / "deep"))

    monkeypatch.setattr(judging, "_walked", fail)
    judge.turn()
    judge.turn()
    assert judge.verdict(job_id)[1] == [f"files: outputs in {folder}: {folder}/deep: Permission denied"]


def test_a_reply_that_breaks_the_judge_fails_its_own_case_and_no_other(
    paths: Paths, store: Store, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, deep, fine = case(paths, {"/x": 1}), case(paths, {"/x": 1}), case(paths, {"/x": 1})
    for job_id in (odd, deep, fine):
        succeed(store, job_id, {"x": 1})
    with writing(paths) as db:
        db.execute("UPDATE results SET reply = ? WHERE job_id = ?", (b"[" * 50_000, deep))
        db.execute("UPDATE checks SET expect = '[]' WHERE job_id = ?", (odd,))
    judge.turn()
    judge.turn()
    assert judge.verdict(odd)[0] == judge.verdict(deep)[0] == "failed" and judge.verdict(fine)[0] == "passed"
    assert "cannot be read" in judge.verdict(deep)[1][0]


def test_what_is_to_be_judged_is_found_without_walking_through_what_was(paths: Paths, store: Store) -> None:
    for statement in (checks.OPEN, checks.FRESH, checks.JUDGE):
        with writing(paths) as db:
            steps = db.execute("EXPLAIN QUERY PLAN " + statement, dict.fromkeys(_names(statement), "[]")).fetchall()
        walked = [step for *_, step in steps if step.startswith("SCAN") and "checks_open" not in step]
        assert not [step for step in walked if "json_each" not in step], statement


def _names(statement: str) -> list[str]:
    return [word.strip(",()")[1:] for word in statement.replace("(", " ").split() if word.startswith(":")]


def test_only_a_job_that_succeeds_opens_its_case(paths: Paths) -> None:
    submitted(paths)
    job_id = case(paths, {"/x": 1})
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = ? WHERE id IN (1, ?)", (AT, job_id))
        assert db.execute("SELECT job_id, open FROM checks").fetchall() == [(job_id, 1)]
        with pytest.raises(sqlite3.IntegrityError):
            db.execute("UPDATE checks SET verdict = 'perhaps'")


def test_a_case_whose_files_hang_keeps_no_other(
    paths: Paths, store: Store, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, others = case(paths, {"files": ["**/*.pdb"]}), [case(paths, {"/x": 1}) for _ in range(3)]
    succeed(store, job_id, {}, outputs(tmp_path, job_id))
    for other in others:
        succeed(store, other, {"x": 1})
    begun, hangs = threading.Event(), threading.Event()

    def walked(folder: str) -> Iterator[str]:
        begun.set()
        hangs.wait(10.0)
        return iter(("deep/x.pdb",))

    monkeypatch.setattr(judging, "_walked", walked)
    with store.write() as tx:
        [deed] = judge.judging.after(tx)
    deed.do()
    assert begun.wait(5.0)
    with store.write() as tx:
        assert judge.judging.after(tx) == []
    judge.clock.sleep(judging.SLOW_S)
    assert judge.turn() == 1
    judge.turn()
    assert [judge.verdict(other)[0] for other in others] == ["passed"] * 3 and judge.verdict(job_id)[0] is None
    assert judge.judging.due_in_s() == [judging.LATEST_S]
    [hanging] = judge.judging._hanging
    hangs.set()
    assert hanging.thread is not None
    hanging.thread.join()
    judge.turn()
    assert judge.verdict(job_id)[0] == "passed" and judge.judging.due_in_s() == []


def test_a_case_that_is_gone_is_not_waited_for(
    paths: Paths, store: Store, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = case(paths, {"files": ["**/*.pdb"]})
    succeed(store, job_id, {}, outputs(tmp_path, job_id))

    def fail(*_: object) -> Iterator[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(judging, "_walked", fail)
    judge.turn()
    judge.turn()
    assert judge.judging.due_in_s() == [1.0]
    with writing(paths) as db:
        db.execute("DELETE FROM checks WHERE job_id = ?", (job_id,))
    judge.clock.sleep(1.0)
    judge.turn()
    assert judge.judging.due_in_s() == []


def test_a_link_that_leads_into_its_own_folder_has_an_end(
    paths: Paths, store: Store, judge: Judge, tmp_path: Path
) -> None:
    job_id = case(paths, {"files": ["**/x.pdb"]})
    folder = outputs(tmp_path, job_id)
    for name in ("a", "b"):
        (folder / name).symlink_to(".")
    succeed(store, job_id, {}, folder)
    judge.turn()
    judge.turn()
    assert judge.verdict(job_id)[0] == "passed"
