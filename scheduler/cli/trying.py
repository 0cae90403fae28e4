"""`schedq providers try`: a worker in the foreground, asked once, without the queue; and where to look if it fails."""

from __future__ import annotations

import os
import shlex
import signal
from dataclasses import replace
from typing import Any

from scheduler import config, given, manifest, outputs, request
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.cli.requests import print_reply
from scheduler.config import Paths
from scheduler.errors import AcceleratorAbsent, Refused, SchedqError, Temporary, UnknownProvider, UsageError
from scheduler.host import environments
from scheduler.host.served import provider_of
from scheduler.host.trial import ASKED, STARTING, Trial, Tried
from scheduler.look import look
from scheduler.model.host import Task
from scheduler.model.machine import Machine, Pool
from scheduler.rules import explain
from scheduler.rules.admission import claims_of, decide
from scheduler.rules.naming import named, unnamed
from scheduler.rules.peaks import on_device_gib
from scheduler.rules.placement import demand_of
from scheduler.store import identity

Spec = dict[str, Any]

CODES = {"refused": Refused.exit_code, "no_accelerator": AcceleratorAbsent.exit_code, "timed_out": 1}
"""What the outcomes of a trial that did not succeed leave with, as `run` does; all others leave with 1."""

TRACEBACK = b"Traceback (most recent call last)"

LISTED = 8
"""Outputs that are named at most where they are not kept."""


def try_(call: Call) -> int:
    """Start a provider's worker here, ask it once, print its reply, end it. The exit code is that of `run`."""
    spec = _spec(call)
    task = _task(call, spec)
    missing = environments.missing(spec)
    if missing:
        raise SchedqError(installable(missing, spec) + "; nothing was started")
    machine, pools, verdict = _looked(call, spec)
    charges = _charges(spec, machine, pools)
    _refuse_full(call, spec, verdict)
    task = replace(task, charges=charges, device_gib=on_device_gib(charges, spec["ram_gib"] or 0.0) if pools else None)
    umask, log = os.umask(0o077), Log()
    os.umask(umask)
    trial = Trial(
        spec, task, environments.python_of(spec) or "", pools=pools, charges=charges, umask=umask, log=log.write,
        say=lambda text: say.note(f"{_name(spec)}: {text}"), device_use=_device_use(spec, pools),
        timeout_s=call.duration_s("timeout"),
    )  # fmt: skip
    heard: list[int] = []

    def stop(signum: int, _frame: object) -> None:
        heard.append(signum)
        trial.stops += 1
        say.note("stopping it" if trial.stops == 1 else "killing it")

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        told = trial.run()
    finally:
        for each, how in before.items():
            signal.signal(each, how)
    code = _told(call, spec, task, told, traced=log.traced)
    return 128 + heard[0] if heard and told.outcome.kind == "interrupted" else code


# What is tried, with what


def _spec(call: Call) -> Spec:
    """What the provider declares, read this moment. UnknownProvider for a variant that it has not."""
    asked, variant = call.text("dir") or "", call.text("variant") or ""
    slug, colon, named_too = asked.partition(":")
    if colon and not variant and not os.path.isdir(asked) and "/" not in asked:
        asked, variant = slug, named_too
    is_here = "/" not in asked and os.path.lexists(os.path.join(asked, manifest.NAME))
    entry = manifest.read(f"./{asked}" if is_here else asked)
    if variant not in entry["variants"]:
        has = ", ".join(each for each in entry["variants"] if each) or "none"
        raise UnknownProvider(f"{entry['slug']} has no variant {variant!r}; it has {has}")
    found: Spec = entry["variants"][variant]
    return found


def _task(call: Call, spec: Spec) -> Task:
    """The request as a scheduler would send it. The errors are those of `run`, and nothing was started then."""
    source = call.text("input")
    if call.flag("example"):
        if source is not None:
            raise UsageError(f"--example is the input, and {source} was given too; leave out one of them")
        source = spec["example"]
        if source is None:
            raise UsageError(f"{_name(spec)} comes without an example; give it an INPUT")
    if source is None:
        raise UsageError(f"try {_name(spec)} needs an INPUT: a file, - for stdin, or --example")
    params = request.parameters(spec, call.many("param"))
    data, input_name, folder, shown = given.source(source)
    row = request.check(spec, data, input_name, folder, params, Paths(), shown)
    name = os.path.splitext(row["input_name"])[0]
    out = call.text("out")
    if out and "{batch}" in out:
        raise UsageError(f"--out {out!r}: what is tried is in no batch; {{name}} and {{slug}} may stand there")
    place = outputs.destination(out, spec["slug"], name, "").replace("{id}", "try") if out else ""
    outputs.refuse_taken([{**row, "out": place}], Paths().home, may_exist=False)
    return Task(
        worker_id=0, job_id=0, attempt=0, slug=spec["slug"], variant=spec["variant"], name=name,
        user=identity.user(), batch="", params=row["params"], input_name=row["input_name"],
        input_kind=row["input_kind"], input_sha256=row["input_sha256"], input=data,
        files={pointer: {**kept, "pinned": True} for pointer, kept in row["files"].items()},
        out=place, deadline_s=call.duration_s("timeout"),
    )  # fmt: skip


