"""What `doctor` says of a queue itself: who serves it, its database, providers, settings, and what keeps failing.

Pure, as `health` is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.rules.figures import counted, span
from scheduler.rules.health import Finding

LONG_WAL = 64 << 20


@dataclass(frozen=True)
class Service:
    """Who holds the scheduler's lock and how; how many jobs wait; who is in the turnstile and how many wait for it.

    `answers`: it was heard of in time; None = it was not asked. `inside` is the pid of who was in the turnstile at two
    looks, one after the other.
    """

    runs: bool
    pid: int | None = None
    command: str = ""
    stopped: bool = False
    answers: bool | None = None
    waiting: int = 0
    inside: int | None = None
    inside_command: str = ""
    inside_stopped: bool = False
    in_line: int = 0


def service(found: Service) -> list[Finding]:
    """The scheduler's lock and the turnstile."""
    who = f"process {found.pid} ({found.command})" if found.pid else "a process that cannot be seen from here"
    if not found.runs and found.waiting:
        jobs = counted(found.waiting, "job")
        wait = "waits" if found.waiting == 1 else "wait"
        told = [Finding("scheduler", f"none runs, and {jobs} {wait}", "schedq up")]
    elif not found.runs:
        told = [Finding("scheduler", "none runs, and nothing waits")]
    elif found.stopped:
        told = [Finding("scheduler", f"{who} is stopped", f"kill -CONT {found.pid}, or schedq up --takeover")]
    elif found.answers is False:
        told = [Finding("scheduler", f"{who} holds its lock and does not answer", "schedq up --takeover")]
    else:
        told = [Finding("scheduler", f"{who} serves this queue")]
    if found.inside is None:
        line = (
            f", {counted(found.in_line, 'process')} in line".replace("processs", "processes") if found.in_line else ""
        )
        return [*told, Finding("turnstile", f"free{line}" if not line else f"in use{line}")]
    stands = f"process {found.inside} ({found.inside_command}) stays in it, {found.in_line} in line"
    remedy = f"kill -CONT {found.inside}" if found.inside_stopped else f"look at it: ps -fp {found.inside}"
    return [*told, Finding("turnstile", stands + ("; it is stopped" if found.inside_stopped else ""), remedy)]


def closed(home: str, owner: str) -> Finding:
    """That nothing can be said of a queue whose folder is closed to who asks."""
    whose = f"it is {owner}'s, and " if owner else ""
    user = owner if owner and not owner.startswith("#") else "ITS_OWNER"
    return Finding("queue", f"{home}: {whose}closed to you: nothing of it can be seen", f"sudo -u {user} schedq doctor")


@dataclass(frozen=True)
class Database:
    """A look at the database: bytes of it and of its log, what is wrong with it; `whole` None = not looked at in time.

    `error`: why it cannot be used at all.
    """

    there: bool
    bytes: int = 0
    wal_bytes: int = 0
    whole: bool | None = None
    faults: tuple[str, ...] = ()
    error: str = ""


def database(found: Database) -> list[Finding]:
    """Whether the database is whole, as far as a quick look goes."""
    if found.error:
        return [Finding("database", found.error, "schedq db check; the newest backup lies in backups/")]
    if not found.there:
        return [Finding("database", "none yet: the first submit makes it")]
    size = f"{found.bytes / (1 << 20):.1f} MiB"
    if found.faults:
        more = f" and {len(found.faults) - 1} more" if len(found.faults) > 1 else ""
        return [Finding("database", f"{found.faults[0]}{more}", "schedq db check, then put a good backup in its place")]
    if found.wal_bytes > LONG_WAL:
        log = f"its log has {found.wal_bytes / (1 << 20):.0f} MiB"
        remedy = "a program keeps an old view open: lsof +D on the queue's folder names it; schedq up moves the log in"
        return [Finding("database", f"{size}, {log}", remedy)]
    if found.whole is None:
        return [Finding("database", f"{size}, too large for a quick look: schedq db check reads all of it")]
    return [Finding("database", f"{size}, whole at a quick look")]


@dataclass(frozen=True)
class Installed:
    """One provider: why it cannot start ("" = it can), whether an environment of it is there and not whole, whether
    weights are missing of one that is there, how many of its jobs wait; `broken` = what its manifest has wrong;
    `homeless`: it requires a device, and this machine has none.
    """

    name: str
    missing: str = ""
    damaged: bool = False
    files: bool = False
    waiting: int = 0
    broken: str = ""
    ready: str = ""
    homeless: bool = False


def providers(found: Sequence[Installed]) -> list[Finding]:
    """Environment and weights of each provider. One that nobody installed or asked for is no fault, nor is one that
    cannot run on this machine, unless its jobs wait.
    """
    told, absent, homeless = [], [], []
    for each in found:
        if each.broken:
            first, *rest = each.broken.splitlines()
            more = f" (and {len(rest)} more)" if rest else ""
            told.append(Finding("provider", f"{each.name}: {first}{more}", f"schedq providers check {each.name}"))
        elif each.homeless and each.waiting:
            text = f"{each.name} cannot run here: no device; {counted(each.waiting, 'job')} of it waiting"
            told.append(Finding("provider", text, f"schedq cancel --slug {each.name}, or a machine with a device"))
        elif each.homeless:
            homeless.append(each.name)
        elif not each.missing:
            told.append(Finding("provider", f"{each.name}: {each.ready or 'installed'}"))
        elif each.damaged or each.files or each.waiting:
            text, remedy = parted(each.missing)
            waits = f"; {counted(each.waiting, 'job')} of it waiting" if each.waiting else ""
            told.append(Finding("provider", f"{text}{waits}", remedy or f"schedq install {each.name}"))
        else:
            absent.append(each.name)
    if homeless:
        told.append(Finding("provider", f"cannot run here: no device: {', '.join(homeless)}"))
    if absent:
        told.append(Finding("provider", f"not installed, and not asked for: {', '.join(absent)} (schedq install SLUG)"))
    return told


def parted(sentence: str) -> tuple[str, str]:
    """What is missing, and the command that brings it, of a sentence that ends with `; run: COMMAND`."""
    text, _, remedy = sentence.partition("; run: ")
    return text, remedy


@dataclass(frozen=True)
class Setup:
    """What is odd about settings: sentences; files and who may read or write them (path, mode, what for)."""

    odd: tuple[str, ...] = ()
    modes: tuple[tuple[str, int, str], ...] = ()


def setup(found: Setup) -> list[Finding]:
    """Unknown keys, values that are none, secrets that others may read."""
    told = [Finding("settings", each, "schedq config show; correct it, then schedq restart") for each in found.odd]
    for path, mode, what in found.modes:
        if what == "secrets" and mode & 0o077:
            told.append(Finding("settings", f"{path} can be read by others (mode {mode:04o})", f"chmod 600 {path}"))
        elif mode & 0o022:
            told.append(Finding("settings", f"{path} can be changed by others (mode {mode:04o})", f"chmod go-w {path}"))
    return told or [Finding("settings", "nothing odd")]


@dataclass(frozen=True)
class Failing:
    """What fails again and again: (what, why, remedy) of breakers, schedules and notifications; since when paused."""

    those: tuple[tuple[str, str, str], ...] = ()
    paused_s: float | None = None


def failing(found: Failing) -> list[Finding]:
    """Providers that are broken, schedules whose last time failed, notifications that do not go out, a paused queue."""
    told = [Finding(what, why, remedy) for what, why, remedy in found.those]
    if found.paused_s is not None:
        text = f"nothing new has started for {span(found.paused_s)}: it is paused or drained"
        told.append(Finding("queue", text, "schedq queue resume"))
    return told
