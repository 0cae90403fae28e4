"""What a call of `schedq exec` asks for: the room, the command, and whether that can be run at all."""

from __future__ import annotations

import os

from scheduler import attached
from scheduler.cli.fast import Call
from scheduler.client import Client
from scheduler.errors import Refused, SchedqError, UsageError
from scheduler.model.command import DETACHED, Shape, token_of

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of shells: it could not be run, or found."""

MOST_GIB, MOST_COUNT = 2.0**30, 4096


class Missing(SchedqError):
    """There is no such command."""

    exit_code = NOT_FOUND


class Unfit(SchedqError):
    """There is such a file, and it cannot be executed."""

    exit_code = NOT_EXECUTABLE


def asked(call: Call, kind: str) -> Shape:
    """What the options ask for. UsageError for what is no budget, Refused without any."""
    vram_gib, ram_gib, gpus = _gib(call, "vram"), _gib(call, "ram"), _count(call, "gpus", 0)
    exclusive = call.flag("exclusive")
    if vram_gib is None and ram_gib is None and not exclusive:
        raise Refused(
            "undeclared: a command is admitted on a budget or not at all; say what it will need: --ram 2 for host"
            " memory in GiB, --vram 10 for a device's, --exclusive for all that there is; nothing was queued"
        )
    if gpus is None:
        gpus = 1 if vram_gib else 0
    if gpus and not vram_gib and not exclusive:
        raise UsageError(f"--gpus {gpus} needs --vram G (GiB on each of them), or --exclusive for all of it")
    if vram_gib and not gpus:
        raise UsageError("--vram needs a device, and --gpus 0 gives none; leave out one of them")
    threads = _count(call, "threads", 1) or _own_threads()
    return Shape(vram_gib or 0.0, ram_gib or 0.0, gpus, threads, exclusive, kind, token_of(os.urandom(5)))


def _own_threads() -> int:
    """How many threads the caller wants already."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isascii() and said.isdigit() and 0 < int(said) <= MOST_COUNT else 1


def _gib(call: Call, key: str) -> float | None:
    text = call.text(key)
    if text is None:
        return None
    try:
        gib = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        gib = -1.0
    if not 0.0 <= gib <= MOST_GIB:
        raise UsageError(f"--{key} {text!r}: must be GiB, a number from 0 on, like 28 or 0.5")
    return gib


def _count(call: Call, key: str, least: int) -> int | None:
    number = call.whole(key)
    if number is not None and not least <= number <= MOST_COUNT:
        raise UsageError(f"--{key} {number}: must be a whole number between {least} and {MOST_COUNT}")
    return number


def refuse_unrunnable(word: str) -> None:
    """Missing or Unfit if the command could not be started, before it queues. Looked for as a shell does."""
    if "/" in word:
        places = [word]
    else:
        places = [os.path.join(each or ".", word) for each in os.environ.get("PATH", os.defpath).split(":")]
    there = [place for place in places if os.path.exists(place)]
    if not word or not there:
        where = "" if "/" in word else " on the PATH"
        raise Missing(f"{word or repr(word)}: there is no such command{where}; nothing was queued")
    if not any(os.path.isfile(place) and os.access(place, os.X_OK) for place in there):
        what = "it is a folder" if os.path.isdir(there[0]) else "it may not be executed (chmod +x)"
        raise Unfit(f"{there[0]}: {what}; nothing was queued")


def columns_of(call: Call, shape: Shape, command: list[str]) -> dict[str, object]:
    """The job's row, with what is said of its end. UsageError for an option that it cannot have, Refused for --out."""
    more: dict[str, object] = {}
    on_lost = call.text("on_lost")
    if on_lost is not None:
        if shape.kind != DETACHED:
            raise UsageError("--on-lost is for --detach: a command in a terminal ends with it")
        from scheduler import given

        more = given.policy(on_lost, None, None)
        if on_lost == "requeue":
            more |= {"max_attempts": 2, "retry_on": "lost"}
    if call.text("out") is not None and shape.kind != DETACHED:
        raise UsageError("--out is for --detach: a command in a terminal writes where it likes")
    if call.flag("json") and shape.kind != DETACHED:
        raise UsageError("--json is for --detach: what a command writes is its own")
    if call.flag("no_wait") and shape.kind == DETACHED:
        raise UsageError("--no-wait and --detach contradict each other; leave out one of them")
    name = call.text("name") or os.path.basename(command[0])
    columns = attached.row_of(Client().paths, shape, command, name, call.whole("priority") or 0, **more)
    if call.text("out") is not None:
        from scheduler import outputs

        columns["out"] = outputs.destination(str(call.text("out")), "exec", name, "")
        outputs.refuse_taken([columns], Client().paths.home, may_exist=False)
    return columns
