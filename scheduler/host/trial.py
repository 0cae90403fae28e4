"""One worker in the foreground, without a queue: started, asked once and ended, as a scheduler would do all three.

It has a keeper of its own in a folder of its own, both gone when this is over or who runs it is killed. What it writes
is passed on as it comes. Memory is looked at ten times a second, as for `measure`.
"""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.host import collect
from scheduler.host.launching import launched
from scheduler.host.machine.host_use import HostUse
from scheduler.host.machine.processes import Process
from scheduler.host.workers import environment, regular, tree
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.roster import Roster
from scheduler.host.workers.tried import FOLDER, QUEUE
from scheduler.model.host import Alive, Answered, Failed, Gone, HostEvent, Park, Progressed, Replied, Shown, Task
from scheduler.model.machine import Pool
from scheduler.model.outcome import Outcome
from scheduler.rules.deaths import death, end_of

WORKER, JOB, ATTEMPT = 1, 1, 1
TURN_S, SILENCE_S, SLACK_S = 0.1, 1.0, 20.0
LOG_MAX = 64 << 20
LONGEST_HOME = 60
"""Characters of a temporary folder that sockets still fit below."""

STARTING, ASKED, ENDING = "starting", "asked", "ending"


@dataclass
class Tried:
    """What came of it. Times in seconds, None = it did not come to that; memory in GiB, None = nothing was seen.

    `stage` is where it was when its outcome came: starting, or asked. `killed`: it did not leave within the `grace_s`
    seconds that it had when it was told to. There may be a reply without success: its outputs found no place then.
    """

    outcome: Outcome
    stage: str = STARTING
    reply: bytes | None = None
    destination: str = ""
    argv: list[str] = field(default_factory=list)
    load_s: float | None = None
    answer_s: float | None = None
    host_gib: float | None = None
    device_gib: float | None = None
    killed: bool = False
    grace_s: float = 0.0
    outputs: list[tuple[str, int]] = field(default_factory=list)
    """Its files, by their path in its folder of outputs, and their bytes."""


