from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from queues import AT, asked, row, scheduler, steps, submitted, writing

from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.errors import NoSuchJob
from scheduler.model.outcome import RULINGS, Outcome
from scheduler.store import (
    alone,
    decisions,
    facts,
    identity,
    intake,
    leases,
    peek,
    queue,
    reasons,
    schedulers,
    sighted,
    story,
    timings,
    workers,
)
from scheduler.store.engine import Store

FAR = "2099-01-01T10:00:00.000000Z"


@contextmanager
def changed(paths: Paths) -> Iterator:
    store = Store(paths)
    try:
        with store.write() as tx:
            yield tx
    finally:
        store.close()


def a_worker(tx, slug: str = "boltz", **over) -> int:
    return workers.insert(
        tx, slug=slug, variant="", revision="r1", mode="resident", host_id="h", epoch=1, created_at=AT, **over
    )


def reason(paths: Paths, job_id: int) -> tuple[str, str]:
    [found] = [job["reason"] for job in peek.status(paths)["jobs"] if job["id"] == job_id]
    return found["ruling"], found["text"]


def test_before_there_is_a_queue_everything_is_empty_and_none_is_made(paths: Paths) -> None:
    found = peek.status(paths)
    assert found["scheduler"] == {"running": False, "pid": None, "since_at": None, "rebooted": False}
    assert (found["pools"], found["workers"], found["others"], found["jobs"], found["counts"]) == ([], [], [], [], {})
    assert peek.ids(paths, {}) == [] and peek.states(paths, [1]) == {} and peek.last_id(paths) is None
    assert peek.workers(paths) == [] and peek.facts(paths) is None
    for ask in (peek.job, peek.result, peek.input_bytes):
        with pytest.raises(NoSuchJob, match="no job 1 in the queue at"):
            ask(paths, 1)
    assert not os.path.exists(paths.home)


def test_status_has_the_keys_that_others_build_on(paths: Paths) -> None:
    submitted(paths)
    found = peek.status(paths)
    assert {"schema_version", "at", "scheduler", "pools", "workers", "others", "jobs", "counts"} <= found.keys()
    assert {
        "id", "slug", "name", "user", "state", "priority", "batch", "attempt", "submitted_at", "started_at",
        "ended_at", "reason", "progress", "starts_in_s", "ends_in_s",
    } <= found["jobs"][0].keys()  # fmt: skip


def test_it_shows_what_runs_the_first_that_wait_what_is_held_and_the_last_that_ended(paths: Paths) -> None:
    intake.submit(paths, [row(slug=slug, priority=p) for slug in ("boltz", "esm") for p in (0, 5) for _ in range(15)])
    intake.submit(paths, [row(state="held"), *(row() for _ in range(8)), row(blocked="begin", not_before_at=FAR)])
    intake.cancel(paths, list(range(32, 40)))
    with changed(paths) as tx:
        queue.admit(tx, 16, a_worker(tx), 1, AT)
        queue.admit(tx, 17, a_worker(tx), 1, AT)
        queue.send(tx, 17, 1, AT)
    found = peek.status(paths)
    ids = [job["id"] for job in found["jobs"]]
    by_order = [*range(18, 31), *range(46, 53)]
    assert ids == [16, 17, *by_order, 61, *range(39, 34, -1)]
    assert found["counts"] == {"queued": 59, "held": 1, "admitted": 1, "running": 1, "cancelled": 8}
    assert found["waiting_more"] == 59 - 20


def test_with_few_that_may_start_the_blocked_are_shown_too(paths: Paths) -> None:
    intake.submit(paths, [row(blocked="begin", not_before_at=FAR), row()])
    found = peek.status(paths)
    assert [job["id"] for job in found["jobs"]] == [2, 1]
    assert found["counts"] == {"queued": 2} and found["waiting_more"] == 0


