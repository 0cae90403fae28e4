"""Facts of a queue for `doctor`: who serves it, its database, its providers, its settings. Read, never changed."""

from __future__ import annotations

import json
import os
import time

from scheduler import catalog, config, locks, wake
from scheduler.clock import now_s, seconds
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.rules import health_queue as health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

APART_S, ANSWER_S = 0.3, 3.0
"""Between two looks into the turnstile, and how long the scheduler may take for its answer."""


def closed(paths: Paths) -> str | None:
    """Whose queue it is, if its folder is closed to this user ("" = cannot be told); None if it is open."""
    try:
        os.scandir(paths.home).close()
    except PermissionError:
        return owner_of(paths.home)
    except OSError:
        pass
    return None


def owner_of(path: str) -> str:
    """The user that a folder belongs to, by name if it has one; "" if that cannot be seen."""
    import pwd

    try:
        uid = os.stat(path).st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def service(paths: Paths, state: dict[str, Any]) -> health.Service:
    """The scheduler's lock, and the turnstile at two looks."""
    runs, waiting = wake.scheduler_runs(paths), sum((state.get("waiting") or {}).values())
    pid = locks.holder(paths.lock_scheduler) if runs else None
    stopped = bool(pid and locks.is_stopped(pid))
    answers = _answers(paths) if runs and not stopped else None
    first = locks.holder(paths.lock_owner)
    if first is not None:
        time.sleep(APART_S)
    inside = first if first is not None and locks.holder(paths.lock_owner) == first else None
    return health.Service(
        runs, pid, locks.command(pid) if pid else "", stopped, answers, waiting, inside,
        locks.command(inside) if inside else "", bool(inside and locks.is_stopped(inside)), in_line(paths),
    )  # fmt: skip


def _answers(paths: Paths) -> bool:
    line = wake.Line(paths)
    try:
        return line.ask(ANSWER_S, op="ping") is not None
    finally:
        line.close()


def in_line(paths: Paths, table: str = "/proc/locks") -> int:
    """How many wait for the turnstile: for either of its locks, as the kernel lists them."""
    places = []
    for folder in (paths.lock_next, paths.lock_owner):
        try:
            found = os.stat(folder)
        except OSError:
            continue
        places.append(f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}")
    try:
        with open(table, encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return 0
    return sum("->" in words and words[-3] in places for words in lines if len(words) > 5)


def database(paths: Paths, *, at_rest: bool) -> health.Database:
    """A quick look at the database. What it cannot be used for is told as its error."""
    from scheduler.store import kept, quick

    try:
        if not kept.is_made(paths):
            return health.Database(False)
        whole, faults = quick.whole(paths, at_rest=at_rest)
    except SchedqError as error:
        return health.Database(True, error=str(error))
    return health.Database(True, _size(paths.database), _size(f"{paths.database}-wal"), whole, tuple(faults))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def providers(paths: Paths, state: dict[str, Any]) -> list[health.Installed]:
    """Each provider: its environment, its weights, and how many jobs of it wait."""
    from scheduler.host import environments, marker, named_files

    beside = Paths(paths.home)
    beside.cache = os.devnull  # a look leaves nothing behind, a compiled catalog neither
    found = catalog.load(beside)
    rows = [health.Installed(slug, broken=text) for slug, text in sorted(found.broken.items())]
    waiting = state.get("waiting") or {}
    specs = [spec for slug in sorted(found.providers) for spec in found.providers[slug]["variants"].values()]
    for spec in specs:
        name = f"{spec['slug']}:{spec['variant']}" if spec["variant"] else str(spec["slug"])
        missing = environments.missing(spec)
        files = bool(missing) and bool(named_files.fault(spec))
        there = [
            path
            for root in config.envs()
            if spec.get("environment") and os.path.isdir(path := marker.folder_of(root, spec["environment"]["hash"]))
        ]
        built = bool(there) or bool(spec.get("python") and environments.python_of(spec))
        rows.append(
            health.Installed(
                name, missing, damaged=bool(missing) and bool(there) and not files, files=files and built,
                waiting=waiting.get((spec["slug"], spec["variant"]), 0), ready=_ready(spec),
                homeless=spec["policy"] == "required" and bool(state.get("no_device")),
            )
        )  # fmt: skip
    return rows


def _ready(spec: dict[str, Any]) -> str:
    count = len(spec.get("files") or ())
    return "installed" + (f", {count} file{'s' if count > 1 else ''} there" if count else "")


def setup(paths: Paths) -> health.Setup:
    """What is odd about settings, and about who may read or change the files that they stand in."""
    modes = []
    for path, what in ((paths.secrets, "secrets"), *((path, "settings") for path in config.config_files())):
        try:
            modes.append((path, os.stat(path).st_mode & 0o777, what))
        except OSError:
            continue
    try:
        odd = config.declared().faults()
    except SchedqError as error:
        odd = str(error).splitlines()
    return health.Setup((*odd, *catalog.odd_folders()), tuple(modes))


def failing(state: dict[str, Any]) -> health.Failing:
    """Breakers that are open, schedules whose last time failed, notifications that do not go out."""
    those = [
        ("breaker", f"{row['slug']} failed {row['failures']} times in a row: {row['last_error'] or 'no word'}",
         f"schedq log of a job of it, then schedq providers reset {row['slug']}")
        for row in state.get("broken") or ()
    ]  # fmt: skip
    for row in state.get("untimely") or ():
        words = " ".join(map(str, json.loads(row["argv"])))
        which, show = f"schedule {row['id']} ({words})", f"schedq schedule show {row['id']}"
        if row["next_at"] is None:
            those.append(("schedule", f"{which} is not due any more: scheduler.log says why", show))
        if row["run_id"] is not None and row["exit_code"] != 0:
            code = "no exit code" if row["exit_code"] is None else row["exit_code"]
            said = f": {row['text']}" if row["text"] else ""
            those.append(("schedule", f"{which} ended with {code} when it was last due{said}", show))
    for row in state.get("unsent") or ():
        about = row["batch"] or row["slug"] or ""
        text = f"{row['kind']}{f' of {about}' if about else ''} was not told in {row['tries']} tries: {row['error']}"
        those.append(("notification", text, "schedq config show has what is told and how"))
    paused = state.get("paused_at")
    return health.Failing(tuple(those), now_s() - seconds(paused) if paused else None)
