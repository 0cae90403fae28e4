"""`hold`, `release`, `requeue`, `update`, `providers reset`: what an operator changes of jobs and of providers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

from sqlalchemy import Connection

from scheduler import catalog, given, wake
from scheduler.cli import repinning, say
from scheduler.cli.changing import IS, Told, change
from scheduler.cli.fast import Call
from scheduler.cli.options import ENDED, UNENDED
from scheduler.client import Client
from scheduler.clock import now_at, now_s
from scheduler.config import Paths
from scheduler.errors import BrokenManifest, Refused, UsageError
from scheduler.store import breakers, events, operator, passing, peek
from scheduler.store.absent import missing
from scheduler.store.engine import Store

AT_ONCE = 200
"""Jobs changed in one stay inside the turnstile, so that no large filter keeps the scheduler waiting."""


def hold(call: Call) -> int:
    """Keep jobs from starting until `release`. One that loads is given back, and its worker goes on loading."""
    client = Client()
    act = partial(_moved, client.paths, operator.hold, "held")
    return change(call, client, ("hold", "held"), ("queued", "admitted"), act, beside=("running", "held"))


def release(call: Call) -> int:
    """Let held jobs go, each at its old place in the line."""
    client = Client()
    act = partial(_moved, client.paths, operator.release, "released")
    return change(call, client, ("release", "released"), ("held",), act, note=what_keeps(client.paths))


def requeue(call: Call) -> int:
    """Open jobs again that failed, timed out or were cancelled, under their ids; with another time limit if asked."""
    client, timeout_s = Client(), asked_anew(call).get("timeout_s")

    def move(tx: Connection, job_id: int, at: str) -> str:
        state = operator.requeue(tx, job_id, at)
        if timeout_s is not None and state in operator.WAITING:
            operator.update(tx, job_id, at, {"timeout_s": timeout_s})
        return state

    act = partial(_moved, client.paths, move, "requeued")
    return change(call, client, ("requeue", "requeued"), ENDED[1:], act, note=what_keeps(client.paths))


def _moved(
    paths: Paths, move: Callable[[Connection, int, str], str], done: str, ids: list[int], dry: bool
) -> list[Told]:
    def act(tx: Connection, job_id: int, at: str) -> str:
        before = operator.row(tx, job_id).state
        return done if move(tx, job_id, at) != before else ""

    return _each(paths, ids, done, act, dry=dry)


def update(call: Call) -> int:
    """Change what jobs asked for. UsageError if nothing is given to change."""
    client = Client()
    columns, repin, untied = asked_anew(call), call.flag("repin"), _untied(call)
    if not columns and not repin and not untied:
        raise UsageError("update needs something to change, like --priority 5; schedq update --help lists it all")

    def changed(ids: list[int], dry: bool) -> list[Told]:
        anew = repinning.Repinning(client, ids) if repin else None

        def act(tx: Connection, job_id: int, at: str) -> str:
            said = [passing.untie(tx, job_id, at)] if untied else []
            if columns or anew:
                said.append(operator.update(tx, job_id, at, {**columns, **(anew.columns(job_id) if anew else {})}))
            return ", ".join(filter(None, said))

        return _each(client.paths, ids, "changed", act, dry=dry)

    asked = {*columns, *(("revision",) if repin else ())}
    able = tuple(state for state in UNENDED if all(state in operator.CHANGEABLE[column] for column in asked))
    able = tuple(state for state in able if state in operator.WAITING or not untied)
    rest = tuple(state for state in UNENDED if state not in able)
    return change(call, client, ("update", "changed"), able, changed, beside=rest)


def _untied(call: Call) -> bool:
    """Whether jobs are to come after nobody: --after none, the only thing that can be changed of that."""
    word = call.text("after")
    if word not in (None, "none"):
        raise UsageError(f"--after {word}: of what a job comes after only none can be given later; submit it again")
    return word == "none"


def asked_anew(call: Call) -> dict[str, Any]:
    """The columns of a job that `update` is given to change; those of the retry policy as `submit` takes them."""
    columns = given.policy(call.text("on_lost"), call.whole("max_attempts"), call.text("retry_on"), typed=True)
    priority, timeout_s = call.whole("priority"), call.duration_s("timeout")
    if timeout_s == 0.0:
        raise UsageError(f"--timeout {call.text('timeout')} would end every attempt at once; give it 1ms or more")
    more = {"priority": priority, "timeout_s": timeout_s}
    begin = {} if call.text("begin") is None else {"not_before_at": given.begin(call.text("begin"), "--begin")}
    return {**columns, **{column: value for column, value in more.items() if value is not None}, **begin}


class _Undone(Exception):
    """Raised inside a transaction that was only to show what it would do."""


def _each(
    paths: Paths, ids: list[int], done: str, act: Callable[[Connection, int, str], str], *, dry: bool
) -> list[Told]:
    """What became of each job. `act` answers in which words it was changed, "" if it was so already.

    A job of which `act` is refused is told so, and the others go on. NoSuchJob, before anything is done. `dry`: what
    would become of each, by the same writes, all of them undone.
    """
    there = peek.states(paths, ids)
    absent = [job_id for job_id in ids if job_id not in there]
    if absent:
        raise missing(absent, paths)
    told: list[Told] = []
    with closing(Store(paths)) as store:
        with store.read() as tx:
            order = passing.parents_first(tx, ids)  # whether a job can go on depends on those that it comes after
        for start in range(0, len(ids), AT_ONCE):
            with suppress(_Undone), store.write() as tx:
                told += [_one(tx, job_id, done, act) for job_id in order[start : start + AT_ONCE]]
                if dry:
                    raise _Undone
    if not dry:
        wake.nudge(paths)
    places = {job_id: place for place, job_id in enumerate(ids)}
    return sorted(told, key=lambda each: places[each.id])


def _one(tx: Connection, job_id: int, done: str, act: Callable[[Connection, int, str], str]) -> Told:
    before = operator.row(tx, job_id).state
    try:
        text = act(tx, job_id, now_at())
    except (UsageError, Refused) as error:
        kind = IS[before] if isinstance(error, UsageError) else (f"cannot be {done}",)
        return Told(job_id, before, before, str(error), kind, changed=False, code=error.exit_code)
    now = operator.row(tx, job_id).state
    said = f"job {job_id}: {text or f'{done} already, nothing changed'}" + f", {now}" * (now not in (text, before))
    same = IS[now] if done != "changed" else ("had that already",)
    return Told(job_id, before, now, said, (done,) if text else same, changed=bool(text))


def what_keeps(paths: Paths) -> str:
    """What keeps every job of the queue from starting now, with what ends that; "" for nothing."""
    if not wake.scheduler_runs(paths):
        return "note: no scheduler runs, so nothing starts yet; start it: schedq up"
    if any(stops := peek.stopped(paths)):
        word = "drained" if stops[1] else "paused"
        return f"note: the queue is {word}, so nothing starts yet; schedq queue resume ends that"
    return ""


def reset(call: Call) -> int:
    """Close the breakers of providers now, and say what each was; what waited for its next try is tried again too.

    UnknownProvider before anything is done.
    """
    paths = Paths()
    slugs = [_known(slug, paths) for slug in dict.fromkeys(call.many("slugs"))]
    rows: list[dict[str, Any]] = []
    with closing(Store(paths)) as store, store.write() as tx:
        for slug in slugs:
            was = breakers.row(tx, slug)
            freed = operator.try_now(tx, slug)
            rows.append({**_was(slug, was), "freed": freed})
            if freed:
                rows[-1]["text"] += f"; {say.counted(freed, 'job')} that waited for the next try may go on now"
            if was is not None or freed:
                breakers.put(tx, slug, None)
                events.record(tx, now_at(), event="reset", text=f"{slug}: {rows[-1]['text']}")
    wake.nudge(paths)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "providers": rows}))
        return 0
    for row in rows:
        say.note(f"{row['slug']}: {row['text']}")
    return 0


def _known(slug: str, paths: Paths) -> str:
    """The provider that a word names; one whose manifest is broken, or gone while it is remembered, is one."""
    name = slug.partition(":")[0]
    try:
        catalog.load(paths).spec(name)
    except BrokenManifest:
        pass
    except UsageError:
        if name not in peek.broken(paths):
            raise
    return name


def _was(slug: str, state: Any) -> dict[str, Any]:
    """What a breaker was before it was closed."""
    if state is None:
        return {"slug": slug, "was": "closed", "failures": 0, "last_error": None, "text": "was not broken"}
    last = f": {state.last_error}" if state.last_error else ""
    failed = f"failed {say.counted(state.failures, 'time')} in a row{last}" if state.failures else f"put off{last}"
    if state.next_try_s is None:
        text, was = f"was not broken yet ({failed}); forgotten", "closed"
    else:
        left_s = state.next_try_s - now_s()
        then = f"would have been tried again in {say.span(left_s)}" if left_s > 0 else "was being tried again"
        text, was = f"was broken ({failed}) and {then}; closed, its jobs go on", "open"
    return {"slug": slug, "was": was, "failures": state.failures, "last_error": state.last_error or None, "text": text}
