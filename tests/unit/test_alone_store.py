"""The line of the jobs that run alone, as it is stored: who is first of each kind, and what never leads out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from queues import AT, asked, row, submitted
from sqlalchemy import Connection

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.model.command import EXEC, Shape
from scheduler.model.outcome import Outcome
from scheduler.store import alone, intake, operator, queue, workers
from scheduler.store.engine import Store

SOON = stamp(1_700_000_060.0)


def lonely(**over: Any) -> dict[str, Any]:
    return row(**{"blocked": "after", "behind": 0, **over})


def firsts(tx: Connection) -> list[int]:
    return [each.id for each in alone.firsts(tx)]


def put(tx: Connection, **columns: Any) -> None:
    terms = ", ".join(f"{name} = ?" for name in columns)
    tx.exec_driver_sql(f"UPDATE jobs SET {terms} WHERE id = 1", tuple(columns.values()))


def worker(tx: Connection) -> int:
    return workers.insert(
        tx, slug="boltz", variant="", revision="r1", mode="resident", host_id="h", epoch=1, created_at=AT
    )


def began(tx: Connection) -> int:
    return queue.admit(tx, 1, worker(tx), 1, AT)


def ran(tx: Connection) -> int:
    attempt = began(tx)
    queue.send(tx, 1, attempt, AT)
    return attempt


def reset(tx: Connection) -> None:
    put(tx, blocked="backoff", not_before_at=SOON)
    assert operator.try_now(tx, "boltz") == 1


def due(tx: Connection) -> None:
    put(tx, blocked="backoff", not_before_at=AT)
    queue.due(tx, SOON)


def due_to_begin(tx: Connection) -> None:
    operator.hold(tx, 1, AT)
    put(tx, not_before_at=SOON)
    operator.release(tx, 1, AT)
    assert queue.row(tx, 1).blocked == "begin"
    queue.due(tx, SOON)


def held(tx: Connection) -> None:
    operator.hold(tx, 1, AT)
    operator.release(tx, 1, AT)


def repinned(tx: Connection) -> None:
    queue.set_revision_blocks(tx, {("boltz", ""): "r2"})
    assert queue.row(tx, 1).blocked == "revision"
    operator.update(tx, 1, AT, {"revision": "r2"})


def put_back(tx: Connection) -> None:
    queue.set_revision_blocks(tx, {("boltz", ""): "r0"})
    assert queue.row(tx, 1).blocked == "revision" and firsts(tx) == []
    queue.set_revision_blocks(tx, {("boltz", ""): "r1"})


def changed(tx: Connection) -> None:
    operator.update(tx, 1, AT, {"priority": 5, "timeout_s": 9.0})


def given_back(tx: Connection) -> None:
    queue.finish(tx, 1, began(tx), "give_back", Outcome("interrupted"), AT)


def given_back_for_later(tx: Connection) -> None:
    queue.finish(tx, 1, began(tx), "give_back", Outcome("interrupted"), AT, not_before_at=SOON)
    assert queue.row(tx, 1).blocked == "backoff"
    operator.try_now(tx, "boltz")


def tried_again(tx: Connection) -> None:
    queue.finish(tx, 1, ran(tx), "retry", Outcome("crashed"), AT, not_before_at=SOON)
    queue.due(tx, SOON)


def parked(tx: Connection) -> None:
    queue.finish(tx, 1, ran(tx), "park", Outcome("lost"), AT)
    operator.release(tx, 1, AT)


def held_before_it_was_sent(tx: Connection) -> None:
    began(tx)
    operator.hold(tx, 1, AT)
    operator.release(tx, 1, AT)


def opened_again(tx: Connection) -> None:
    put(tx, measures=1)
    queue.finish(tx, 1, ran(tx), "fail", Outcome("error"), AT)
    operator.requeue(tx, 1, AT)


WAYS: list[Callable[[Connection], None]] = [
    reset, due, due_to_begin, held, repinned, put_back, changed, given_back, given_back_for_later, tried_again, parked,
    held_before_it_was_sent, opened_again,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_whatever_lets_it_go_puts_it_back_into_the_line_of_those_that_run_alone(
    paths: Paths, store: Store, way: Callable[[Connection], None]
) -> None:
    intake.submit(paths, [lonely()])
    with store.write() as tx:
        way(tx)
        assert (queue.row(tx, 1).state, queue.row(tx, 1).blocked) == ("queued", "after")
        assert firsts(tx) == [1] and queue.heads(tx) == [], "else it runs beside others, on its ordinary charge"


def test_an_ordinary_job_goes_back_into_its_own_line(paths: Paths, store: Store) -> None:
    for way in (reset, due, due_to_begin, held, repinned):
        submitted(paths)
        with store.write() as tx:
            put(tx, state="queued", blocked=None, revision="r1", not_before_at=None)
            way(tx)
            assert queue.row(tx, 1).blocked is None and firsts(tx) == [], way.__name__


def test_a_job_that_was_over_its_budget_is_an_ordinary_one_when_it_is_opened_again(paths: Paths, store: Store) -> None:
    intake.submit(paths, [lonely()])
    with store.write() as tx:
        queue.finish(tx, 1, ran(tx), "fail", Outcome("over_budget"), AT)
        operator.requeue(tx, 1, AT)
        assert queue.row(tx, 1).blocked is None and [each.id for each in queue.heads(tx)] == [1]


def test_the_first_of_each_provider_is_seen_in_the_order_of_the_line(paths: Paths, store: Store) -> None:
    rows = [
        lonely(behind=4), lonely(behind=2), lonely(slug="esm", behind=9), lonely(slug="esm", variant="big", behind=1),
        lonely(slug="esm", behind=9, priority=3), lonely(slug="fold", blocked="backoff", not_before_at=SOON),
        lonely(behind=1, measures=1), row(slug="af"), lonely(slug="esm", variant="big", behind=1, batch="b"),
    ]  # fmt: skip
    intake.submit(paths, rows)
    with store.read() as tx:
        assert firsts(tx) == [5, 4, 7, 2]


def test_every_command_that_runs_alone_is_one_of_its_own_and_the_first_are_seen(paths: Paths, store: Store) -> None:
    def command(n: int) -> dict[str, Any]:
        variant = Shape(0.0, 1.0, 0, 1, True, "d", str(n)).variant()
        return lonely(slug=EXEC, variant=variant, revision="", data=None, on_lost="fail")

    intake.submit(paths, [*(command(n) for n in range(alone.SEEN + 3)), lonely(behind=99)])
    with store.read() as tx:
        assert firsts(tx) == [*range(1, alone.SEEN + 1), alone.SEEN + 4]


def test_what_is_of_another_revision_shows_no_other_as_waiting_for_it(paths: Paths, store: Store) -> None:
    intake.submit(paths, [lonely(), lonely(revision="r2")])
    with store.write() as tx:
        queue.set_revision_blocks(tx, {("boltz", ""): "r2"})
        assert firsts(tx) == [2]
    assert asked(paths, "SELECT id, blocked FROM jobs ORDER BY id") == [(1, "revision"), (2, "after")]


def test_the_cost_of_seeing_them_does_not_grow_with_how_many_wait(paths: Paths, store: Store) -> None:
    def steps() -> int:
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        with store.read() as tx:
            raw: Any = tx.connection.driver_connection
            raw.set_progress_handler(step, 1)
            alone.firsts(tx)
            raw.set_progress_handler(None, 1)
        return count

    slugs = ("boltz", "esm", "fold")
    intake.submit(paths, [lonely(slug=slug, behind=1) for slug in slugs])
    few = steps()
    intake.submit(paths, [lonely(slug=slug, behind=2, out=None) for slug in slugs for _ in range(100)])
    assert steps() < few * 1.5
