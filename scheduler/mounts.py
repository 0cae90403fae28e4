"""What is mounted where, as the kernel writes it in a process's mountinfo. Imported by the fast paths."""

from __future__ import annotations


def mount(line: str) -> tuple[str, str, str, str] | None:
    """One line of mountinfo: (root within its filesystem, mount point, type, options); None if it is none."""
    left, _, right = line.partition(" - ")
    fields, kind = left.split(), right.split()
    if len(fields) < 5 or not kind:
        return None
    return _unescaped(fields[3]), _unescaped(fields[4]), kind[0], kind[2] if len(kind) > 2 else ""


def _unescaped(text: str) -> str:
    """Undo the kernel's octal escapes of blank, tab, newline and backslash."""
    if "\\" not in text:
        return text
    for code, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, plain)
    return text
