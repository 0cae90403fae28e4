"""The programs that start things at boot, asked and told: systemctl, loginctl, crontab."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress

from scheduler.errors import SchedqError, Temporary
from scheduler.host import units

PATIENCE_S = 30.0


def asked(*words: str, given: str | None = None) -> tuple[int, str, str]:
    """What a program answers: its exit status, stdout and stderr. Temporary if it does not end, 127 if it is not there.

    It speaks English, and finds the user's systemd also where the login did not say where that is.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    env = {**os.environ, "LC_ALL": "C", "XDG_RUNTIME_DIR": runtime, "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    try:
        done = subprocess.run(
            words, input=(given or "").encode("utf-8", "surrogateescape"), env=env, capture_output=True,
            timeout=PATIENCE_S, cwd="/",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Temporary(f"{' '.join(words)} has not ended in {PATIENCE_S:.0f} s; nothing more was done") from None
    except OSError as error:
        return 127, "", f"{words[0]}: {error.strerror}"
    out, said = (each.decode("utf-8", "surrogateescape") for each in (done.stdout, done.stderr))
    return done.returncode, out, said


def no_systemd() -> str:
    """Why no user unit can be installed here, in words; "" if one can."""
    if shutil.which("systemctl") is None:
        return "there is no systemctl"
    code, _, said = asked("systemctl", "--user", "show-environment")
    return f"systemd --user does not answer ({_last(said) or f'exit {code}'})" if code else ""


def lingers(user: str) -> bool:
    """Whether the user's systemd stays after the last logout, and comes with the machine."""
    code, said, _ = asked("loginctl", "show-user", user, "--property=Linger")
    if code == 0 and said:
        return "Linger=yes" in said.split()
    return os.path.exists(f"/var/lib/systemd/linger/{user}")


def user_folder() -> str:
    """Where the user's own units lie."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "systemd", "user")


def read(path: str) -> str | None:
    """A unit's text, None if there is none. SchedqError if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SchedqError(f"{path} cannot be read: {error.strerror}") from None


def put(path: str, text: str) -> None:
    """Write a unit, whole or not at all. SchedqError if that cannot be done."""
    aside = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(aside, "x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(aside)
        raise SchedqError(f"{path} cannot be written: {error.strerror}; nothing was installed") from None


def told_systemd(*words: str) -> None:
    """Give the user's systemd an order. SchedqError with its words if it refuses."""
    code, out, said = asked("systemctl", "--user", *words)
    if code:
        raise SchedqError(f"systemctl --user {' '.join(words)}: {_last(said or out) or f'exit {code}'}")


def answered(*words: str) -> str:
    """What systemctl says in one word, like enabled or active; "unknown" if it says nothing."""
    return (asked("systemctl", *words)[1].splitlines() or ["unknown"])[0]


def crontab() -> str | None:
    """The user's crontab, "" if it has none; None if there is no such program. SchedqError if it cannot be read."""
    if shutil.which("crontab") is None:
        return None
    code, out, said = asked("crontab", "-l")
    if code == 0:
        return out
    if "no crontab" in said.lower() or "no such file" in said.lower():
        return ""
    raise SchedqError(f"crontab -l: {_last(said) or f'exit {code}'}; nothing was changed")


def change_crontab(home: str, line: str) -> bool:
    """Let the user's crontab have this line for the queue, or none if it is ""; whether that changed it.

    SchedqError if it cannot be read or written, or there is no crontab.
    """
    before = crontab()
    if before is None:
        raise SchedqError("there is no crontab here; nothing was changed")
    if units.ours(before, home) == line:
        return False
    after = units.without(before, home) + (f"{line}\n" if line else "")
    code, _, said = asked("crontab", "-", given=after)
    if code:
        raise SchedqError(f"crontab refused the line: {_last(said) or f'exit {code}'}; it is as it was")
    return True


def undone_by(undo: Callable[[], None], *orders: tuple[str, ...]) -> None:
    """Give the user's systemd these orders; if it refuses one, undo what was done and say why."""
    try:
        for words in orders:
            told_systemd(*words)
    except SchedqError as error:
        undo()
        raise type(error)(f"{error}; nothing was installed") from None


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1] if lines else ""
