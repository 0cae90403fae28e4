"""What became of the jobs of a provider or a case, as the columns of a table: those that there is something in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.night.report import Report, Tally


@dataclass(frozen=True)
class Count:
    """One column: its head, whether it is `good`, `bad` or `open`, and the words of a tally that count in it."""

    head: str
    kind: str
    words: tuple[str, ...]

    def of(self, tally: Tally) -> int:
        """How many of these jobs."""
        return sum(getattr(tally, word) for word in self.words)


GOOD = ("passed", "succeeded")
ALWAYS = (Count("failed", "bad", ("failed",)), Count("refused", "bad", ("refused",)))
CANCELLED = Count("cancelled", "bad", ("cancelled",))
RUNS = Count("runs", "open", ("running", "unjudged"))
WAITS = Count("waits", "open", ("waiting", "held"))


def counts(tallies: Iterable[Tally]) -> tuple[Count, ...]:
    """Good, failed, refused and waiting ones always; what was cancelled or is under way where there is any.

    What succeeded and is not checked yet is under way. The good are called `passed` where all of them are cases.
    """
    found = list(tallies)
    only_passed = any(each.passed for each in found) and not any(each.succeeded for each in found)
    some = (each for each in (CANCELLED, RUNS) if any(each.of(tally) for tally in found))
    return Count("passed" if only_passed else "good", "good", GOOD), *ALWAYS, *some, WAITS


def of_providers(report: Report) -> tuple[Count, ...]:
    """The columns of a table of providers."""
    return counts(each.tally for each in report.providers)


def of_cases(report: Report) -> tuple[Count, ...]:
    """The columns of a table of validation cases."""
    return counts(case.tally for each in report.providers for case in each.cases)
