"""Pages for people: the queue, one job, the workers; lines of 50 to 80 columns, as the terminal has them."""

from __future__ import annotations

from scheduler import outputs
from scheduler.cli import motion, story
from scheduler.cli.say import cut, document, elapsed, fill, gib, page_width, paint, plain, span, width, wrap
from scheduler.cli.tables import Column, Table
from scheduler.clock import now_s, seconds
from scheduler.model.command import called
from scheduler.rules.figures import pool_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

OVER = ("failed", "timed_out", "refused", "cancelled", "succeeded")
LIVE, WAITING = ("admitted", "running"), ("queued", "held")
SHOWN_RUNNING, SHOWN_ENDED, SHOWN_GROUPS = 20, 5, 20
BEGIN, BESIDE, BESIDE_LEAST = 46, 22, 12
"""Columns of a job's id, provider and name; and those beside a running job's name and time, below them if fewer."""
EMPTY = (
    "The queue is empty. What can be asked: schedq providers list",
    "                    A first request:   schedq run PROVIDER --example",
)
STAMPS = (("submitted_at", "", ""), ("started_at", "submitted_at", " in the queue"), ("ended_at", "started_at", ""))
COLOURS = {"succeeded": "green", "failed": "red", "timed_out": "red", "refused": "red", "cancelled": "yellow"}


def status(whole: Row) -> list[str]:
    """The status page."""
    jobs, now = whole["jobs"], seconds(whole["at"])
    lines = [*_scheduler(whole["scheduler"], now), *_stopped(whole, now), *pools(whole, now)]
    if whole["workers"]:
        lines += ["", *workers(whole["workers"])]
    lines += _others(whole.get("others") or [])
    lines += motion.unreturned(whole.get("unreturned") or [], now)
    lines += motion.acting(whole, now)
    running = [job for job in jobs if job["state"] in LIVE]
    waiting = [job for job in jobs if job["state"] in WAITING]
    ended = [job for job in jobs if job["state"] not in LIVE + WAITING]
    counts = whole.get("counts") or {}
    if running:
        lines += ["", _head("running", max(len(running), sum(counts.get(each, 0) for each in LIVE)))]
        lines += [line for job in running[:SHOWN_RUNNING] for line in _running(job, now)]
        lines += _more(len(running) - SHOWN_RUNNING)
    if waiting:
        lines += ["", _head("waiting", max(len(waiting), sum(counts.get(each, 0) for each in WAITING)))]
        lines += _waiting(waiting, now)
        lines += _more(int(whole.get("waiting_more") or 0) + int(whole.get("held_more") or 0))
    if ended:
        newest = sorted(ended, key=lambda job: job["ended_at"] or "", reverse=True)
        lines += ["", paint("recently ended", "bold"), *(_ended(job, now) for job in newest[:SHOWN_ENDED])]
    over = {state: counts[state] for state in OVER if counts.get(state)}
    if over:
        told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in over.items())
        first = next(iter(over))
        which = "them" if len(over) == 1 else f"the {first.replace('_', ' ')}"
        lines += ["", *wrap(f"{told}; schedq status --state {first} lists {which}", "")]
    if not jobs:
        roomy = page_width() >= max(map(len, EMPTY))
        lines += ["", *(EMPTY if roomy else wrap(". ".join(" ".join(each.split()) for each in EMPTY), ""))]
    return lines


def _head(word: str, count: int) -> str:
    return paint(word, "bold") + f" ({count})"


def _more(count: int) -> list[str]:
    return [f"       and {count} more"] if count > 0 else []


def _scheduler(scheduler: Row, now: float) -> list[str]:
    if not scheduler["running"]:
        return [paint("no scheduler runs", "yellow")]
    since = scheduler.get("since_at")
    up = f", up for {span(now - seconds(since))}" if since else ""
    first = ", the first since the machine was started anew" if scheduler.get("rebooted") else ""
    return wrap(f"scheduler {scheduler.get('pid') or '(pid unknown)'}{up}{first}", "")


