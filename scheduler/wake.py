"""Wake-ups instead of polling: how a client taps the scheduler on the shoulder, and is tapped back.

The scheduler listens on one unix datagram socket (`run/wake`). An empty datagram is a nudge; a JSON object is
a question (`{"op": "ping" | "watch" | "down" | "restart", ...}`) and is answered to the sender's address, an
abstract one that the kernel makes and that leaves nothing behind. Losing a datagram costs time, never a job.
Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import _socket  # the module `socket` costs 2 ms of imports
import fcntl
import json
import os
import select

from scheduler.config import Paths

_DATAGRAMS = _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC


def nudge(paths: Paths) -> bool:
    """Tell the scheduler that something changed; False if nobody listens."""
    sock = _socket.socket(_socket.AF_UNIX, _DATAGRAMS)
    try:
        sock.sendto(b"", paths.wake_socket)
        return True
    except OSError:
        return False
    finally:
        sock.close()


def scheduler_runs(paths: Paths) -> bool:
    """Whether a scheduler holds this queue's lock (a stopped one does too)."""
    try:
        fd = os.open(paths.lock_scheduler, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def take_away(paths: Paths) -> bool:
    """Remove the address of a scheduler that was killed; False, and nothing is removed, if one runs.

    Under the scheduler's own lock, so that the address of one that starts meanwhile is never meant.
    """
    try:
        fd = os.open(paths.lock_scheduler, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(paths.wake_socket)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


class Line:
    """A client's end: ask the scheduler, and be told of jobs that change."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.sock = _socket.socket(_socket.AF_UNIX, _DATAGRAMS)
        self.sock.bind("")

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
        ready, _, _ = select.select([self.sock], [], [], max(0.0, timeout_s))
        if not ready:
            return None
        try:
            answer = json.loads(self.sock.recv(65536))
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    def close(self) -> None:
        """Let go of the address."""
        self.sock.close()
