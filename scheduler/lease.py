"""Room for the caller's own process: what a command of `schedq exec` has, for the length of a `with` block.

    with Client().lease(vram_gib=28, ram_gib=2, threads=4, name="fit") as lease:
        os.environ.update(lease.env)      # before the framework is imported
        ...

The process itself then counts as a worker, with what it starts: what they use together is the charge's, from before
the block too, and they are guarded at that. Whose job is cancelled gets SIGTERM, and 10 s later SIGKILL; who is above
its charge while memory runs short has 0.2 s. What it started is killed with it then. A process with several leases may
use their sum.

After the block nothing is ended: neither the process nor what it started and left. What they keep is charged as any
stranger's: of a device as much as its driver says, for as long as it says so; host memory is not free while they have
it, and so nothing is admitted on it. Where a driver tells no figure, the whole charge stays until what is in use of the
device is as little as before the block: after `leak_after` it is shown as leaked, and it heals by itself. So give back
what a framework caches before the block ends. Threads and devices that were set stay set.
"""

from __future__ import annotations

import difflib
import inspect
import os

from scheduler import attached, given
from scheduler.clock import monotonic_s
from scheduler.errors import JobFailed, Refused, Temporary, UsageError, WaitTimedOut
from scheduler.model.command import LEASE, Shape, token_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DECIDED_S = 20.0
"""How long `wait=False` waits for the scheduler's word."""

END_S = 5.0
"""How long the end of a block waits for its keeper to leave."""

MOST_GIB, MOST_COUNT = 2.0**30, 4096


class Lease:
    """GiB for this process: `vram_gib` on each of its `gpus` devices, `ram_gib` of host memory.

    `gpus` is one where device memory is asked for, and none otherwise. `exclusive`: alone on that memory. `wait=False`
    raises Temporary with the reason if there is no room now; `timeout_s` raises WaitTimedOut after so long. Within the
    block: `id` is the job, `devices` what the process was given, as frameworks name it, and `env` what is to be set
    for it and for the processes that it starts: devices and threads.
    """

    def __init__(
        self, client: Any, *, vram_gib: float | None = None, ram_gib: float | None = None, gpus: int | None = None,
        threads: int = 1, exclusive: bool = False, name: str = "", priority: int = 0, wait: bool = True,
        timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        self._client = client
        vram, ram = _gib("vram_gib", vram_gib), _gib("ram_gib", ram_gib)
        exclusive = given.flag("exclusive", exclusive)
        if vram is None and ram is None and not exclusive:
            raise Refused(
                "undeclared: a process is admitted on a budget or not at all; say what it will need: ram_gib=2 for"
                " host memory, vram_gib=10 for a device's, exclusive=True for all that there is"
            )
        count = (1 if vram else 0) if gpus is None else given.whole("gpus", gpus, 0)
        if bool(count) != bool(vram) and not (count and exclusive):
            raise UsageError(f"gpus = {count} and vram_gib = {vram_gib}: the one needs the other")
        wide = given.whole("threads", threads, 1)
        if wide > MOST_COUNT or count > MOST_COUNT:
            raise UsageError(f"threads = {wide}, gpus = {count}: at most {MOST_COUNT}")
        self._shape = Shape(vram or 0.0, ram or 0.0, count, wide, exclusive, LEASE, token_of(os.urandom(5)))
        self._name = given.text("name", name) or f"process {os.getpid()}"
        self._priority = given.whole("priority", priority)
        self._wait, self._timeout_s = given.flag("wait", wait), given.seconds("timeout_s", timeout_s)
        self._call: attached.Attached | None = None
        self._pid = os.getpid()
        self.id = 0
        self.devices: list[str] = []
        self.env: dict[str, str] = {}

    def __enter__(self) -> Lease:
        """Queue, wait for the room, and have it."""
        if self._call is not None:
            raise UsageError("this lease is held already; make another one for another block")
        client, self._pid = self._client, os.getpid()
        client.refuse_never(self._shape.spec())
        row = attached.row_of(client.paths, self._shape, [], self._name, self._priority)
        self.id, call = 0, attached.Attached(client.paths, 0, LEASE, [])
        self._call = call
        try:
            client.enqueue([row], self._queued)
            self._await(call)
            self.devices, self.env = list(call.began.get("devices") or ()), dict(call.began.get("env") or {})
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    def _queued(self, ids: list[int]) -> None:
        """Called while no signal can come in between: from here on there is a job to be cancelled."""
        call = self._call
        assert call is not None
        self.id = call.job_id = ids[0]

    def __exit__(self, *_error: object) -> None:
        """Give the room back. A fork of the process that had it gives nothing back."""
        call, self._call = self._call, None
        if call is None or os.getpid() != self._pid:
            return
        try:
            call.say(over=True)
            until = monotonic_s() + END_S
            while call.ended is None and monotonic_s() < until:
                call.wait(0.2)
        finally:
            call.close()
            call.bury()

    def _await(self, call: attached.Attached) -> None:
        from scheduler.absence import Absence

        began_s, absence = monotonic_s(), Absence(self._client.paths)
        while not call.began:
            call.step()
            if call.left or call.ended is not None:
                job = self._client.status(self.id)
                raise JobFailed(f"the lease of job {self.id} was not given: {(job.get('outcome') or {}).get('text')}")
            if call.began:
                return
            waited_s = monotonic_s() - began_s
            if self._timeout_s is not None and waited_s >= self._timeout_s:
                raise WaitTimedOut(f"no room within {self._timeout_s:g} s: {self._reason()['text']}")
            if not self._wait:
                self._refuse_if_decided(call, waited_s)
            absence.check([self.id], heard=False)
            call.wait(0.05 if not self._wait else 0.5)

    def _refuse_if_decided(self, call: attached.Attached, waited_s: float) -> None:
        reason, turn = self._reason(), call.turn
        waits = turn is not None and turn.state == "queued"
        decided = reason["ruling"] not in ("", "busy", "scheduler_down") or (turn is not None and turn.attempt > 0)
        if (waits and decided) or waited_s > DECIDED_S:
            raise Temporary(f"no room now: {reason['text']}; nothing is left in the queue")

    def _reason(self) -> dict[str, str]:
        found = self._client.status(self.id).get("reason") or {}
        return {"ruling": found.get("ruling", ""), "text": found.get("text", "the scheduler has not said why")}

    def _give_up(self, error: BaseException) -> None:
        """Leave nothing in the queue: its caller lives, and so nobody else takes it out. What fails in that is said."""
        call, self._call = self._call, None
        if call is not None:
            call.close()
            call.bury()
        try:
            if self.id:
                self._client.cancel([self.id])
        except Exception as other:
            error.add_note(f"job {self.id} is still in the queue ({other}); schedq cancel {self.id}")


def leased(client: Any, room: dict[str, Any]) -> Lease:
    """The lease of that room. UsageError for a word that no lease has, with the nearest."""
    known = [name for name in inspect.signature(Lease.__init__).parameters if name not in ("self", "client")]
    odd = next((word for word in room if word not in known), None)
    if odd is not None:
        near = difflib.get_close_matches(odd, known, 1, 0.5)
        raise UsageError(f"lease has no {odd}{f'; {near[0]} is meant?' if near else ''}; it has {', '.join(known)}")
    return Lease(client, **room)


def _gib(what: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= MOST_GIB:
        raise given.refusal(what, value, "GiB, a number from 0 on, or None")
    return float(value)
