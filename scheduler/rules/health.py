"""What `doctor` says of a machine and of a queue's place on it: facts in, findings out, each with its remedy.

Pure: who gathered the facts, and how, is not known here. A finding without a remedy is well; one with a remedy is a
warning, and the remedy is a command or what else to do. None among the facts = it could not be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.rules.figures import gib, span

OLDEST_KERNEL, OLDEST_PYTHON, NEWEST_PYTHON = (5, 3), (3, 11), (3, 13)
LEAST_FILES_OPEN, LEAST_INODES, SWAPPED_SHARE = 1024, 256, 0.5
SQLITE_GOOD = ((3, 44, 6, 3, 45, 0), (3, 50, 7, 3, 51, 0))


@dataclass(frozen=True)
class Finding:
    """One line: what it is about, what was found, and what to do if that is not well."""

    about: str
    text: str
    remedy: str = ""

    @property
    def status(self) -> str:
        """`ok` or `warn`."""
        return "warn" if self.remedy else "ok"


@dataclass(frozen=True)
class Platform:
    """The kernel's release, Python's version, and SQLite's."""

    kernel: str
    python: tuple[int, int, int]
    sqlite: tuple[int, int, int]


def wal_fault(version: tuple[int, int, int]) -> bool:
    """Whether SQLite of this version can damage a WAL database that two connections write (E11)."""
    if version >= (3, 51, 3) or version < (3, 7, 0):
        return False
    return not any(each[:3] <= version < each[3:] for each in SQLITE_GOOD)


def platform(found: Platform) -> list[Finding]:
    """Kernel, Python and SQLite."""
    numbers = tuple(int(each) for each in found.kernel.split("-")[0].split(".")[:2] if each.isdigit())
    old = len(numbers) == 2 and numbers < OLDEST_KERNEL
    kernel = Finding(
        "kernel", f"Linux {found.kernel}",
        f"Linux {'.'.join(map(str, OLDEST_KERNEL))} or later is needed (pidfd_open): upgrade the kernel" if old else "",
    )  # fmt: skip
    known = OLDEST_PYTHON <= found.python[:2] <= NEWEST_PYTHON
    between = " to ".join(".".join(map(str, each)) for each in (OLDEST_PYTHON, NEWEST_PYTHON))
    remedy = "" if known else f"install schedq with Python {between}, which it is tested with"
    python = Finding("python", ".".join(map(str, found.python)), remedy)
    number, faulty = ".".join(map(str, found.sqlite)), wal_fault(found.sqlite)
    safe = "; has the fault of WAL databases with two writers, from which the turnstile keeps schedq" if faulty else ""
    return [kernel, python, Finding("sqlite", f"{number}{safe}")]


@dataclass(frozen=True)
class Place:
    """The queue's folder: where, its mount and filesystem, whether that is a network's; owner and mode if it is there.

    `ours`: it belongs to who asks.
    """

    path: str
    mount: str | None
    kind: str | None
    network: bool
    read_only: bool = False
    there: bool = True
    ours: bool = True
    mode: int = 0o700


def place(found: Place) -> list[Finding]:
    """The filesystem of the queue's folder, and who may look into it."""
    where = f"{found.path} ({found.kind or 'unknown filesystem'}{f' at {found.mount}' if found.mount else ''})"
    if found.kind is None:
        remedy = "look with: findmnt -T " + found.path
        text = f"{where}: what filesystem it is on could not be told"
    elif found.network:
        text, remedy = f"{where}: a network filesystem, where a queue can be corrupted", ELSEWHERE
    elif found.read_only:
        text, remedy = f"{where}: mounted read-only", f"mount -o remount,rw {found.mount}, or {ELSEWHERE}"
    elif found.kind in ("tmpfs", "ramfs"):
        text, remedy = f"{where}: in memory, and gone with the next boot", ELSEWHERE
    else:
        text, remedy = f"{where}: local{'' if found.there else ', made at the first submit'}", ""
    findings = [Finding("filesystem", text, remedy)]
    if found.there and not found.ours:
        findings.append(Finding("owner", f"{found.path} belongs to another user", ELSEWHERE))
    elif found.there and found.mode & 0o022:
        open_to = f"{found.path} can be changed by other users (mode {found.mode:04o})"
        findings.append(Finding("owner", open_to, f"chmod 700 {found.path}"))
    return findings


ELSEWHERE = "set SCHEDQ_HOME to a folder of yours on a local disk"


