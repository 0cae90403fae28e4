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

from scheduler import outputs, wake
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
)
from scheduler.outputs import at_pointer as at_pointer
from scheduler.rules import never
from scheduler.store import intake, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    Input = dict[str, Any] | list[Any] | bytes | str

ENDED = ("succeeded", "failed", "cancelled", "timed_out", "refused")
GIVEN = "input.json"
"""What an input that is a JSON value is called, where a worker wants a file."""
HEARD_S, UNHEARD_S, WATCHED_AT_ONCE = 5.0, 1.0, 2000


class Client:
    """One queue, as a program uses it. `home` is its folder; SCHEDQ_HOME or the user's own unless given."""

    def __init__(self, home: str | None = None) -> None:
        self.paths = Paths(home)
        self._line: wake.Line | None = None

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

        return catalog.load(self.paths).spec(slug)

    def submit(
        self,
        slug: str,
        input: Input,
        *,
        params: dict[str, Any] | Sequence[str] = (),
        name: str = "",
        priority: int = 0,
        key: str = "",
        batch: str = "",
        timeout_s: float | None = None,
        out: str = "",
        overwrite: bool = False,
    ) -> int:
        """Queue one job, durably; its id. `input` is a path, the bytes of a file, or a JSON document.

        `out` may hold {name} {id} {slug} {batch}. The same `key` is the same job: its id comes back, nothing is
        queued. Raises UnknownProvider, InvalidInput, Refused (never fits, destination), Temporary (locked, full).
        """
        return self.submit_many(
            slug, [input], params=params, name=name, priority=priority, key=key, batch=batch, timeout_s=timeout_s,
            out=out, overwrite=overwrite,
        )[0]  # fmt: skip

    def submit_many(self, slug: str, inputs: Iterable[Input], **given: Any) -> list[int]:
        """Queue one job for each input, all or none; their ids in order. Options as of `submit`."""
        return self.enqueue(self.checked(slug, inputs, **given))

    def checked(
        self,
        slug: str,
        inputs: Iterable[Input],
        *,
        spec: dict[str, Any] | None = None,
        params: dict[str, Any] | Sequence[str] = (),
        name: str = "",
        priority: int = 0,
        key: str = "",
        batch: str = "",
        timeout_s: float | None = None,
        out: str = "",
        overwrite: bool = False,
    ) -> list[dict[str, Any]]:
        """The rows that these requests would be, every input checked and nothing written; every bad one is named.

        `spec` spares the look into the catalog, for who has just looked.
        """
        from scheduler import request

        spec = spec or self.spec(slug)
        self._refuse_never(spec)
        try:
            values = request.parameters(spec, _assignments(params))
        except UsageError as error:
            raise _of_params(error) if isinstance(params, dict) else error from None
        sources = list(inputs)
        if len(sources) > 1 and (key or name):
            raise UsageError(
                f"{'--key' if key else '--name'} is one job's, and {len(sources)} inputs were given; use --batch"
            )
        rows: list[dict[str, Any]] = []
        faults: list[tuple[str, SchedqError]] = []
        for source in sources:
            try:
                data, input_name, folder = _read(source)
                row = request.check(spec, data, input_name, folder, values, self.paths)
            except SchedqError as error:
                faults.append((source, error) if isinstance(source, str) else ("the input", _of_input(error)))
                continue
            row["data"] = data
            row["name"] = name or os.path.splitext(row["input_name"])[0]
            rows.append(row)
        if faults:
            raise _all_of(faults, len(sources))
        common = {
            "slug": spec["slug"], "variant": spec["variant"], "revision": spec["revision"],
            "priority": priority, "batch": batch or None, "key": key or None, "timeout_s": timeout_s,
            "state": "queued", "max_attempts": spec["retry"]["max_attempts"],
            "on_lost": spec["retry"]["on_lost"], "overwrite": overwrite,
        }  # fmt: skip
        for row in rows:
            row.update(common)
            row["out"] = outputs.destination(out, row["slug"], row["name"], batch) if out else None
        outputs.refuse_taken(rows, may_exist=overwrite or bool(key))
        if key and overwrite and peek.with_key(self.paths, key) is not None:
            rows[0]["overwrite"] = False
        return rows

    def enqueue(self, rows: list[dict[str, Any]], say: Callable[[list[int]], None] | None = None) -> list[int]:
        """Write checked rows, all or none, and tell the scheduler; their ids, durable when this returns.

        `say` is given the ids while the signals that end a process are still held back. What is at a destination
        that may be overwritten is moved aside first.
        """
        moved = [outputs.set_aside(row["out"]) for row in rows if row["overwrite"] and row["out"]]
        done: list[int] = []

        def told(ids: list[int]) -> None:
            done.extend(ids)
            if say is not None:
                say(ids)

        try:
            return intake.submit(self.paths, rows, told)
        finally:
            if done:
                wake.nudge(self.paths)
            else:
                for out, aside in filter(None, moved):
                    os.rename(aside, out)

    def status(self, id: int | None = None) -> dict[str, Any]:
        """The whole queue as `schedq status --json` shows it, or one job as `schedq show ID --json` does."""
        return peek.status(self.paths) if id is None else peek.job(self.paths, id)

    def cancel(self, ids: Sequence[int]) -> list[tuple[int, str, str]]:
        """Ask that jobs end: per job its id, its state before and its state now (a running one stays `running`)."""
        changed = intake.cancel(self.paths, list(ids))
        wake.nudge(self.paths)
        return changed

    def result(self, id: int, pointer: str | None = None) -> Any:
        """A job's reply, or the part at a JSON pointer. Temporary while it has not ended, JobFailed if it failed."""
        import json

        reply, _destination, _job = self.reply(id)
        value = json.loads(reply)
        return value if pointer is None else at_pointer(value, pointer)

    def reply(self, id: int) -> tuple[bytes, str, dict[str, Any]]:
        """A succeeded job's reply as the worker gave it, the folder of its outputs ("" = none), and the job."""
        reply, folder, job = peek.result(self.paths, id)
        if job["state"] not in ENDED:
            raise Temporary(f"job {id} is {job['state']} and has no result yet; schedq wait {id}")
        if job["state"] != "succeeded":
            raise failure(job, self.paths)
        return reply if reply is not None else b"null", folder or "", job

    def wait(self, ids: Sequence[int], timeout_s: float | None = None) -> dict[int, str]:
        """Wait until all have ended; the state of each. WaitTimedOut when the time is over; never cancels."""
        return dict(self.ended(ids, timeout_s))

    def ended(self, ids: Sequence[int], timeout_s: float | None = None) -> Iterator[tuple[int, str]]:
        """Each job as it ends, with its state; told by the scheduler, looked up once a second where none answers."""
        open_ids = dict.fromkeys(ids)
        until = None if timeout_s is None else monotonic_s() + timeout_s
        while open_ids:
            listening = self._watch(list(open_ids))
            for job_id, state in self._states(list(open_ids)).items():
                if state in ENDED:
                    del open_ids[job_id]
                    yield job_id, state
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
                raise intake.missing([job_id], self.paths)
        return states

    def _hear(self, timeout_s: float) -> dict[str, Any]:
        assert self._line is not None
        return self._line.hear(timeout_s) or {}

    def _watch(self, ids: list[int]) -> bool:
        """Ask to be told of these jobs; whether the scheduler said that it will."""
        if self._line is None:
            self._line = wake.Line(self.paths)
        if not all(
            self._line.say(op="watch", jobs=ids[at : at + WATCHED_AT_ONCE])
            for at in range(0, len(ids), WATCHED_AT_ONCE)
        ):
            return False
        until = monotonic_s() + 1.0
        while (left := until - monotonic_s()) > 0:
            if "watching" in self._hear(left):
                return len(ids) <= WATCHED_AT_ONCE
        return False

    def _refuse_never(self, spec: dict[str, Any]) -> None:
        ruling, text = never.ruling(spec, peek.facts(self.paths) or {})
        if ruling:
            kind = AcceleratorAbsent if ruling == "no_device" else Refused
            raise kind(
                f"{ruling}: {text}; nothing was queued (schedq providers show {spec['slug']} has what it declares)"
            )


