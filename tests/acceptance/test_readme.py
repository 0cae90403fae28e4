"""Every command that README.md shows is run as it stands there, in a queue made ready for it.

A line of a block is one test, with its commands one after the other; so is a whole command within a sentence. Inputs
that a line names are made, programs that it runs stand in, and providers of the names that ship answer at once. What
cannot be run so is in ELSEWHERE, with the test that runs it instead.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driven import Queue
from providers import declared

from scheduler.cli import grammar
from scheduler.config import Paths
from scheduler.errors import UsageError
from scheduler.wake import scheduler_runs

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

ELSEWHERE = {
    "service install": "acceptance/test_service.py::test_a_user_unit_is_installed_enabled_and_shown_and_removed_whole",
    "install boltz --from-env": "acceptance/test_providing.py::"
    "test_an_environment_that_is_there_is_used_as_it_is_and_told_by_what_it_holds",
    "exec --vram": "acceptance/test_exec.py::test_a_command_sees_the_devices_that_it_was_given_and_no_other",
    "workers write-off": "acceptance/test_given_back.py::"
    "test_an_operator_writes_off_what_is_leaked_and_that_is_recorded",
    "uninstall": "acceptance/test_providing.py::"
    "test_an_environment_is_built_offline_shared_kept_while_it_is_used_and_removed",
    "status --watch": "acceptance/test_watching.py::test_a_batch_is_watched_from_its_first_step_to_its_end",
    "notify test": "unit/test_scheduling.py::test_notify_test_says_what_came_back",
}
"""How a command begins that is not run here, shown or not -> the test that runs such a one."""

MEANT = {
    "SLUG": "capiti", "VERB": "submit", "FOLDER": "manifests/capiti", "INPUT": "one.json", "ID": "3", "BATCH": "night",
    "KEY": "ram_budget_gb", "VALUE": "0.2", "SHELL": "bash", "4711": str(os.getpid()),
}  # fmt: skip
"""What a word in capitals of a command within a sentence is replaced by, and a process that is not there."""

CODES = {
    "report": (0, 1), "doctor": (0, 1), "service status": (0, 1), "validate": (0, 1), "wait": (0, 1), "room": (0, 75),
}  # fmt: skip
"""Exit codes that say something of the queue, and nothing of the call; 0 alone for every other verb."""

ON = {"wait", "restart", "queue drain", "workers warm", "workers retire", "workers pin", "workers unpin"}
"""Verbs that ask a scheduler that runs."""

WRITTEN = ("--out", "-o", "--output", "--html", "--junit", "--md", "--col", "--sort", "--csv")
"""Options whose value is no input."""

WORKER = """
import os
from schedq_worker import serve

def predict(model, request, job):
    with open(os.path.join(job.out_dir, "model.pdb"), "w") as file:
        file.write("END")
    return {"results": [{"top": "alpha"}], "length": 3, "confidence": {"iptm": 0.9}, "structures": [{"pdb": "END"}]}