@dataclass(frozen=True)
class Disk:
    """One filesystem that is written to: what for, where, GiB free and in all, GiB that stay reserved, files left."""

    what: str
    path: str
    free_gib: float | None
    whole_gib: float | None = None
    reserve_gib: float = 0.0
    files_left: int | None = None


def space(found: Sequence[Disk]) -> list[Finding]:
    """The room on each filesystem that a queue writes to."""
    told = []
    for disk in found:
        if disk.free_gib is None:
            text = f"{disk.what} ({disk.path}): the free space could not be read"
            told.append(Finding("space", text, f"look with: df -h {disk.path}"))
            continue
        whole = f" of {gib(disk.whole_gib)}" if disk.whole_gib is not None else ""
        text = f"{disk.what} ({disk.path}): {gib(disk.free_gib)}{whole} GiB free"
        kept = f", and {gib(disk.reserve_gib)} GiB stay reserved"
        prune = "schedq prune --older-than 30d --dry-run"
        if disk.files_left is not None and disk.files_left < LEAST_INODES:
            told.append(Finding("space", f"{text}, and room for {disk.files_left} more files", prune))
        elif disk.free_gib < disk.reserve_gib:
            told.append(Finding("space", f"{text}{kept}: nothing starts", prune))
        elif disk.free_gib < 2 * disk.reserve_gib:
            told.append(Finding("space", f"{text}{kept}: below that nothing starts any more", prune))
        else:
            told.append(Finding("space", text))
    return told


@dataclass(frozen=True)
class Sockets:
    """The folder of sockets: bytes of the longest path in it, whether it is there, private, of who asks."""

    folder: str
    longest: int
    most: int
    beside: bool
    there: bool
    private: bool


def sockets(found: Sockets) -> list[Finding]:
    """Whether workers can be reached by their sockets."""
    text = f"{found.folder} (paths of {found.longest} bytes, {found.most} at most)"
    if found.longest > found.most:
        return [Finding("sockets", f"{text}: too long to be bound", "set SCHEDQ_HOME to a folder with a shorter path")]
    if found.there and not found.private:
        remedy = f"ls -ld {found.folder}; rmdir it, or set SCHEDQ_HOME to a folder with a shorter path"
        return [Finding("sockets", f"{found.folder} is not a private folder of yours", remedy)]
    return [Finding("sockets", text + ("" if found.beside else ": SCHEDQ_HOME is too long for them"))]


@dataclass(frozen=True)
class Login:
    """Whether systemd runs, the user, whether what is theirs stays after the last logout; `root`: it does anyhow."""

    systemd: bool
    user: str
    lingers: bool | None
    root: bool


def linger(found: Login) -> list[Finding]:
    """What becomes of a scheduler with the last logout."""
    if not found.systemd:
        return [Finding("linger", "no systemd runs here: a logout ends nothing")]
    if found.root:
        return [Finding("linger", "not needed for root")]
    if found.lingers:
        return [Finding("linger", f"what {found.user} runs stays after the last logout")]
    how = "it could not be told whether" if found.lingers is None else "systemd may end, with the last logout,"
    return [Finding("linger", f"{how} what {found.user} runs", f"loginctl enable-linger {found.user}")]


@dataclass(frozen=True)
class Kernel:
    """What the kernel allows and hides: sentence of hidepid, limits of control groups, swap, files that may be open."""

    hidden: str
    limits: tuple[tuple[str, float | None, str], ...]
    """(group, its limit in GiB, why that could not be read)."""
    swap_gib: float | None
    swapped_gib: float | None
    open_files: int
    most_open_files: int
    booted_s_ago: float | None


def kernel(found: Kernel) -> list[Finding]:
    """Control groups, hidepid, swap, limits, boot."""
    told = []
    for path, limit_gib, missing in found.limits:
        if limit_gib is None:
            told.append(Finding("cgroup", f"{path}: {missing or 'could not be read'}", f"look with: ls -l {path}"))
        else:
            told.append(Finding("cgroup", f"memory is limited to {gib(limit_gib)} GiB by {path}"))
    if not found.limits:
        told.append(Finding("cgroup", "no control group limits the memory"))
    remedy = "mount -o remount,hidepid=0 /proc (as root), or schedq machine declare what others hold"
    told.append(Finding("hidepid", found.hidden, remedy) if found.hidden else Finding("hidepid", "processes are seen"))
    told.append(_swap(found.swap_gib, found.swapped_gib))
    files = f"{found.open_files} files may be open"
    if found.open_files < LEAST_FILES_OPEN:
        more = min(4096, found.most_open_files)
        remedy = f"ulimit -n {more} before schedq up" if more > found.open_files else "raise nofile in limits.conf"
        told.append(Finding("ulimits", f"only {files} at once", remedy))
    else:
        told.append(Finding("ulimits", files + " at once"))
    return told


