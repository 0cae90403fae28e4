"""The files that a manifest names, weights mostly: where each lies, and whether what is there is what is declared.

Nothing here fetches anything: a file that is missing is told with the command that does.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Any

from scheduler.host.workers import regular
from scheduler.host.workers.environment import expanded

Spec = Mapping[str, Any]
Told = Callable[[int, "int | None"], None]

CHUNK = 1 << 20
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
THERE, MISSING, PART, SHORT, FOLDER, UNREADABLE = "there", "missing", "in part", "wrong size", "folder", "unreadable"
KIND = "wrong kind"
"""What can be said of a file by looking at it."""
GOOD, OTHER, UNDECLARED = "verified", "wrong content", "no sha256"
"""What can be said of it by reading it."""
ODD = (SHORT, OTHER)
"""What is there and not what is declared: replaced on request alone."""
REPLACED = "replaced"
"""What is noted instead of a sha256 of an archive that is not there any more."""


def path_of(spec: Spec, file: Mapping[str, Any]) -> str:
    """Where a declared file lies: `~` and variables as its worker has them, relative to the manifest's folder.

    A variable that is not set stays as it is written, so that it can be seen.
    """
    env = dict(os.environ)
    for name, value in dict(spec.get("env") or {}).items():
        env[name] = os.path.expanduser(expanded(str(value), env))
    path = _VARIABLE.sub(lambda found: env.get(found[1] or found[2], found[0]), str(file["path"]))
    return os.path.normpath(os.path.join(str(spec.get("folder") or ""), os.path.expanduser(path)))


def looks(spec: Spec) -> str:
    """What a provider's files look like from outside, as a text that differs when one of them was replaced or changed:
    size and time of each. A folder's are its own, not those of what lies deeper.
    """
    found = []
    for path in (path_of(spec, file) for file in spec.get("files") or ()):
        try:
            there = os.stat(path)
        except OSError:
            found.append(f"{path}: not there")
        else:
            found.append(f"{path}: {there.st_size} {there.st_mtime_ns}")
    return hashlib.sha256("\n".join(found).encode(errors="surrogateescape")).hexdigest() if found else ""


def kind_of(mode: int) -> str:
    """What has this `st_mode`: "a file", "a folder", "a link", "a FIFO", "a socket" or "a device"."""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "FIFO"}
    return "a " + kinds.get(stat.S_IFMT(mode), "socket" if stat.S_ISSOCK(mode) else "device")


def part_of(path: str) -> str:
    """Where a file lies while it is being fetched, beside its place; of a link, beside what it leads to."""
    folder, name = os.path.split(os.path.realpath(path) if os.path.islink(path) else path)
    return os.path.join(folder, f".{name}.part")


def note_of(folder: str) -> str:
    """Where it is noted which archive a folder was unpacked from, beside it."""
    above, name = os.path.split(os.path.realpath(folder))
    return os.path.join(above, f".{name}.unpacked.json")


def unpacked_from(folder: str) -> str:
    """The sha256 of the archive that a folder was unpacked from; "" if that is not known."""
    try:
        found = json.loads(regular.content(note_of(folder), CHUNK))
    except (OSError, ValueError, RecursionError):
        return ""
    return str(found.get("sha256") or "") if isinstance(found, dict) else ""


def archive_of(spec: Spec, file: Mapping[str, Any]) -> Mapping[str, Any]:
    """The declared archive that a folder is unpacked from; an empty one if it is none of the files."""
    path = path_of(spec, {"path": file["archive"]})
    return next((each for each in spec.get("files") or () if path_of(spec, each) == path), {"path": file["archive"]})


def state_of(spec: Spec, file: Mapping[str, Any]) -> dict[str, Any]:
    """What is there of a declared file, without reading it: path, bytes, sha256, url, archive, state, have_bytes, text.

    `bytes` is what is declared, None = nothing is; `text` says what is wrong, "" if nothing is.
    """
    path = path_of(spec, file)
    row = {"path": path, "bytes": file.get("bytes"), "sha256": file.get("sha256"), "url": file.get("url")}
    row["archive"] = path_of(spec, {"path": file["archive"]}) if file.get("archive") else None
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return {**row, **_absent(path)}
    except OSError as error:
        return {**row, "state": UNREADABLE, "have_bytes": None, "text": f"{path} cannot be looked at: {error.strerror}"}
    wanted = "folder" if row["archive"] else "file"
    may_be_folder = row["archive"] or (row["bytes"] is None and not row["sha256"] and not row["url"])
    if stat.S_ISDIR(there.st_mode) and may_be_folder:
        return {**row, "state": FOLDER, "have_bytes": None, "text": "", **_odd(spec, file, path)}
    if row["archive"] or not stat.S_ISREG(there.st_mode):
        text = f"{path} is {kind_of(there.st_mode)}, and a {wanted} is declared: remove it"
        return {**row, "state": KIND, "have_bytes": None, "text": text}
    have = there.st_size
    if row["bytes"] is not None and have != row["bytes"]:
        text = f"{path} has {have} bytes, and {row['bytes']} are declared"
        return {**row, "state": SHORT, "have_bytes": have, "text": text}
    return {**row, "state": THERE, "have_bytes": have, "text": ""}


def _odd(spec: Spec, file: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What is wrong with a folder: it was unpacked from another archive than is declared. Empty if nothing is known."""
    declared = archive_of(spec, file).get("sha256") if file.get("archive") else None
    source = unpacked_from(path) if declared else ""
    if not source or source == declared:
        return {}
    which = "one that was replaced" if source == REPLACED else f"an archive with the sha256 {source}"
    text = f"{path} was unpacked from {which}, and {declared} is declared"
    return {"state": OTHER, "text": text}


