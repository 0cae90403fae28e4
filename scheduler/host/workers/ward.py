"""One worker as the roster sees it: the connection to its keeper, the keeper's pidfd, and what is still to be said."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.clock import monotonic_s
from scheduler.host.workers import tree
from scheduler.host.workers.connection import Connection, written
from scheduler.host.workers.orders import Launch, Stored
from scheduler.host.workers.parting import Parting, readable
from scheduler.host.workers.protocol import LINE_LIMIT, agreed
from scheduler.host.workers.spawn import keeper_argv, reached, reap, spawn_keeper, words_of
from scheduler.host.workers.words import answered, progressed
from scheduler.model.host import Adopt, Alive, Charged, Failed, Forgotten, Park, Replied, Shown
from scheduler.model.outcome import Outcome

if TYPE_CHECKING:
    from scheduler.host.workers.roster import Roster

UNREACHABLE_S = 10.0
EXPECTED_S = 5.0
"""How long a caller may take to start its keeper: 30 ms, where it is not stopped."""


def too_long(length: int) -> str:
    """Why a request is refused that no worker could read."""
    return (
        f"the request is one line of {length} bytes and a worker reads at most {LINE_LIMIT}; put what is large into "
        "files that the input names"
    )


class Ward:
    """All of its methods run on the roster's thread."""

    def __init__(self, roster: Roster, worker_id: int) -> None:
        self.roster, self.id, self.folder = roster, worker_id, roster.paths.worker(worker_id)
        self.control = os.path.join(roster.paths.run, f"{worker_id}.k")
        self.socket_path = os.path.join(roster.paths.run, f"{worker_id}.w")
        self.pid, self.started, self.pidfd, self.child = 0, 0.0, -1, False
        self.answered, self.legacy, self.closed, self.rebooted = False, False, False, False
        self.row: Adopt | None = None
        self.errand: tuple[int, int, str] | None = None
        self.silent: tuple[int, int] | None = None
        """The attempt that it ended without a reply, which its own end explains."""
        self.log = os.path.join(self.folder, "log")
        """Where it says why it ends: its own log, and of an attempt that it was sent that one's."""
        self.unsent: Callable[[], None] | None = None
        self.since, self.wait_s, self.why, self.complained = monotonic_s(), 0.001, "", False
        self.connection = Connection(self)
        self.parting = Parting(self)

    def after(self, wait_s: float, act: Callable[[], None]) -> None:
        """Call `act` later; what goes wrong in it is told of this worker."""
        self.roster.after(wait_s, act, self.id)

    # Started here, or found

    def start(self, order: Park) -> None:
        """Start the keeper. OSError if that is impossible."""
        argv = keeper_argv(order, self.roster.queue_id, self.control, self.folder)
        self.pid, self.child = spawn_keeper(argv, self.folder), True
        self._watch_keeper()
        self._look(argv)

    def _look(self, argv: list[str]) -> None:
        """Shown once the argv that everybody reads is the claim: later than the spawn returns (E27)."""
        if self.closed:
            return
        stat = tree.stat_of(self.pid)
        if stat and tree.argv_of(self.pid) == argv:
            self.started = stat.started
            self.roster.emit(Shown(self.id, self.pid, self.started, tree.boot_id()))
            self._connect()
        else:
            self.after(0.0005, lambda: self._look(argv))

    def expect(self, order: Park) -> None:
        """Look for the keeper that its caller starts: shown once the claim that everybody reads is the order's."""
        if self.closed:
            return
        try:
            sock, pid = reached(self.control, self.roster.queue_id, self.id, 0)
        except OSError:
            if self.parting.asked or monotonic_s() - self.since > EXPECTED_S:
                self._never_came(f"its caller did not start it within {EXPECTED_S:.0f} s: it is stopped, or has gone")
            else:
                self.after(0.005, lambda: self.expect(order))
            return
        stat, claim = tree.stat_of(pid), tree.argv_of(pid)
        if stat is None or set(words_of(order)) - set(claim):
            sock.close()
            self._never_came(f"process {pid} claims to be its keeper, and claims something else than what was reserved")
            return
        self.pid, self.started = pid, stat.started
        self._watch_keeper()
        self.roster.emit(Shown(self.id, pid, stat.started, tree.boot_id()))
        self.connection.open(sock)

    def _never_came(self, text: str) -> None:
        self.closed = True
        self.roster.forget(self)
        self.roster.emit(Failed(self.id, text, alive=False))

    def adopt(self, row: Adopt) -> None:
        """Find the keeper by its socket; one that is gone left its records."""
        self.row = row
        if row.assignment:
            job, attempt = row.assignment.job_id, row.assignment.attempt
            self.errand = (job, attempt, os.path.join(self.roster.paths.job(job), f"{attempt}.json"))
            self.log = os.path.join(self.roster.paths.attempt(job, attempt), "log")
        if row.boot_id and row.boot_id != tree.boot_id():
            self.errand, self.rebooted = None, True  # replies are of use within one boot
            self._gone()
            return
        if row.state == "retiring":  # its end comes whether or not the keeper can be spoken to
            self.stop(10.0, "it was retiring when its scheduler ended")
        self._connect()

    def _connect(self) -> None:
        if self.closed:
            return
        try:
            sock, pid = reached(self.control, self.roster.queue_id, self.id, self.pid)
        except OSError:
            self._unreached()
            return
        if not self.pid:
            stat = tree.stat_of(pid)
            self.pid, self.started = pid, stat.started if stat else 0.0
            self._watch_keeper()
        self.connection.open(sock)

    def lost(self, wait_s: float) -> None:
        """The connection is over: it is made anew after that wait, unless this worker is."""
        if not self.closed:
            self.after(wait_s, self._connect)

    def _unreached(self) -> None:
        """Not yet there, or not any more: its lock and its claim tell which."""
        if not self.pid and not tree.is_held(self.folder) and not tree.keeper_of(self.folder):
            self._gone()
            return
        if monotonic_s() - self.since > UNREACHABLE_S and not self.complained:
            self.complained = True
            self.roster.emit(Failed(self.id, f"its keeper lives and cannot be reached at {self.control}"))
        self.wait_s = min(1.0 if self.complained else 0.05, self.wait_s * 1.5)
        self.after(self.wait_s, self._connect)

    def _watch_keeper(self) -> None:
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self.after(0.0, self.keeper_ended)
            return
        self.roster.selector.register(self.pidfd, selectors.EVENT_READ, (self.id, lambda _: self.keeper_ended()))

    def _unwatch_keeper(self) -> None:
        if self.pidfd >= 0:
            self.roster.selector.unregister(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = -1

    # Orders

    def go(self, launch: Launch) -> None:
        """Let the keeper start its worker."""
        os.makedirs(os.path.join(self.folder, "tmp"), 0o700, exist_ok=True)
        argv = [word.replace("{socket}", self.socket_path) for word in launch.argv]
        if launch.mode != "oneshot" and argv == launch.argv:
            argv += ["--socket", self.socket_path]
        self.connection.order(
            op="go", argv=argv, env=launch.env, cwd=launch.cwd, mode=launch.mode, socket=self.socket_path,
            umask=self.roster.umask, log_max=launch.log_max_bytes, stop_grace_s=launch.stop_grace_s,
        )  # fmt: skip

    def send(
        self, job: int, attempt: int, message: dict[str, Any] | bytes, reply_path: str, log_path: str,
        log_max: int, argv: list[str] | None, cwd: str | None, **more: Any,
    ) -> None:  # fmt: skip
        """Send one attempt's request, or its command. One that no worker could read is answered here: Replied."""
        if not self.connection.spoke:  # what language the worker speaks is not known either
            self.unsent = partial(self.send, job, attempt, message, reply_path, log_path, log_max, argv, cwd, **more)
            return
        order: dict[str, Any] = {
            "op": "send", "job": job, "attempt": attempt, "reply_path": reply_path, "log_path": log_path,
            "log_max": log_max, **more,
        }  # fmt: skip
        body = b""
        if argv is not None:
            out = message.get("out_dir") if isinstance(message, dict) else None
            result = os.path.join(out, "result.json") if out else ""
            order |= {"argv": argv, "cwd": cwd, "result_path": result}
        else:
            said = message.get("request") or {} if self.legacy and isinstance(message, dict) else message
            body = said if isinstance(said, bytes) else written(said)
            if len(body) > LINE_LIMIT:
                self.roster.emit(Replied(self.id, job, attempt, Outcome("refused", too_long(len(body)))))
                return
            order["length"] = len(body)
        self.errand, self.silent, self.log = (job, attempt, reply_path), None, log_path
        self.connection.order(body, **order)

    def stop(self, grace_s: float, why: str) -> None:
        """Stop the whole tree."""
        self.why = self.why or why
        self.parting.ask(grace_s, why)

    # What the keeper says

    def said(self, line: bytes) -> None:
        """One line of the keeper's."""
        said = json.loads(line)
        if "hello" in said:
            self._welcome(said)
        elif "re" in said:
            self._answer(said)
        else:
            self._event(said)

    def _welcome(self, status: dict[str, Any]) -> None:
        number = agreed(status.get("protocol"))
        if number is None:
            if not self.parting.foreign:
                text = f"its keeper, pid {self.pid}, speaks protocol {status.get('protocol')}"
                self.roster.emit(Failed(self.id, f"{text}, which this schedq does not; only signals can end it"))
            self.parting.foreign = True
            self.parting.tell()
            return
        self.connection.spoke = True
        self.connection.order(op="hello", protocol=number)
        self.parting.sent = bool(status["stopping"]) and (self.parting.sent or self.row is not None)
        missed = bool(status["answer"]) and not self.answered
        if status["answer"]:
            self.answered = True
            self.legacy = status["answer"]["protocol"] == "legacy"
        if self.row:
            row, self.row = self.row, None
            self._take_over(row, status)
        else:  # the connection was lost in between: what was missed is told, or asked for
            if missed:
                self.roster.emit(answered(self.id, {**status["answer"], **status}))
            self._attach()
        self.connection.let_go()
        unsent, self.unsent = self.unsent, None
        if unsent:
            unsent()
        self.parting.tell()

    def _attach(self) -> None:
        """Ask what became of the attempt that was sent."""
        if self.errand:
            self.connection.order(op="attach", job=self.errand[0], attempt=self.errand[1])

    def _take_over(self, row: Adopt, status: dict[str, Any]) -> None:
        """What the queue remembers and what the keeper says, brought together by events."""
        parked = status["state"] == "parked"
        if row.state == "parked" or (not row.keeper_pid and row.state != "retiring"):
            self.roster.emit(Shown(self.id, self.pid, self.started, status["boot_id"]))
        if parked != (row.state == "parked") and row.state != "retiring":
            self.stop(0.0, f"the queue remembers it {row.state}, its keeper says {status['state']}")
            return
        if status["answer"] and row.state != "gone":
            self.roster.emit(answered(self.id, {**status["answer"], **status}))
        if row.state in ("busy", "retiring"):
            self._attach()

    def _answer(self, said: dict[str, Any]) -> None:
        op = said["re"]
        if not said["ok"]:
            self.errand = None if op == "send" else self.errand
            self.roster.emit(Failed(self.id, f"{op}: {said['error']}"))
        elif op == "charge":
            self.roster.emit(Charged(self.id, said["charges"]))
        elif op == "attach":
            if said["is"] == "done":
                self._stored({**said, **said["how"]})
            elif said["is"] == "unknown" and self.errand and self.errand[:2] == (said["job"], said["attempt"]):
                self.errand = None
                self.roster.emit(Forgotten(self.id, said["job"], said["attempt"]))

    def _event(self, said: dict[str, Any]) -> None:
        event = said["event"]
        if event == "life" and not self.answered:
            self.roster.emit(Alive(self.id))
        elif event == "answered":
            self.answered = True
            self.legacy = said["protocol"] == "legacy"
            self.roster.emit(answered(self.id, said))
        elif event == "progress":
            self.roster.emit(progressed(self.id, said))
        elif event == "stored":
            self._stored(said)
        elif event == "dropped" and self.errand and self.errand[:2] == (said["job"], said["attempt"]):
            self.errand = None
            self.roster.emit(Failed(self.id, "the request did not reach the worker whole"))

    def _stored(self, said: dict[str, Any]) -> None:
        if self.errand and self.errand[:2] == (said["job"], said["attempt"]):
            self.errand = None
            self.silent = (said["job"], said["attempt"]) if said["no_reply"] else None
            if not said["no_reply"]:
                self.log = os.path.join(self.folder, "log")  # what it says from now on is no attempt's
            self.roster.emit(Stored(
                self.id, said["job"], said["attempt"], said["reply_path"], said["exit_code"], said["no_reply"],
                said["error"], said["exiting"], bool(said.get("untaken")), str(said.get("why") or ""),
            ))  # fmt: skip

    # The end

    def keeper_ended(self) -> None:
        """The keeper is gone: what it said last is heard, then the rest of its tree is ended."""
        self._unwatch_keeper()
        try:
            self._hear_rest()
        finally:
            self._bury()

    def _hear_rest(self) -> None:
        connection = self.connection
        while connection.sock and not self.closed:  # what it said before it left comes first
            before = connection.sock
            connection.hear(selectors.EVENT_READ)
            if connection.sock is before and not readable(before):
                break

    def _bury(self) -> None:
        if self.child:
            reap(self.pid)
            self.child = False
        self._gone()

    def _gone(self) -> None:
        if not self.closed:
            self.closed = True
            self.connection.hang_up()
            self._unwatch_keeper()
            self.parting.bury(0)

    def close(self) -> None:
        """Let go, when it has what it was told; the keeper lives on."""
        self.closed = True
        self.connection.finish()
        self._unwatch_keeper()
