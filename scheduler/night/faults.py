"""Many bad rows of one call: summed up by what is wrong with them, and all of them in a file beside.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os

from scheduler.clock import now_at
from scheduler.errors import SchedqError
from scheduler.inputs.jobs_file import where
from scheduler.inputs.sources import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Faults = Sequence[tuple[int, str, SchedqError]]

KINDS, FIRST = 8, 5
"""Kinds of faults that are told, and how many rows of each are named."""

HEAD = "# schedq submit: "
"""How a file of ours begins: such a one is written over."""

ENDING = ".faults.txt"


def summed(faults: Faults, count: int, source: str, *, keep: bool = True) -> str:
    """What is wrong with many rows: how many there are of each kind, the first of each, and the file that has all.

    `source` is the file of jobs, "" for inputs that were named one by one. `keep`: whether that file is written.
    """
    noun = "jobs" if source else "inputs"
    kinds: dict[str, list[tuple[int, str, SchedqError]]] = {}
    for fault in faults:
        kinds.setdefault(kind_of(fault[1], str(fault[2])), []).append(fault)
    lines = [f"{len(faults)} of {count} {noun} cannot be queued, so none was:"]
    for alike in sorted(kinds.values(), key=lambda each: (-len(each), each[0][0]))[:KINDS]:
        lines.append(f"  {len(alike)} like {_said(*alike[0][1:])}")
        if len(alike) > 1:
            lines.append(f"    {_named(alike)}")
    rest = len(kinds) - KINDS
    if rest > 0:
        lines.append(f"  and {rest} other kind{'s' * (rest > 1)} of fault")
    if not keep:
        return "\n".join(lines)
    path, problem = _write(faults, count, source, noun)
    lines.append(f"all of them: {quoted(path)}" if path else f"the file of all of them cannot be written: {problem}")
    return "\n".join(lines)


def kind_of(named: str, text: str) -> str:
    """What is wrong, without what differs from row to row: its name, paths, quoted values, numbers."""
    import re

    text = _unnamed(named, text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "~", text)
    text = re.sub(r"(?<!\bat )(?<![\w/])[^\s:;,]*/[^\s:;,]+", "~", text)
    text = re.sub(r"^\S+\.\w+(?= )", "~", text)
    return re.sub(r"\d+", "0", text)


def _unnamed(named: str, text: str) -> str:
    """The text with a # for each place where the name stands as a word; no pattern, for each row has another name."""
    made, at = "", 0
    while named and (found := text.find(named, at)) >= 0:
        end = found + len(named)
        if _of_a_word(text[found - 1 : found]) or _of_a_word(text[end : end + 1]):
            end = found + 1
            made += text[at:end]
        else:
            made += text[at:found] + "#"
        at = end
    return made + text[at:]


def _of_a_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _said(named: str, error: SchedqError) -> str:
    text = str(error).replace("\n", "; ")
    return text if named in text else f"{named}: {text}"


def _named(alike: Faults) -> str:
    """Which rows have this fault: the first few, and how many more."""
    firsts = [named for _, named, _ in alike[:FIRST]]
    line = where(0).removesuffix("0")
    if all(each.startswith(line) for each in firsts):
        text = "lines " + ", ".join(each.removeprefix(line) for each in firsts)
    else:
        text = ", ".join(map(quoted, firsts))
    return text + (f" and {len(alike) - FIRST} more" if len(alike) > FIRST else "")


def _write(faults: Faults, count: int, source: str, noun: str) -> tuple[str, str]:
    """(the file that has all faults, "") or ("", why there is none): beside the jobs file, or in the current folder."""
    base = "submit" if source in ("", "-") else os.path.basename(source)
    beside = os.path.dirname(source) if source != "-" else ""
    text = [f"{HEAD}{len(faults)} of {count} {noun} of {source or 'the call'} cannot be queued ({now_at()})"]
    text += [_said(named, error) for _, named, error in faults]
    data = ("\n".join(text) + "\n").encode("utf-8", "backslashreplace")
    problem = ""
    for folder in dict.fromkeys((beside, "")):
        path = _free(os.path.join(folder, base))
        try:
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            problem = problem or f"{quoted(path)}: {error.strerror}"
            continue
        return path, ""
    return "", problem


def _free(base: str) -> str:
    """A name for the file: the first that nothing has, or a file of ours."""
    number = 1
    while True:
        path = base + (ENDING if number == 1 else f".{number}{ENDING}")
        try:
            with open(path, "rb") as file:
                if file.read(len(HEAD)) == HEAD.encode():
                    return path
        except FileNotFoundError:
            return path
        except OSError:
            pass
        number += 1