def _absent(path: str) -> dict[str, Any]:
    try:
        there = os.lstat(part_of(path))
        have = there.st_size if stat.S_ISREG(there.st_mode) else 0
    except OSError:
        have = 0
    text = f"its file {path} is not there" + (f" ({have} bytes of it were fetched)" if have else "")
    return {"state": PART if have else MISSING, "have_bytes": have or None, "text": text}


def fault(spec: Spec) -> str:
    """Which declared file keeps a provider from starting, and what to do, in one sentence; "" if none does."""
    rows = [row for file in spec.get("files") or () if (row := state_of(spec, file))["text"]]
    if not rows:
        return ""
    name = f"{spec['slug']}:{spec['variant']}" if spec.get("variant") else str(spec["slug"])
    first = rows[0]
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    if first["url"]:
        remedy = f"run: {fetching(name, rows)} (from {first['url']})"
    elif first["archive"]:
        remedy = f"run: {fetching(name, rows)} (unpacked from {first['archive']})"
    else:
        remedy = f"{spec.get('manifest')} gives no address of it: put it there, then run: schedq files {name} --verify"
    return f"{name} is not installed: {first['text']}{more}; {remedy}"


def fetching(name: str, rows: list[dict[str, Any]]) -> str:
    """The command that makes these files of a provider what is declared, whatever is there of them."""
    return f"schedq files {name} --fetch" + (" --overwrite" if any(row["state"] in ODD for row in rows) else "")


def verified(spec: Spec, file: Mapping[str, Any], told: Told) -> dict[str, Any]:
    """A declared file, read whole: the row of `state_of` with what its content is, and `found_sha256`.

    `told(bytes, of)` is called as it is read.
    """
    row = state_of(spec, file)
    if row["state"] != THERE:
        return {**row, "found_sha256": None}
    try:
        found = sha256_of(row["path"], told)
    except OSError as error:
        text = f"{row['path']} cannot be read: {error.strerror}"
        return {**row, "state": UNREADABLE, "text": text, "found_sha256": None}
    if row["sha256"] is None:
        return {**row, "state": UNDECLARED, "found_sha256": found}
    if found != row["sha256"]:
        text = f"{row['path']} has the sha256 {found}, and {row['sha256']} is declared"
        return {**row, "state": OTHER, "text": text, "found_sha256": found}
    return {**row, "state": GOOD, "found_sha256": found}


def sha256_of(path: str, told: Told) -> str:
    """The sha256 of a file's content, in hex. OSError if it cannot be read."""
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while block := file.read(CHUNK):
            digest.update(block)
            done += len(block)
            told(done, size)
    return digest.hexdigest()


def size(bytes_: int) -> str:
    """A number of bytes as it is shown: GiB with two decimals, or MiB and KiB of what is less."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes_ >= unit:
            return f"{bytes_ / unit:.2f} {name}"
    return f"{bytes_} bytes"
