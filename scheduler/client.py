"""The Python API of a queue: submit, wait, result. The command line speaks through it too.

    from scheduler.client import Client

    queue = Client()
    job = queue.submit("capiti", {"sequences": [{"id": "a", "aa": "MSIQ..."}]})
    queue.wait([job], timeout_s=600)
    print(queue.result(job)["results"])

A Client keeps its line to the scheduler and its catalog, so that the second call costs a few milliseconds. It is
for one thread; make one for each. Errors are those of scheduler.errors. Standard library only, nothing slow of it.
"""

from __future__ import annotations

import os

from scheduler import given, wake
from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import (
    AcceleratorAbsent,
    JobFailed,
    Refused,
    SchedqError,
    Temporary,
    UsageError,
    WaitTimedOut,
    all_of,
)
from scheduler.outputs import at_pointer as at_pointer
from scheduler.outputs import pruned
from scheduler.store import absent, intake, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from scheduler.absence import Absence
    from scheduler.asked import Asking
    from scheduler.given import After, Begin, Input, Labels, Params
    from scheduler.lease import Lease

    Path = str | os.PathLike[str]

ENDED = ("succeeded", "failed", "cancelled", "timed_out", "refused")
HEARD_S, UNHEARD_S, WATCHED_AT_ONCE = 5.0, 1.0, 2000