def _swap(swap_gib: float | None, swapped_gib: float | None) -> Finding:
    if swap_gib is None or swapped_gib is None:
        return Finding("swap", "could not be read", "look with: swapon --show")
    if not swap_gib:
        return Finding("swap", "none")
    text = f"{gib(swapped_gib)} of {gib(swap_gib)} GiB in use"
    if swapped_gib > SWAPPED_SHARE * swap_gib:
        return Finding("swap", f"{text}: the machine has run out of memory", "schedq machine shows who holds it")
    return Finding("swap", text)


@dataclass(frozen=True)
class Clock:
    """Seconds since boot, and by how many seconds the newest stamp of the queue lies ahead of the clock."""

    booted_s_ago: float | None
    ahead_s: float | None
    synchronised: bool | None


def clock(found: Clock) -> list[Finding]:
    """Whether the clock can be believed: what was stamped lies in the past."""
    booted = "" if found.booted_s_ago is None else f"booted {span(found.booted_s_ago)} ago"
    synchronised = {True: "synchronised", False: "not known to be synchronised", None: ""}[found.synchronised]
    text = ", ".join(filter(None, (booted, synchronised))) or "could not be told"
    if found.ahead_s is not None and found.ahead_s > 2.0:
        went = f"the clock was set back: the queue has stamps that lie {span(found.ahead_s)} ahead"
        return [Finding("clock", f"{went} ({text})", "timedatectl; schedules and --since go wrong until it is right")]
    return [Finding("clock", text)]


@dataclass(frozen=True)
class Card:
    """One device: how it is called, where, and what it tells: GiB in all, or why not.

    `kind`: `own` (memory of its own: a pool), `unified` (it shares the machine's), `left_alone`, `unknown`.
    """

    name: str
    slot: str
    kind: str
    total_gib: float | None
    why: str = ""


def cards(found: Sequence[Card], errors: Sequence[str], none_because: str = "") -> list[Finding]:
    """Each device's class with its reason; what a driver could not tell."""
    told = [Finding("driver", each, "nvidia-smi, or the kernel's log (dmesg), says more") for each in errors]
    words = {"own": "memory of its own", "unified": "shares the machine's memory", "left_alone": "left alone (setting)"}
    for card in found:
        size = f", {gib(card.total_gib)} GiB" if card.total_gib is not None else ""
        what = f"{card.name}{f' at {card.slot}' if card.slot else ''}{size}"
        why = f" ({card.why})" if card.why else ""
        if card.kind in words:
            told.append(Finding("device", f"{what}: {words[card.kind]}{why}"))
        else:
            remedy = "say which it is: unified = true or false in config.toml; schedq machine shows the readings"
            told.append(
                Finding("device", f"{what}: neither known to share the memory nor to have its own{why}", remedy)
            )
    if not found and not errors:
        told.append(Finding("device", none_because or "no accelerator"))
    return told


def no_device(found: Sequence[Card], errors: Sequence[str], _none_because: str = "") -> bool:
    """Whether this machine surely has no device that a provider could be given; a driver that errs tells nothing."""
    return not errors and all(card.kind == "left_alone" for card in found)


def missed(about: str, why: str, *, hangs: bool = True) -> Finding:
    """What could not be looked at: it did not answer in its time, or something was in the way (not `hangs`)."""
    if hangs:
        return Finding(about, f"{why}: not looked at", "ask again; if it stays so, that is what hangs")
    return Finding(about, f"not looked at: {why}", "correct that first, then ask again")


def leftovers(found: Sequence[tuple[str, str]]) -> list[Finding]:
    """What dead processes left: (what, where), each; one finding for all of a kind."""
    told = []
    for what in dict.fromkeys(kind for kind, _ in found):
        places = [path for kind, path in found if kind == what]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        told.append(Finding("leftovers", f"{what}: {places[0]}{more}", REMOVED_BY[what]))
    return told or [Finding("leftovers", "none")]


ANEW = "schedq restart, or schedq up where no scheduler runs"
REMOVED_BY = {
    "a folder of a worker that is gone": "schedq prune --older-than 30d",
    "half-removed by a prune that was killed": "schedq prune --older-than 30d",
    "a socket that nobody serves": ANEW,
    "a file that was half copied": ANEW,
    "a backup that was not finished": "schedq prune --older-than 30d",
}
"""What dead processes leave, and what takes it away."""
