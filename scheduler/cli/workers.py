"""`schedq workers ...`: the workers of this queue, which of them go or stay, and which are started unasked."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

from scheduler import catalog, wake
from scheduler.cli import motion, pages, say
from scheduler.cli.fast import Call
from scheduler.cli.requests import not_installed
from scheduler.cli.tables import Column, Table
from scheduler.clock import now_at, now_s, seconds
from scheduler.config import Paths
from scheduler.errors import AcceleratorAbsent, BrokenManifest, NoSuchWorker, Refused, UsageError
from scheduler.model.command import called
from scheduler.rules import never
from scheduler.store import identity, peek, wishes, workers
from scheduler.store.engine import Store
from scheduler.store.kept import is_made

Row = dict[str, Any]

DROPPED_SHOWN_S = 86400.0
"""How long a wish that was dropped is shown."""


def list_workers(call: Call) -> int:
    """Print every live worker, and what is wanted warm and is not there."""
    paths = Paths()
    whole, wished = peek.status(paths), _wished(paths)
    if call.flag("json"):
        shown = {"schema_version": 1, "at": whole["at"], "workers": whole["workers"], "wishes": wished}
        shown["unreturned"] = whole.get("unreturned") or []
        say.out(say.document(shown))
        return 0
    loose = motion.unreturned(whole.get("unreturned") or [], seconds(whole["at"]))
    if not whole["workers"] and not wished and not loose:
        say.note("no workers; a job that needs one starts it, and so does schedq workers warm PROVIDER")
        return 0
    lines = _page(whole["workers"], seconds(whole["at"]))
    for told in _wish_lines(wished, whole):
        lines += ([""] if lines else []) + told
    say.out("\n".join([*lines, *loose]).lstrip("\n"))
    return 0


def _wished(paths: Paths) -> list[Row]:
    if not is_made(paths):
        return []
    with closing(Store(paths)) as store, store.read() as tx:
        rows = wishes.shown(tx)
    at_s = now_s()
    return [
        {"slug": row.slug, "variant": row.variant, "at": row.at, "user": row.user, "pin": bool(row.pinned),
         "dropped_at": row.dropped_at, "reason": {"ruling": row.ruling, "text": row.text} if row.text else None}
        for row in rows
        if row.dropped_at is None or at_s - seconds(row.dropped_at) < DROPPED_SHOWN_S
    ]  # fmt: skip


def _page(rows: list[Row], at_s: float) -> list[str]:
    """The table of workers, what each does and holds below it; lines of at most 80 columns."""
    if not rows:
        return []
    table = Table(
        Column("worker", 6, right=True), Column("provider", 16, before=2, least=9), Column("state", 11, before=1),
        Column("age", 8, right=True), Column("idle", 8, right=True), Column("charge", 9, right=True),
        Column("used", 8, right=True, drop=3), Column("jobs", 6, right=True, drop=2),
        Column("warm", 5, right=True, drop=1),
    )  # fmt: skip
    lines = [table.head()]
    for row in rows:
        used = [each["used_gib"] for each in row["charges"] if each["used_gib"] is not None]
        charge = sum(each["charge_gib"] for each in row["charges"])
        lines.append(
            table.row(
                str(row["id"]), _name(row["slug"], row["variant"]), pages.state_of(row),
                say.span(at_s - seconds(row["created_at"])), say.span(row["idle_s"]), say.gib(charge),
                say.gib(sum(used) if used else None), str(row["jobs_served"]), str(row["warm_hits"]),
            )
        )  # fmt: skip
        lines += [say.paint(line, "dim") for line in say.wrap("; ".join(_details(row)), " " * 8)]
    return lines


def _details(row: Row) -> list[str]:
    told = [f"job {row['job_id']}"] if row["job_id"] is not None else []
    told += [f"pid {row['pid']}"] if row["pid"] else []
    for each in row["charges"]:
        used = "" if each["used_gib"] is None else f", {say.gib(each['used_gib'])} used"
        told.append(f"{say.gib(each['charge_gib'])} GiB of {each['pool']}{used}")
    told += ["pinned"] if row["pinned"] else []
    if row["state"] == "retiring":
        told.append(f"ends: {row['why']}")
    elif row["retire_after"]:
        told.append(f"ends {'after its job' if row['job_id'] is not None else 'now'}: {row['retire_after']}")
    if row["unkillable"]:
        told.append("it was killed and has not gone: the kernel holds it, and what it holds stays charged")
    return told


def _wish_lines(wished: list[Row], whole: Row) -> list[list[str]]:
    """The lines of each wish: what it waits for, or why it was given up and what to do about it."""
    told = []
    for wish in wished:
        text = (wish["reason"] or {}).get("text")
        name = _name(wish["slug"], wish["variant"])
        if wish["dropped_at"]:
            again = f"schedq workers warm {name}"
            what = f"was wanted warm and is given up: {text}; {again} tries again, {again} --remove forgets it"
        elif not whole["scheduler"]["running"]:
            what = "is wanted warm: no scheduler runs that could start it; schedq up does"
        else:
            what = f"is wanted warm{' and pinned' if wish['pin'] else ''}: {text or 'it is about to be started'}"
        told.append(say.wrap(f"{name} {what}", ""))
    return told


def retire(call: Call) -> int:
    """End workers by ids, by provider, all that are idle, or all; says of each what becomes of it."""
    words, idle, everyone = call.many("who"), call.flag("idle"), call.flag("all")
    if not (words or idle or everyone):
        raise UsageError("workers retire needs workers: ids like 3 or 3-9,12, a provider's name, --idle, or --all")
    if everyone and (words or idle):
        raise UsageError(f"--all is every worker; leave it out, or leave {' '.join(words) or '--idle'} out")
    paths = Paths()
    living = peek.workers(paths)
    chosen = _chosen(words, living, paths) if words else living
    if idle:
        chosen = [row for row in chosen if row["state"] == "ready" and row["job_id"] is None]
    spared = [row for row in chosen if idle and row["pinned"]]
    why = f"{identity.user()} asked for it"
    told: list[Row] = []
    taken_back: list[str] = []
    if is_made(paths):
        with closing(Store(paths)) as store, store.write() as tx:
            for row in chosen:
                if row in spared:
                    told.append({"id": row["id"], "done": "pinned", "job_id": None})
                    continue
                done, job_id = workers.ask_to_retire(tx, row["id"], why, idle=idle)
                told.append({"id": row["id"], "done": done, "job_id": job_id})
                key = (row["slug"], row["variant"])
                if done == "now" and row["state"] in ("parked", "starting") and wishes.take_back(tx, *key):
                    taken_back.append(_name(*key))
            if everyone:
                open_ones = [(wish.slug, wish.variant) for wish in wishes.wanted(tx)]
                taken_back += [_name(*key) for key in open_ones if wishes.take_back(tx, *key)]
    of = f" of {' '.join(words)}" if words else ""
    return _told(call, paths, told, taken_back, f"no worker{of} is idle" if idle else "there are no workers")


RETIRED = {
    "now": "it ends now",
    "after": "it ends after job {job_id}",
    "coming": "it comes up for job {job_id} and stays; cancel the job, or retire the worker when it is ready",
    "busy": "it was sent job {job_id} meanwhile and stays",
    "going": "it is on its way out already",
    "gone": "it is gone already",
    "pinned": "it is pinned and stays; name it to retire it",
}


def _told(call: Call, paths: Paths, told: list[Row], taken_back: list[str], nobody: str) -> int:
    """Say what became of each worker, and nudge the scheduler that is to do it."""
    changed = any(each["done"] in ("now", "after") for each in told) or bool(taken_back)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "workers": told, "no_longer_wanted": taken_back}))
    else:
        for each in told:
            say.note(f"worker {each['id']}: {RETIRED[each['done']].format(job_id=each['job_id'])}")
        for name in taken_back:
            say.note(f"{name} is not wanted warm any more")
        if not told and not taken_back:
            say.note(f"{nobody}; nothing was changed")
    if changed:
        _nudge(paths)
    left = all(each["done"] in ("going", "gone") for each in told)
    return 0 if changed or left or call.flag("idle") or not call.many("who") else 2


def pin(call: Call) -> int:
    """Keep workers from eviction and age."""
    return _pin(call, pinned=True)


def unpin(call: Call) -> int:
    """Let workers make room and age again."""
    return _pin(call, pinned=False)


def _pin(call: Call, *, pinned: bool) -> int:
    paths = Paths()
    chosen = _chosen(call.many("who"), peek.workers(paths), paths)
    with closing(Store(paths)) as store, store.write() as tx:
        told = [{"id": row["id"], "changed": workers.pin(tx, row["id"], pinned=pinned)} for row in chosen]
    changed = any(each["changed"] for each in told)
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "pinned": pinned, "workers": told}))
    else:
        done = "pinned: it stays until it is unpinned or retired by name" if pinned else "not pinned any more"
        for each in told:
            say.note(f"worker {each['id']}: {done if each['changed'] else 'it is on its way out, nothing was changed'}")
    if changed:
        _nudge(paths)
    return 0 if changed else 2


def warm(call: Call) -> int:
    """Want workers of these providers, or want them no longer; says what is there already."""
    paths = Paths()
    known = catalog.load(paths)
    if call.flag("remove"):
        if call.flag("pin"):
            raise UsageError("--remove takes no --pin; leave one of them out")
        return _want_no_longer(call, paths)
    specs = [known.spec(word) for word in dict.fromkeys(call.many("slugs"))]
    facts = peek.facts(paths) or {}
    for spec in specs:
        _refuse_warm(spec, facts)
    told = []
    with closing(Store(paths)) as store, store.write() as tx:
        for spec in specs:
            key = (spec["slug"], spec["variant"])
            there = _there(workers.live(tx), spec)
            wishes.put(tx, *key, now_at(), identity.user(), pinned=call.flag("pin"))
            if there is not None:
                wishes.meet(tx, *key, there.id, now_at())
            told.append({"slug": key[0], "variant": key[1], "worker_id": there.id if there is not None else None})
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "warm": told}))
    else:
        for spec, each in zip(specs, told, strict=True):
            name = _name(each["slug"], each["variant"])
            missing = not_installed(spec) if each["worker_id"] is None else ""
            if missing:
                say.note(f"{name}: wanted warm, and not started before it is installed: {missing}")
            elif each["worker_id"] is None:
                say.note(f"{name}: wanted warm; schedq workers says when it is, or what it waits for")
            else:
                pinned = " and pinned" if call.flag("pin") else " already"
                say.note(f"{name}: worker {each['worker_id']} is warm{pinned}")
    _nudge(paths)
    return 0


def _there(living: list[Any], spec: Row) -> Any:
    """A worker of this provider that is up and stays, None if there is none."""
    wanted = (spec["slug"], spec["variant"], spec["revision"])
    for row in living:
        stays = row.state in ("ready", "busy") and row.retire_after is None
        if stays and (row.slug, row.variant, row.revision) == wanted:
            return row
    return None


def _refuse_warm(spec: Row, facts: Row) -> None:
    """What can never be warm is refused before anything is written."""
    name = _name(spec["slug"], spec["variant"])
    if spec["mode"] != "resident":
        raise UsageError(f"{name} starts a process for each job ({spec['mode']}): there is nothing to keep warm")
    ruling, text = never.ruling(spec, facts)
    if ruling:
        kind = AcceleratorAbsent if ruling == "no_device" else Refused
        raise kind(f"{ruling}: {text}; nothing was changed (schedq providers show {spec['slug']} has what it declares)")


def _want_no_longer(call: Call, paths: Paths) -> int:
    names = list(dict.fromkeys(call.many("slugs")))
    told = []
    wished = {_name(wish["slug"], wish["variant"]) for wish in _wished(paths)}
    for name in names:
        if name not in wished:
            _require_provider(name, paths)
    if is_made(paths):
        with closing(Store(paths)) as store, store.write() as tx:
            for name in names:
                slug, _, variant = name.partition(":")
                told.append({"slug": slug, "variant": variant, "removed": wishes.take_back(tx, slug, variant)})
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "warm": told}))
    else:
        for name, each in zip(names, told, strict=False):
            say.note(f"{name} {'is not wanted warm any more' if each['removed'] else 'was not wanted warm'}")
    return 0


def _require_provider(name: str, paths: Paths) -> None:
    """UnknownProvider for what is no provider; one whose manifest is broken is one."""
    with suppress(BrokenManifest):
        catalog.load(paths).spec(name)


def _chosen(words: list[str], living: list[Row], paths: Paths) -> list[Row]:
    """The live workers that ids or providers name, by id; what is not there is counted in a note.

    NoSuchWorker if none is there at all; UnknownProvider for a name that is no provider's.
    """
    found: dict[int, Row] = {}
    absent: list[tuple[str, int]] = []
    for part in (each.strip() for word in words for each in word.split(",")):
        first, dash, last = part.partition("-")
        if _is_number(first) and (not dash or _is_number(last)):
            low, high = int(first), int(last or first)
            if high < low:
                raise UsageError(f"{part!r} runs backwards; write {high}-{low}")
            these = [row for row in living if low <= row["id"] <= high]
            count = high - low + 1 - len(these)
            absent += [(f"worker {part}" if not dash else f"{say.counted(count, 'worker')} of {part}", count)] * (
                count > 0
            )
        else:
            these = [row for row in living if part in (row["slug"], _name(row["slug"], row["variant"]))]
            if not these:
                _require_provider(part, paths)
                absent.append((f"a worker of {part}", 1))
        found |= {row["id"]: row for row in these}
    if absent and not found:
        named = " ".join(words)
        if len(absent) == 1 and not named[:1].isdigit():
            raise NoSuchWorker(f"no worker of {named} lives; schedq workers warm {named} starts one")
        raise NoSuchWorker(f"no worker {named} lives; schedq workers lists those that do")
    if absent:
        verb = "is" if sum(count for _, count in absent) == 1 else "are"
        say.note(f"{', '.join(text for text, _ in absent)} {verb} not there; schedq workers lists those that are")
    return [found[number] for number in sorted(found)]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _name(slug: str, variant: str) -> str:
    return called(slug, variant)


def _nudge(paths: Paths) -> None:
    """Tell the scheduler; say so where none runs: what was written is done by the next one."""
    if not wake.nudge(paths) and not wake.scheduler_runs(paths):
        say.note("no scheduler runs here: that is written down, and done when one does (schedq up)")
