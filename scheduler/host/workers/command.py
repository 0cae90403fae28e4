"""The keeper of one command: it runs that once, waits until all that it started has gone, and leaves.

Its caller started it where the claim names a descriptor (`caller=N`): then it is in the caller's session, and so is
the command, in the caller's process group, terminal, folder and environment, with the caller's own descriptors. The
two speak lines of JSON: `argv`, `signal` (number, terminal) and `over` are said by the caller, `started` (pid),
`stopped`, `exit` (code, left, why) and `go` (env, devices) by the keeper. A caller that goes without a word ends its
command. A claim of kind `l` has no command: the caller's process itself has the room, until it says `over` or goes.

Without a caller it is started by the scheduler, and gets argv, folder and environment with the order to begin.
Standard library only and light, like all of a keeper.
"""

from __future__ import annotations

import os
import time

from scheduler.host.workers import tree
from scheduler.host.workers.door import Peer
from scheduler.host.workers.errand import Errand
from scheduler.host.workers.keeping import NEVER, Keeper
from scheduler.host.workers.lean import PR_SET_PDEATHSIG, dumps, loads, prctl
from scheduler.host.workers.protocol import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

UNHEARD = "cancelled: its caller ended"
UNSAID_S = 5.0
"""How long a caller may take to say which command may begin: it is stopped, or its machine swaps. Others have the room
then, and it waits for its turn again."""

