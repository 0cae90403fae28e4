"""The names that an argument or the value of an option can have, by its metavar, for completion.

Reads the queue and the manifests; makes neither. Standard library only.
"""

from __future__ import annotations

import os

from scheduler.cli.options import ENDED, RETRIED, STATES, UNENDED, Option, Verb
from scheduler.config import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Offer = tuple[str, str]

FILES: Offer = ("", "files")

PATHS = ("PATH", "FILE", "FOLDER", "INPUT", "TRACE", "TARGET", "DIR", "COMMAND")
LOSSES = {"--on-lost": ("requeue", "hold", "fail"), "--on-parent": ("fail", "hold")}
KEYS = (
    "vram_budget_gb", "ram_budget_gb", "python", "start_timeout_s", "request_timeout_s", "idle_timeout_s",
    "max_workers", "max_attempts",
)  # fmt: skip
"""What a site sets of a provider most."""
OF_VERB = {"wait": UNENDED, "result": ENDED, "artifacts": ENDED, "table": ENDED}
"""The states of the jobs that a verb can use, where it has no --state that lists them."""


def words(verb: Verb, metavar: str, plain: list[str], begun: str, paths: Paths | None = None) -> list[Offer]:
    """What an argument of this metavar can be, after the `plain` words before it."""
    found: list[Offer] = []
    for kind in metavar.split("|"):
        if kind == "ID" and verb.name.startswith("workers"):
            found += _read(paths, lambda connection: _offered().workers(connection))
        elif kind == "ID":
            found += _jobs(verb, begun, paths)
        elif kind == "SLUG" and verb.name != "providers new":
            found += _slugs(paths)
        elif kind == "SHELL":
            found += [(shell, f"the script for {shell}") for shell in ("bash", "zsh", "fish")]
        elif kind == "SCHEDULE":
            found += _read(paths, lambda connection: _offered().schedules(connection))
        elif kind == "BATCH":
            found += _batches(paths)
        elif kind in PATHS:
            found += [*(_slugs(paths) if kind == "DIR" else []), FILES]
        elif kind == "KEY" and verb.name == "providers set":
            found += [(key, "") for key in KEYS]
    if metavar in ("BATCH", "BATCH|ID"):
        found.append(("last", "the newest"))
    return [each for each in found if each[0] not in plain]


def values(verb: Verb, option: Option, plain: list[str], begun: str, paths: Paths | None = None) -> list[Offer]:
    """What the value of an option can be: one of some words, names of the queue, or a path."""
    metavar = option.metavar
    if metavar.endswith(",..."):
        known = option.words.partition(" (")[0].split(", ") if option.words else [*RETRIED, "none"]
        lead = begun.rpartition(",")[0]
        taken = lead.split(",")
        return [(f"{lead},{word}" if lead else word, "") for word in known if word not in taken]
    if option.flag in LOSSES:
        return [(word, "") for word in LOSSES[option.flag]]
    if option.flag == "--param":
        return _parameters(plain, paths)
    if option.flag == "--label":
        return _read(paths, lambda connection: _offered().labels(connection))
    if metavar == "POOL":
        return _read(paths, lambda connection: _offered().pools(connection))
    if metavar == "none":
        return [("none", "after nobody")]
    if metavar == "P" and option.flag == "--python":
        return [FILES]
    found = words(verb, metavar.replace("[:any]", "").replace("|last", ""), [], begun, paths)
    if "ID" not in metavar:
        found = [each for each in found if each[0] != "last"]
    return [*found, ("last", "the newest one like it")] if metavar == "BATCH|last" else found


def _read(paths: Paths | None, question: Callable[[Any], list[Offer]]) -> list[Offer]:
    from scheduler.store import peek

    try:
        return peek.looked(paths or Paths(), question, [])
    except Exception:
        return []


def _offered() -> Any:
    from scheduler.store import offered

    return offered


def _jobs(verb: Verb, begun: str, paths: Paths | None) -> list[Offer]:
    """Jobs in a state in which the verb can do something, `last` and the end of a list or range of ids."""
    lead = max(begun.rfind(","), begun.rfind("-")) + 1 if begun[:1].isdigit() else 0
    filtering = next((option.words for option in verb.options if option.flag == "--state"), "")
    states = OF_VERB.get(verb.name) or (filtering.partition(" (")[0].split(", ") if filtering else STATES)
    found: list[Offer] = _read(paths, lambda connection: _offered().jobs(connection, states, begun[lead:]))
    if not lead and found:
        found.append(("last", "the job that was submitted last"))
    return [(begun[:lead] + word, about) for word, about in found]


def _batches(paths: Paths | None) -> list[Offer]:
    return _read(paths, lambda connection: _offered().batches(connection))


def _slugs(paths: Paths | None) -> list[Offer]:
    from scheduler import catalog

    kept = catalog.kept(paths or Paths())
    if kept is None:
        return _declared()
    return [
        (f"{slug}:{variant}" if variant else slug, str(spec.get("title") or slug))
        for slug, entry in kept.providers.items()
        for variant, spec in entry["variants"].items()
    ]


def _declared() -> list[Offer]:
    """What manifests say of themselves, unchecked: for the time before they are compiled."""
    import tomllib

    from scheduler.catalog import MANIFEST
    from scheduler.config import manifest_folders

    found: dict[str, str] = {}
    for folder in manifest_folders():
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            try:
                with open(os.path.join(folder, name, MANIFEST), "rb") as file:
                    told = tomllib.load(file)
            except (OSError, ValueError):
                continue
            found[name] = title = str(told.get("title") or name)
            for variant, over in dict(told.get("variants") or {}).items():
                found[f"{name}:{variant}"] = str(over.get("title") or title)
    return list(found.items())


def _parameters(plain: list[str], paths: Paths | None) -> list[Offer]:
    from scheduler import catalog

    kept = catalog.kept(paths or Paths())
    if kept is None or not plain:
        return []
    path = kept.spec(plain[0])["input"]["params"]
    if not path:
        return []
    import json

    with open(path, "rb") as file:
        schema: Any = json.load(file)
    return [
        (f"{name}=", str(about.get("description") or about.get("type") or ""))
        for name, about in (schema.get("properties") or {}).items()
    ]
