"""What a plan is made from, and what it says to do. Values only; times are seconds, memory GiB."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from scheduler.model.machine import Machine
from scheduler.model.provider import NOTHING, Learned, Provider
from scheduler.model.verdict import Verdict


@dataclass(frozen=True)
class Waiting:
    """The first waiting job of one (slug, variant), and how many there are in all.

    `head_for_s` is how long that first job has been a head, None = it never was. `victims` are the workers whose end
    it waits for since its window closed, None = not chosen. `following` is the (priority, id) of the job behind it.
    `learned` is what jobs of its size were seen to use, `following_learned` those of the one behind it.
    `alone`: "" = an ordinary job; `again` = it ran over its budget and is tried once more alone; `measure` = it is run
    to be measured. Such a job stands behind the job `behind`, and `batch` is what it goes together with.
    `out`: GiB free (None = not known) and reserved on the disk of its destination; None = it asks for none.
    `fresh`: it goes to a worker that has served nothing; `following_fresh`: so does the one behind it.
    """

    slug: str
    variant: str
    job_id: int
    priority: int
    count: int
    head_for_s: float | None = None
    victims: tuple[int, ...] | None = None
    following: tuple[int, int] | None = None
    revision: str = ""
    paused: str = ""
    learned: Learned = NOTHING
    following_learned: Learned = NOTHING
    alone: str = ""
    behind: int = 0
    batch: str = ""
    out: tuple[float | None, float] | None = None
    fresh: bool = False
    following_fresh: bool = False


@dataclass(frozen=True)
class WorkerView:
    """One live worker. `job_id` is what it is bound to (admitted or running), None = free.

    `idle_s` counts since ready or the last reply; `state_s` since the state was entered.
    `alive_s` is the time since its last sign of life (start-up output, progress).
    `host_gib` is the part of its charges that is host memory, None = as its provider declares. `alone`: it was started
    for jobs that run alone, and is charged all that its pool can give.
    `before`: its charges as they were before they were raised for the job that it is bound to; {} = they were not.
    `raised`: "" = not raised; else `unasked`, `asked` or `shown`: whether everybody can see what they were raised to.
    """

    id: int
    slug: str
    variant: str
    revision: str
    state: str
    charges: dict[str, float]
    job_id: int | None = None
    attempt: int | None = None
    idle_s: float = 0.0
    state_s: float = 0.0
    alive_s: float = 0.0
    deadline_in_s: float | None = None
    jobs_served: int = 0
    retire_after: str = ""
    pinned: bool = False
    shown: bool = True
    cancel: bool = False
    mode: str = "resident"
    host_gib: float | None = None
    alone: bool = False
    before: dict[str, float] = field(default_factory=dict)
    raised: str = ""


@dataclass(frozen=True)
class Wish:
    """A provider of which an operator wants a worker before a job asks for one.

    `pin`: that worker is pinned when it is there. `wait_s`: not tried again for so long, since it has just failed.
    """

    slug: str
    variant: str
    pin: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True)
class Breaker:
    """Why a provider is not started for now: failures in a row, the last error, seconds to the next try."""

    slug: str
    failures: int
    last_error: str
    next_try_in_s: float


@dataclass(frozen=True)
class BreakerState:
    """What a breaker remembers of one provider, as it is stored.

    `inputs` says what failed, in a row, oldest first: the sha256 of the input that a worker crashed on, or a word
    of rules.breaker for a start. Open while `next_try_s` is set: tried again from then on, one job at a time. Seconds
    since the epoch.
    """

    failures: int = 0
    inputs: tuple[str, ...] = ()
    last_error: str = ""
    opened_s: float | None = None
    next_try_s: float | None = None


@dataclass(frozen=True)
class LeaseView:
    """One charged lease row that has no live worker any more (returning, leaked).

    `since_at` is when the last of that worker ended, `text` what was last seen of what is missing.
    """

    worker_id: int
    slug: str
    pool: str
    charge_gib: float
    state: str
    since_at: str = ""
    text: str = ""


@dataclass(frozen=True)
class Snapshot:
    """Everything a plan may see.

    `overtake_s` is how long a head may be overtaken; `strict` = nobody ever is. `quiet_s` is how long ago the last job
    was submitted. `order` is the order of starts that the last plan preferred. `paused`: an operator lets nothing new
    be sent or started; `drained`: and workers retire once nothing runs. `alone` is the first of the jobs that run
    alone of each provider, and of those that are measured, in their order.
    """

    machine: Machine
    providers: dict[tuple[str, str], Provider]
    waiting: tuple[Waiting, ...]
    workers: tuple[WorkerView, ...]
    leases: tuple[LeaseView, ...] = ()
    breakers: dict[str, Breaker] = field(default_factory=dict)
    overtake_s: float = 900.0
    strict: bool = False
    quiet_s: float = math.inf
    order: tuple[tuple[str, str], ...] = ()
    wishes: tuple[Wish, ...] = ()
    draining: bool = False
    stopping: bool = False
    paused: bool = False
    drained: bool = False
    alone: tuple[Waiting, ...] = ()

    @property
    def at_work(self) -> int:
        """How many workers of this queue load or compute, and so compete for what the file cache gives back."""
        return sum(worker.state in ("starting", "busy") for worker in self.workers)

    @property
    def contested(self) -> Machine:
        """The machine, with those counted among who competes."""
        there, ours = self.machine, self.at_work
        return there if not ours or there.competing is None else replace(there, competing=there.competing + ours)


@dataclass(frozen=True)
class Send:
    """Give this job to this ready worker. `verdict`: that of the charges that were raised for it, seen by all."""

    worker_id: int
    job_id: int
    verdict: Verdict | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Raise:
    """Admit this job to a ready worker that is charged less than it costs: its charges are raised to these, by pool,
    and shown; it is sent once everybody can see them and they are found to fit still.

    `host_gib` is the host's part of them, `verdict` that of the difference.
    """

    worker_id: int
    job_id: int
    charges: dict[str, float]
    host_gib: float
    verdict: Verdict


@dataclass(frozen=True)
class Show:
    """Show again what this worker's charges were raised to: nobody knows whether it can be seen."""

    worker_id: int