def installable(missing: str, spec: Spec) -> str:
    """The same with a command that finds the provider, where its folder is on no search path."""
    above = os.path.dirname(spec["folder"])
    if above in config.manifest_folders():
        return missing
    return missing.replace("run: schedq ", f"run: SCHEDQ_MANIFESTS={shlex.quote(above)} schedq ")


def _looked(call: Call, spec: Spec) -> tuple[Machine, list[Pool], Any]:
    """The machine now, the pools of the devices that were asked for, and whether what is declared fits."""
    snapshot = look(Paths(), config.settings()).snapshot
    machine, pools = snapshot.machine, []
    for word in call.many("device"):
        found = named(word, machine.devices)
        if len(found) != 1:
            several = f"it means {len(found)} devices: {', '.join(each.id for each in found)}"
            raise UsageError(f"--device {word}: {several if found else unnamed(word, machine.devices)}")
        pool = machine.pool(f"device:{found[0].id}") or machine.pool("unified")
        if pool is None:
            raise UsageError(f"--device {word}: nothing is placed on {found[0].id} (schedq machine says why)")
        pools += [pool] if pool not in pools else []
    provider = provider_of(spec, "")
    if not pools:
        provider = replace(provider, policy="none", vram_gib=0.0)
        if spec["policy"] == "required":
            say.note(f"note: {_name(spec)} requires a device, and is shown none; --device gives it one")
    if pools and all(pool.kind == "device" for pool in pools):
        others = {pool.id for pool in machine.pools if pool.kind == "device"} - {pool.id for pool in pools}
        machine = replace(machine, pools=tuple(pool for pool in machine.pools if pool.id not in others))
        provider = replace(provider, count=len(pools))
    return machine, pools, decide(demand_of(provider), machine, claims_of(replace(snapshot, machine=machine)))


def _charges(spec: Spec, machine: Machine, pools: list[Pool]) -> dict[str, float]:
    """What it declares, by pool: what every scheduler of this machine counts while it runs."""
    host = next((pool.id for pool in machine.pools if pool.kind in ("host", "unified")), "host")
    found = {host: float(spec["ram_gib"] or 0.0)}
    for pool in pools:
        found[pool.id] = found.get(pool.id, 0.0) + float(spec["vram_gib"] or 0.0)
    return found


def _refuse_full(call: Call, spec: Spec, verdict: Any) -> None:
    """Temporary (75) or Refused (3) where what it declares does not fit, unless it is to be started all the same.

    What declares no budget is tried to find one, and only said.
    """
    if verdict.admit:
        return
    text = f"{verdict.ruling}: {explain.sentence(verdict)}"
    if call.flag("anyway") or verdict.ruling == "undeclared":
        say.note(f"note: started all the same, although {text}")
        return
    kind = Refused if verdict.never else Temporary
    raise kind(
        f"{_name(spec)} is not started: {text}. schedq exec waits for room and runs a command in it; --anyway starts it"
        " all the same"
    )


def _device_use(spec: Spec, pools: list[Pool]) -> Any:
    """What tells how much of the shown devices a trial holds, GiB, by the name of its queue."""
    if not pools:
        return lambda _queue_id: None
    from scheduler.host.machine.holdings import DEVICE_PARTS
    from scheduler.host.machine.snapshot import MachineIdentity, Snapshots
    from scheduler.host.workers.tree import boot_id

    readers: dict[str, Snapshots] = {}
    budget = (float(spec["vram_gib"] or 0.0), float(spec["ram_gib"] or 0.0))

    def use(queue_id: str) -> float | None:
        who = MachineIdentity(boot_id(), identity.host_id())
        if queue_id not in readers:
            readers[queue_id] = Snapshots(
                Paths().home, config.settings(), who, queue_id=queue_id, budget_of=lambda _slug: budget
            )
        seen = [
            charge.used_gib
            for holding in readers[queue_id].take().ours.values()
            for charge in holding.charges
            if charge.part in DEVICE_PARTS and charge.used_gib is not None
        ]
        return sum(seen) if seen else None

    return use


# What came of it


class Log:
    """What the worker writes, to stderr, and whether a traceback was in it; one that nobody reads stops nothing."""

    def __init__(self) -> None:
        self.traced, self._end = False, b""

    def write(self, data: bytes) -> None:
        """One piece of it, as it comes."""
        self._end += data
        self.traced = self.traced or TRACEBACK in self._end
        self._end = self._end[1 - len(TRACEBACK) :]
        try:
            while data:
                data = data[os.write(2, data) :]
        except OSError:
            pass


