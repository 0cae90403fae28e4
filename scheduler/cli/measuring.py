"""`schedq measure`: a provider's validation cases, each run alone through the queue, and what memory they used."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

from scheduler import catalog, sitefile, wake
from scheduler.cli import learned, owning, requests, say
from scheduler.cli.fast import Call
from scheduler.client import Client
from scheduler.clock import now_at, seconds
from scheduler.config import Paths, config_files
from scheduler.errors import SchedqError, UsageError
from scheduler.night import validation
from scheduler.rules.peaks import MARGIN, budget_gib, judged, took_all
from scheduler.store import events, identity, peaks, peek
from scheduler.store.engine import Store
from scheduler.store.kept import is_made

SHORT_S = 2.0
PARTS = ("device", "host")
KEYS = {"device": "vram_budget_gb", "host": "ram_budget_gb"}


def measure(call: Call) -> int:
    """Measure a provider, or forget what was learned of it. 1 if a case did not succeed, or --write wrote nothing."""
    client = Client()
    spec = catalog.load(client.paths).spec(call.text("slug") or "")
    if call.flag("reset"):
        if call.flag("write"):
            raise UsageError("--reset measures nothing that --write could put anywhere; measure again after it")
        return _reset(call, client.paths, spec)
    rows = cases(client, spec)
    missing = requests.not_installed(spec)
    if missing:
        raise SchedqError(f"{missing}; nothing was queued")
    requests.refuse_unseen(client, spec)
    ids: list[int] = []
    try:
        try:
            client.enqueue(rows, ids.extend)
            owning.own()
            say.note(f"{_name(spec)}: {say.counted(len(ids), 'case')}, one at a time and alone, as {_jobs(ids)}")
            states = {job_id: requests.seen_through(client, job_id, None) for job_id in ids}
        finally:
            owning.disown()
    except owning.Stopped as stopped:
        client.cancel(ids)
        say.note(f"cancelling {_jobs(ids)}; nothing was written")
        return 128 + stopped.signum
    told = report(client, spec, ids, states)
    short = [row["name"] for row in told["cases"] if row["ran_s"] is not None and row["ran_s"] < SHORT_S]
    if short:
        say.note(
            f"note: {', '.join(short)} ended within {SHORT_S:g} s, and what is used is looked at ten times a second: a "
            "peak may have been missed, and inputs larger than these cases need more; measure with a larger case"
        )
    done = tell(spec, told, as_json=call.flag("json"), write=call.flag("write"))
    return 0 if done and all(state == "succeeded" for state in states.values()) else 1


def tell(spec: dict[str, Any], told: dict[str, Any], *, as_json: bool, write: bool) -> bool:
    """Say what was measured and, if asked to, put it into the site's file; whether that was done.

    UsageError if that file cannot be written: what was measured has been said by then.
    """
    if not as_json:
        _print(spec, told)
    try:
        if write:
            told["written"] = _write(spec, told)
    finally:
        if as_json:
            say.out(say.document({"schema_version": 1, **told}))
    if told["written"]:
        say.note(
            f"written to {told['written']['path']}, [{told['written']['table']}]: {_changes(told)}; workers that start "
            "from now on are charged that"
        )
    return not write or told["written"] is not None


def _changes(told: dict[str, Any]) -> str:
    """What was written in the place of what was declared, GiB."""
    before = {KEYS[part]: told["declared"][f"{part}_gib"] for part in PARTS}
    return ", ".join(
        f"{key} {say.gib(gib)} (was {'undeclared' if before[key] is None else say.gib(before[key])})"
        for key, gib in told["written"]["values"].items()
        if key in before
    )


def cases(client: Client, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a provider's validation cases, smallest first: a worker keeps what a larger one made it take.

    What it declares refuses none of them, since that is what is to be found out.
    """
    if not spec["validation"]:
        raise UsageError(
            f"{_name(spec)} has no [[validation]] case to be measured with; add one with its largest usual input to "
            f"{spec['manifest']}"
        )
    batch = f"measure-{spec['slug']}-{now_at()[:19]}Z"
    behind = peek.last_id(client.paths) or 0
    rows: list[dict[str, Any]] = []
    for case in spec["validation"]:
        row = validation.row_of(client, spec, case, batch, max_attempts=1, name=case["name"])
        rows.append({**row, "blocked": "after", "behind": behind, "measures": 1})
    return sorted(rows, key=lambda row: float(row["size"] or 0.0))


