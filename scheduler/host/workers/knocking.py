"""Whether a worker answers: its own socket pinged until it does, and nobody else's answer counts."""

from __future__ import annotations

import os

from scheduler.host.workers import tree
from scheduler.host.workers.lean import Loop, loads, peer_of, unix_socket
from scheduler.host.workers.protocol import CHUNK, HELD

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable
    from typing import Any


class Knocking:
    """Pings `path` while an answer is `wanted`; `answered` is given it, `note` is told once who else serves there.

    Whatever is said there, or goes wrong in hearing it, it is asked again.
    """

    def __init__(
        self, loop: Loop, path: str, wanted: Callable[[], bool], note: Callable[[str], object],
        answered: Callable[[dict[str, Any]], object],
    ) -> None:  # fmt: skip
        self.loop, self.path, self.wanted, self.note, self.answered = loop, path, wanted, note, answered
        self.wait_s, self.noted = 0.005, False
        self._again()

    def _again(self) -> None:
        self.loop.after("knock", self.wait_s, self._knock)

    def _knock(self) -> None:
        if not self.wanted():
            return
        self.wait_s = min(0.1, self.wait_s * 1.5)
        self._again()
        sock = unix_socket()
        try:
            sock.connect(self.path)
            pid = peer_of(sock)[0]
            if pid not in [stat.pid for stat in tree.below(os.getpid())]:
                self._foreign(pid)
                raise ConnectionRefusedError
            sock.send(b'{"op": "ping"}\n')
        except OSError:
            sock.close()
            return
        heard = bytearray()
        self.loop.drop("knock")
        self.loop.watch(sock.fileno(), lambda _: self._hear(sock, heard))

    def _foreign(self, pid: int) -> None:
        if not self.noted:
            self.note(f"{self.path} is served by pid {pid}, which is not of this worker")
        self.noted = True

    def _hear(self, sock: _socket.socket, heard: bytearray) -> None:
        """What came for our ping: not yet a line, an answer, or nothing that counts."""
        answer: Any = None
        try:
            data = sock.recv(CHUNK)
            heard += data
            if data and b"\n" not in heard and len(heard) < HELD:
                return
            answer = loads(bytes(heard).partition(b"\n")[0])
        except Exception:  # whatever is wrong with what it says, that is no answer
            pass
        self.loop.unwatch(sock.fileno())
        sock.close()
        self._again()
        if isinstance(answer, dict) and answer.get("ok") is not False:
            self.answered(answer)