def test_every_waiting_job_has_a_reason(paths: Paths) -> None:
    intake.submit(paths, [row(), row(), row(slug="esm"), row(state="held"), row(blocked="begin", not_before_at=FAR)])
    with changed(paths) as tx:
        reasons.put(tx, "boltz", "", 1, "pool_full", "28.0 + 4.0 GiB > 30.0 GiB", AT)
        assert queue.set_revision_blocks(tx, {("esm", ""): "r2"}) == 1
    with scheduler(paths):
        assert reason(paths, 1) == ("pool_full", "28.0 + 4.0 GiB > 30.0 GiB")
        assert reason(paths, 2) == ("busy", "behind job 1 of boltz, which waits: pool_full")
        assert reason(paths, 3)[0] == "revision" and "r1 of esm" in reason(paths, 3)[1]
        assert reason(paths, 4) == ("held", "held by its operator")
        assert reason(paths, 5) == ("begin", "was told not to begin before 2099-01-01T10:00:00Z")
        for ago_s, told in ((-9.8, "in 10 s"), (-600.0, "in 10 min"), (-30000.0, "in 8 h"), (1.0, "now")):
            [job] = intake.submit(paths, [row(blocked="backoff", not_before_at=stamp(now_s() - ago_s))])
            assert reason(paths, job)[1].endswith(f"tries again {told}")
    assert all(job["reason"]["ruling"] in RULINGS for job in peek.status(paths)["jobs"])


def test_a_job_in_back_off_was_tried_as_often_as_its_request_was_sent(paths: Paths) -> None:
    """A claim that was undone, as a parked keeper's is that found no room, raises the attempt and is no try."""
    submitted(paths)
    with changed(paths) as tx:
        worker_id = a_worker(tx)
        for attempt in (1, 2):
            queue.admit(tx, 1, worker_id, 1, AT)
            queue.finish(tx, 1, attempt, "give_back", Outcome("interrupted"), AT, not_before_at=FAR, block="backoff")
            queue.due(tx, FAR)
        queue.admit(tx, 1, worker_id, 1, AT)
        queue.finish(tx, 1, 3, "give_back", Outcome("interrupted"), AT, not_before_at=FAR, block="backoff")
    with scheduler(paths):
        assert reason(paths, 1)[1].startswith("not tried yet, tries again in ")
    with changed(paths) as tx:
        queue.due(tx, FAR)
        for attempt, later in ((4, False), (5, True)):
            queue.admit(tx, 1, worker_id, 1, AT)
            queue.send(tx, 1, attempt, AT)
            queue.finish(tx, 1, attempt, "retry", Outcome("error"), AT, not_before_at=FAR, later=later)
            if not later:
                queue.due(tx, FAR)
    with scheduler(paths):
        assert reason(paths, 1)[1].startswith("tried once, told to come later once, tries again in ")


def test_a_reason_that_is_about_a_job_that_runs_by_now_is_not_repeated(paths: Paths) -> None:
    submitted(paths, 2)
    with changed(paths) as tx:
        reasons.put(tx, "boltz", "", 1, "pool_full", "28.0 + 4.0 GiB > 30.0 GiB", AT)
        queue.admit(tx, 1, a_worker(tx), 1, AT)
    with scheduler(paths):
        assert reason(paths, 2) == ("busy", "waits for its turn at boltz, behind job 1")


def test_without_a_scheduler_that_is_the_reason_and_what_to_do(paths: Paths) -> None:
    submitted(paths, variant="big")
    ruling, text = reason(paths, 1)
    assert ruling == "scheduler_down" and "`schedq up` starts one" in text
    with changed(paths) as tx:
        reasons.put(tx, "boltz", "big", 1, "pool_full", "28.0 + 4.0 GiB > 30.0 GiB", AT)
    assert "the last one said: 28.0 + 4.0 GiB" in reason(paths, 1)[1]
    with scheduler(paths):
        assert peek.status(paths)["scheduler"]["running"]
        assert reason(paths, 1)[0] == "pool_full"


def test_the_scheduler_that_runs_is_named(paths: Paths) -> None:
    submitted(paths)
    with changed(paths) as tx:
        schedulers.begin(tx, pid=41, started=1.0, boot_id="b", host_id="h", version="0", at=AT)
    assert peek.status(paths)["scheduler"] == {"running": False, "pid": None, "since_at": None, "rebooted": False}
    with scheduler(paths):
        assert peek.status(paths)["scheduler"] == {"running": True, "pid": 41, "since_at": AT, "rebooted": False}


