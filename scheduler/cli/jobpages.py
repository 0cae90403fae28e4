"""Pages about jobs that were asked for: a table of them, and all that is known of one."""

from __future__ import annotations

from itertools import pairwise

from scheduler import outputs
from scheduler.cli import joblines, kin, stamps, story
from scheduler.cli.joblines import (
    COLOURS,
    WAITING,
    begin,
    beginning,
    drawn,
    ended_as,
    grouped,
    once,
    progress,
    provider,
    why,
)
from scheduler.cli.say import counted, cut, document, elapsed, fill, page_width, paint, plain, soon, span, wrap
from scheduler.cli.sheets import waited_s
from scheduler.clock import now_s, seconds
from scheduler.rules.figures import pool_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

SPANS = 8
"""Parts of a list of ids that are named."""

STAMPS = (("submitted_at", "", ""), ("started_at", "submitted_at", " in the queue"), ("ended_at", "started_at", ""))


def batch(whole: Row, at_s: float) -> list[str]:
    """A batch in a line or two: how many of its jobs there are, succeeded, did not, are left, and until when."""
    total, left, good = whole["jobs"], whole["open"], whole["succeeded"]
    words = [f"{good} succeeded"] * bool(good) + [f"{total - left - good} did not"] * (total > left + good)
    words += [f"{left} to come"] * bool(left)
    if whole["ends_in_s"] is not None:
        words.append(f"done in about {soon(whole['ends_in_s'])}")
    if not left and whole["ended_at"]:
        took = span(seconds(whole["ended_at"]) - seconds(whole["first_at"]))
        words.append(f"ended {span(at_s - seconds(whole['ended_at']))} ago, after {took}")
    told = wrap(f"batch {whole['batch']}: {counted(total, 'job')}, {', '.join(words)}", "")
    return [*told, *([joblines.bar(total - left, total, page_width() - 5)] if left else [])]


def jobs(rows: list[Row], at_s: float | None = None) -> list[str]:
    """A table of jobs that were asked for; a reason that waiting ones share is told once."""
    if not rows:
        return ["no job matches"]
    now, beside = now_s() if at_s is None else at_s, 33 if page_width() >= 70 else 23
    room, last = page_width() - beside, f" {'took':>9}" * (beside == 33)
    lines = [paint(f"{beginning('id', 'provider', 'name', room)} {'state':10} {'ended':>11}{last}", "bold")]
    waiting: list[tuple[Row, str]] = []
    for row in rows:
        ended, started = row.get("ended_at"), row.get("started_at")
        ago = f"{span(now - seconds(ended))} ago" if ended else "-"
        took = elapsed((seconds(ended) if ended else now) - seconds(started)) if started else "-"
        state = paint(fill(ended_as(row).replace("_", " "), 10), COLOURS.get(row["state"], ""))
        last = f" {took:>9}" * (beside == 33)
        line = f"{begin(row, room)} {state} {ago:>11}{last}".rstrip()
        if row["state"] in WAITING:
            waiting.append((row, line))
            continue
        came_to = _came_to(row)
        told = _dim(cut(came_to, page_width() - 8)) if row["state"] == "running" else _dim(came_to)
        lines += [*_waiting(waiting, now), line, *told]
        waiting = []
    return lines + _waiting(waiting, now)


def _dim(text: str) -> list[str]:
    return [paint(each, "dim") for each in wrap(text, " " * 8)]


def _waiting(told: list[tuple[Row, str]], now: float) -> list[str]:
    """Lines of waiting jobs that stand together, and each reason of theirs once.

    A reason follows those that share it; where they do not stand beside each other, it is told below all, by ids.
    """
    groups = grouped([row for row, _ in told])
    of = {row["id"]: at for at, group in enumerate(groups) for row in group}
    places = [of[row["id"]] for row, _ in told]
    changes = sum(here != after for here, after in pairwise(places))
    lines = [line for _, line in told]
    if changes < len(groups):
        ends = [sum(map(len, groups[: at + 1])) for at in range(len(groups))]
        parts = zip([0, *ends], ends, groups, strict=False)
        return [line for start, end, group in parts for line in [*lines[start:end], *_dim(_because(group, now))]]
    return lines + [
        line for group in groups for line in _dim(_because(group, now, spans([job["id"] for job in group])))
    ]


def spans(ids: list[int]) -> str:
    """Rising ids in short, as they are written to a verb: `3-9, 12`; of very many parts the first."""
    parts: list[list[int]] = []
    for each in ids:
        if parts and each == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], each]
        else:
            parts.append([each])
    told = ["-".join(map(str, part)) for part in parts]
    return ", ".join(told if len(told) <= SPANS else [*told[: SPANS - 1], f"{told[-1]} and between"])


