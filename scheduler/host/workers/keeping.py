"""What a keeper does: states, orders, the worker that it starts, and the end of both."""

from __future__ import annotations

import os
import time

from scheduler.host.workers import lean, tree
from scheduler.host.workers.child import result_of, start
from scheduler.host.workers.door import Door, Peer
from scheduler.host.workers.errand import Errand
from scheduler.host.workers.protocol import CHUNK, HELD, MARK, PARKED_S, PROTOCOL, claim_of, introduced

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

NEVER = float("inf")
ROOM_S = 60.0
"""How long a keeper that is told to stop waits for room on the disk for the answer that it holds."""
TOLD = "its keeper was told to terminate"


class Keeper:
    """Everything one keeper knows: parked, starting, ready, busy, exiting; and whether it is stopping."""

    def __init__(self, claim: dict[str, str]) -> None:
        self.claim, self.folder, self.loop = claim, claim["folder"], lean.Loop(self.trouble)
        self.done: dict[tuple[int, int], dict[str, Any]] = {}
        self.order: dict[str, Any] = {}
        self.answer: dict[str, Any] = {}
        self.state, self.stopping, self.why, self.oneshot, self.noted = "parked", False, "", False, False
        self.leader, self.started, self.pipe, self.kill_at, self.stopped_at = 0, 0.0, -1, NEVER, NEVER
        self.exit_code: int | None = None
        self.errand: Errand | None = None
        self.wait_s, self.life_at, self.boot_id = 0.005, 0.0, tree.boot_id()
        tree.hold(self.folder)
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
        self.loop.after("reachable", 30.0, self.reachable)

    def trouble(self, error: Exception) -> None:
        """One event that went wrong: a line of the log, and the worker's keeper goes on."""
        self.log.write(b"schedq keeper: " + lean.brief(error) + b"\n")

    def emptied(self) -> None:
        """Nobody is connected: a parked keeper does not wait for ever."""
        if self.state == "parked":
            why = f"parked for {PARKED_S:.0f} s and nobody came"
            self.loop.after("parked", PARKED_S, lambda: self.stop(0.0, why))

    def reachable(self) -> None:
        """See to it that orders can arrive. Without its folder nobody wants the worker."""
        if os.path.isdir(self.folder):
            self.door.reopen()
        else:
            self.stop(10.0, "its folder was removed")
        self.loop.after("reachable", 30.0, self.reachable)

    # Orders

    def obey(self, peer: Peer, order: dict[str, Any]) -> dict[str, Any] | None:
        """Carry out one order; what to answer beside ok."""
        op = order["op"]
        if op == "go":
            return self.go(order)
        if op == "send":
            return self.send(peer, order)
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
        self.order, self.oneshot = order, order["mode"] == "oneshot"
        order["env"][MARK] = f"{self.claim['queue']}:{self.claim['worker']}"
        self.log.half = max(1, order.get("log_max", 64 << 20) // 2)
        shown = {key: order.get(key) for key in ("argv", "cwd", "socket", "mode")}
        lean.write_json(os.path.join(self.folder, "spec.json"), {**shown, "env_names": sorted(order["env"])})
        if self.oneshot:
            self.loop.after("answered", 0.0, lambda: self.answered({"protocol": PROTOCOL}))
        else:
            self.spawn(order["argv"], order["env"], order["cwd"])
            self.loop.after("knock", self.wait_s, self.knock)
        self.state = "starting"
        return None

    def send(self, peer: Peer, order: dict[str, Any]) -> dict[str, Any] | None:
        """Begin an attempt: its request follows on this connection, or its command is in the order."""
        peer.body, peer.errand = int(order.get("length", 0)), None
        if self.stopping or self.state != "ready":
            return {"error": f"the worker is {'stopping' if self.stopping else self.state}, not ready"}
        self.errand = Errand(self.loop, order, self.door.tell, self.settled, lambda: self.door.want(peer))
        self.state = "busy"
        if self.oneshot:
            env = {**self.order["env"], **order.get("env", {})}
            self.spawn(order["argv"], env, order.get("cwd") or self.order["cwd"])
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
        lean.write_json(os.path.join(self.folder, "leader.json"), leader)
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

    def knock(self) -> None:
        """Ping the worker's own socket; nobody else's answer counts."""
        if self.state != "starting" or self.exit_code is not None:
            return
        sock, heard, path = lean.unix_socket(), bytearray(), self.order["socket"]
        self.wait_s = min(0.1, self.wait_s * 1.5)
        try:
            sock.connect(path)
            pid = lean.peer_of(sock)[0]
            if pid not in [stat.pid for stat in tree.below(os.getpid())]:
                if not self.noted:
                    self.log.write(f"schedq: {path} is served by pid {pid}, which is not of this worker\n".encode())
                self.noted = True
                raise ConnectionRefusedError
            sock.send(b'{"op": "ping"}\n')
            self.loop.watch(sock.fileno(), lambda _: self.pong(sock, heard))
        except OSError:
            sock.close()
            self.loop.after("knock", self.wait_s, self.knock)

    def pong(self, sock: Any, heard: bytearray) -> None:
        """What came for our ping: not yet a line, an answer, or nothing that counts."""
        try:
            data = sock.recv(CHUNK)
            heard += data
            if data and b"\n" not in heard and len(heard) < HELD:
                return
            answer = lean.loads(bytes(heard).partition(b"\n")[0])
        except (OSError, ValueError):
            answer = None
        self.loop.unwatch(sock.fileno())
        sock.close()
        if isinstance(answer, dict) and answer.get("ok") is not False:
            self.answered(answer)
        else:
            self.loop.after("knock", self.wait_s, self.knock)

    def answered(self, answer: dict[str, Any]) -> None:
        """It is ready."""
        if self.state == "starting" and not self.stopping:
            self.state = "ready"
            self.answer = introduced(answer)
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
        self.pump(64)
        if self.errand:
            self.errand.exit_code = code
        if not self.oneshot:
            self.write_exit()
            while self.errand and self.errand.read():
                pass
            if self.errand:
                self.errand.settle(None, self.errand.cut or "the worker ended without a reply")
        self.door.tell("leader_exit", exit_code=code)
        if self.kill_at == NEVER:
            self.end_tree(self.order.get("stop_grace_s", 10.0))

    def write_exit(self) -> None:
        """exit.json, for whoever asks when we are gone."""
        record = {"exit_code": self.exit_code, "at": time.time(), "why": self.why}
        try:
            lean.write_json(os.path.join(self.folder, "exit.json"), record)
        except OSError:
            pass

    def last_gone(self) -> None:
        """No descendant is left: a command's reply is complete, a resident's keeper leaves."""
        self.pump(1024)
        if self.oneshot and self.errand:
            reply = {"oneshot": True, "exit_code": self.exit_code, **result_of(self.errand.result_path)}
            self.errand.settle(lean.dumps(reply))
        self.leader, self.kill_at = 0, NEVER
        self.loop.drop("kill")
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
        sock = lean.unix_socket()
        try:
            sock.connect(self.order["socket"])
            sock.send(b'{"op": "shutdown"}\n')
        except OSError:
            sock.close()
            return False
        self.parting = sock
        return True

    def end_tree(self, grace_s: float) -> None:
        """TERM to everyone below, KILL when the grace is over."""
        if grace_s > 0:
            tree.signal_all(tree.below(os.getpid()), signal.SIGTERM, signal.SIGCONT)
        self.kill_at = min(self.kill_at, time.monotonic() + grace_s)
        self.loop.after("kill", max(0.0, self.kill_at - time.monotonic()), self.kill)

    def kill(self) -> None:
        """KILL, again and again: a tree that forks faster than it is read loses in the end."""
        tree.signal_all(tree.below(os.getpid()), signal.SIGKILL)
        self.loop.after("kill", 0.1, self.kill)

    def leave(self) -> None:
        """The last thing that a keeper does: its record, its sockets, its lock. An answer is stored before that."""
        if self.errand and self.errand.over and time.monotonic() < self.stopped_at + ROOM_S:
            self.loop.after("leave", 1.0, self.leave)
            return
        if self.oneshot and self.exit_code is None:
            self.exit_code = 0
        self.write_exit()
        try:
            os.unlink(self.order.get("socket") or "")
        except OSError:
            pass
        self.door.close()
        os._exit(0)


def main(argv: list[str]) -> None:
    """Read the claim, take the lock, and serve until the last process of the worker's tree has gone."""
    claim = claim_of(argv)
    if not claim or not {"worker", "queue", "control", "folder"} <= claim.keys():
        raise SystemExit(f"schedq keeper: not a claim: {argv}")
    os.chdir("/")
    os.umask(0o077)
    keeper = Keeper(claim)
    while True:
        keeper.loop.turn()
