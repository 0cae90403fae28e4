"""Memory in motion for people: what guard and reclaim do, what reserve the guard needs, what is not back yet."""

from __future__ import annotations

from scheduler.cli.say import gib, paint, span, wrap
from scheduler.clock import seconds
from scheduler.rules.figures import pool_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

SHOWN_S = 600.0
"""How long the guard's last stop, and what a reclaim gained, stands on the status page."""


def acting(whole: Row, now: float) -> list[str]:
    """What the guard keeps closed or did last, and what is being reclaimed or was, as it was recorded."""
    guard, reclaim = whole.get("guard") or {}, whole.get("reclaim") or {}
    told = [f"guard: {each['text']}" for each in guard.get("closed") or []]
    told += [f"guard: {guard['blind']}"] if guard.get("blind") else []
    acted = guard.get("acted") or []
    if acted and now - seconds(acted[-1]["at"]) < SHOWN_S:
        told.append(f"guard, {span(now - seconds(acted[-1]['at']))} ago: {acted[-1]['text']}")
    running, last_at = reclaim.get("running"), reclaim.get("last_at")
    if running:
        told.append(f"reclaim: {running}")
    elif last_at and now - seconds(last_at) < SHOWN_S:
        told.append(f"reclaim, {span(now - seconds(last_at))} ago: {reclaim.get('last')}")
    if reclaim.get("tending"):
        told.append(f"reclaim: {reclaim['tending']}")
    return [line for text in told for line in ["", *(paint(each, "yellow") for each in wrap(text, ""))]]


def settings(whole: Row, reserves: dict[str, float], *, guard_on: bool, reclaim: str) -> list[str]:
    """Whether guard and reclaim are on, and whether each reserve is what sampling needs (pool id -> reserve, GiB)."""
    if not guard_on:
        lines = ['guard: off; nobody is stopped while memory runs out (guard = "on" changes that)']
    else:
        lines = [
            "guard: on; while a worker starts or runs it is looked at ten times a second. Sampling cannot promise that "
            "a reserve is never touched: it must exceed rate x (period + exit)"
        ]
    found = whole.get("guard") or {}
    fastest, exit_s = found.get("fastest_gib_s") or {}, found.get("exit_s")
    for pool, rate in sorted(fastest.items()) if guard_on else ():
        needs, reserve = (found.get("needs_gib") or {}).get(pool, 0.0), reserves.get(pool)
        if reserve is None or rate <= 0:
            continue
        ended = f"{exit_s:.2f} s" if exit_s is not None else "none was stopped yet, one period is assumed"
        verdict = "its reserve exceeds that" if reserve > needs else (
            f"its reserve is less: raise it to that (reserves = {{ {pool_name(pool)} = {gib(needs)} }})"
        )  # fmt: skip
        lines.append(
            f"{pool_name(pool)}: the fastest growth seen is {gib(rate)} GiB/s, the longest exit {ended}: "
            f"{gib(needs)} GiB of {gib(reserve)} reserved; {verdict}"
        )
    if guard_on and not fastest:
        lines.append("no worker was seen to grow since the scheduler came up: its rate is not known yet")
    told = {"auto": "by every way there is", "files": "of files that manifests name and workers read, alone"}
    how = f"{reclaim}; the file cache is given back {told[reclaim]}" if reclaim in told else "off"
    return [*lines, f"reclaim: {how}"]


def unreturned(rows: list[Row], now: float) -> list[str]:
    """Charges whose worker is gone and whose memory is not back: how much, since when, what is seen, what to do."""
    lines: list[str] = []
    for row in rows:
        since = f" for {span(now - seconds(row['since_at']))}" if row.get("since_at") else ""
        what = f"{gib(row['charge_gib'])} GiB of {pool_name(str(row['pool']))}"
        who = f"worker {row['worker_id']} of {row['slug']}, gone{since}"
        if row["state"] == "leaked":
            seen = f"leaked: {row.get('text') or 'its memory is not back'}"
            then = (
                "looked at again at every reading, and given back by itself when it is there; if you know that it is "
                f"lost or free, schedq workers write-off {row['worker_id']}"
            )
        else:
            seen, then = "its memory is expected back", "charged until it is"
        lines += ["", *wrap(f"{what} stay charged to {who}; {seen}; {then}", "")]
    return lines
