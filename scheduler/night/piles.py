"""One provider's jobs on a pile while a report is gathered: counts, times, reasons. Written for 100,000 jobs."""

from __future__ import annotations

from typing import Any

from scheduler.night.measured import times
from scheduler.night.report import GOOD, OPEN, Case, Job, Tally, Why
from scheduler.night.words import alike, clean, same_reason

MOST_WHYS = 50
"""Different reasons of one provider; what comes after them is one more."""

OTHER = "other reasons"
NO_REASON = {"cancelled": "cancelled", "refused": "refused", "failed": "it failed, and nothing was said of why"}
NAME = 120

Key = tuple[str, str, str]


class _Counted:
    """What became of some jobs, and why."""

    __slots__ = ("counts", "reasons", "runs_s")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.reasons: dict[Key, list[Any]] = {}
        self.runs_s: list[float] = []

    def add(self, word: str, key: Key | None, text: str, job_id: int, name: str) -> None:
        self.counts[word] = self.counts.get(word, 0) + 1
        if key is None:
            return
        if key not in self.reasons and len(self.reasons) >= MOST_WHYS:
            key, text = (word, "", OTHER), OTHER
        found = self.reasons.get(key)
        if found is None:
            self.reasons[key] = [1, text, job_id, name]
        else:
            found[0] += 1

    def tally(self) -> Tally:
        return Tally(**self.counts)

    def whys(self) -> tuple[Why, ...]:
        """The reasons, the most frequent first."""
        found = [
            Why(word, kind, text, count, job_id, clean(name, NAME))
            for (word, kind, _), (count, text, job_id, name) in self.reasons.items()
        ]
        return tuple(sorted(found, key=lambda why: (why.became == "cancelled", -why.count, why.first_id)))


class Pile:
    """What is known of one provider's jobs so far."""

    def __init__(self, slug: str, variant: str) -> None:
        self.slug, self.variant = slug, variant
        self.jobs: list[Job] = []
        self.queued_s: list[float] = []
        self.loads_s: list[float] = []
        self.ran: list[tuple[float, float]] = []
        self.failures: list[float] = []
        self.waiting: dict[tuple[str, str, Any], list[Any]] = {}
        self.waited: list[tuple[float, float]] = []
        self.cold = self.warm = self.retries = 0
        self.begin_s, self.end_s = float("inf"), float("-inf")
        self._all = _Counted()
        self._cases: dict[str, _Counted] = {}

    def job(
        self, job_id: int, name: str, case: str | None, word: str, kind: str, text: str, ran_s: float | None,
        *, pruned: bool = False, timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        """One job: what became of it, and how long its last attempt ran. For the others see `report.Job`."""
        key = None
        if word in NO_REASON:
            text = clean(text) or (clean(kind.replace("_", " ")) if kind else NO_REASON[word])
            key = (word, kind, alike(text) if kind == "check" else same_reason(text, name))
        self._all.add(word, key, text, job_id, case or name)
        if ran_s is not None and word in GOOD:
            self._all.runs_s.append(ran_s)
        if case is not None:
            counted = self._cases.get(case)
            if counted is None:
                counted = self._cases[case] = _Counted()
            counted.add(word, key, text, job_id, case)
            if ran_s is not None and word in GOOD:
                counted.runs_s.append(ran_s)
        self.jobs.append(Job(job_id, name, case or "", word, kind, text if key else "", ran_s, pruned, timeout_s))

    def attempts(self, rows: list[tuple[Any, ...]], at_s: float, *, bad: bool, live: bool) -> float | None:
        """Count a job's attempts; how long the last one ran, None if its request was not sent. `live`: it runs yet."""
        ran_s = None
        for row in rows:
            warm, sent_s, ended_s = row[15], row[17], row[18]
            if sent_s is None:
                continue
            if warm:
                self.warm += 1
            else:
                self.cold += 1
                if row[16] is not None:
                    self.loads_s.append(row[16])
            until_s = ended_s if ended_s is not None else at_s if live else sent_s
            ran_s = until_s - sent_s if until_s > sent_s else 0.0
            self.ran.append((sent_s, until_s))
            if until_s > self.end_s:
                self.end_s = until_s
        self.retries += rows[0][20]
        if bad:
            ended_s = rows[-1][18] if rows[-1][18] is not None else rows[0][10]
            if ended_s is not None:
                self.failures.append(ended_s)
        return ran_s

    def seen(self, submitted_s: float, ended_s: float | None) -> None:
        """A job was there then."""
        if submitted_s < self.begin_s:
            self.begin_s = submitted_s
        if ended_s is not None and ended_s > self.end_s:
            self.end_s = ended_s

    def waits(self, key: tuple[str, str, Any], job_id: int, name: str) -> None:
        """One that waits, with others of its kind."""
        found = self.waiting.get(key)
        if found is None:
            self.waiting[key] = [1, job_id, clean(name, NAME)]
        else:
            found[0] += 1

    def first_waiting(self) -> list[int]:
        """The first job of each kind that waits."""
        return [found[1] for found in list(self.waiting.values())[:MOST_WHYS]]

    @property
    def open(self) -> int:
        """How many have not ended."""
        return sum(self._all.counts.get(word, 0) for word in OPEN)

    @property
    def tally(self) -> Tally:
        """How many became what."""
        return self._all.tally()

    @property
    def runs_s(self) -> list[float]:
        """How long each job that passed or succeeded ran, in its last attempt: what fails may do so at once."""
        return self._all.runs_s

    def whys(self) -> tuple[Why, ...]:
        """Why those that failed did, were refused or cancelled."""
        return self._all.whys()

    def cases(self) -> tuple[Case, ...]:
        """Its validation cases, in the order in which they were queued."""
        return tuple(
            Case(clean(name, NAME), each.tally(), times(each.runs_s), each.whys()) for name, each in self._cases.items()
        )

    def lane(self, begin_s: float, end_s: float, steps: int) -> tuple[float, ...]:
        """How many attempts ran on average in each step of the time."""
        found = [0.0] * steps
        width_s = (end_s - begin_s) / steps
        for sent_s, until_s in self.ran:
            since_s, until_s = max(sent_s, begin_s), min(until_s, end_s)
            if until_s < since_s:
                continue
            first = min(steps - 1, int((since_s - begin_s) / width_s))
            last = min(steps - 1, int((until_s - begin_s) / width_s))
            if first == last:
                found[first] += until_s - since_s
                continue
            found[first] += begin_s + (first + 1) * width_s - since_s
            for step in range(first + 1, last):
                found[step] += width_s
            found[last] += until_s - begin_s - last * width_s
        return tuple(round(each / width_s, 3) for each in found)

    def failed_at(self, begin_s: float, end_s: float, steps: int) -> tuple[int, ...]:
        """How many jobs failed in each step of the time."""
        found = [0] * steps
        for at_s in self.failures:
            if begin_s <= at_s <= end_s:
                found[min(steps - 1, int((at_s - begin_s) / (end_s - begin_s) * steps))] += 1
        return tuple(found)
