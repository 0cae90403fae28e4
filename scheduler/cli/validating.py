"""`schedq validate`: the validation cases of providers, queued as one batch, and, if waited for, how each went."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from scheduler import catalog, given, wake
from scheduler.cli import say, sight
from scheduler.cli.fast import Call
from scheduler.cli.tables import Column, Table
from scheduler.cli.ticker import Ticker
from scheduler.client import Client
from scheduler.clock import SystemClock, monotonic_s, now_s
from scheduler.config import Paths
from scheduler.errors import BatchTaken, SchedqError, UsageError, WaitTimedOut
from scheduler.model.command import called
from scheduler.night import validation
from scheduler.rules import shellwords
from scheduler.store import cases, peek

Row = dict[str, Any]
SILENT_S, TICK_S, JUDGED_S = 5.0, 1.0, 1.0
MOST_REPEATS = 1000
COLOURS = {"passed": "green", "failed": "red", "refused": "yellow", "did not run": "red", "not judged": "yellow"}
SUMMED = ("passed", "failed", "refused", "did not run")


def validate(call: Call) -> int:
    """Queue the cases. 0 as soon as they are queued; with --wait 0 if all passed, 1 if not, 124 when time is over."""
    client = Client()
    names, everything, waits = call.many("slugs"), call.flag("all"), call.flag("wait")
    if bool(names) == everything:
        both = f"{names[0]} and --all were given; leave out one of them" if names else "name providers, or say --all"
        raise UsageError(f"validate takes providers, or --all for every one: {both}")
    timeout_s, repeat = call.duration_s("timeout"), call.whole("repeat")
    if timeout_s is not None and not waits:
        raise UsageError("--timeout is how long to wait, and nothing is waited for; add --wait")
    if repeat is not None and not 1 <= repeat <= MOST_REPEATS:
        raise UsageError(f"--repeat {repeat} is out of bounds; between 1 and {MOST_REPEATS}")
    batch = given.batch(call.text("batch")) or unused(client.paths, _of_the_minute())
    night = _planned(client, call, names, batch, repeat or 1)
    if call.flag("dry_run"):
        _tell_dry(call, night, batch)
        return 0
    if not night.rows:
        return _nothing(call, night, batch)
    batch, ids = _queued(client, call, night, batch)
    with suppress(OSError, SchedqError):  # the jobs are in, and what else there is to say is no reason to fail
        _notes(call, night, batch, ids)
    return _waited(client, call, night, batch, ids, timeout_s) if waits else 0


def _of_the_minute() -> str:
    return f"validate-{datetime.fromtimestamp(now_s()):%Y-%m-%d-%H%M}"


def _queued(client: Client, call: Call, night: validation.Night, batch: str) -> tuple[str, list[int]]:
    """(the batch that the cases are in, their ids): a batch that nobody has named is theirs alone."""
    new_batch = "" if call.text("batch") else batch
    while True:
        said = None if call.flag("wait") else partial(_print, call, night, batch)
        try:
            return batch, client.enqueue(night.rows, said, new_batch=new_batch)
        except BatchTaken:
            batch = new_batch = unused(client.paths, _of_the_minute())
            for row in night.rows:
                row["batch"] = batch


def unused(paths: Paths, name: str) -> str:
    """A name that no batch has yet: this one, or with the first number behind it that makes it so."""
    number, found = 1, name
    while peek.looked(paths, partial(cases.size_of, batch=found), 0):
        number += 1
        found = f"{name}-{number}"
    return found


def _planned(client: Client, call: Call, names: list[str], batch: str, repeat: int) -> validation.Night:
    known = catalog.load(client.paths)
    specs = validation.chosen(known, names) if names else validation.everything(known)
    about = sight.told(client.paths)
    seen = about is None or about.get("leaving")
    night = validation.planned(
        client, specs, batch, fresh=call.flag("fresh"), repeat=repeat, changed=call.flag("changed"),
        here=not names,
        unseen=lambda spec: "" if seen or about is None else sight.mismatch(about, spec),
    )  # fmt: skip
    if not names:
        night.rows += [validation.broken(slug, known.broken[slug], batch) for slug in sorted(known.broken)]
    if not night.rows and not night.unchanged and not night.left_out:
        whose = ", ".join(night.without) or "no provider"
        raise UsageError(f"there is no [[validation]] case to queue, of {whose}; add one to a manifest")
    return night


def _print(call: Call, night: validation.Night, batch: str, ids: list[int]) -> None:
    try:
        say.out(say.document(_document(night, batch, ids)) if call.flag("json") else batch)
    except (SchedqError, say.Quiet):
        say.note(f"schedq: queued in batch {batch} as {_jobs(ids)}, which stdout did not take")
        raise


def _notes(call: Call, night: validation.Night, batch: str, ids: list[int]) -> None:
    """Say what is in the queue by now, and what keeps it from starting."""
    queued = [row for row in night.rows if not row["beside"].get("refused")]
    providers = len({(row["slug"], row["variant"]) for row in queued})
    count = f"{say.counted(len(queued), 'case')} of {say.counted(providers, 'provider')}"
    refused = f", {len(night.refused)} refused" if night.refused else ""
    say.note(f"batch {batch}: {count} queued{refused} ({_jobs(ids)})")
    earlier = peek.looked(Paths(), partial(cases.size_of, batch=batch), 0) - len(ids)
    if earlier > 0:
        say.note(f"note: batch {batch} had {say.counted(earlier, 'job')} before; its report counts all of them")
    _note_left_out(night)
    if call.flag("wait"):
        return
    for why, those in _grouped(night.refused).items():
        say.note(f"refused: {', '.join(those)}: {why}")
    if any(stops := peek.stopped(Paths())):
        say.note(f"note: the queue is {'drained' if stops[1] else 'paused'}; schedq queue resume lets it start")
    if queued and not wake.scheduler_runs(Paths()):
        say.note("note: no scheduler runs, so nothing starts yet; start it: schedq up")
    say.note(f"schedq report {shellwords.argument(batch)} shows how they went")


def _document(night: validation.Night, batch: str, ids: list[int]) -> Row:
    rows = [
        {
            "id": ids[n] if ids else None, "slug": row["slug"], "variant": row.get("variant") or "",
            "case": row["beside"]["check"]["case"], "refused": row["beside"].get("refused"),
        }
        for n, row in enumerate(night.rows)
    ]  # fmt: skip
    return {
        "schema_version": 1, "batch": batch, "cases": rows, "without_cases": night.without,
        "unchanged": night.unchanged, "left_out": _left_out(night),
    }  # fmt: skip


def _left_out(night: validation.Night) -> list[Row]:
    return [{"provider": name, "cases": count, "why": why} for name, count, why in night.left_out]


def _grouped(rows: list[Row]) -> dict[str, list[str]]:
    """Why rows are refused, each reason once, and whose they are."""
    found: dict[str, list[str]] = {}
    for row in rows:
        those = found.setdefault(row["beside"]["refused"], [])
        name = called(row["slug"], row.get("variant") or "")
        if name not in those:
            those.append(name)
    return found


def _note_left_out(night: validation.Night) -> None:
    if night.without:
        say.note(f"without a [[validation]] case: {', '.join(night.without)}")
    if night.unchanged:
        say.note(f"unchanged since all of its cases passed: {', '.join(night.unchanged)}")
    for name, count, _ in night.left_out:
        cases_of, them = say.counted(count, "case"), "it" if count == 1 else "them all"
        told = f"{name}: {cases_of} left out: this machine has no device; schedq validate {name} queues {them} even so"
        say.note(told)


def _nothing(call: Call, night: validation.Night, batch: str) -> int:
    """Nothing has changed since it passed, or nothing can run on this machine: that is no fault."""
    if call.flag("json"):
        say.out(say.document(_document(night, batch, [])))
    _note_left_out(night)
    say.note("nothing was queued")
    return 0


def _tell_dry(call: Call, night: validation.Night, batch: str) -> None:
    if call.flag("json"):
        say.out(say.document({**_document(night, batch, []), "dry_run": True}))
    else:
        table = Table(
            Column("provider", 18, least=10), Column("case", 44, before=2, least=16), Column("", 14, before=2)
        )
        if night.rows:
            say.out(table.head())
        for row in night.rows:
            refused = row["beside"].get("refused")
            word = ("refused", "yellow") if refused else ("to be queued", "")
            say.out(table.row(called(row["slug"], row.get("variant") or ""), row["beside"]["check"]["case"], word))
            if refused:
                say.out("\n".join(say.paint(each, "dim") for each in say.wrap(refused, " " * 8)))
    _note_left_out(night)
    queued, refused_too = len(night.rows) - len(night.refused), len(night.refused)
    say.note(f"{say.counted(queued, 'case')} would be queued in batch {batch}, {refused_too} refused; nothing was")


# Waiting


def _waited(
    client: Client, call: Call, night: validation.Night, batch: str, ids: list[int], timeout_s: float | None
) -> int:
    until = None if timeout_s is None else monotonic_s() + timeout_s
    try:
        _see_through(client, batch, ids, until)
    except WaitTimedOut:
        left = [each for each in _stand(client, ids) if each["standing"] in ("waits", "not judged")]
        raise WaitTimedOut(
            f"{len(left)} of {say.counted(len(ids), 'case')} had not ended after {call.text('timeout')} and go on; "
            f"schedq report {shellwords.argument(batch)} shows how they went"
        ) from None
    except KeyboardInterrupt:
        shown, those = shellwords.argument(batch), shellwords.option("--batch", batch)
        say.note(f"the cases go on; schedq report {shown} shows how they went, schedq cancel {those} ends them")
        raise
    rows = _stand(client, ids)
    sums = {word: sum(row["standing"] == word for row in rows) for word in SUMMED}
    if call.flag("json"):
        told = [{key: row[key] for key in row if key != "progress"} for row in rows]
        summed = {word.replace(" ", "_"): n for word, n in sums.items()}
        say.out(
            say.document({"schema_version": 1, "batch": batch, "cases": told, **summed, "left_out": _left_out(night)})
        )
    else:
        say.out("\n".join(page(rows, sums)))
    return 0 if sums["passed"] == len(rows) else 1


def _see_through(client: Client, batch: str, ids: list[int], until: float | None) -> None:
    """Return when all have ended and are judged. WaitTimedOut at `until`; SchedulerDown if none runs that could."""
    open_ids, ticker = [row["id"] for row in _stand(client, ids) if row["standing"] == "waits"], Ticker()
    if open_ids and not wake.scheduler_runs(client.paths):
        from scheduler.cli import starting

        starting.ensure(client.paths)
    step_s = TICK_S if ticker.on else SILENT_S
    try:
        while open_ids:
            left_s = step_s if until is None else min(step_s, until - monotonic_s())
            if left_s <= 0:
                raise WaitTimedOut("")
            try:
                for job_id, _state in client.ended(list(open_ids), left_s):
                    open_ids.remove(job_id)
            except WaitTimedOut:
                pass
            if ticker.on:
                ticker.show(at_a_glance(batch, _stand(client, ids)))
        while any(row["standing"] == "not judged" for row in _stand(client, ids)):
            left_s = JUDGED_S if until is None else min(JUDGED_S, until - monotonic_s())
            if left_s <= 0:
                raise WaitTimedOut("")
            if not wake.scheduler_runs(client.paths):
                say.note("note: no scheduler runs, and it judges what they answered; start it: schedq up")
                return
            SystemClock().sleep(left_s)
    finally:
        ticker.clear()


def _stand(client: Client, ids: list[int]) -> list[Row]:
    return peek.looked(client.paths, lambda reader: cases.of_jobs(reader, ids), [])


def at_a_glance(batch: str, rows: list[Row]) -> str:
    """How far a batch of cases is, in a line."""
    ended = [row for row in rows if row["standing"] != "waits"]
    told = [f"{n} {word}" for word in SUMMED if (n := sum(row["standing"] == word for row in ended))]
    runs = [f"{called(row['slug'], row['variant'])} {row['case']}" for row in rows if row["state"] == "running"]
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    now = f"; runs: {runs[0]}{more}" if runs else ""
    return f"{batch}: {len(ended)} of {len(rows)} ended" + (f" ({', '.join(told)})" if told else "") + now


def page(rows: list[Row], sums: dict[str, int]) -> list[str]:
    """How each case went and why, a table, and the sums in one line."""
    table = Table(
        Column("provider", 18, least=10), Column("case", 38, before=2, least=12),
        Column("job", 7, before=1, right=True, drop=1), Column("", 11, before=2),
    )  # fmt: skip
    lines, told = [table.head()], [""]
    for row in rows:
        word = row["standing"]
        name = called(row["slug"], row["variant"])
        lines.append(table.row(name, row["case"], str(row["id"]), (word, COLOURS.get(word, ""))))
        before, told = told, because(row)
        if told != before:  # what is true of a whole provider is said once
            lines += [say.paint(each, "dim") for text in told for each in say.wrap(text, " " * 8)]
    providers = len({(row["slug"], row["variant"]) for row in rows})
    summed = ", ".join(f"{sums[word]} {word}" for word in SUMMED)
    unjudged = len(rows) - sum(sums.values())
    summed += f", {unjudged} not judged" if unjudged else ""
    return [*lines, "", f"{say.counted(len(rows), 'case')} of {say.counted(providers, 'provider')}: {summed}"]


def because(row: Row) -> list[str]:
    """Why a case did not pass: a sentence for each expectation that is not met, or how its job ended."""
    if row["standing"] == "failed":
        return [f"{fault['place']}: expected {fault['expected']}, found {fault['found']}" for fault in row["faults"]]
    if row["standing"] == "passed":
        return []
    state, kind, text = row["state"].replace("_", " "), row["outcome"] or "", row["text"]
    words = [text] if row["standing"] == "refused" else [state, kind.replace("_", " ") if kind != state else "", text]
    return [": ".join(dict.fromkeys(filter(None, words)))]


def _jobs(ids: list[int]) -> str:
    return f"job {ids[0]}" if len(ids) == 1 else f"jobs {ids[0]}-{ids[-1]}"
