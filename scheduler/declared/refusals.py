"""What a manifest may not say although each key is of the right kind: what contradicts, leads out, cannot be kept.

Each is a sentence that begins with its key: `KEY = VALUE: why; fix`. Slow: imported when a manifest changed.
"""

from __future__ import annotations

import datetime
import os
import re
import shlex
from collections.abc import Iterator
from typing import Any

from scheduler.declared.declaration import DAEMONS, TABLES, Manifest, keys, shown
from scheduler.declared.expecting import unmeant
from scheduler.tomlfile import leaves

SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "fish")
NESTED_SHELLS = 5

PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[\w\s,.-]*\])?\s*(.*)", re.ASCII)
ADDRESS = re.compile(r"@\s*(?:(?:git|hg|svn|bzr)\+)?(?:https?|ssh|git)://\S+", re.ASCII)
VERSION = re.compile(r"\s*(?:===|[<>=!~]=|[<>])\s*[\w.*+!-]+\s*", re.ASCII)
HASH = re.compile(r"\w+:[0-9a-f]+", re.ASCII)
ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".bz2", ".xz", ".tgz")


def unkept(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Values that TOML has and that cannot be stored, or given to a program: (dotted key, ` = VALUE: why; fix`)."""
    for top, value in table.items():
        if top not in keys(Manifest):
            continue
        for key, leaf, _ in leaves(value, top):
            why = _unkept(leaf, ours=re.match(r"validation\[\d+\]\.(params|expect)\b", key) is not None)
            if why and not _is_stray(key):
                yield key, f" = {shown(leaf)}: {why}"


def _is_stray(key: str) -> bool:
    """Whether a value belongs to a key that is none of ours, which is ignored whatever it holds."""
    top, _, rest = re.sub(r"\[\d+\]", "", key).partition(".")
    return top in TABLES and rest.partition(".")[0] not in ("", *keys(TABLES[top]))


def _unkept(leaf: Any, *, ours: bool) -> str:
    """Why a value cannot be kept; `ours`: where any value may stand, which nothing else checks."""
    if isinstance(leaf, str) and "\0" in leaf:
        return "holds a NUL character, which no program can be given; remove it"
    if isinstance(leaf, dict) and any("\0" in name for name in leaf):
        return "a key in it holds a NUL character, which no program can be given; remove it"
    if ours and isinstance(leaf, datetime.date | datetime.time):
        return f'is a date or a time, which JSON has not; write it in quotes, "{leaf}"'
    if ours and isinstance(leaf, float) and leaf - leaf != 0.0:
        return "is no number that JSON has; write a finite one, or remove the key"
    return ""


def contradictions(found: Manifest, folder: str) -> list[str]:
    """Keys that are right each by itself and wrong together, or with the folder that the manifest lies in."""
    wrong: list[str] = []
    worker = found.worker
    name = os.path.basename(folder)
    if found.slug != name:
        wrong.append(f'slug = "{found.slug}": the folder is called {name}; rename one of them, they must be the same')
    if found.gpu.policy == "none" and found.gpu.vram_budget_gb:
        wrong.append(
            f"gpu.vram_budget_gb = {found.gpu.vram_budget_gb:g}: the policy is none, which needs no device; "
            'remove the budget or write policy = "required"'
        )
    if found.gpu.policy == "required" and found.gpu.vram_budget_gb == 0:
        wrong.append("gpu.vram_budget_gb = 0: a device is required; measure the budget, or leave it out until then")
    wrong += _started(found)
    for glob in worker.outputs:
        if os.path.isabs(glob) or ".." in glob.split("/"):
            wrong.append(f"worker.outputs = {shown(glob)}: leads out of the output folder; write it relative to that")
    names = [each.name for each in found.validation]
    for name in sorted({each for each in names if names.count(each) > 1}):
        wrong.append(f"validation.name = {shown(name)}: two cases are called that; rename one")
    for index, case in enumerate(found.validation):
        wrong += unmeant(case.expect, f"validation[{index}].expect")
    accept = found.input.accept
    if len({each.lower() for each in accept}) < len(accept):
        wrong.append(f"input.accept = {shown(accept)}: a suffix is there twice; keep one")
    for line in found.env.requirements if found.env else ():
        if not is_package(line):
            wrong.append(
                f"env.requirements = {shown(line)}: only packages by name are installed, like numpy==2.1.0 or "
                "NAME @ https://..., and --no-deps: not an index, not a path; PIP_INDEX_URL names another index"
            )
    lines = found.env.requirements if found.env else []
    if lines.count("--no-deps") > 1:
        wrong.append('env.requirements: "--no-deps" is there twice; keep the first, all below it is installed alone')
    elif lines[-1:] == ["--no-deps"]:
        wrong.append(
            'env.requirements: "--no-deps" is the last line; put it above what is to be installed without the packages '
            "that it asks for, or remove it"
        )
    return wrong


def _started(found: Manifest) -> list[str]:
    """What is wrong with how the worker is started."""
    wrong: list[str] = []
    worker = found.worker
    if found.mode == "resident" and worker.command is not None:
        wrong.append(f"worker.command = {shown(worker.command)}: a resident worker is a script; use worker.script")
    if worker.script is None and worker.command is None:
        other = "" if found.mode == "resident" else " or worker.command"
        wrong.append(
            f'worker.script is missing: mode {found.mode} needs it{other}; write script = "worker.py" in [worker]'
        )
    if worker.script is not None and worker.command is not None and found.mode == "oneshot":
        wrong.append(f"worker.command = {shown(worker.command)}: there is a script too; keep one of the two")
    if worker.command == []:
        wrong.append("worker.command = []: nothing to run; write the program and its arguments")
    if worker.script is not None and _leads_out(worker.script):
        wrong.append(
            f"worker.script = {shown(worker.script)}: leads out of the manifest's folder; put the script there, or "
            "write its whole path, from / or ~ on"
        )
    needs_python = worker.script is not None or any("{python}" in word for word in worker.command or [])
    if needs_python and worker.python is None and found.env is None:
        wrong.append(
            "worker.python is missing: no interpreter for this worker; add worker.python, or [env] to install one"
        )
    for key, words in (("wrap", worker.wrap), ("command", worker.command or [])):
        daemon = daemon_of(words)
        if daemon:
            wrong.append(
                f"worker.{key} = {shown(words)}: {daemon} run starts the process under a daemon, where it is neither "
                "seen nor stopped; use apptainer exec, or run the program itself"
            )
    return wrong


def _leads_out(path: str) -> bool:
    """Whether a relative path leads above the folder that it is relative to."""
    return not path.startswith(("/", "~")) and os.path.normpath(path).split("/")[0] == ".."


def is_package(line: str) -> bool:
    """Whether a line of requirements names a package, by name or name and address, or is one that is understood."""
    if line == "--no-deps" or (line.startswith("#") and line.isprintable()):
        return True
    if not line.isprintable() or line.endswith("\\"):
        return False
    line, *hashes = re.split(r"\s--hash[= ]", line)
    asked, _, marker = line.partition(";")
    found = PACKAGE.fullmatch(asked.strip())
    if found is None or found[1].lower().endswith(ARCHIVES) or " -" in marker:
        return False
    rest = found[2].removeprefix("(").removesuffix(")") if found[2].startswith("(") else found[2]
    meant = not rest or ADDRESS.fullmatch(rest) or all(map(VERSION.fullmatch, rest.split(",")))
    return bool(meant) and all(HASH.fullmatch(each.strip()) for each in hashes)


def is_pinned(line: str) -> bool:
    """Whether a line of requirements that names a package names one version of it: by `==`, or by its address."""
    if line.startswith(("#", "--")):
        return True
    asked = re.split(r"\s--hash[= ]", line)[0].partition(";")[0]
    return "@" in asked or re.search(r"===?\s*[^\s*,]+\s*\)?\s*$", asked) is not None


def daemon_of(words: list[str], level: int = 0) -> str:
    """The program in an argv that has a daemon run the rest, also in the text of a shell; empty if there is none."""
    names = [os.path.basename(word) for word in words]
    for index, name in enumerate(names):
        if name in DAEMONS and "run" in names[index:]:
            return name
    for text in shell_texts(words) if level < NESTED_SHELLS else ():
        daemon = daemon_of(_words_of(text), level + 1)
        if daemon:
            return daemon
    return ""


def shell_texts(words: list[str]) -> list[str]:
    """The texts that an argv gives to a shell to be run: what follows its -c."""
    found = []
    for index, word in enumerate(words):
        if os.path.basename(word) in SHELLS:
            options = [n for n, each in enumerate(words[index:-1], index) if re.fullmatch(r"-[a-z]*c[a-z]*", each)]
            found += [words[n + 1] for n in options[:1]]
    return found


def shells_of(words: list[str]) -> list[str]:
    """The shells in an argv whose text nothing here can judge."""
    return [os.path.basename(word) for word in words if os.path.basename(word) in SHELLS]


def _words_of(text: str) -> list[str]:
    """The words of a shell's text, its operators taken for blanks."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&`$\n")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return re.split(r"[\s();<>|&`$\"']+", text)
