"""One program of an installation: run to its end, its words kept in a log, what matters of them said in ours."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

from scheduler import clock
from scheduler.errors import SchedqError, Temporary
from scheduler.host.workers import lean

Say = Callable[[str], None]

LOG = "install.log"
_STILL_S = 15.0
_LAST_LINES = 12
_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "VIRTUAL_ENV")
_NO_NETWORK = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeoutError",
    "connection broken",
    "ConnectionResetError",
    "Temporary failure in name resolution",
    "Max retries exceeded",
    "Read timed out",
    "ProxyError",
    "Network is unreachable",
)


class Step:
    """The programs of one build, one after the other: their words in the log, what matters of them said."""

    def __init__(self, slug: str, path: str, lock: int, say: Say) -> None:
        self.slug, self.path, self.lock, self.say = slug, path, lock, say
        self.log = os.path.join(path, LOG)
        self.now = ""

    def run(self, what: str, argv: list[str]) -> list[str]:
        """Run one program to its end; its lines. Raises what its failure means."""
        started_s, lines = clock.monotonic_s(), []
        environ = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environ,
                cwd=self.path,
                umask=0o022,
                pass_fds=(self.lock,),
                process_group=0,
                preexec_fn=partial(lean.die_with, os.getpid(), signal.SIGKILL),
            )
        except OSError as error:
            raise SchedqError(f"{self.slug}: {argv[0]} could not be started: {error.strerror}") from None
        with child, open(self.log, "a", encoding="utf-8") as log:
            log.write("$ " + " ".join(argv) + "\n")
            try:
                assert child.stdout is not None
                for line in _lines(child.stdout):
                    if line is None:
                        self.say(f"{self.slug}: still at {self.now or what} ({clock.monotonic_s() - started_s:.0f} s)")
                        continue
                    lines.append(line)
                    with contextlib.suppress(OSError):
                        log.write(f"{line}\n")
                        log.flush()
                    self._note(line, started_s)
            except BaseException:
                os.killpg(child.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
                raise
        if child.returncode != 0:
            raise self._failure(what, child.returncode, lines)
        return lines

    def _note(self, line: str, started_s: float) -> None:
        """pip's progress in our words: what is fetched and installed, and since when."""
        words = line.strip().split(" ", 1)
        if len(words) < 2 or words[0] not in ("Collecting", "Downloading", "Installing", "Building"):
            return
        if words[0] == "Collecting":
            self.now = f"fetching {words[1].split(' (')[0]}"
        elif words[0] == "Downloading":
            name, _, size = words[1].partition(" (")
            self.now = f"fetching {name.rsplit('/', 1)[-1].split('-')[0]}" + (f", {size.rstrip(')')}" if size else "")
        elif words[1].startswith("collected packages: "):
            self.now = f"installing {words[1].partition(': ')[2]}"
        else:
            self.now = f"building {words[1].partition(' for ')[2] or words[1]}"
        if words[0] != "Collecting":
            self.say(f"{self.slug}: {self.now} ({clock.monotonic_s() - started_s:.0f} s)")

    def _failure(self, what: str, code: int, lines: list[str]) -> SchedqError:
        text = "\n".join(lines)
        last = "\n  ".join(line for line in lines[-_LAST_LINES:] if line.strip())
        end = f"\n  {last}\nThe whole log: {self.log}"
        if "No space left on device" in text or "Errno 28" in text or "Disk quota exceeded" in text:
            free_gib = shutil.disk_usage(self.path).free / 2**30
            return Temporary(
                f"{self.slug}: the disk of {self.path} is full ({free_gib:.2f} GiB free); free some and ask again{end}"
            )
        if what == "pip" and any(word in text for word in _NO_NETWORK):
            return Temporary(
                f"{self.slug}: the package index was not reached; ask again when the network is there{end}"
            )
        if code < 0:
            return Temporary(f"{self.slug}: {what} was killed by signal {-code}; ask again{end}")
        absent = next((line for line in lines if "No matching distribution found for" in line), None)
        if absent is not None:
            asked = absent.rpartition(" for ")[2]
            return SchedqError(
                f"{self.slug}: the package index has no {asked} for this Python and machine; correct [env] in the "
                f"manifest, or choose another Python{end}"
            )
        return SchedqError(f"{self.slug}: {what} failed with exit {code}; correct [env] in the manifest{end}")


def _lines(pipe: IO[bytes]) -> Iterator[str | None]:
    """The lines of a pipe as they come; None for every quiet stretch."""
    rest = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while True:
            if not waiting.select(_STILL_S):
                yield None
                continue
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                break
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace")
