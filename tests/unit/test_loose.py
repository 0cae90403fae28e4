"""Which charges without a worker a host is told of, with what it judges them by, and when."""

from __future__ import annotations

import pytest
from queues import AT, row

from scheduler.clock import seconds
from scheduler.loose import AGAIN_S, SWEEP_S, Watch, loose
from scheduler.model.host import Loose
from scheduler.simulate.clock import VirtualClock
from scheduler.store import intake, leases, workers
from scheduler.store.engine import Store

POOLS = frozenset({(1, "device:a"), (1, "host")})


class Ears:
    """A host as far as it is told."""

    def __init__(self) -> None:
        self.kept: list[set[str]] = []
        self.heard: list[list[Loose]] = []
        self.deaf = False

    def keep_environments(self, variants: set[str]) -> None:
        self.kept.append(variants)

    def watch_return(self, rows: list[Loose]) -> None:
        if self.deaf:
            raise OSError("it does not listen")
        self.heard.append(rows)


@pytest.fixture
def gone(store: Store) -> Store:
    """A queue whose one worker ended and gave nothing back."""
    with store.write() as tx:
        one = workers.insert(
            tx, slug="boltz", variant="", revision="r", mode="resident", host_id="h", epoch=1, created_at=AT,
            device="device:a",
        )  # fmt: skip
        leases.reserve(tx, one, "boltz", {"device:a": 28.0, "host": 6.0}, "h", AT, {"device:a": 0.25, "host": None})
        leases.move(tx, one, "go", AT)
        workers.move(tx, one, "go", AT, boot_id="b", leader_pid=500, leader_started=7.0)
        leases.move(tx, one, "exit", AT)
        workers.move(tx, one, "exit", AT)
    return store


def test_a_host_is_told_by_what_the_memory_is_known_to_be_back_and_since_when(gone: Store) -> None:
    clock = VirtualClock(seconds(AT) + 30.0)
    with gone.read() as tx:
        assert loose(tx, clock) == [
            Loose(1, "boltz", "b", {"device:a": 0.25, "host": None}, 30.0, "device:a", ((500, 7.0),))
        ]


def test_it_is_told_at_once_of_one_more_or_less_and_else_now_and_then(gone: Store) -> None:
    clock, ears = VirtualClock(seconds(AT)), Ears()
    watch = Watch(ears, clock)  # type: ignore[arg-type]

    def turn(charged: frozenset[tuple[int, str]] = POOLS) -> int:
        with gone.read() as tx:
            watch.read(tx, charged)
        watch.ask()
        return len(ears.heard)

    assert turn() == 1 and turn() == 1
    clock.move_to(clock.elapsed_s + AGAIN_S)
    assert turn() == 2
    with gone.write() as tx:
        leases.move(tx, 1, "back", AT)
    assert turn(frozenset()) == 3 and ears.heard[-1] == []
    assert turn(frozenset()) == 3


def test_a_host_that_did_not_hear_is_told_again(gone: Store) -> None:
    clock, ears = VirtualClock(seconds(AT)), Ears()
    watch = Watch(ears, clock)  # type: ignore[arg-type]
    ears.deaf = True
    with gone.read() as tx:
        watch.read(tx, POOLS)
    with pytest.raises(OSError, match="listen"):
        watch.ask()
    ears.deaf = False
    with gone.read() as tx:
        watch.read(tx, POOLS)
    watch.ask()
    assert len(ears.heard) == 1


def test_a_host_is_told_now_and_then_which_commands_have_not_ended(store: Store) -> None:
    ears, clock = Ears(), VirtualClock(seconds(AT))
    watch = Watch(ears, clock)  # type: ignore[arg-type]
    intake.submit(store.paths, [row(slug="exec", variant="v0r1n0t1-da", data=None, revision="")])
    for step_s in (SWEEP_S - 1.0, 1.0, 1.0, SWEEP_S):
        clock.sleep(step_s)
        with store.read() as tx:
            watch.read(tx, frozenset())
        watch.ask()
    assert ears.kept == [{"v0r1n0t1-da"}] * 2