def test_workers_and_pools_show_what_is_charged_now(paths: Paths) -> None:
    with changed(paths) as tx:
        worker_id = a_worker(tx)
        leases.reserve(tx, worker_id, "boltz", {"unified": 28.0}, "h", AT)
        for event in ("shown", "go", "answer"):
            columns = {"leader_pid": 77, "idle_since_at": stamp(now_s() - 60)} if event == "answer" else {}
            workers.move(tx, worker_id, event, AT, **columns)
        pools = [{"id": "unified", "kind": "unified", "capacity_gib": 119.0, "charged_gib": 99.0, "owed_gib": 9.0}]
        facts.put(tx, identity.host_id(), {"pools": pools, "others": [{"pid": 9}], "notes": ["n"]}, AT)
    found = peek.status(paths)
    assert peek.facts(paths) == {"pools": pools, "others": [{"pid": 9}], "notes": ["n"]}
    assert found["pools"] == [{**pools[0], "charged_gib": 28.0}]
    assert found["others"] == [{"pid": 9}] and found["facts_at"] == AT
    [shown] = found["workers"]
    assert shown["charges"] == [{"pool": "unified", "charge_gib": 28.0, "used_gib": None}]
    assert (shown["id"], shown["slug"], shown["state"], shown["pid"], shown["jobs_served"]) == (
        1,
        "boltz",
        "ready",
        77,
        0,
    )
    assert 59 <= shown["idle_s"] <= 120
    assert peek.workers(paths)[0]["pid"] == 77


def owed(paths: Paths) -> tuple[float, float]:
    [pool] = peek.status(paths)["pools"]
    return pool["owed_gib"], pool["charged_gib"]


@pytest.mark.parametrize("theirs", [(0.0, 0.0), (10.0, 2.0)], ids=["alone", "beside another queue"])
def test_what_is_owed_is_a_part_of_what_is_charged_now_and_goes_with_it(
    paths: Paths, theirs: tuple[float, float]
) -> None:
    """The snapshot is older than the charges: two workers of 8 GiB then, of which one is gone, and then the other."""
    others_gib, others_owed_gib = theirs
    with changed(paths) as tx:
        ids = [a_worker(tx), a_worker(tx)]
        for each in ids:
            leases.reserve(tx, each, "boltz", {"host": 8.0}, "h", AT)
            leases.move(tx, each, "go", AT, "")
        pool = {
            "id": "host", "kind": "host", "capacity_gib": 64.0, "charged_gib": 16.0 + others_gib,
            "others_gib": others_gib, "owed_gib": 15.0 + others_owed_gib, "others_owed_gib": others_owed_gib,
        }  # fmt: skip
        facts.put(tx, identity.host_id(), {"pools": [pool]}, AT)
    assert owed(paths) == (15.0 + others_owed_gib, 16.0 + others_gib)
    with changed(paths) as tx:
        leases.move(tx, ids[0], "exit", AT, "")
    assert owed(paths) == (8.0 + others_owed_gib, 16.0 + others_gib), "nobody touches more of what is not back yet"
    with changed(paths) as tx:
        leases.move(tx, ids[0], "back", AT, "")
    assert owed(paths) == (8.0 + others_owed_gib, 8.0 + others_gib)
    with changed(paths) as tx:
        for event in ("exit", "back"):
            leases.move(tx, ids[1], event, AT, "")
    assert owed(paths) == (others_owed_gib, others_gib)


def test_a_running_jobs_end_is_expected_from_what_was_measured(paths: Paths) -> None:
    submitted(paths)
    with changed(paths) as tx:
        timings.ran(tx, "boltz", "", 1000.0)
        queue.admit(tx, 1, a_worker(tx), 1, AT)
        queue.send(tx, 1, 1, stamp(now_s() - 100))
        queue.progress(tx, 1, 1, 1, None, "folding")
    [job] = peek.status(paths)["jobs"]
    assert 800 <= job["ends_in_s"] <= 900 and job["progress"] == {"done": 1, "total": None, "message": "folding"}


