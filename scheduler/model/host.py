"""The seam between the loop and a machine: the `Host` protocol and the values that cross it.

Every value is made of plain JSON-able fields, so that a host may be another process one day. Methods return at once;
what takes time comes back from `poll` as an event. Submit and poll are separate: a lost connection is no lost job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler.model.machine import Machine
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider


@dataclass(frozen=True)
class Park:
    """Start a keeper, parked: visible in the process table with its charges, nothing spent yet.

    `device` are the pools whose devices it is given, comma-separated; "" = it sees none. `host_gib` is the part of its
    charges that is host memory, None = as its provider declares.
    """

    worker_id: int
    slug: str
    variant: str
    revision: str
    mode: str
    charges: dict[str, float]
    lease_ids: dict[str, int]
    device: str = ""
    host_gib: float | None = None


@dataclass(frozen=True)
class Task:
    """One attempt's request, as it goes to a worker.

    `input` is the input's own bytes, `input_sha256` what they were at submit; None = they are gone, or only the fence
    matters. `files` are the files that the input names, by JSON pointer. `out` is the destination that was asked for,
    "" = the default. `deadline_s` is wall time from the send; None = the provider's own patience only. `charges` is
    what its worker is charged for while it is on it, by pool; {} = as before. `device_gib` is what of that it is
    charged on each of its devices, None = it has none. `device` as in `Park`, `driver` its version; "" = not known.
    """

    worker_id: int
    job_id: int
    attempt: int
    slug: str
    variant: str
    name: str
    user: str
    batch: str
    params: dict[str, Any]
    input_name: str
    input_kind: str
    input_sha256: str
    input: bytes | None
    files: dict[str, Any]
    out: str
    deadline_s: float | None = None
    charges: dict[str, float] = field(default_factory=dict)
    device_gib: float | None = None
    device: str = ""
    driver: str = ""


@dataclass(frozen=True)
class Assignment:
    """What the queue's record says a worker is doing: the fence that a reply is checked against."""

    job_id: int
    attempt: int
    out: str = ""
    task: Task | None = None


@dataclass(frozen=True)
class Adopt:
    """A living worker's row, as the queue remembers it, for a host that just came up. `charges` by pool, GiB."""

    worker_id: int
    slug: str
    variant: str
    revision: str
    mode: str
    state: str
    boot_id: str
    keeper_pid: int | None
    keeper_started: float | None
    leader_pid: int | None
    leader_started: float | None
    assignment: Assignment | None = None
    device: str = ""
    charges: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Loose:
    """Charges of a worker of which nothing lives, as the queue remembers them, until their memory is back by evidence.

    `before_gib` says by pool what was on nobody's name there before its start; None = its driver gave no totals.
    `gone_for_s` is how long nothing of it has lived, `device` as in `Park`, `pids` its (pid, start) that are known.
    """

    worker_id: int
    slug: str
    boot_id: str
    before_gib: dict[str, float | None]
    gone_for_s: float = 0.0
    device: str = ""
    pids: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Shown:
    """The keeper's own argv can be read back: its charge is visible to everyone on the machine."""

    worker_id: int
    keeper_pid: int
    keeper_started: float
    boot_id: str


@dataclass(frozen=True)
class Charged:
    """The keeper's argv says these charges, by pool, GiB: they are visible to everyone on the machine."""

    worker_id: int
    charges: dict[str, float]


@dataclass(frozen=True)
class Answered:
    """The worker answered a ping, and its peer is in the tree that we started.

    `device` are the devices that it says it sees, comma-separated; "" = it does not say.
    """

    worker_id: int
    leader_pid: int
    leader_started: float
    versions: dict[str, str] = field(default_factory=dict)
    device: str = ""


@dataclass(frozen=True)
class Alive:
    """A worker that has not answered yet said something: a sign of life, told at most once a second."""

    worker_id: int


@dataclass(frozen=True)
class Progressed:
    """A progress line of a running attempt."""

    worker_id: int
    job_id: int
    attempt: int
    done: float | None
    total: float | None
    message: str = ""


@dataclass(frozen=True)
class Replied:
    """An attempt's answer was stored by the keeper and collected: outcome, reply bytes, where outputs went.

    `ago_s`: how long ago it was stored, where nobody listened then. `untaken`: the worker ended before it began.
    """

    worker_id: int
    job_id: int
    attempt: int
    outcome: Outcome
    reply: bytes | None = None
    destination: str = ""
    exiting: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    ago_s: float = 0.0
    untaken: bool = False


@dataclass(frozen=True)
class Forgotten:
    """After a takeover: the keeper knows nothing of this attempt; it was never sent, or its reply is gone."""

    worker_id: int
    job_id: int
    attempt: int


UNKNOWN = (0, 0)