def _because(waiting: list[Row], now: float, named: str = "") -> str:
    """For how long jobs that share a reason wait, and why; by their ids, if those are given."""
    first = waiting[0]
    waited = span(now - min(seconds(each["submitted_at"]) for each in waiting))
    who = named or f"these {len(waiting)}"
    told = f"waiting for {waited}" if len(waiting) == 1 and not named else f"{who} wait, the first for {waited}"
    reason = first.get("reason") or {}
    text = why(first) if reason.get("ruling") == "scheduler_down" else stamps.locally(reason.get("text") or "")
    return told + (f": {text}" if text else "")


def _came_to(row: Row) -> str:
    """How far a running job is, and how one ended that did not succeed."""
    if row["state"] == "running":
        return "  ".join(filter(None, (drawn(row, 12), ", ".join(filter(None, progress(row))))))
    outcome = row.get("outcome") or {}
    return once(outcome["kind"], outcome.get("text") or "") if outcome.get("kind") not in (None, "ok") else ""


def job(row: Row) -> list[str]:
    """Everything of one job."""
    outcome, reason = row.get("outcome") or {}, row.get("reason") or {}
    whose = f"job {row['id']}"
    first, *rest = wrap(f"{whose}  {provider(row)}  {row['name']}", "")
    lines = [paint(whose, "bold") + first.removeprefix(whose), *rest]
    lines += _field("state", row["state"].replace("_", " "))
    if row["state"] in WAITING:
        lines += _field("why", once(reason.get("ruling") or "", reason.get("text") or ""))
    if outcome.get("kind") not in (None, "ok"):
        lines += _field("outcome", once(outcome["kind"], outcome.get("text") or ""))
    lines += _verdict(row.get("check"))
    for key, told in (("user", "user"), ("batch", "batch"), ("key", "key"), ("priority", "priority")):
        if row.get(key):
            lines += _field(told, str(row[key]))
    for told, said in kin.fields(row):
        lines += _field(told, said)
    for key, since, where in STAMPS:
        if row.get(key):
            took_s = seconds(row[key]) - seconds(row[since]) if row.get(since) else None
            took_s = waited_s(row, 0.0) if key == "started_at" else took_s
            after = f", after {elapsed(took_s)}{where}" if took_s is not None else ""
            lines += _field(key[:-3], f"{stamps.local(row[key])}{after}")
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
    for key, what in (("pruned_at", "its input, reply and logs"), ("logs_pruned_at", "its logs")):
        if row.get(key):
            lines += _field("pruned", f"{stamps.local(row[key])}: {what} are gone")
            break
    if row["state"] == "running" and any(progress(row)):
        lines += _field("progress", _came_to(row))
    lines += _attempts(row, outcome)
    happened = story.lines(row.get("story") or [])
    if happened:
        lines += ["", paint("story", "bold")]
    for at, sentence in happened:
        begin = f"  {stamps.local(str(at))}  "
        first, *rest = wrap(stamps.locally(sentence), " " * len(begin))
        lines += [begin + first.lstrip(), *rest]
    return lines


def _verdict(check: Row | None) -> list[str]:
    """What became of a validation case, and each of its expectations that is not met."""
    if check is None:
        return []
    lines = _field("case", check["case"] + (", in a worker of its own" if check["fresh"] else ""))
    if check["verdict"] is not None:
        lines += _field("verdict", check["verdict"])
    for fault in check["faults"]:
        lines += _field("", f"{fault['place']}: expected {fault['expected']}, found {fault['found']}")
    return lines


def _attempts(row: Row, outcome: Row) -> list[str]:
    """What became of each attempt, where there was more than one, or what is said of it is not said of the job."""
    lines: list[str] = []
    attempts = row.get("attempts") or []
    for attempt in attempts:
        kind, text = str(attempt.get("outcome") or "under way"), str(attempt.get("outcome_text") or "")
        as_the_job = (kind, text) == (outcome.get("kind"), outcome.get("text"))
        if len(attempts) > 1 or (attempt.get("outcome") and not as_the_job):
            lines += _field(f"attempt {attempt['attempt']}", kind if as_the_job else once(kind, text))
    return lines


def _value(value: object) -> str:
    plain_word = isinstance(value, str) and value and not set(value) & set(' ,="')
    return str(value) if plain_word else document(value, indent=False)


def _field(name: str, value: str) -> list[str]:
    head = fill(name, 10) + " "
    body = wrap(value, " " * 11) or [""]
    return [head + body[0].lstrip(), *body[1:]] if body[0].strip() else [head.rstrip()]