serve(load=lambda: None, predict=predict)
"""

MANIFEST = """
slug = "{slug}"
title = "Answers at once"
mode = "resident"
example = "example.json"
[gpu]
policy = "none"
[host]
ram_budget_gb = 0.05
[worker]
python = "{python}"
script = "worker.py"
[input]
accept = [".json", ".pdb", ".yaml", ".fasta"]
{params}
[[validation]]
name = "answers"
input = "example.json"
[validation.expect]
"/length" = 3
"""


def verb_of(words: list[str]) -> tuple[grammar.Verb | None, list[str]]:
    try:
        return grammar.verb_of(words)
    except UsageError as wrong:
        raise AssertionError(f"README shows `schedq {shlex.join(words)}`: {wrong}") from None


def shown() -> dict[str, list[str]]:
    """Every line of a block, and every command within a sentence, with the calls of schedq in it."""
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^ {4}(\S.*)$", README, re.MULTILINE):
        code = re.split(r"\s{2,}#|\s#\s", line)[0].strip()
        calls = [re.sub(r"^(\S*/)?schedq\s*", "", part.strip()) for part in re.split(r";|&&", code) if is_call(part)]
        calls += re.findall(r"\$\(schedq ([^)]+)\)", code)
        if calls:
            found[code] = calls
    for text in re.findall(r"`schedq ([^`]+)`", README):
        call = " ".join(text.split())
        call = re.sub(r"\b[A-Z]{2,}\b", lambda word: MEANT.get(word[0], word[0]), call)
        verb, rest = verb_of(call.split())
        if verb is None or rest or not verb.arguments:
            found.setdefault(f"schedq {call}", [call])
    return found


def is_call(part: str) -> bool:
    return re.match(r"\s*(\S*/)?schedq(\s|$)", part) is not None


LINES = shown()


def elsewhere(call: str) -> str | None:
    return next((test for begin, test in ELSEWHERE.items() if call.startswith(begin)), None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Queue, Path]]:
    """A queue of which jobs 1 to 6 have ended, the second quarantined, and 7 to 12 wait, all of batch `night`."""
    folder = tmp_path_factory.mktemp("readme")
    queue = Queue(folder)
    for slug in sorted(path.parent.name for path in (ROOT / "manifests").glob("*/provider.toml")):
        place = queue.manifests / slug
        place.mkdir()
        schema = declared(slug)["input"].get("params", "")
        if schema:
            shutil.copy(ROOT / "manifests" / slug / schema, place / schema)
        params = f'params = "{schema}"' if schema else ""
        (place / "provider.toml").write_text(MANIFEST.format(slug=slug, python=sys.executable, params=params))
        (place / "worker.py").write_text(WORKER)
        (place / "example.json").write_text("{}")
    for variable, name in (("HOME", "user"), ("XDG_CONFIG_HOME", "config"), ("XDG_DATA_HOME", "data")):
        (folder / name).mkdir()
        queue.env[variable] = str(folder / name)
    for number in range(12):
        (folder / f"{number}.json").write_text("{}")
    files = [f"{number}.json" for number in range(12)]
    assert queue("submit", "capiti", *files[:6], "--batch", "night").code == 0
    assert queue("up").code == 0
    assert queue("wait", "1-6").code == 0
    assert queue("down").code == 0
    assert queue("submit", "capiti", *files[6:], "--batch", "night").code == 0
    with sqlite3.connect(queue.home / "queue.db") as db:
        db.execute("DELETE FROM results WHERE job_id = 2")
        db.execute("UPDATE jobs SET state = 'failed', outcome = 'quarantined' WHERE id = 2")
    db.close()
    shutil.copytree(queue.home, folder / "saved", symlinks=True)
    yield queue, folder / "saved"


@pytest.fixture
def ready(made: tuple[Queue, Path]) -> Iterator[Queue]:
    """That queue as it was made."""
    queue, saved = made
    shutil.rmtree(queue.home)
    shutil.rmtree(queue.folder / "config" / "schedq", ignore_errors=True)
    shutil.copytree(saved, queue.home, symlinks=True)
    texts = {path: path.read_text() for path in queue.manifests.glob("*/provider.toml")}
    yield queue
    if scheduler_runs(Paths(str(queue.home))):
        queue("down", "--now")
    for path, text in texts.items():
        path.write_text(text)


def prepare(queue: Queue, argv: list[str]) -> None:
    """Make the inputs and batches that a call names, and the programs that it runs."""
    for before, word in itertools.pairwise(argv):
        name = word.partition(":")[0]
        made = argv[0] == "submit" and "--resume" not in argv
        named = before in ("--after", "--each-after") or (before == "--batch" and not made)
        if (
            (named or before in ("report", "table", "--against"))
            and name[0].isalpha()
            and name not in ("night", "last")
        ):
            assert queue("submit", "capiti", "0.json", "1.json", "--batch", name).code == 0
    if argv[:2] == ["providers", "set"] and "vram_budget_gb" in argv:
        manifest = queue.manifests / argv[2] / "provider.toml"
        manifest.write_text(manifest.read_text().replace('policy = "none"', 'policy = "required"\nvram_budget_gb = 1'))
    if "--" in argv:
        program = argv[argv.index("--") + 1]
        path = queue.folder / program if "/" in program else queue.folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return
    for before, word in zip(["", *argv], argv, strict=False):
        if before in WRITTEN or word.startswith("-") or "=" in word:
            continue
        path = queue.folder / word.replace("*", "one")
        if word.endswith("/"):
            path = path / "one.json"
        elif path.suffix not in (".json", ".pdb", ".yaml", ".csv", ".jsonl", ".fasta"):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(grammar.NIGHT if "simulate" in argv else CONTENT.get(path.suffix, "{}"))
        if "*" in word or word.endswith("/"):
            path.with_name(f"two{path.suffix}").write_text("{}")


CONTENT = {
    ".pdb": "ATOM      1  N   ALA A   1      11.104   6.134  -6.504  1.00  0.00           N\nEND\n",
    ".csv": "provider,inline\ncapiti,{}\n",
    ".jsonl": '{"provider": "capiti", "input": {}}\n',
}


def expanded(queue: Queue, argv: list[str], line: str) -> list[str]:
    """The words as a shell hands them on: globs that are not in quotes are the files that match."""
    return [
        name
        for word in argv
        for name in (
            sorted(str(path.relative_to(queue.folder)) for path in queue.folder.glob(word))
            if "*" in word and not re.search(rf"['\"]{re.escape(word)}['\"]", line)
            else [word]
        )
    ]


def carried_out(queue: Queue, line: str, calls: list[str]) -> None:
    """Run the calls of one line. AssertionError says which one did not do, and what to do about it."""
    for call in calls:
        argv = [MEANT.get(word, word) for word in shlex.split(re.sub(r"\s[<>|].*$", "", call))]
        verb, _ = verb_of(argv)
        if elsewhere(call):
            continue
        prepare(queue, argv)
        if verb is not None and verb.name in ON:
            assert queue("up").code == 0
        try:
            done = queue(*expanded(queue, argv, line), PATH=f"{queue.folder / 'bin'}:{queue.env['PATH']}")
        except subprocess.TimeoutExpired:
            raise AssertionError(f"README shows `schedq {call}`, which does not end; name it in ELSEWHERE") from None
        codes = CODES.get(verb.name, (0,)) if verb is not None else (0,)
        assert done.code in codes, (
            f"README shows `schedq {call}`, and it does not do in the queue of this test. Mend the command, or what it"
            f" needs in `prepare`, `made` and CODES; or name the test that runs it in ELSEWHERE.\n{done}"
        )


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_the_readme_does_what_it_is_shown_for(ready: Queue, line: str) -> None:
    carried_out(ready, line, LINES[line])


def test_a_command_that_is_misspelt_or_cannot_be_run_is_named(ready: Queue) -> None:
    for wrong in ("sumbit capiti one.json", "result 3 --pionter /results", "result 3 --pointer /nowhere", "show 99"):
        with pytest.raises(AssertionError, match=re.escape(wrong)):
            carried_out(ready, wrong, [wrong])


def test_every_line_of_a_block_that_calls_schedq_is_seen_as_such() -> None:
    for line in re.findall(r"^ {4}(\S.*)$", README, re.MULTILINE):
        code = re.split(r"\s{2,}#|\s#\s", line)[0].strip()
        if re.search(r"(^|[\s/;(])schedq\s", code) and "import" not in code:
            assert code in LINES, line


@pytest.mark.parametrize("begin", ELSEWHERE)
def test_what_is_not_run_here_is_run_by_the_test_that_is_named(begin: str) -> None:
    file, _, name = ELSEWHERE[begin].partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text()