@dataclass(frozen=True)
class Lower:
    """Take back what this worker's charges were raised by, and the job that they were raised for.

    `verdict`: what was found once all could see them.
    """

    worker_id: int
    why: str
    verdict: Verdict | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Start:
    """Lease the charges and park a keeper for this job's provider; the job is bound to it. None = for a wish.

    `alone`: it is charged all that its pool can give, for jobs that run alone.
    """

    job_id: int | None
    slug: str
    variant: str
    charges: dict[str, float]
    verdict: Verdict
    alone: bool = False


@dataclass(frozen=True)
class Go:
    """The parked worker still has its room, now that everybody can see its claim: spend it."""

    worker_id: int
    verdict: Verdict | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Abort:
    """End a worker that is parked, starting or busy; its job is given back or ends by `outcome`.

    `outcome` "" = nobody's fault (give back); else a kind of model.outcome. `verdict`: that of a parked one.
    """

    worker_id: int
    why: str
    outcome: str = ""
    verdict: Verdict | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Retire:
    """Stop an idle worker: because of age, a job that needs its room, or an operator.

    `again`: its pin outlives it, another worker of its provider takes it on.
    """

    worker_id: int
    why: str
    again: bool = False


@dataclass(frozen=True)
class Head:
    """This job is a head now: its window opens, or stays open, with the tick.

    `victims`: its window has closed, and these are the workers whose end it waits for; None = nobody was chosen yet.
    """

    job_id: int
    victims: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Prefer:
    """The order in which absent providers were tried: the next plan begins with it."""

    order: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Reclaim:
    """Turn so much of the file cache into free memory: it alone keeps this job's worker out of the pool. GiB."""

    pool: str
    gib: float
    job_id: int


@dataclass(frozen=True)
class Predict:
    """When this provider's first waiting job is expected to be sent, and how many serve it from then on.

    Seconds from now. Learned means and charges alone; a forecast promises nothing. `run_s` is infinite where nobody can
    tell how long its jobs take.
    """

    slug: str
    variant: str
    starts_in_s: float
    run_s: float
    workers: int


@dataclass(frozen=True)
class Explain:
    """Why the waiting jobs of this provider do not start: stored, shown by `status`.

    `why` is the sentence, or the verdict that rules.explain makes one from when it is needed. `verdict`: the one that a
    sentence about making room begins with.
    """

    slug: str
    variant: str
    job_id: int
    ruling: str
    why: str | Verdict
    verdict: Verdict | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Settle:
    """A wish has come to its end: this worker is there, or, None, it is dropped for `why` and can never be met."""

    slug: str
    variant: str
    worker_id: int | None
    why: str | Verdict = ""


@dataclass(frozen=True)
class Postpone:
    """Why a wish waits: stored, shown by `workers`."""

    slug: str
    variant: str
    ruling: str
    why: str | Verdict


Stop = Abort | Retire
"""What ends a worker."""

Instruction = (
    Send | Raise | Show | Lower | Start | Go | Abort | Retire | Head | Explain | Prefer | Settle | Postpone | Reclaim
)
