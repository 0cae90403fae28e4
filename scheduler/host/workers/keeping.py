"""What a keeper does: states, orders, the worker that it starts, and the end of both."""

from __future__ import annotations

import os
import time

from scheduler.host.workers import lean, regular, tree
from scheduler.host.workers.child import reply_of, start
from scheduler.host.workers.door import Door, Peer
from scheduler.host.workers.errand import Errand
from scheduler.host.workers.knocking import Knocking
from scheduler.host.workers.protocol import CHUNK, MARK, PARKED_S, PROTOCOL, TOLD, claim_of, introduced
from scheduler.host.workers.published import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any
else:
    import _signal as signal

NEVER = float("inf")
ROOM_S = 60.0
"""How long a keeper that is told to stop waits for room on the disk for the answer that it holds."""
LOOK_S = 10.0
"""How often it is looked whether orders can arrive and what is stored is found."""
LOST = "its folder was removed, or is another worker's by now"


class Keeper:
    """Everything one keeper knows: parked, starting, ready, busy, exiting; and whether it is stopping."""

    def __init__(self, claim: dict[str, str]) -> None:
        os.chdir("/")
        self.own_umask = os.umask(0o077)
        self.claim, self.folder, self.loop = claim, claim["folder"], lean.Loop(self.trouble)
        self.done: dict[tuple[int, int], dict[str, Any]] = {}
        self.order: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self.state, self.stopping, self.why, self.oneshot = "parked", False, "", False
        self.leader, self.started, self.pipe, self.kill_at, self.stopped_at = 0, 0.0, -1, NEVER, NEVER
        self.exit_code: int | None = None
        self.errand: Errand | None = None
        self.life_at, self.boot_id, self.served = 0.0, tree.boot_id(), None  # type: float, str, tuple[int, int] | None
        self.lock, self.home = tree.hold(self.folder), os.path.dirname(os.path.dirname(self.folder))
        self.queue = os.open(self.home, os.O_PATH | os.O_DIRECTORY)
        lean.prctl(lean.PR_SET_CHILD_SUBREAPER, 1)
        self.log = lean.Log(os.path.join(self.folder, "log"), 64 << 20, errors=True)
        ours, theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.loop.after("told", 0, lambda: self.stop(10.0, TOLD)))
        self.loop.watch(ours, lambda _: self.loop.after("reap", 0.0, self.reap) if os.read(ours, 512) else None)
        self.door = Door(self.loop, claim["control"], self.obey, self.status, self.emptied)
        self.emptied()
        why = f"parked for {PARKED_S:.0f} s, and nobody said go"
        self.loop.after("parked", PARKED_S, lambda: self.stop(0.0, why))
        self.loop.after("reachable", LOOK_S, self.reachable)

    def trouble(self, error: Exception) -> None:
        """One event that went wrong: a line of the log, and the worker's keeper goes on."""
        self.log.write(b"schedq keeper: " + lean.brief(error) + b"\n")

    def tried(self, act: Callable[[], object]) -> None:
        """A step after which others must come, whatever goes wrong in it."""
        try:
            act()
        except Exception as error:
            self.trouble(error)

    def kept(self) -> bool:
        """Whether the worker's folder is still the one that this keeper has locked."""
        return regular.inode(self.folder) == regular.inode(self.lock)

    def stands(self) -> bool:
        """Whether the queue is still the one that this keeper was started for."""
        return regular.inode(self.home) == regular.inode(self.queue)

    def emptied(self) -> None:
        """Nobody is connected: the queue itself may have gone."""
        self.loop.after("reachable", 0.0, self.reachable)

    def reachable(self) -> None:
        """See to it that orders can arrive. Without its folder nobody wants the worker."""
        self.loop.after("reachable", LOOK_S, self.reachable)
        if self.kept():
            self.door.reopen()
        elif not self.stopping:
            self.stop(self.order.get("stop_grace_s", 10.0), LOST)

    def record(self, name: str, value: object) -> None:
        """Write a file of the folder that is locked, wherever that is by now."""
        regular.put(name, lean.dumps(value), folder=self.lock)

    # Orders

    def obey(self, peer: Peer, order: dict[str, Any]) -> dict[str, Any] | None:
        """Carry out one order; what to answer beside ok."""
        op = order["op"]
        if op == "go":
            return self.go(order)
        if op == "send":
            return self.send(peer, order)
        if op == "charge":
            return show(order["charges"], self.log.write)
        if op == "attach":
            return self.attach((order["job"], order["attempt"]))
        if op == "stop":
            self.stop(float(order.get("grace_s", 10.0)), str(order.get("why", "")))
            return None
        return self.status() if op == "status" else {"error": f"no order {op!r}"}

    def status(self) -> dict[str, Any]:
        """All that a newcomer needs."""
        errand = self.errand
        return {
            "worker": int(self.claim["worker"]), "queue": self.claim["queue"], "pid": os.getpid(),
            "boot_id": self.boot_id, "state": self.state, "stopping": self.stopping, "oneshot": self.oneshot,
            "job": errand and errand.job, "attempt": errand and errand.attempt, "leader_pid": self.leader,
            "leader_started": self.started, "exit_code": self.exit_code, "answer": self.answer or None,
        }  # fmt: skip

    def attach(self, key: tuple[int, int]) -> dict[str, Any]:
        """What is known of an attempt."""
        if self.errand and (self.errand.job, self.errand.attempt) == key:
            return {"is": "running"}
        return {"is": "done", "how": self.done[key]} if key in self.done else {"is": "unknown"}

    def go(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """Spend the claim: start the worker; a oneshot is ready at once, its command comes with each send."""
        if self.state != "parked" or self.stopping:
            return {"error": f"go came to a keeper that is {'stopping' if self.stopping else self.state}"}
        self.loop.drop("parked")
        self.order, self.oneshot = order, order["mode"] == "oneshot"
        order["env"][MARK] = f"{self.claim['queue']}:{self.claim['worker']}"
        self.log.half = max(1, order.get("log_max", 64 << 20) // 2)
        shown = {key: order.get(key) for key in ("argv", "cwd", "socket", "mode")}
        self.record("spec.json", {**shown, "env_names": sorted(order["env"])})
        if self.oneshot:
            self.loop.after("answered", 0.0, lambda: self.answered({"protocol": PROTOCOL}))
        else:
            self.spawn(order["argv"], order["env"], order["cwd"])
            note = lambda text: self.log.write(f"schedq: {text}\n".encode())  # noqa: E731
            Knocking(self.loop, order["socket"], self.unanswered, note, self.answered)
        self.state = "starting"
        return None

    def send(self, peer: Peer, order: dict[str, Any]) -> dict[str, Any] | None:
        """Begin an attempt: its request follows on this connection, or its command is in the order."""
        peer.body, peer.errand = int(order.get("length", 0)), None
        if self.stopping or self.state != "ready":
            return {"error": f"the worker is {'stopping' if self.stopping else self.state}, not ready"}
        order["says_taken"] = self.answer.get("says_taken")
        show(order.get("charges") or {}, self.log.write)
        errand = Errand(self.loop, order, self.door.tell, self.settled, lambda: self.door.want(peer), self.stands)
        self.errand, self.state = errand, "busy"
        if self.oneshot:
            env = {**self.order["env"], **order.get("env", {})}
            try:
                self.spawn(order["argv"], env, order.get("cwd") or self.order["cwd"])
            except OSError as error:
                errand.settle(None, f"the command could not be started: {error.strerror}")
        else:
            peer.errand = self.errand
            self.errand.connect(self.order["socket"])
        return None

    def settled(self, errand: Errand, how: dict[str, Any]) -> None:
        """The attempt is over: remember its end for whoever attaches, and say so."""
        self.errand = None
        self.state = "ready" if self.state == "busy" else self.state
        if self.loop.pending("leave"):
            self.loop.after("leave", 0.0, self.leave)
        if not how:
            self.door.tell("dropped", job=errand.job, attempt=errand.attempt)
            return
        self.done[errand.job, errand.attempt] = how
        for key in list(self.done)[:-16]:
            del self.done[key]
        if how["exiting"] and self.exit_code is None:
            self.state = "exiting"
            self.loop.after("exiting", 10.0, lambda: self.stop(5.0, "it said that it leaves, and stayed"))
        self.door.tell("stored", job=errand.job, attempt=errand.attempt, **how)

    # The worker

    def spawn(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        """Start the leader in a session of its own, with its output on our pipe."""
        self.drop_pipe()
        self.exit_code, self.kill_at = None, NEVER
        self.leader, self.pipe = start(argv, env, cwd, self.order.get("umask", 0o022))
        self.loop.watch(self.pipe, lambda _: self.pump(16))
        stat = tree.stat_of(self.leader)
        self.started = stat.started if stat else 0.0
        leader = {"pid": self.leader, "started": self.started, "boot_id": self.boot_id}
        self.tried(lambda: self.record("leader.json", leader))
        self.door.tell("started", leader_pid=self.leader, leader_started=self.started)

    def pump(self, rounds: int) -> None:
        """Move output from the pipe to the log, and to the attempt's own while one runs."""
        for _ in range(rounds):
            if self.pipe < 0:
                return
            try:
                data = os.read(self.pipe, CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.drop_pipe()
                return
            self.log.write(data)
            if self.errand and self.errand.log:
                self.errand.log.write(data)
            if time.monotonic() > self.life_at:
                self.life_at = time.monotonic() + 1.0
                self.door.tell("life")

    def drop_pipe(self) -> None:
        """Nobody writes to it any more, or another command takes its place."""
        if self.pipe >= 0:
            self.loop.unwatch(self.pipe)
            os.close(self.pipe)
            self.pipe = -1

    def unanswered(self) -> bool:
        """Whether the worker still loads."""
        return self.state == "starting" and self.exit_code is None

    def answered(self, answer: dict[str, Any]) -> None:
        """It is ready."""
        if self.state == "starting" and not self.stopping:
            self.state, self.answer = "ready", introduced(answer)
            self.served = regular.inode(self.order.get("socket") or "")
            self.door.tell("answered", leader_pid=self.leader, leader_started=self.started, **self.answer)

    # The end: of the leader, of the tree, of the keeper

    def reap(self) -> None:
        """Bury every child; with none left, the worker is gone."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                return
            if pid == self.leader:
                self.leader_ended(os.waitstatus_to_exitcode(status))
        if self.leader and self.exit_code is not None:
            self.last_gone()

    def leader_ended(self, code: int) -> None:
        """Collect what it said last; who is left of its tree is stopped."""
        self.exit_code = code
        if self.kill_at == NEVER:
            self.tried(lambda: self.end_tree(self.order.get("stop_grace_s", 10.0)))
        self.tried(lambda: self.pump(64))
        if self.errand:
            self.errand.exit_code, self.errand.why = code, self.why
        if not self.oneshot:
            self.tried(self.write_exit)
            self.tried(self.hear_last)
        self.tried(lambda: self.door.tell("leader_exit", exit_code=code))

    def hear_last(self) -> None:
        """A reply that was given before death wins; without one the attempt is over."""
        while self.errand and self.errand.read():
            pass
        if self.errand:
            self.errand.settle(None, self.errand.cut or "the worker ended without a reply")

    def write_exit(self) -> None:
        """exit.json, for whoever asks when we are gone."""
        self.record("exit.json", {"exit_code": self.exit_code, "at": time.time(), "why": self.why})

    def last_gone(self) -> None:
        """No descendant is left: a command's reply is complete, a resident's keeper leaves."""
        self.leader, self.kill_at = 0, NEVER
        self.loop.drop("kill")
        self.tried(lambda: self.pump(1024))
        if self.oneshot and self.errand:
            self.errand.settle(reply_of(self.exit_code, self.errand.result_path))
        if self.stopping or not self.oneshot:
            self.leave()

    def stop(self, grace_s: float, why: str) -> None:
        """Ask, TERM, after the grace KILL, until nobody is left; told again, the earlier end counts."""
        first, self.stopping, self.why = not self.stopping, True, self.why or why
        self.stopped_at = min(self.stopped_at, time.monotonic())
        if not self.leader:
            self.loop.after("leave", 0.0, self.leave)
        elif first and self.state == "ready" and self.exit_code is None and grace_s > 0 and self.ask_to_leave():
            self.kill_at = time.monotonic() + grace_s
            self.loop.after("kill", grace_s, self.kill)
            self.loop.after("term", min(1.0, grace_s / 2), lambda: self.end_tree(grace_s))
        else:
            self.end_tree(grace_s)

    def ask_to_leave(self) -> bool:
        """The worker's own `shutdown`; whether it could be said."""
        try:
            self.parting = lean.unix_socket()
            self.parting.connect(self.order["socket"])
            self.parting.send(b'{"op": "shutdown"}\n')
        except OSError:
            return False
        return True

    def end_tree(self, grace_s: float) -> None:
        """TERM to everyone below, KILL when the grace is over."""
        self.kill_at = min(self.kill_at, time.monotonic() + grace_s)
        self.loop.after("kill", max(0.0, self.kill_at - time.monotonic()), self.kill)
        if grace_s > 0:
            tree.signal_all(tree.below(os.getpid()), signal.SIGTERM, signal.SIGCONT)

    def kill(self) -> None:
        """KILL, again and again: a tree that forks faster than it is read loses in the end."""
        self.loop.after("kill", 0.1, self.kill)
        tree.signal_all(tree.below(os.getpid()), signal.SIGKILL)

    def leave(self) -> None:
        """The last thing that a keeper does: its record, its sockets, its lock. An answer is stored before that."""
        if self.errand and self.errand.over and time.monotonic() < self.stopped_at + ROOM_S:
            self.loop.after("leave", 1.0, self.leave)
            return
        try:
            if self.oneshot and self.exit_code is None:
                self.exit_code = 0
            self.tried(self.write_exit)
            path = self.order.get("socket") or ""
            regular.unlink(path, regular.inode(path) if self.kept() else self.served)
            self.door.close()
        finally:
            os._exit(0)


def main(argv: list[str], kind: type[Keeper] = Keeper) -> None:
    """Read the claim, take the lock, and serve until the last process of the worker's tree has gone."""
    claim = claim_of(argv)
    if not claim or not {"worker", "queue", "control", "folder"} <= claim.keys():
        raise SystemExit(f"schedq keeper: not a claim: {argv}")
    keeper = kind(claim)
    while True:
        keeper.loop.turn()
