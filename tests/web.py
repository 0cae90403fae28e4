"""A web server on the loopback with knobs for what servers do to a download, and it keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Page:
    """What is answered for a path.

    `ends_after` bytes of an answer its connection ends, as often as `cuts` says; `holds_after` so many it says nothing
    more until `Web.go_on`. `ranges`: it can go on in the middle, `careless`: whichever version was asked for.
    `measured`: it says how long it is. `headers` are sent beside.
    """

    content: bytes = b""
    etag: str = '"one"'
    status: int = 200
    location: str = ""
    ranges: bool = True
    careless: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    measured: bool = True
    ends_after: int | None = None
    cuts: int = 10**6
    holds_after: int | None = None
    fails: int = 0


@dataclass
class Web:
    """The server: its address, its pages, what it was asked: (path, headers)."""

    address: str = ""
    pages: dict[str, Page] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    holds: threading.Event = field(default_factory=threading.Event)

    def page(self, path: str, content: bytes = b"", **knobs: Any) -> str:
        """Put a page; its address."""
        self.pages[path] = Page(content, **knobs)
        return self.address + path

    def ranges(self) -> list[str]:
        """The ranges that were asked for, "" for all."""
        return [headers.get("range", "") for _path, headers in self.asked]


@contextmanager
def served() -> Iterator[Web]:
    """A server until the block ends."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            web.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            page = web.pages.get(path, Page(status=404))
            if page.fails:
                page.fails -= 1
                self.send_error(503)
                return
            if page.location:
                self.send_response(page.status)
                self.send_header("Location", page.location)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if page.status != 200:
                self.send_error(page.status)
                return
            self._content(page)

        def _content(self, page: Page) -> None:
            begins, whole = 0, len(page.content)
            asked = self.headers.get("Range", "")
            same = page.careless or self.headers.get("If-Range", page.etag) == page.etag
            if asked and page.ranges and same:
                begins = int(asked.removeprefix("bytes=").rstrip("-"))
                if begins >= whole:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{whole}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begins}-{whole - 1}/{whole}")
            else:
                self.send_response(200)
            if page.measured:
                self.send_header("Content-Length", str(whole - begins))
            for name, value in page.headers.items():
                self.send_header(name, value)
            if page.etag:
                self.send_header("ETag", page.etag)
            self.end_headers()
            self._body(page, page.content[begins:])

        def _body(self, page: Page, body: bytes) -> None:
            if page.holds_after is not None:
                self.wfile.write(body[: page.holds_after])
                self.wfile.flush()
                web.holds.set()
                web.go_on.wait(60)
                body = body[page.holds_after :]
            if page.ends_after is not None and page.cuts:
                page.cuts -= 1
                body = body[: page.ends_after]
            try:
                self.wfile.write(body)
            except ConnectionError:
                pass
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    web.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
