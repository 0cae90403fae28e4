"""The wheels of pip's cache, laid out in a folder by their names, as `--find-links` takes them.

pip keeps what it downloaded by the hash of its address, and what it built by name; from its cache alone it installs
nothing that it was not told an address of.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator

_ZIP = b"PK\x03\x04"
_BODY = b"\xa4body"
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_HEAD = 256


def lay_out(cache: str, folder: str) -> int:
    """Put every wheel of a cache into a folder, by links where the cache keeps it as a file; how many there are.

    What cannot be read, or is no wheel, is left out: pip says what it lacks.
    """
    os.makedirs(folder, exist_ok=True)
    for path, begins, ends in _kept(cache):
        name = os.path.basename(path) if path.endswith(".whl") else ""
        try:
            if not begins and not ends:
                _link(path, folder, name or _name(path))
            else:
                _copy(path, begins, ends, folder)
        except (OSError, zipfile.BadZipFile, ValueError, KeyError):
            continue
    return len(os.listdir(folder))


def _kept(cache: str) -> Iterator[tuple[str, int, int]]:
    """Files of a cache that may be wheels: path, and where in it one begins and ends (0, 0: it is one whole)."""
    for root, _folders, names in os.walk(cache):
        for name in names:
            path = os.path.join(root, name)
            if name.endswith(".whl"):
                yield path, 0, 0
                continue
            try:
                with open(path, "rb") as file:
                    head = file.read(_HEAD)
            except OSError:
                continue
            if head.startswith(_ZIP):
                yield path, 0, 0
            elif _ZIP in head and _BODY in head:
                begins, ends = _inside(head)
                if ends:
                    yield path, begins, ends


def _inside(head: bytes) -> tuple[int, int]:
    """Where an answer's body lies in the record that older pips keep it in (msgpack); (0, 0) if it is none."""
    at = head.index(_BODY) + len(_BODY)
    width = _LENGTHS.get(head[at], 0)
    begins = at + 1 + width
    if not width or not head.startswith(_ZIP, begins):
        return 0, 0
    return begins, begins + int.from_bytes(head[at + 1 : begins], "big")


def _link(path: str, folder: str, name: str) -> None:
    if name and not os.path.lexists(os.path.join(folder, name)):
        os.symlink(os.path.abspath(path), os.path.join(folder, name))


def _copy(path: str, begins: int, ends: int, folder: str) -> None:
    scratch = os.path.join(folder, "scratch")
    try:
        with open(path, "rb") as source, open(scratch, "wb") as target:
            source.seek(begins)
            shutil.copyfileobj(source, target, 1 << 20)
            target.truncate(ends - begins)
        name = _name(scratch)
        if name and not os.path.lexists(os.path.join(folder, name)):
            os.rename(scratch, os.path.join(folder, name))
    finally:
        if os.path.lexists(scratch):
            os.unlink(scratch)


def _name(path: str) -> str:
    """The file name of a wheel, from what it says of itself; "" if it is none."""
    with zipfile.ZipFile(path) as archive:
        inside = [each for each in archive.namelist() if each.endswith(".dist-info/WHEEL") and each.count("/") == 1]
        if len(inside) != 1:
            return ""
        lines = archive.read(inside[0]).decode("utf-8").splitlines()
    said = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    tags = [value.split("-") for key, value in said if key == "Tag"]
    build = [value for key, value in said if key == "Build"]
    if not tags or any(len(each) != 3 for each in tags):
        return ""
    joined = [".".join(dict.fromkeys(each[part] for each in tags)) for part in range(3)]
    return "-".join([inside[0].partition(".dist-info")[0], *build, *joined]) + ".whl"
