"""`schedq doctor`: all that a queue stands on, looked at once; each thing is ok, or a warning with its remedy.

Changes nothing and never hangs: each look has its time, and one that does not end in it is a warning.
"""

from __future__ import annotations

import os

from scheduler import config, wake
from scheduler.cli import examining, say
from scheduler.cli.fast import Call
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.rules import health, health_queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

WITHIN_S, DRIVER_S = 10.0, 15.0
WARNED = 1
"""The exit code where anything warns."""


def doctor(call: Call) -> int:
    """Print what was found, a line each; 1 if anything warns."""
    found = findings(Paths())
    warned = sum(each.status == "warn" for each in found)
    if call.flag("json"):
        checks = [
            {"about": each.about, "status": each.status, "text": each.text, "remedy": each.remedy or None}
            for each in found
        ]
        say.out(say.document({"schema_version": 1, "ok": not warned, "checks": checks}))
    else:
        say.out("\n".join(line for each in found for line in _lines(each)))
        say.note(f"{say.counted(warned, 'warning')}, {len(found) - warned} ok" if warned else "all is well")
    return WARNED if warned else 0


def _lines(found: health.Finding) -> list[str]:
    word = say.paint(f"{found.status:4}", "yellow" if found.remedy else "green")
    first, *rest = say.wrap(found.text, " " * 19)
    lines = [f"{word}  {say.fill(found.about, 12)} {first.lstrip()}", *rest]
    if found.remedy:
        first, *rest = say.wrap(found.remedy, " " * 23)
        lines += [f"{' ' * 19}{say.paint('do:', 'bold')} {first.lstrip()}", *rest]
    return lines


def findings(paths: Paths) -> list[health.Finding]:
    """Everything that was looked at, in the order in which it is read: the machine, the place, the queue."""
    from scheduler.host import checkup
    from scheduler.store import connection, identity, quick
    from scheduler.store.folders import NETWORK

    at_rest = not wake.scheduler_runs(paths)
    told: list[health.Finding] = []

    def look(about: str, read: Callable[[], T], judge: Callable[[T], list[health.Finding]]) -> None:
        told.extend(looked(about, read, judge))

    look("platform", lambda: checkup.platform(connection.library()), health.platform)
    look("filesystem", lambda: checkup.place(paths, tuple(NETWORK)), health.place)
    look("space", lambda: checkup.disks(_places(paths), _reserve_gib()), health.space)
    look("sockets", lambda: checkup.sockets(paths), health.sockets)
    look("linger", lambda: checkup.login(identity.user()), health.linger)
    look("kernel", checkup.kernel, health.kernel)
    state: dict[str, Any] = {}
    trouble = looked("queue", lambda: quick.state(paths, at_rest=at_rest), lambda found: state.update(found) or [])
    look("clock", lambda: checkup.clock(state.get("ahead_s")), health.clock)

    def devices(found: tuple[list[health.Card], list[str], str]) -> list[health.Finding]:
        state["no_device"] = health.no_device(*found)
        return health.cards(*found)

    look("device", lambda: checkup.devices(config.settings(), DRIVER_S), devices)
    closed = examining.closed(paths)
    if closed is not None:
        return [*told, health_queue.closed(paths.home, closed)]
    look("scheduler", lambda: examining.service(paths, state), health_queue.service)
    whole = looked("database", lambda: examining.database(paths, at_rest=at_rest), health_queue.database)
    told += whole if any(each.remedy for each in whole) else [*whole, *trouble]
    look("provider", lambda: examining.providers(paths, state), health_queue.providers)
    look("settings", lambda: examining.setup(paths), health_queue.setup)
    look("leftovers", lambda: checkup.leftovers(paths, str(state.get("queue_id") or "")), health.leftovers)
    return [*told, *health_queue.failing(examining.failing(state))]


def looked(
    about: str, read: Callable[[], T], judge: Callable[[T], list[health.Finding]], within_s: float = 0.0
) -> list[health.Finding]:
    """What is judged of what was read; a warning if that hangs or fails."""
    from scheduler.host.machine.probe import Probe

    def tried() -> tuple[T | None, str]:
        try:
            return read(), ""
        except SchedqError as error:
            return None, str(error)

    probe: Probe[tuple[T | None, str]] = Probe(
        f"the look at {about}", within_s or (2 * DRIVER_S + 5.0 if about == "device" else WITHIN_S)
    )
    answer = probe.ask(tried)
    if answer is None:
        return [health.missed(about, probe.missing)]
    found, why = answer
    return [health.missed(about, why, hangs=False)] if why else judge(found)  # type: ignore[arg-type]


def _places(paths: Paths) -> list[tuple[str, str]]:
    """What is written to: the queue's folder and what may lie elsewhere of it, environments, temporary files."""
    return [
        ("state", paths.home), ("work", paths.jobs), ("results", paths.results), ("inputs", paths.content),
        *(("environments", path) for path in config.envs()[:1]), ("temporary files", os.environ.get("TMPDIR", "/tmp")),
    ]  # fmt: skip


def _reserve_gib() -> float:
    try:
        return config.declared().number("disk_reserve_gib")
    except SchedqError:
        return float(str(config.DEFAULTS["disk_reserve_gib"]))
