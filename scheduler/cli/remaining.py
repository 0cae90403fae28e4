"""What keeps a scheduler that was told to come down: named with its figures, and waited for as long as it may take.

While a job may finish, that has no end. After that only workers that do not go and memory that does not come back
are left, and neither must keep a call for ever: their charges stand in the queue, for the next scheduler to look after.
"""

from __future__ import annotations

from scheduler import catalog
from scheduler.cli import say
from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import SchedqError, Temporary
from scheduler.host.workers import tree
from scheduler.store import peek

SAY_S, LOOK_S = 5.0, 1.0
"""After how long it is said what is waited for, and how often that is looked up."""

PATIENCE_S, GRACE_S = 60.0, 30.0
"""How long it may take beyond the grace that the workers have; what that is where no manifest says it."""


class Stays(Temporary):
    """Something is left that the scheduler cannot bring down; the message names it."""


class Remaining:
    """What is left of a queue's workers, in the eyes of one `down`."""

    def __init__(self, paths: Paths, *, now: bool) -> None:
        """`now`: no job may finish."""
        self._paths, self._now = paths, now
        self._since_s = monotonic_s()
        self._next_s = self._since_s
        self._said: list[str] = []
        self._grace_s = _grace_s(paths)

    def look(self) -> None:
        """Say what is waited for, once it takes long and whenever it is something else. Stays: it took too long."""
        at_s = monotonic_s()
        if at_s < self._next_s:
            return
        self._next_s = at_s + LOOK_S
        workers = peek.workers(self._paths)
        if not self._now and any(worker["state"] == "busy" for worker in workers):
            self._since_s = at_s
            return
        named = [_worker(worker) for worker in workers] + [_loose(lease) for lease in peek.unreturned(self._paths)]
        waited_s = at_s - self._since_s
        if waited_s >= SAY_S and named and named != self._said:
            self._said = named
            say.note(f"waiting for {'; '.join(named)}")
        if waited_s > self._grace_s + PATIENCE_S and named:
            raise Stays(f"{'; '.join(named)}, after {waited_s:.0f} s")


def _worker(worker: dict[str, object]) -> str:
    charges = worker["charges"]
    assert isinstance(charges, list)
    charged = ", ".join(f"{each['charge_gib']:.1f} GiB on {each['pool']}" for each in charges) or "no charge"
    stat = tree.stat_of(int(str(worker["pid"] or 0)))
    stuck = ", which the kernel cannot end now (state D: a disk or a device does not answer)"
    return (
        f"worker {worker['id']} ({_name(worker)}, {worker['state']}, process {worker['pid']}) with {charged}"
        + stuck * (stat is not None and stat.state == "D")
    )


def _loose(lease: dict[str, object]) -> str:
    return (
        f"{lease['charge_gib']:.1f} GiB on {lease['pool']} of worker {lease['worker_id']} ({lease['slug']}), which is"
        f" gone and whose memory is not back ({lease['state']})"
    )


def leaked(paths: Paths) -> str:
    """What leaked and is charged although nobody is left, as the beginning of a sentence.

    "" = nothing is, or the queue is an earlier version's, which does not tell.
    """
    try:
        return "; ".join(_loose(lease) for lease in peek.unreturned(paths, at_rest=True) if lease["state"] == "leaked")
    except SchedqError:
        return ""


def _name(worker: dict[str, object]) -> str:
    return f"{worker['slug']}:{worker['variant']}" if worker["variant"] else str(worker["slug"])


def _grace_s(paths: Paths) -> float:
    """The longest grace that a worker which lives now has before it is killed."""
    longest = GRACE_S
    for worker in peek.workers(paths):
        try:
            longest = max(longest, float(catalog.load(paths).spec(_name(worker))["stop_grace_s"]))
        except SchedqError:
            continue
    return longest
