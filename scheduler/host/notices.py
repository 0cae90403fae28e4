"""Who is told of events, and how: the operator's command, and a webhook. On a thread of its own, or at once.

An address and its headers may hold secrets, from `secrets.env` or the environment (`env:NAME`, `${NAME}`): they are
filled in when something is sent, and whatever is said of it afterwards has none of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from scheduler.clock import monotonic_s
from scheduler.config import Paths, Settings
from scheduler.errors import SchedqError
from scheduler.host import webhook
from scheduler.host.workers.environment import all_secrets
from scheduler.model.telling import COMMAND, URL, Notice, Told
from scheduler.settable import fault_of_url, origin_of

ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "XDG_RUNTIME_DIR", "DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR", "SCHEDQ_HOME",
)  # fmt: skip
"""What the command sees of the scheduler's environment."""

NAMED = {"event": "SCHEDQ_EVENT", "text": "SCHEDQ_TEXT", "batch": "SCHEDQ_BATCH", "slug": "SCHEDQ_SLUG"}
"""Parts of a notice that the command finds in its environment too, under these names."""

SAID_MOST, READ_MOST = 200, 1 << 16
"""What is shown of a command's last line, in letters; how much is read of what it said, in bytes."""

LOOK_S, FILE_MOST = 0.1, 16 << 20
"""How often it is looked at how much a command has said, and how many bytes of that are kept at most."""

PLACE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Receivers:
    """Who is to be told, of which events, how long each may take; seconds."""

    command: tuple[str, ...] = ()
    url: str = field(default="", repr=False)
    headers: tuple[str, ...] = field(default=(), repr=False)
    events: tuple[str, ...] = ()
    timeout_s: float = 10.0
    secrets: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Which of the two there are."""
        return ((COMMAND,) if self.command else ()) + ((URL,) if self.url else ())

    def described(self) -> list[str]:
        """Each of them, in words that hold no secret."""
        told = [f"the command {self.command[0]}"] if self.command else []
        return told + ([f"the webhook at {origin_of(self.url) or self.url}"] if self.url else [])


def receivers(settings: Settings, paths: Paths) -> Receivers:
    """Who is to be told, as the settings have it."""
    return Receivers(
        tuple(shlex.split(settings.text("notify_command"))), settings.text("notify_url"),
        settings.words("notify_headers"), settings.words("notify_on"), settings.seconds("notify_timeout"),
        paths.secrets,
    )  # fmt: skip


class Children:
    """The command that runs, so that it can be ended."""

    def __init__(self) -> None:
        self._gate, self._closed = threading.Lock(), False
        self._running: subprocess.Popen[bytes] | None = None

    def started(self, begin: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes] | None:
        """The process that `begin` starts; None once closed."""
        with self._gate:
            self._running = None if self._closed else begin()
            return self._running

    def close(self) -> None:
        """End what runs, and let nothing more be started."""
        with self._gate:
            self._closed = True
            if self._running is not None and self._running.poll() is None:
                _end(self._running)


class Notices:
    """Tells, on a thread that begins with the first notice. `wake` is called once each was tried."""

    def __init__(self, whom: Receivers, wake: Callable[[], None]) -> None:
        self._whom, self._wake = whom, wake
        self._line: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._over: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._children = Children()

    def wants(self, event: str) -> bool:
        """Whether anybody is to be told of such an event."""
        return bool(self._whom.names) and event in self._whom.events

    def tell(self, notice: Notice) -> None:
        """Tell everybody who has not been told of it."""
        self._line.put(notice)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="schedq-notices", daemon=True)
            self._thread.start()

    def over(self) -> list[Told]:
        """What became of those that were tried since this was asked."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._over.get_nowait())
        return found

    def close(self) -> None:
        """Tell nobody any more; what is under way is waited for by nobody, and tried again by the next scheduler."""
        self._children.close()

    def _work(self) -> None:
        while True:
            notice = self._line.get()
            try:
                told = tell(self._whom, notice, self._children)
            except Exception as error:  # of what was to be sent nothing may be said
                told = Told(notice.incident_id, notice.took, f"a fault of schedq: {type(error).__name__}")
            self._over.put(told)
            self._wake()


def tell(whom: Receivers, notice: Notice, children: Children | None = None) -> Told:
    """Tell everybody who has not been told of it, each within the time; what became of it."""
    took, errors = [name for name in notice.took if name in whom.names], []
    data = json.dumps(notice.body, ensure_ascii=False).encode("utf-8", "backslashreplace")
    for name in whom.names:
        if name in took:
            continue
        try:
            error = _run(whom, notice, data, children or Children()) if name == COMMAND else _post(whom, data)
        except Exception as fault:  # of what was to be sent nothing may be said
            why = fault.strerror if isinstance(fault, OSError) and fault.strerror else "a fault of schedq"
            error = f"the {'command' if name == COMMAND else 'webhook'} cannot be told: {type(fault).__name__}: {why}"
        if error:
            errors.append(error)
        else:
            took.append(name)
    return Told(notice.incident_id, tuple(took), "; ".join(errors))