def report(client: Client, spec: dict[str, Any], ids: list[int], states: dict[int, str]) -> dict[str, Any]:
    """What was measured, against what is declared: GiB by part, None = not seen."""
    of = (spec["slug"], spec["variant"])
    with closing(Store(client.paths)) as store, store.read() as tx:
        used, idle = peaks.of_jobs(tx, *of, ids), peaks.idle_after(tx, *of, ids)
        given_gib = peaks.given_gib(tx, [row.worker_id for row in used.values()])
    declared = {"device": spec["vram_gib"] if spec["policy"] == "required" else 0.0, "host": spec["ram_gib"]}
    rows = []
    for job_id in ids:
        job, seen = client.status(job_id), used.get(job_id)
        rows.append(
            {
                "name": job["name"], "job": job_id, "state": states[job_id], "size": job["size"],
                **{f"{part}_gib": getattr(seen, f"{part}_gib", None) for part in PARTS},
                "device_given_gib": given_gib.get(seen.worker_id) if seen is not None else None,
                "ran_s": _ran_s(job), "outcome": job["outcome"],
            }
        )  # fmt: skip
    base = {f"{part}_gib": _most(getattr(row, f"{part}_gib") for row in idle) for part in PARTS}
    peak = {f"{part}_gib": _most(row[f"{part}_gib"] for row in rows) for part in PARTS}
    full = [row for row in rows if took_all(row["device_gib"], row["device_given_gib"])]
    parts = ("host",) if full or spec["policy"] != "required" else PARTS
    return {
        "slug": spec["slug"], "variant": spec["variant"], "at": now_at(), "host": os.uname().nodename,
        "device": next((row.device for row in used.values() if row.device), None),
        "declared": {f"{part}_gib": declared[part] for part in PARTS}, "base": base, "peak": peak, "cases": rows,
        "judged": {part: judged(declared[part], gib) for part in parts if (gib := peak[f"{part}_gib"]) is not None},
        "budget": {part: budget_gib(gib, part) for part in parts if (gib := peak[f"{part}_gib"]) is not None},
        "took_all": [_took_all(row) for row in full], "written": None,
    }  # fmt: skip


def _took_all(row: dict[str, Any]) -> str:
    """What is to be said of a case that used all of the device that it might."""
    return (
        f"{row['name']} took {say.gib(row['device_gib'])} of the {say.gib(row['device_given_gib'])} GiB of device "
        "memory that it was given, and that says nothing of what it needs. If its framework takes all that it may "
        'unasked, set XLA_PYTHON_CLIENT_PREALLOCATE = "false" or TF_FORCE_GPU_ALLOW_GROWTH = "true" in the '
        "manifest's env; else measure with smaller cases, or set vram_budget_gb by hand"
    )


def _ran_s(job: dict[str, Any]) -> float | None:
    """How long its last attempt took from the request on; None if none was sent, or none ended."""
    last = job["attempts"][-1] if job["attempts"] else {}
    if not last.get("sent_at") or not last.get("ended_at"):
        return None
    return max(0.0, seconds(last["ended_at"]) - seconds(last["sent_at"]))


