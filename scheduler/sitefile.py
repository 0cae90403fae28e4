"""What is measured, put into the configuration of this site: one table of the user's file, and all else as it was.

The file is the user's: comments, order, blanks and ends of lines stay. Lines are changed, and what comes of it is read
again before it takes the file's place; where the two do not agree nothing is written, and the lines are shown to be put
in by hand. Who writes holds the lock of the file's folder.
"""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
from typing import Any

from scheduler import locks, tomlfile
from scheduler.errors import Temporary, UsageError

NESTED = {"vram_budget_gb": "gpu", "ram_budget_gb": "host", "python": "worker"}
"""The table of a provider that a key may stand in by itself."""

PATIENCE_S = 10.0
"""How long another one that writes there is waited for."""

Value = float | str


def put(path: str, name: str, values: dict[str, Value]) -> str:
    """Set keys of `[providers.NAME]` in the file at `path`, made if it is not there; the file that was written.

    UsageError if it cannot be read or written, or cannot be changed line by line; Temporary if there is no room, or
    another one writes. It is as it was then, and the error says what is to be put into it by hand.
    """
    path = os.path.realpath(path)
    try:
        _put(path, name, values)
    except (UsageError, Temporary) as error:
        by_hand = "\n".join(_section(name, values))
        raise type(error)(f"{error}. Put this into it by hand:\n{by_hand}") from None
    return path


def remove(path: str, name: str, key: str) -> bool:
    """Take a key out of `[providers.NAME]`, or out of its own table there; whether it was there.

    UsageError if the file cannot be read, or cannot be changed line by line; then it is as it was.
    """
    path = os.path.realpath(path)
    lock = locked(os.path.dirname(path), path)
    try:
        before = text_of(path)
        table = parsed(before, path)
        if not _has(table, name, key):
            return False
        after = _taken_out(before, name, key)
        found = parsed_or_none(after, path)
        if found is None or _has(found, name, key) or _without(found, name, key) != _without(table, name, key):
            raise UsageError(
                f"{path} has {key} of {name} in a form that is not changed line by line; take it out by hand"
            )
        replace(path, after)
    finally:
        locks.let_go(lock)
    return True


def _taken_out(text: str, name: str, key: str) -> str:
    """The text without the lines of a key, and without a table that says nothing else."""
    lines = text.split("\n")
    for place in (["providers", name], ["providers", name, NESTED.get(key, "")]):
        for n in reversed(lines_of(lines, place) or ()):
            if re.match(rf"\s*{key}\s*=", lines[n]):
                del lines[n]
        left = lines_of(lines, place)
        if left is not None and not any(lines[n].strip() for n in left):
            del lines[left.start - 1 : left.stop if left.stop < len(lines) else left.start]
    return "\n".join(lines)


def _has(table: dict[str, Any], name: str, key: str) -> bool:
    own = table.get("providers", {}).get(name, {})
    return key in own or key in own.get(NESTED.get(key, ""), {})


def _without(table: dict[str, Any], name: str, key: str) -> dict[str, Any]:
    """What a file says beside one key; a table that holds nothing else says nothing."""
    providers = dict(table.get("providers", {}))
    own = dict(providers.pop(name, {}))
    own.pop(key, None)
    nest = NESTED.get(key, "")
    if isinstance(own.get(nest), dict):
        own[nest] = {each: value for each, value in own[nest].items() if each != key}
    own = {each: value for each, value in own.items() if value != {}}
    rest = {each: value for each, value in table.items() if each != "providers"}
    return {**rest, "providers": {**providers, **({name: own} if own else {})}}


def _put(path: str, name: str, values: dict[str, Value]) -> None:
    lock = locked(os.path.dirname(path), path)
    try:
        before = text_of(path)
        table = parsed(before, path)
        after = changed(before, name, values)
        if parsed_or_none(after, path) != _expected(table, name, values):
            raise UsageError(f"{path} has values of {name} in a form that is not changed line by line; it is as it was")
        replace(path, after)
    finally:
        locks.let_go(lock)


