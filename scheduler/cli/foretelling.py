"""`submit --dry-run`: what would be queued, what refused, and when it should end. Nothing is written."""

from __future__ import annotations

from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.cli.say import soon
from scheduler.cli.submitting import note_counted, placed
from scheduler.client import Client
from scheduler.clock import local, now_s, stamp
from scheduler.errors import LISTED, all_of
from scheduler.night.foretold import foretold
from scheduler.store import intake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.asked import Asking

GO = ("added", "reopened", "replaced")
"""The fates of rows that would run because of this call."""

WOULD = {"known": "the same by their key", "succeeded": "succeeded before", "unended": "not ended yet"}


def foretell(call: Call, client: Client, asking: Asking, count: int, specs: list[dict[str, Any]]) -> int:
    """Print what a submission would do; the exit code is the one that it would have."""
    counts: dict[str, int] = {}
    fates, more = intake.foretold(
        client.paths, asking.rows, resume=call.flag("resume"), refused=asking.refused, counts=counts
    )
    bad = {asking.asked_as[index][0]: (where, error) for index, where, error in more}
    bad |= {index: (where, error) for index, where, error in asking.faults}
    faults = [(index, where, error) for index, (where, error) in sorted(bad.items())]
    good = [
        (row, fate)
        for row, fate, (index, _) in zip(asking.rows, fates, asking.asked_as, strict=True)
        if index not in bad
    ]
    going = [row for row, fate in good if fate in GO]
    free = [row for row in going if not _waits(row)]
    found = foretold(client, free, specs)
    found["not_counted"] = {word: sum(_waits(row) == word for row in going) for word in ("held", "after")}
    ours = {(row["slug"], row["variant"]) for row in free}
    known = [found["ends"][key] for key in ours if key in found["ends"]]
    ends_in_s = max(known) if known and len(known) == len(ours) else None
    code = all_of(faults, count).exit_code if faults else 0
    if call.flag("json"):
        say.out(say.document(_document(call, good, faults, found, ends_in_s)))
        return code
    for line in _page(good, found, ours):
        say.out(line)
    if faults and len(faults) <= LISTED:
        error = placed(call, all_of(faults, count, "jobs"))
        say.note(f"schedq: {error}".replace("so none was:", "so none would be:"))
    elif faults:
        from scheduler.night import faults as of_many

        text = of_many.summed(faults, count, call.text("source") or "", keep=False)
        say.note(f"schedq: {text}".replace("so none was:", "so none would be:"))
    elif going:
        if ours:
            say.note(_end(found, ours, ends_in_s))
        if said := _not_counted(found["not_counted"], among=bool(ours)):
            say.note(said)
    if not faults:
        if replaced := fates.count("replaced"):
            say.note(
                f"{replaced} of those again with {'its' if replaced == 1 else 'their'} request replaced by this one"
            )
        note_counted(counts, "would")
    say.note("nothing was queued")
    return code


def _waits(row: dict[str, Any]) -> str:
    """Why a job would not start as soon as there is room: `held`, or `after` others; empty if it would."""
    beside = row.get("beside") or {}
    return "held" if row["state"] == "held" else "after" if beside.get("after") or beside.get("draft") else ""


def _not_counted(counts: dict[str, int], *, among: bool) -> str:
    """What is said of jobs that are not to start yet, so that nobody takes the end of the others for theirs."""
    words = {"held": "would be held until schedq release", "after": "would come after other jobs"}
    named = [f"{counts[word]} {text}" for word, text in words.items() if counts[word]]
    if not named:
        return ""
    return f"{' and '.join(named)}: {'that is without these' if among else 'nobody can tell when these should end'}"


def _page(good: list[tuple[dict[str, Any], str]], found: dict[str, Any], ours: set[tuple[str, str]]) -> list[str]:
    from scheduler.cli.tables import Column, Table

    by_provider: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for row, fate in good:
        by_provider.setdefault(f"{row['slug']}:{row['variant']}" if row["variant"] else row["slug"], []).append(
            (row, fate)
        )
    table = Table(
        Column("provider", 20, least=8), Column("new", 8, before=2, right=True),
        Column("again", 8, before=2, right=True), Column("left", 8, before=2, right=True),
        Column("done in", 10, before=2, right=True), Column("first of them", 24, before=2, least=8),
    )  # fmt: skip
    lines = [table.head()] if by_provider else []
    for name, rows in by_provider.items():
        fates = [fate for _, fate in rows]
        added = fates.count("added")
        reopened = sum(fates.count(each) for each in GO) - added
        first = next((row["name"] for row, fate in rows if fate in GO), "-")
        key = rows[0][0]["slug"], rows[0][0]["variant"]
        ends = found["ends"].get(key) if key in ours else None
        left = len(rows) - added - reopened
        lines.append(
            table.row(name, str(added), str(reopened), str(left), "?" if ends is None else soon(ends), str(first))
        )
    return lines


def _end(found: dict[str, Any], ours: set[tuple[str, str]], ends_in_s: float | None) -> str:
    before = f"{say.counted(found['ahead'], 'job')} before them" if found["ahead"] else "nothing before them"
    held = f"; {found['held']} that may not start yet are not counted" if found["held"] else ""
    if ends_in_s is None:
        names = [f"{slug}:{variant}" if variant else slug for slug, variant in sorted(ours)]
        unseen = [name for name in names if name in found["unknown"]] or found["unknown"]
        seen = f"no job of {', '.join(unseen)} has ended well here"
        return f"nobody can tell when they should end: {seen} ({before}{held})"
    at = f"should end in {soon(ends_in_s)}, {local(now_s() + ends_in_s)}"
    return f"{at} ({before}; from what such jobs took so far{held})"


def _document(
    call: Call,
    good: list[tuple[dict[str, Any], str]],
    faults: list[Any],
    found: dict[str, Any],
    ends_in_s: float | None,
) -> dict[str, Any]:
    keys = ("where", "slug", "variant", "name", "key", "batch", "priority", "state", "not_before_at", "out")
    return {
        "schema_version": 1, "dry_run": True, "batch": call.text("batch"),
        "jobs": [{**{key: row.get(key) for key in keys}, "fate": fate} for row, fate in good],
        "refused": [{"where": where, "why": str(error), "exit_code": error.exit_code} for _, where, error in faults],
        "ends_in_s": ends_in_s, "ends_at": None if ends_in_s is None else stamp(now_s() + ends_in_s),
        "unknown": found["unknown"], "ahead": found["ahead"], "not_counted": found["not_counted"],
    }  # fmt: skip
