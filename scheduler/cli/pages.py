"""Pages for people: the queue, one job, the workers; lines of at most 80 columns."""

from __future__ import annotations

from scheduler import outputs
from scheduler.cli import story
from scheduler.cli.say import cut, document, elapsed, fill, gib, paint, plain, span, width, wrap
from scheduler.clock import now_s, seconds
from scheduler.rules.figures import pool_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

OVER = ("failed", "timed_out", "refused", "cancelled", "succeeded")
LIVE, WAITING = ("admitted", "running"), ("queued", "held")
SHOWN_RUNNING, SHOWN_ENDED, SHOWN_GROUPS = 20, 5, 20
BESIDE = 22
"""Columns beside a running job's name and time."""
STAMPS = (("submitted_at", "", ""), ("started_at", "submitted_at", " in the queue"), ("ended_at", "started_at", ""))
COLOURS = {"succeeded": "green", "failed": "red", "timed_out": "red", "refused": "red", "cancelled": "yellow"}


def status(whole: Row) -> list[str]:
    """The status page."""
    jobs, now = whole["jobs"], seconds(whole["at"])
    lines = [_scheduler(whole["scheduler"], now), *_stopped(whole, now), *pools(whole, now)]
    if whole["workers"]:
        lines += ["", *workers(whole["workers"])]
    lines += _others(whole.get("others") or [])
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
        lines += [
            "",
            "The queue is empty. What can be asked: schedq providers list",
            "                    A first request:   schedq run PROVIDER --example",
        ]
    return lines


def _head(word: str, count: int) -> str:
    return paint(word, "bold") + f" ({count})"


def _more(count: int) -> list[str]:
    return [f"       and {count} more"] if count > 0 else []


def _scheduler(scheduler: Row, now: float) -> str:
    if not scheduler["running"]:
        return paint("no scheduler runs", "yellow")
    since = scheduler.get("since_at")
    up = f", up for {span(now - seconds(since))}" if since else ""
    first = ", the first since the machine was started anew" if scheduler.get("rebooted") else ""
    return f"scheduler {scheduler.get('pid') or '(pid unknown)'}{up}{first}"


def _stopped(whole: Row, now: float) -> list[str]:
    """That an operator paused or drains the queue, since when, and what ends it."""
    there = whole["workers"] or any(job["state"] in LIVE for job in whole["jobs"])
    word, at = ("drained", whole.get("drained_at")) if whole.get("drained_at") else ("paused", whole.get("paused_at"))
    word = "draining" if word == "drained" and there else word
    told = f"{word} for {span(now - seconds(at))}: nothing new starts; schedq queue resume ends that" if at else ""
    return [paint(told, "yellow")] if told else []


def pools(whole: Row, now: float) -> list[str]:
    """A table of pools."""
    found = whole["pools"]
    if not found:
        return ["pools: not recorded yet; the scheduler reads the machine when it starts"]
    lines = [
        "",
        paint(f"{'pool, GiB':22}{'capacity':>9}{'reserve':>9}{'charged':>9}{'owed':>8}{'live':>8}", "bold")
        + "  source",
    ]
    for pool in found:
        figures = (
            f"{gib(pool['capacity_gib']):>9}{gib(pool['reserve_gib']):>9}{gib(pool['charged_gib']):>9}"
            f"{gib(pool['owed_gib']):>8}{gib(pool['live_gib']):>8}"
        )
        source = str(pool.get("live_source") or "").removeprefix("/proc/meminfo ")
        if pool.get("kind") == "device":
            source = source.partition(" ")[0]
        if pool["live_gib"] is None:
            source = "unreadable"
        lines.append(f"{fill(pool_name(pool['id']), 22)}{figures}  {cut(source, 13)}".rstrip())
    at = whole.get("facts_at")
    if at and now - seconds(at) > 5:
        lines.append(paint(f"as of {span(now - seconds(at))} ago", "dim"))
    return lines


