"""One program of an installation: run to its end, its words kept in a log, what matters of them said in ours."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO

from scheduler import clock
from scheduler.errors import SchedqError, Temporary
from scheduler.host import pip
from scheduler.host.workers import lean

Say = Callable[[str], None]

LOG = "install.log"
_STILL_S = 15.0
_LOOK_S, _DRAIN_S = 0.2, 1.0
"""How often is looked whether a program has ended, and how long what it left in its pipe is read after that."""
_LAST_LINES = 12
_SHOWN = 6
_LOGIN = re.compile(r"(?<=://)[^/\s]*@")
_NO_ROOM = ("No space left on device", "Errno 28", "Disk quota exceeded")
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
        self.now = self.offline = ""
        self.lacking: Callable[[], list[str]] = list

    def run(self, what: str, argv: list[str], environ: Mapping[str, str] | None = None) -> list[str]:
        """Run one program to its end; its lines. Raises what its failure means.

        `environ` is what it runs with, this process's own unless given. `offline`: where packages may come from then,
        and `lacking` says what else of the declared ones is not there.
        """
        started_s, lines = clock.monotonic_s(), []
        environ = pip.clean(os.environ) if environ is None else environ
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
            log.write("$ " + _without_login(" ".join(argv)) + "\n")
            try:
                assert child.stdout is not None
                for line in _lines(child.stdout, child.pid):
                    if line is None:
                        self.say(f"{self.slug}: still at {self.now or what} ({clock.monotonic_s() - started_s:.0f} s)")
                        continue
                    line = _without_login(line)
                    lines.append(line)
                    with contextlib.suppress(OSError):
                        log.write(f"{line}\n")
                        log.flush()
                    self._note(line, started_s)
            except BaseException:
                os.killpg(child.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
                raise
        if child.returncode != 0:
            raise self._failure(what, child.returncode, lines, environ)
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

    def _failure(self, what: str, code: int, lines: list[str], environ: Mapping[str, str]) -> SchedqError:
        text, said = "\n".join(lines), _last_said(lines)
        last = "\n  ".join(line for line in lines[-_LAST_LINES:] if line.strip())
        end = f"\n  {last}\nThe whole log: {self.log}"
        if any(word in text for word in _NO_ROOM):
            return Temporary(
                f"{self.slug}: a disk is full. Free: {pip.rooms(self.path, environ)}. Free some, or name other folders "
                f"in TMPDIR and PIP_CACHE_DIR, and ask again{end}"
            )
        if what == "pip" and "CERTIFICATE_VERIFY_FAILED" in said:
            return SchedqError(
                f"{self.slug}: the certificate of the package index is not trusted; PIP_CERT names the authorities of "
                f"your site{end}"
            )
        if what == "pip" and any(word in said for word in _NO_NETWORK):
            return Temporary(
                f"{self.slug}: the package index was not reached; ask again when the network is there{end}"
            )
        if code < 0:
            return Temporary(f"{self.slug}: {what} was killed by signal {-code}; ask again{end}")
        absent = next((line for line in lines if "No matching distribution found for" in line), None)
        if absent is not None:
            asked = absent.rpartition(" for ")[2]
            if self.offline:
                all_of = list(dict.fromkeys([asked.partition(" (")[0], *self.lacking()]))
                more = f" and {len(all_of) - _SHOWN} more" if len(all_of) > _SHOWN else ""
                return SchedqError(
                    f"{self.slug}: no wheel of {', '.join(all_of[:_SHOWN])}{more} for this Python and machine is in "
                    f"{self.offline}. Fetch what lacks where there is a network (python -m pip download -d wheels "
                    f"{shlex.join(all_of)}), bring the folder here, and name it: schedq install {self.slug} --offline "
                    f"--find-links wheels{end}"
                )
            return SchedqError(
                f"{self.slug}: the package index has no {asked} for this Python and machine; correct [env] in the "
                f"manifest, or choose another Python{end}"
            )
        return SchedqError(f"{self.slug}: {what} failed with exit {code}; correct [env] in the manifest{end}")


def _without_login(line: str) -> str:
    """A line without the names and passwords of its addresses."""
    return _LOGIN.sub("****@", line)


def _last_said(lines: list[str]) -> str:
    """What pip failed of: from its last error on; all that it said where that is a package that it found nowhere.

    What it warned of before, and got over, is not why it failed.
    """
    errors = [number for number, line in enumerate(lines) if line.startswith("ERROR")]
    if not errors or "No matching distribution found for" in lines[errors[-1]]:
        return "\n".join(lines)
    return "\n".join(lines[errors[-1] :])


def _lines(pipe: IO[bytes], pid: int) -> Iterator[str | None]:
    """The lines of a pipe as they come; None for every quiet stretch.

    They end with the child `pid`, which is not reaped: what it left running may hold the pipe for ever.
    """
    rest, heard_s, until_s = b"", clock.monotonic_s(), float("inf")
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while clock.monotonic_s() < until_s:
            is_heard = waiting.select(_LOOK_S)
            if until_s == float("inf") and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                until_s = clock.monotonic_s() + _DRAIN_S
            elif not is_heard and until_s < float("inf"):
                break
            if not is_heard:
                if clock.monotonic_s() - heard_s >= _STILL_S:
                    heard_s = clock.monotonic_s()
                    yield None
                continue
            heard_s = clock.monotonic_s()
            piece = os.read(pipe.fileno(), 65536)
            if not piece:
                break
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace")
