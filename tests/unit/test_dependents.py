"""What becomes of jobs that wait for others: the real loop and store under a virtual clock."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import asked, scheduler, ticked, writing

from scheduler import dependents, pinning
from scheduler.config import Paths
from scheduler.dependents import Dependents
from scheduler.errors import Refused, UsageError
from scheduler.loop import Loop
from scheduler.model.host import Task
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider
from scheduler.perform import Identity
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import SimHost
from scheduler.store import intake, operator, passing, peek, pruning, schedulers
from scheduler.store.engine import Store
from scheduler.view import Orders


class Night:
    """A queue on disk, a simulated machine, one scheduler."""

    def __init__(self, folder: Path) -> None:
        self.paths, self.clock = Paths(str(folder / "home")), VirtualClock()
        self.fails: set[int] = set()
        self.host = SimHost(
            self.clock, {}, capacity_gib=36.0, reserve_gib=4.0, load_s=lambda slug: 10.0, run_s=lambda task: 5.0,
            outcome=self._outcome,
        )  # fmt: skip
        for slug in ("fold", "design"):
            self.host.catalog[slug, ""] = Provider(slug, policy="required", vram_gib=10.0, revision="r", backoff_s=1.0)
        self.store: Store | None = None
        self.loop: Loop | None = None

    def _outcome(self, task: Task) -> Outcome:
        return Outcome("error", "boom") if task.job_id in self.fails else Outcome("ok")

    def submit(self, slug: str, *after: str, count: int = 1, **columns: Any) -> int:
        """That many jobs; the id of the first."""
        row = {
            "slug": slug, "name": "x", "revision": "r", "input_name": "x.json", "input_kind": "json", "data": b"{}",
            "beside": {"after": list(after)}, **columns,
        }  # fmt: skip
        return intake.submit(self.paths, [dict(row) for _ in range(count)])[0]

    def up(self) -> Loop:
        if self.store is not None:
            self.store.close()
        self.store = Store(self.paths)
        with self.store.write() as tx:
            epoch = schedulers.begin(
                tx, pid=1, started=1.0, boot_id="s", host_id="s", version="t", at="2027-01-15T08:00:00Z"
            )
        self.loop = Loop(
            self.store, self.host, self.clock, Identity(epoch, "s", "q"), Orders(), draw=lambda: 0.5, told=False
        )
        self.loop.chores.dependents = Dependents(self.clock, inline=True)
        self.loop.recover()
        return self.loop

    def until(self, condition: Callable[[], bool], most: int = 400) -> None:
        assert self.loop is not None
        ticked(self.loop, condition, most, self.paths)

    def state(self, job_id: int) -> str:
        return peek.states(self.paths, [job_id])[job_id]

    def change(self, act: Callable[..., Any], job_id: int, *more: Any) -> Any:
        assert self.store is not None
        with self.store.write() as tx:
            return act(tx, job_id, "2027-01-15T08:00:00.000000Z", *more)

    def reason(self, job_id: int) -> str:
        return str((peek.job(self.paths, job_id)["reason"] or {}).get("text"))


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


def test_a_child_starts_once_its_parent_has_succeeded_and_not_before(night: Night) -> None:
    parent = night.submit("fold", priority=-5)
    child = night.submit("design", str(parent), priority=5)
    night.up()
    night.until(lambda: night.state(parent) == "running")
    assert night.state(child) == "queued"
    night.until(lambda: night.state(child) == "succeeded")
    (begun,) = asked(night.paths, "SELECT admitted_at FROM attempts WHERE job_id = ?", child)
    (ended,) = asked(night.paths, "SELECT ended_at FROM jobs WHERE id = ?", parent)
    assert begun >= ended


def test_a_failed_parent_fails_its_children_and_theirs_with_the_reason(night: Night) -> None:
    parent = night.submit("fold")
    child = night.submit("design", str(parent))
    grandchild = night.submit("design", str(child))
    anyway = night.submit("design", f"{child}:any")
    night.fails = {parent}
    night.up()
    night.until(lambda: night.state(anyway) == "succeeded")
    assert night.state(child) == night.state(grandchild) == "failed"
    ended = peek.job(night.paths, child)["outcome"]
    assert ended == {"kind": "parent_failed", "text": f"job {parent} (fold x) failed: error: boom", "exit_code": None}
    assert peek.job(night.paths, grandchild)["outcome"]["text"].endswith(f"job {parent} (fold x) failed: error: boom")
    assert (child, "failed") in night.host.told


def test_who_asked_for_it_is_held_instead_and_says_what_mends_it(night: Night) -> None:
    parent = night.submit("fold")
    child = night.submit("design", str(parent), on_parent="hold")
    night.fails = {parent}
    night.up()
    night.until(lambda: night.state(child) == "held")
    reason = night.reason(child)
    assert f"job {parent} (fold x) failed: error: boom" in reason and f"schedq requeue {parent}" in reason
    assert f"schedq release {child}" in reason
    with pytest.raises(Refused, match=f"comes after a job that did not succeed: job {parent}"):
        night.change(operator.release, child)
    night.fails.clear()
    night.change(operator.requeue, parent)
    night.change(operator.release, child)
    assert night.reason(child).startswith(f"comes after job {parent} (x), which waits")
    night.until(lambda: night.state(child) == "succeeded")


def test_a_child_is_let_through_when_the_whole_batch_has_ended(night: Night) -> None:
    first = night.submit("fold", count=3, batch="night")
    child = night.submit("design", "night")
    anyway = night.submit("design", "night:any")
    late = night.submit("fold", batch="night", state="held")
    night.up()
    night.until(lambda: night.state(first) == "succeeded")
    assert night.reason(child).startswith("comes after batch night (2 of 3 not ended), and needs all to succeed")
    night.until(lambda: night.state(child) == night.state(anyway) == "succeeded")
    assert night.state(late) == "held"


def test_a_child_of_two_waits_for_the_slower_one(night: Night) -> None:
    first, second = night.submit("fold"), night.submit("fold", state="held")
    child = night.submit("design", str(first), f"{second}:any")
    night.up()
    night.until(lambda: night.state(first) == "succeeded")
    for _ in range(5):
        night.loop.tick(0.0)  # type: ignore[union-attr]
    assert night.state(child) == "queued" and night.reason(child).startswith(f"comes after job {second} (x), which is")
    night.change(operator.release, second)
    night.until(lambda: night.state(child) == "succeeded")


def test_one_bad_job_of_a_batch_fails_who_needs_all_at_once(night: Night) -> None:
    first = night.submit("fold", count=3, batch="night")
    child, anyway = night.submit("design", "night"), night.submit("design", "night:any")
    night.fails = {first}
    night.up()
    night.until(lambda: night.state(child) == "failed")
    assert night.state(first + 2) != "succeeded" and night.state(anyway) == "queued"
    text = peek.job(night.paths, child)["outcome"]["text"]
    assert text.startswith("1 job of batch night did not succeed, the first is job 1 (fold x) failed")
    night.until(lambda: night.state(anyway) == "succeeded")


def test_children_of_a_cancelled_parent_fail_at_the_next_turn_also_a_held_one(night: Night) -> None:
    parent = night.submit("fold")
    child, held = night.submit("design", str(parent)), night.submit("design", str(parent), state="held")
    night.up()
    intake.cancel(night.paths, [parent])
    night.until(lambda: night.state(child) == "failed" and night.state(held) == "failed", most=3)
    assert "cancelled before it ran" in peek.job(night.paths, held)["outcome"]["text"]


def test_a_child_that_is_not_to_begin_yet_waits_for_that_too(night: Night) -> None:
    parent = night.submit("fold")
    begin_at = "2099-01-01T00:00:00.000000Z"
    child = night.submit("design", str(parent), blocked="begin", not_before_at=begin_at)
    night.up()
    assert asked(night.paths, "SELECT blocked FROM jobs WHERE id = ?", child) == [("after",)]
    night.until(lambda: night.state(parent) == "succeeded")
    night.until(lambda: asked(night.paths, "SELECT blocked FROM jobs WHERE id = ?", child) == [("begin",)], most=3)


def test_a_child_of_another_revision_does_not_slip_through(night: Night) -> None:
    parent = night.submit("fold")
    child, good = night.submit("design", str(parent), revision="old"), night.submit("design", str(parent))
    night.up()
    night.until(lambda: night.state(good) == "succeeded")
    assert asked(night.paths, "SELECT blocked, attempt FROM jobs WHERE id = ?", child) == [("revision", 0)]


def test_a_requeued_child_waits_at_its_gates_again(night: Night) -> None:
    parent = night.submit("fold")
    child = night.submit("design", str(parent))
    night.fails = {parent}
    night.up()
    night.until(lambda: night.state(child) == "failed")
    with pytest.raises(Refused, match="schedq requeue 1 tries it again"):
        night.change(operator.requeue, child)
    night.fails.clear()
    night.change(operator.requeue, parent), night.change(operator.requeue, child)
    assert night.reason(child).startswith("comes after job 1")
    night.until(lambda: night.state(child) == "succeeded")


def test_a_child_may_be_told_to_wait_for_nobody(night: Night) -> None:
    parent = night.submit("fold", state="held")
    child = night.submit("design", str(parent))
    night.up()
    assert night.reason(child) == (
        "comes after job 1 (x), which is held, and needs it to succeed; schedq release 1 lets that one go"
    )
    assert night.change(passing.untie, child) == "--after none"
    assert night.change(passing.untie, child) == ""
    night.until(lambda: night.state(child) == "succeeded")
    with pytest.raises(UsageError, match="counts only while it waits"):
        night.change(passing.untie, child)


def test_a_turn_moves_so_many_and_comes_again_at_once(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependents, "MOST", 20)
    parent = night.submit("fold")
    first = night.submit("design", str(parent), count=90)
    other = night.submit("fold")
    night.submit("design", f"{other}:any", count=30)
    loop = night.up()
    with writing(night.paths) as db:
        for job_id in (parent, other):
            db.execute("UPDATE jobs SET state = 'failed', ended_at = 'x', outcome = 'error' WHERE id = ?", (job_id,))
    failed, turns = 0, 0
    while failed < 90 or turns < 7:
        loop.tick(0.0)
        (now,) = asked(night.paths, "SELECT count(*) FROM jobs WHERE outcome = 'parent_failed'")[0]
        assert now - failed <= 20
        if now < 90:
            assert loop.patience_s(settle_s=0.0) <= 0.02
        failed, turns = now, turns + 1
        assert turns < 30
    night.until(lambda: not asked(night.paths, "SELECT 1 FROM gates WHERE changed = 1"))
    assert asked(night.paths, "SELECT count(*) FROM jobs WHERE blocked = 'after'") == [(0,)]
    assert night.state(first) == "failed"


def test_parents_and_children_are_shown(night: Night) -> None:
    parent = night.submit("fold", batch="night")
    child = night.submit("design", str(parent), "night:any")
    shown = peek.job(night.paths, child)
    assert shown["parents"] == [
        {"id": 1, "slug": "fold", "variant": "", "name": "x", "state": "queued", "need": "ok"},
        {"batch": "night", "jobs": 1, "upto_id": 1, "open": 1, "bad": 0, "need": "any"},
    ]
    assert shown["reason"]["ruling"] == "after" and shown["on_parent"] == "fail" and shown["draft"] is None
    children = peek.job(night.paths, parent)["children"]
    assert children["count"] == 1 and children["jobs"][0]["id"] == child
    json.dumps(shown)


def removed(night: Night, *ids: int) -> None:
    """Their rows are taken away, whoever waits for them."""
    store = Store(night.paths)
    with store.write() as tx:
        assert pruning.remove(tx, ids, "9") == list(ids)
    store.close()


def test_a_gate_counts_no_member_whose_row_was_removed(night: Night) -> None:
    first = night.submit("fold", count=3, batch="A")
    child = night.submit("design", "A")
    intake.cancel(night.paths, [first])
    assert asked(night.paths, "SELECT jobs, open, bad, changed FROM gates") == [(3, 2, 1, 1)]
    removed(night, first)
    assert asked(night.paths, "SELECT jobs, open, bad FROM gates") == [(2, 2, 0)]
    late = night.submit("design", "A")
    night.up()
    assert night.reason(late).startswith("comes after batch A (2 of 2 not ended)")
    night.until(lambda: night.state(child) == night.state(late) == "succeeded")


def test_a_parent_that_is_removed_stays_one_that_did_not_succeed_and_says_so(night: Night) -> None:
    parent = night.submit("fold")
    child = night.submit("design", str(parent), batch="B")
    night.fails = {parent}
    night.up()
    night.until(lambda: night.state(child) == "failed")
    removed(night, parent)
    text = f"job {parent} did not succeed, and its row was removed. submit it anew"
    with pytest.raises(Refused, match=text):
        night.change(operator.requeue, child)
    with writing(night.paths) as db:
        db.execute("UPDATE jobs SET state = 'queued', blocked = 'after', ended_at = NULL WHERE id = ?", (child,))
        db.execute("UPDATE gates SET changed = 1")
    night.until(lambda: night.state(child) == "failed", most=3)


def test_those_whom_live_jobs_come_after_are_known_single_or_of_a_batch(night: Night) -> None:
    first = night.submit("fold", count=2, batch="A")
    single = night.submit("fold")
    night.submit("design", "A", str(single))
    late = night.submit("fold", batch="A")
    night.up()
    assert night.store is not None
    with night.store.read() as tx:
        assert pruning.needed(tx) == {first, first + 1, single}
        assert pruning.waited_for(tx, [first + 1, single, late]) == {first + 1, single}


def test_one_gate_that_cannot_be_looked_at_keeps_no_other_job(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = [night.submit("fold"), night.submit("fold")]
    bad, good = (night.submit("design", str(each)) for each in parents)
    real = passing.let_through

    def let_through(tx: Any, gate_id: int, *more: Any) -> list[int]:
        found = real(tx, gate_id, *more)
        if gate_id == 1:
            raise RuntimeError("boom")
        return found

    monkeypatch.setattr(passing, "let_through", let_through)
    night.up()
    night.until(lambda: night.state(good) == "succeeded")
    assert night.state(bad) == "queued" and asked(night.paths, "SELECT blocked FROM jobs WHERE id = ?", bad)[0][0]
    said = asked(night.paths, "SELECT text FROM events WHERE event = 'after' AND job_id IS NULL")
    assert said == [("what comes after job 1 cannot be looked at, tried again in 60 s: RuntimeError: boom",)]
    monkeypatch.undo()
    night.clock.sleep(60.0)
    night.until(lambda: night.state(bad) == "succeeded")


def test_a_broken_batch_is_looked_at_once_and_not_with_each_of_its_ends(night: Night) -> None:
    first = night.submit("fold", count=4, batch="A")
    night.submit("design", "A"), night.submit("design", "A:any")
    with writing(night.paths) as db:
        for at, state in enumerate(("failed", "failed", "succeeded", "succeeded")):
            db.execute("UPDATE jobs SET state = ?, ended_at = 'x' WHERE id = ?", (state, first + at))
            changed = db.execute("SELECT need, changed FROM gates ORDER BY id").fetchall()
            assert changed == [("ok", int(at == 0)), ("any", int(at == 3))]
            db.execute("UPDATE gates SET changed = 0")


def put_off(night: Night, *texts: str, odd: bool = False) -> Callable[..., Any]:
    """What makes inputs, as if it could not: each time for the next of these reasons."""
    said = iter(texts)
    return lambda _paths, job_id: pinning.Made(job_id, put_off=next(said, texts[-1]), odd=odd)


def drafted(night: Night, parent: int) -> int:
    refs = [{"at": "", "job": str(parent), "pointer": "", "as": "input"}]
    child = night.submit("design", str(parent), beside={"draft": {"refs": refs}})
    with writing(night.paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = 'x' WHERE id = ?", (parent,))
    return child


def test_why_an_input_is_not_made_is_the_reason_and_is_said_seldom(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinning, "made", put_off(night, "the disk is away", "no provider 'design'"))
    child = drafted(night, night.submit("fold"))
    loop = night.up()
    with scheduler(night.paths):
        night.until(lambda: "disk is away" in night.reason(child), most=5)
        assert night.reason(child) == (
            "its input cannot be made from job 1 yet, and is tried again by itself: the disk is away"
        )
    assert loop.chores.stays
    events = "SELECT count(*) FROM events WHERE job_id = ? AND event = 'after'"
    for _ in range(100):
        night.clock.sleep(61.0)
        loop.tick(0.0), loop.tick(0.0)
    with scheduler(night.paths):
        assert "no provider 'design'" in night.reason(child)
    assert 5 < asked(night.paths, events, child)[0][0] < 10


def test_what_nobody_foresaw_is_not_tried_for_ever(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "made", put_off(night, "TypeError: x", odd=True))
    child = drafted(night, night.submit("fold"))
    loop = night.up()
    for _ in range(dependents.ODD_MOST + 1):
        loop.tick(0.0), loop.tick(0.0)
        night.clock.sleep(61.0)
    ended = peek.job(night.paths, child)["outcome"]
    assert ended["text"] == "its input could not be made in 5 tries, a fault of schedq itself: TypeError: x"


def test_what_was_pruned_before_it_was_pinned_is_taken_anew(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def made(_paths: Paths, job_id: int) -> pinning.Made:
        tries.append(job_id)
        return pinning.Made(job_id, {"0": {"sha256": "f" * 64}}, relied=set() if len(tries) > 1 else {"f" * 64})

    monkeypatch.setattr(pinning, "made", made)
    child = drafted(night, night.submit("fold"))
    night.up()
    night.until(lambda: bool(asked(night.paths, "SELECT 1 FROM drafts WHERE pins <> '{}'")), most=5)
    assert tries == [child, child]


def test_a_disk_that_takes_no_piece_ends_no_job_and_keeps_no_other(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = tmp_path / "staged"
    staged.write_text("x")

    def place(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(dependents.content, "place", place)
    monkeypatch.setattr(
        pinning, "made", lambda _paths, job_id: pinning.Made(job_id, {"0": {}}, staged={"f" * 64: str(staged)})
    )
    child = drafted(night, night.submit("fold"))
    other = night.submit("design", "1")
    loop = night.up()
    for _ in range(dependents.ODD_MOST + 2):
        loop.tick(0.0), loop.tick(0.0)
        night.clock.sleep(61.0)
    assert night.state(child) == "queued" and not staged.exists()
    assert "No space left" in asked(night.paths, "SELECT put_off FROM drafts")[0][0]
    night.until(lambda: night.state(other) == "succeeded")


def test_an_input_that_takes_long_to_read_says_so(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "made", lambda _paths, _job: None)
    child = drafted(night, night.submit("fold"))
    loop = night.up()
    loop.tick(0.0)
    monkeypatch.setattr(loop.chores.dependents._making, "slow", lambda: {child})
    loop.tick(0.0)
    with scheduler(night.paths):
        assert night.reason(child).endswith("it takes long to read: a large file, or a disk that hangs")