def _others(others: list[Row]) -> list[str]:
    """Who else holds a model here: other queues' workers, and workers that no queue started."""
    if not others:
        return []
    head = f"{'elsewhere':20}{'user':11}{'pid':>8}  {'pool':14}{'charge':>9}{'used':>8}"
    lines = ["", paint(head, "bold")]
    for other in others[:5]:
        name, user = str(other.get("name") or other.get("command") or "?"), str(other.get("user") or "-")
        pool = pool_name(str(other.get("pool") or ""))
        lines.append(
            f"{fill(name, 19)} {fill(user, 10)} {other['pid'] or '-':>8}  {fill(pool, 14)}"
            f"{gib(other.get('charge_gib')):>9}{gib(other.get('used_gib')):>8}"
        )
    return lines + _more(len(others) - 5)


def workers(rows: list[Row]) -> list[str]:
    """A table of workers."""
    head = f"{'worker':>6}  {'provider':20}{'state':10}{'pid':>8}{'charge':>9}{'used':>8}{'idle':>9}{'jobs':>6}"
    lines = [paint(head, "bold")]
    for row in rows:
        charges = row["charges"]
        charge = sum(each["charge_gib"] or 0.0 for each in charges)
        used = [each["used_gib"] for each in charges if each.get("used_gib") is not None]
        lines.append(
            f"{row['id']:>6}  {fill(_provider(row), 19)} {fill(state_of(row), 10)}{row.get('pid') or '-':>8}"
            f"{gib(charge):>9}{gib(sum(used) if used else None):>8}{span(row.get('idle_s')):>9}"
            f"{row.get('jobs_served') or 0:>6}"
        )
    return lines


def state_of(row: Row) -> str:
    """A worker's state; that of one which no signal ends is `unkillable`."""
    return "unkillable" if row.get("unkillable") else str(row["state"])


def _provider(row: Row) -> str:
    slug, variant = str(row["slug"]), row.get("variant")
    return f"{slug}:{variant}" if variant and ":" not in slug else slug


def _running(job: Row, now: float) -> list[str]:
    since = job.get("started_at") or job["submitted_at"]
    took = span(now - seconds(since)) if job["state"] == "running" else "starting"
    count, left, said = progress(job)
    beside = ", ".join(filter(None, (count, left)))
    below = said
    if width(beside) > BESIDE:
        beside, below = count, "; ".join(filter(None, (left, said)))
    lines = [f"{_begin(job)} {took:>9}  {cut(beside, BESIDE)}".rstrip()]
    return lines + ([paint(cut(" " * 8 + below, 80), "dim")] if below else [])


def _begin(job: Row) -> str:
    return f"{job['id']:>6}  {fill(_provider(job), 17)} {fill(str(job['name']), 20)}"


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
        lines.append(f"{_begin(first)} {waited:>9}  {others}".rstrip())
        why = text or "the scheduler has not looked at it yet"
        soon = "" if first.get("starts_in_s") is None else f"; expected in {span(first['starts_in_s'])}"
        lines += wrap(_once(word, why) + soon, " " * 8)
    return lines + _more(len(groups) - SHOWN_GROUPS)


def _ended(job: Row, now: float) -> str:
    ago = f"{span(now - seconds(job['ended_at']))} ago" if job.get("ended_at") else ""
    state = paint(fill(job["state"].replace("_", " "), 10), COLOURS.get(job["state"], ""))
    return f"{_begin(job)} {state} {ago:>12}".rstrip()


def jobs(rows: list[Row]) -> list[str]:
    """A table of jobs that were asked for."""
    if not rows:
        return ["no job matches"]
    now = now_s()
    lines = [paint(f"{'id':>6}  {'provider':17} {'name':20} {'state':10} {'ended':>11} {'took':>9}", "bold")]
    for row in rows:
        ended, started = row.get("ended_at"), row.get("started_at")
        ago = f"{span(now - seconds(ended))} ago" if ended else "-"
        took = elapsed((seconds(ended) if ended else now) - seconds(started)) if started else "-"
        state = paint(fill(row["state"].replace("_", " "), 10), COLOURS.get(row["state"], ""))
        lines.append(f"{_begin(row)} {state} {ago:>11} {took:>9}".rstrip())
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
    lines = [paint(f"job {row['id']}", "bold") + f"  {plain(_provider(row))}  {plain(str(row['name']))}"]
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
