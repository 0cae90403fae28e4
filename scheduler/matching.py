"""Which files of a folder a pattern means, links to folders not followed: a folder that leads into itself has an end.

`*`, `?`, `[..]` within a name, `**` for any folders in between, as a shell has them. The folders that a pattern begins
with may be links, they are named. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

GONE = (errno.ENOENT, errno.ENOTDIR)
MAGIC = "*?["


def walked(folder: str) -> Iterator[str]:
    """Every file below a folder, as a path from there. OSError where it cannot be read."""

    def fail(error: OSError) -> None:
        raise error

    for root, _folders, files in os.walk(folder, onerror=fail):
        for name in files:
            yield os.path.relpath(os.path.join(root, name), folder)


def matching(folder: str, pattern: str, *, hidden: bool = False) -> list[str]:
    """The files that a pattern means, sorted; `hidden`: those whose name begins with a dot too.

    OSError where that cannot be told: what is not there is no match.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    first = next((at for at, part in enumerate(parts) if _is_magic(part)), None)
    if first is None:
        return ["/".join(parts)] if parts and is_file(os.path.join(folder, *parts)) else []
    base, rest = parts[:first], parts[first:]
    start = os.path.join(folder, *base)
    if not _is_folder(start):
        return []
    found = (path for path in walked(start) if _matches(path.split("/"), rest, hidden))
    return sorted("/".join((*base, path)) for path in found if is_file(os.path.join(start, path)))


def is_file(path: str) -> bool:
    """Whether a file is there, or a link to one. OSError where that cannot be told."""
    return _is(path, stat.S_ISREG)


def _is_folder(path: str) -> bool:
    return _is(path, stat.S_ISDIR)


def _is(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(os.stat(path).st_mode)
    except ValueError:
        return False
    except OSError as error:
        if error.errno in (*GONE, errno.ELOOP):
            return False
        raise


def _is_magic(part: str) -> bool:
    return any(each in part for each in MAGIC)


def _matches(path: Sequence[str], pattern: Sequence[str], hidden: bool) -> bool:
    """Whether the names of a path are those of a pattern: by the places of the pattern that each prefix can reach."""
    at = _past_folders({0}, pattern)
    for name in path:
        dark = name.startswith(".") and not hidden
        then = set[int]()
        for place in at:
            if place == len(pattern):
                continue
            if pattern[place] == "**":
                then |= set() if dark else {place}
            elif fnmatchcase(name, pattern[place]) and (not dark or pattern[place].startswith(".")):
                then.add(place + 1)
        at = _past_folders(then, pattern)
    return len(pattern) in at


def _past_folders(places: set[int], pattern: Sequence[str]) -> set[int]:
    """`**` may also stand for no folder."""
    found = set(places)
    for place in sorted(places):
        while place < len(pattern) and pattern[place] == "**":
            place += 1
            found.add(place)
    return found