def _told(call: Call, spec: Spec, task: Task, told: Tried, *, traced: bool) -> int:
    """Print the reply, and say what it took and where to look; the exit code."""
    outcome = told.outcome
    if outcome.kind == "ok" or told.reply is not None:
        print_reply(told.reply or b"null", one_line=call.flag("json"))
    if outcome.kind == "ok":
        _tell_outputs(task, told)
    say.note(f"{_name(spec)}: {_figures(spec, told)}")
    if told.killed:
        what = "stop_grace_s = " if told.grace_s == spec["stop_grace_s"] else ""
        say.note(
            f"note: it did not leave within {what}{told.grace_s:g} s of being told to, and was killed: look at threads"
            " and children of it that go on"
        )
    if outcome.kind in ("ok", "interrupted"):
        return 0 if outcome.kind == "ok" else 1
    what = "" if outcome.text.startswith(outcome.kind) else f"{outcome.kind.replace('_', ' ')}: "
    say.note(f"schedq: {_name(spec)} {what}{outcome.text or 'no reason was given'}")
    for hint in _hints(spec, told, traced=traced):
        say.note(f"  {hint}")
    if outcome.later:
        say.note(f"  as a job it would be tried again after {outcome.retry_after_s:g} s (exit 75)")
        return Temporary.exit_code
    if outcome.kind == "timed_out" and outcome.text.startswith("--timeout"):
        return 124
    return CODES.get(outcome.kind, 1)


def _tell_outputs(task: Task, told: Tried) -> None:
    """Where its outputs lie, or what they were where nobody asked to keep them."""
    if task.out:
        say.note(f"outputs: {told.destination}")
    elif told.outputs:
        more = f" and {len(told.outputs) - LISTED} more" if len(told.outputs) > LISTED else ""
        shown = ", ".join(f"{name} ({size} bytes)" for name, size in told.outputs[:LISTED])
        say.note(f"outputs, not kept (--out PATH keeps them): {shown}{more}")


def _figures(spec: Spec, told: Tried) -> str:
    """What it took, in one line."""
    parts = []
    if told.load_s is not None and spec["mode"] != "oneshot":
        parts.append(f"answered a ping after {told.load_s:.2f} s")
    if told.answer_s is not None:
        parts.append(f"the request took {told.answer_s:.2f} s")
    for gib, what, declared in (
        (told.host_gib, "host memory", spec["ram_gib"]), (told.device_gib, "device memory", spec["vram_gib"]),
    ):  # fmt: skip
        if gib is not None:
            says = "nothing declared" if declared is None else f"{say.gib(declared)} declared"
            parts.append(f"at most {say.gib(gib)} GiB of {what} ({says})")
    return "; ".join(parts) or "it ended before anything of it was seen"


def _hints(spec: Spec, told: Tried, *, traced: bool) -> list[str]:
    """What to look at, by how it failed and when."""
    if told.reply is not None:
        return []
    kind, run = told.outcome.kind, shlex.join(told.argv)
    by_hand = f"it was run as: {run} (in {spec['folder']})" if told.argv else ""
    if spec["mode"] == "oneshot":
        found = {
            "no_outputs": f"look at worker.outputs = {spec['outputs']} in {spec['manifest']}, and at what it writes",
            "refused": "its last line says why: exit 3 is a refusal",
        }.get(kind, "look at the last lines of its log, above; exit 0 is success, 3 a refusal, 75 later")
        return [each for each in (found, by_hand) if each]
    if told.stage == STARTING and kind == "timed_out":
        return [
            "look at: does load() end? does the script call serve(), or bind the path that --socket gives it, last?",
            by_hand,
        ]
    if told.stage == STARTING:
        return [
            each for each in ("it ended before it answered: look at the last lines of its log, above", by_hand) if each
        ]
    return {
        "no_reply": [
            "look at: a reply is one line of JSON on the connection that the request came by, "
            '{"ok": true, ...} or {"ok": false, "error", "reason"}; with the kit predict returns a dict'
        ],
        "crashed": ["it ended while it was asked: look at the last lines of its log, above", by_hand],
        "timed_out": [
            "look at: does predict() end? job.progress() is its sign of life; request_timeout_s is how long it may be"
            " without one"
        ],
        "over_budget": ["memory ran out: a larger budget, or a smaller input"],
        "no_outputs": [f"look at worker.outputs = {spec['outputs']} in {spec['manifest']}, and at what it writes"],
        "error": ["an exception of predict() stands in its log, above"] if told.stage == ASKED and traced else [],
    }.get(kind, [])


def _name(spec: Spec) -> str:
    return f"{spec['slug']}:{spec['variant']}" if spec["variant"] else str(spec["slug"])
