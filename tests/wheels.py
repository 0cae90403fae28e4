"""Wheels of a few lines, made by a test: what pip installs without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

TORCH = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = {hip}
"""


def made(folder: Path, name: str, version: str, *, needs: tuple[str, ...] = (), build: str = "", **files: str) -> Path:
    """A wheel of one module `NAME.py`, or of other files by their names (`a__b` is a/b), that needs other packages."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {each.replace("__", "/", 1) + ".py": text for each, text in files.items()} or {
        f"{name}.py": "answer = 42\n"
    }
    wheel = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py2-none-any\nTag: py3-none-any\n"
    told = "".join(f"Requires-Dist: {each}\n" for each in needs)
    path = folder / f"{name}-{version}-{f'{build}-' if build else ''}py2.py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{told}")
        archive.writestr(f"{info}/WHEEL", wheel + (f"Build: {build}\n" if build else ""))
        names = [*files, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"]
        archive.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in names))
    return path


def torch(folder: Path, version: str, *, cuda: str | None = None, hip: str | None = None) -> Path:
    """A wheel that says of itself what a build of torch does."""
    text = TORCH.format(version=version, cuda=repr(cuda), hip=repr(hip))
    return made(folder, "torch", version, torch____init__="", torch__version=text)
