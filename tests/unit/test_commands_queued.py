"""Commands in the queue: each a head of its own, counted together, and ended when nobody waits for them any more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from queues import AT, row
from sqlalchemy import Connection

from scheduler.client import Client
from scheduler.config import Paths
from scheduler.errors import Refused, SchedqError, UsageError
from scheduler.host import environs
from scheduler.host.workers import protocol
from scheduler.model.command import EXEC, Offers, Shape
from scheduler.store import commands, engine, intake, operator, peek, queue, timings, turns, workers
from scheduler.store.engine import Store


def command(token: str, *, kind: str = "f", **over: object) -> dict[str, object]:
    shape = Shape(0.0, 1.0, 0, 1, False, kind, token)
    caller = {"pid": 7, "started": 1.0, "boot_id": "b"}
    return row(
        slug=EXEC, variant=shape.variant(), data=None, revision="", name=f"c{token}",
        params={"command": ["true"], "caller": caller if kind != "d" else None}, on_lost="fail", **over,
    )  # fmt: skip


def worker(tx: Connection, variant: str) -> int:
    return workers.insert(
        tx, slug=EXEC, variant=variant, revision="", mode="oneshot", host_id="h", epoch=1, created_at=AT
    )


def test_every_command_is_a_head_of_its_own_in_the_order_of_the_line(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command("a"), command("b", priority=5), row(), command("c")])
    with store.read() as tx:
        assert [(head.id, head.count, head.next_id) for head in queue.heads(tx)] == [
            (3, 1, None), (2, 1, None), (1, 1, None), (4, 1, None),
        ]  # fmt: skip


def test_the_first_of_many_commands_are_heads_and_all_are_counted(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command(f"{n}") for n in range(commands.SEEN + 10)])
    with store.read() as tx:
        assert [head.id for head in queue.heads(tx)] == list(range(1, commands.SEEN + 1))
        assert tx.exec_driver_sql("SELECT slug, variant, state, n FROM depth").all() == [
            (EXEC, "", "queued", commands.SEEN + 10)
        ]
    assert peek.status(paths)["counts"] == {"queued": commands.SEEN + 10}
    assert len(peek.status(paths)["jobs"]) == peek.WAITING_SHOWN
    assert len(peek.planned(paths, 5)["jobs"]) == 5
    assert engine.check(paths) == []


def test_the_depth_does_not_grow_with_the_commands_that_have_ended(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command(f"{n}") for n in range(20)])
    intake.cancel(paths, list(range(1, 21)))
    with store.read() as tx:
        assert tx.exec_driver_sql("SELECT slug, variant, state, n FROM depth").all() == [(EXEC, "", "cancelled", 20)]
    assert engine.check(paths) == []


def test_waiting_commands_are_found_by_an_index_of_their_own(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command("a")])
    with store.read() as tx:
        plan = tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {commands.HEAD_COMMANDS}").all()
    assert "jobs_commands" in str(plan) and "TEMP B-TREE" not in str(plan), plan


def test_the_live_commands_are_found_without_reading_history(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command("a"), command("b"), command("c", state="held"), row()])
    intake.cancel(paths, [2])
    with store.read() as tx:
        plan = str(tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {commands.LIVE}").all())
        assert "SCAN jobs'" not in plan and "USING INDEX" in plan.replace("COVERING ", ""), plan
        assert {variant.partition("-f")[2] for variant in commands.live(tx)} == {"a", "c"}


def test_a_command_that_nobody_waits_for_any_more_ends_unless_it_runs(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command("a"), command("b"), command("c")])
    with store.write() as tx:
        first, second, third = (queue.row(tx, number) for number in (1, 2, 3))
        assert commands.desert(tx, first.id, "gone", AT) == "cancelled"
        queue.admit(tx, 2, worker(tx, second.variant), 1, AT)
        assert commands.desert(tx, 2, "gone", AT) == "cancelled"
        attempt = queue.admit(tx, 3, worker(tx, third.variant), 1, AT)
        queue.send(tx, 3, attempt, AT)
        assert commands.desert(tx, 3, "gone", AT) is None
        assert queue.row(tx, 3).state == "running"
        assert queue.row(tx, 1).outcome_text == "gone"


def test_who_waits_is_told_once_for_each_command_that_has_a_caller(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command("a"), command("b", kind="d"), row()])
    with store.read() as tx:
        found = queue.heads(tx)
        assert commands.callers(tx, found, set()) == {1: {"pid": 7, "started": 1.0, "boot_id": "b"}}
        assert commands.callers(tx, found, {1}) == {}


def test_commands_are_among_the_providers_with_one_mean_of_what_they_took(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command("a"), row()])
    with store.write() as tx:
        timings.loaded(tx, EXEC, "v0r1n0t1-fb", 3.0)
        timings.ran(tx, EXEC, "v0r1n0t1-fb", 8.0)
        timings.ran(tx, EXEC, "v0r1n0t1-fc", 4.0)
        assert [(key, each.run_s) for key, each in timings.known(tx).items()] == [((EXEC, ""), 6.0)]
        offered = commands.offered(tx, queue.heads(tx), {})
    assert isinstance(offered, Offers) and [provider.run_s for provider in offered.values()] == [6.0]


def test_a_command_is_not_opened_again_after_its_end(paths: Paths, store: Store) -> None:
    intake.submit(paths, [command("a")])
    intake.cancel(paths, [1])
    with store.write() as tx, pytest.raises(UsageError, match="schedq exec"):
        operator.requeue(tx, 1, AT)


def test_a_caller_sees_its_turn_with_the_claim_that_was_reserved(paths: Paths, store: Store) -> None:
    from scheduler.store import leases

    assert turns.look(paths, 1) is None
    intake.submit(paths, [command("a")])
    found = turns.look(paths, 1)
    assert found is not None and (found.state, found.claim, found.worker_id) == ("queued", None, None)
    with store.write() as tx:
        worker_id = worker(tx, queue.row(tx, 1).variant)
        lease_ids = leases.reserve(tx, worker_id, EXEC, {"host": 1.5}, "h", AT)
        queue.admit(tx, 1, worker_id, 1, AT)
    found = turns.look(paths, 1)
    assert found is not None and found.claim is not None and found.state == "admitted"
    assert (found.claim.charges, found.claim.lease_ids) == ({"host": 1.5}, lease_ids)
    with store.write() as tx:
        workers.move(tx, worker_id, "shown", AT, keeper_pid=9, keeper_started=1.0, boot_id="b")
        workers.move(tx, worker_id, "go", AT)
    found = turns.look(paths, 1)
    assert found is not None and found.claim is None and found.worker_id == worker_id


# Environments


def test_an_environment_is_kept_for_its_owner_alone_and_read_again(paths: Paths) -> None:
    os.makedirs(paths.home)
    environs.keep(paths, "v0r1n0t1-da", {"A": "1", "B": "\udcff", "C": "two\nlines"})
    path = Path(environs.folder(paths)) / "v0r1n0t1-da"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert environs.stored(paths, "v0r1n0t1-da")["env"] == {"A": "1", "B": "\udcff", "C": "two\nlines"}
    environs.forget(paths, "v0r1n0t1-da")
    with pytest.raises(SchedqError, match="submit it again"):
        environs.stored(paths, "v0r1n0t1-da")


def test_an_environment_that_no_order_could_carry_is_refused(paths: Paths) -> None:
    os.makedirs(paths.home)
    with pytest.raises(Refused, match="unset what is large"):
        environs.keep(paths, "v0r1n0t1-da", {"A": "x" * environs.MOST_BYTES})


@pytest.mark.parametrize("env", [0.0, 0.4, 0.9])
def test_nor_is_one_kept_that_no_order_could_carry_with_its_command(paths: Paths, env: float) -> None:
    os.makedirs(paths.home)
    given, words = {"A": "x" * int(env * environs.MOST_BYTES)}, int((1.0 - env) * environs.MOST_BYTES)
    with pytest.raises(Refused, match="unset what is large, or put long arguments into a file"):
        environs.keep(paths, "v0r1n0t1-da", given, ["sh", "-c", "x" * words])
    assert not os.path.exists(environs.folder(paths))
    environs.keep(paths, "v0r1n0t1-da", given, ["sh", "-c", "x" * (words - 100)])
    assert len(environs.stored(paths, "v0r1n0t1-da")["env"]["A"]) == len(given["A"])


def test_an_order_carries_what_is_kept_with_all_that_stands_beside_it() -> None:
    assert environs.MOST_BYTES + (1 << 19) < protocol.ORDER_LIMIT


def test_an_environment_that_cannot_be_read_just_now_is_not_taken_for_gone(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bytes:
        raise OSError(errno.EMFILE, "too many open files")

    os.makedirs(paths.home)
    environs.keep(paths, "v0r1n0t1-da", {})
    monkeypatch.setattr(environs.regular, "content", fails)
    with pytest.raises(OSError, match="too many"):
        environs.stored(paths, "v0r1n0t1-da")


@pytest.mark.parametrize("admitted", [False, True])
def test_the_environment_of_a_command_that_is_cancelled_before_it_runs_goes_with_it(
    paths: Paths, store: Store, admitted: bool
) -> None:
    made = command("a", kind="d")
    environs.keep(paths, str(made["variant"]), {"SECRET": "x"})
    client = Client(paths.home)
    client.enqueue([made])
    if admitted:
        with store.write() as tx:
            queue.admit(tx, 1, worker(tx, str(made["variant"])), 1, AT)
    assert [state for _, _, state in client.cancel([1])] == ["cancelled"]
    assert os.listdir(environs.folder(paths)) == []


def test_only_environments_of_commands_that_have_ended_are_taken_away(paths: Paths) -> None:
    os.makedirs(paths.home)
    for name in ("ended", "live", "new"):
        environs.keep(paths, name, {})
    for name in ("ended", "live"):
        path = os.path.join(environs.folder(paths), name)
        os.utime(path, (1.0, 1.0))
    environs.keep_only(paths, {"live"})
    assert sorted(os.listdir(environs.folder(paths))) == ["live", "new"]


def test_a_word_that_no_lease_has_is_named_with_the_nearest(paths: Paths) -> None:
    with pytest.raises(UsageError, match="lease has no timeout; timeout_s is meant"):
        Client(paths.home).lease(ram_gib=1, timeout=3)
    with pytest.raises(UsageError, match="lease has no client"):
        Client(paths.home).lease(ram_gib=1, client=3)
