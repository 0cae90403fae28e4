"""A command's caller: it puts the command into the queue, waits for its turn, and starts its keeper itself.

The keeper is a child of the caller, in its session and with its descriptors; its claim is the one that the scheduler
reserved, which looks at it before anything is spent. So a command keeps the terminal that it was called from, and a
caller that dies takes its command with it. Standard library only, and nothing slow of it.
"""

from __future__ import annotations

import _socket  # the module `socket` costs 2 ms of imports
import json
import os

from scheduler import wake
from scheduler.clock import monotonic_s
from scheduler.errors import Refused
from scheduler.host.workers import spawn, tree
from scheduler.model.command import EXEC, Shape
from scheduler.store import peek, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.config import Paths

BURY_S = 1.0
"""How long the end of keepers that were told to leave is waited for: it takes milliseconds."""

_UNBURIED: list[int] = []
"""Pidfds of this process's keepers whose end nobody has taken in."""

HEARD_S, UNHEARD_S, ANSWER_S = 2.0, 0.5, 0.5
"""How often a caller looks by itself, where the scheduler said that it will tell, and where it did not."""


def row_of(paths: Paths, shape: Shape, command: list[str], name: str, priority: int, **more: Any) -> dict[str, Any]:
    """The job of a command. `more` are further columns; a command is run once unless they say otherwise."""
    params: dict[str, Any] = {"command": command, "cwd": _cwd()}
    if shape.kind != "d":
        pid = os.getpid()
        stat = tree.stat_of(pid)
        params["caller"] = {"pid": pid, "started": stat.started if stat else 0.0, "boot_id": tree.boot_id()}
    if shape.exclusive:
        more = {**more, "blocked": "after", "behind": peek.last_id(paths) or 0}
    return {
        "slug": EXEC, "variant": shape.variant(), "name": name, "priority": priority, "params": params,
        "max_attempts": 1, "on_lost": "fail", "retry_on": "", **more,
    }  # fmt: skip


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise Refused("the folder that this was called from is not there any more; cd into another") from None


def forget_environments(paths: Paths, changed: list[tuple[int, str, str]]) -> None:
    """Take away what was stored for commands that were just cancelled: (id, state before, state now) of each."""
    from scheduler.host import environs

    for job_id in (job_id for job_id, before, now in changed if now == "cancelled" != before):
        environs.forget(paths, turns.variant_of(paths, job_id))


