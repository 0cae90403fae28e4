"""`wait`: until jobs have ended. On a terminal a line tells how far they are; everywhere else only what ended badly."""

from __future__ import annotations

from scheduler.cli import ids as names
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.cli.joblines import at_a_glance, bar, drawn, provider
from scheduler.cli.stalling import Stalls
from scheduler.client import Client, ending
from scheduler.clock import monotonic_s
from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from scheduler.config import Paths

TICK_S, DRAW_S, LOOK_S, AGAIN_S = 1.0, 0.5, 10.0, 1.0
"""How often the line is drawn, how often at most, how often it is looked up how long it takes still, and how soon
after a job has ended.
"""

ALIKE = 3
"""So many jobs of a provider that ended alike are told one by one; of more only how many there are."""

BAR, LEAST_BAR, BESIDE = 22, 8, 54
"""Columns of the bar, of the narrowest one, and of what stands beside it."""


def wait(call: Call) -> int:
    """Wait until all have ended: 0 if all succeeded, 1 if one did not.

    124 when the time is over, 6 when no scheduler runs that could end them.
    """
    client = _Watching()
    timeout_s = call.duration_s("timeout")
    chosen = names.needed(call, client.paths)
    if not chosen:
        say.note("no job matches; there is nothing to wait for")
    line = client.line = _Line(client.paths, chosen)
    states, bad = dict[int, str](), _Bad(line.tell)
    try:
        for job_id, state in client.ended(chosen, timeout_s):
            states[job_id] = state
            line.count(job_id, state)
            if state != "succeeded" and not call.flag("json"):
                bad.add(client.status(job_id))
    except KeyboardInterrupt:
        line.tell(line.left())
        raise
    finally:
        line.ticker.clear()
        bad.sum()
    if call.flag("json"):
        rows = [{"id": job_id, "state": states[job_id]} for job_id in chosen]
        say.out(say.document({"schema_version": 1, "jobs": rows}))
    elif line.ticker.on and len(chosen) > 1:
        say.note(line.sum())
    return 0 if all(state == "succeeded" for state in states.values()) else 1


class _Watching(Client):
    """A client that draws a line while it waits to be told of jobs."""

    line: _Line | None = None

    def _hear(self, timeout_s: float) -> dict[str, Any]:
        if self.line is None:
            return super()._hear(timeout_s)
        self.line.look()
        if not self.line.ticker.on:
            return super()._hear(timeout_s)
        self.line.show()
        return super()._hear(min(timeout_s, TICK_S))


class _Bad:
    """The jobs that did not succeed: the first of a kind one by one, the others counted."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._alike: dict[tuple[str, str, str], list[int]] = {}

    def add(self, job: dict[str, Any]) -> None:
        """One more; it is told in a line of a terminal, whole where nobody looks."""
        kind = str((job.get("outcome") or {}).get("kind"))
        alike = self._alike.setdefault((provider(job), job["state"], kind), [])
        alike.append(job["id"])
        if len(alike) > ALIKE:
            return
        before, after = f"job {job['id']} ", f"; schedq show {job['id']}"
        how = ending(job)
        if say.is_terminal(2):
            how = say.cut(how, max(20, say.columns(2) - len(before) - len(after)))
        self._tell(before + how + after)

    def sum(self) -> None:
        """How many more there were of each kind that was not told to its end."""
        from scheduler.cli.jobpages import spans

        for (of, state, kind), ids in self._alike.items():
            more = ids[ALIKE:]
            word = kind if kind == "refused" else state.replace("_", " ")
            if more:
                jobs = "job" if len(more) == 1 else "jobs"
                self._tell(f"and {len(more)} more of {of} {word} ({kind}): {jobs} {spans(sorted(more))}")


class _Line:
    """How far many jobs are, in a line on a terminal."""

    def __init__(self, paths: Paths, ids: list[int]) -> None:
        from scheduler.cli.ticker import Ticker

        self.ticker = Ticker()
        self._paths, self._total, self._open, self._bad = paths, len(ids), set(ids), 0
        self._since_s, self._drawn_s, self._looked_s = monotonic_s(), float("-inf"), float("-inf")
        self._ends_in_s: float | None = None
        self._due_s = float("-inf")
        self._ended: list[int] = []
        self._stalls = Stalls(paths, self.tell)

    def tell(self, text: str) -> None:
        """Something above this line, wrapped at blanks where it is wider than the terminal."""
        self.ticker.clear()
        say.note("\n".join(say.wrap(text, "", say.columns(2))) if say.is_terminal(2) else text)

    def look(self) -> None:
        """Say what is in the way of jobs that nothing moves by itself."""
        self._stalls.look(sorted(self._open))

    def left(self) -> str:
        """What is said when somebody stops waiting."""
        from scheduler.cli.jobpages import spans

        named = spans(sorted(self._open))
        jobs, go, them = ("job", "goes", "it") if len(self._open) == 1 else ("jobs", "go", "them")
        return f"{jobs} {named} {go} on; schedq cancel {named.replace(', ', ',')} ends {them}"

    def count(self, job_id: int, state: str) -> None:
        """One more has ended."""
        self._open.discard(job_id)
        self._ended.append(job_id)
        self._due_s = min(self._due_s, monotonic_s() + AGAIN_S)
        self._bad += state != "succeeded"

    def show(self) -> None:
        """Draw it, unless that was done just now."""
        at_s = monotonic_s()
        if at_s - self._drawn_s < DRAW_S:
            return
        self._drawn_s = at_s
        self.ticker.show(self._of_one() if self._total == 1 else self._told(at_s))

    def _of_one(self) -> str:
        job = peek.job(self._paths, next(iter(self._open)))
        return "  ".join(filter(None, (drawn(job, LEAST_BAR), at_a_glance(job))))

    def _told(self, at_s: float) -> str:
        if at_s >= self._due_s:
            from scheduler.store import whole_batch

            self._due_s = at_s + LOOK_S
            self._ends_in_s, self._looked_s = whole_batch.ends_in_s(self._paths, self._open, self._ended), at_s
        ended = self._total - len(self._open)
        columns = max(LEAST_BAR, min(BAR, say.columns(2) - BESIDE))
        words = [f"{bar(ended, self._total, columns)}  {ended}/{self._total}"]
        words += [f"{self._bad} did not succeed"] * bool(self._bad)
        if self._ends_in_s is not None:
            left_s = self._ends_in_s - (at_s - self._looked_s)
            words += [f"about {say.span(left_s)} left"] if left_s >= 1 else []
        return ", ".join(words)

    def sum(self) -> str:
        """What came of all of them."""
        took = say.span(monotonic_s() - self._since_s)
        good = self._total - len(self._open) - self._bad
        told = f"{good} of {say.counted(self._total, 'job')} succeeded"
        return told + (f", {self._bad} did not" if self._bad else "") + f"; waited {took}"
