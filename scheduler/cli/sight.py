"""Whether the running scheduler sees what a call sees: it looks into the folders that it was started with."""

from __future__ import annotations

import os

from scheduler import wake
from scheduler.cli import say
from scheduler.config import manifest_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.config import Paths

ANSWER_S = 0.5
MARKER = "schedq-environment.json"
"""Written last by an installation (host.environments): an environment without it is not whole."""


def told(paths: Paths) -> dict[str, Any] | None:
    """What the running scheduler says of itself, None if none answers."""
    line = wake.Line(paths)
    try:
        return line.ask(ANSWER_S, op="ping")
    finally:
        line.close()


def note_unknown(about: dict[str, Any]) -> None:
    """Say which folders of manifests a running scheduler does not know and this call does."""
    known = about.get("manifests")
    for folder in map(os.path.abspath, manifest_folders()):
        if isinstance(known, list) and folder not in known:
            say.note(f"note: the running scheduler does not look into {folder}; `schedq restart` makes it")


def mismatch(about: dict[str, Any], spec: dict[str, Any], *, installs: list[str] | None = None) -> str:
    """Why the running scheduler would not run a provider that this call can; empty if it would.

    It has no manifest of it, another one, or no environment: a job would wait until an operator changes that.
    `installs`: the folders that an environment of it will be built in one of, before anything is queued.
    """
    slug, mine = spec["slug"], os.path.dirname(os.path.dirname(spec["manifest"]))
    known = about.get("manifests")
    if isinstance(known, list):
        has = [folder for folder in map(str, known) if os.path.exists(_manifest(folder, slug))]
        if not has:
            return f"the running scheduler does not look into {mine}, where {slug} lies; schedq restart makes it"
        theirs = has[-1]
        if os.path.realpath(theirs) != os.path.realpath(mine) and _bytes(theirs, slug) != _bytes(mine, slug):
            return (
                f"the running scheduler takes {slug} from {theirs}, and this call from {mine}; schedq restart makes"
                " it look where this call does"
            )
    places = about.get("envs")
    if spec["python"] or not spec["environment"] or not isinstance(places, list):
        return ""
    if has_environment(spec["environment"]["hash"], list(map(str, places))):
        return ""
    if {os.path.realpath(each) for each in installs or ()} & {os.path.realpath(str(each)) for each in places}:
        return ""
    return (
        f"the running scheduler looks for environments in {', '.join(map(str, places))}, where {slug} has none;"
        " schedq restart makes it look where this call does"
    )


def has_environment(digest: str, roots: list[str]) -> bool:
    """Whether a whole environment of this hash lies below one of these folders."""
    folder = digest.rpartition(":")[2][:32]
    return any(
        os.path.exists(os.path.join(root, folder, MARKER))
        and os.access(os.path.join(root, folder, "bin", "python"), os.X_OK)
        for root in roots
    )


def _manifest(folder: str, slug: str) -> str:
    return os.path.join(folder, slug, "provider.toml")


def _bytes(folder: str, slug: str) -> bytes:
    try:
        with open(_manifest(folder, slug), "rb") as file:
            return file.read()
    except OSError:
        return b""
