"""One declared file, fetched from its address: in part beside its place until it is whole and what was declared.

What was fetched stays when a fetch is interrupted, and the next one goes on after it. Of two at once the second waits.
Redirects are followed, never from https to another kind; proxies are those of the environment.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
import urllib.error
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, BinaryIO, NoReturn
from urllib.parse import unquote, urlsplit

from scheduler.crash import crashpoint
from scheduler.errors import SchedqError, Temporary
from scheduler.host import addresses, held_part, named_files
from scheduler.host.workers import regular

Told = named_files.Told
Say = Callable[[str], None]
Row = dict[str, Any]

PATIENCE_S = 30.0
"""How long a server may say nothing."""

PAUSES_S = (0.5, 1.0, 2.0, 4.0)
"""How long is waited after each failure in a row; one more is the last."""

AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Answers of a server that may be another one in a moment."""


class _Whole(Exception):
    """The server has no more of a file than is here already."""


def fetch(
    row: Row, told: Told, checking: Told, say: Say, *, patience_s: float = PATIENCE_S,
    pauses_s: tuple[float, ...] = PAUSES_S,
) -> str:  # fmt: skip
    """Fetch one file to its place, a row of `named_files.state_of`; its sha256. Whatever file is there is replaced,
    unless another fetch has put there what is declared. A link stays: what it leads to is replaced.

    `told(bytes, of)` is called as it comes, `checking` as it is read again. Temporary (75): the network, the server or
    the disk stands in the way, and the same call goes on later. SchedqError (1): there is no such file, or it is not
    what is declared; nothing was put in place.
    """
    path, url = str(row["path"]), str(row["url"])
    fault = addresses.fault(url)
    if fault:
        raise SchedqError(f"{url} cannot be fetched: {fault}; correct its url in the manifest, or put it to {path}")
    row = {**row, "path": (path := os.path.realpath(path) if os.path.islink(path) else path)}
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            kind = named_files.kind_of(os.stat(path).st_mode)
            raise SchedqError(
                f"{path} is {kind}, and {url} is one file; remove it, or correct [[files]] in the manifest"
            )
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with held_part.alone(path, say) as part:
            fetch = _Fetch(row, part, (told, checking), say, patience_s, pauses_s)
            return fetch.in_place() or fetch.fetched()
    except OSError as error:
        raise _disk(path, error) from None


