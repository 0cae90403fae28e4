"""What is said to one keeper and heard from it: whole lines over a connection that comes again when it is lost.

All of its methods run on the roster's thread.
"""

from __future__ import annotations

import json
import selectors
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from scheduler.clock import monotonic_s
from scheduler.host.workers.protocol import CHUNK, LINE_LIMIT

if TYPE_CHECKING:
    from scheduler.host.workers.ward import Ward


def written(message: Any) -> bytes:
    """A request as JSON on one line: in ASCII, which any worker can read, or in UTF-8 where that would be too long."""
    line = json.dumps(message).encode()
    if len(line) > LINE_LIMIT:
        try:
            return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:  # half a character, which only an escape can hold
            return line
    return line


class Connection:
    """One ward's. `spoke`: the keeper has said hello, so that orders go out; until then they wait."""

    def __init__(self, ward: Ward) -> None:
        self.ward, self.selector = ward, ward.roster.selector
        self.sock: socket.socket | None = None
        self.spoke, self._heard = False, b""
        self._out: list[memoryview] = []
        self._waiting: list[bytes] = []

    def open(self, sock: socket.socket) -> None:
        """Begin to listen on a connection that was just made."""
        self.sock = sock
        self.selector.register(sock, selectors.EVENT_READ, (self.ward.id, self._listen))

    def order(self, body: bytes = b"", **order: Any) -> None:
        """Say it to the keeper, now or when it can be spoken to."""
        line = json.dumps(order).encode() + b"\n"
        if self.spoke:
            whole = [line + body] if len(body) < CHUNK else [line, body]  # a small request arrives whole or not at all
            self._out += [memoryview(part) for part in whole]
            self._flush()
        else:
            self._waiting += [line, body] if body else [line]

    def let_go(self) -> None:
        """Say what waited until the keeper could be spoken to."""
        waiting, self._waiting = self._waiting, []
        self._out += [memoryview(part) for part in waiting]
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out and self.sock:
                done = self.sock.send(self._out[0])
                if done == len(self._out[0]):
                    self._out.pop(0)
                else:
                    self._out[0] = self._out[0][done:]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # its end is seen by the pidfd, or the connection comes again
        if self.sock:
            what = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
            self.selector.modify(self.sock, what, (self.ward.id, self._listen))

    def _listen(self, what: int) -> None:
        """What goes wrong in hearing costs the connection, not the thread: it is made anew, later."""
        try:
            self.hear(what)
        except Exception:
            self.hang_up()
            self.ward.lost(1.0)
            raise

    def hear(self, what: int) -> None:
        """Take what has come, line by line; what goes wrong with one line is said of this worker."""
        if what & selectors.EVENT_WRITE:
            self._flush()
        if not what & selectors.EVENT_READ or not self.sock:
            return
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.hang_up()
            self.ward.lost(0.05)
            return
        self.ward.parting.word_at = monotonic_s()
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self.ward.roster.guard(self.ward.id, partial(self.ward.said, line))

    def hang_up(self) -> None:
        """The connection is over; what waited for one waits for the next."""
        if self.sock:
            self.selector.unregister(self.sock)
            self.sock.close()
        self.sock, self.spoke, self._heard = None, False, b""
        self._out.clear()

    def finish(self) -> None:
        """Say what is still to be said, for at most 2 s, and hang up."""
        if self.sock and self._out:
            self.sock.settimeout(2.0)
            try:
                for part in self._out:
                    self.sock.sendall(part)
            except OSError:
                pass
        self.hang_up()
