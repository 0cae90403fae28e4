"""A night as facts: what became of the jobs, by provider and case, what they took, and what the machine did meanwhile.

Made by `gathering`; said as a page by the command line, as HTML, Markdown, JUnit or JSON by the modules beside this.
Times are seconds, instants seconds since the epoch, memory is GiB. None = it is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from scheduler.night.words import moment
from scheduler.rules.figures import gib

GOOD, BAD, OPEN = (
    ("passed", "succeeded"),
    ("failed", "refused", "cancelled"),
    ("running", "waiting", "held", "unjudged"),
)
WORDS = GOOD + BAD + OPEN
"""What became of a job: a validation case passed or failed by its check; any other job succeeded, or did not.

`unjudged`: it succeeded and its check has not been made yet.
"""


@dataclass(frozen=True)
class Tally:
    """How many jobs became what."""

    passed: int = 0
    succeeded: int = 0
    failed: int = 0
    refused: int = 0
    cancelled: int = 0
    running: int = 0
    waiting: int = 0
    held: int = 0
    unjudged: int = 0

    @property
    def jobs(self) -> int:
        """All of them."""
        return sum(getattr(self, each.name) for each in fields(self))

    @property
    def good(self) -> int:
        """Those that passed or succeeded."""
        return self.passed + self.succeeded

    @property
    def bad(self) -> int:
        """Those that ended otherwise."""
        return self.failed + self.refused + self.cancelled

    @property
    def open(self) -> int:
        """Those that have not ended, or are not judged."""
        return self.running + self.waiting + self.held + self.unjudged


@dataclass(frozen=True)
class Times:
    """How long something took: the median and the longest of `count`."""

    count: int = 0
    median_s: float | None = None
    most_s: float | None = None


@dataclass(frozen=True)
class Why:
    """Jobs that became the same for what reads as the same reason. `text` is that of the first."""

    became: str
    kind: str
    text: str
    count: int
    first_id: int
    first_name: str


class Job(NamedTuple):
    """One job, as JUnit and a comparison need it. `case` is "" of what is no validation case.

    `pruned`: its reply and outputs are not kept. `timeout_s`: the time that it was given and took longer than.
    """

    id: int
    name: str
    case: str
    became: str
    kind: str
    text: str
    run_s: float | None
    pruned: bool = False
    timeout_s: float | None = None


@dataclass(frozen=True)
class Case:
    """What became of one validation case of a provider."""

    name: str
    tally: Tally
    run: Times
    why: tuple[Why, ...] = ()


@dataclass(frozen=True)
class Memory:
    """One part of a provider's memory, `device` or `host`: what is declared, and what was used at most.

    `judged` is undeclared, under, over or fits; "" where nothing was measured. `tonight`: it was measured in this time.
    """

    part: str
    declared_gib: float | None
    used_gib: float | None
    judged: str
    tonight: bool
    budget_gib: float | None


@dataclass(frozen=True)
class ProviderNight:
    """What became of one provider's jobs.

    `run` is of those that passed or succeeded. `lane`: how many attempts ran on average, in each step of the time.
    """

    name: str
    slug: str
    tally: Tally
    whys: tuple[Why, ...]
    waits: tuple[Why, ...]
    cases: tuple[Case, ...]
    queue: Times
    load: Times
    run: Times
    cold_starts: int
    warm_hits: int
    retries: int
    charged_gib: float | None
    memory: tuple[Memory, ...]
    opened: tuple[tuple[float, str], ...]
    broken: str | None
    lane: tuple[float, ...] = ()
    failed_at: tuple[int, ...] = ()
    jobs: Sequence[Job] = field(default=(), repr=False)


@dataclass(frozen=True)
class Point:
    """A pool at one time."""

    at_s: float
    charged_gib: float
    used_gib: float | None
    live_gib: float | None


@dataclass(frozen=True)
class PoolNight:
    """One memory over the time, and nothing of before or after.

    `most_charged_gib`: the most that was charged at once, by the charges themselves. `most_used_gib`: the most that
    this queue's workers were seen to use at once, None if nobody looked: between two looks it may have been more.
    """

    id: str
    name: str
    capacity_gib: float
    reserve_gib: float
    points: tuple[Point, ...]
    most_charged_gib: float
    most_used_gib: float | None

    @property
    def most(self) -> str:
        """The two in words, which say what each rests on."""
        if self.most_used_gib is None:
            return f"at most {gib(self.most_charged_gib)} charged; nobody looked at what was used"
        return f"at most {gib(self.most_charged_gib)} charged, {gib(self.most_used_gib)} used when it was looked at"


@dataclass(frozen=True)
class Mark:
    """Something that happened: `start` of a worker, `failure` of jobs, `breaker` opened."""

    at_s: float
    kind: str
    text: str


@dataclass(frozen=True)
class Usage:
    """What became of the time: something of this ran, was only loaded, or neither, and then whether jobs waited."""

    running_s: float = 0.0
    loading_s: float = 0.0
    idle_waited_s: float = 0.0
    idle_s: float = 0.0


@dataclass(frozen=True)
class Changed:
    """A case, or a job by its name, that became something else than the time before."""

    provider: str
    name: str
    id: int
    before_id: int
    text: str


@dataclass(frozen=True)
class Slower:
    """A provider, or a case of it, whose median run takes longer than the time before."""

    provider: str
    case: str
    before_s: float
    now_s: float


@dataclass(frozen=True)
class Over:
    """A provider that uses more than it declares. `before`: whether it did so the time before."""

    provider: str
    part: str
    declared_gib: float
    used_gib: float
    before: bool


@dataclass(frozen=True)
class Comparison:
    """This report beside an earlier one."""

    against: str
    compared: int
    newly_failing: tuple[Changed, ...]
    newly_passing: tuple[Changed, ...]
    slower: tuple[Slower, ...]
    over: tuple[Over, ...]
    gone: int


@dataclass(frozen=True)
class Step:
    """What to do next: a command that can be copied, and what for."""

    command: str
    why: str


@dataclass(frozen=True)
class Report:
    """The whole of it. `batch` None: the jobs since a time, `since_s`. `scheduler`: whether one runs.

    `first_s`: when the first of its jobs was submitted.
    """

    batch: str | None
    at_s: float
    begin_s: float
    end_s: float
    tally: Tally
    providers: tuple[ProviderNight, ...]
    pools: tuple[PoolNight, ...]
    marks: tuple[Mark, ...]
    usage: Usage
    scheduler: bool
    steps: tuple[Step, ...] = ()
    against: Comparison | None = None
    since_s: float | None = None
    first_s: float | None = None

    @property
    def title(self) -> str:
        """What it is about, in a word or two."""
        if self.batch is not None:
            return f"batch {self.batch}"
        return f"all jobs since {moment(self.begin_s if self.since_s is None else self.since_s, day=True)}"

    @property
    def cold_starts(self) -> int:
        """Attempts for which a worker was started."""
        return sum(each.cold_starts for each in self.providers)

    @property
    def warm_hits(self) -> int:
        """Attempts that found a worker ready."""
        return sum(each.warm_hits for each in self.providers)

    @property
    def retries(self) -> int:
        """Tries beyond the first, each time that a job was opened; what was put off, or given back, is none."""
        return sum(each.retries for each in self.providers)

    @property
    def exit_code(self) -> int:
        """0 = every job passed or succeeded, 1 = one did not, or has not ended."""
        return 0 if self.tally.good == self.tally.jobs else 1
