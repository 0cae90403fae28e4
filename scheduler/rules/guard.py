"""What is done while memory runs out: a pure rule over one sample of one pool.

Charges and the gates decide who starts; nothing of that binds a process that is already there. So a pool is looked at
ten times a second while a worker loads or computes, and who pays is decided in this order: idle workers, of which
nothing is lost; workers that hold more than they are charged for; workers that are only starting. A busy worker inside
its charge is never stopped, a process that is not ours never touched (P8): if nobody else is left, nothing more is
admitted there, and whose memory it is is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.model.machine import Held
from scheduler.rules.figures import figures, plain, pool_name
from scheduler.rules.room import fits

SHARE = 0.05
"""How much more than its charge a worker may hold while the reserve is whole: allocators keep what they were given."""

WINDOW_S = 0.3
"""What was gained and lost counts over so long: three samples, so that one that came late is no surprise."""

BACK_S = 1.0
"""What a worker holds that was told to stop counts as on its way back for so long; then it may hang."""

NAMED = 4

OVER_BUDGET = "over_budget"


@dataclass(frozen=True)
class Watched:
    """One worker of ours as it stands on one pool. GiB.

    `state` is starting, busy or idle. `charge_gib` None or 0 = nobody said what it costs there. `used_gib` None = could
    not be read. `gained_gib` is what it gained in the window. `leaving_s`: how long ago it was told to stop, None = it
    was not.
    """

    worker_id: int
    name: str
    state: str
    charge_gib: float | None
    used_gib: float | None
    gained_gib: float = 0.0
    idle_s: float = 0.0
    leaving_s: float | None = None

    @property
    def holds_gib(self) -> float:
        """What it was seen to use; nothing where that could not be read."""
        return self.used_gib or 0.0

    @property
    def told(self) -> str:
        """Who it is, and what it holds of what it is charged."""
        charged = f" of {plain(self.charge_gib, 2)} charged" if self.charge_gib else ", and nothing is charged"
        held = f"{plain(self.used_gib, 2)} GiB{charged}" if self.used_gib is not None else "its use is not told"
        return f"{self.name} (worker {self.worker_id}, {self.state}) {held}"


@dataclass(frozen=True)
class Level:
    """One pool at one moment. GiB.

    `left_gib` is what can still be had of it, None = could not be read; `lost_gib` is how much less that is than it
    was a window ago. `others` are those who hold memory there and are not ours.
    """

    pool: str
    left_gib: float | None
    reserve_gib: float
    lost_gib: float = 0.0
    watched: tuple[Watched, ...] = ()
    others: tuple[Held, ...] = ()

    @property
    def near(self) -> bool:
        """Whether the reserve is reached, or will be within a window."""
        return self.left_gib is not None and self.left_gib - max(0.0, self.lost_gib) < self.reserve_gib


@dataclass(frozen=True)
class Retire:
    """Stop an idle worker: its room is needed at once."""

    worker_id: int
    pool: str
    text: str


@dataclass(frozen=True)
class Stop:
    """Stop a worker that starts or is busy, now. `outcome` "" = nobody's fault, else `over_budget`."""

    worker_id: int
    pool: str
    outcome: str
    text: str


@dataclass(frozen=True)
class Close:
    """Admit nothing on this pool, for `text`."""

    pool: str
    text: str


Action = Retire | Stop | Close


def guard(level: Level) -> list[Action]:
    """What to do about one pool now; nothing while its reserve is far, or while it cannot be read."""
    if level.left_gib is None:
        return []
    staying = [worker for worker in level.watched if worker.leaving_s is None]
    back_gib = math.fsum(w.holds_gib for w in level.watched if w.leaving_s is not None and w.leaving_s < BACK_S)
    idle = _idle(level, staying, back_gib)
    over = _over(level, staying, back_gib, {each.worker_id for each in idle})
    stopped = {each.worker_id for each in over}
    starting = [worker for worker in staying if worker.state == "starting" and worker.worker_id not in stopped]
    going = stopped | {each.worker_id for each in idle}
    back_gib += math.fsum(worker.holds_gib for worker in staying if worker.worker_id in going)
    loads = _loads(level, starting, back_gib, level.left_gib)
    found: list[Action] = [*idle, *over, *loads]
    if level.near:
        found.append(Close(level.pool, _whose(level, bool(found))))
    return found


def is_over(worker: Watched, level: Level) -> bool:
    """Whether a worker holds more than it may while the pool stands like this.

    Above its charge and 5 %, with less than two reserves left; above its charge at all, as the reserve itself comes
    near: of one that is charged nearly all of a pool 5 % are more than there is. One of which nobody said what it costs
    there is judged later and by more: with the reserve reached, when it holds more than all of that.
    """
    left, used = level.left_gib, worker.used_gib
    if left is None or used is None:
        return False
    if not worker.charge_gib:
        return left < level.reserve_gib < used
    return left < 2 * level.reserve_gib and (_is_far_over(worker) or (level.near and _is_above(worker)))


def _is_above(worker: Watched) -> bool:
    return not fits((worker.holds_gib,), worker.charge_gib or 0.0)


def _is_far_over(worker: Watched) -> bool:
    return worker.holds_gib > (worker.charge_gib or 0.0) * (1 + SHARE)