def _assignments(params: dict[str, Any] | Sequence[str]) -> list[str]:
    if not isinstance(params, dict):
        return list(params)
    import json

    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in params.items()]


def _read(source: Input) -> tuple[bytes, str, str | None]:
    from scheduler import request

    if isinstance(source, str):
        return request.read(source)
    if isinstance(source, bytes):
        return source, "input", None
    import json

    return json.dumps(source).encode(), GIVEN, None


def _of_input(error: SchedqError) -> SchedqError:
    """The same refusal of an input that came as a value and has no file's name."""
    return type(error)(str(error).replace(GIVEN, "the input"))


def _of_params(error: UsageError) -> UsageError:
    """The same refusal of parameters that came as a dict and not as words of a command line."""
    return type(error)(str(error).replace("--param ", "params: ").replace("with --param", "to params"))


def _all_of(faults: list[tuple[str, SchedqError]], count: int) -> SchedqError:
    if count == 1:
        return faults[0][1]
    lines = [f"{len(faults)} of {count} inputs cannot be queued, so none was:"]
    lines += [f"  {error}" if source in str(error) else f"  {source}: {error}" for source, error in faults]
    kind = UsageError if any(isinstance(error, UsageError) for _source, error in faults) else type(faults[0][1])
    return kind("\n".join(lines))


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
        wrote = os.path.exists(log) and os.path.getsize(log) > 0
        message += (
            f"; schedq log {job['id']} has what its worker wrote"
            if wrote
            else f"; its worker wrote nothing, schedq show {job['id']} has the rest"
        )
    if kind == "refused":
        return Refused(message)
    return AcceleratorAbsent(message) if kind == "no_accelerator" else JobFailed(message)
