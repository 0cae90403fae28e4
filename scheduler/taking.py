"""What a draft takes of its parents' results: values and files found, and kept beside the content.

What cannot be read now is told from what never will be: `Later` and an OSError may pass, `Unmet` ends the job.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import Any

from scheduler import matching, outputs, request
from scheduler.config import Paths, settings
from scheduler.errors import InvalidInput, Refused, UsageError
from scheduler.inputs import formats
from scheduler.inputs.cache import sha256 as digest
from scheduler.store import content

LASTS = (*matching.GONE, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
"""What keeps a file from being read whenever it is tried; whatever else does may pass."""

JOB_JSON = "job.json"
"""What schedq itself puts beside outputs: no pattern means it."""


@dataclass
class Made:
    """What became of one draft: pins by the number of their reference, staged pieces by sha256.

    `relied`: pieces that were there already. `columns`: the row of the input that was made, `data` its bytes, None
    where they are a piece too. `fault`: (outcome, why) of one that cannot be made. `put_off`: why it cannot be told
    yet; `odd`: nobody foresaw that.
    """

    job_id: int
    pins: dict[str, Any] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    relied: set[str] = field(default_factory=set)
    columns: dict[str, Any] | None = None
    data: bytes | None = None
    fault: tuple[str, str] | None = None
    put_off: str = ""
    odd: bool = False

    def discard(self) -> None:
        """Remove what was staged and is not needed."""
        for staged in self.staged.values():
            content.discard(staged)
        self.staged.clear()


class Unmet(Exception):
    """What a draft takes is not there, in words."""


class Later(Exception):
    """What a draft needs is not there now, and may be another time; in words."""


def found(paths: Paths, ref: dict[str, Any], parent: dict[str, Any]) -> str:
    """The one file that a reference names in its parent's outputs."""
    folder, name = _folder(paths, parent, what_of(ref)), ref["file"]
    whole = os.path.join(folder, name)
    if matching.is_file(whole):
        return whole
    matches = [each for each in matching.matching(folder, name) if each != JOB_JSON]
    if len(matches) == 1:
        return os.path.join(folder, matches[0])
    if matches:
        raise Unmet(f"{who(parent)}: {name} matches {len(matches)} of its outputs: {_few(sorted(matches))}; name one")
    there = [each for each in matching.matching(folder, "**/*") if each != JOB_JSON]
    raise Unmet(f"{who(parent)} has no output {name}; {_nearest(name, sorted(there))}")


def _nearest(name: str, there: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, there, n=1)
    has = f"its outputs are {_few(there)}" if there else "it has no outputs"
    return f"did you mean {near[0]}? {has}" if near else has


def _few(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _folder(paths: Paths, parent: dict[str, Any], what: str) -> str:
    """Where a parent's outputs are. One of the user's own that is not there may lie on a disk that is not mounted."""
    folder = parent["destination"]
    if not folder:
        raise Unmet(f"{who(parent)}: it has no outputs, and its input takes {what}")
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise Unmet(f"{who(parent)}: its outputs at {folder} are no folder, and its input takes {what}")
    except OSError as error:
        text = f"{who(parent)}: its outputs at {folder} are"
        ours = folder.startswith(paths.results + "/") and os.path.isdir(paths.results)
        if error.errno in LASTS and error.errno not in matching.GONE:
            raise Unmet(f"{text} nobody's to read ({error.strerror}), and its input takes {what}") from None
        if error.errno in matching.GONE and ours:
            raise Unmet(f"{text} gone, and its input takes {what}") from None
        raise Later(f"{text} not there now ({error.strerror}), and its input takes {what}") from None
    by = outputs.maker(folder)
    if by not in (None, parent["id"]):
        raise Unmet(f"{who(parent)}: its outputs at {folder} were overwritten by job {by}, and its input takes {what}")
    return str(folder)


def path_of(paths: Paths, value: str, parent: dict[str, Any]) -> str:
    """A path that a result holds: from its job's outputs unless it is absolute.

    What the worker called it while its attempt ran (in that one's `out`) lies at the destination by now.
    """
    if os.path.isabs(value):
        made_in = os.path.join(paths.attempt(parent["id"], parent["attempt"] or 0), "out")
        under = [each + "/" for each in (made_in, os.path.realpath(made_in)) if value.startswith(each + "/")]
        if not under:
            return value
        value = value[len(under[0]) :]
    folder = _folder(paths, parent, f"the file {formats.shortened(value)}")
    whole = os.path.normpath(os.path.join(folder, value))
    if not whole.startswith(folder.rstrip("/") + "/"):
        raise Unmet(f"{who(parent)}: the file {formats.shortened(value)} of its result leads out of its outputs")
    return whole


def kept_file(paths: Paths, path: str, answer: Made, *, as_path: bool, by: dict[str, Any]) -> dict[str, Any]:
    """A file, kept by content; one above inputs_copy_max_gib that only its path is needed of stays where it is."""
    if not as_path:
        refuse_large(_size(path), f"{who(by)}: the file {os.path.basename(path)}")
    try:
        entry = request.pinned(path)
        entry["name"] = os.path.basename(path)
        if as_path and entry["bytes"] > limit("inputs_copy_max_gib") * (1 << 30):
            return {**entry, "pinned": True}
        sha256 = entry["sha256"]
        if not _there(paths, sha256, answer):
            answer.staged[sha256] = content.stage(paths, path, sha256, "the input")
    except (UsageError, Refused) as error:
        cause = error.__context__
        if isinstance(cause, OSError) and cause.errno not in LASTS:
            raise cause from None
        raise Unmet(f"{who(by)}: {error}") from None
    return entry


def _there(paths: Paths, sha256: str, answer: Made) -> bool:
    """Whether a piece is kept or staged already; one that is kept is durable then."""
    if sha256 not in answer.staged and content.present(paths, sha256):
        content.settle(paths, sha256)
        answer.relied.add(sha256)
        return True
    return sha256 in answer.staged


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0


def refuse_large(size_bytes: int, what: str) -> None:
    """Refused if so much is to be read into an input, before it is."""
    limit_mib = limit("input_max_mib")
    if size_bytes > limit_mib * (1 << 20):
        raise InvalidInput(f"{what} has {size_bytes} bytes, above the {limit_mib:g} MiB of input_max_mib")


def limit(name: str) -> float:
    """A setting's figure. Later if the settings cannot be read."""
    try:
        return float(settings().number(name))
    except UsageError as error:
        raise Later(str(error)) from None


def staged(paths: Paths, data: bytes, answer: Made) -> str:
    """Bytes written beside the content, unless they are there; their sha256."""
    sha256 = digest(data)
    if not _there(paths, sha256, answer):
        answer.staged[sha256] = content.stage_bytes(paths, data)
    return sha256


def what_of(ref: dict[str, Any]) -> str:
    """What a reference takes, in words."""
    return f"the file {ref['file']}" if "file" in ref else ref["pointer"] or "all of it"


def who(parent: dict[str, Any]) -> str:
    """A job as messages call it: its id, provider and name."""
    name = f"{parent['slug']}:{parent['variant']}" if parent["variant"] else parent["slug"]
    return f"job {parent['id']} ({name} {parent['name']})".replace(" )", ")")
