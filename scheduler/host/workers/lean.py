"""What a keeper stands on: JSON, sockets, a log that stays bounded, and a loop of one thread.

Python's own wrappers `socket`, `signal`, `json` and `ctypes` would be a third of a keeper's memory and half of
its start (E29), so their C parts are used as they are.
"""

from __future__ import annotations

import _ctypes
import _socket
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

READ, WRITE = select.POLLIN, select.POLLOUT
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

AGAIN_S = 1.0
"""When a timer whose callback failed is tried again."""

PAUSE_S = 0.05
"""How long the loop rests after a descriptor's callback failed: what stays readable must not take a whole core."""


class _Rules:
    """How the scanner reads: as `json.loads` does."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float
    memo: dict[str, str] = {}


def _parts() -> tuple[Callable[[str, int], Any], Any]:
    """The scanner and the encoders of the running interpreter: the second refuses what is no finite number."""
    try:
        import _json

        scan: Any = _json.make_scanner(_Rules)  # type: ignore[arg-type]
        how = (None, str, _json.encode_basestring_ascii, None, ": ", ", ", False, False)
        encode: Any = [_json.make_encoder(*how, nan) for nan in (True, False)]
        if scan("".join(encode[1]({"a": [1.5, None, "b"]}, 0)), 0)[0] == {"a": [1.5, None, "b"]}:
            return scan, encode
    except (ImportError, TypeError, ValueError, StopIteration):
        pass
    import json  # an interpreter whose inner parts are others

    return json.JSONDecoder().raw_decode, [json.JSONEncoder(allow_nan=nan).iterencode for nan in (True, False)]


_scan, _encode = _parts()


def loads(data: bytes) -> Any:
    """A JSON document; ValueError if it is none, not UTF-8, or nested too deep to be read."""
    text = data.decode().strip()
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except SystemError:  # up to Python 3.11, instead of the error's own class, while `json` is not loaded
        raise ValueError("it is no JSON") from None
    if end != len(text):
        raise ValueError("not one JSON document")
    return value


def fault(data: bytes) -> str:
    """What is wrong with a document that `loads` refused, with line and column where JSON has them."""
    import json  # a third of a keeper's memory, for the sake of the place

    try:
        json.loads(data.decode())
    except RecursionError:
        return "it is nested too deep"
    except ValueError as error:
        return str(error)
    return "it is no JSON"


def dumps(value: object, finite: bool = False) -> bytes:
    """The JSON of plain values, on one line; ValueError if they are nested too deep, or with `finite` hold a NaN."""
    try:
        return "".join(_encode[finite](value, 0)).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def brief(error: Exception) -> bytes:
    """An exception on one line, with the place that it comes from."""
    at, where = error.__traceback__, ""
    while at:
        code = at.tb_frame.f_code
        where, at = f"{os.path.basename(code.co_filename)}:{at.tb_lineno} {code.co_name}", at.tb_next
    return ascii(f"{type(error).__name__}: {error} ({where})")[1:1000].encode()


def prctl(option: int, value: int) -> None:
    """The system call of that name."""
    call = _ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl")  # type: ignore[arg-type]
    if _ctypes.call_function(call, (option, value, 0, 0, 0)):
        raise OSError(f"prctl {option} failed")


def die_with(parent: int, signum: int) -> None:
    """In a child, before its exec: it gets this signal when its parent ends, however that ends."""
    prctl(PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os._exit(128 + signum)


def unix_socket(fd: int | None = None) -> _socket.socket:
    """A new unix stream socket that never blocks, or that one."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC, 0, fd)
    sock.setblocking(False)
    return sock


def peer_of(sock: _socket.socket) -> tuple[int, int]:
    """Pid and uid of the other end, as the kernel knows them."""
    cred = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(cred[:4], sys.byteorder, signed=True), int.from_bytes(cred[4:8], sys.byteorder)


class Log:
    """A file that never takes more than `limit` bytes, its predecessor `.1` included; a full disk loses lines only."""

    def __init__(self, path: str, limit: int, errors: bool = False) -> None:
        self.path, self.half, self.errors = path, max(1, limit // 2), errors
        self._open()

    def _open(self) -> None:
        anew = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.fd = os.open(self.path, anew | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.fd).st_size
        if self.errors:
            os.dup2(self.fd, 2)

    def write(self, data: bytes) -> None:
        """Append, turning the file over when its half is full."""
        try:
            while data:
                if self.size >= self.half:
                    self._turn_over()
                done = os.write(self.fd, data[: self.half - self.size])
                self.size, data = self.size + done, data[done:]
        except OSError:
            pass

    def _turn_over(self) -> None:
        """The descriptor stays ours until there is another: its number must never be somebody else's."""
        try:
            os.replace(self.path, self.path + ".1")
        except FileNotFoundError:
            pass  # it was turned over before, and could not be opened then
        full = self.fd
        self._open()
        os.close(full)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.fd)


class Loop:
    """Descriptors and timers of one thread; a timer's name is its identity, set again it moves.

    With `trouble`, what a callback raises is told to it and the loop goes on; a timer that failed comes again.
    """

    def __init__(self, trouble: Callable[[Exception], object] | None = None) -> None:
        self._trouble = trouble
        self._poll = select.poll()
        self._watched: dict[int, Callable[[int], object]] = {}
        self._timers: dict[str, tuple[float, Callable[[], object]]] = {}

    def watch(self, fd: int, act: Callable[[int], object]) -> None:
        """Call `act` with what is possible whenever `fd` can be read."""
        self._watched[fd] = act
        self._poll.register(fd, READ)

    def want(self, fd: int, what: int) -> None:
        """Wait for these instead, if it is still watched."""
        if fd in self._watched:
            self._poll.modify(fd, what)

    def unwatch(self, fd: int) -> None:
        """Before it is closed."""
        if self._watched.pop(fd, None):
            self._poll.unregister(fd)

    def watches(self, fd: int) -> bool:
        """Whether that descriptor is watched."""
        return fd in self._watched

    def after(self, name: str, wait_s: float, act: Callable[[], object]) -> None:
        """Call `act` once, that much later."""
        self._timers[name] = (time.monotonic() + wait_s, act)

    def pending(self, name: str) -> bool:
        """Whether that timer runs."""
        return name in self._timers

    def drop(self, name: str) -> None:
        """Forget a timer."""
        self._timers.pop(name, None)

    def turn(self) -> None:
        """Do what is due, then wait for the next thing and do that."""
        now = time.monotonic()
        for name, timer in list(self._timers.items()):
            if timer[0] <= now and self._timers.get(name) is timer:
                del self._timers[name]
                if not self._went(timer[1]) and name not in self._timers:
                    self.after(name, AGAIN_S, timer[1])
        next_at = min((timer[0] for timer in self._timers.values()), default=None)
        wait_ms = None if next_at is None else max(0, int((next_at - time.monotonic()) * 1000) + 1)
        for fd, what in self._poll.poll(wait_ms):
            act = self._watched.get(fd)
            if act and not self._went(act, what):
                time.sleep(PAUSE_S)

    def _went(self, act: Callable[..., object], *what: int) -> bool:
        try:
            act(*what)
        except Exception as error:
            if self._trouble is None:
                raise
            self._trouble(error)
            return False
        return True