class _Fetch:
    """One fetch, its part held."""

    def __init__(
        self, row: Row, part: BinaryIO, told: tuple[Told, Told], say: Say, patience_s: float,
        pauses_s: tuple[float, ...],
    ) -> None:  # fmt: skip
        self.path, self.url, self.part, self.say = str(row["path"]), str(row["url"]), part, say
        self.told, self.checking = told
        self.bytes: int | None = row["bytes"]
        self.sha256: str | None = row["sha256"]
        self.was = str(row["state"])
        self.patience_s, self.pauses_s = patience_s, pauses_s
        self.beside = named_files.part_of(self.path)
        self.note = self.beside + ".json"
        self.have = os.fstat(part.fileno()).st_size
        self.known = self._noted()

    def in_place(self) -> str:
        """The sha256 of what lies in the place by now, if another fetch put it there and it is what is declared."""
        try:
            there = os.stat(self.path)
        except OSError:
            return ""
        if self.bytes is not None and there.st_size != self.bytes:
            return ""
        if self.sha256 is None and self.was not in (named_files.MISSING, named_files.PART, named_files.SHORT):
            return ""
        found = named_files.sha256_of(self.path, self.checking)
        if self.sha256 is not None and found != self.sha256:
            return ""
        self._forget()
        return found

    def fetched(self) -> str:
        """See it through: whole, checked, in place."""
        if not self._goes_on():
            self._begin_anew("")
        failures, have = 0, self.have
        while True:
            try:
                self._read_on()
                break
            except _Whole:
                break
            except (Temporary, HTTPException, TimeoutError, ConnectionError, urllib.error.URLError) as error:
                failures = failures + 1 if self.have <= have else 1
                have = self.have
                if failures > len(self.pauses_s):
                    raise Temporary(self._told_of(error)) from None
                time.sleep(self.pauses_s[failures - 1])
        return self._checked()

    def _goes_on(self) -> bool:
        """Whether what is there of it may be of this file."""
        fits = self.bytes is None or self.have <= self.bytes
        return bool(self.have) and fits and self.known.get("url") == self.url

    def _version(self) -> str:
        """What tells the version of the file that a server has: a strong ETag, or its time."""
        tag = str(self.known.get("etag") or "")
        return tag if tag and not tag.startswith("W/") else str(self.known.get("modified") or "")

    def _begin_anew(self, why: str) -> None:
        if why and self.have:
            self.say(f"{self.path}: {why}: from the beginning")
        self.part.truncate(0)
        self.have = 0

    def _read_on(self) -> None:
        """Take what is left of it. Raises what may be tried again, or SchedqError."""
        if self.have and not self._version() and not self.sha256:
            self._begin_anew("")  # nothing would tell that the rest is of another version
        if self.have and self.have == self.bytes:
            return
        source, total = self._opened()
        with source:
            self._refuse_unfit(total)
            self.part.seek(self.have)
            while block := self._block(source):
                self.have += self._written(block)
                self.told(self.have, total)
                crashpoint("file in part")
                if total is not None and self.have > total:
                    break
        if total is not None and self.have < total:
            raise ConnectionError(f"the connection ended after {self.have} of {total} bytes")

    def _block(self, source: Any) -> bytes:
        """What comes next; b"" at its end. Whatever fails in reading is a connection that failed."""
        try:
            return bytes(source.read1(named_files.CHUNK))
        except (TimeoutError, ConnectionError, HTTPException):
            raise
        except OSError as error:
            raise ConnectionError(error.strerror or str(error)) from None

    def _written(self, block: bytes) -> int:
        rest = memoryview(block)
        while rest:
            rest = rest[self.part.write(rest) :]
        return len(block)

    def _opened(self) -> tuple[Any, int | None]:
        """The file's content from where it goes on, and how many bytes it has whole, None = it does not say."""
        if self.url.startswith("file:"):
            return self._local()
        headers = {}
        if self.have:
            headers["Range"] = f"bytes={self.have}-"
            if self._version():
                headers["If-Range"] = self._version()
        try:
            answer = addresses.opened(self.url, headers, self.patience_s)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error)
        if answer.status != 200 and not (self.have and answer.status == 206):
            answer.close()
            raise SchedqError(
                f"{self.url}: it answers {answer.status} {answer.reason}, which is not the whole file; nothing was put "
                f"in place of {self.path}. Correct its url in the manifest"
            )
        if self.have and answer.status == 206 and self._is_another(answer.headers):
            answer.close()
            self._begin_anew("it is another version by now")
            return self._opened()
        length = answer.headers.get("Content-Length")
        total = int(length) if length and length.isascii() and length.isdecimal() else None
        if self.have and answer.status == 206:
            begins, _, whole = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
            if begins.partition("-")[0] != str(self.have):
                answer.close()
                raise Temporary("the server went on somewhere else than it was asked to")
            total = int(whole) if whole.isascii() and whole.isdecimal() else None
        elif self.have:
            self._begin_anew("it is another version by now, or its server cannot go on in the middle")
        if not self.have:
            self.known = {"url": self.url, **addresses.version_in(answer.headers)}
        regular.put(self.note, json.dumps(self.known).encode())
        return answer, total

    def _is_another(self, headers: Any) -> bool:
        """Whether the rest that a server gives is of another version: some give it whatever they were asked for."""
        now = addresses.version_in(headers)
        both = [(self.known.get(key), now[key]) for key in now if self.known.get(key) and now[key]]
        if both:
            return both[0][0] != both[0][1]
        return bool(self._version()) and not self.sha256

    def _local(self) -> tuple[Any, int | None]:
        place = unquote(urlsplit(self.url).path)
        try:
            source = open(place, "rb")  # noqa: SIM115
        except OSError as error:
            raise SchedqError(f"{self.url}: {error.strerror}; nothing was put in place of {self.path}") from None
        found = os.fstat(source.fileno())
        known = {"url": self.url, "modified": str(found.st_mtime_ns)}
        if self.have and self.known != known:
            self._begin_anew("its source changed")
        self.known = known
        regular.put(self.note, json.dumps(known).encode())
        source.seek(self.have)
        return source, found.st_size

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        code = error.code
        if code == 416 and self.have:
            if self.bytes is None and error.headers.get("Content-Range", "") == f"bytes */{self.have}":
                raise _Whole
            self._begin_anew("its server has less of it than is here")
            raise Temporary(f"{self.url}: {code} {error.reason}")
        if code in AGAIN:
            raise Temporary(f"{self.url}: {code} {error.reason}")
        remedy = "correct its url in the manifest"
        if code in (401, 403, 407):
            remedy = f"it wants a login: get it yourself, to {self.path}"
        raise SchedqError(f"{self.url}: {code} {error.reason}; {remedy}")

    def _refuse_unfit(self, total: int | None) -> None:
        """What cannot become the declared file, or cannot be held by the disk, is not begun."""
        if total is not None and self.bytes is not None and total != self.bytes:
            self._forget()
            raise SchedqError(
                f"{self.url} has {total} bytes, and {self.bytes} are declared: it is another file; nothing was put in "
                f"place of {self.path}. Correct [[files]] in the manifest, or its url"
            )
        whole = self.bytes if self.bytes is not None else total
        free = shutil.disk_usage(os.path.dirname(self.path)).free
        if whole is not None and whole - self.have > free:
            raise Full(
                f"{self.path} takes {(whole - self.have) / 2**30:.2f} GiB more, and its disk has "
                f"{free / 2**30:.2f} GiB free; free some and ask again: what was fetched stays"
            )

    def _checked(self) -> str:
        """Put it into its place if it is what is declared."""
        if self.bytes is not None and self.have != self.bytes:
            have = self.have
            self._forget()
            raise SchedqError(f"{self.url} gave {have} bytes, and {self.bytes} are declared; nothing was put in place")
        found = named_files.sha256_of(self.beside, self.checking)
        if self.sha256 is not None and found != self.sha256:
            self._forget()
            raise SchedqError(
                f"{self.url} has the sha256 {found}, and {self.sha256} is declared: it is another file, or was damaged "
                f"on the way; nothing was put in place of {self.path}. Ask again, or correct the manifest"
            )
        os.fsync(self.part.fileno())
        crashpoint("file whole")
        os.rename(self.beside, self.path)
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.note)
        return found

    def _noted(self) -> Row:
        try:
            found = json.loads(regular.content(self.note))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _forget(self) -> None:
        for path in (self.note, self.beside):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _told_of(self, error: Exception) -> str:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            reason = f"its server said nothing for {self.patience_s:g} s"
        kept = f"{self.have} bytes of it stay, and the same call goes on after them" if self.have else "ask again later"
        return f"{str(reason).removeprefix(self.url + ': ')} ({self.url}, for {self.path}); {kept}"


class Full(SchedqError):
    """The disk cannot hold the file: nothing that another try would change."""

    exit_code = Temporary.exit_code


def _disk(path: str, error: OSError) -> SchedqError:
    folder = os.path.dirname(path)
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    free_gib = shutil.disk_usage(folder).free / 2**30
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    text = f"{path} could not be written: {error.strerror} ({free_gib:.2f} GiB free there)"
    return Full(f"{text}; free some and ask again: what was fetched stays") if full else SchedqError(text)