def _run(whom: Receivers, notice: Notice, data: bytes, children: Children) -> str:
    """Run the command, never by a shell: "", or why it did not take the notice."""
    argv = whom.command
    env = {key: os.environ[key] for key in ENVIRONMENT if key in os.environ}
    env |= {name: str(notice.body[key]).replace("\0", "") for key, name in NAMED.items() if notice.body.get(key)}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(data)
        given.seek(0)
        fcntl.fcntl(said, fcntl.F_SETFL, fcntl.fcntl(said, fcntl.F_GETFL) | os.O_APPEND)

        def begin() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv, stdin=given, stdout=subprocess.DEVNULL, stderr=said, cwd="/", env=env, start_new_session=True
            )

        try:
            child = children.started(begin)
        except OSError as error:
            return f"{argv[0]} cannot be run: {error.strerror}"
        if child is None:
            return "the scheduler ended"
        if not _ended(child, said.fileno(), whom.timeout_s):
            _end(child)
            return f"{argv[0]} had not ended after {whom.timeout_s:g} s and was killed"
        code = child.wait()
        if code == 0:
            return ""
        how = f"exit {code}" if code > 0 else f"ended by signal {-code}"
        said.seek(max(0, said.seek(0, os.SEEK_END) - READ_MOST))
        last = said.read(READ_MOST).decode(errors="replace").strip().splitlines()[-1:]
        hidden = parts_of([*argv[1:], *_hidden(whom, {})])
        return f"{argv[0]}: {how}" + (f": {_open(last[0], hidden)[-SAID_MOST:]}" if last else "")


def _ended(child: subprocess.Popen[bytes], said: int, timeout_s: float) -> bool:
    """Whether a command ends in time. What it says meanwhile is thrown away once it is too much to be kept.

    Into a file, not a pipe: whom it leaves behind would be ended by writing to a pipe that nobody reads.
    """
    until_s = monotonic_s() + timeout_s
    while (left_s := until_s - monotonic_s()) > 0:
        with suppress(subprocess.TimeoutExpired):
            child.wait(min(left_s, LOOK_S))
            return True
        if os.fstat(said).st_size > FILE_MOST:
            os.ftruncate(said, 0)
    return False


def _post(whom: Receivers, data: bytes) -> str:
    """Send it to the webhook: "", or why that did not take it, without any secret."""
    try:
        known = _known(whom)
        url = filled(whom.url, known)
        headers = dict(_header(filled(each, known)) for each in whom.headers)
    except SchedqError as error:
        return str(error)
    if not origin_of(url).startswith("http"):
        return f"notify_url ({origin_of(whom.url)}) stands for no address, https://HOST/PATH"
    if fault := fault_of_url(url):
        return f"notify_url ({origin_of(whom.url)}) stands for no address that can be called: {fault}"
    if "@" in url.partition("://")[2].partition("/")[0]:
        return "notify_url has a name before its host; write it as a header, Authorization: Basic ..."
    hidden = [url, _past_host(url), *headers.values(), *_hidden(whom, known)]
    pieces = parts_of(hidden)
    return _open(webhook.post(url, headers, data, whom.timeout_s, lambda text: _open(text, pieces)), hidden)


def _known(whom: Receivers) -> dict[str, str]:
    """What `${NAME}` may stand for: secrets.env, then the environment. SchedqError if that file is open to others."""
    texts = (whom.url, *whom.headers)
    if not any("${" in text or text.startswith("env:") for text in texts):
        return {}
    there = os.path.lexists(whom.secrets)
    return {**os.environ, **(all_secrets(whom.secrets, "a setting names a secret") if there else {})}


def filled(text: str, known: Mapping[str, str]) -> str:
    """A text with each `${NAME}`, or the whole of `env:NAME`, replaced. SchedqError for a name that stands nowhere."""
    text = f"${{{text[4:]}}}" if text.startswith("env:") else text
    for name in PLACE.findall(text):
        if name not in known:
            raise SchedqError(f"{name} is neither in secrets.env nor in the scheduler's environment")
    return PLACE.sub(lambda found: known[found[1]], text)


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    if not value.strip().isprintable():
        raise SchedqError(f"the header {name} has a line break or control character")
    return name.strip(), value.strip()


def _hidden(whom: Receivers, known: Mapping[str, str]) -> list[str]:
    """Texts that may be secret: values that were filled in, what follows an address's host, headers."""
    names = {name for text in (whom.url, *whom.headers) for name in PLACE.findall(text)}
    if whom.url.startswith("env:"):
        names.add(whom.url[4:])
    found = [known[name] for name in names if name in known]
    for url in (whom.url, *found):
        rest = url.partition("://")[2]
        found += [_past_host(url), rest.partition("@")[0] if "@" in rest else ""]
    return found + [each.partition(":")[2].strip() for each in whom.headers]


def parts_of(hidden: list[str]) -> list[str]:
    """Each text, and each piece of it by itself, as it stands and as an address has it: a server may repeat any."""
    found = set(hidden)
    for text in hidden:
        _, slashes, rest = text.partition("://")
        pieces = re.split(r"[\s/?&=#:@,;'\"\\]+", rest.partition("/")[2] if slashes else text)
        found.update(form for piece in pieces for form in (piece, unquote(piece), quote(piece, safe="")))
    return sorted(found)


def _past_host(url: str) -> str:
    return url.partition("://")[2].partition("/")[2]


def _open(text: str, hidden: list[str]) -> str:
    """A text with what may be secret replaced."""
    for secret in sorted(filter(lambda each: len(each) > 3, hidden), key=len, reverse=True):
        text = text.replace(secret, "...")
    return text


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()
