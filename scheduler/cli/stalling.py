"""What a `wait` says, once, of jobs that nothing moves by itself: what they wait for, and what lets them go on."""

from __future__ import annotations

from scheduler.clock import monotonic_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.config import Paths

LOOK_S = 5.0
"""How often it is looked whether anything stands still."""

REMEDIES = {
    "held": "schedq release {ids}",
    "begin": "schedq update {ids} --begin now",
    "scheduler_down": "schedq up",
    "paused": "schedq queue resume",
}
"""What lets jobs go on where their reason does not say it itself."""


class Stalls:
    """What was said so far about the jobs of one call."""

    def __init__(self, paths: Paths, tell: Callable[[str], None]) -> None:
        self._paths, self._tell = paths, tell
        self._said: set[str] = set()
        self._due_s = float("-inf")

    def look(self, ids: Iterable[int]) -> None:
        """Say what was not said yet. Looks every LOOK_S at most."""
        at_s = monotonic_s()
        if at_s < self._due_s:
            return
        self._due_s = at_s + LOOK_S
        from scheduler.store.stalls import stalls

        for each in stalls(self._paths, ids):
            told = sentence(each["ids"], each["ruling"], each["text"])
            key = each["ruling"] if each["ruling"] in ("breaker", "disk") else told
            if key not in self._said:
                self._said.add(key)
                self._tell(told)


def sentence(ids: list[int], ruling: str, text: str) -> str:
    """`waiting for jobs 3-9: held by its operator; schedq release 3-9`."""
    from scheduler.cli.jobpages import spans
    from scheduler.cli.stamps import locally

    named = spans(ids)
    remedy = REMEDIES.get(ruling, "").format(ids=named.replace(", ", ","))
    more = f"; {remedy}" if remedy and " ".join(remedy.split()[:2]) not in text else ""
    return f"waiting for {'job' if len(ids) == 1 else 'jobs'} {named}: {locally(text)}{more}"
