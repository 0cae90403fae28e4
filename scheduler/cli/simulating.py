"""`schedq simulate`: a night that has not happened, by the scheduler that would run it."""

from __future__ import annotations

import os
import sys

from scheduler import config
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.errors import UsageError


def simulate(call: Call) -> int:
    """Run a trace and print its figures."""
    from scheduler.simulate import trace
    from scheduler.simulate.night import simulate as night

    name = str(call.text("trace"))
    if call.flag("strict") and call.text("overtake") is not None:
        raise UsageError("--strict lets nobody overtake, so --overtake says nothing beside it; give one of them")
    settings = config.settings()
    overtake_s = call.duration_s("overtake")
    strict = call.flag("strict") or (overtake_s is None and settings.flag("strict"))
    found = night(
        trace.read(_text(name), name),
        overtake_s=settings.seconds("overtake") if overtake_s is None else overtake_s,
        strict=strict,
        learned=not call.flag("unlearned"),
    )
    if call.flag("json"):
        say.out(say.document(found))
        return 0
    for line in page(found):
        say.out(line)
    return 0


def page(found: dict[str, object]) -> list[str]:
    """The figures of a night for people."""
    makespan_s, bound_s = float(str(found["makespan_s"])), float(str(found["lower_bound_s"]))
    jobs, workers = found["jobs"], found["workers"]
    assert isinstance(jobs, list) and isinstance(workers, list)
    rows = [
        ("jobs", f"{len(jobs)} of {len({job['slug'] for job in jobs})} providers"),
        ("done after", f"{say.span(makespan_s)}{_of_least(makespan_s, bound_s)}"),
        ("cold starts", f"{found['cold_starts']}, evictions {found['evictions']}"),
        ("mean wait", say.span(float(str(found["mean_wait_s"])))),
        ("longest wait", say.span(float(str(found["worst_wait_s"])))),
        ("longest at the head", say.span(float(str(found["worst_head_wait_s"])))),
    ]
    return [f"{name:20} {told}" for name, told in rows]


def _of_least(makespan_s: float, bound_s: float) -> str:
    return f", {makespan_s / bound_s:.3f} of the least possible {say.span(bound_s)}" if bound_s > 0 else ""


def _text(name: str) -> str:
    from scheduler.inputs.sources import opened
    from scheduler.simulate.trace import MOST_BYTES

    with sys.stdin.buffer if name == "-" else os.fdopen(opened(name, f"the trace {name}"), "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(f"the trace {name} has more than {MOST_BYTES >> 20} MiB; no night is that long")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the trace {name} is not UTF-8 text (byte {error.start})") from None