class Trial:
    """One attempt of one provider. `task` is what a scheduler would send, `pools` those whose devices it is shown.

    `charges` is what it declares, by pool, for all to see; `device_use` says what it holds of devices now. `log` gets
    what it writes, `say` what is worth saying meanwhile.
    """

    def __init__(
        self, spec: dict[str, Any], task: Task, python: str, *, pools: list[Pool], charges: dict[str, float],
        umask: int, log: Callable[[bytes], object], say: Callable[[str], object],
        device_use: Callable[[str], float | None] = lambda _: None, timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.python, self.pools, self.charges = spec, python, pools, charges
        self.umask, self.log, self.say, self.device_use = umask, log, say, device_use
        self.task = replace(task, worker_id=WORKER, job_id=JOB, attempt=ATTEMPT)
        self.stops = 0
        """How often it was asked to stop, from a signal's handler: once, and it ends in order; twice, at once."""
        self.told = Tried(Outcome("interrupted", "it was stopped"))
        self.until = None if timeout_s is None else monotonic_s() + timeout_s
        self.timeout_s = timeout_s
        self._inbox: queue.SimpleQueue[HostEvent | Stored] = queue.SimpleQueue()
        self._stage, self._since_s, self._sign_s, self._keeper = STARTING, monotonic_s(), monotonic_s(), 0
        self._use, self._device_at, self._heeded, self._silent = HostUse(), 0.0, 0, 0.0
        self._said_at, self._stored, self._over = monotonic_s() + 15.0, "", False

    def run(self) -> Tried:
        """Start it, ask it, end it. SchedqError or OSError if it cannot even be begun."""
        where = tempfile.gettempdir()
        home = tempfile.mkdtemp(prefix=FOLDER, dir=where if len(where) < LONGEST_HOME else "/tmp")  # noqa: S108
        self.paths = Paths(home)
        self.paths.secrets = Paths().secrets
        self.queue_id = QUEUE + os.path.basename(home).removeprefix(FOLDER)
        log = _Log(os.path.join(self.paths.worker(WORKER), "log"), self.log)
        roster = self.roster = Roster(self.paths, self.queue_id, self._inbox.put, self.umask)
        try:
            for folder in (self.paths.run, self.paths.worker(WORKER)):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            launch = self._launch()
            self.told.argv = [] if self.spec["mode"] == "oneshot" else launch.argv
            spec = self.spec
            roster.park(Park(
                WORKER, spec["slug"], spec["variant"], spec["revision"], spec["mode"], self.charges, {},
                ",".join(pool.id for pool in self.pools), spec["ram_gib"],
            ))  # fmt: skip
            while not self._over:
                self._turn(launch)
                log.pump()
            log.pump()
        finally:
            roster.close()
            log.close()
            shutil.rmtree(home, ignore_errors=True)
        return self.told

    def _launch(self) -> Launch:
        env = environment.built_env(
            self.spec, environment.recorded(), python=self.python, paths=self.paths, queue_id=self.queue_id,
            worker_id=WORKER, pools=self.pools, charges=self.charges, host_gib=self.spec["ram_gib"],
        )  # fmt: skip
        return launched(self.spec, self.python, env, LOG_MAX)

    def _turn(self, launch: Launch) -> None:
        try:
            self._hear(self._inbox.get(timeout=TURN_S), launch)
            while True:
                self._hear(self._inbox.get_nowait(), launch)
        except queue.Empty:
            pass
        self._sample()
        self._look_at_the_clock()

    # What happens

    def _hear(self, event: HostEvent | Stored, launch: Launch) -> None:
        match event:
            case Shown():
                self._keeper, self._since_s, self._sign_s = event.keeper_pid, monotonic_s(), monotonic_s()
                self.roster.go(WORKER, launch)
            case Alive():
                self._sign_s = monotonic_s()
            case Answered() if self._stage == STARTING:
                self.told.load_s = monotonic_s() - self._since_s
                self._ask()
            case Progressed():
                self._sign_s = monotonic_s()
            case Stored() if self._stage == ASKED:
                self._answered(event)
            case Replied() if self._stage != ENDING:
                self._end(event.outcome)
            case Failed() if not event.alive:
                self.told.outcome = Outcome("error", event.text)
                self._over = True
            case Failed() if self._stage != ENDING:
                self._end(Outcome("error", event.text))
            case Gone():
                self._gone(event)
            case _:
                pass

    def _ask(self) -> None:
        """Lay out the attempt's folders and send its request, or run its command."""
        self._stage, self._since_s, self._sign_s = ASKED, monotonic_s(), monotonic_s()
        self.told.stage = ASKED
        oneshot = self.spec["mode"] == "oneshot"
        try:
            place = self.place = attempts.lay_out(self.paths, self.task, whole=oneshot)
            files, trouble = attempts.lay_files(self.paths, self.task, place)
            if trouble:
                self._end(Outcome("input_changed", trouble))
                return
            message, argv = attempts.message(self.task, place, files), None
            if oneshot:
                body = message["request"]
                argv = self.told.argv = attempts.lay_command(self.spec, self.python, self.task, place, body)
            self.roster.send(
                WORKER, JOB, ATTEMPT, message, reply_path=place.reply_path,
                log_path=place.log_path, log_max=LOG_MAX, argv=argv, cwd=self.spec["folder"],
                charges=self.charges,
            )  # fmt: skip
        except OSError as error:
            self._end(Outcome("error", f"the attempt's folders could not be made: {attempts.told(error)}"))

    def _answered(self, stored: Stored) -> None:
        self.told.answer_s = monotonic_s() - self._since_s
        if stored.no_reply:  # its own end, which may come just after, says more
            self._silent, self._stored = monotonic_s() + SILENCE_S, stored.error
            return
        facts = {
            "queue_id": self.queue_id, "job": JOB, "attempt": ATTEMPT, "slug": self.spec["slug"],
            "variant": self.spec["variant"], "name": self.task.name, "input_sha256": self.task.input_sha256,
            "params": self.task.params, "revision": self.spec["revision"], "tried": True,
        }  # fmt: skip
        self.told.outputs = _listed(self.place.out_dir)
        got = collect.collect(self.paths, self.spec, self.task, facts, self.umask)
        self.told.reply, self.told.destination = got.reply, got.destination
        outcome = got.outcome
        if outcome.kind != "ok" and got.reply is not None and self.task.out and os.path.lexists(self.place.out_dir):
            outcome = replace(outcome, text=f"{outcome.text}; {_kept(self.place.out_dir)}")
        self._end(outcome)

    def _gone(self, gone: Gone) -> None:
        self._over = True
        self.told.killed = self._stage == ENDING and gone.exit_code == -9 and self._heeded < 2
        if self._stage == ENDING:
            return
        if self._stage == STARTING:
            end = end_of(gone, STARTING)
            self.told.outcome = replace(death("", gone.exit_code, "", told=gone.outside), text=end.said)
        elif self._stored and gone.exit_code == 0:
            self.told.outcome = Outcome("no_reply", f"{self._stored}, and left (exit 0)", 0)
        else:
            self.told.outcome = death("", gone.exit_code, gone.text, told=gone.outside)

    def _end(self, outcome: Outcome, grace_s: float | None = None) -> None:
        """The outcome is known: what is left of the worker is ended."""
        self.told.outcome = outcome
        self._stage, self._since_s = ENDING, monotonic_s()
        self.told.grace_s = float(self.spec["stop_grace_s"]) if grace_s is None else grace_s
        self.roster.stop(WORKER, self.told.grace_s, "it was tried")

    # What does not happen

    def _look_at_the_clock(self) -> None:
        now, spec = monotonic_s(), self.spec
        if self.stops > self._heeded:
            self._heeded = self.stops
            if self._stage != ENDING:
                self._end(Outcome("interrupted", "it was stopped"), 0.0 if self.stops > 1 else None)
            elif self.stops > 1:
                self.roster.stop(WORKER, 0.0, "it was told to go at once")
        if self._stage == ENDING:
            self._over = self._over or now - self._since_s > spec["stop_grace_s"] + SLACK_S
            return
        if self._silent and now > self._silent:
            self._end(Outcome("no_reply", self._stored), SILENCE_S)
        elif self.until is not None and now > self.until:
            self._end(Outcome("timed_out", f"--timeout of {self.timeout_s:g} s was over"), SILENCE_S)
        elif self._stage == STARTING and now - self._sign_s > spec["start_timeout_s"]:
            text = f"it did not answer, and gave no sign of life for start_timeout_s = {spec['start_timeout_s']:g} s"
            self._end(Outcome("timed_out", text), SILENCE_S)
        elif self._stage == ASKED and not self._silent and now - self._sign_s > spec["request_timeout_s"]:
            text = f"no progress line came for request_timeout_s = {spec['request_timeout_s']:g} s, and no reply"
            self._end(Outcome("timed_out", text), SILENCE_S)
        elif now > self._said_at:
            self._said_at = now + 60.0
            doing = "it is loading, and does not answer yet" if self._stage == STARTING else "it has not replied yet"
            self.say(f"{doing}: {now - self._since_s:.0f} s so far")

    def _sample(self) -> None:
        """What its whole tree holds now; the largest is kept."""
        if not self._keeper:
            return
        found = [Process(each.pid, each.parent, each.started, ()) for each in tree.below(self._keeper)]
        used = self._use.gib(found, monotonic_s()) if found else None
        if used is not None:
            self.told.host_gib = max(used, self.told.host_gib or 0.0)
        if self.pools and monotonic_s() > self._device_at:
            seen = self.device_use(self.queue_id)
            self._device_at = monotonic_s() + 1.0
            if seen is not None:
                self.told.device_gib = max(seen, self.told.device_gib or 0.0)


def _kept(out_dir: str) -> str:
    """Where outputs are kept that could not be put where they were asked to: in a folder that nobody takes away."""
    try:
        kept = os.path.join(tempfile.mkdtemp(prefix="schedq-kept-"), "out")
        shutil.move(out_dir, kept)
    except (OSError, RecursionError) as error:
        return f"the outputs could not be kept: {attempts.told(error) if isinstance(error, OSError) else error}"
    return f"the outputs are kept in {kept}"


def _listed(folder: str) -> list[tuple[str, int]]:
    """What lies in a folder: the path of each file in it, and its bytes."""
    found = []
    for root, _folders, files in os.walk(folder):
        for name in files:
            path = os.path.join(root, name)
            found.append((os.path.relpath(path, folder), os.lstat(path).st_size))
    return sorted(found)


class _Log:
    """A log that is rotated, read as it grows."""

    def __init__(self, path: str, write: Callable[[bytes], object]) -> None:
        self.path, self.write, self.fd = path, write, -1

    def pump(self) -> None:
        """Pass on what was written since."""
        while True:
            if self.fd < 0:
                try:
                    self.fd = regular.opened(self.path)
                except OSError:
                    return
            while data := os.read(self.fd, 1 << 16):
                self.write(data)
            if regular.inode(self.path) in (None, regular.inode(self.fd)):
                return
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Let go of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
