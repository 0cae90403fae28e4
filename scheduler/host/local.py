"""LocalHost: this machine behind the `Host` protocol.

It joins what lies below: the catalog of manifests, the environments, the readings, the keepers. It decides
nothing about order or room; the loop does, and is told what happened through `poll`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from scheduler.clock import monotonic_s
from scheduler.config import Paths, Settings
from scheduler.errors import Displaced, SchedqError
from scheduler.host import attempt as attempts
from scheduler.host import environs
from scheduler.host.callers import Callers
from scheduler.host.collector import Collector
from scheduler.host.commands import Commands
from scheduler.host.doorbell import Doorbell
from scheduler.host.launching import launched
from scheduler.host.machine.facts import facts as machine_facts
from scheduler.host.machine.sampler import Sampler
from scheduler.host.returns import Returns
from scheduler.host.served import Served, Spec
from scheduler.host.turn import Turn
from scheduler.host.watching import Watching
from scheduler.host.workers import environment
from scheduler.host.workers.devices import contradiction
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.records import laid, sweep
from scheduler.host.workers.roster import Roster
from scheduler.model import host as seam
from scheduler.model.command import EXEC, is_kept_by_caller
from scheduler.model.host import Adopt, Answered, Asked, Failed, Gone, HostEvent, Loose, Park, Replied, Seen, Task
from scheduler.model.machine import Machine, Pool
from scheduler.model.outcome import Outcome
from scheduler.model.provider import Provider

SILENCE_S = 1.0
"""How long the exit status of a worker that closed its connection may take to be seen, before it is ended."""


class LocalHost:
    """All that must run on this machine, for one queue."""

    def __init__(
        self, paths: Paths, settings: Settings, *, queue_id: str, host_id: str, about: dict[str, Any],
        umask: int = 0o077, owned: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """`umask` is what the person who started the scheduler has: outputs that they asked for follow it.

        `owned` says whether the lock that the scheduler holds is still this queue's.
        """
        self.paths = paths
        self._owned = owned
        self.settings, self.queue_id = settings, queue_id
        self._inbox: queue.SimpleQueue[HostEvent] = queue.SimpleQueue()
        self._kinds: dict[int, Park | Adopt] = {}
        self._served = Served(paths)
        self._gate, self._closed = threading.Lock(), False
        self._recorded = environment.recorded()
        for folder in (paths.run, paths.workers, paths.jobs, paths.results):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self._roster = Roster(paths, queue_id, self._heard, umask)
        self._callers = Callers(self._roster, self.emit)
        self._log_max = int(settings.number("log_max_mib") * (1 << 20))
        self._commands = Commands(paths, self._roster, self._given, self._undone, self._log_max)
        self._returns = Returns(
            paths, queue_id, self.emit, self._roster.stop, leak_after_s=settings.seconds("leak_after"),
            margin_gib=settings.number("leak_margin_gib"),
        )  # fmt: skip
        self._sampler = Sampler(
            paths, settings, queue_id=queue_id, host_id=host_id, budget_of=self._served.budget_of,
            seen=self._returns.look, soon=self._returns.soon,
        )  # fmt: skip
        self.watch_disks = functools.partial(self._sampler.watch_disks, then=lambda: self.emit(seam.Nudged()))
        self._turn = Turn()
        self._watch = Watching(paths, settings, queue_id, self._sampler, self._roster.stop, self.emit, self._served)
        self._collector = Collector(paths, self._served.spec, self._watch.kills.tell, umask, queue_id)
        self.peaks, self.reclaim, self.charge = self._watch.guard.peaks, self._watch.reclaims, self._roster.charge
        self._left: list[tuple[str, int, int]] = []
        self._polled_at = monotonic_s()
        self._leaving = ""
        self.idles = False
        """Whether nothing is left to do, so that it goes unless something comes: who asks is told so."""
        self._doorbell = Doorbell(paths, self.emit, lambda: {**about, **self._now()}, owned)

    def open(self) -> None:
        """Clear what dead ones left, start listening, take the first readings."""
        self._left = laid(self.paths)
        sweep(self.paths, self.queue_id)
        self.providers()
        self._sampler.open()
        self._watch.open()
        self._doorbell.open()

    def close(self) -> None:
        """Let go of everything; keepers and their workers stay, and what was not sent yet is not sent."""
        with self._gate:
            self._closed = True
        self._doorbell.close()
        self._turn.close()
        self._watch.close()
        self._sampler.close()
        self._roster.close()
        self._collector.close()

    def vacate(self) -> None:
        """Take away the address that is ours, and touch nothing else: the queue is not here any more."""
        self._doorbell.close()

    def emit(self, event: HostEvent) -> None:
        """Put an event before the loop; callable from any thread and from a signal handler."""
        if isinstance(event, Asked):
            self._leaving = event.op
        else:
            self._watch.guard.heard(event)
        self._inbox.put(event)

    def _now(self) -> dict[str, Any]:
        """What changes of what is said of this scheduler: for how long its loop has not turned, and whether it goes."""
        leaving = self._leaving or ("idle" if self.idles else "")
        return {"quiet_s": monotonic_s() - self._polled_at, "leaving": leaving}

    def poll(self, timeout_s: float) -> list[HostEvent]:
        """Events since the last call, after waiting up to `timeout_s` for the first. Displaced if the queue is gone."""
        happened: list[HostEvent] = []
        self._polled_at = monotonic_s()
        try:
            happened.append(self._inbox.get(timeout=max(0.0, timeout_s)))
            while True:
                happened.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        if not self._owned():
            raise Displaced(f"{self.paths.home} was removed, or another queue stands there by now")
        return happened

    def machine(self) -> Machine:
        """The newest snapshot of readings."""
        return self._watch.seen()

    def facts(self, machine: Machine) -> dict[str, Any]:
        """The snapshot as `status` shows it."""
        return {**machine_facts(machine), **self._watch.facts()}

    def providers(self) -> dict[tuple[str, str], Provider]:
        """Every provider of the catalog, with whether it is installed; looked at anew once a second."""
        return self._served.providers()

    def park(self, order: Park) -> None:
        """Start a keeper with its charge in its argv, and nothing below it."""
        self._kinds[order.worker_id] = order
        self._watch.guard.parked(order)
        begin = self._roster.expect if is_kept_by_caller(order.slug, order.variant) else self._roster.park
        self._turn.take(order.worker_id, functools.partial(begin, order))

    def go(self, worker_id: int) -> None:
        """Start the model's process below its keeper, in the environment that is built for it."""
        self._turn.done(worker_id)
        kind = self._kinds.get(worker_id)
        if kind is None:
            return
        self._watch.loads(worker_id)
        if kind.slug == EXEC:
            self._commands.go(worker_id)
            return
        spec = self._served.spec(kind.slug, kind.variant)
        if spec is None:
            self.emit(Failed(worker_id, f"the manifest of {kind.slug} is gone; put it back, the job waits"))
            return
        try:
            self._roster.go(worker_id, self._launch(kind, spec))
        except (SchedqError, OSError) as error:
            self.emit(Failed(worker_id, str(error)))

    def _launch(self, order: Park | Adopt, spec: Spec) -> Launch:
        python = self._served.python_of(spec)
        missing = self._served.missing(spec)
        if missing:
            raise SchedqError(missing)
        charges = order.charges if isinstance(order, Park) else {}
        env = environment.built_env(
            spec, self._recorded, python=python, paths=self.paths, queue_id=self.queue_id,
            worker_id=order.worker_id, pools=self._given(order.device), charges=charges,
            host_gib=order.host_gib if isinstance(order, Park) else None,
        )  # fmt: skip
        return launched(spec, python, env, self._log_max)

    def _given(self, device: str) -> list[Pool]:
        """The pools whose devices a worker was given. SchedqError if one of them is not there any more."""
        machine, found = self._sampler.latest(), []
        for pool_id in filter(None, device.split(",")):
            pool = machine.pool(pool_id)
            if pool is None:
                raise SchedqError(f"it was to be started on {pool_id}, and that is not there any more")
            found.append(pool)
        return found

    def _agreed(self, event: Answered) -> HostEvent:
        """A worker's answer; or, if it sees other devices than it was given, that its start failed."""
        order = self._kinds.get(event.worker_id)
        with contextlib.suppress(SchedqError):
            wrong = contradiction(self._given(order.device), event.device) if order is not None else ""
            if wrong:
                return Failed(event.worker_id, wrong)
        return event

    def submit(self, task: Task) -> None:
        """Lay out the attempt's folders and send its request; off the loop's thread if a large file is read for it."""
        leaving = self._watch.computes(task.worker_id, task.charges)
        if leaving:
            self._undone(task, Outcome("interrupted", leaving, unsent=True))
            return
        if task.slug == EXEC:
            self._collector.take(task)
            self._commands.send(task, getattr(self._kinds.get(task.worker_id), "device", ""))
            return
        spec = self._served.spec(task.slug, task.variant)
        if spec is None:
            self._undone(task, Outcome("interrupted", f"the manifest of {task.slug} is gone"))
            return
        if task.input is None:
            text = f"the input that was stored for it (sha256 {task.input_sha256[:12]}) is not there any more"
            self._undone(task, Outcome("input_changed", f"{text}; submit it again"))
            return
        self._collector.take(task)
        if attempts.takes_long(task):
            begin = functools.partial(self._send, task, spec)
            threading.Thread(target=begin, name="schedq-files", daemon=True).start()
        else:
            self._send(task, spec)

    def _send(self, task: Task, spec: Spec) -> None:
        begun_s = monotonic_s()
        try:
            place = attempts.lay_out(self.paths, task, whole=spec["mode"] == "oneshot")
            if task.attempt > 1 and attempts.take_answer(self.paths, task, spec["revision"]):
                self._heard(Stored(task.worker_id, task.job_id, task.attempt, place.reply_path))
                return
            files, trouble = attempts.lay_files(self.paths, task, place)
            if trouble:
                self._undone(task, Outcome("input_changed", trouble))
                return
            message = attempts.message(task, place, files, monotonic_s() - begun_s)
            argv = None
            if spec["mode"] == "oneshot":
                argv = attempts.lay_command(spec, self._served.python_of(spec), task, place, message["request"])
        except OSError as error:
            text = f"the attempt's folders could not be made: {attempts.told(error)}"
            self._undone(task, attempts.outside(text))
            return
        except Exception as error:
            self._undone(
                task, Outcome("error", f"the request could not be put together: {type(error).__name__}: {error}")
            )
            return
        with self._gate:
            if not self._closed and task.worker_id in self._kinds:
                self._roster.send(
                    task.worker_id, task.job_id, task.attempt, message, reply_path=place.reply_path,
                    log_path=place.log_path, log_max=self._log_max, argv=argv, cwd=spec["folder"],
                    charges=task.charges,
                )  # fmt: skip

    def _undone(self, task: Task, outcome: Outcome) -> None:
        self.emit(Replied(task.worker_id, task.job_id, task.attempt, outcome))

    def stop(self, worker_id: int, grace_s: float, why: str) -> None:
        """Stop a worker's whole tree."""
        self._turn.done(worker_id)
        self._roster.stop(worker_id, grace_s, why)

    def adopt(self, rows: list[Adopt]) -> None:
        """Take over living workers; each answers for itself. What lies there of attempts that are over is cleared."""
        running = {(row.assignment.job_id, row.assignment.attempt) for row in rows if row.assignment}
        for mark, job_id, attempt in self._left:
            if (job_id, attempt) not in running:
                attempts.clear(self.paths, job_id, attempt, mark)
        self._left = []
        for row in rows:
            self._kinds[row.worker_id] = row
            self._watch.guard.adopted(row)
            if row.assignment is not None and row.assignment.task is not None:
                self._collector.take(row.assignment.task)
                self._commands.adopted(row.assignment.task)
            self._roster.adopt(row)

    def attend(self, callers: dict[int, dict[str, Any]]) -> None:
        """Watch who waits for these commands."""
        self._callers.attend(callers)

    def keep_environments(self, variants: set[str]) -> None:
        """Take away every stored environment but these commands'."""
        environs.keep_only(self.paths, variants)

    def watch_return(self, rows: list[Loose]) -> None:
        """Memory is back by what every snapshot says; a worker that lives without being known is ended."""
        self._returns.watch(rows)
        if rows:
            self._sampler.refresh(lambda: None)

    def tell(self, job_id: int, state: str) -> None:
        """Tell whoever waits for this job, and clear away what the queue has by now."""
        self._doorbell.tell(job_id, state)
        if state not in ("admitted", "running"):
            self._collector.done(job_id)
            self._commands.done(job_id, state)
            self._callers.done(job_id, state)

    def _heard(self, event: HostEvent | Stored) -> None:
        """On the roster's thread: make of what a keeper said what the loop understands."""
        if isinstance(event, Stored) and event.no_reply:
            self._collector.silent(event)
            self._roster.after(SILENCE_S, lambda: self._end_silent(event))
        elif isinstance(event, Stored):
            self._collector.heard(event)
        elif isinstance(event, Seen):
            self._sampler.refresh(lambda: self.emit(event))
        elif isinstance(event, Gone):
            self._kinds.pop(event.worker_id, None)
            self._turn.done(event.worker_id)
            self._collector.gone(event)
        elif isinstance(event, Failed) and not event.alive:
            self._turn.done(event.worker_id)
            self._collector.gone(event)
        elif isinstance(event, Answered):
            self.emit(self._agreed(event))
            self._sampler.refresh(lambda: None)  # what it holds after its load
        else:
            self.emit(event)

    def _end_silent(self, stored: Stored) -> None:
        """A worker that took a request, gave no reply and lives on: it is not asked again."""
        if self._collector.end_silent(stored):
            self._roster.stop(stored.worker_id, SILENCE_S, f"no reply: {stored.error}")
