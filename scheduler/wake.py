"""Wake-ups instead of polling: how a client taps the scheduler on the shoulder, and is tapped back.

The scheduler listens on one unix datagram socket (`run/wake`). An empty datagram is a nudge; a JSON object is
a question (`{"op": "ping" | "watch" | "down" | "restart", ...}`) and is answered to the sender's address, an
abstract one that the kernel makes and that leaves nothing behind. Losing a datagram costs time, never a job.
Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import _socket  # the module `socket` costs 2 ms of imports
import json
import os
import select

from scheduler import locks
from scheduler.config import Paths
from scheduler.errors import Temporary

LONGEST_S = 1e6
"""Longer than this nobody waits at once: a poll's milliseconds have 31 bits."""

_DATAGRAMS = _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC


def heard(fds: list[int], timeout_s: float | None) -> bool:
    """Wait until one of these descriptors has something to say; False if none has within the time, None = any time.

    By poll: a program that has more than 1024 descriptors open may call us, and `select` knows no others.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else -int(-min(timeout_s, LONGEST_S) * 1000 // 1)))


def nudge(paths: Paths) -> bool:
    """Tell the scheduler that something changed; False if nobody listens. Never raises: it comes after the deed."""
    try:
        sock = _socket.socket(_socket.AF_UNIX, _DATAGRAMS)
    except OSError:
        return False
    try:
        sock.sendto(b"", paths.wake_socket)
        return True
    except OSError:
        return False
    finally:
        sock.close()


def scheduler_runs(paths: Paths) -> bool:
    """Whether a scheduler holds this queue's lock (a stopped one does too)."""
    return locks.is_held(paths.lock_scheduler)


def keep_vacant(paths: Paths) -> int | None:
    """A descriptor that keeps a scheduler from starting until `locks.let_go`; None if one runs.

    It shares the lock, so that whoever looks meanwhile finds no scheduler, as it is. OSError if there is no queue.
    """
    return locks.take(paths.lock_scheduler, shared=True, patience_s=0.0)


def remove_address(paths: Paths) -> None:
    """Remove what a scheduler that was killed had as its address; to be called with its place kept vacant."""
    try:
        os.unlink(paths.wake_socket)
    except FileNotFoundError:
        pass


class Line:
    """A client's end: ask the scheduler, and be told of jobs that change."""

    def __init__(self, paths: Paths) -> None:
        """Temporary if no socket can be had."""
        self.paths = paths
        try:
            self.sock = _socket.socket(_socket.AF_UNIX, _DATAGRAMS)
            self.sock.bind("")
        except OSError as error:
            raise Temporary(f"no socket to ask the scheduler by can be had: {error.strerror}; try again") from None

    def ask(self, timeout_s: float = 2.0, **question: object) -> dict[str, object] | None:
        """The scheduler's answer, or None if it is not there or did not answer in time."""
        if not self.say(**question):
            return None
        return self.hear(timeout_s)

    def say(self, **question: object) -> bool:
        """Send a question without waiting; False if nobody listens."""
        try:
            self.sock.sendto(json.dumps(question).encode(), self.paths.wake_socket)
            return True
        except OSError:
            return False

    def hear(self, timeout_s: float) -> dict[str, object] | None:
        """The next datagram from the scheduler within `timeout_s`, or None."""
        if not heard([self.sock.fileno()], max(0.0, timeout_s)):
            return None
        try:
            answer = json.loads(self.sock.recv(65536))
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def close(self) -> None:
        """Let go of the address."""
        self.sock.close()