LEFT_ALONE = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by every Python: what the caller was started with cannot be told, and is the default."""


class CommandKeeper(Keeper):
    """Parked, starting, ready, busy with its one command, gone."""

    def __init__(self, claim: dict[str, str]) -> None:
        self.caller = int(claim.get("caller", "-1"))
        self.holds = claim.get("kind") == "l"
        self.parent, self.held = os.getppid(), []  # type: int, list[tree.Stat]
        self.inherited: list[int] = []
        self.stdio: list[int] = []
        self.ignored: set[int] = set()
        self.cwd, self.heard, self.argv = -1, b"", []  # type: int, bytes, list[str]
        self.given: dict[str, str] = {}
        if self.caller >= 0:
            self.keep_what_it_is_given()
        super().__init__(claim)
        if self.caller >= 0:
            self.loop.watch(self.caller, self.hear)
            self.watch_parent()

    def keep_what_it_is_given(self) -> None:
        """Put aside what the command is to have: descriptors, folder, ignored signals. Nothing else is open yet."""
        os.set_inheritable(self.caller, False)
        os.set_blocking(self.caller, False)
        found = [int(name) for name in os.listdir("/proc/self/fd")]
        self.inherited = [fd for fd in found if fd > 2 and fd != self.caller and _is_inheritable(fd)]
        self.stdio = [os.dup(fd) for fd in range(3)]
        quiet = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(quiet, fd)
        os.close(quiet)
        self.cwd = os.open(".", os.O_PATH | os.O_DIRECTORY)
        numbers = set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP, *LEFT_ALONE}
        self.ignored = {number for number in numbers if signal.getsignal(number) == signal.SIG_IGN}

    # The caller

    def hear(self, _: int) -> None:
        """What the caller says; its end without a word ends the command."""
        try:
            data = os.read(self.caller, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.desert()
            return
        *lines, self.heard = (self.heard + data).split(b"\n")
        for line in lines:
            said = loads(line)
            if "argv" in said:
                self.argv = said["argv"]
                if self.argv and self.errand and not self.leader and not self.stopping:
                    self.begin()
            elif "signal" in said:
                self.pass_on(int(said["signal"]), terminal=bool(said.get("terminal")))
            elif "over" in said:
                self.drop_caller()
                self.exit_code = 0
                self.last_gone()

    def watch_parent(self) -> None:
        """See the caller's process end, even if a fork of it holds the connection open."""
        try:
            fd = os.pidfd_open(self.parent)
        except OSError:
            fd = -1
        if fd >= 0 and os.getppid() == self.parent:
            self.loop.watch(fd, lambda _: self.orphaned(fd))
        else:
            self.loop.after("orphaned", 0.0, lambda: self.orphaned(-1))

    def orphaned(self, fd: int) -> None:
        """The caller's process is gone: what it said last is heard, and the rest is its end."""
        if fd >= 0:
            self.loop.unwatch(fd)
            os.close(fd)
        if self.caller >= 0:
            self.hear(0)
        if self.caller >= 0:
            self.desert()

    def desert(self) -> None:
        """The caller went without a word: its command ends."""
        self.drop_caller()
        self.stop(self.order.get("stop_grace_s", 10.0), UNHEARD)

    def drop_caller(self) -> None:
        """It is heard no more."""
        if self.caller >= 0:
            self.loop.unwatch(self.caller)
            os.close(self.caller)
            self.caller = -1

    def tell_caller(self, **what: Any) -> None:
        """Say something to the caller, if it is there."""
        try:
            if self.caller >= 0:
                os.write(self.caller, dumps(what) + b"\n")
        except OSError:
            pass

    def pass_on(self, number: int, *, terminal: bool) -> None:
        """A signal that the caller was sent, for the command. A terminal's is for all of the caller's group.

        So the command has had that, unless it made a group of its own, as `timeout` does: then it is that group's, and
        so is what lets a group go on that a terminal stopped.
        """
        stat = tree.stat_of(self.leader) if self.leader else None
        if not stat or stat.started != self.started:
            return
        group = os.getpgid(self.leader)
        try:
            if group == self.leader and (terminal or number == signal.SIGCONT):
                os.killpg(group, number)
            elif not terminal or group != int(self.claim["group"]):
                tree.signal_all([stat], number)
        except OSError:
            pass  # it has ended, or is another user's by now

    # The command

    def go(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """It is ready at once: the command comes with the order to begin, or is the caller's."""
        return super().go({**order, "mode": "oneshot"})

    def send(self, peer: Peer, order: dict[str, Any]) -> dict[str, Any] | None:
        """Begin: run the command, or let the caller have its room."""
        peer.body, peer.errand = 0, None
        if self.stopping or self.state != "ready":
            return {"error": f"the keeper is {'stopping' if self.stopping else self.state}, not ready"}
        self.errand = Errand(self.loop, order, self.door.tell, self.settled, lambda: self.door.want(peer), self.stands)
        self.state, env, argv = "busy", dict(order.get("env") or {}), list(order.get("argv") or ())
        if not self.holds:  # what bears the mark ends with its keeper
            env[MARK] = f"{self.claim['queue']}:{self.claim['worker']}"
        self.given = env
        if self.holds:
            self.tell_caller(go=True, env=env, devices=order.get("devices") or [])
        elif self.caller >= 0 and self.argv:
            self.begin()
        elif self.caller >= 0:
            why = f"its caller did not say within {UNSAID_S:.0f} s which command is to begin: it is stopped, or swaps"
            self.loop.after("unsaid", UNSAID_S, lambda: self.stop(0.0, why))
        elif not argv:
            self.errand.settle(None, "its caller ended before its command began")
        else:
            self.order["umask"] = order.get("umask", 0o022)
            try:
                self.spawn(argv, env, order.get("cwd") or "/")
            except OSError as error:
                self.errand.settle(None, f"the command could not be started: {error.strerror}")
        return None

    def begin(self) -> None:
        """Start the caller's command where the caller is: its session, group, folder, descriptors and environment."""
        self.loop.drop("unsaid")
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        keeper, group = os.getpid(), int(self.claim["group"])
        try:
            pid = os.fork()
            if pid == 0:
                self.become(keeper, group)
        except OSError as error:
            if self.errand:
                self.errand.settle(None, f"the command could not be started: {error.strerror}")
            self.stop(0.0, "its command could not be started")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.leader = pid
        self.tell_caller(started=pid)  # first: signals that come to the caller are the command's from here on
        stat = tree.stat_of(pid)
        self.started = stat.started if stat else 0.0
        self.exit_code, self.kill_at = None, NEVER
        for fd in (*self.stdio, *self.inherited, self.cwd):
            try:
                os.close(fd)
            except OSError:
                pass
        self.stdio, self.inherited, self.cwd = [], [], -1
        leader = {"pid": pid, "started": self.started, "boot_id": self.boot_id}
        self.tried(lambda: self.record("leader.json", leader))
        self.door.tell("started", leader_pid=pid, leader_started=self.started)

    def become(self, keeper: int, group: int) -> None:
        """The child's side of the fork; ends in exec, or in a line on stderr and exit 127 or 126."""
        argv, code = self.argv, 126
        try:
            os.setpgid(0, group)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(137)
            for number in range(1, 32):
                if number not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(number, signal.SIG_IGN if number in self.ignored else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for fd, kept in enumerate(self.stdio):
                os.dup2(kept, fd)
            os.fchdir(self.cwd)
            os.umask(self.own_umask)
            os.execvpe(argv[0], argv, {**os.environ, **self.given})
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            os.write(2, f"schedq: cannot run {argv[0]}: {error.strerror}\n".encode(errors="replace"))
        except BaseException as error:
            os.write(2, f"schedq: cannot run {argv[0]}: {error}\n".encode(errors="replace"))
        finally:
            os._exit(code)

    # The end

    def reap(self) -> None:
        """A command that stopped itself is told of, so that the caller can stop too; then as every keeper does."""
        if self.leader and self.caller >= 0:
            try:
                if os.waitid(os.P_PID, self.leader, os.WSTOPPED | os.WNOHANG):
                    self.tell_caller(stopped=True)
            except ChildProcessError:
                pass
        super().reap()

    def leader_ended(self, code: int) -> None:
        """Its exit code is the answer. What it left behind goes on, and keeps the charge until it has gone."""
        self.exit_code = code
        if self.pipe >= 0:
            self.tried(lambda: self.pump(64))
        if self.errand:
            self.errand.exit_code = code
        left = len(tree.below(os.getpid()))
        self.tell_caller(exit=code, left=left, why=self.why)
        self.drop_caller()
        self.tried(lambda: self.door.tell("leader_exit", exit_code=code))

    def last_gone(self) -> None:
        """Nothing of it is left: its end is stored, and the keeper leaves, whether or not a scheduler hears that."""
        self.leader, self.kill_at = 0, NEVER
        self.loop.drop("kill")
        self.tried(lambda: self.pump(1024))
        if self.errand:
            self.errand.settle(dumps({"oneshot": True, "exit_code": self.exit_code, "stopped": self.why}))
        self.leave()

    def stop(self, grace_s: float, why: str) -> None:
        """As every keeper does; of a process that only has the room, the process itself is told, then killed."""
        if not (self.holds and self.errand and self.caller >= 0):
            if self.holds and self.errand:
                self.stopping, self.why = True, self.why or why
                tree.signal_all(self.held, signal.SIGKILL)
                self.last_gone()
                return
            super().stop(grace_s, why)
            return
        if not self.stopping:
            self.stopped_at = time.monotonic()
            self.end_holder(signal.SIGTERM)
        self.stopping, self.why = True, self.why or why
        self.loop.after("kill", grace_s, lambda: self.end_holder(signal.SIGKILL))

    def end_holder(self, number: int) -> None:
        """Signal the process that has the room, as long as it is our parent: then it is that one.

        What it started is charged with it. It is told nothing, and killed with it, or when it ended without that.
        """
        if os.getppid() == self.parent:
            self.held = tree.below(self.parent, apart=True)
            tree.signal_all(self.held if number == signal.SIGKILL else (), number)
            os.kill(self.parent, number)

    def leave(self) -> None:
        """Its exit code was the command's, which says nothing of a worker."""
        self.drop_caller()
        self.exit_code = 0
        super().leave()


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False