class Client:
    """One queue, as a program uses it. `home` is its folder; SCHEDQ_HOME or the user's own unless given."""

    def __init__(self, home: Path | None = None) -> None:
        self.paths = Paths(given.path("home", home))
        self.moved: list[tuple[str, str]] = []
        """What the last submission moved aside: each destination, and where what was there lies since."""
        self.fates: list[str] = []
        self.counts: dict[str, int] = {}
        """What became of each row of the last submission (intake.FATES) and what else there is to say (COUNTED)."""
        self._line: wake.Line | None = None
        self._absence: Absence | None = None

    def close(self) -> None:
        """Let go of the line to the scheduler. The client can still be used."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def spec(self, slug: str) -> dict[str, Any]:
        """What a provider declares. UnknownProvider names the nearest; BrokenManifest file, key and fix."""
        from scheduler import catalog

        if not given.text("slug", slug):
            raise given.refusal("slug", slug, "a provider's name, as `schedq providers list` shows them")
        return catalog.load(self.paths).spec(slug)

    def submit(
        self,
        slug: str,
        input: Input,
        *,
        params: Params = None,
        name: str = "",
        priority: int = 0,
        key: str = "",
        batch: str = "",
        timeout_s: float | None = None,
        out: Path = "",
        overwrite: bool = False,
        hold: bool = False,
        on_lost: str | None = None,
        max_attempts: int | None = None,
        retry_on: Iterable[str] | None = None,
        labels: Labels = None,
        begin: Begin = None,
        after: After = None,
        on_parent: str | None = None,
    ) -> int:
        """Queue one job, durably; its id. `input` is a path, the bytes of a file, or a JSON document.

        `out` may hold {name} {id} {slug} {batch}. `hold`: it waits until `schedq release`. `on_lost` (requeue, hold,
        fail), `max_attempts` and `retry_on` (outcomes) are the provider's unless given. The same `key` is the same
        job: its id comes back, nothing is queued; it may hold {name} {slug} {batch}. `labels`: NAME or NAME=VALUE each,
        or a dict. `begin`: not before that, a datetime with its zone, or a text like 22:00 or 2h. Raises UsageError (an
        argument is not what it must be), UnknownProvider, InvalidInput, Refused (never fits, destination), Temporary
        (locked, full).
        """
        return self.submit_many(
            slug, [input], params=params, name=name, priority=priority, key=key, batch=batch, timeout_s=timeout_s,
            out=out, overwrite=overwrite, hold=hold, on_lost=on_lost, max_attempts=max_attempts, retry_on=retry_on,
            labels=labels, begin=begin, after=after, on_parent=on_parent,
        )[0]  # fmt: skip

    def submit_many(self, slug: str, inputs: Iterable[Input], **options: Any) -> list[int]:
        """Queue one job for each input, all or none; their ids in order. Options as of `submit`.

        `each_after`, a batch: job i comes after job i of it, with input i or all with the only one; {parent} in `key`
        is the id of that.
        """
        return self.enqueue(self.checked(slug, inputs, **options))

    def checked(self, slug: str, inputs: Iterable[Input], **options: Any) -> list[dict[str, Any]]:
        """The rows that these requests would be, every input checked and nothing written; every bad one is named.

        Options as of `asking`.
        """
        asking, count = self.asking(slug, inputs, **options)
        if asking.faults:
            raise all_of(asking.faults, count)
        return asking.rows

    def asking(
        self,
        slug: str,
        inputs: Iterable[Input],
        *,
        spec: dict[str, Any] | None = None,
        resume: bool = False,
        tell: Callable[[int], None] | None = None,
        each_after: str = "",
        **options: Any,
    ) -> tuple[Asking, int]:
        """(the rows that these requests would be and the faults of the others, how many requests there are).

        `spec` spares the look into the catalog, for who has just looked. `resume`: what lies at a destination may be
        of the same job. `tell` is called with how many are checked.
        """
        from scheduler import asked

        spec = spec or self.spec(slug)
        asking = asked.Asking(self.paths, resume=resume)
        common, sources = asking.common(spec, options), given.inputs(inputs)
        count = len(sources)
        if count > 1 and not each_after and (common.name or (common.key and "{name}" not in common.key)):
            what = "--name is" if common.name else "--key without {name} in it is"
            raise UsageError(f"{what} one job's, and {count} inputs were given; use --batch")
        if each_after:
            from scheduler import following

            count = following.add(asking, common, sources, given.text("each_after", each_after), self.paths, tell)
        for index, source in enumerate(sources if not each_after else ()):
            asking.add(index, common, source)
            asked.told(tell, index)
        if not asking.faults:
            asking.refuse_never(spec)
        asking.refuse_taken()
        return asking, count

    def enqueue(
        self,
        rows: list[dict[str, Any]],
        say: Callable[[list[int]], None] | None = None,
        **options: Any,
    ) -> list[int]:
        """Write checked rows, all or none, and tell the scheduler; their ids, durable when this returns.

        `say` is given the ids while the signals that end a process are still held back. `options`: of intake.submit.
        """
        done: list[int] = []

        def told(ids: list[int]) -> None:
            done.extend(ids)
            if say is not None:
                say(ids)

        try:
            self.moved, self.fates, self.counts = [], [], {}
            options["counts"] = self.counts
            return intake.submit(self.paths, rows, told, moved=self.moved, fates=self.fates, **options)
        finally:
            if done:
                wake.nudge(self.paths)

    def status(self, id: int | None = None) -> dict[str, Any]:
        """The whole queue as `schedq status --json` shows it, or one job as `schedq show ID --json` does."""
        return peek.status(self.paths) if id is None else peek.job(self.paths, given.job_id(id))

    def cancel(self, ids: int | Iterable[int]) -> list[tuple[int, str, str]]:
        """Ask that jobs end: per job its id, its state before and its state now (a running one stays `running`)."""
        changed = intake.cancel(self.paths, given.job_ids(ids))
        wake.nudge(self.paths)
        if os.path.isdir(os.path.join(self.paths.home, "environments")):
            from scheduler.attached import forget_environments

            forget_environments(self.paths, changed)
        return changed

    def lease(self, **room: Any) -> Lease:
        """Room for this process while a `with` block lasts; vram_gib, ram_gib, gpus, wait, timeout_s...: see Lease."""
        from scheduler.lease import leased

        return leased(self, room)

    def result(self, id: int, pointer: str | None = None) -> Any:
        """A job's reply, or the part at a JSON pointer. Temporary while it has not ended, JobFailed if it failed.

        A job that failed because its outputs could not be put at their destination has its reply all the same.
        """
        import json

        pointer = None if pointer is None else given.text("pointer", pointer)
        reply, _destination, _job = self.reply(id)
        value = json.loads(reply)
        return value if pointer is None else at_pointer(value, pointer)

    def reply(self, id: int) -> tuple[bytes, str, dict[str, Any]]:
        """A job's reply as the worker gave it, the folder of its outputs ("" = none), and the job.

        Temporary while it has not ended; JobFailed, Refused or AcceleratorAbsent if it ended without a reply; Pruned if
        that was taken away since.
        """
        reply, folder, job = peek.result(self.paths, given.job_id(id))
        if job["state"] not in ENDED:
            raise Temporary(f"job {id} is {job['state']} and has no result yet; schedq wait {id}")
        if job["state"] != "succeeded" and (job["state"] != "failed" or reply is None):
            raise failure(job, self.paths)
        if job["pruned_at"]:
            raise pruned(job, folder or "")
        return reply if reply is not None else b"null", folder or "", job

    def wait(self, ids: int | Iterable[int], timeout_s: float | None = None) -> dict[int, str]:
        """Wait until all have ended; the state of each. Never cancels.

        WaitTimedOut when the time is over, SchedulerDown when no scheduler runs that could end them (`schedq up`).
        """
        return dict(self.ended(ids, timeout_s))

    def ended(self, ids: int | Iterable[int], timeout_s: float | None = None) -> Iterator[tuple[int, str]]:
        """Each job as it ends, with its state; told by the scheduler, looked up once a second where none answers."""
        from scheduler.absence import Absence

        open_ids = dict.fromkeys(given.job_ids(ids))
        self._absence = absence = self._absence or Absence(self.paths)
        timeout_s = given.seconds("timeout_s", timeout_s)
        until = None if timeout_s is None else monotonic_s() + timeout_s
        while open_ids:
            listening = self._watch(list(open_ids))
            for job_id, state in self._states(list(open_ids)).items():
                if state in ENDED:
                    del open_ids[job_id]
                    yield job_id, state
            if open_ids:
                absence.check(list(open_ids), heard=listening)
            look_at = monotonic_s() + (HEARD_S if listening else UNHEARD_S)
            while open_ids:
                now = monotonic_s()
                if until is not None and now >= until:
                    raise WaitTimedOut(not_ended(list(open_ids), timeout_s))
                if now >= look_at:
                    break
                told = self._hear(min(look_at, until) - now if until is not None else look_at - now)
                job, state = told.get("job"), str(told.get("state"))
                if isinstance(job, int) and job in open_ids and state in ENDED:
                    del open_ids[job]
                    yield job, state

    def _states(self, ids: list[int]) -> dict[int, str]:
        states = peek.states(self.paths, ids)
        for job_id in ids:
            if job_id not in states:
                raise absent.missing([job_id], self.paths)
        return states

    def _hear(self, timeout_s: float) -> dict[str, Any]:
        assert self._line is not None
        return self._line.hear(timeout_s) or {}

    def _watch(self, ids: list[int]) -> bool:
        """Ask to be told of these jobs; whether the scheduler said that it will, of every one."""
        if self._line is None:
            self._line = wake.Line(self.paths)
        parts = [ids[at : at + WATCHED_AT_ONCE] for at in range(0, len(ids), WATCHED_AT_ONCE)]
        if not all(self._line.say(op="watch", jobs=part) for part in parts):
            return False
        until = monotonic_s() + 1.0
        kept: list[int] = []
        while len(kept) < len(parts) and (left := until - monotonic_s()) > 0:
            told = self._hear(left).get("watching")
            kept += [told] if isinstance(told, int) else []
        return sum(kept) == len(ids)

    def refuse_never(self, spec: dict[str, Any]) -> None:
        """Refused or AcceleratorAbsent for what can never start on this machine, by what was last seen of it."""
        from scheduler import asked

        error = asked.refusal(self.paths, spec)
        if error is not None:
            raise error


def not_ended(ids: list[int], timeout_s: float | None) -> str:
    """What is said when the time to wait for these jobs is over."""
    named = ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
    jobs, go = ("job", "goes") if len(ids) == 1 else ("jobs", "go")
    return f"{jobs} {named} had not ended after {timeout_s:g} s and {go} on"


def ending(job: dict[str, Any]) -> str:
    """How a job that did not succeed ended: its state, its outcome and the reason, nothing said twice."""
    outcome = job.get("outcome") or {}
    words = [job["state"].replace("_", " ")]
    kind = outcome.get("kind") or ""
    for word in ("" if kind == job["state"] else kind, outcome.get("text") or ""):
        if word.startswith(words[-1]):
            words.pop()
        if word:
            words.append(word)
    return ": ".join(words)


def failure(job: dict[str, Any], paths: Paths) -> SchedqError:
    """What a job that did not succeed is reported as: outcome, reason, and where to read on; its exit code fits."""
    kind = (job.get("outcome") or {}).get("kind") or job["state"]
    message = f"job {job['id']} ({job['slug']}) {ending(job)}"
    if job.get("attempt"):
        log = os.path.join(paths.attempt(job["id"], job["attempt"]), "log")
        if os.path.exists(log) and os.path.getsize(log) > 0:
            message += f"; schedq log {job['id']} has what its worker wrote"
        elif kind != "refused" or not job["outcome"].get("text"):
            message += f"; its worker wrote nothing, schedq show {job['id']} has the rest"
    if kind == "refused":
        return Refused(message)
    return AcceleratorAbsent(message) if kind == "no_accelerator" else JobFailed(message)