def _most(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _write(spec: dict[str, Any], told: dict[str, Any]) -> dict[str, Any] | None:
    """Put the budgets into the site's file; None, and why on stderr, if a case failed or was not seen whole."""
    what = _lacking(PARTS if spec["policy"] == "required" else ("host",), told)
    if what:
        say.note(f"nothing was written: {what}; a budget rests on whole figures of every case")
        return None
    values: dict[str, float | str] = {KEYS[part]: gib for part, gib in told["budget"].items()}
    seen = ", ".join(f"{part} {told['peak'][f'{part}_gib']:.2f} GiB" for part in told["budget"])
    cases_of = say.counted(len(told["cases"]), "case")
    values["device"] = told["device"] or told["host"]
    values["date"] = told["at"][:10]
    values["measured"] = f"{seen} at most in {cases_of}; margin {MARGIN:.0%}"
    path = sitefile.put(config_files()[1], _name(spec), values)
    wake.nudge(Paths())
    return {"path": path, "table": f"providers.{_name(spec)}", "values": values}


def _lacking(parts: tuple[str, ...], told: dict[str, Any]) -> str:
    """What a budget of these parts cannot be made for; "" = it can."""
    failed = [row["name"] for row in told["cases"] if row["state"] != "succeeded"]
    if failed:
        return f"{', '.join(failed)} did not succeed"
    lacks = [part for part in parts if any(row[f"{part}_gib"] is None for row in told["cases"])]
    if lacks:
        unseen = [row["name"] for row in told["cases"] if any(row[f"{part}_gib"] is None for part in lacks)]
        return (
            f"no use of {' and '.join(lacks)} memory was seen of {', '.join(unseen)}: the driver did not show the "
            "worker's processes, or another scheduler took it over in the middle (then measure again)"
        )
    whole = say.counted(len(told["took_all"]), "case")
    return f"{whole} took all the device memory that was given" if told["took_all"] else ""


def _reset(call: Call, paths: Paths, spec: dict[str, Any]) -> int:
    name, variant = _name(spec), spec["variant"] if ":" in (call.text("slug") or "") else None
    gone = 0
    if is_made(paths):
        with closing(Store(paths)) as store, store.write() as tx:
            gone = peaks.forget(tx, spec["slug"], variant)
            text = f"{identity.user()} had forgotten what {gone} attempts of {name} used"
            events.record(tx, now_at(), event="forgot", text=text)
        wake.nudge(paths)
    if call.flag("json"):
        of = {"slug": spec["slug"], "variant": variant}
        say.out(say.document({"schema_version": 1, **of, "forgotten": gone}))
    else:
        say.note(f"{name}: {say.counted(gone, 'measured attempt')} forgotten; it is charged what it declares")
    return 0


def _print(spec: dict[str, Any], told: dict[str, Any]) -> None:
    wide = max(8, *(say.width(row["name"]) for row in told["cases"]))
    say.out(say.paint(f"{'case':{wide}}  {'size':>10}  {'device GiB':>10}  {'host GiB':>8}  ended", "bold"))
    for row in told["cases"]:
        say.out(f"{say.fill(row['name'], wide)}  {row['size'] or 0:>10.0f}  {_figures(row)}  {_ended(row)}".rstrip())
    if spec["mode"] != "oneshot":
        say.out(f"{'idle after its load':{wide + 12}}  {_figures(told['base'])}")
    say.out(f"{'at most':{wide + 12}}  {_figures(told['peak'])}")
    say.out(f"{'declared':{wide + 12}}  {_figures(told['declared'])}")
    for part, word in told["judged"].items():
        used, declared = told["peak"][f"{part}_gib"], told["declared"][f"{part}_gib"]
        text = learned.words(part, word, used, declared, told["budget"][part])
        say.out("\n".join(say.wrap(text, "")))
    for text in told["took_all"]:
        say.out("\n".join(say.wrap(text, "")))


def _figures(row: dict[str, Any]) -> str:
    device, host = (say.gib(row[f"{part}_gib"]) if row[f"{part}_gib"] is not None else "-" for part in PARTS)
    return f"{device:>10}  {host:>8}"


def _ended(row: dict[str, Any]) -> str:
    outcome = row["outcome"] or {}
    return str(row["state"]) + (f": {outcome['text']}" if row["state"] != "succeeded" and outcome.get("text") else "")


def _jobs(ids: list[int]) -> str:
    return f"job {ids[0]}" if len(ids) == 1 else f"jobs {ids[0]}-{ids[-1]}"


def _name(spec: dict[str, Any]) -> str:
    return f"{spec['slug']}:{spec['variant']}" if spec["variant"] else str(spec["slug"])