def _idle(level: Level, staying: Sequence[Watched], back_gib: float) -> list[Retire]:
    """Idle workers that go: those above their charge, and, as the reserve comes near, the longest idle that suffice."""
    found = []
    idle = [worker for worker in staying if worker.state == "idle" and worker.holds_gib > 0]
    lacking_gib = level.reserve_gib - ((level.left_gib or 0.0) - max(0.0, level.lost_gib)) - back_gib
    for worker in sorted(idle, key=lambda w: (not is_over(w, level), -w.idle_s, w.worker_id)):
        over = is_over(worker, level)
        if over or (level.near and lacking_gib > 0):
            found.append(Retire(worker.worker_id, level.pool, f"{_stands(level)}; {worker.told}, and does nothing"))
            lacking_gib -= worker.holds_gib
    return found


def _over(level: Level, staying: Sequence[Watched], back_gib: float, going: set[int]) -> list[Stop]:
    """Workers above their charge. Of those far above it one at least, and more until two reserves are left.

    Of the others as many as the reserve lacks; none while it is whole and what others give back, those that are
    `going` too, will keep it so.
    """
    over = [worker for worker in staying if worker.state != "idle" and is_over(worker, level)]
    over.sort(key=_blame)
    idle_gib = math.fsum(worker.holds_gib for worker in staying if worker.worker_id in going)
    left_gib, lost_gib, reserve_gib = level.left_gib or 0.0, max(0.0, level.lost_gib), level.reserve_gib
    found: list[Stop] = []
    for worker in over:
        if _is_far_over(worker):
            spared = bool(found) and left_gib + back_gib >= 2 * reserve_gib
        else:
            kept = left_gib - lost_gib + back_gib + idle_gib >= reserve_gib
            spared = kept and (bool(found) or left_gib >= reserve_gib)
        if spared:
            continue
        _, held, charge, _ = figures((worker.holds_gib,), worker.charge_gib or 0.0)
        charged = f"it is charged {charge} GiB" if worker.charge_gib else "nothing is charged"
        text = (
            f"it held {held} GiB of {pool_name(level.pool)} and {charged} there, while "
            f"{plain(level.left_gib or 0.0, 3)} GiB were left and {plain(level.reserve_gib, 3)} stay reserved"
        )
        found.append(Stop(worker.worker_id, level.pool, OVER_BUDGET, text))
        back_gib += worker.holds_gib
    return found


def _blame(worker: Watched) -> tuple[int, bool, float, int]:
    """Who is to blame first: who is far above a charge, then who has none; who only starts; who is furthest above."""
    kind = 2 if not _is_far_over(worker) else 0 if worker.charge_gib else 1
    return kind, worker.state == "busy", (worker.charge_gib or 0.0) - worker.holds_gib, worker.worker_id


def _loads(level: Level, starting: Sequence[Watched], back_gib: float, left_gib: float) -> list[Stop]:
    """Starts that are given up: what is left, less what they gained in the window, is below the reserve.

    Nobody is at fault, unless it would have been above its charge a window later: then all that it was given is too
    little. While what others are giving back suffices and the reserve is still whole, they go on. The one that gained
    most goes first, then the newest.
    """
    found: list[Stop] = []
    rest = sorted(starting, key=lambda w: (-w.gained_gib, -w.worker_id))
    while rest:
        gained_gib = math.fsum(max(0.0, worker.gained_gib) for worker in rest)
        enough = left_gib + back_gib - gained_gib >= level.reserve_gib
        if left_gib - gained_gib >= level.reserve_gib or (enough and (found or left_gib >= level.reserve_gib)):
            break
        worker = rest.pop(0)
        gained = max(0.0, worker.gained_gib)
        over = bool(worker.charge_gib) and worker.holds_gib + gained > (worker.charge_gib or 0.0)
        text = (
            f"{pool_name(level.pool)} had {plain(left_gib, 3)} GiB left while it was starting and gained "
            f"{plain(gained, 3)} GiB in {WINDOW_S:g} s, and {plain(level.reserve_gib, 3)} GiB stay reserved; "
        )
        if over:
            text += f"it held {plain(worker.holds_gib, 3)} GiB, and is charged {plain(worker.charge_gib or 0.0, 3)}"
        else:
            text += "nobody is at fault, and it is started again"
        found.append(Stop(worker.worker_id, level.pool, OVER_BUDGET if over else "", text))
        back_gib += worker.holds_gib
    return found


def _stands(level: Level) -> str:
    return (
        f"{pool_name(level.pool)} has {plain(level.left_gib or 0.0, 2)} GiB left and "
        f"{plain(level.reserve_gib, 2)} stay reserved"
    )


def _whose(level: Level, acts: bool) -> str:
    """Whose memory it is, the largest first, and what happens next."""
    held = [(worker.holds_gib, worker.told) for worker in level.watched if worker.used_gib is None or worker.used_gib]
    held += [(other.used_gib, f"{other.name} {plain(other.used_gib, 2)} GiB") for other in level.others]
    held.sort(key=lambda each: -each[0])
    more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
    whose = ", ".join(text for _, text in held[:NAMED]) + more or "nobody that can be seen"
    then = (
        "workers are being stopped"
        if acts
        else "workers inside their charge and processes that schedq did not start are left alone"
    )
    return f"{_stands(level)}; it is held by {whose}: {then}, and nothing more is admitted there until it is given back"


def needed_gib(rate_gib_s: float, period_s: float, exit_s: float) -> float:
    """What a reserve must exceed for sampling to keep it: a worker grows until it is seen, and until it is gone."""
    return rate_gib_s * (period_s + exit_s)