def _stopped(whole: Row, now: float) -> list[str]:
    """That an operator paused or drains the queue, since when, and what ends it."""
    there = whole["workers"] or any(job["state"] in LIVE for job in whole["jobs"])
    word, at = ("drained", whole.get("drained_at")) if whole.get("drained_at") else ("paused", whole.get("paused_at"))
    word = "draining" if word == "drained" and there else word
    told = f"{word} for {span(now - seconds(at))}: nothing new starts; schedq queue resume ends that" if at else ""
    return [paint(line, "yellow") for line in wrap(told, "")]


def pools(whole: Row, now: float) -> list[str]:
    """A table of pools."""
    found = whole["pools"]
    if not found:
        return wrap("pools: not recorded yet; the scheduler reads the machine when it starts", "")
    table = Table(
        Column("pool, GiB", 22, least=7), Column("capacity", 9, right=True), Column("reserve", 9, right=True),
        Column("charged", 9, right=True), Column("owed", 8, right=True), Column("live", 8, right=True),
        Column("source", 13, before=2, drop=1),
    )  # fmt: skip
    lines = ["", table.head()]
    for pool in found:
        source = str(pool.get("live_source") or "").removeprefix("/proc/meminfo ")
        if pool.get("kind") == "device":
            source = source.partition(" ")[0]
        if pool["live_gib"] is None:
            source = "unreadable"
        figures = (gib(pool[f"{key}_gib"]) for key in ("capacity", "reserve", "charged", "owed", "live"))
        lines.append(table.row(pool_name(pool["id"]), *figures, source))
    at = whole.get("facts_at")
    if at and now - seconds(at) > 5:
        lines.append(paint(f"as of {span(now - seconds(at))} ago", "dim"))
    return lines


def _others(others: list[Row]) -> list[str]:
    """Who else holds a model here: other queues' workers, and workers that no queue started."""
    if not others:
        return []
    table = Table(
        Column("elsewhere", 19, least=10), Column("user", 10, before=1, drop=1), Column("pid", 8, before=1, right=True),
        Column("pool", 14, before=2, least=8), Column("charge", 9, right=True), Column("used", 8, right=True),
    )  # fmt: skip
    lines = ["", table.head()]
    for other in others[:5]:
        name, user = str(other.get("name") or other.get("command") or "?"), str(other.get("user") or "-")
        pool = pool_name(str(other.get("pool") or ""))
        figures = gib(other.get("charge_gib")), gib(other.get("used_gib"))
        lines.append(table.row(name, user, str(other["pid"] or "-"), pool, *figures))
    return lines + _more(len(others) - 5)


def workers(rows: list[Row]) -> list[str]:
    """A table of workers."""
    table = Table(
        Column("worker", 6, right=True), Column("provider", 19, before=2, least=10), Column("state", 10, before=1),
        Column("pid", 8, right=True, drop=1), Column("charge", 9, right=True), Column("used", 8, right=True, drop=3),
        Column("idle", 9, right=True), Column("jobs", 6, right=True, drop=2),
    )  # fmt: skip
    lines = [table.head()]
    for row in rows:
        charges = row["charges"]
        charge = sum(each["charge_gib"] or 0.0 for each in charges)
        used = [each["used_gib"] for each in charges if each.get("used_gib") is not None]
        lines.append(
            table.row(
                str(row["id"]), _provider(row), state_of(row), str(row.get("pid") or "-"), gib(charge),
                gib(sum(used) if used else None), span(row.get("idle_s")), str(row.get("jobs_served") or 0),
            )
        )  # fmt: skip
    return lines


def state_of(row: Row) -> str:
    """A worker's state; that of one which no signal ends is `unkillable`."""
    return "unkillable" if row.get("unkillable") else str(row["state"])


def _provider(row: Row) -> str:
    slug, variant = str(row["slug"]), row.get("variant") or ""
    return called(slug, variant) if ":" not in slug else slug


def _running(job: Row, now: float) -> list[str]:
    since = job.get("started_at") or job["submitted_at"]
    took = span(now - seconds(since)) if job["state"] == "running" else "starting"
    count, left, said = progress(job)
    beside = ", ".join(filter(None, (count, left)))
    below, room = said, min(BESIDE, page_width() - BEGIN - 12)
    if room < BESIDE_LEAST:
        beside, below, room = "", "; ".join(filter(None, (beside, said))), -2
    elif width(beside) > room:
        beside, below = count, "; ".join(filter(None, (left, said)))
    lines = [f"{begin(job, page_width() - 12 - room)} {took:>9}  {cut(beside, max(0, room))}".rstrip()]
    return lines + ([paint(cut(" " * 8 + below, page_width()), "dim")] if below else [])


