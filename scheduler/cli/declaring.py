"""`schedq machine declare`: what a holder is that nobody declared, said by who knows it."""

from __future__ import annotations

import os

from scheduler import catalog, strangers
from scheduler.cli import say, stamps
from scheduler.cli.fast import Call
from scheduler.clock import now_at
from scheduler.config import Paths
from scheduler.errors import SchedqError, Temporary, UsageError
from scheduler.store import identity
from scheduler.strangers import Declared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST = 64
COUNTS = "it counts from the next look at the machine on; a scheduler that runs looks every few seconds"


def declare(call: Call) -> int:
    """Declare a process or a name, remove what was said of it, or list all that is declared."""
    paths, who = Paths(), call.text("who")
    vram, ram = (_gib(f"--{key}", call.text(key)) for key in ("vram", "ram"))
    if who is None:
        if vram is not None or ram is not None or call.flag("remove"):
            raise UsageError(
                "machine declare needs PID|SLUG to say whose memory that is; schedq machine shows who is here"
            )
        return _list(call, paths)
    pid = int(who) if who.isascii() and who.isdecimal() and len(who) <= 18 else None
    if pid is None:
        _refuse_odd(who)
    if call.flag("remove"):
        if vram is not None or ram is not None:
            raise UsageError("--remove takes no --vram and no --ram; leave them out, or leave --remove out")
        return _remove(call, paths, f"pid {pid}" if pid is not None else who)
    if vram is None and ram is None:
        raise UsageError(f"machine declare {who} needs --vram GIB or --ram GIB, or both; 0 says that it holds nothing")
    started = _started(pid) if pid is not None else None
    said = Declared(
        "" if pid is not None else who, pid, started, strangers.boot_id() if pid is not None else "",
        vram or 0.0, ram or 0.0, now_at(), identity.user(),
    )  # fmt: skip
    with _writing(paths):
        strangers.declare(paths, said)
    return _tell(call, paths, said)


def _gib(flag: str, word: str | None) -> float | None:
    if word is None:
        return None
    try:
        return strangers.gib(word)
    except ValueError:
        raise UsageError(
            f"{flag} {word[:40]!r} is no amount of memory; write GiB as a number from 0 to {strangers.MOST_GIB:.0f},"
            " like 24 or 0.5"
        ) from None


def _refuse_odd(who: str) -> None:
    plain = who.replace("_", "").replace("-", "").replace(".", "").replace(":", "").replace("+", "")
    if len(who) > LONGEST or not (plain.isascii() and plain.isalnum() and who[0].isalpha()):
        raise UsageError(
            f"{who[:LONGEST]!r} is neither a process id nor a holder's name; schedq machine shows both; leave @tree out"
        )


def _started(pid: int) -> float:
    started = strangers.started_of(pid)
    if started is None:
        raise UsageError(f"no process {pid} lives here, or not one that you can see; schedq machine shows who does")
    leader = _status(pid).get("Tgid", str(pid))
    if leader != str(pid):
        raise UsageError(f"{pid} is a thread of process {leader}; declare that: schedq machine declare {leader}")
    return started


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            pairs = (line.partition(":") for line in file)
            return {key: value.strip() for key, _, value in pairs}
    except OSError:
        return {}


def _process(pid: int) -> str:
    """Whose process it is, and its command line, as far as that can be read."""
    import pwd

    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = os.fsdecode(file.read(4096)).split("\0")
    except OSError:
        return "not to be read"
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    command = " ".join(words).strip() or f"[{_status(pid).get('Name', '?')}]"
    return f"{user}: {say.cut(command, 80)}"


def _tell(call: Call, paths: Paths, said: Declared) -> int:
    whose = f" ({_process(said.pid)})" if said.pid is not None else ""
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "declared": [_row(said)]}))
    else:
        amounts = f"{say.gib(said.vram_gib)} GiB of devices and {say.gib(said.ram_gib)} GiB of the machine's memory"
        say.out("\n".join(say.wrap(f"{said.who}{whose} is declared: {amounts}", "")))
    if said.slug in _known(paths):
        say.note(f"{said.slug} has a manifest here, and what that declares goes before this")
    if said.slug and said.slug not in _here():
        say.note(f"no holder is called {said.slug} at the moment; it counts when there is one")
    say.note(
        "what a holder is seen to use counts where that is more; while no driver says on which device it is, --vram"
    )
    say.note("counts on each that it may be on")
    say.note(COUNTS)
    return 0


def _here() -> set[str]:
    """The names of all who hold a model here, as far as they can be seen."""
    from scheduler.host.machine.asked import Asked
    from scheduler.host.machine.holders import holders
    from scheduler.host.machine.processes import table

    try:
        return {holder.slug or holder.name for holder in holders(table(), Asked())}
    except OSError:
        return set()


def _known(paths: Paths) -> list[str]:
    try:
        return list(catalog.load(paths).providers)
    except SchedqError:
        return []


def _remove(call: Call, paths: Paths, who: str) -> int:
    with _writing(paths):
        gone = strangers.remove(paths, who)
    if not gone:
        there = ", ".join(each.who for each in strangers.declared(paths)) or "nothing is"
        raise UsageError(f"{say.plain(who)} is not declared; declared: {there}")
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "removed": [_row(each) for each in gone]}))
    else:
        say.out(f"{who} is declared no longer")
    say.note(COUNTS.replace("it counts", "that counts"))
    return 0


def _list(call: Call, paths: Paths) -> int:
    found = strangers.declared(paths)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "declared": [_row(each) for each in found]}))
        return 0
    if not found:
        say.note("nothing is declared; schedq machine shows who holds memory here and is not known")
        return 0
    head = f"{'who, GiB':18}{'devices':>9}{'memory':>9}  {'by':10}{'since'}"
    lines = [say.paint(head, "bold")]
    for each in found:
        ended = ", gone" if _ended(each) else ""
        lines.append(
            f"{say.fill(each.who, 17)} {say.gib(each.vram_gib):>9}{say.gib(each.ram_gib):>9}  "
            f"{say.fill(each.user, 9)} {stamps.local(each.at)}{ended}"
        )
    say.out("\n".join(lines))
    return 0


def _ended(said: Declared) -> bool:
    """Whether the process that it is about is not there any more, so that it counts no longer."""
    if said.pid is None:
        return False
    return said.boot_id != strangers.boot_id() or strangers.started_of(said.pid) != said.started


def _row(said: Declared) -> dict[str, Any]:
    return {
        "slug": said.slug or None, "pid": said.pid, "vram_gib": said.vram_gib, "ram_gib": said.ram_gib, "at": said.at,
        "user": said.user, "gone": _ended(said),
    }  # fmt: skip


class _writing:  # noqa: N801
    """A context in which an error of the disk becomes a sentence."""

    def __init__(self, paths: Paths) -> None:
        self._path = strangers.file_of(paths)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if isinstance(error, OSError):
            raise Temporary(
                f"{self._path} cannot be written ({error.strerror}); nothing was changed; make its folder writable "
                "for you and free some space, then declare again"
            ) from None
