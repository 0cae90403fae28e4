"""The scheduler's end of the wake socket: nudges in, answers and news of jobs out (see scheduler/wake.py)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from scheduler.config import Paths
from scheduler.model.host import Asked, HostEvent, Nudged

_CREDENTIALS = struct.Struct("3i")
MAX_WATCHERS = 4096
LOOK_S = 10.0
"""How often it is looked whether the address is still ours."""


class Doorbell:
    """Listens on one unix datagram socket, in a thread of its own, until it is closed."""

    def __init__(self, paths: Paths, emit: Callable[[HostEvent], None], about: Callable[[], dict[str, Any]]) -> None:
        self.paths = paths
        self.emit = emit
        self.about = about
        self._watching: dict[int, set[bytes | str]] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._sock = self._bound()
        self._thread = threading.Thread(target=self._listen, name="doorbell", daemon=True)

    def _bound(self) -> socket.socket:
        """A socket at the wake address. The scheduler's lock is held: whoever was bound there before is gone."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.settimeout(LOOK_S)
        os.makedirs(self.paths.run, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.paths.wake_socket)
        sock.bind(self.paths.wake_socket)
        os.chmod(self.paths.wake_socket, 0o600)
        self._mark = os.stat(self.paths.wake_socket).st_ino
        return sock

    def _renew(self) -> None:
        """Bind anew if somebody (a cleaner of /tmp) took the address away."""
        with contextlib.suppress(OSError):
            if os.stat(self.paths.wake_socket).st_ino == self._mark:
                return
        with contextlib.suppress(OSError):
            old, self._sock = self._sock, self._bound()
            old.close()

    def open(self) -> None:
        """Start to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening and take the address away."""
        self._closing = True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.paths.wake_socket)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=2.0)
        self._sock.close()

    def tell(self, job_id: int, state: str) -> None:
        """Send a job's new state to whoever watches it; a watcher that is gone is forgotten."""
        with self._lock:
            addresses = list(self._watching.get(job_id, ()))
        for address in addresses:
            if not self._answer(address, {"job": job_id, "state": state}):
                with self._lock:
                    self._watching.get(job_id, set()).discard(address)
        if state in ("succeeded", "failed", "cancelled", "timed_out", "refused"):
            with self._lock:
                self._watching.pop(job_id, None)

    def _answer(self, address: bytes | str, message: dict[str, Any]) -> bool:
        try:
            self._sock.sendto(json.dumps(message).encode(), socket.MSG_DONTWAIT, address)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _listen(self) -> None:
        while True:
            try:
                data, ancillary, _flags, address = self._sock.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
            except TimeoutError:
                self._renew()
                continue
            except OSError:
                return
            if self._closing or (not data and not ancillary):
                return
            if _sender(ancillary) not in (0, os.getuid()):
                continue
            if not data:
                self.emit(Nudged())
                continue
            try:
                question = json.loads(data)
            except ValueError:
                continue
            if isinstance(question, dict):
                self._hear(question, address)

    def _hear(self, question: dict[str, Any], address: bytes | str) -> None:
        op = question.get("op")
        if op == "watch":
            jobs = [job for job in question.get("jobs", []) if isinstance(job, int)]
            with self._lock:
                for job in jobs:
                    if len(self._watching) < MAX_WATCHERS or job in self._watching:
                        self._watching.setdefault(job, set()).add(address)
            self._answer(address, {"watching": len(jobs)})
            self.emit(Nudged())
        elif op == "ping":
            self._answer(address, self.about())
        elif op in ("down", "restart"):
            self._answer(address, self.about())
            self.emit(Asked(op, bool(question.get("now"))))


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            _pid, uid, _gid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            return int(uid)
    return -1
