"""What a plan is made from, and what it says to do. Values only; times are seconds, memory GiB."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scheduler.model.machine import Machine
from scheduler.model.provider import Provider
from scheduler.model.verdict import Verdict


@dataclass(frozen=True)
class Waiting:
    """The first waiting job of one (slug, variant), and how many there are in all.

    `head_for_s` is how long that first job has been a head, None = it never was. `victims` are the workers whose end
    it waits for since its window closed, None = not chosen. `following` is the (priority, id) of the job behind it.
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


@dataclass(frozen=True)
class WorkerView:
    """One live worker. `job_id` is what it is bound to (admitted or running), None = free.

    `idle_s` counts since ready or the last reply; `state_s` since the state was entered.
    `alive_s` is the time since its last sign of life (start-up output, progress).
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
    """One charged lease row that has no live worker any more (returning, leaked)."""

    worker_id: int
    slug: str
    pool: str
    charge_gib: float
    state: str


@dataclass(frozen=True)
class Snapshot:
    """Everything a plan may see.

    `overtake_s` is how long a head may be overtaken; `strict` = nobody ever is. `quiet_s` is how long ago the last job
    was submitted. `order` is the order of starts that the last plan preferred. `paused`: an operator lets nothing new
    be sent or started; `drained`: and workers retire once nothing runs.
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


@dataclass(frozen=True)
class Send:
    """Give the first waiting job of the worker's provider to this ready worker."""

    worker_id: int
    job_id: int


@dataclass(frozen=True)
class Start:
    """Lease the charges and park a keeper for this job's provider; the job is bound to it. None = for a wish."""

    job_id: int | None
    slug: str
    variant: str
    charges: dict[str, float]
    verdict: Verdict


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
class Predict:
    """When this provider's first waiting job is expected to be sent, and how many serve it from then on.

    Seconds from now. Learned means and charges alone; a forecast promises nothing.
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


Instruction = Send | Start | Go | Abort | Retire | Head | Explain | Prefer | Settle | Postpone
