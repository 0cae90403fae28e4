"""One POST of JSON to an address, within a time whatever the server does: silent, slow, endless, redirecting.

Certificates are verified, proxies are those of the environment. A redirect is followed only to the same host and with
the POST as it is (307, 308): what is sent is for that host alone. No error has the address in it, only its host. An
answer of 2xx is a notice that was taken: what follows it is not read.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from scheduler.clock import monotonic_s
from scheduler.settable import origin_of

if TYPE_CHECKING:
    import urllib.request

Hide = Callable[[str], str]

READ_BYTES, SAID_MOST, REDIRECTS = 1 << 16, 100, 3
AGENT = "schedq"


def post(url: str, headers: Mapping[str, str], data: bytes, timeout_s: float, hide: Hide = str) -> str:
    """Send it: "" once a server took it (2xx), or why none did. `hide`: what may be shown of a text of the server's.

    At the end of the time its connection is closed, and with that the thread that waits on it.
    """
    answer: list[str] = []
    line = Line()
    thread = threading.Thread(
        target=lambda: answer.append(_told(line, url, headers, data, timeout_s, hide)), name="schedq-webhook",
        daemon=True,
    )  # fmt: skip
    thread.start()
    thread.join(timeout_s)
    in_time = answer[:1]  # a connection that is cut looks like an answer's end
    line.close()
    return in_time[0] if in_time else f"{origin_of(url)} had not answered after {timeout_s:g} s"


class Line:
    """The connections of one POST, which somebody else can end: a socket's own time begins anew at every byte."""

    def __init__(self) -> None:
        self._gate, self._closed = threading.Lock(), False
        self._open: list[socket.socket] = []

    def opened(self, *where: Any, **more: Any) -> socket.socket:
        """A connection, as `socket.create_connection` makes it. TimeoutError once closed."""
        made = socket.create_connection(*where, **more)
        with self._gate:
            if self._closed:
                made.close()
                raise TimeoutError
            self._open.append(made.dup())  # what TLS wraps is another object
        return made

    def close(self) -> None:
        """End what is open, and let nothing more be opened."""
        with self._gate:
            self._closed = True
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._open.clear()


def _told(line: Line, url: str, headers: Mapping[str, str], data: bytes, timeout_s: float, hide: Hide) -> str:
    try:
        return _posted(line, url, headers, data, timeout_s, hide)
    except ValueError:  # it names what it was given
        return f"{origin_of(url)} is no address of a host"


def _posted(line: Line, url: str, headers: Mapping[str, str], data: bytes, timeout_s: float, hide: Hide) -> str:
    until_s, where = monotonic_s() + timeout_s, url
    for _ in range(REDIRECTS + 1):
        left_s = until_s - monotonic_s()
        if left_s <= 0:
            break
        code, said = _asked(line, where, headers, data, left_s, hide)
        if code not in (307, 308):
            return said
        if not said:
            return f"{origin_of(url)} redirects ({code}) without saying where"
        where = urljoin(where, said)
        if not _same_host(url, where):
            return f"{origin_of(url)} redirects to {origin_of(where) or 'no address'}, which is another host"
    return f"{origin_of(url)} redirects more than {REDIRECTS} times, or too slowly"


def _opener(line: Line) -> urllib.request.OpenerDirector:
    """Who makes requests over connections of that line."""
    import http.client
    import ssl
    import urllib.request

    def made(kind: type[http.client.HTTPConnection], *words: Any, **more: Any) -> http.client.HTTPConnection:
        connection: Any = kind(*words, **more)
        connection._create_connection = line.opened
        return connection  # type: ignore[no-any-return]

    class Plain(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(partial(made, http.client.HTTPConnection), req)

    class Safe(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            kind = partial(made, http.client.HTTPSConnection, context=ssl.create_default_context())
            return self.do_open(kind, req)

    class Stays(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), Plain(), Stays(), urllib.request.HTTPErrorProcessor(), Safe(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


def _asked(
    line: Line, url: str, headers: Mapping[str, str], data: bytes, timeout_s: float, hide: Hide
) -> tuple[int, str]:
    """One request: 0 and what `post` answers, or the code of a redirect that can be followed and where it leads."""
    import urllib.error
    import urllib.request

    host = origin_of(url)
    try:
        sent = {"Content-Type": "application/json", "User-Agent": AGENT, **headers}
        request = urllib.request.Request(url, data=data, headers=sent, method="POST")  # noqa: S310
        _opener(line).open(request, timeout=timeout_s).close()
        return 0, ""
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (301, 302, 303, 307, 308):
                where = error.headers.get("Location") or ""
                if error.code in (307, 308):
                    return error.code, where
                there = origin_of(urljoin(url, where)) or "no address"
                return 0, f"{host} redirects ({error.code}) to {there}; write the address that takes the POST itself"
            said = hide(" ".join(error.read(READ_BYTES).decode(errors="replace").split()))[:SAID_MOST]
            told = f"{host} answered {error.code} {hide(str(error.reason))[:SAID_MOST]}".rstrip()
            return 0, f"{told}: {said}" if said.isprintable() and said else told
    except urllib.error.URLError as error:
        return 0, f"{host} cannot be reached: {_why(error.reason)}"
    except Exception as error:
        return 0, f"{host} cannot be told: {_why(error)}"


def _why(error: object) -> str:
    from http.client import HTTPException

    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ValueError | HTTPException):  # it may name what it was given
        return type(error).__name__
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _same_host(one: str, other: str) -> bool:
    """Whether both are of one host and port, or the other one is that host by https."""
    first, second = urlsplit(one), urlsplit(other)
    if first.hostname != second.hostname:
        return False
    return (first.scheme, first.port) == (second.scheme, second.port) or (
        first.scheme == "http" and second.scheme == "https" and first.port is None and second.port is None
    )
