"""What a machine is told so that it starts a queue's scheduler by itself: a systemd unit, or a line of a crontab.

Texts only, quoted as systemd (systemd.service(5), systemd.syntax(7)) and crontab(5) read them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.config import DEFAULTS
from scheduler.errors import UsageError
from scheduler.settable import SECRET

MARK = "# schedq-service"
"""What is written begins with this, or ends with it in a crontab; what has it not is not ours."""

PLACES = ("SCHEDQ_HOME", "SCHEDQ_MANIFESTS", "SCHEDQ_ENVS")
CARRIED = (
    *PLACES, *(f"SCHEDQ_{key.upper()}" for key in DEFAULTS if key not in SECRET),
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "PYTHONPATH", "PATH", "LD_LIBRARY_PATH", "CUDA_HOME",
    "HF_HOME", "TORCH_HOME", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)  # fmt: skip
"""Variables that the scheduler gets as they are now: places and settings. None that may be a secret."""


LOOSE = frozenset(CARRIED[CARRIED.index("PYTHONPATH") + 1 :])

CRON_MOST = 990
"""Bytes of a line that every cron takes."""


@dataclass(frozen=True)
class Start:
    """How a queue's scheduler is started: the words without the verb, its environment, and as whom."""

    home: str
    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    user: str


def start_of(home: str, words: Sequence[str], environ: Mapping[str, str], user: str) -> Start:
    """How this schedq starts this queue. UsageError, naming it, for a word that no such text can hold."""
    env = tuple((name, environ[name]) for name in CARRIED if environ.get(name))
    for what, word in (("the queue's folder", home), *(("schedq's own path", each) for each in words), *env):
        if any(each < " " or each == "\x7f" or "\ud800" <= each <= "\udfff" for each in word):
            raise UsageError(
                f"{what} is {word!r}: what is started at boot can hold no control character, and nothing but UTF-8;"
                " choose another"
            )
    return Start(home, tuple(words), env, user)


def mark_of(home: str) -> str:
    """Eight hex digits that tell one queue's from another's."""
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:8]


def name_of(home: str) -> str:
    """The unit's name: schedq.service for the queue where a user has it by default, else with its mark."""
    usual = os.path.join(os.path.expanduser("~"), ".local", "state", "schedq")
    return "schedq.service" if home == os.path.abspath(usual) else f"schedq-{mark_of(home)}.service"


def unit(start: Start, *, system: bool) -> str:
    """A unit for systemd, as a whole file.

    KillMode=process and OOMPolicy=continue: whatever becomes of the scheduler, its workers are left alone. Of 2 and 3
    (a wrong setting, a database of a later version) waiting cures nothing.
    """
    there = [f"ConditionPathIsDirectory={_specified(start.home)}"] if _stands_bare(start.home) else []
    lines = [
        f"{MARK} {json.dumps(start.home)}",
        "[Unit]",
        f"Description=schedq, the scheduler of {_specified(start.home)} (a queue)",
        "Documentation=man:systemd.service(5)",
        f"RequiresMountsFor={quoted(start.home)}",
        *there,
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=simple",
        *([f"User={_specified(start.user)}"] if system else []),
        "WorkingDirectory=/",
        *(f"Environment={quoted(f'{name}={value}')}" for name, value in start.env),
        f"ExecStart={' '.join(_words(start))}",
        "KillMode=process",
        "OOMPolicy=continue",
        "Restart=on-failure",
        "RestartSec=10",
        "RestartPreventExitStatus=2 3",
        "",
        "[Install]",
        f"WantedBy={'multi-user' if system else 'default'}.target",
    ]
    return "\n".join(lines) + "\n"


def quoted(word: str) -> str:
    """One word as systemd reads it: within quotes, escaped, and with no % that it would expand."""
    return '"' + _specified(word.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _specified(text: str) -> str:
    return text.replace("%", "%%")


def _stands_bare(path: str) -> bool:
    """Whether a path can stand unquoted at the end of a line."""
    return path == path.strip() and not path.endswith("\\")


def _words(start: Start) -> list[str]:
    """The command. Arguments know $NAME, the program's own path does not: one with a $ is called through env."""
    program = ["/usr/bin/env"] if "$" in start.words[0] else []
    words = [*program, *start.words, "serve", "--supervised"]
    return [quoted(words[0]), *(quoted(word).replace("$", "$$") for word in words[1:])]


def home_of(text: str) -> str | None:
    """Which queue a unit's text was written for; None if we did not write it."""
    mark, _, rest = text.partition("\n")[0].partition(f"{MARK} ")
    try:
        home = json.loads(rest) if not mark else None
    except ValueError:
        return None
    return home if isinstance(home, str) else None


def cron_line(start: Start) -> str:
    """A line of a crontab, with its mark. UsageError if it has a backslash, which not all daemons read alike, or is
    too long."""
    log = os.path.join(start.home, "scheduler.log")
    env = [f"{name}={shlex.quote(value)}" for name, value in start.env]
    command = " ".join([*env, *(shlex.quote(word) for word in start.words), "up", ">>", shlex.quote(log), "2>&1"])
    if "\\" in command:
        raise UsageError("a path with a backslash cannot stand in a crontab; choose another folder for the queue")
    line = f"@reboot {command.replace('%', chr(92) + '%')} {cron_mark(start.home)}"
    if len(os.fsencode(line)) > CRON_MOST:
        raise UsageError(f"the line would have {len(line)} characters, and crontab takes {CRON_MOST}: shorten PATH")
    return line


def cron_mark(home: str) -> str:
    """How the line of a queue ends."""
    return f"{MARK} {mark_of(home)}"


def without(crontab: str, home: str) -> str:
    """A crontab without the line of this queue."""
    kept = [line for line in crontab.removesuffix("\n").split("\n") if not line.endswith(cron_mark(home))]
    return "".join(f"{line}\n" for line in kept) if crontab else ""


def ours(crontab: str, home: str) -> str:
    """The line of this queue in a crontab, "" if it has none."""
    return next((line for line in crontab.split("\n") if line.endswith(cron_mark(home))), "")


def differences(there: str, wanted: str) -> list[str]:
    """In which settings a unit, or a line of a crontab, differs from what would be written; empty if in none.

    By name. What shells set now one way and then another (LOOSE) is not looked at.
    """
    old, new = (_line_settings(text) if text.startswith("@reboot") else _settings(text) for text in (there, wanted))
    return sorted(name for name in (old.keys() | new.keys()) - LOOSE if old.get(name) != new.get(name))


def _settings(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "Environment":
            name, _, value = value.strip('"').partition("=")
        if value and not name.startswith("#"):
            found[name] = value
    return found


def _line_settings(line: str) -> dict[str, str]:
    words = shlex.split(line.partition(MARK)[0].replace("\\%", "%"))[1:]
    found: dict[str, str] = {}
    while words and words[0].partition("=")[0] in CARRIED:
        name, _, found[name] = words.pop(0).partition("=")
    return {**found, "command": " ".join(words)}
