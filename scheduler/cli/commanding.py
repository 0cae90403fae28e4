"""`schedq exec`: a command queues for its room, runs where it was called, and its exit code is the answer."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module `signal` costs an import of enum
import os

from scheduler import attached, wake
from scheduler.absence import GRACE_S
from scheduler.cli import say, sight
from scheduler.cli.command import asked, columns_of, refuse_unrunnable
from scheduler.cli.fast import Call
from scheduler.cli.signals import Signals
from scheduler.client import Client, ending
from scheduler.clock import monotonic_s
from scheduler.errors import AcceleratorAbsent, Refused, SchedqError, SchedulerDown, Temporary
from scheduler.host.workers import tree
from scheduler.host.workers.protocol import MARK
from scheduler.model.command import DETACHED, FOREGROUND, Shape
from scheduler.store import peek, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from scheduler.config import Paths

OURS = 125
"""The exit code where it is not known how the command ended, or it was not run."""

SAY_S = 1.0
"""How long a command waits before it is said what for."""

DECIDED_S = 20.0
"""How long `--no-wait` waits for the scheduler's word."""

FIRST_S = 10.0
"""How soon a scheduler that was started for a command has looked at the machine."""

KILLED_S = 3.0
"""How long a queue may be without its scheduler that was killed before a call starts another: a take-over is faster."""

ENDS = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM)
"""What ends a call whose command has not begun."""


class NotRun(SchedqError):
    """The command was not run, or nobody can say how it ended."""

    exit_code = OURS


def exec_(call: Call) -> int:
    """Queue a command, wait for its room, run it here, and leave with its exit code."""
    command = call.many("command")
    refuse_unrunnable(command[0])
    shape = asked(call, DETACHED if call.flag("detach") else FOREGROUND)
    client = Client()
    client.refuse_never(shape.spec())
    columns = columns_of(call, shape, command)
    if shape.kind == DETACHED:
        return _detach(call, client, shape, columns)
    inside = os.environ.get(MARK, "").rpartition(":")[2]
    if inside:
        say.note(f"note: this is called from inside worker {inside}, whose room stays taken while it waits")
    _ensure(client.paths)
    signals = Signals()
    try:
        ids = client.enqueue([columns])
        return _Foreground(client, ids[0], command, signals, no_wait=call.flag("no_wait")).seen_through()
    finally:
        signals.close()


def _detach(call: Call, client: Client, shape: Shape, columns: dict[str, object]) -> int:
    """Queue a command that needs nobody: its environment is kept in a file of its own until it has ended."""
    from scheduler.host import environs

    try:
        environs.keep(client.paths, shape.variant(), dict(os.environ), call.many("command"))
    except OSError as error:
        raise Temporary(
            f"the command's environment could not be stored in {environs.folder(client.paths)}: {error.strerror}; "
            "nothing was queued, free some space and try again"
        ) from None
    try:
        client.enqueue([columns], lambda ids: _print_id(call, ids))
    except (say.Quiet, BrokenPipeError):
        raise
    except BaseException:
        environs.forget(client.paths, shape.variant())
        raise
    try:
        _ensure(client.paths)
    except SchedqError as error:
        say.note(f"note: it is queued, and no scheduler runs: {error}")
    return 0


def _print_id(call: Call, ids: list[int]) -> None:
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "ids": ids, "batch": None}))
    else:
        say.out(str(ids[0]))


def _ensure(paths: Paths) -> None:
    if not wake.scheduler_runs(paths):
        from scheduler.cli import starting

        starting.ensure(paths)


