"""The revision of a provider: a hash over what decides its answers, which a job is pinned to at submit.

Budgets, time-outs, threads and paths of a site cost something and decide nothing: they are not in it.
"""

from __future__ import annotations

import json
import os
from typing import Any

from scheduler.declared.declaration import Env, Manifest
from scheduler.inputs.cache import Seen, sha256

LENGTH = 16


def short(value: Any) -> str:
    """The first 16 hex digits of the sha256 of a JSON value."""
    return sha256(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode("utf-8", "replace"))[
        :LENGTH
    ]


def environment_hash(env: Env) -> str:
    """What an installed environment is named by: the range of Pythons, the requirements, the check."""
    return short([env.python, env.requirements, env.check])


def revision(folder: str, found: Manifest, variant: str, spec: dict[str, Any], seen: Seen) -> str:
    """The revision of one variant; notes every file that it is made of."""
    worker, asked = found.worker, found.input

    def contents(path: str | None) -> str | None:
        return None if path is None else sha256(seen.bytes_of(path))

    return short({
        "slug": found.slug, "variant": variant, "mode": found.mode, "script": worker.script,
        "script_bytes": contents(spec["script"]), "code": code(folder, seen), "command": worker.command,
        "args": worker.args, "wrap": worker.wrap, "outputs": worker.outputs, "env": worker.env,
        "unset": worker.unset, "pass": worker.pass_,
        "environment": [found.env.python, found.env.requirements] if found.env else None,
        "files": [each.sha256 or [each.path, each.bytes] for each in found.files],
        "schema": contents(spec["input"]["schema"]), "params": contents(spec["input"]["params"]),
        "input": [asked.accept, [each.model_dump() for each in asked.files], asked.size.sum_len],
    })  # fmt: skip


def code(folder: str, seen: Seen) -> dict[str, str]:
    """The sha256 of every Python file below a manifest's folder; environments and hidden folders are left out."""
    found: dict[str, str] = {}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        seen.look(here)
        try:
            with os.scandir(here) as entries:
                listed = sorted(entries, key=lambda each: each.name)
        except OSError:
            continue
        if any(each.name == "pyvenv.cfg" for each in listed):
            continue
        for each in listed:
            if each.is_dir(follow_symlinks=False):
                if each.name[0] not in "._" and each.name != "node_modules":
                    waiting.append(each.path)
            elif each.name.endswith(".py") and _is_file(each):
                found[os.path.relpath(each.path, folder)] = sha256(seen.bytes_of(each.path))
    return found


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether there is code: a link that leads nowhere, or in a circle, is none."""
    try:
        return entry.is_file()
    except OSError:
        return False
