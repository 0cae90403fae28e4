from __future__ import annotations

import math

import pytest
from queues import AT, asked

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.errors import Fenced, IllegalTransition
from scheduler.model.plan import BreakerState
from scheduler.model.states import LATE, LEASE, SAME, WORKER
from scheduler.store import breakers, facts, leases, schedulers, workers
from scheduler.store.engine import Store

LATER = stamp(1_700_000_060.0)


def worker(tx, **over) -> int:
    said = {
        "slug": "boltz", "variant": "", "revision": "r1", "mode": "resident", "host_id": "h", "epoch": 1,
        "created_at": AT, **over,
    }  # fmt: skip
    return workers.insert(tx, **said)


def charged(tx) -> dict[str, float]:
    """GiB charged by pool, as the loop sums them: over the live rows."""
    pools: dict[str, list[float]] = {}
    for row in leases.charged(tx):
        pools.setdefault(row.pool, []).append(row.charge_gib)
    return {pool: math.fsum(parts) for pool, parts in pools.items()}


def test_a_charge_counts_from_its_reservation_until_it_is_released(store: Store) -> None:
    with store.write() as tx:
        one, two = worker(tx), worker(tx)
        made = leases.reserve(tx, one, "boltz", {"unified": 28.1, "host": 6.0}, "h", AT)
        leases.reserve(tx, two, "esm", {"unified": 0.1}, "h", AT)
        assert set(made) == {"unified", "host"}
        assert charged(tx) == {"unified": 28.200000000000003, "host": 6.0}
        for event in ("go", "exit", "overdue"):
            leases.move(tx, one, event, AT, "1 GiB is not back")
            assert charged(tx)["host"] == 6.0
        assert leases.move(tx, one, "back", AT) == ["released", "released"]
        assert charged(tx) == {"unified": 0.1}
        assert leases.move(tx, one, "back", AT) == []


def test_what_was_on_nobodys_name_before_is_kept_with_the_charge_and_so_is_the_hour_of_its_end(store: Store) -> None:
    with store.write() as tx:
        one = worker(tx)
        leases.reserve(tx, one, "boltz", {"device:a": 28.0, "host": 6.0}, "h", AT, {"device:a": 0.25, "host": None})
        assert leases.loose(tx) == []
        leases.move(tx, one, "go", AT)
        leases.move(tx, one, "exit", LATER)
        rows = {row.pool: row for row in leases.loose(tx)}
        assert (rows["device:a"].before_gib, rows["host"].before_gib) == (0.25, None)
        assert {row.returning_at for row in rows.values()} == {LATER}


def test_each_pool_of_a_worker_returns_by_itself(store: Store) -> None:
    with store.write() as tx:
        one = worker(tx)
        leases.reserve(tx, one, "boltz", {"device:a": 28.0, "host": 6.0}, "h", AT)
        leases.move(tx, one, "go", AT)
        leases.move(tx, one, "exit", AT)
        assert leases.move(tx, one, "back", AT, pool="host") == ["released"]
        assert leases.move(tx, one, "overdue", AT, "24 GiB are not back", "device:a") == ["leaked"]
        assert charged(tx) == {"device:a": 28.0}


def test_the_newest_figures_of_a_leak_are_kept_and_recorded_once(store: Store) -> None:
    with store.write() as tx:
        one = worker(tx)
        leases.reserve(tx, one, "boltz", {"device:a": 28.0}, "h", AT)
        for event, text in (("go", ""), ("exit", ""), ("overdue", "24 GiB are not back"), ("overdue", "9 GiB are not")):
            leases.move(tx, one, event, AT, text)
        (row,) = leases.charged(tx)
        assert (row.state, row.text) == ("leaked", "9 GiB are not")
        (told,) = tx.exec_driver_sql("SELECT count(*) FROM events WHERE event = 'lease leaked'").one()
        assert told == 1


def test_only_what_is_leaked_is_written_off_and_who_did_it_is_recorded(store: Store) -> None:
    with store.write() as tx:
        one = worker(tx)
        leases.reserve(tx, one, "boltz", {"device:a": 28.0, "host": 6.0}, "h", AT)
        assert leases.write_off(tx, one, "ann", AT)[0] == [], "it lives"
        leases.move(tx, one, "go", AT)
        leases.move(tx, one, "exit", AT)
        assert leases.write_off(tx, one, "ann", AT)[0] == [], "it may come back"
        leases.move(tx, one, "overdue", AT, "24 GiB are not back", "device:a")
        gone, left = leases.write_off(tx, one, "ann", AT)
        assert [row.pool for row in gone] == ["device:a"] and [row.pool for row in left] == ["host"]
        assert charged(tx) == {"host": 6.0}
        (text,) = tx.exec_driver_sql("SELECT text FROM events WHERE event = 'lease released'").one()
        assert text == "device:a: written off by ann; last seen: 24 GiB are not back"


def test_a_worker_that_was_never_let_go_is_not_spent(store: Store) -> None:
    with store.write() as tx:
        one = worker(tx)
        leases.reserve(tx, one, "boltz", {"host": 6.0}, "h", AT)
        assert not leases.is_spent(tx, one)
        leases.move(tx, one, "go", AT)
        assert leases.is_spent(tx, one)