def begin(job: Row, room: int = BEGIN) -> str:
    """How a line of a job begins: id, provider and name, in BEGIN columns or the `room` that there is."""
    return _begin(str(job["id"]), _provider(job), str(job["name"]), room)


def _begin(id: str, provider: str, name: str, room: int) -> str:
    names = min(room, BEGIN) - 9
    left = 17 * names // (BEGIN - 9)
    return f"{id:>6}  {fill(provider, left)} {fill(name, names - left)}"


def progress(job: Row) -> tuple[str, str, str]:
    """How far a running job is: what is done of what (`6/40`), the time that is left, the worker's own word.

    Of a rest below a second nothing is said: it is over at a glance, or nobody knows.
    """
    told = job.get("progress") or {}
    done, total = told.get("done"), told.get("total")
    count = "" if done is None else f"{done:g}/{total:g}" if total else f"{done:g}"
    rest_s = job.get("ends_in_s")
    left = "" if rest_s is None or rest_s < 1 else f"{span(rest_s)} left"
    return count, left, str(told.get("message") or "")


def at_a_glance(job: Row) -> str:
    """One job on one line: its state, for how long, how far it is."""
    since = job["started_at"] if job["state"] == "running" and job["started_at"] else job["submitted_at"]
    state = "waits" if job["state"] in WAITING else "starting" if job["state"] == "admitted" else job["state"]
    words = [f"job {job['id']} {state} {span(now_s() - seconds(since))}"]
    if job["state"] == "running":
        words += filter(None, progress(job))
    return ", ".join(words)


def _waiting(jobs: list[Row], now: float) -> list[str]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for job in jobs:
        reason = job.get("reason") or {}
        groups.setdefault((_provider(job), reason.get("ruling") or "", reason.get("text") or ""), []).append(job)
    lines = []
    for (_provider_name, word, text), members in list(groups.items())[:SHOWN_GROUPS]:
        first = members[0]
        others = f"+{len(members) - 1} more" if len(members) > 1 else ""
        waited = span(now - seconds(first["submitted_at"]))
        lines.append(f"{begin(first, page_width() - 22)} {waited:>9}  {others}".rstrip())
        why = text or "the scheduler has not looked at it yet"
        soon = "" if first.get("starts_in_s") is None else f"; expected in {span(first['starts_in_s'])}"
        lines += wrap(_once(word, why) + soon, " " * 8)
    return lines + _more(len(groups) - SHOWN_GROUPS)


def _ended(job: Row, now: float) -> str:
    ago = f"{span(now - seconds(job['ended_at']))} ago" if job.get("ended_at") else ""
    state = paint(fill(job["state"].replace("_", " "), 10), COLOURS.get(job["state"], ""))
    return f"{begin(job, page_width() - 24)} {state} {ago:>12}".rstrip()


def jobs(rows: list[Row]) -> list[str]:
    """A table of jobs that were asked for."""
    if not rows:
        return ["no job matches"]
    now, beside = now_s(), 33 if page_width() >= 70 else 23
    room, last = page_width() - beside, f" {'took':>9}" * (beside == 33)
    lines = [paint(f"{_begin('id', 'provider', 'name', room)} {'state':10} {'ended':>11}{last}", "bold")]
    for row in rows:
        ended, started = row.get("ended_at"), row.get("started_at")
        ago = f"{span(now - seconds(ended))} ago" if ended else "-"
        took = elapsed((seconds(ended) if ended else now) - seconds(started)) if started else "-"
        state = paint(fill(row["state"].replace("_", " "), 10), COLOURS.get(row["state"], ""))
        last = f" {took:>9}" * (beside == 33)
        lines.append(f"{begin(row, room)} {state} {ago:>11}{last}".rstrip())
        lines += [paint(each, "dim") for each in wrap(_because(row, now), " " * 8)]
    return lines


