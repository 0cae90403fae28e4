"""Which attempt each worker is on, and what became of it: stored replies made into events for the loop.

A reply with outputs is collected on a thread of its own, since publishing syncs files; the worker's end then waits
for it, so that the loop never hears of a death before the answer that came first. Only the attempt that was handed
in can be collected: a stale reply publishes nothing (P2).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.host import collect, environments, publishing
from scheduler.host.workers.orders import Stored
from scheduler.host.workers.records import lay_mark
from scheduler.model.host import Failed, Gone, HostEvent, Nudged, Replied, Task
from scheduler.model.outcome import Outcome

log = logging.getLogger("schedq")

Spec = dict[str, Any]


AT_ONCE_S = 1.0
"""What was stored less long ago was heard of at once."""


class Collector:
    """`take`, `heard` and `gone` may be called from different threads; `emit` puts an event before the loop."""

    def __init__(
        self,
        paths: Paths,
        spec_of: Callable[[str, str], Spec | None],
        emit: Callable[[HostEvent], None],
        umask: int = 0o077,
        queue_id: str = "",
    ) -> None:
        self.paths, self.spec_of, self.emit, self.umask = paths, spec_of, emit, umask
        self.queue_id = queue_id
        self._lock = threading.Lock()
        self._tasks: dict[int, Task] = {}
        self._silent: dict[int, Stored] = {}
        self._ended: set[int] = set()
        self._busy: dict[int, Future[None]] = {}
        self._laid: dict[int, tuple[int, str]] = {}
        self._packages: dict[str, dict[str, str]] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="schedq-collect")

    def take(self, task: Task) -> None:
        """This attempt is what its worker is on now. Noted on disk too, so that a crash leaves nothing of it behind."""
        mark = lay_mark(self.paths.worker(task.worker_id), task.job_id, task.attempt)
        with self._lock:
            self._tasks[task.worker_id] = task
            self._laid[task.job_id] = (task.attempt, mark)

    def heard(self, stored: Stored) -> None:
        """A reply is there: collect it, now or beside; one that was heard of before, or of another attempt, is not."""
        task = self._taken(stored)
        if task is None:
            self.emit(Nudged())
        elif self._takes_long(task):
            future = self._pool.submit(lambda: self.emit(self._collected(stored, task)))
            self._busy[stored.worker_id] = future
        else:
            self.emit(self._collected(stored, task))

    def _taken(self, stored: Stored) -> Task | None:
        """The attempt that this reply is of, once: nobody else collects it."""
        with self._lock:
            task = self._tasks.get(stored.worker_id)
            if task is None or (task.job_id, task.attempt) != (stored.job_id, stored.attempt):
                return None
            return self._tasks.pop(stored.worker_id)

    def _takes_long(self, task: Task) -> bool:
        place = attempts.desk(self.paths, task.job_id, task.attempt, task.input_name)
        return bool(task.out) or publishing.has_outputs(place.out_dir)

    def silent(self, stored: Stored) -> None:
        """A worker closed its connection without a reply: its end says why, or that it does not end."""
        self._silent[stored.worker_id] = stored

    def end_silent(self, stored: Stored) -> bool:
        """Whether that worker still lives, and is to be ended as one that does not answer."""
        if self._silent.get(stored.worker_id) is not stored:
            return False
        self._ended.add(stored.worker_id)
        return True

    def gone(self, event: Gone | Failed, then: Callable[[], None] = lambda: None) -> None:
        """Nothing of a worker lives: said once its last answer was collected. `then` is called afterwards.

        Said more than once (it was to be stopped and is gone), each of them waits.
        """
        silent = self._silent.pop(event.worker_id, None)
        outside = isinstance(event, Gone) and event.outside
        if silent is not None and (event.worker_id in self._ended or silent.untaken or outside):
            task = self._taken(silent)
            self.emit(Nudged() if task is None else self._collected(silent, task))
        self._ended.discard(event.worker_id)

        def say(_: Future[None] | None = None) -> None:
            with self._lock:
                self._tasks.pop(event.worker_id, None)
            self.emit(event)
            then()

        waiting = self._busy.get(event.worker_id)
        if waiting is None or waiting.done():
            self._busy.pop(event.worker_id, None)
            say()
        else:
            waiting.add_done_callback(say)

    def done(self, job_id: int) -> None:
        """The attempt of this job is over in the queue, however it ended: what lay on disk for it may go."""
        with self._lock:
            attempt, mark = self._laid.pop(job_id, (0, ""))
        if attempt:
            attempts.clear(self.paths, job_id, attempt, mark)

    def close(self) -> None:
        """Finish what is being collected, take nothing more."""
        self._pool.shutdown(wait=True)

    def _collected(self, stored: Stored, task: Task) -> HostEvent:
        """What a stored reply means for the loop; whatever goes wrong in finding that out, an answer comes."""
        try:
            return self._replied(stored, task)
        except Exception as error:
            log.exception("the reply of job %d could not be collected", stored.job_id)
            text = collect.clean(f"its reply could not be collected: {type(error).__name__}: {error}")
            return Replied(stored.worker_id, stored.job_id, stored.attempt, Outcome("no_reply", text))

    def _replied(self, stored: Stored, task: Task) -> HostEvent:
        spec = self.spec_of(task.slug, task.variant)
        if spec is None:  # its manifest is gone by now: what was answered is an answer all the same
            spec = {"mode": "", "outputs": [], "environment": None, "revision": ""}
        ago_s = _ago_s(stored.reply_path)
        facts = self._job_facts(task, spec, ago_s)
        unstored = stored.error if stored.no_reply else ""
        got = collect.collect(self.paths, spec, task, facts, self.umask, unstored)
        return Replied(
            stored.worker_id, task.job_id, task.attempt, got.outcome, got.reply, got.destination, got.exiting,
            facts["versions"], ago_s, got.untaken,
        )  # fmt: skip

    def _job_facts(self, task: Task, spec: Spec, ago_s: float) -> dict[str, Any]:
        return {
            "queue_id": self.queue_id,
            "job": task.job_id,
            "name": task.name,
            "slug": task.slug,
            "variant": task.variant,
            "user": task.user,
            "batch": task.batch,
            "attempt": task.attempt,
            "params": task.params,
            "seed": task.params.get("seed"),
            "input_name": task.input_name,
            "input_sha256": task.input_sha256,
            "revision": spec["revision"],
            "environment": environments.identity(spec) or None,
            "devices": task.device.split(",") if task.device else [],
            "driver": task.driver or None,
            "versions": self._versions(spec),
            "host": os.uname().nodename,
            "ended_at": stamp(now_s() - ago_s),
        }

    def _versions(self, spec: Spec) -> dict[str, str]:
        """What the environment holds; an environment that cannot be read costs that knowledge, not the answer."""
        try:
            key = environments.identity(spec)
            if key not in self._packages:
                self._packages[key] = environments.versions(spec) if key else {}
            return self._packages[key]
        except Exception:
            log.exception("what the environment of %s holds cannot be read", spec.get("slug"))
            return {}


def _ago_s(path: str) -> float:
    """How long ago a reply was stored, by its file's time; 0 where it is heard of at once, or that cannot be told."""
    try:
        ago_s = now_s() - os.stat(path).st_mtime
    except OSError:
        return 0.0
    return ago_s if ago_s >= AT_ONCE_S else 0.0