@dataclass(frozen=True)
class Gone:
    """No living process of the worker's tree is left. `exit_code` None = nobody recorded it.

    `text` is the last line of its log; `why` what it was stopped for, "" = it ended by itself. `begun`: the attempt in
    work then (job, number), None = none, UNKNOWN = cannot be told. `outside`: its keeper was told to end, not by us.
    """

    worker_id: int
    exit_code: int | None
    text: str = ""
    why: str = ""
    begun: tuple[int, int] | None = UNKNOWN
    outside: bool = False


@dataclass(frozen=True)
class Returned:
    """The memory of a worker is back, by evidence; or is overdue, with what is still seen. `pool` "" = all of it."""

    worker_id: int
    back: bool
    text: str = ""
    pool: str = ""


@dataclass(frozen=True)
class Failed:
    """An order could not be carried out (the keeper could not be started, the request not sent).

    `alive`: something of the worker may live and has to be stopped. `disk`: for want of room there: nobody's failure.
    """

    worker_id: int
    text: str
    alive: bool = True
    disk: bool = False


@dataclass(frozen=True)
class Overstepped:
    """The guard is ending this worker already, without waiting for a loop: a pool that it is on is near its reserve.

    `outcome` is `over_budget` where it held more than its charge. "" = nobody's fault: a start that is given back, not
    to be tried again for `wait_s`, or an idle worker that makes room.
    """

    worker_id: int
    text: str
    outcome: str = ""
    wait_s: float = 0.0


@dataclass(frozen=True)
class Reclaimed:
    """Turning the file cache into free memory has ended: what was wanted and what was gained, GiB; `text` says how."""

    pool: str
    gib: float
    gained_gib: float
    text: str
    job_id: int | None = None


@dataclass(frozen=True)
class Nudged:
    """Something in the queue changed (a submit, a cancel)."""


@dataclass(frozen=True)
class Asked:
    """An operator's order through the wake socket or by a signal: `op` is down or restart; `now` does not wait."""

    op: str
    now: bool = False


@dataclass(frozen=True)
class Deserted:
    """Whoever waited for this command has gone; `text` says who."""

    job_id: int
    text: str


Seen = Shown | Charged
"""What a keeper claims can be read by everyone from now on."""

HostEvent = (
    Seen | Alive | Answered | Progressed | Replied | Forgotten | Gone | Returned | Failed | Overstepped | Reclaimed
    | Nudged | Asked | Deserted
)  # fmt: skip


class Host(Protocol):
    """All that must run on a machine. Second implementation: the simulator's SimHost."""

    def providers(self) -> dict[tuple[str, str], Provider]:
        """Every provider that this host serves, by (slug, variant), with what is installed."""

    def machine(self) -> Machine:
        """The newest snapshot of readings; never blocks on a probe, its age is in it."""

    def facts(self, machine: Machine) -> dict[str, Any]:
        """A snapshot as JSON for the record: what `status` shows of pools and others."""

    def poll(self, timeout_s: float) -> list[HostEvent]:
        """What happened since the last call; waits up to `timeout_s` for the first."""

    def park(self, order: Park) -> None:
        """Start a keeper, parked; answers with Shown or Failed."""

    def go(self, worker_id: int) -> None:
        """Let a parked keeper start its worker; answers with Answered or Gone."""

    def charge(self, worker_id: int, charges: dict[str, float]) -> None:
        """Show what a living worker is charged, GiB by pool: Charged, once a machine read after that is known."""

    def submit(self, task: Task) -> None:
        """Send one attempt's request; answers with Replied, or Failed if it could not leave."""

    def stop(self, worker_id: int, grace_s: float, why: str) -> None:
        """Stop a worker's whole tree: ask, TERM, after the grace KILL; answers with Gone, then Returned."""

    def adopt(self, rows: list[Adopt]) -> None:
        """Take over living workers after a restart; answers with Answered, Replied, Forgotten or Gone for each."""

    def attend(self, callers: dict[int, dict[str, Any]]) -> None:
        """Watch the processes that wait for these commands, by job id; answers with Deserted for each that goes."""

    def keep_environments(self, variants: set[str]) -> None:
        """Take away the stored environments of all commands but these: they have ended."""

    def watch_return(self, rows: list[Loose]) -> None:
        """Look until the memory of these is back; answers with Returned for each pool. Others are looked at no more."""

    def reclaim(self, pool: str, gib: float, job_id: int | None) -> None:
        """Turn so much of the file cache into free memory, off the loop's thread; answers with Reclaimed."""

    def peaks(self, worker_id: int, anew: bool) -> dict[str, float]:
        """The most that a worker was seen to use of each pool, GiB, since its start or, `anew`, its last send.

        Of unified memory its `device_part` too; nothing of a pool where not all could be seen. Told for a while after.
        """

    def watch_disks(self, folders: list[str]) -> None:
        """Look at the disks of these destinations, no others; Nudged comes once the figure of a new one is there."""

    def tell(self, job_id: int, state: str) -> None:
        """Tell whoever waits for this job that its state changed."""

    def close(self) -> None:
        """Let go of everything without stopping any worker."""