def _because(row: Row, now: float) -> str:
    if row["state"] in WAITING:
        why = (row.get("reason") or {}).get("text")
        return f"waiting for {span(now - seconds(row['submitted_at']))}" + (f": {why}" if why else "")
    if row["state"] == "running":
        return ", ".join(filter(None, progress(row)))
    outcome = row.get("outcome") or {}
    return _once(outcome["kind"], outcome.get("text") or "") if outcome.get("kind") not in (None, "ok") else ""


def _once(word: str, text: str) -> str:
    """`word: text`, and the text alone where that begins with the word."""
    return text if text.startswith(word) else f"{word}: {text}".rstrip(": ")


def job(row: Row) -> list[str]:
    """Everything of one job."""
    outcome, reason = row.get("outcome") or {}, row.get("reason") or {}
    whose = f"job {row['id']}"
    first, *rest = wrap(f"{whose}  {_provider(row)}  {row['name']}", "")
    lines = [paint(whose, "bold") + first.removeprefix(whose), *rest]
    lines += _field("state", row["state"].replace("_", " "))
    if row["state"] in WAITING:
        lines += _field("why", _once(reason.get("ruling") or "", reason.get("text") or ""))
    if outcome.get("kind") not in (None, "ok"):
        lines += _field("outcome", _once(outcome["kind"], outcome.get("text") or ""))
    for key, told in (("user", "user"), ("batch", "batch"), ("key", "key"), ("priority", "priority")):
        if row.get(key):
            lines += _field(told, str(row[key]))
    for key, since, where in STAMPS:
        if row.get(key):
            after = f", after {elapsed(seconds(row[key]) - seconds(row[since]))}{where}" if row.get(since) else ""
            lines += _field(key[:-3], f"{row[key][:19]}Z{after}")
    if row.get("params"):
        given = (f"{name}={_value(value)}" for name, value in row["params"].items())
        lines += _field("params", ", ".join(given))
    if row.get("input_name"):
        lines += _field(
            "input", f"{row['input_name']}, {row.get('input_bytes', '?')} bytes, sha256 {str(row['input_sha256'])[:16]}"
        )
    devices = next((each["device"] for each in reversed(row.get("attempts") or []) if each.get("device")), "")
    if devices:
        lines += _field("devices", ", ".join(map(pool_name, devices.split(","))))
    folder = (row.get("result") or {}).get("destination") or row.get("out")
    if folder:
        lines.append(f"{'outputs':10} {plain(folder)}")
        by = outputs.maker(folder) if row["state"] == "succeeded" else None
        if by not in (None, row["id"]):
            lines += _field("", f"was overwritten by job {by}; the outputs of job {row['id']} are no longer there")
    if row["state"] == "running" and any(progress(row)):
        lines += _field("progress", ", ".join(filter(None, progress(row))))
    lines += _attempts(row, outcome)
    happened = story.lines(row.get("story") or [])
    if happened:
        lines += ["", paint("story", "bold")]
    for at, sentence in happened:
        first, *rest = wrap(sentence, " " * 24)
        lines += [f"  {str(at)[:19]}Z  {first.lstrip()}", *rest]
    return lines


def _attempts(row: Row, outcome: Row) -> list[str]:
    """What became of each attempt, where there was more than one, or what is said of it is not said of the job."""
    lines: list[str] = []
    attempts = row.get("attempts") or []
    for attempt in attempts:
        kind, text = str(attempt.get("outcome") or "under way"), str(attempt.get("outcome_text") or "")
        as_the_job = (kind, text) == (outcome.get("kind"), outcome.get("text"))
        if len(attempts) > 1 or (attempt.get("outcome") and not as_the_job):
            lines += _field(f"attempt {attempt['attempt']}", kind if as_the_job else _once(kind, text))
    return lines


def _value(value: object) -> str:
    plain_word = isinstance(value, str) and value and not set(value) & set(' ,="')
    return str(value) if plain_word else document(value, indent=False)


def _field(name: str, value: str) -> list[str]:
    head = fill(name, 10) + " "
    body = wrap(value, " " * 11) or [""]
    return [head + body[0].lstrip(), *body[1:]] if body[0].strip() else [head.rstrip()]
