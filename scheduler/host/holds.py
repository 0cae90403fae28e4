"""What a Python environment holds, read from its files: nothing of it is run or imported.

A folder is one if it has what venv (`pyvenv.cfg`) or conda (`conda-meta`) leave there. What is known of one is kept as
long as the folders that packages lie in are as they were.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import re
import threading
from dataclasses import dataclass

_DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist-info|egg-info)")
_CONDA = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-[^-]+\.json")
_LENGTH = 16
_MOST_BYTES = 1 << 16

_known: dict[str, tuple[object, dict[str, str]]] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Torch:
    """How the torch of an environment was built: its version, and that of CUDA or ROCm, "" if it is built for none."""

    version: str
    cuda: str
    rocm: str


def prefix_of(python: str) -> str | None:
    """The environment whose interpreter this is, by its own path (links are not followed); None if it is in none."""
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    return prefix if is_environment(prefix) else None


def is_environment(folder: str) -> bool:
    """Whether a folder is an environment: a venv's, or conda's."""
    return os.path.isfile(os.path.join(folder, "pyvenv.cfg")) or os.path.isdir(os.path.join(folder, "conda-meta"))


def packages(prefix: str) -> dict[str, str]:
    """What lies in an environment, version by name, `python` among them: Python's packages, then conda's others.

    What an environment takes from outside itself (system packages, the user's own) is not in it.
    """
    state = _state(prefix)
    with _lock:
        kept = _known.get(prefix)
    if kept is not None and kept[0] == state:
        return kept[1]
    found = _listed(prefix)
    with _lock:
        _known[prefix] = (state, found)
    return found


def digest(prefix: str) -> str:
    """16 hex digits over what an environment holds: another package or version is another environment."""
    return _digest(tuple(sorted(packages(prefix).items())))


@functools.lru_cache(256)
def _digest(held: tuple[tuple[str, str], ...]) -> str:
    return hashlib.sha256(json.dumps(held).encode("utf-8", "replace")).hexdigest()[:_LENGTH]


def torch(prefix: str) -> Torch | None:
    """How its torch was built, by the file that a build writes its own versions into; None if there is none."""
    for folder in _sites(prefix):
        try:
            with open(os.path.join(folder, "torch", "version.py"), encoding="utf-8") as file:
                text = file.read(_MOST_BYTES)
        except (OSError, UnicodeDecodeError):
            continue
        version = _said(text, "__version__") or packages(prefix).get("torch", "")
        return Torch(version, _said(text, "cuda"), _said(text, "hip"))
    return None


def _said(text: str, name: str) -> str:
    """The text that a line `name: type = 'text'` gives; "" for None, and where no line does."""
    found = re.search(rf"^{name}\b[^=\n]*=\s*(['\"])(.*?)\1", text, re.MULTILINE)
    return found[2] if found else ""


def _sites(prefix: str) -> list[str]:
    """The folders of an environment that Python's packages lie in."""
    found = sorted(glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3*", "site-packages")))
    return list({os.path.realpath(each): each for each in reversed(found)}.values())


def _state(prefix: str) -> list[tuple[str, int]]:
    """What tells that something was installed or taken away: the time of each folder that lists packages."""
    state = []
    for folder in [*_sites(prefix), os.path.join(prefix, "conda-meta"), os.path.join(prefix, "pyvenv.cfg")]:
        try:
            state.append((folder, os.stat(folder).st_mtime_ns))
        except OSError:
            continue
    return state


def _listed(prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in _sites(prefix):
        for name in _names(folder):
            match = _DISTRIBUTION.fullmatch(name)
            if match is not None:
                found.setdefault(plain(match["name"]), match["version"])
    conda = {}
    for name in _names(os.path.join(prefix, "conda-meta")):
        match = _CONDA.fullmatch(name)
        if match is not None:
            conda[match["name"]] = match["version"]
    python = conda.get("python") or _python(prefix)
    held = {**{name: conda[name] for name in conda if plain(name) not in found}, **found}
    return {**({"python": python} if python else {}), **{name: held[name] for name in sorted(held) if name != "python"}}


def plain(name: str) -> str:
    """A package's name as all of its spellings are compared: lower case, single hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _python(prefix: str) -> str:
    """The version that a venv was made with; "" if it does not say."""
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            text = file.read(_MOST_BYTES)
    except (OSError, UnicodeDecodeError):
        return ""
    found = re.search(r"^version(?:_info)?\s*=\s*(\d+(?:\.\d+)*)", text, re.MULTILINE)
    return found[1] if found else ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
