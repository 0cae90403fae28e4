from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from queues import AT, asked, row, submitted, writing
from sqlalchemy import Connection

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.errors import Fenced, IllegalTransition, NoSuchJob, Refused, UsageError
from scheduler.model.outcome import Outcome
from scheduler.model.states import JOB, LATE, SAME, SAYS
from scheduler.store import ending, engine, events, heads, intake, peek, queue, reasons, results, timings, workers
from scheduler.store.engine import Store

OK = Outcome("ok", "", 0)
ERROR = Outcome("error", "no residues", 1)
LOST = Outcome("lost", "its worker vanished")
SOON, LATER = stamp(1_700_000_060.0), stamp(1_700_003_600.0)


@pytest.fixture
def store(paths: Paths) -> Iterator[Store]:
    made = Store(paths)
    yield made
    made.close()
    assert engine.check(paths) == []


def worker(tx: Connection, slug: str = "boltz") -> int:
    return workers.insert(
        tx, slug=slug, variant="", revision="r1", mode="resident", host_id="h", epoch=1, created_at=AT
    )


def running(tx: Connection, job_id: int = 1) -> int:
    """The job's attempt, sent."""
    attempt = queue.admit(tx, job_id, worker(tx), 1, AT)
    queue.send(tx, job_id, attempt, AT)
    return attempt


def depth(tx: Connection) -> dict[str, int]:
    return {r.state: r.n for r in tx.exec_driver_sql("SELECT state, sum(n) AS n FROM depth GROUP BY state")}


def test_the_head_of_each_provider_is_the_first_by_priority_then_id(paths: Paths, store: Store) -> None:
    intake.submit(paths, [row(), row(priority=5), row(priority=5), row(slug="esm"), row(slug="esm", state="held")])
    with store.read() as tx:
        assert [(head.slug, head.id, head.count) for head in queue.heads(tx)] == [("boltz", 2, 3), ("esm", 4, 1)]