class _Foreground:
    """One call, from its place in the queue to its command's exit code."""

    def __init__(self, client: Client, job_id: int, command: list[str], signals: Signals, *, no_wait: bool) -> None:
        self.client, self.job_id, self.signals, self.no_wait = client, job_id, signals, no_wait
        self.call = _Call(client.paths, job_id, FOREGROUND, command)
        self.began_s, self.said = monotonic_s(), ""
        self.had_terminal = _has_terminal()
        self.instead: int | SchedqError | None = None
        """What the call leaves with if its command is taken out of the queue before it began."""
        self.came: list[tuple[int, bool]] = []
        self.leaving, self.leaver, self.absent_since_s = "", 0, None  # type: str, object, float | None

    def seen_through(self) -> int:
        """The exit code to leave with."""
        call, about = self.call, sight.told(self.client.paths)  # the job is queued: who goes later does so all the same
        self.leaving, self.leaver = str((about or {}).get("leaving") or ""), (about or {}).get("pid")
        if self.leaving == "down" and not self.no_wait:
            say.note("the scheduler is going down: when it has gone, this starts another")
        try:
            while call.ended is None and not call.left:
                call.step()
                if call.ended is not None or call.left:
                    break
                waits = [] if call.began else [max(0.02, call.patience_s() or 0.0), self._waiting()]
                wake.heard([*call.fds(), self.signals.fd], min(waits) if waits else None)
                code = self._pass_on()
                if code is not None:
                    return code
            return self._code()
        finally:
            call.close()

    def _waiting(self) -> float:
        """Say what it waits for, and see to it that there is a scheduler; how long that may take until it is anew."""
        if self.instead is not None:
            return SAY_S
        if self.no_wait:
            return self._decided()
        waited_s = monotonic_s() - self.began_s
        if waited_s < SAY_S:
            return SAY_S - waited_s
        self._ensure_unless_told_to_go()
        job = self.client.status(self.job_id)
        reason = job.get("reason") or {}
        self._refuse_never(reason, waited_s)
        if reason and reason["ruling"] != self.said:
            from scheduler.cli import reading

            say.note(f"job {self.job_id} waits: {reading.why(job, self.client.paths) or reason['ruling']}")
            self.said = reason["ruling"]
        return SAY_S

    def _ensure_unless_told_to_go(self) -> None:
        """Start a scheduler in place of one that was killed, or that was about to go when the command came.

        One that ended in order since, by `down` or for another to follow, is not replaced: the command waits.
        """
        paths, now_s, last = self.client.paths, monotonic_s(), peek.last_scheduler(self.client.paths)
        if last is not None and last["pid"] != self.leaver:
            self.leaving = ""
        if wake.scheduler_runs(paths):
            self.absent_since_s = None
            return
        self.absent_since_s = self.absent_since_s or now_s
        patience_s = {"": KILLED_S, "restart": GRACE_S}.get(self.leaving, 0.0)
        ordered = not self.leaving and last is not None and last["ended_at"]
        if ordered or now_s - self.absent_since_s < patience_s:
            return
        self.leaving = ""
        try:
            _ensure(paths)
        except SchedulerDown:
            pass  # none can be started from here: somebody else has to, which is the reason that it waits for

    def _refuse_never(self, reason: dict[str, str], waited_s: float) -> None:
        """What a machine that nobody had looked at before can never give is refused as soon as that is known."""
        ruling = reason.get("ruling")
        if ruling in ("undeclared", "no_device", "too_big") and waited_s < FIRST_S:
            kind = AcceleratorAbsent if ruling == "no_device" else Refused
            refusal = kind(f"{ruling}: {reason['text']}; nothing is left in the queue")
            if self._gave_up(refusal):
                raise refusal

    def _decided(self) -> float:
        """Whether there is room now: Temporary with the reason if not, and nothing is left in the queue."""
        turn = self.call.turn
        back = turn is not None and turn.state == "queued" and turn.attempt > 0
        job = self.client.status(self.job_id) if turn is None or turn.state == "queued" else None
        reason = (job or {}).get("reason") or {}
        self._refuse_never(reason, monotonic_s() - self.began_s)
        decided = reason.get("ruling") not in (None, "busy", "scheduler_down") or back
        late = monotonic_s() - self.began_s > DECIDED_S
        if not decided and not late and not self._is_behind(reason):
            return 0.05
        text = reason.get("text") or f"the scheduler had not said more within {DECIDED_S:.0f} s"
        refusal = Temporary(f"no room now: {text}; nothing is left in the queue")
        if self._gave_up(refusal):
            raise refusal
        return 0.05

    def _is_behind(self, reason: dict[str, str]) -> bool:
        """Whether so many commands wait before it that it is not even looked at: that lasts."""
        return reason.get("ruling") == "busy" and monotonic_s() - self.began_s > SAY_S

    def _gave_up(self, instead: int | SchedqError) -> bool:
        """Take the command out of the queue; False if it was sent off just now.

        Then it is stopped, and if it ends before it began the call leaves with `instead` all the same.
        """
        self.instead = instead
        (_job, before, after) = self.client.cancel([self.job_id])[0]
        return before != "running" and after == "cancelled"

    def _pass_on(self) -> int | None:
        """Signals that came: to the command once it runs; before that they end the call. The code to leave with.

        What comes while the command is about to begin waits for that.
        """
        came = self.signals.read()
        if came:
            self.call.step()  # whether it has begun by now
        self.came += came
        while self.came:
            number, terminal = self.came[0]
            if self.call.began:
                self.call.say(signal=number, terminal=terminal)
                if number == _signal.SIGHUP and self.had_terminal and not _has_terminal():
                    return 129  # the keeper sees that nobody is here any more, and ends the command
            elif number == _signal.SIGTSTP:
                self.signals.stop()
            elif number in ENDS:
                turn = turns.look(self.client.paths, self.job_id)
                if turn is not None and turn.state == "running":
                    self.came[0] = (number, False)  # what is not there yet has not had it from the terminal
                    return None
                if self._gave_up(128 + number):
                    return self._left(128 + number)
            del self.came[0]
        return None

    def _code(self) -> int:
        """What the call leaves with, and what there is to say of the end on stderr."""
        ended = self.call.ended
        if ended is None and self.call.left == "cancelled" and self.instead is not None:
            return self._left(self.instead)
        if ended is None:
            job = self.client.status(self.job_id)
            raise NotRun(f"job {self.job_id} {ending(job)}; the command was not run")
        if "exit" not in ended:
            raise NotRun(f"the keeper of job {self.job_id} vanished, and its command; schedq show {self.job_id}")
        if ended.get("why"):
            say.note(f"schedq: job {self.job_id} was stopped: {ended['why']}")
        if ended.get("left") and not ended.get("why"):
            those = "process" if ended["left"] == 1 else "processes"
            say.note(
                f"schedq: the command left {ended['left']} {those} behind, which keep its room until they end: "
                f"schedq cancel {self.job_id} ends them"
            )
        code = int(ended["exit"])
        return code if code >= 0 else 128 - code

    def _left(self, instead: int | SchedqError) -> int:
        """The command is out of the queue, and never began."""
        if isinstance(instead, SchedqError):
            raise instead
        say.note(f"schedq: job {self.job_id} was taken out of the queue")
        return instead


class _Call(attached.Attached):
    def stopped(self) -> None:
        """A command that stopped by itself stops its call too, so that the shell has its terminal back."""
        stat = tree.stat_of(int(self.began.get("started") or 0))
        if stat is not None and stat.state == "T":
            os.kill(os.getpid(), _signal.SIGSTOP)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