def test_show_tells_the_story_and_every_attempt(paths: Paths) -> None:
    submitted(paths, batch="night")
    with changed(paths) as tx:
        for number, event in ((1, "retry"), (2, "fail")):
            if number == 1:
                queue.admit(tx, 1, a_worker(tx, device="GPU-1"), 1, AT)
                queue.send(tx, 1, number, AT)
            else:
                queue.claim_warm(tx, 1, a_worker(tx, device="GPU-1"), 1, AT)
            queue.finish(tx, 1, number, event, Outcome("crashed", "SIGSEGV", -11), AT, versions={"torch": "2"})
    shown = peek.job(paths, 1)
    assert shown["outcome"] == {"kind": "crashed", "text": "SIGSEGV", "exit_code": -11}
    assert [(a["attempt"], a["outcome"], a["warm"], a["device"], a["versions"]) for a in shown["attempts"]] == [
        (1, "crashed", False, "GPU-1", {"torch": "2"}),
        (2, "crashed", True, "GPU-1", {"torch": "2"}),
    ]
    told = [line["event"] for line in shown["story"]]
    assert told == ["submit", "admit", "send", "retry", "admit", "send", "fail", "failed"]
    assert shown["story"][-1]["text"] == "crashed: SIGSEGV"
    assert peek.result(paths, 1)[:2] == (None, None)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"batch": "night"}, [1, 2]),
        ({"slug": "esm"}, [3, 4]),
        ({"slug": "esm:"}, [3]),
        ({"slug": "esm:big"}, [4]),
        ({"state": "cancelled"}, [2]),
        ({"state": ["queued", "cancelled"], "name": "a*"}, [1, 2]),
        ({"outcome": "cancelled", "batch": None}, [2]),
        ({"state": ["held"]}, []),
        ({"user": "nobody-of-that-name"}, []),
        ({"since": "2000-01-01T00:00:00.000000Z", "batch": "night"}, [1, 2]),
        ({"since": FAR}, []),
    ],
)
def test_filters_mean_all_of_them(paths: Paths, filters: dict, expected: list[int]) -> None:
    intake.submit(
        paths,
        [row(batch="night", name="a1"), row(batch="night", name="a2"), row(slug="esm"), row(slug="esm", variant="big")],
    )
    intake.cancel(paths, [2])
    assert peek.ids(paths, filters) == expected
    assert peek.last_id(paths) == 4


def test_an_unknown_filter_is_an_error(paths: Paths) -> None:
    submitted(paths)
    with pytest.raises(TypeError, match="'colour'"):
        peek.ids(paths, {"colour": "red"})


LIVE = [
    *peek.LIVE_QUERIES, sighted.WORKERS, sighted.CHARGED, sighted.DOING,
    queue.HEADS, queue.LIVE.format("*"), queue.BOUND, queue.DUE, queue.NEXT_DUE,
    queue.MISMATCHED, queue.LAST_SUBMITTED,
    *queue.OTHER_REVISIONS, queue.SAME_REVISION, alone.FIRSTS, alone.COMMANDS,
    leases.CHARGED, leases.OF_WORKER, workers.LIVE, story.EVENTS, decisions.EVENTS,
]  # fmt: skip


@pytest.mark.parametrize("query", LIVE)
def test_no_live_query_walks_through_history(paths: Paths, query: str) -> None:
    submitted(paths)
    names = set(re.findall(r":(\w+)", query))
    values: object = dict.fromkeys(names) if names else [None] * query.count("?")
    plan = [line[3] for line in asked_with(paths, "EXPLAIN QUERY PLAN " + query, values)]
    for step in plan:
        walked = re.match(r"SCAN (jobs|j|workers|leases|events|attempts|results)\b", step)
        assert not walked or "USING INDEX" in step or "USING COVERING INDEX" in step, plan


def asked_with(paths: Paths, question: str, values) -> list[tuple]:
    connection = peek.open_reader(paths)
    try:
        return connection.execute(question, values).fetchall()
    finally:
        connection.close()


def test_status_costs_the_same_with_a_long_queue_and_a_long_history(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in steps of SQLite's machine, not in time."""
    cost = steps(monkeypatch, every=10)
    states = ("queued", "succeeded", "failed")
    for state in states:
        submitted(paths, 40)
        fill(paths, 40, state)
    small = cost(lambda: peek.status(paths))
    for state in states:
        fill(paths, 10_000, state)
    assert cost(lambda: peek.status(paths)) <= small * 1.2


def fill(paths: Paths, count: int, state: str) -> None:
    ended = AT if state != "queued" else None
    with writing(paths) as db:
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO jobs (slug, user, host_id, state, submitted_at, ended_at, outcome)"
            " SELECT 'boltz', 'ada', 'h', ?, ?, ?, ? FROM n",
            (count, state, AT, ended, "ok" if ended else None),
        )


def test_reading_never_leaves_the_database_changed(paths: Paths) -> None:
    submitted(paths, 3)
    before = Path(paths.database).read_bytes()
    peek.status(paths)
    peek.job(paths, 1)
    assert Path(paths.database).read_bytes() == before
    assert asked(paths, "SELECT count(*) FROM jobs") == [(3,)]
