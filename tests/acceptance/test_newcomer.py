"""What meets somebody new: a folder with files of its own, a slip in a setting, no scheduler, a model that dies."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import textwrap
import time
from pathlib import Path

import pytest
from driven import Queue, eventually

ENVIRONMENT = """
[env]
check = "import json"
"""


def with_environment(queue: Queue, slug: str = "echo") -> Path:
    """A provider that declares an environment of its own, with nothing in it."""
    folder = queue.provider(slug)
    path = folder / "provider.toml"
    path.write_text(re.sub(r"python = .*\n", "", path.read_text()) + ENVIRONMENT)
    return folder


def second_folder(queue: Queue, slug: str) -> dict[str, str]:
    """A provider in a folder that only this environment names."""
    made = queue.provider(slug)
    more = queue.folder / "more"
    more.mkdir()
    made.rename(more / slug)
    return {"SCHEDQ_MANIFESTS": f"{queue.manifests}:{more}"}


@pytest.mark.parametrize("trap", ["scheduler.py", "scheduler/__init__.py"])
def test_run_installs_and_starts_from_a_folder_that_has_a_scheduler_of_its_own(queue: Queue, trap: str) -> None:
    with_environment(queue)
    here = queue.folder / "project"
    (here / trap).parent.mkdir(parents=True)
    (here / trap).write_text("raise SystemExit('the wrong scheduler')\n")
    done = subprocess.run(
        [*queue.command()[:1], "-P", *queue.command()[1:], "run", "echo", queue.input(say="hi")],
        env=queue.env, cwd=here, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0 and json.loads(done.stdout)["said"] == "hi", done
    assert "echo: installed in" in done.stderr


def test_run_queues_nothing_when_the_installation_left_nothing(queue: Queue) -> None:
    with_environment(queue)
    code = (
        "from scheduler.cli import children; children.argv = lambda *_: ['/bin/true'];"
        "from scheduler.__main__ import main; main()"
    )
    done = subprocess.run(
        [queue.command()[0], "-c", code, "run", "echo", queue.input()], env=queue.env, cwd=queue.folder,
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 1 and "nothing was queued" in done.stderr and "not installed" in done.stderr, done
    assert queue.status()["jobs"] == []


def test_what_waits_for_a_scheduler_says_that_none_runs(queue: Queue) -> None:
    queue.provider()
    queue("submit", "echo", queue.input())
    for words in (["wait", "1"], ["log", "1", "-f"], ["restart"]):
        done = queue(*words, timeout=9)
        assert done.code == 6 and "schedq up" in done.err and done.out == "", done
        assert ("then wait again" in done.err) is (words[0] == "wait"), done


def test_wait_goes_on_while_a_scheduler_is_replaced(queue: Queue) -> None:
    queue.provider()
    queue("up")
    gate = queue.folder / "gate"
    queue("submit", "echo", queue.input(wait_for=str(gate)))
    waits = queue.start("wait", "1")
    assert queue("restart").code == 0
    gate.touch()
    _out, err = waits.communicate(timeout=30)
    assert waits.returncode == 0, err


@pytest.mark.parametrize("setting", ["LOG_MAX_MIB=abc", "OVERTAKE=900"])
def test_a_restart_with_a_setting_that_cannot_be_used_leaves_the_scheduler_alone(queue: Queue, setting: str) -> None:
    queue("up")
    before = queue.scheduler_pid()
    key, _, value = setting.partition("=")
    done = queue("restart", **{f"SCHEDQ_{key}": value})
    assert done.code == 2 and f"SCHEDQ_{key}" in done.err and value in done.err, done
    assert queue.scheduler_pid() == before
    shown = queue("config", "show", **{f"SCHEDQ_{key}": value})
    assert shown.code == 2 and f"$SCHEDQ_{key}" in shown.err and key.lower() in shown.out, shown


def test_a_crash_is_not_explained_with_the_words_of_the_job_before(queue: Queue) -> None:
    worker = queue.provider() / "echo_worker.py"
    worker.write_text(
        worker.read_text().replace('    if request.get("die"):', '    if request.get("exit"):\n'
                                   '        os._exit(request["exit"])\n    if request.get("die"):')
    )  # fmt: skip
    queue("up")
    queue("run", "echo", queue.input("boom.json", fail=True))
    queue("submit", "echo", queue.input("exit.json", exit=9))
    told = eventually(lambda: queue.show(2)["attempts"][0]["outcome_text"] if queue.show(2)["attempts"] else "")
    assert told == "the worker ended with exit code 9"


def test_run_refuses_what_the_running_scheduler_would_never_see(queue: Queue) -> None:
    queue("up")
    env = second_folder(queue, "new")
    done = queue("run", "new", queue.input(), **env)
    assert done.code == 75 and "nothing was queued" in done.err and "schedq restart" in done.err, done
    assert str(queue.folder / "more") in done.err and queue.status()["jobs"] == []
    assert queue("restart", **env).code == 0
    assert queue("run", "new", queue.input(), **env).code == 0


def test_a_job_whose_provider_the_scheduler_does_not_see_says_whose_search_path_it_is(queue: Queue) -> None:
    queue("up")
    env = second_folder(queue, "new")
    assert "schedq restart" in queue("submit", "new", queue.input(), **env).err
    eventually(
        lambda: "the running scheduler has no manifest of new" in (queue.show(1)["reason"] or {}).get("text", ""),
        what="the reason",
    )
    assert queue("cancel", "1").code == 0


@pytest.mark.parametrize("key", [[], ["--key", "k"]])
def test_a_run_that_took_too_long_says_only_what_finds_it_again(queue: Queue, key: list[str]) -> None:
    queue.provider()
    queue("up")
    left = queue("run", "echo", queue.input(wait_for="/nonexistent"), "--timeout", "300ms", *key)
    assert left.code == 124 and "schedq wait 1" in left.err, left
    assert ("the same call" in left.err) is bool(key) and "--key" not in left.err


def test_an_upgrade_with_nothing_to_do_needs_no_scheduler_to_go(queue: Queue) -> None:
    queue("up")
    done = queue("db", "upgrade")
    assert done.code == 0 and "this version's schema" in done.err, done


def test_a_slip_in_the_name_of_a_provider_is_told_by_every_filter(queue: Queue) -> None:
    queue.provider()
    for verb in ("status", "wait", "cancel"):
        done = queue(verb, "--slug", "ehco")
        assert done.code == 2 and "did you mean echo" in done.err, done
    assert queue("wait", "--slug", "echo").err.startswith("no job matches")


def test_run_at_a_terminal_shows_how_far_its_job_is_on_one_line(queue: Queue) -> None:
    queue.provider()
    queue("up")
    gate = queue.folder / "gate"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    env = {**queue.env, "TERM": "xterm"}
    env.pop("COLUMNS", None)
    run = subprocess.Popen(
        queue.command("run", "echo", queue.input(wait_for=str(gate))), env=env, cwd=queue.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True,
    )  # fmt: skip
    os.close(theirs)
    seen = ""
    until = time.monotonic() + 30
    while "waiting" not in seen and time.monotonic() < until:
        if select.select([ours], [], [], 0.5)[0]:
            seen += os.read(ours, 4096).decode()
    gate.touch()
    out, _err = run.communicate(timeout=30)
    try:
        seen += os.read(ours, 4096).decode()
    except OSError:
        pass
    os.close(ours)
    assert run.returncode == 0 and json.loads(out)["said"] == "hello"
    lines = re.findall(r"\r(job 1 running [^\x1b]*)\x1b\[K", seen)
    assert lines and "waiting" in lines[-1] and max(map(len, lines)) < 60, seen
    assert seen.endswith("\r\x1b[K"), seen


README = Path(__file__).resolve().parents[2] / "manifests" / "README.md"


def test_the_whole_example_of_the_manifests_readme_runs_as_it_stands_there(queue: Queue) -> None:
    text = README.read_text().partition("### A whole example")[2].partition("\nWorkers of older trees")[0]
    folder = queue.manifests / "composition"
    folder.mkdir()
    for name, block in re.findall(r"^`([\w.]+)`:\n\n((?: {4}.*\n|\n)+)", text, re.MULTILINE):
        (folder / name).write_text(textwrap.dedent(block))
    assert len(list(folder.iterdir())) == 4
    checked = queue("providers", "check", "composition")
    assert checked.code == 0 and checked.out.split() == ["composition", "ok"], checked
    calls = re.findall(r"`schedq (run composition[^`]*)`", text)
    assert len(calls) == 2
    first, second = (queue(*call.split()) for call in calls)
    assert first.json == {"letters": {"A": 0.5, "G": 0.25, "C": 0.125}}, first
    assert second.json == {"letters": {"A": 0.5}} and queue.show(2)["attempts"][0]["warm"], second
    refused = queue("run", "composition", queue.input("b.json", sequence="AX1"))
    assert refused.code == 3 and "a sequence of the 20 letters is needed, without 1 X" in refused.err, refused
