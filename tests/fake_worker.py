"""A real child with knobs, for the tests of everything above it: a worker that does one thing wrong at a time.

Run by a keeper as `PYTHON fake_worker.py KNOBS --socket PATH`. What a single request shall do is said in the
request: `{"do": "echo" | "sleep" | "die" | ...}`. Standard library only; knows nothing of the kit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

MIB = 1 << 20
STEP_MIB = 4
NEST = b"[" * 5000 + b"]" * 5000


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--allocate-mib", type=int, default=0, help="touched memory, held while it lives")
    parser.add_argument("--grow", default="", help="MIB:MIB_A_S, touched before it binds, at that rate")
    parser.add_argument("--bind-after-s", type=float, default=0.0)
    parser.add_argument("--never-bind", action="store_true")
    parser.add_argument("--never-answer", action="store_true", help="bind, then hang")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--grandchild", choices=("plain", "stubborn", "daemon"), default=None)
    parser.add_argument("--fork", type=int, default=0, help="so many forks, which share what is allocated")
    parser.add_argument("--exit", type=int, default=None, help="end with this code instead of serving")
    parser.add_argument("--say", default="", help="a line for stdout before anything else")
    parser.add_argument("--noise-mib", type=int, default=0, help="that much on stdout, as fast as it goes")
    parser.add_argument("--says-taken", action="store_true", help="promise `taken`, which only `take_and_die` says")
    parser.add_argument("--legacy", action="store_true", help="no protocol number; the request is the line")
    parser.add_argument("--late-free-s", type=float, default=0.0, help="live on that long after TERM")
    parser.add_argument("--deep", action="store_true", help="nest the answer to a ping too deep for anybody")
    parser.add_argument("--broken-pings", type=int, default=0, help="that many answers to a ping are no JSON")
    parser.add_argument("--hush", action="store_true", help="answer to shutdown, and stay")
    return parser.parse_args()


STUBBORN = (
    "import signal, time\n[signal.signal(s, signal.SIG_IGN) for s in (15, 1, 2)]\n"
    "print('grandchild', flush=True)\ntime.sleep(600)"
)
DAEMON = "import os,sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n" + STUBBORN


def grow(mib: float, mib_a_s: float) -> list[bytearray]:
    """Touched memory, so much a second."""
    held, began = [], time.monotonic()
    while len(held) * STEP_MIB < mib:
        held.append(bytearray(b"x" * (STEP_MIB * MIB)))
        time.sleep(max(0.0, began + len(held) * STEP_MIB / mib_a_s - time.monotonic()))
    return held


def start_grandchild(kind: str) -> None:
    code = {"plain": "import time; time.sleep(600)", "stubborn": STUBBORN, "daemon": DAEMON}[kind]
    subprocess.Popen([sys.executable, "-c", code])


class Worker:
    def __init__(self, knobs: argparse.Namespace) -> None:
        self.knobs = knobs
        self.busy: dict[str, Any] | None = None
        self.served = 0

    def serve(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.knobs.socket)
        listener.listen(8)
        while True:
            connection, _ = listener.accept()
            if not self.knobs.never_answer:
                threading.Thread(target=self.hear, args=(connection,), daemon=True).start()

    def hear(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            line = file.readline()
            if not line.endswith(b"\n"):
                return
            message = json.loads(line)
            op = message.get("op")
            if op == "ping" and self.knobs.broken_pings > 0:
                self.knobs.broken_pings -= 1
                connection.sendall(b"{bad\n")
            elif op == "ping":
                about: dict[str, Any] = {"ok": True}
                if not self.knobs.legacy:
                    about.update(protocol=1, busy=self.busy, versions={"fake": "1"}, device="none", pid=os.getpid())
                if self.knobs.says_taken:
                    about["says_taken"] = True
                line = json.dumps(about).encode()
                connection.sendall((line[:-1] + b', "a": %s}' % NEST if self.knobs.deep else line) + b"\n")
                if self.knobs.deep:
                    connection.recv(1)  # until the other side has read it
                    print("hung up", flush=True)
            elif op == "shutdown":
                connection.sendall(b'{"ok": true}\n')
                if not self.knobs.hush:
                    os._exit(0)
            else:
                request = message if self.knobs.legacy else message["request"]
                self.busy = {"job": message.get("job"), "attempt": message.get("attempt")}
                self.do(connection, request, message)
                self.busy = None

    def do(self, connection: socket.socket, request: dict[str, Any], message: dict[str, Any]) -> None:
        what = request.get("do", "echo")
        self.served += 1

        def say(value: object) -> None:
            connection.sendall(json.dumps(value).encode() + b"\n")

        if request.get("progress"):
            for number in range(request["progress"]):
                say({"event": "progress", "done": number + 1, "total": request["progress"], "message": "step"})
        if request.get("print"):
            print(request["print"], flush=True)
        if what == "echo":
            say({"ok": True, "echo": request, "served": self.served})
        elif what == "sleep":
            time.sleep(request["s"])
            say({"ok": True, "slept": request["s"]})
        elif what == "grow":
            held = grow(request["mib"], request["mib_a_s"])
            time.sleep(request.get("then_s", 0.0))
            grown = len(held)
            del held  # given back before the reply, so that the next request begins without it
            say({"ok": True, "grown": grown})
        elif what == "wait_for":
            while not os.path.exists(request["path"]):
                time.sleep(0.005)
            say({"ok": True, "found": request["path"]})
            if "then_exit" in request:
                os._exit(request["then_exit"])
        elif what == "die":
            os.kill(os.getpid(), request.get("signal", signal.SIGKILL))
        elif what == "take_and_die":
            say({"event": "taken"})
            os._exit(1)
        elif what == "exit":
            os._exit(request["code"])
        elif what == "die_mid_reply":
            connection.sendall(b'{"ok": true, "half": "' + b"x" * request.get("bytes", 10))
            os._exit(1)
        elif what == "partial":
            connection.sendall(b'{"ok": true, "half"')
        elif what == "nothing":
            pass
        elif what == "noise":
            connection.sendall(b"this is not JSON\n")
        elif what == "bad_utf8":
            connection.sendall(b'{"ok": true, "x": "\xff\xfe' + b"y" * request.get("bytes", 0) + b'"}\n')
        elif what == "raw":
            connection.sendall(request["line"].encode() + b"\n")
            if request.get("then_echo"):
                say({"ok": True})
        elif what == "array":
            say([1, 2])
        elif what == "big":
            say({"ok": True, "big": "z" * request["bytes"], "got": len(json.dumps(message))})
        elif what == "reply_then_die":
            say({"ok": True, "last": True})
            os._exit(9)
        elif what == "exiting":
            say({"ok": False, "reason": "worker_exiting", "error": "tired", "exit_code": 4})
            os._exit(4)
        elif what == "print_mib":
            block = (b"n" * 127 + b"\n") * 8192
            for _ in range(request["mib"]):
                os.write(1, block)
            say({"ok": True})
        elif what == "env":
            say({"ok": True, "env": dict(os.environ), "cwd": os.getcwd()})


def main() -> None:
    knobs = options()
    if knobs.say:
        print(knobs.say, flush=True)
    held = bytearray(knobs.allocate_mib * MIB)
    for page in range(0, len(held), 4096):
        held[page] = 1
    grown = grow(*map(float, knobs.grow.split(":"))) if knobs.grow else []
    if knobs.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if knobs.late_free_s:

        def late(*_: object) -> None:
            time.sleep(knobs.late_free_s)
            os._exit(0)

        signal.signal(signal.SIGTERM, late)
    if knobs.grandchild:
        start_grandchild(knobs.grandchild)
    for _ in range(knobs.fork):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    if knobs.noise_mib:
        block = (b"n" * 127 + b"\n") * 8192
        for _ in range(knobs.noise_mib):
            os.write(1, block)
    if knobs.exit is not None:
        sys.exit(knobs.exit)
    time.sleep(knobs.bind_after_s)
    if knobs.never_bind:
        time.sleep(600)
    Worker(knobs).serve()
    del grown


if __name__ == "__main__":
    main()
