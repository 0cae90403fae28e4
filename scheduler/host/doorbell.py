"""The scheduler's end of the wake socket: nudges in, answers and news of jobs out (see scheduler/wake.py)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from scheduler.config import Paths
from scheduler.model.host import Asked, HostEvent, Nudged

log = logging.getLogger("schedq")

Address = bytes | str

_CREDENTIALS = struct.Struct("3i")
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "refused")
MAX_WATCHES = 16384
"""Some 3 MiB. Who waits asks again every few seconds, so the oldest are of those that ended without a word."""

AGAIN_S = 1.0
LOOK_S = 10.0
"""How often it is looked whether the address is still ours."""


class Doorbell:
    """Listens on one unix datagram socket, in a thread of its own, until it is closed."""

    def __init__(
        self, paths: Paths, emit: Callable[[HostEvent], None], about: Callable[[], dict[str, Any]],
        owned: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """`owned` says whether the lock that the scheduler holds is still this queue's."""
        self.paths = paths
        self.owned = owned
        self.emit = emit
        self.about = about
        self._watches: dict[tuple[int, Address], None] = {}
        self._jobs: dict[int, set[Address]] = {}
        self._askers: dict[Address, None] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._leave, self._left = os.pipe()
        self._sock = self._bound()
        self._thread = threading.Thread(target=self._listen, name="doorbell", daemon=True)

    def _bound(self) -> socket.socket:
        """A socket at the wake address. The scheduler's lock is held: whoever was bound there before is gone."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.setblocking(False)
        os.makedirs(self.paths.run, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.paths.wake_socket)
        sock.bind(self.paths.wake_socket)
        os.chmod(self.paths.wake_socket, 0o600)
        self._mark = os.stat(self.paths.wake_socket).st_ino
        return sock

    def _renew(self) -> None:
        """Bind anew if somebody (a cleaner of /tmp) took the address away; not where somebody else is served by now."""
        if not self.owned() or self._is_ours():
            return
        with contextlib.suppress(OSError):
            if os.path.lexists(self.paths.wake_socket) and self._is_served():
                return
        with contextlib.suppress(OSError):
            old, self._sock = self._sock, self._bound()
            old.close()

    def _is_ours(self) -> bool:
        """Whether the address is still the socket that was bound here."""
        try:
            return os.stat(self.paths.wake_socket).st_ino == self._mark
        except OSError:
            return False

    def _is_served(self) -> bool:
        """Whether a process listens at the address: the queue's folder was made anew, and has its own scheduler."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, contextlib.suppress(OSError):
            other.connect(self.paths.wake_socket)
            return True
        return False

    def open(self) -> None:
        """Start to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening, take the address away, and tell whoever asked this scheduler to go what it went for."""
        self._closing.set()
        if self._is_ours():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.paths.wake_socket)
        os.close(self._left)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._leave)
        for address in self._askers:
            self._answer(address, {"left": self.about().get("leaving")})
        self._sock.close()

    def __len__(self) -> int:
        """How many watches are kept: one for each job and each address that is to be told of it."""
        return len(self._watches)

    def tell(self, job_id: int, state: str) -> None:
        """Send a job's new state to whoever watches it; a watcher that is gone is forgotten, a job that ended too."""
        with self._lock:
            addresses = list(self._jobs.get(job_id, ()))
        gone = {address for address in addresses if not self._answer(address, {"job": job_id, "state": state})}
        with self._lock:
            for address in addresses if state in ENDED else ():
                self._forget((job_id, address))
            for watch in [each for each in self._watches if each[1] in gone] if gone else ():
                self._forget(watch)

    def _watch(self, jobs: list[int], address: Address) -> int:
        """Keep who is to be told of these jobs; how many were kept. The oldest watches go when it is full."""
        kept = dict.fromkeys(jobs[:MAX_WATCHES])
        with self._lock:
            for job in kept:
                self._forget((job, address))
                if len(self._watches) >= MAX_WATCHES:
                    self._forget(next(iter(self._watches)))
                self._watches[job, address] = None
                self._jobs.setdefault(job, set()).add(address)
        return len(kept)

    def _forget(self, watch: tuple[int, Address]) -> None:
        """Drop one watch, if it is there; with the lock held."""
        if watch not in self._watches:
            return
        del self._watches[watch]
        job, address = watch
        self._jobs[job].discard(address)
        if not self._jobs[job]:
            del self._jobs[job]

    def _answer(self, address: Address, message: dict[str, Any]) -> bool:
        """Send to an address; False if nobody is there any more."""
        try:
            self._sock.sendto(json.dumps(message).encode(), socket.MSG_DONTWAIT, address)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _listen(self) -> None:
        while not self._closing.is_set():
            came = select.poll()
            came.register(self._sock, select.POLLIN)
            came.register(self._leave, select.POLLIN)
            if not came.poll(LOOK_S * 1000):
                self._renew()
                continue
            try:
                data, ancillary, _flags, address = self._sock.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                continue
            except OSError as error:
                if not self._closing.wait(AGAIN_S):
                    log.warning("the wake socket cannot be read (%s), trying again", error)
                    self._renew()
                continue
            if _sender(ancillary) not in (0, os.getuid()):
                continue
            try:
                self._hear(data, address)
            except Exception as error:  # whatever was sent: the next one is to be heard
                log.warning("a question to the scheduler was left out: %s: %s", type(error).__name__, error)

    def _hear(self, data: bytes, address: Address | None) -> None:
        if not data:
            self.emit(Nudged())
            return
        try:
            question = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(question, dict):
            return
        op, asked = question.get("op"), question.get("jobs")
        if op == "watch" and address:
            jobs = [job for job in asked if type(job) is int and job > 0] if isinstance(asked, list) else []
            self._answer(address, {"watching": self._watch(jobs, address)})
            self.emit(Nudged())
        elif op == "ping" and address:
            self._answer(address, self.about())
        elif op in ("down", "restart"):
            if address:
                self._askers[address] = None
                self._answer(address, {**self.about(), "leaving": op})
            self.emit(Asked(op, bool(question.get("now"))))


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            _pid, uid, _gid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            return int(uid)
    return -1
