"""A keeper's control socket: who may come in, orders in, events out. What is spoken stands in protocol.py."""

from __future__ import annotations

import os

from scheduler.host.workers import regular
from scheduler.host.workers.lean import READ, WRITE, Loop, dumps, loads, peer_of, unix_socket
from scheduler.host.workers.protocol import CHUNK, HELD, ORDER_LIMIT, PROTOCOL, SPEAKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable
    from typing import Any

    from scheduler.host.workers.errand import Errand


class Peer:
    """One connection: what came in part, what is still to go out, and the request that is passing through."""

    def __init__(self, sock: _socket.socket) -> None:
        self.sock, self.fd, self.line, self.out = sock, sock.fileno(), b"", bytearray()
        self.spoke, self.body = False, 0
        self.errand: Errand | None = None


class Door:
    """The socket and its peers. `obey` answers an order; `status` is what a newcomer is told."""

    def __init__(
        self, loop: Loop, path: str, obey: Callable[[Peer, dict[str, Any]], dict[str, Any] | None],
        status: Callable[[], dict[str, Any]], emptied: Callable[[], None],
    ) -> None:  # fmt: skip
        self.loop, self.path, self.obey, self.status, self.emptied = loop, path, obey, status, emptied
        self.peers: dict[int, Peer] = {}
        self.listen()

    def listen(self) -> None:
        """Bind the path, 0600; SystemExit if a living process serves it."""
        if os.path.exists(self.path):
            if not unix_socket().connect_ex(self.path):
                raise SystemExit(f"schedq keeper: {self.path} is served by a living process")
            os.unlink(self.path)
        self.listener = unix_socket()
        self.listener.bind(self.path)
        self.mark = regular.inode(self.path)
        os.chmod(self.path, 0o600)
        self.listener.listen(16)
        self.loop.watch(self.listener.fileno(), self._accept)

    def reopen(self) -> None:
        """Bind anew if a cleaner of /tmp took the path."""
        if os.path.exists(self.path):
            return
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            self.loop.unwatch(self.listener.fileno())
            self.listener.close()
            self.listen()
        except OSError:
            pass

    def close(self) -> None:
        """Say what is still to be said, for at most a second each, and take the path away."""
        regular.unlink(self.path, self.mark)
        for peer in list(self.peers.values()):
            peer.sock.settimeout(1.0)
            self._flush(peer)

    def _accept(self, _: int) -> None:
        try:
            sock = unix_socket(self.listener._accept()[0])  # type: ignore[attr-defined]
        except OSError:
            return
        if peer_of(sock)[1] not in (0, os.getuid()):
            sock.close()
            return
        peer = self.peers[sock.fileno()] = Peer(sock)
        self.loop.watch(peer.fd, lambda what: self._hear(peer, what))
        self.say(peer, {"hello": "schedq-keeper", "protocol": PROTOCOL, **self.status()})

    def say(self, peer: Peer, message: dict[str, Any]) -> None:
        """To one peer; one that does not read misses progress first, then is let go and may come again."""
        if len(peer.out) > HELD and message.get("event") in ("progress", "life"):
            return
        if len(peer.out) > 16 * HELD:
            self.hang_up(peer)
            return
        peer.out += dumps(message) + b"\n"
        self._flush(peer)

    def tell(self, event: str, **more: Any) -> None:
        """To every peer that said hello."""
        for peer in list(self.peers.values()):
            if peer.spoke:
                self.say(peer, {"event": event, **more})

    def _flush(self, peer: Peer) -> None:
        try:
            while peer.out:
                del peer.out[: peer.sock.send(peer.out)]
        except BlockingIOError:
            pass
        except OSError:  # it hears no more; what it said before that is still to be read
            peer.out.clear()
        self.want(peer)

    def want(self, peer: Peer) -> None:
        """Wait for what the connection can take; a request that the worker does not read is not read on."""
        full = peer.errand is not None and len(peer.errand.out) > HELD
        self.loop.want(peer.fd, (0 if full else READ) | (WRITE if peer.out else 0))

    def hang_up(self, peer: Peer) -> None:
        """The connection is over; a request that it did not send whole was never asked."""
        if self.peers.pop(peer.fd, None):
            self.loop.unwatch(peer.fd)
            peer.sock.close()
            if peer.body and peer.errand:
                peer.errand.drop()
            if not self.peers:
                self.emptied()

    def _hear(self, peer: Peer, what: int) -> None:
        if what & WRITE:
            self._flush(peer)
        if not what & ~WRITE or not self.loop.watches(peer.fd):
            return
        try:
            data = peer.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(peer.line) > ORDER_LIMIT:
            self.hang_up(peer)
            return
        while data:
            if peer.body:
                piece, data = data[: peer.body], data[peer.body :]
                peer.body -= len(piece)
                if peer.errand:
                    peer.errand.forward(piece, whole=not peer.body)
                continue
            head, end, data = data.partition(b"\n")
            peer.line += head
            if end:
                line, peer.line = peer.line, b""
                self._answer(peer, line)
        self.want(peer)

    def _answer(self, peer: Peer, line: bytes) -> None:
        order: Any = None
        answer: dict[str, Any] | None
        try:
            order = loads(line)
            if order["op"] == "hello":
                peer.spoke = order.get("protocol") in SPEAKS
                answer = {} if peer.spoke else {"error": f"this keeper speaks protocols {SPEAKS[0]} and {SPEAKS[1]}"}
            elif not peer.spoke:
                answer = {"error": "say hello with your protocol number first"}
            else:
                answer = self.obey(peer, order) or {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        asked = order if isinstance(order, dict) else {}
        about = {key: asked[key] for key in ("job", "attempt") if isinstance(asked.get(key), int)}
        op = asked.get("op") if isinstance(asked.get("op"), str) else None
        self.say(peer, {"re": op, "ok": not answer.get("error"), **about, **answer})