def test_a_lease_follows_the_table(store: Store) -> None:
    with store.write() as tx:
        for state, cells in LEASE.items():
            for event in ("go", "unspawned", "exit", "back", "overdue", "write_off"):
                worker_id = worker(tx)
                leases.reserve(tx, worker_id, "boltz", {"unified": 1.0}, "h", AT)
                tx.exec_driver_sql("UPDATE leases SET state = ? WHERE worker_id = ?", (state, worker_id))
                cell = cells.get(event)
                if state == "released":
                    assert leases.move(tx, worker_id, event, AT) == []
                elif cell is None:
                    with pytest.raises(IllegalTransition):
                        leases.move(tx, worker_id, event, AT)
                else:
                    assert leases.move(tx, worker_id, event, AT) == [state if cell == SAME else cell]


def test_a_charge_is_raised_only_while_it_is_held(store: Store) -> None:
    with store.write() as tx:
        worker_id = worker(tx)
        leases.reserve(tx, worker_id, "boltz", {"unified": 28.0}, "h", AT)
        leases.resize(tx, worker_id, "unified", 40.0, AT)
        assert charged(tx) == {"unified": 40.0}
        leases.move(tx, worker_id, "exit", AT)
        with pytest.raises(Fenced, match="no lease on unified that can be resized"):
            leases.resize(tx, worker_id, "unified", 50.0, AT)


def test_a_worker_follows_the_table(store: Store) -> None:
    with store.write() as tx:
        for state, cells in WORKER.items():
            for event in ("shown", "go", "answer", "send", "reply", "retire", "abort", "exit"):
                worker_id = worker(tx)
                tx.exec_driver_sql("UPDATE workers SET state = ? WHERE id = ?", (state, worker_id))
                cell = cells.get(event)
                if cell is None:
                    with pytest.raises(IllegalTransition):
                        workers.move(tx, worker_id, event, AT)
                    continue
                expected = state if cell == SAME else cell
                assert workers.move(tx, worker_id, event, AT) == expected, (state, event)
                assert workers.row(tx, worker_id).state == (state if cell in (SAME, LATE) else cell)
        assert {row.state for row in workers.live(tx)} == WORKER.keys() - {"gone"}


def test_what_is_learned_of_a_worker_is_stored_with_the_event(store: Store) -> None:
    with store.write() as tx:
        worker_id = worker(tx)
        workers.move(tx, worker_id, "shown", AT, keeper_pid=7, keeper_started=1.5, boot_id="b")
        workers.move(tx, worker_id, "go", AT)
        workers.move(tx, worker_id, "answer", AT, leader_pid=8, versions={"torch": "2"}, ready_at=AT)
        found = workers.row(tx, worker_id)
        assert (found.keeper_pid, found.leader_pid, found.versions) == (7, 8, '{"torch": "2"}')
        with pytest.raises(TypeError, match="slug does not change"):
            workers.move(tx, worker_id, "answer", AT, slug="esm")


def test_a_busy_worker_that_is_to_retire_finishes_first_and_says_why(store: Store) -> None:
    with store.write() as tx:
        worker_id = worker(tx)
        tx.exec_driver_sql("UPDATE workers SET state = 'busy'")
        assert workers.move(tx, worker_id, "retire", AT, why="draining") == "busy"
        assert workers.row(tx, worker_id).retire_after == "draining"
        workers.retire_after(tx, worker_id, "another reason")
        assert workers.row(tx, worker_id).retire_after == "another reason"


def test_a_worker_without_a_row_is_fenced(store: Store) -> None:
    with store.write() as tx, pytest.raises(Fenced, match="worker 9 has no row"):
        workers.move(tx, 9, "exit", AT)


def test_a_later_scheduler_fences_the_earlier_one(paths: Paths, store: Store) -> None:
    def begin(tx) -> int:
        return schedulers.begin(tx, pid=1, started=2.0, boot_id="b", host_id="h", version="0", at=AT)

    with store.write() as tx:
        first = begin(tx)
        schedulers.fence(tx, first)
        second = begin(tx)
        assert second > first and schedulers.current(tx) == second
        with pytest.raises(Fenced, match=f"epoch {second} has taken over"):
            schedulers.fence(tx, first)
        schedulers.fence(tx, second)
        schedulers.end(tx, second, AT)
        assert len(schedulers.queue_id(tx)) == 32
    assert asked(paths, "SELECT epoch, ended_at FROM schedulers") == [(first, None), (second, AT)]


def test_the_newest_facts_of_a_host_replace_the_last(paths: Paths, store: Store) -> None:
    with store.write() as tx:
        facts.put(tx, "h", {"pools": []}, AT)
        facts.put(tx, "h", {"pools": [{"id": "unified"}]}, AT)
    assert asked(paths, "SELECT host_id, at, snapshot FROM facts") == [("h", AT, '{"pools": [{"id": "unified"}]}')]


def test_a_breaker_is_remembered_until_it_is_clean(store: Store) -> None:
    state = BreakerState(2, ("(start)", "(start)"), "no weights", 1_700_000_000.0, 1_700_000_060.0)
    with store.write() as tx:
        assert breakers.row(tx, "boltz") is None
        breakers.put(tx, "boltz", state)
        breakers.put(tx, "esm", BreakerState(1, ("ab",), "SIGSEGV"))
        assert breakers.row(tx, "boltz") == state
        assert [(row.slug, row.failures, row.last_error) for row in breakers.opened(tx)] == [("boltz", 2, "no weights")]
        breakers.put(tx, "boltz", BreakerState())
        assert breakers.row(tx, "boltz") is None
