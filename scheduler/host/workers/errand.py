"""One attempt on its way: the request to the worker, the reply to its file, both in pieces."""

from __future__ import annotations

import errno
import os
from codecs import getincrementaldecoder

from scheduler.host.workers import regular
from scheduler.host.workers.lean import READ, WRITE, Log, Loop, dumps, loads, unix_socket
from scheduler.host.workers.protocol import CHUNK, HELD, LINE_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable
    from typing import Any

CUT_S = 2.0
"""How long a connection's end waits for the worker's own, so that its exit status is in the answer (E24)."""

WAITS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
"""What an answer waits for to pass: room, and a filesystem that works. Anything else in its way is its end."""


class Errand:
    """The attempt in work. `tell` passes events on; `ended` is called once, with what `stored` says, or {} if dropped.

    It is `over` when its end is decided, by the first who does; until that is stored it is not `ended`. `taken`: the
    worker has begun with it, or says no such thing (`says_taken` in the order); `why`: what its keeper was stopped for.
    The keeper asks `settle` for the end of what it sees itself: a dead leader, a command's exit. Nothing is stored
    once the queue no more `stands` where it was.
    """

    def __init__(
        self, loop: Loop, order: dict[str, Any], tell: Callable[..., None],
        ended: Callable[[Errand, dict[str, Any]], None], moved: Callable[[], None], stands: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.loop, self._tell, self._ended, self._moved, self._stands = loop, tell, ended, moved, stands
        self.job, self.attempt, self.path = int(order["job"]), int(order["attempt"]), str(order["reply_path"])
        self.result_path: str = order.get("result_path") or ""
        self.log = Log(order["log_path"], order.get("log_max") or 64 << 20) if order.get("log_path") else None
        self.sock: _socket.socket | None = None
        self.out, self.over, self.exit_code = bytearray(), False, None  # type: bytearray, bool, int | None
        self._line, self._file, self._size, self._ends = b"", -1, 0, (b"", b"")
        self._utf8 = getincrementaldecoder("utf-8")()
        self._progress: dict[str, Any] = {}
        self._told, self._skips, self.cut = False, False, ""
        self.taken, self.why = not order.get("says_taken"), ""

    def connect(self, path: str) -> None:
        """Open the connection that the request and its reply take."""
        self.sock = unix_socket()
        try:
            self.sock.connect(path)
        except OSError as error:
            self.taken = False
            self.settle(None, f"the worker takes no connection: {error.strerror}")
            return
        self.loop.watch(self.sock.fileno(), self._hear)

    def forward(self, piece: bytes, whole: bool) -> None:
        """Part of the request; `whole` with the last one."""
        if not self.over:
            self.out += piece + b"\n" if whole else piece
            self._push()

    def _push(self) -> None:
        try:
            while self.out and self.sock:
                del self.out[: self.sock.send(self.out[:HELD])]
        except BlockingIOError:
            pass
        except OSError:  # it reads no more; what it said before that is still to be read
            self.out.clear()
        if self.sock and not self.cut:
            self.loop.want(self.sock.fileno(), READ | (WRITE if self.out else 0))
        self._moved()

    def _hear(self, what: int) -> None:
        if what & WRITE:
            self._push()
        if what & ~WRITE:
            self.read()

    def read(self) -> bool:
        """Take what the worker said so far; False when there is nothing more for now."""
        if self.over or not self.sock or self.cut:
            return False
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        try:
            self._take(data)
        except OSError as error:
            self.settle(None, f"the worker's reply could not be stored: {error.strerror}", errno=error.errno)
        except Exception as error:  # whatever a worker says, it is an answer
            self.settle(None, f"the worker's reply cannot be used: {error or type(error).__name__}")
        return bool(data) and not self.over

    def _take(self, data: bytes) -> None:
        """Small lines are read here, a long one goes to its file as it comes."""
        if not data and self.sock:
            where = "within its reply" if self._line or self._file >= 0 else "without a reply"
            self.cut = f"the worker closed the connection {where}"
            self.loop.unwatch(self.sock.fileno())
            self.loop.after("cut", CUT_S, lambda: self.settle(None, self.cut))
        while data and not self.over:
            head, end, data = data.partition(b"\n")
            self._line += head
            if self._skips or (self._file < 0 and len(self._line) > CHUNK and _is_event(self._line)):
                self._line, self._skips = b"", not end
                continue
            if self._file >= 0 or len(self._line) > CHUNK:
                self._spill(self._line, bool(end))
                self._line = b""
                if end:
                    self.settle(None)
            elif end:
                line, self._line = self._line, b""
                if line.strip():
                    self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        said, self.taken = loads(line), True
        if not isinstance(said, dict):
            raise ValueError("not a JSON object")
        if "event" not in said or "ok" in said:
            self.settle(line, exiting=bool(said.get("exiting")) or said.get("reason") == "worker_exiting")
            return
        if said["event"] == "taken":
            return
        told = {key: said.get(key) for key in ("done", "total", "message")}
        self._progress = {key: v if isinstance(v, str | int | float) else None for key, v in told.items()}
        if not self._told:
            self._pass_on()
        elif not self.loop.pending("progress"):
            self.loop.after("progress", 0.1, self._pass_on)

    def _pass_on(self) -> None:
        """The latest progress line, ten times a second at most."""
        if not self.over:
            self._told = True
            self._tell("progress", job=self.job, attempt=self.attempt, **self._progress)

    def _spill(self, data: bytes, final: bool) -> None:
        """Add part of a long reply to its file. ValueError says what is wrong with the reply."""
        self._size += len(data)
        if self._size > LINE_LIMIT:
            raise ValueError(f"longer than {LINE_LIMIT} bytes; write files to its out folder instead")
        self._utf8.decode(data, final)
        self._ends = (self._ends[0] or data.lstrip()[:1], data.rstrip()[-1:] or self._ends[1])
        self._write(data)
        if final and self._ends != (b"{", b"}"):
            raise ValueError("not a JSON object")

    def _write(self, data: bytes) -> None:
        if self._file < 0:
            self._file = self._made()
        while data:
            data = data[os.write(self._file, data) :]

    def settle(self, reply: bytes | None, error: str = "", exiting: bool = False, **more: Any) -> None:
        """Decide how the attempt ended: by its reply (None = already in the file), or by why there is none."""
        if not self.over:
            try:
                self._hang_up()
            finally:
                self._store(reply, error, exiting, more)

    def _made(self) -> int:
        """The file that becomes the reply's; its folder is made again if it was taken away."""
        try:
            return regular.made(self.path + ".tmp")
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            return regular.made(self.path + ".tmp")

    def _store(self, reply: bytes | None, error: str, exiting: bool, more: dict[str, Any]) -> None:
        """Keep it by rename; with a full disk it is held until there is room, otherwise the end says what was wrong."""
        if error:
            end = {"untaken": not self.taken, "why": self.why}
            reply = dumps({"ok": False, "no_reply": True, "error": error, "exit_code": self.exit_code, **end, **more})
        try:
            if not self._stands():
                raise FileNotFoundError(errno.ENOENT, "the queue was removed")
            self._keep(reply)
        except OSError as trouble:
            if trouble.errno in WAITS:
                self.loop.after("settle", 1.0, lambda: self._store(reply, error, exiting, more))
                self._tell("waiting", job=self.job, attempt=self.attempt, error=f"{self.path}: {trouble.strerror}")
                return
            error = f"the reply could not be stored: {self.path}: {trouble.strerror}"
        except Exception as trouble:
            error = f"the reply could not be stored: {trouble or type(trouble).__name__}"
        self._end({
            "reply_path": self.path, "no_reply": bool(error), "error": error, "exiting": exiting,
            "exit_code": self.exit_code, "untaken": not self.taken, "why": self.why,
        })  # fmt: skip

    def _keep(self, reply: bytes | None) -> None:
        if reply is not None:
            if self._file >= 0:
                os.ftruncate(self._file, 0)
                os.lseek(self._file, 0, os.SEEK_SET)
            self._write(reply)
        if regular.inode(self.path + ".tmp") != regular.inode(self._file):
            self._renew()
        os.replace(self.path + ".tmp", self.path)

    def _renew(self) -> None:
        """What is written has lost its name: it is copied to a file that has one."""
        new, done = self._made(), 0
        try:
            while size := os.fstat(self._file).st_size - done:
                done += os.sendfile(new, self._file, done, size)
        except BaseException:
            os.close(new)
            raise
        os.close(self._file)
        self._file = new

    def drop(self) -> None:
        """The request never arrived whole: nothing was asked, so there is nothing to answer for."""
        if not self.over:
            self._hang_up()
            self._end({})

    def _hang_up(self) -> None:
        """Nothing that the worker says or reads counts any more."""
        self.over = True
        self.loop.drop("cut")
        if self.sock:
            self.loop.unwatch(self.sock.fileno())
            self.sock.close()
        self.sock = None
        self.out.clear()
        self._moved()

    def _end(self, how: dict[str, Any]) -> None:
        files = [self._file] if self._file >= 0 else []
        files += [self.log.fd] if self.log else []
        self._file, self.log = -1, None
        for fd in files:
            try:
                os.close(fd)
            except OSError:
                pass
        try:
            os.unlink(self.path + ".tmp")
        except OSError:
            pass
        self._ended(self, how)


def _is_event(line: bytes) -> bool:
    """Whether a line that is too long to be read begins as an event does: it is no reply, and nothing of it counts."""
    return line.lstrip()[:1] == b"{" and line.lstrip()[1:64].lstrip().startswith(b'"event"')
