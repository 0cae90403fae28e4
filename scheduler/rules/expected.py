"""How long things are expected to take: learned means where there are any, else what is usual on this machine.

All in seconds. A prediction never admits anything; it only says in which order to try (ORDER of starts).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from scheduler.model.command import EXEC
from scheduler.model.plan import Snapshot, Waiting, WorkerView

Key = tuple[str, str]

UNKNOWN_LOAD_S = 60.0
"""What loading is taken to last while no provider has been seen to load: about what a held worker saves (E1)."""

UNKNOWN_RUN_S = 30.0
"""What a job is taken to last while none has ended."""

LEAST_LEFT = 0.1
"""Of what a load or a run usually takes, this much is always still to come: it may be longer than usual."""


class Expected:
    """The learned times of a snapshot's providers, and what follows from them for its workers and waiting jobs."""

    def __init__(self, snapshot: Snapshot) -> None:
        providers = [provider for provider in snapshot.providers.values() if provider.slug != EXEC]
        self._providers = snapshot.providers
        self._usual_load_s = _mean((p.load_s for p in providers), UNKNOWN_LOAD_S)
        self._usual_run_s = _mean((p.run_s for p in providers), UNKNOWN_RUN_S)
        self._serving = Counter((w.slug, w.variant) for w in snapshot.workers if w.state != "retiring")

    def load_s(self, key: Key) -> float:
        """From a start to the first answer."""
        provider = self._providers.get(key)
        return self._usual_load_s if provider is None or provider.load_s is None else provider.load_s

    def run_s(self, key: Key) -> float:
        """From a request to its reply."""
        provider = self._providers.get(key)
        return self._usual_run_s if provider is None or provider.run_s is None else provider.run_s

    def knows_load(self, key: Key) -> bool:
        """Whether it was seen here how long loading takes; a command loads nothing."""
        provider = self._providers.get(key)
        return key[0] == EXEC or (provider is not None and provider.load_s is not None)

    def knows_run(self, key: Key) -> bool:
        """Whether it was seen here how long a job takes; of a command nobody can tell."""
        provider = self._providers.get(key)
        return key[0] != EXEC and provider is not None and provider.run_s is not None

    def knows_whole(self, key: Key) -> bool:
        """Whether both were seen."""
        return self.knows_load(key) and self.knows_run(key)

    def knows_rest(self, worker: WorkerView, *, works: bool) -> bool:
        """Whether `rest_s` rests on what was seen; `works`: its jobs after this moment count too."""
        key = (worker.slug, worker.variant)
        loads, runs = worker.state in ("parked", "starting"), works or worker.job_id is not None
        return (not loads or self.knows_load(key)) and (not runs or self.knows_run(key))

    def work_s(self, waiting: Waiting | None) -> float:
        """All waiting jobs of a provider, one after the other on each of its workers."""
        if waiting is None:
            return 0.0
        key = (waiting.slug, waiting.variant)
        return waiting.count * self.run_s(key) / max(1, self._serving[key])

    def rest_s(self, worker: WorkerView) -> float:
        """Until what this worker is at now is done: its load, the job that is bound to it."""
        key = (worker.slug, worker.variant)
        rest_s = 0.0
        if worker.state in ("parked", "starting"):
            rest_s = _left(self.load_s(key), worker.state_s)
        if worker.state == "busy":
            return _left(self.run_s(key), worker.state_s)
        return rest_s + (self.run_s(key) if worker.job_id is not None else 0.0)

    def reload_cost(self, key: Key, waiting: int) -> float:
        """What evicting a worker is expected to cost: its load, as often as it is asked for."""
        provider = self._providers.get(key)
        asked = (provider.served if provider is not None else 0) + waiting
        return self.load_s(key) * max(1, asked)


def _left(mean_s: float, elapsed_s: float) -> float:
    return max(mean_s - elapsed_s, LEAST_LEFT * mean_s)


def _mean(values: Iterable[float | None], otherwise: float) -> float:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else otherwise