def test_a_claim_raises_the_attempt_and_leaves_the_line(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    with store.write() as tx:
        worker_id = worker(tx)
        assert queue.admit(tx, 1, worker_id, 7, AT) == 1
        assert queue.bound(tx, worker_id).id == 1
        assert [job.id for job in queue.live(tx)] == [1]
        assert [head.id for head in queue.heads(tx)] == [2]
        assert depth(tx) == {"admitted": 1, "queued": 1}
        tried = tx.exec_driver_sql("SELECT * FROM attempts").one()
        assert (tried.job_id, tried.attempt, tried.worker_id, tried.epoch, tried.revision) == (1, 1, worker_id, 7, "r1")


def test_what_waits_for_its_time_cannot_be_claimed(paths: Paths, store: Store) -> None:
    submitted(paths, blocked="begin", not_before_at=LATER)
    with store.write() as tx:
        assert queue.heads(tx) == []
        with pytest.raises(Fenced, match="begin"):
            queue.admit(tx, 1, worker(tx), 1, AT)


def test_the_try_counts_when_the_request_leaves(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        queue.admit(tx, 1, worker(tx), 1, AT)
        assert queue.row(tx, 1).tries == 0
        queue.send(tx, 1, 1, AT)
        job = queue.row(tx, 1)
        assert (job.state, job.tries, job.started_at) == ("running", 1, AT)


def test_only_the_current_attempt_can_end_a_job(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        running(tx)
        assert queue.finish(tx, 1, 1, "retry", LOST, AT) == "queued"
        running(tx)
        assert queue.finish(tx, 1, 1, "succeed", OK, AT, reply=b"stale") == "late"
        with pytest.raises(Fenced, match=r"attempt 1 of job 1 is not the current one \(2\)"):
            queue.finish(tx, 1, 1, "give_back", LOST, AT)
        with pytest.raises(Fenced, match="no longer running with attempt 1"):
            ending.move(tx, tx.exec_driver_sql("SELECT id, state, 1 AS attempt FROM jobs").one(), "held")
        assert queue.row(tx, 1).state == "running"
        assert results.get(tx, 1) == (None, None)
        assert queue.finish(tx, 1, 2, "succeed", OK, AT, reply=b'{"a": 1}', destination="/out/1") == "succeeded"
        assert queue.finish(tx, 1, 2, "fail", ERROR, AT) == "late"
        assert results.get(tx, 1) == (b'{"a": 1}', "/out/1")
    job = peek.job(paths, 1)
    assert job["outcome"] == {"kind": "ok", "text": "", "exit_code": 0} and job["ended_at"] == AT
    assert [a["outcome"] for a in job["attempts"]] == ["lost", "ok"]


def test_every_event_does_what_the_table_says_and_nothing_else(paths: Paths, store: Store) -> None:
    """All states by all events that a function carries out, against the literal table."""
    calls = {
        event: (lambda tx, i, n, e=event: queue.finish(tx, i, n, e, ERROR, AT))
        for event in ("succeed", "fail", "time_out", "retry", "give_back", "give_up", "stop", "park")
    }
    calls |= {
        "hold": lambda tx, i, n: queue.hold(tx, i, AT),
        "release": lambda tx, i, n: queue.release(tx, i, AT),
        "requeue": lambda tx, i, n: queue.requeue(tx, i, AT),
        "admit": lambda tx, i, n: queue.admit(tx, i, 1, 1, AT),
        "send": lambda tx, i, n: queue.send(tx, i, n, AT),
    }
    states = [state for state in JOB if state != "(insert)"]
    ids = submitted(paths, len(states) * len(calls))
    with store.write() as tx:
        worker(tx)
        for state in states:
            for event, call in calls.items():
                job_id = ids.pop()
                tx.exec_driver_sql("UPDATE jobs SET state = ?, attempt = 1 WHERE id = ?", (state, job_id))
                cell = JOB[state].get(event)
                if cell is None:
                    with pytest.raises(IllegalTransition):
                        call(tx, job_id, 1)
                elif cell == SAYS:
                    with pytest.raises(UsageError) as caught:
                        call(tx, job_id, 1)
                    assert caught.value.exit_code == 2 and state in str(caught.value)
                else:
                    answer = call(tx, job_id, 1)
                    expected = state if cell in (SAME, LATE) else cell
                    assert queue.row(tx, job_id).state == expected, (state, event)
                    if event not in ("admit", "send"):
                        assert answer == (LATE if cell == LATE else expected), (state, event)


def test_an_illegal_event_raises_with_the_story_and_changes_nothing(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        queue.admit(tx, 1, worker(tx), 1, AT)
        with pytest.raises(IllegalTransition, match=rf"'stop' in state 'admitted'; so far: {AT} admit #1"):
            queue.finish(tx, 1, 1, "stop", LOST, AT)
        assert queue.row(tx, 1).state == "admitted"


def test_a_retry_waits_behind_its_back_off_until_it_is_due(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        running(tx)
        queue.finish(tx, 1, 1, "retry", LOST, AT, not_before_at=SOON, count_death=True)
        job = queue.row(tx, 1)
        assert (job.state, job.blocked, job.not_before_at, job.worker_id) == ("queued", "backoff", SOON, None)
        assert (job.tries, job.deaths, job.outcome) == (1, 1, None)
        assert queue.next_due_at(tx) == SOON and depth(tx) == {"blocked": 1}
        assert queue.due(tx, AT) == 0 and queue.heads(tx) == []
        assert queue.due(tx, SOON) == 1 and queue.next_due_at(tx) is None
        assert [head.id for head in queue.heads(tx)] == [1]


def test_giving_back_and_later_do_not_count_as_tries(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        queue.admit(tx, 1, worker(tx), 1, AT)
        queue.finish(tx, 1, 1, "give_back", Outcome("interrupted"), AT)
        assert queue.row(tx, 1).tries == 0
        running(tx)
        queue.finish(tx, 1, 2, "give_back", Outcome("interrupted"), AT)
        assert queue.row(tx, 1).tries == 0
        running(tx)
        queue.finish(tx, 1, 3, "retry", Outcome("error", "rate limit", 75), AT, not_before_at=SOON, later=True)
        job = queue.row(tx, 1)
        assert (job.tries, job.laters, job.attempt) == (0, 1, 3)


def test_what_was_asked_to_be_cancelled_never_goes_back_into_the_line(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    with store.write() as tx:
        running(tx, 1)
        queue.admit(tx, 2, worker(tx), 1, AT)
        tx.exec_driver_sql("UPDATE jobs SET cancel_requested_at = ? WHERE id = 2", (AT,))
    intake.cancel(paths, [1])
    with store.write() as tx:
        assert queue.finish(tx, 1, 1, "retry", LOST, AT) == "cancelled"
        assert queue.finish(tx, 2, 1, "give_back", Outcome("interrupted"), AT) == "cancelled"


def test_a_reply_that_is_there_before_the_cancel_is_carried_out_wins(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        running(tx)
    intake.cancel(paths, [1])
    with store.write() as tx:
        assert queue.finish(tx, 1, 1, "succeed", OK, AT) == "succeeded"


def test_an_admitted_job_that_is_cancelled_frees_its_worker(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        worker_id = worker(tx)
        attempt = queue.admit(tx, 1, worker_id, 1, AT)
        assert queue.cancel_admitted(tx, 1, attempt, AT) == "cancelled"
        assert queue.bound(tx, worker_id) is None


def test_an_admitted_job_is_cancelled_by_whoever_asks_and_cannot_be_sent_any_more(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        worker_id = worker(tx)
        queue.admit(tx, 1, worker_id, 1, AT)
    assert intake.cancel(paths, [1]) == [(1, "admitted", "cancelled")]
    with store.write() as tx:
        assert queue.bound(tx, worker_id) is None and queue.live(tx) == []
        with pytest.raises(IllegalTransition):
            queue.send(tx, 1, 1, AT)
    [tried] = peek.job(paths, 1)["attempts"]
    assert tried["outcome"] == "cancelled" and tried["ended_at"] is not None


def test_a_requeued_job_starts_anew_under_its_id_and_fence(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        running(tx)
        queue.finish(tx, 1, 1, "fail", ERROR, AT)
        assert queue.requeue(tx, 1, SOON) == "queued"
        job = queue.row(tx, 1)
        assert (job.tries, job.attempt, job.ended_at, job.outcome) == (0, 1, None, None)
        assert running(tx) == 2


def test_a_requeued_job_does_not_take_a_destination_that_another_has_now(paths: Paths, store: Store) -> None:
    out = paths.home + "-out"
    submitted(paths, out=out)
    intake.cancel(paths, [1])
    submitted(paths, out=out)
    with store.write() as tx, pytest.raises(Refused, match=r"job 2 \(queued\) has the destination"):
        queue.requeue(tx, 1, AT)
    assert peek.states(paths, [1]) == {1: "cancelled"}


def test_a_released_job_still_does_not_begin_before_its_time(paths: Paths, store: Store) -> None:
    submitted(paths, state="held", not_before_at=LATER)
    with store.write() as tx:
        assert queue.release(tx, 1, SOON) == "queued"
        assert queue.row(tx, 1).blocked == "begin"
        assert queue.hold(tx, 1, SOON) == "held"
        assert queue.release(tx, 1, stamp(1_800_000_000.0)) == "queued"
        assert queue.row(tx, 1).blocked is None
        with pytest.raises(NoSuchJob, match="no job 9"):
            queue.hold(tx, 9, AT)


def test_another_revision_blocks_and_the_pinned_one_frees(paths: Paths, store: Store) -> None:
    intake.submit(paths, [row(), row(revision="r0"), row(revision="r2"), row(slug="esm", revision="r0")])
    with store.write() as tx:
        assert queue.set_revision_blocks(tx, {("boltz", ""): "r1"}) == 2
        assert queue.set_revision_blocks(tx, {("boltz", ""): "r1"}) == 0
        assert [(head.id, head.count) for head in queue.heads(tx)] == [(1, 1), (4, 1)]
        assert queue.set_revision_blocks(tx, {("boltz", ""): "r2"}) == 2
        assert queue.due(tx, LATER) == 0


def test_a_head_keeps_its_first_moment_and_loses_it_when_it_leaves_the_line(paths: Paths, store: Store) -> None:
    submitted(paths, 3)
    with store.write() as tx:
        heads.open_head(tx, 1, AT)
        heads.open_head(tx, 1, SOON)
        assert queue.row(tx, 1).head_since_at == AT
        queue.admit(tx, 1, worker(tx), 1, SOON)
        queue.finish(tx, 1, 1, "give_back", Outcome("interrupted"), SOON)
        assert queue.row(tx, 1).head_since_at is None
        for job_id in (1, 2, 3):
            heads.open_head(tx, job_id, AT)
        heads.close_heads(tx, keep=(2,))
        assert [queue.row(tx, job_id).head_since_at for job_id in (1, 2, 3)] == [None, AT, None]


def test_progress_is_kept_of_the_running_attempt_only(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        running(tx)
        assert queue.progress(tx, 1, 1, 3, 10, "folding")
        assert not queue.progress(tx, 1, 2, 4, 10)
        assert queue.json_object(queue.row(tx, 1).progress) == {"done": 3, "total": 10, "message": "folding"}


def test_a_drain_stops_the_queue_like_a_pause_and_resume_ends_both(store: Store) -> None:
    with store.write() as tx:
        queue.drain(tx, AT)
        queue.drain(tx, SOON)
        assert queue.paused(tx) and queue.drained(tx)
        assert tx.exec_driver_sql("SELECT paused_at, drained_at FROM queue").one() == (None, AT)
        queue.pause(tx, SOON)
        queue.resume(tx)
        assert not queue.paused(tx) and not queue.drained(tx)


def test_a_paused_queue_says_so(store: Store) -> None:
    with store.write() as tx:
        assert not queue.paused(tx)
        queue.pause(tx, AT)
        assert queue.paused(tx)
        queue.resume(tx)
        assert not queue.paused(tx)


def test_a_failed_transaction_changes_nothing(paths: Paths, store: Store) -> None:
    submitted(paths)
    with pytest.raises(RuntimeError), store.write() as tx:
        running(tx)
        raise RuntimeError("the loop broke")
    with store.read() as tx:
        assert queue.row(tx, 1).state == "queued" and queue.live(tx) == [] and depth(tx) == {"queued": 1}
        assert events.story(tx, job_id=1) == ""


def test_the_depth_follows_every_change_of_a_row(paths: Paths, store: Store) -> None:
    submitted(paths, 4)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET priority = 2 WHERE id <= 2")
        db.execute("UPDATE jobs SET slug = 'esm', blocked = 'after' WHERE id = 1")
        db.execute("DELETE FROM jobs WHERE id = 4")
        found = db.execute("SELECT slug, state, priority, n FROM depth ORDER BY 1, 2, 3").fetchall()
    assert found == [("boltz", "queued", 0, 1), ("boltz", "queued", 2, 1), ("esm", "blocked", 2, 1)]
    assert asked(paths, "SELECT count(*) FROM depth WHERE n <= 0") == [(0,)]


def test_a_job_that_is_not_queued_is_not_blocked(paths: Paths) -> None:
    submitted(paths)
    with writing(paths) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute("UPDATE jobs SET state = 'held', blocked = 'begin'")


def test_a_large_reply_is_beside_the_database_and_whole(paths: Paths, store: Store) -> None:
    submitted(paths)
    reply = b"A" * 70_000
    with store.write() as tx:
        running(tx)
        queue.finish(tx, 1, 1, "succeed", OK, AT, reply=reply)
        assert results.get(tx, 1) == (reply, None)
    assert peek.result(paths, 1)[0] == reply
    assert asked(paths, "SELECT reply, bytes FROM results") == [(None, 70_000)]


def test_means_follow_what_was_measured(store: Store) -> None:
    with store.write() as tx:
        for seconds in (10.0, 20.0, 30.0):
            timings.ran(tx, "boltz", "", seconds)
        timings.loaded(tx, "boltz", "", 100.0)
        known = timings.known(tx)["boltz", ""]
        assert (known.runs, known.run_s, known.loads, known.load_s) == (3, pytest.approx(20.0), 1, 100.0)
        for _ in range(300):
            timings.ran(tx, "boltz", "", 60.0)
        assert timings.known(tx)["boltz", ""].run_s == pytest.approx(60.0, abs=1.0)


def test_a_reason_is_replaced_and_cleared(paths: Paths, store: Store) -> None:
    with store.write() as tx:
        reasons.put(tx, "boltz", "", 1, "pool_full", "28 + 4 > 30", AT)
        reasons.put(tx, "boltz", "", 2, "cores", "no cores", SOON)
    assert asked(paths, "SELECT job_id, ruling, at FROM reasons") == [(2, "cores", SOON)]
    with store.write() as tx:
        reasons.clear(tx, "boltz", "")
    assert asked(paths, "SELECT * FROM reasons") == []