class Attached:
    """One command, from its place in the queue to its end. `step` is called until it says that it is over.

    `worker_id` is that of the keeper that was started, None before; `began` is set once the command runs, or the room
    is the caller's; `ended` is what the keeper said last: {"exit", "left", "why"}, {} if it vanished without a word.
    """

    def __init__(self, paths: Paths, job_id: int, kind: str, command: list[str]) -> None:
        self.paths, self.job_id, self.kind, self.command = paths, job_id, kind, command
        self.line = wake.Line(paths)
        self.turn: turns.Turn | None = None
        self.worker_id: int | None = None
        self._keepers: list[int] = []
        self._left_unbegun: int | None = None
        self.began: dict[str, Any] = {}
        self.ended: dict[str, Any] | None = None
        self._sock: _socket.socket | None = None
        self._heard, self._look_at = b"", 0.0

    @property
    def left(self) -> str:
        """The state in which the job ended without its command having been begun; "" while it may still begin."""
        ended = self.turn is not None and self.turn.state in ("succeeded", "failed", "cancelled", "timed_out")
        return self.turn.state if ended and self.turn and not self.began else ""

    def fds(self) -> list[int]:
        """What may have something to say: wait for one of them before `step`."""
        return [self.line.sock.fileno(), *([self._sock.fileno()] if self._sock else [])]

    def patience_s(self) -> float | None:
        """How long `step` may be left alone; None once only the keeper has something to say."""
        return None if self.began else max(0.0, self._look_at - monotonic_s())

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the next thing that is said, or until it is time to look again, and take it in."""
        least = [wait for wait in (timeout_s, self.patience_s()) if wait is not None]
        wake.heard(self.fds(), min(least) if least else None)
        self.step()

    def step(self) -> None:
        """Take in what was said, and look where the job stands if there is reason to."""
        told = False
        while (said := self.line.hear(0.0)) is not None:
            told = told or said.get("job") == self.job_id
        self._hear()
        if self.began or self.ended is not None:
            return
        if told or monotonic_s() >= self._look_at:
            self._look()

    def _look(self) -> None:
        """Ask to be told, see where the job stands, and start its keeper where it is its turn."""
        listening = self._is_told()
        self.turn = turns.look(self.paths, self.job_id)
        self._look_at = monotonic_s() + (HEARD_S if listening and self.turn is not None else UNHEARD_S)
        if self.turn is None:
            return
        if self.worker_id is not None and self.turn.worker_id != self.worker_id:
            self._let_go()
        claim = self.turn.claim
        if claim is not None and claim.worker_id not in (self.worker_id, self._left_unbegun):
            self._start(claim, self.turn.queue_id)

    def _is_told(self) -> bool:
        """Whether the scheduler has said that it will tell of every change from now on. What it told before is read."""
        if not self.line.say(op="watch", jobs=[self.job_id]):
            return False
        until = monotonic_s() + ANSWER_S
        while (left := until - monotonic_s()) > 0:
            said = self.line.hear(left)
            if said is not None and "watching" in said:
                return True
        return False

    def _start(self, claim: turns.Claim, queue_id: str) -> None:
        """Start the keeper, parked, with the claim that was reserved, in this session and a group of its own."""
        self._let_go()
        folder = self.paths.worker(claim.worker_id)
        os.makedirs(folder, 0o700, exist_ok=True)
        control = os.path.join(self.paths.run, f"{claim.worker_id}.k")
        ours, theirs = _pair()
        argv: list[str] = spawn.keeper_argv(claim, queue_id, control, folder)
        argv[-1:-1] = [f"caller={theirs.fileno()}", f"group={os.getpgrp()}", f"kind={self.kind}"]
        os.set_inheritable(theirs.fileno(), True)
        try:
            keeper = os.posix_spawn(argv[0], argv, os.environ, setpgroup=0, setsigmask=[])
        finally:
            theirs.close()
        self._keepers += _pidfd(keeper)
        self._sock, self._heard, self.worker_id = ours, b"", claim.worker_id
        self.say(argv=self.command)

    def say(self, **what: Any) -> None:
        """Say something to the keeper, if there is one."""
        try:
            if self._sock is not None:
                self._sock.setblocking(True)
                self._sock.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            pass
        finally:
            if self._sock is not None:
                self._sock.setblocking(False)

    def _hear(self) -> None:
        """What the keeper says. One that ends before its command began was told so: the job waits, or has ended."""
        while self._sock is not None:
            try:
                data = self._sock.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            *lines, self._heard = (self._heard + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            if not data:
                self._left_unbegun = self.worker_id  # its claim is given back: none is put up for it again
                self._let_go()
                if self.began and self.ended is None:
                    self.ended = {}
                self._look_at = 0.0

    def _take(self, said: dict[str, Any]) -> None:
        if "started" in said or "go" in said:
            self.began = said
        elif "exit" in said:
            self.ended = said
        elif said.get("stopped"):
            self.stopped()

    def stopped(self) -> None:
        """The command stopped itself, as by a `suspend`; who waits for it decides what that means."""

    def _let_go(self) -> None:
        """Nothing more is said to the keeper: parked it leaves, and what it runs it ends."""
        if self._sock is not None:
            self._sock.close()
        self._sock, self.worker_id = None, None

    def close(self) -> None:
        """Let go of the keeper and of the line to the scheduler."""
        self._let_go()
        self.line.close()

    def bury(self) -> None:
        """Let the kernel forget its keepers, once they have ended: waited for a second, and looked for at the next end.

        After `close`: until then the last one has no reason to end.
        """
        _UNBURIED[:0] = self._keepers
        self._keepers, until = [], monotonic_s() + BURY_S
        for _ in range(len(_UNBURIED)):
            try:
                fd = _UNBURIED.pop(0)
            except IndexError:  # another thread's turn
                return
            if wake.heard([fd], max(0.0, until - monotonic_s())) and _is_buried(fd):
                os.close(fd)
            else:
                _UNBURIED.append(fd)


def _pidfd(keeper: int) -> list[int]:
    """A child by descriptor: its pid may be another child's of the program, once somebody else has waited for it.

    None where there is no descriptor to be had, or nothing left to be buried: the program lets the kernel do that.
    """
    try:
        return [os.pidfd_open(keeper)]
    except OSError:
        return []


def _is_buried(fd: int) -> bool:
    """Whether that child's end was taken in, or is nobody's to take in here."""
    try:
        return os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _pair() -> tuple[_socket.socket, _socket.socket]:
    one, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    one.setblocking(False)
    return one, other
