"""`schedq providers new`: the folder of a new provider, whole or not there, and what comes next."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import tempfile

from scheduler import catalog, wake
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.cli.skeletons import KINDS, files_of
from scheduler.config import Paths, absolute, manifest_folders
from scheduler.declared.compile import is_slug
from scheduler.errors import Refused, Temporary, UsageError
from scheduler.host import from_env
from scheduler.model.command import EXEC

LONGEST = 64
"""Characters of a new provider's name: it is part of file names, and a column of every list."""

PYTHON = "python3"
"""The interpreter of a skeleton where none is named: the first of that name on the scheduler's PATH."""


def new(call: Call) -> int:
    """Write the folder of a new provider and print its path. Refused (3) where something stands in its place."""
    slug = call.text("slug") or ""
    _refuse_odd(slug)
    asked = [kind for kind in KINDS[1:] if call.flag(kind)]
    if len(asked) > 1:
        raise UsageError("--oneshot and --legacy are two kinds of provider; ask for one, then for the other")
    kind = asked[0] if asked else KINDS[0]
    into = absolute(os.path.expanduser(call.text("into") or "."), "--into")
    if ":" in into:
        raise UsageError(
            f"--into {into} has a colon in it, and SCHEDQ_MANIFESTS, which is to name it, is divided by colons; choose"
            " another folder"
        )
    folder = os.path.join(into, slug)
    _refuse_taken(slug, into, folder)
    python = _python(slug, call.text("python"))
    made = files_of(kind, slug, json.dumps(python, ensure_ascii=False))
    _write(into, folder, made)
    if call.flag("json"):
        about = {"slug": slug, "kind": kind, "python": python, "folder": folder, "files": sorted(made)}
        say.out(say.document({"schema_version": 1, **about}))
    else:
        say.out(folder)
    for line in _next(slug, into, folder):
        say.note(line)
    return 0


def _refuse_odd(slug: str) -> None:
    """UsageError for what can be no provider's name, with one that can where it is near."""
    if slug == EXEC:
        raise UsageError(
            f"{EXEC} is reserved: jobs of that name are the commands of `schedq exec`; choose another name"
        )
    if ":" in slug:
        raise UsageError(
            f"{slug!r} names a variant, and those stand in their provider's manifest: make {slug.partition(':')[0]},"
            " then write [variants.NAME] into its provider.toml"
        )
    if not is_slug(slug):
        plain = re.sub(r"[^a-z0-9]+", "_", slug.lower()).strip("_").lstrip("0123456789_")
        near = f", like {plain}" if plain and plain != EXEC and len(plain) <= LONGEST else ""
        raise UsageError(
            f"{slug!r} can be no provider's name: use lower-case letters, digits and _, a letter first{near}"
        )
    if len(slug) > LONGEST:
        raise UsageError(f"{slug[:20]}... has {len(slug)} characters, and a provider's name at most {LONGEST}")


def _refuse_taken(slug: str, into: str, folder: str) -> None:
    """Refused where the folder is there, or another provider has the name: the later one would take its place whole."""
    if os.path.lexists(folder):
        raise Refused(f"{folder} is there, and nothing in it is changed; choose another name, or move it away")
    if not os.path.isdir(into):
        what = "is no folder" if os.path.lexists(into) else "is not there; make it"
        raise UsageError(f"--into {into} {what}")
    found = catalog.load(Paths())
    if slug in found.providers or slug in found.broken:
        where = found.providers[slug]["folder"] if slug in found.providers else "a folder whose manifest is broken"
        raise Refused(
            f"a provider {slug} is there already, in {where}: where two have one name, the manifest of the later folder"
            " is used whole, and the other is not seen any more; choose another name"
        )


def _python(slug: str, given: str | None) -> str:
    """The interpreter as the manifest names it: run once, so that one that cannot be a worker's is refused here."""
    if given is None:
        return PYTHON
    found = shutil.which(given) if "/" not in given and not os.path.isdir(given) else None
    taken = from_env.taken({"slug": slug, "manifest": "its manifest", "environment": {"check": "pass"}}, found or given)
    home = os.path.expanduser("~")
    inside = taken.python.startswith(home + os.sep)
    return "~" + taken.python[len(home) :] if inside and given.startswith("~") else taken.python


def _write(into: str, folder: str, made: dict[str, str]) -> None:
    """Put the files into their folder, which gets its name last. UsageError with the system's words if not; Temporary
    where there is no room.
    """
    scratch = ""
    try:
        scratch = tempfile.mkdtemp(prefix=".schedq-new-", dir=into)
        for name, text in made.items():
            path = os.path.join(scratch, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        umask = os.umask(0o077)
        os.umask(umask)
        os.chmod(scratch, 0o777 & ~umask)
        if os.path.lexists(folder):
            raise Refused(f"{folder} came into being meanwhile, and nothing in it is changed; choose another name")
        os.rename(scratch, folder)
    except OSError as error:
        kind = Temporary if error.errno in (errno.ENOSPC, errno.EDQUOT) else UsageError
        raise kind(f"{folder} cannot be written: {error.strerror}; nothing of it is there") from None
    finally:
        if scratch and os.path.lexists(scratch):
            shutil.rmtree(scratch, ignore_errors=True)


def _next(slug: str, into: str, folder: str) -> list[str]:
    """What to do with it, as commands."""
    seen = os.path.realpath(into) in {os.path.realpath(each) for each in manifest_folders()}
    before = os.environ.get("SCHEDQ_MANIFESTS")
    places = "$SCHEDQ_MANIFESTS:" if before else ""
    lines = [f"schedq providers try {shlex.quote(folder)} --example     runs it here, without the queue"]
    if not seen:
        named = shlex.quote(into)
        value = f'"{places}{into}"' if named == into else f'"{places}"{named}' if places else named
        lines.append(f"export SCHEDQ_MANIFESTS={value}     so that it is found")
    lines.append(f"schedq providers check {slug}")
    if not seen and wake.scheduler_runs(Paths()):
        lines.append("schedq restart     the scheduler that runs looks into the folders that it was started with")
    lines.append(f"schedq run {slug} --example")
    return lines
