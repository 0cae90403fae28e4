"""Calls that cannot be carried out: one message that names what was given, the right exit code, no fault of schedq."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from queues import asking, submitted, writing

from scheduler.cli import children, requests, sight
from scheduler.config import Paths
from scheduler.errors import Temporary
from scheduler.store import results
from scheduler.store.engine import Store

MANIFEST = (
    'slug = "echo"\nmode = "resident"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
    '[worker]\npython = "/usr/bin/python3"\nscript = "w.py"\n[input]\naccept = [".json"]\n'
)
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "manifests" / "echo"
    folder.mkdir(parents=True)
    (folder / "provider.toml").write_text(MANIFEST)
    (folder / "w.py").touch()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ok.json").write_text("{}")
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(tmp_path / "manifests"))
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path / "home"))
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))  # never the real one: a broken refusal would move it aside
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture
def ask(place: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Ask]:
    """A call: (exit code, stdout, stderr), never a fault of schedq itself."""

    yield asking(capfd)


@pytest.fixture
def paths(place: Path) -> Paths:
    return Paths(str(place / "home"))


SUBMIT = ("submit", "echo", "ok.json")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ((*SUBMIT, "--key", ""), "--key is empty; give it a KEY, or leave it out"),
        ((*SUBMIT, "--out="), "--out is empty; give it a PATH"),
        ((*SUBMIT, "--name="), "--name is empty"),
        ((*SUBMIT, "--batch", ""), "--batch is empty"),
        ((*SUBMIT, "--priority="), "--priority is empty"),
        ((*SUBMIT, "--timeout", ""), "--timeout is empty"),
        ((*SUBMIT, "--param", ""), "--param is empty"),
        (("status", "--batch="), "--batch is empty"),
        (("status", "--state", ""), "--state is empty"),
        (("result", "1", "-o", ""), "--output is empty"),
        (("db", "backup", ""), "TARGET is empty"),
        ((*SUBMIT, "--key", "\udcff"), r"--key '\udcff' is no text"),
        ((*SUBMIT, "--name", "\udcff"), r"--name '\udcff' is no text"),
        ((*SUBMIT, "--out", "a\udcff"), r"--out 'a\udcff' is no path"),
        (("status", "--batch", "\udcff"), r"--batch '\udcff' is no text"),
        (("status", "--name", "\udcff*"), r"--name '\udcff*' is no text"),
        (("wait", "--slug", "\udcff"), r"--slug '\udcff' is no text"),
        ((*SUBMIT, "--timeout", "9" * 400 + "s"), "(401 characters)' is out of bounds"),
        ((*SUBMIT, "--timeout", "0s"), "--timeout 0s would end every attempt at once; give it 1ms or more"),
        ((*SUBMIT, "--timeout", "0.0000001s"), "is out of bounds; between 1ms and 36525d"),
        ((*SUBMIT, "--timeout", "\u0663s"), "is not a duration"),
        (("wait", "1", "--timeout", "1e3s"), "is not a duration"),
        (("status", "--since", "99999999999999d"), "--since '99999999999999d' is out of bounds"),
        ((*SUBMIT, "--priority", "9223372036854775808"), "--priority '9223372036854775808' is out of bounds"),
        ((*SUBMIT, "--priority", "\u0661"), "is not a whole number"),
        ((*SUBMIT, "--priority", "1_0"), "is not a whole number"),
        ((*SUBMIT, "--out", "/proc/x"), "cannot be made"),
        ((*SUBMIT, "--out", "."), "the folder that you are in lies in it"),
        ((*SUBMIT, "--out", "~", "--overwrite"), "your home folder lies in it"),
        ((*SUBMIT, "--out", "../home", "--overwrite"), "the queue itself lies in it"),
        ((*SUBMIT, "--name", "a" * 300, "--out", "od/{name}"), "has 300 bytes, and"),
        (
            ("submit", "echo", "ok.json/"),
            "ok.json/ ends with a slash, and ok.json is",
        ),
        (("submit", "echo", "ok.json/x"), "ok.json is a file and no folder"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(ask: Ask, argv: tuple[str, ...], told: str) -> None:
    code, out, err = ask(*argv)
    assert code in (2, 3) and out == "" and told in err, err
    assert ask("status")[1].count("echo") == 0


def test_the_longest_ago_is_no_fault(ask: Ask, paths: Paths) -> None:
    submitted(paths)
    assert ask("status", "--since", "36525d")[0] == 0


def test_the_pointer_to_everything_is_the_empty_one(ask: Ask, paths: Paths) -> None:
    job = with_reply(paths, "succeed", b'{"n":1}')
    assert ask("result", str(job), "--pointer", "", "--json") == (0, '{"n": 1}\n', "")


def test_a_file_that_looks_like_an_option_is_named_so_that_it_is_none(ask: Ask) -> None:
    Path("-dash.json").write_text("{}")
    code, _, err = ask("submit", "echo", "-dash.json")
    assert code == 2 and "./-dash.json" in err and "after --" in err
    assert ask("submit", "echo", "./-dash.json")[1] == "1\n" and ask("submit", "echo", "--", "-dash.json")[1] == "2\n"
    assert "./" not in ask("submit", "echo", "-x.json")[2]


def test_a_refused_content_is_named_as_it_was_given(ask: Ask) -> None:
    os.mkdir("in")
    Path("in/bad.json").write_text("{")
    Path("in/bad2.json").write_text("[1,")
    Path("in/x.pdb").write_text("x")
    assert "in/bad.json: not JSON" in ask("submit", "echo", "in/bad.json")[2]
    assert "./in/x.pdb is a .pdb file" in ask("submit", "echo", "./in/x.pdb")[2]
    said = ask("submit", "echo", "in/bad.json", "in/bad2.json")[2]
    assert "  in/bad.json: not JSON" in said and "  in/bad2.json: not JSON" in said


CALLS = (SUBMIT, ("status",), ("result", "1"), ("cancel", "1"), ("db", "check"), ("show", "last"))


@pytest.mark.parametrize("argv", CALLS, ids=" ".join)
@pytest.mark.parametrize("variable", ["SCHEDQ_HOME", "SCHEDQ_MANIFESTS"])
def test_a_relative_path_in_a_folder_that_is_gone_is_said(
    ask: Ask, place: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], variable: str
) -> None:
    monkeypatch.setenv(variable, "here")
    gone = place / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = ask(*argv)
    if variable == "SCHEDQ_HOME" or argv == SUBMIT:
        assert code == 2 and f"{variable} 'here' is relative" in err and "is not there any more" in err, err


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("submit", "echo", "x.json"), "the input 'x.json'"),
        (("submit", "echo", "*.json"), "matches no file"),
        (("submit", "echo", "{ok}", "--out", "x"), "--out 'x'"),
        (("db", "backup", "x"), "TARGET 'x'"),
        (("result", "1", "-o", "x"), "--output 'x'"),
    ],
)
def test_an_argument_that_is_relative_in_a_folder_that_is_gone_is_said(
    ask: Ask, place: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], named: str
) -> None:
    with_reply(paths, "succeed", b"{}")
    gone = place / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = ask(*(word.format(ok=place / "work" / "ok.json") if word == "{ok}" else word for word in argv))
    assert code == 2 and named in err, err


@pytest.mark.parametrize("argv", CALLS, ids=" ".join)
@pytest.mark.parametrize("home", ["/dev/null", "{file}", "{file}/x"])
def test_a_home_that_is_no_folder_is_said_and_is_no_empty_queue(
    ask: Ask, place: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], home: str
) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", home.format(file=place / "work" / "ok.json"))
    code, out, err = ask(*argv)
    assert (code, out) == (2, "") and "is no folder, so no queue can be at" in err and "set SCHEDQ_HOME" in err, err


@pytest.mark.parametrize("argv", [SUBMIT, ("db", "upgrade")], ids=" ".join)
def test_a_home_below_proc_is_said(ask: Ask, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", "/proc/x")
    code, out, err = ask(*argv)
    assert (code, out) == (75, "") and "/proc/x cannot be" in err, err


def test_no_json_holds_what_json_has_not(ask: Ask, paths: Paths) -> None:
    submitted(paths)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET timeout_s = 9e999, size = -9e999, progress = '{\"done\": 1e999}'")
    for argv in (("status", "--json"), ("show", "1", "--json")):
        code, out, _ = ask(*argv)
        assert code == 0 and "Infinity" not in out and "NaN" not in out

        def refuse(word: str) -> None:
            raise AssertionError(word)

        json.loads(out, parse_constant=refuse)


@pytest.mark.parametrize("argv", [["--help"], ["submit", "--help"]])
def test_a_stdout_that_takes_no_help_is_said_and_is_temporary(place: Path, argv: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "scheduler", *argv], stdout=full, stderr=subprocess.PIPE, text=True, cwd="/",
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )  # fmt: skip
    assert done.returncode == 75 and done.stderr.count("\n") == 1 and "stdout cannot be written" in done.stderr


# A reply whose outputs could not be put in place; what takes the place of what


def with_reply(paths: Paths, event: str, reply: bytes | None, name: str = "ligand") -> int:
    """A job that ended by that event, with a reply."""
    from scheduler.clock import now_at
    from scheduler.model.outcome import Outcome
    from scheduler.store import queue, workers

    (job,) = submitted(paths, name=name)
    store = Store(paths)
    try:
        with store.write() as tx:
            worker = workers.insert(
                tx, slug="boltz", variant="", revision="r1", mode="resident", host_id="h", epoch=1, created_at=now_at()
            )
            queue.admit(tx, job, worker, 1, now_at())
            queue.send(tx, job, 1, now_at())
            outcome = Outcome("ok") if event == "succeed" else Outcome("error", "the outputs cannot be put at /x")
            queue.finish(tx, job, 1, event, outcome, now_at(), reply=reply)
            assert results.get(tx, job)[0] == reply
    finally:
        store.close()
    return job


def test_a_reply_that_was_kept_of_a_failed_job_is_given_and_the_failure_said(ask: Ask, paths: Paths) -> None:
    job = with_reply(paths, "fail", b'{"n":1}')
    code, out, err = ask("result", str(job), "--json")
    assert (code, out) == (0, '{"n":1}\n') and f"job {job} failed: error: the outputs cannot be put at /x" in err
    assert ask("result", str(job), "--pointer", "/n")[:2] == (0, "1\n")
    assert ask("result", str(job), "-o", "r.json")[0] == 0 and Path("r.json").read_text() == '{"n":1}'


def test_a_failed_job_without_a_reply_has_no_result(ask: Ask, paths: Paths) -> None:
    job = with_reply(paths, "fail", None)
    code, out, err = ask("result", str(job))
    assert (code, out) == (1, "") and "the outputs cannot be put at /x" in err


@pytest.mark.parametrize("name", ["..", ".", "~x", "a/../b"])
def test_a_result_goes_into_the_folder_that_was_named_whatever_the_job_is_called(
    ask: Ask, paths: Paths, name: str
) -> None:
    job = with_reply(paths, "succeed", b"{}", name)
    assert ask("result", str(job), "-o", "into/")[0] == 0
    assert len(os.listdir("into")) == 1 and sorted(os.listdir(".")) == ["into", "ok.json"]


@pytest.mark.parametrize("at", ["queue.db", "queue.id", "jobs", "x.json"])
def test_a_result_never_takes_the_place_of_what_is_the_queues(ask: Ask, paths: Paths, at: str) -> None:
    job = with_reply(paths, "succeed", b"{}")
    target = Path(paths.home, at)
    before = target.read_bytes() if target.is_file() else None
    code, _, err = ask("result", str(job), "-o", str(target), "--overwrite")
    assert code == 3 and "in the folder of the queue itself" in err, err
    assert (target.read_bytes() if target.is_file() else None) == before


def test_what_is_moved_aside_is_said_at_once_and_in_the_jobs_story(ask: Ask, place: Path) -> None:
    (place / "work" / "od").mkdir()
    code, out, err = ask(*SUBMIT, "--out", "od", "--overwrite")
    assert (code, out) == (0, "1\n")
    (aside,) = Path(".").glob("od.before-*")
    said = f"what was at {Path('od').absolute()} lies at {aside.absolute()} now, and stays there however the job ends"
    assert said in err
    assert str(aside) in ask("show", "1")[1].replace("\n", "").replace(" ", "") or str(aside) in ask("show", "1")[1]


def test_moving_aside_that_fails_for_one_undoes_it_for_all(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        os.mkdir(name)
        Path(f"{name}.json").write_text("{}")
    real = os.rename

    def fail(here: str, there: str) -> None:
        if here.endswith("/b"):
            raise PermissionError(1, "Operation not permitted", here)
        real(here, there)

    monkeypatch.setattr(os, "rename", fail)
    code, out, err = ask("submit", "echo", "a.json", "b.json", "--out", "{name}", "--overwrite")
    assert (code, out) == (3, "") and "nothing was changed" in err
    assert sorted(os.listdir(".")) == ["a", "a.json", "b", "b.json", "ok.json"]


def test_a_destination_that_becomes_the_queues_with_its_id_is_refused(
    ask: Ask, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", str(place / "work" / "q2"))
    assert ask(*SUBMIT)[1] == "1\n"
    code, _, err = ask(*SUBMIT, "--out", "q{id}", "--overwrite")
    assert code == 3 and "the queue itself" in err
    assert ask("status")[0] == 0 and os.path.exists(place / "work" / "q2" / "queue.db")


def test_a_back_off_says_what_the_last_attempt_said(ask: Ask, paths: Paths) -> None:
    submitted(paths)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET blocked = 'backoff', attempt = 1, not_before_at = '2099-01-01T00:00:00.000000Z'")
        db.execute(
            "INSERT INTO attempts (job_id, attempt, worker_id, epoch, outcome, outcome_text, ended_at, admitted_at)"
            " VALUES (1, 1, 1, 1, 'error', 'No space left on device', '2026-01-01', '2026-01-01')"
        )
    shown = json.loads(ask("show", "1", "--json")[1])
    assert shown["reason"]["text"].endswith("; the last time: No space left on device")


WITH_ENV = '\n[env]\npython = ">=3.8"\nrequirements = ["gone-from-every-index==1"]\n'


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"manifests": ["{elsewhere}"], "envs": ["{envs}"]}, "does not look into {manifests}, where echo lies"),
        ({"manifests": ["{manifests}"], "envs": ["{elsewhere}"]}, "looks for environments in {elsewhere}"),
    ],
)
def test_run_refuses_what_the_scheduler_would_not_see_before_it_installs_anything(
    ask: Ask, place: Path, monkeypatch: pytest.MonkeyPatch, about: dict[str, list[str]], told: str
) -> None:
    text = MANIFEST.replace('python = "/usr/bin/python3"\n', "") + WITH_ENV
    (place / "manifests" / "echo" / "provider.toml").write_text(text)
    monkeypatch.setenv("SCHEDQ_ENVS", str(place / "envs"))
    names = {name: str(place / name) for name in ("elsewhere", "envs", "manifests")}
    said = {key: [each.format(**names) for each in folders] for key, folders in about.items()}
    installed: list[str] = []
    monkeypatch.setattr(sight, "told", lambda _paths: said)
    monkeypatch.setattr(children, "install", installed.append)
    code, out, err = ask("run", "echo", "ok.json")
    assert (code, out, installed) == (75, "", []), err
    assert told.format(**names) in err and "nothing was queued" in err and "schedq restart" in err


def test_run_installs_where_the_scheduler_will_look(ask: Ask, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = MANIFEST.replace('python = "/usr/bin/python3"\n', "") + WITH_ENV
    (place / "manifests" / "echo" / "provider.toml").write_text(text)
    monkeypatch.setenv("SCHEDQ_ENVS", str(place / "envs"))
    installed: list[str] = []
    folders = {"manifests": [str(place / "manifests")], "envs": [str(place / "envs")]}
    for about in (folders, {**folders, "manifests": [], "leaving": "down"}, None):
        monkeypatch.setattr(sight, "told", lambda _paths, about=about: about)
        monkeypatch.setattr(children, "install", installed.append)
        code, _, err = ask("run", "echo", "ok.json")
        assert code == 1 and "the installation ended well, and yet" in err, err
    assert installed == ["echo"] * 3


# Many jobs at once


def test_cancelling_many_without_a_terminal_says_what_is_missing(ask: Ask, paths: Paths) -> None:
    submitted(paths, 34, batch="b2")
    code, out, err = ask("cancel", "--batch", "b2")
    assert (code, out) == (2, "")
    assert err == (
        "schedq: cancel 34 jobs? There is no terminal here to answer on, so nothing was done: --yes does it without"
        " asking, --dry-run lists them\n"
    )


def test_cancelling_many_names_the_first_counts_the_rest_and_sums_up(ask: Ask, paths: Paths) -> None:
    submitted(paths, 34, batch="b2")
    assert ask("cancel", "34")[0] == 0
    code, out, err = ask("cancel", "--batch", "b2", "--yes")
    lines = err.splitlines()
    assert (code, out) == (0, "")
    assert lines[0] == "job 1: cancelled" and lines[19] == "job 20: cancelled"
    assert lines[20:] == ["and 13 more", "in all: 33 cancelled"]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), Temporary("no socket can be had")])
def test_a_note_that_cannot_be_made_is_no_failure_of_the_submit(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The id is out and the job is durable: what is said beside is talk."""

    def fails(*_given: object) -> None:
        raise error

    monkeypatch.setattr(requests, "not_installed", fails)
    code, out, err = ask(*SUBMIT)
    assert (code, out) == (0, "1\n"), err