def locked(folder: str, path: str) -> int:
    """The lock of a folder, made if it is not there: who reads and replaces a file of it meanwhile is waited for."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        lock = locks.take(folder, patience_s=PATIENCE_S)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; it is as it was") from None
    if lock is None:
        raise Temporary(
            f"{path} is being written by another process for {PATIENCE_S:g} s; it was left as it is: try again"
        )
    return lock


def changed(text: str, name: str, values: dict[str, Value]) -> str:
    """The text of a configuration with these keys of `[providers.NAME]` set; a new line ends as most of them do."""
    lines = text.split("\n")
    end = "\r" if 2 * text.count("\r\n") > text.count("\n") else ""
    left = dict(values)
    for key in values:
        places = [lines_of(lines, ["providers", name])]
        if key in NESTED:
            places.insert(0, lines_of(lines, ["providers", name, NESTED[key]]))
        for place in filter(None, places):
            at = next((n for n in place if re.match(rf"\s*{key}\s*=", lines[n])), None)
            if at is not None:
                lines[at] = _with_value(lines[at], left.pop(key))
                break
    if left:
        own = lines_of(lines, ["providers", name])
        if own is None:
            while lines and not lines[-1].strip():
                lines.pop()
            if lines and not lines[-1].endswith(end):
                lines[-1] += end
            lines += [*([end] if lines else []), *(line + end for line in _section(name, left)), ""]
        else:
            said = [n for n in own if lines[n].strip() and not lines[n].lstrip().startswith("#")]
            at = max(said, default=own.start - 1) + 1
            more = [f"{key} = {_shown(value)}{end}" for key, value in left.items()]
            if at == len(lines):  # the last line of the file has no end, and the new last one has none either
                lines[-1], more[-1] = lines[-1] + end, more[-1].removesuffix(end)
            lines[at:at] = more
    return "\n".join(lines)


def _section(name: str, values: dict[str, Value]) -> list[str]:
    quoted = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
    return [f"[providers.{quoted}]", *(f"{key} = {_shown(value)}" for key, value in values.items())]


def lines_of(lines: list[str], table: list[str]) -> range | None:
    """The lines of a table, after its header and up to the next one; None if it has no header of its own."""
    headers = [(n, _header(line)) for n, line in enumerate(lines) if line.lstrip().startswith("[")]
    starts = [(n, path) for n, path in headers if path is not None]
    for index, (n, path) in enumerate(starts):
        if path == table:
            return range(n + 1, starts[index + 1][0] if index + 1 < len(starts) else len(lines))
    return None


def _header(line: str) -> list[str] | None:
    """The path of a line that is a table's header: `[a."b:c"]` -> a, b:c. None if it is none; [] of an array's."""
    if line.lstrip().startswith("[["):
        return []
    try:
        found: Any = tomlfile.parsed(line.rstrip("\r").encode(), "a header")
    except UsageError:
        return None
    path: list[str] = []
    while isinstance(found, dict) and found:
        (key, found), *more = found.items()
        if more:
            return None
        path.append(key)
    return path


def _with_value(line: str, value: Value) -> str:
    """The line of a key with another value; what is said behind it stays."""
    return with_text(line, _shown(value))


def with_text(line: str, text: str) -> str:
    """The same, the value being written already."""
    bare = line.removesuffix("\r")
    head, _, rest = bare.partition("=")
    said = re.search(r"""^(?:[^#"']|"(?:[^"\\]|\\.)*"|'[^']*')*?(\s*#.*)$""", rest)
    return f"{head}= {text}{said[1] if said else ''}".rstrip() + line[len(bare) :]


def _shown(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(float(value))


def _expected(table: dict[str, Any], name: str, values: dict[str, Value]) -> dict[str, Any]:
    """What the file is to say afterwards."""
    providers = dict(table.get("providers", {}))
    own = dict(providers.get(name, {}))
    for key, value in values.items():
        nest = own.get(NESTED.get(key, ""))
        if isinstance(nest, dict) and key in nest:
            own[NESTED[key]] = {**nest, key: value}
        else:
            own[key] = value
    return {**table, "providers": {**providers, name: own}}


def parsed(text: str, path: str) -> dict[str, Any]:
    """What a configuration says. UsageError if it is none."""
    return dict(tomlfile.parsed(text.encode(), path))


def parsed_or_none(text: str, path: str) -> dict[str, Any] | None:
    """The same; None if it is none."""
    try:
        return parsed(text, path)
    except UsageError:
        return None


def text_of(path: str) -> str:
    """The text of the file, "" where there is none. UsageError if it cannot be read."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read(tomlfile.MOST_BYTES + 1)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({error}); it is as it was") from None


def replace(path: str, text: str) -> None:
    """Put the text in the file's place, whole or not at all, with the file's own mode."""
    folder = os.path.dirname(path)
    scratch = ""
    try:
        fd, scratch = tempfile.mkstemp(prefix=".config.", suffix=".tmp", dir=folder)
        with open(fd, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
            mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
            os.fchmod(fd, mode)
        os.replace(scratch, path)
        folder_fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(folder_fd)
        finally:
            os.close(folder_fd)
    except OSError as error:
        if scratch and os.path.exists(scratch):
            os.unlink(scratch)
        kind = Temporary if error.errno in (errno.ENOSPC, errno.EDQUOT) else UsageError
        raise kind(f"{path} cannot be written: {error.strerror}; it is as it was") from None
