"""Single values of the kernel's files: a number, nothing there, or why it could not be read."""

from __future__ import annotations

import os

from scheduler.model.machine import GIB, Reading

MOST_DIGITS = 19
"""An exabyte has as many in bytes; more is no memory."""


def text(path: str) -> str:
    """What a file says, without the blanks and the NUL at its end; empty if there is none. OSError if unreadable."""
    try:
        return _said(path)
    except FileNotFoundError:
        return ""


def bytes_in(path: str, source: str) -> Reading:
    """A file's number of bytes, in GiB: not applicable if there is no such file, failed if it cannot be read."""
    try:
        said = _said(path)
    except FileNotFoundError:
        return Reading(None, source)
    except OSError as error:
        return Reading(None, source, f"{path}: {error.strerror}")
    if not (said.isascii() and said.isdigit() and len(said) <= MOST_DIGITS):
        return Reading(None, source, f"{path} says {said[:40]!r}, which is no number of bytes")
    return Reading(int(said) / GIB, source)


def listed(folder: str) -> list[str]:
    """The names in a folder, numbers in their order; empty if there is none. OSError if unreadable."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(names, key=lambda name: (int(name) if name.isascii() and name.isdigit() else -1, name))


def _said(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return (file.read() or b"").decode("utf-8", "replace").strip(" \t\n\0")
