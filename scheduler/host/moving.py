"""What is noted of a move of outputs before it happens, so that the next scheduler knows what a crash left undone.

The note lies in the attempt's own folder and says where the outputs go and whose they are; copies on their way to
another filesystem lie beside the destination, under names that only this queue and job use.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from typing import Any

from scheduler.host.workers import regular

RECORD_MAX = 64 << 20
SAME = ("queue_id", "job", "attempt", "slug", "variant", "name", "input_sha256", "params", "revision")
"""What two records have in common only if they are of one attempt of one queue."""


def _path(folder: str) -> str:
    return os.path.join(folder, "moved.json")


def note(folder: str, destination: str, facts: dict[str, Any]) -> None:
    """Say that the outputs of the attempt in this folder go there; `facts` are its job.json. OSError.

    Not synced: like the reply, it is of use within one boot.
    """
    said = {"destination": destination, "facts": {key: facts.get(key) for key in SAME}}
    regular.put(_path(folder), json.dumps(said).encode())


def noted(folder: str) -> dict[str, Any] | None:
    """The facts of the attempt whose outputs were on the move; None if no move was begun."""
    said = _read(_path(folder))
    facts = said.get("facts") if said else None
    return facts if isinstance(facts, dict) else None


def arrived(destination: str, facts: dict[str, Any]) -> bool:
    """Whether the outputs that lie at a destination are those that were noted."""
    found = _read(os.path.join(destination, "job.json"))
    return found is not None and all(found.get(key) == facts.get(key) for key in SAME)


def _read(path: str) -> dict[str, Any] | None:
    try:
        found = json.loads(regular.content(path, RECORD_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def beside(destination: str, facts: dict[str, Any], attempt: int) -> str:
    """Where an attempt's outputs are copied to before they get the destination's name."""
    whose = f"{facts.get('queue_id') or ''}\0".encode() + os.fsencode(destination)
    mark = hashlib.sha256(whose).hexdigest()[:12]
    return os.path.join(os.path.dirname(destination), f".schedq-{mark}-{facts.get('job')}-{attempt}.tmp")


def drop_copies(destination: str, facts: dict[str, Any]) -> None:
    """Take away what this attempt and those before it left beside the destination."""
    for attempt in range(1, int(facts.get("attempt") or 0) + 1):
        _remove(beside(destination, facts, attempt))


def drop(out_dir: str) -> None:
    """Take away outputs that are whole elsewhere: by one rename first, so that half of them are never taken for all."""
    with contextlib.suppress(OSError):
        os.rename(out_dir, f"{out_dir}.moved")
    _remove(f"{out_dir}.moved")


def forget(folder: str) -> None:
    """The attempt in this folder is over: its copies, its moved outputs and at last its note go."""
    said, facts = _read(_path(folder)), noted(folder)
    with contextlib.suppress(ValueError, TypeError):
        if said and facts and isinstance(said.get("destination"), str):
            drop_copies(said["destination"], facts)
    _remove(os.path.join(folder, "out.moved"))
    with contextlib.suppress(OSError):
        os.unlink(_path(folder))


def _remove(folder: str) -> None:
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


def sync(folder: str) -> None:
    """What a folder lists is on the disk. OSError."""
    synced(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def synced(fd: int) -> None:
    """What was written by a descriptor is on the disk, and the descriptor closed. OSError."""
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
