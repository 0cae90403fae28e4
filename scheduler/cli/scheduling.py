"""`schedq schedule ...`: calls of schedq that the scheduler repeats, at the times that a cron line names."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from scheduler import catalog, wake
from scheduler.cli import fast, grammar, say, zones
from scheduler.cli.changing import ASK_ABOVE
from scheduler.cli.fast import Call
from scheduler.clock import now_at, now_s, seconds, stamp
from scheduler.config import Paths, absolute
from scheduler.errors import SchedqError, UsageError
from scheduler.rules import cron
from scheduler.store import identity, schedules
from scheduler.store.engine import Store
from scheduler.store.kept import is_made

RECORDED = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_STATE_HOME", "XDG_CACHE_HOME",
)  # fmt: skip
"""What of the caller's environment a repeated call has; all else of it is the scheduler's."""

ENDS = {"up", "down", "restart", "serve", "service install", "service remove"}
OWNS = {"run", "exec", "log", "simulate", "providers try", "providers new"}
NESTED = "schedule "
NEXT_SHOWN, RUNS_SHOWN = 3, 10
COUNTED = ("jobs", "open", "good")


class NoSuchSchedule(SchedqError):
    """No schedule has that number."""

    exit_code = 4


def add(call: Call) -> int:
    """Keep a call that is repeated, and print its number. UsageError: the line, the zone or the call cannot be."""
    text, argv = str(call.text("cron")), call.many("call")
    line = cron.read(text)
    argv = argv[1:] if argv[:1] == ["schedq"] else argv
    _refuse_call(argv)
    name = call.text("zone") or zones.machine_zone()
    zone, paths, now = zones.zone_of(name), Paths(), datetime.fromtimestamp(now_s(), UTC)
    due = cron.next_after(line, zone, now)
    if due is None:
        raise UsageError(f"cron {text!r} is not due in the next nine years")
    given: dict[str, Any] = {
        "cron": " ".join(text.split()), "zone": name, "argv": argv, "cwd": absolute(".", "the folder"),
        "environment": {key: os.environ[key] for key in RECORDED if os.environ.get(key)},
    }  # fmt: skip
    with closing(Store(paths)) as store, store.write() as tx:
        same = next((each for each in schedules.all_of(tx) if _same(each, given)), None)
        schedule_id = same.id if same is not None else schedules.add(
            tx, **given, user=identity.user(), at=now_at(), next_at=stamp(due.timestamp())
        )  # fmt: skip
        row = next(each for each in schedules.all_of(tx) if each.id == schedule_id)
        told = _told(tx, row, None)
    wake.nudge(paths)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "schedule": told}))
    else:
        say.out(str(schedule_id))
    again = "is there already, nothing was added" if same is not None else "is kept"
    say.note(f"schedule {schedule_id} {again}; next {_when(row)}")
    _note_skipped(line, zone, now)
    if not wake.scheduler_runs(paths):
        say.note("no scheduler runs, and one makes the calls: schedq up; what it misses until then is made up once")
    return 0


def _note_skipped(line: cron.Line, zone: ZoneInfo, now: datetime) -> None:
    gap = cron.skipped(line, zone, now)
    if gap is None:
        return
    made = cron.made_up(gap, zone)
    say.note(
        f"note: clocks skip {gap:%H:%M} on {gap:%Y-%m-%d} in {zone.key}: it is made up at {made:%H:%M} then, right"
        " after the skipped hour"
    )


def _same(row: Any, given: dict[str, Any]) -> bool:
    there = (row.cron, row.zone, json.loads(row.argv), row.cwd)
    return there == (given["cron"], given["zone"], given["argv"], given["cwd"])


def _refuse_call(argv: list[str]) -> None:
    """UsageError for what is no call of schedq, or none that can be repeated unattended."""
    shown = shlex.join(argv)
    try:
        verb, rest = grammar.verb_of(argv)
        if verb is None:
            raise UsageError("it asks for help")
        asked = fast.parse(verb, rest)
    except UsageError as error:
        here = "; --zone and --json of this verb stand before the cron line" if _misplaced(argv) else ""
        raise UsageError(f"the call {shown!r} cannot be made: {error}{here}") from None
    why = ""
    if verb.name in ENDS or verb.panel == grammar.HIDDEN:
        why = "it is about the scheduler, which makes the call itself"
    elif verb.name in OWNS or asked.flag("watch") or asked.flag("follow"):
        why = "it needs somebody at a terminal" + ("; submit queues a job" if verb.name in ("run", "exec") else "")
    elif verb.name.startswith(NESTED):
        why = "a schedule that changes schedules is none"
    elif any(each.flag == "--yes" for each in verb.options) and not (
        asked.flag("yes") or asked.flag("dry_run") or asked.many("ids")
    ):
        why = f"it asks before more than {ASK_ABOVE} jobs, and there is nobody to answer then; add --yes"
    elif "-" in [each for argument in verb.arguments for each in _words(asked, argument.key)]:
        why = "it reads stdin, and there is none then; name a file"
    if why:
        raise UsageError(f"the call {shown!r} cannot be repeated: {why}")
    known = None
    for argument in verb.arguments:
        if argument.key in ("slug", "slugs"):
            known = known or catalog.load(Paths())
            for slug in _words(asked, argument.key):
                known.spec(slug.partition(":")[0])


def _words(asked: Call, key: str) -> list[str]:
    value = asked.values.get(key)
    return asked.many(key) if isinstance(value, list) else [str(value)] if value else []


def _misplaced(argv: list[str]) -> bool:
    return any(word.partition("=")[0] == "--zone" for word in argv)


def list_schedules(call: Call) -> int:
    """Print every schedule."""
    rows = _read(lambda tx: [_told(tx, each, schedules.last_run(tx, each.id)) for each in schedules.all_of(tx)], [])
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "schedules": rows}))
        return 0
    if not rows:
        say.note('no schedules; add one: schedq schedule add "0 22 * * *" validate --all')
    for at, row in enumerate(rows):
        say.out("\n".join([*([""] if at else []), *_lines(row)]))
    if rows and not wake.scheduler_runs(Paths()):
        say.note("no scheduler runs, and one makes the calls: schedq up")
    return 0


def show(call: Call) -> int:
    """Print one schedule, its next times, and how it ended each time. NoSuchSchedule."""
    schedule_id = _id(call)
    found = _read(lambda tx: _whole(tx, schedule_id), None)
    if found is None:
        raise _none(schedule_id)
    row, runs, told = found
    told["next"] = _next_times(row)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "schedule": told}))
        return 0
    lines = [*_lines(told), *say.wrap(f"from  {row.cwd}", "      ")]
    lines += [f"      then  {zones.shown(seconds(each), row.zone)}" for each in told["next"][1:]]
    if runs:
        lines += ["", say.paint("ran", "bold")]
        for each in told["runs"]:
            lines += say.wrap(f"{zones.shown(seconds(each['due_at']), row.zone)}  {_ended(each)}", "      ")
    if runs and runs[0].text:
        lines += ["", say.paint("said last", "bold"), *_said(runs[0].text)]
    say.out("\n".join(lines))
    return 0


def _whole(tx: Any, schedule_id: int) -> tuple[Any, list[Any], dict[str, Any]] | None:
    found = schedules.with_runs(tx, schedule_id, RUNS_SHOWN)
    if found is None:
        return None
    row, runs = found
    return row, runs, {**_told(tx, row, runs[0] if runs else None), "runs": [_run(tx, each) for each in runs]}


def _said(text: str) -> list[str]:
    """What a call printed, set off; a line that is wider than the page is wrapped."""
    room = say.page_width() - 2
    lines = [say.plain(line) for line in text.splitlines()]
    return [each for line in lines for each in ([f"  {line}"] if say.width(line) <= room else say.wrap(line, "  "))]


def run(call: Call) -> int:
    """Let it be due now. NoSuchSchedule."""
    schedule_id, paths = _id(call), Paths()
    with closing(Store(paths)) as store, store.write() as tx:
        if not schedules.hasten(tx, schedule_id, now_at()):
            raise _none(schedule_id)
    wake.nudge(paths)
    runs = wake.scheduler_runs(paths)
    say.note(
        f"schedule {schedule_id} is due now; schedq schedule show {schedule_id} says how it ends"
        + ("" if runs else "; no scheduler runs, and one makes the calls: schedq up")
    )
    return 0


def remove(call: Call) -> int:
    """Repeat it no more. NoSuchSchedule."""
    schedule_id, paths = _id(call), Paths()
    with closing(Store(paths)) as store, store.write() as tx:
        if not schedules.remove(tx, schedule_id, now_at()):
            raise _none(schedule_id)
    wake.nudge(paths)
    say.note(f"schedule {schedule_id} is removed; what it queued stays")
    return 0


def _read(question: Any, empty: Any) -> Any:
    paths = Paths()
    if not is_made(paths):
        return empty
    with closing(Store(paths)) as store, store.read() as tx:
        return question(tx)


def _id(call: Call) -> int:
    word = call.text("id") or ""
    if not (word.isascii() and word.isdigit() and len(word) < 19):
        raise UsageError(f"{word[:40]!r} is no schedule's number; schedq schedule shows them")
    return int(word)


def _none(schedule_id: int) -> SchedqError:
    return NoSuchSchedule(f"there is no schedule {schedule_id}; schedq schedule shows them")


def _next_times(row: Any) -> list[str]:
    """The next times, as stamps, as far as they can be told."""
    found = [] if row.next_at is None else [str(row.next_at)]
    try:
        line, zone = cron.read(row.cron), ZoneInfo(row.zone)
        while found and len(found) < NEXT_SHOWN:
            due = cron.next_after(line, zone, datetime.fromtimestamp(max(now_s(), seconds(found[-1])), UTC))
            if due is None:
                break
            found.append(stamp(due.timestamp()))
    except (SchedqError, ValueError, OSError, KeyError):
        pass
    return found


def _told(tx: Any, row: Any, last: Any) -> dict[str, Any]:
    """A schedule for programs."""
    next_at = row.next_at
    return {
        "id": row.id, "cron": row.cron, "zone": row.zone, "call": json.loads(row.argv), "cwd": row.cwd,
        "user": row.user, "created_at": row.created_at, "next_at": next_at,
        "next_local": None if next_at is None else zones.iso(seconds(next_at), row.zone),
        "last": None if last is None else _run(tx, last),
    }  # fmt: skip


def _run(tx: Any, run: Any) -> dict[str, Any]:
    found = schedules.batch_of(tx, run.batch)
    counts = None if found is None else {"batch": run.batch, **{key: getattr(found, key) for key in COUNTED}}
    return {
        "batch": counts,
        "due_at": run.due_at, "began_at": run.began_at, "ended_at": run.ended_at, "exit_code": run.exit_code,
        "late_s": round(max(0.0, seconds(run.began_at) - seconds(run.due_at)), 3), "text": run.text,
    }  # fmt: skip


def _when(row: Any) -> str:
    at = seconds(row.next_at)
    return f"{zones.shown(at, row.zone)} ({row.zone}), in {say.span(at - now_s())}"


def _lines(told: dict[str, Any]) -> list[str]:
    first, *rest = say.wrap(shlex.join(told["call"]), "      ")
    lines = [say.paint(f"{told['id']:>4}  {first.lstrip()}", "bold"), *rest]
    lines += say.wrap(f"cron  {told['cron']}   {told['zone']}", "      ")
    if told["next_at"] is None:
        due = say.paint("never as far as can be told; scheduler.log says why", "red")
    else:
        at = seconds(told["next_at"])
        soon = f"in {say.span(at - now_s())}" if at > now_s() else f"due for {say.span(now_s() - at)}"
        due = f"{zones.shown(at, told['zone'])}, {soon}"
    lines.append(f"      next  {due}")
    last = told["last"]
    if last is None:
        return [*lines, "      last  not yet"]
    return [*lines, *say.wrap(f"last  {zones.shown(seconds(last['due_at']), told['zone'])}, {_ended(last)}", "      ")]


def _ended(run: dict[str, Any]) -> str:
    """How one time ended, how late it was, and what became of the batch that it queued."""
    batch = run["batch"]
    if batch is None:
        return _exit(run)
    left = f", {batch['open']} to come" if batch["open"] else ""
    return f"{_exit(run)}; batch {batch['batch']}: {batch['good']} of {batch['jobs']} good{left}"


def _exit(run: dict[str, Any]) -> str:
    late = f", {say.span(run['late_s'])} late" if run["late_s"] >= 60 else ""
    if run["ended_at"] is None:
        return f"runs for {say.span(now_s() - seconds(run['began_at']))}{late}"
    took = say.elapsed(seconds(run["ended_at"]) - seconds(run["began_at"]))
    first = run["text"].split("\n")[0]
    if run["exit_code"] is None:
        return f"{first or 'nobody saw how it ended'}{late}"
    limit = f": {first}" if "schedule_limit" in first else ""
    code = f"exit {run['exit_code']}" if run["exit_code"] >= 0 else f"signal {-run['exit_code']}"
    return f"{code} after {took}{late}{limit}"
