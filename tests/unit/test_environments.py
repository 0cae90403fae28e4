"""Environments are built once, found by their hash, and believed only while their marker holds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scheduler import clock
from scheduler.errors import SchedqError, Temporary
from scheduler.host import environments, interpreters

ROOT = Path(__file__).resolve().parents[2]
INSTALL = """
import json, sys
from scheduler.host import environments
environments.install(json.loads(sys.argv[1]), lambda text: print(text, flush=True))
"""


def spec(**over: Any) -> dict[str, Any]:
    """A provider whose environment is an empty one of any Python."""
    declared = {"python": ">=3.8", "requirements": [], "check": "import sys", "hash": "sha256:" + "a" * 64}
    return {"slug": "toy", "manifest": "/m/toy/provider.toml", "folder": "/m/toy", "python": None, "files": [],
            "command": None, "environment": {**declared, **over}}  # fmt: skip


def quiet(_: str) -> None:
    """Says nothing."""


@pytest.fixture
def envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of environments of this test; no package index is asked, a folder of wheels is."""
    folder = tmp_path / "envs"
    monkeypatch.setenv("SCHEDQ_ENVS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """A wheel of one module, in the folder that pip looks into; its requirement."""
    (tmp_path / "wheels").mkdir()
    info = "toymodel-1.5.dist-info"
    with zipfile.ZipFile(tmp_path / "wheels" / "toymodel-1.5-py3-none-any.whl", "w") as archive:
        archive.writestr("toymodel.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toymodel\nVersion: 1.5\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"toymodel.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return "toymodel==1.5"


def wait_for(path: Path) -> None:
    """Until a file is there, 60 s at most."""
    deadline_s, turn = clock.monotonic_s() + 60, threading.Event()
    while not path.exists():
        assert clock.monotonic_s() < deadline_s, f"{path} never came"
        turn.wait(0.01)


def held_open(tmp_path: Path) -> str:
    """A check that says it runs and then lasts until it is told to go on."""
    return (
        f"import pathlib, time; pathlib.Path({str(tmp_path / 'checking')!r}).touch()\n"
        f"while not pathlib.Path({str(tmp_path / 'go on')!r}).exists(): time.sleep(0.01)"
    )


def test_an_environment_holds_what_was_declared_and_says_so(envs: Path, wheel: str) -> None:
    said: list[str] = []
    wanted = spec(requirements=[wheel], check="import toymodel; assert toymodel.answer == 42")
    built = environments.install(wanted, said.append)
    assert built.fresh
    assert Path(built.path).parent == envs
    asked = subprocess.run(
        [built.python, "-c", "import toymodel; print(toymodel.answer)"], capture_output=True, text=True
    )
    assert asked.stdout == "42\n"
    assert environments.versions(wanted)["toymodel"] == "1.5"
    assert environments.versions(wanted)["python"].startswith("3.")
    assert "installing toymodel" in "\n".join(said)
    assert "Successfully installed toymodel-1.5" in (Path(built.path) / "install.log").read_text()


def test_a_second_install_answers_at_once_with_the_same(envs: Path) -> None:
    first = environments.install(spec(), quiet)
    said: list[str] = []
    second = environments.install(spec(), said.append)
    assert (second.path, second.python, second.fresh, said) == (first.path, first.python, False, [])
    assert environments.find(spec()) == second
    assert environments.python_of(spec()) == second.python
    assert environments.missing(spec()) == ""


def test_what_is_not_installed_is_said_with_the_command_that_installs_it(envs: Path) -> None:
    text = environments.missing(spec())
    assert "toy is not installed" in text and "schedq install toy" in text
    assert environments.find(spec()) is None and environments.python_of(spec()) is None
    assert environments.versions(spec()) == {}


def test_another_declaration_is_another_environment(envs: Path) -> None:
    environments.install(spec(), quiet)
    assert environments.find(spec(hash="sha256:" + "b" * 64)) is None


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (lambda path: (path / environments.MARKER).unlink(), "did not finish"),
        (lambda path: (path / environments.MARKER).write_text("{"), "did not finish"),
        (lambda path: (path / environments.MARKER).write_text("[]"), "did not finish"),
        (lambda path: marked(path, hash="sha256:other"), "another declaration"),
        (lambda path: relinked(path, "/nowhere/python3"), "is gone"),
        (lambda path: relinked(path, "/bin/sh"), "is now"),
        (lambda path: marked(path, version="3.1.0", stat=[0, 0]), "is now"),
    ],
)
def test_an_environment_whose_marker_does_not_hold_is_built_again(envs: Path, fault: Any, word: str) -> None:
    path = Path(environments.install(spec(), quiet).path)
    (path / "left over").touch()
    fault(path)
    assert environments.find(spec()) is None
    assert word in environments.missing(spec())
    again = environments.install(spec(), quiet)
    assert again.fresh and again.path == str(path)
    assert not (path / "left over").exists()
    assert subprocess.run([again.python, "-c", ""]).returncode == 0


def marked(path: Path, **over: Any) -> None:
    marker = path / environments.MARKER
    marker.write_text(json.dumps({**json.loads(marker.read_text()), **over}))


def relinked(path: Path, target: str) -> None:
    (path / "bin" / "python").unlink()
    (path / "bin" / "python").symlink_to(target)


def test_an_interpreter_that_was_patched_in_place_still_holds(envs: Path) -> None:
    path = Path(environments.install(spec(), quiet).path)
    marked(path, stat=[0, 0])
    assert environments.find(spec()) is not None


@pytest.mark.parametrize("stage", ["check", "pip", "venv"])
def test_a_killed_install_leaves_nothing_that_passes_for_whole(
    envs: Path, wheel: str, tmp_path: Path, stage: str
) -> None:
    wanted = spec(requirements=[wheel] if stage == "pip" else [], check=held_open(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", INSTALL, json.dumps(wanted)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        assert process.stdout is not None
        word = {"venv": "making an environment", "pip": "installing toymodel", "check": "checking it"}[stage]
        while word not in process.stdout.readline():
            assert process.poll() is None
        if stage == "check":
            wait_for(tmp_path / "checking")
        os.killpg(process.pid, signal.SIGKILL)
    assert environments.find(wanted) is None
    assert "did not finish" in environments.missing(wanted)
    (tmp_path / "go on").touch()
    again = environments.install(wanted, quiet)
    assert again.fresh
    if stage == "pip":
        assert subprocess.run([again.python, "-c", "import toymodel"]).returncode == 0


def test_of_two_installs_at_once_the_second_waits_and_finds_it_done(envs: Path, tmp_path: Path) -> None:
    wanted = spec(check=held_open(tmp_path))
    first = subprocess.Popen([sys.executable, "-c", INSTALL, json.dumps(wanted)], stdout=subprocess.PIPE, text=True)
    with first:
        wait_for(tmp_path / "checking")
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            (tmp_path / "go on").touch()

        second = environments.install(wanted, say)
    assert not second.fresh
    assert f"another install (process {first.pid}) is at work" in said[0]
    assert "another install has finished it" in said[1]


def test_a_killed_install_takes_what_it_runs_with_it_and_the_next_begins_anew(envs: Path, tmp_path: Path) -> None:
    wanted = spec(check=held_open(tmp_path))
    first = subprocess.Popen([sys.executable, "-c", INSTALL, json.dumps(wanted)], stdout=subprocess.DEVNULL)
    wait_for(tmp_path / "checking")
    first.kill()
    first.wait()
    (tmp_path / "go on").touch()
    (tmp_path / "checking").unlink()
    assert environments.install(wanted, quiet).fresh
    assert (tmp_path / "checking").exists(), "the environment that was left half made was taken for a good one"


def test_a_failed_check_is_an_error_with_its_last_words_and_the_log(envs: Path) -> None:
    with pytest.raises(SchedqError, match="No module named 'boltz'") as caught:
        environments.install(spec(check="import boltz"), quiet)
    assert caught.value.exit_code == 1
    assert "install.log" in str(caught.value)
    assert environments.find(spec(check="import boltz")) is None


def test_a_requirement_that_no_index_has_is_an_error_of_the_manifest(envs: Path, wheel: str) -> None:
    with pytest.raises(SchedqError, match=r"has no toymodel==9\.9") as caught:
        environments.install(spec(requirements=["toymodel==9.9"]), quiet)
    assert caught.value.exit_code == 1


def test_an_index_that_is_not_reached_is_temporary(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_TIMEOUT", "2")
    with pytest.raises(Temporary, match="index was not reached"):
        environments.install(spec(requirements=["toymodel==1.5"]), quiet)


def test_a_full_disk_is_temporary(envs: Path) -> None:
    full = "import sys; sys.exit('OSError: [Errno 28] No space left on device')"
    with pytest.raises(Temporary, match=r"GiB free"):
        environments.install(spec(check=full), quiet)


def test_environments_are_read_in_order_and_written_to_the_first_that_can_be(
    envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied = tmp_path / "a file"
    occupied.touch()
    monkeypatch.setenv("SCHEDQ_ENVS", f"{occupied / 'envs'}:{tmp_path / 'second'}:{tmp_path / 'third'}")
    built = environments.install(spec(), quiet)
    assert Path(built.path).parent == tmp_path / "second"
    monkeypatch.setenv("SCHEDQ_ENVS", f"{tmp_path / 'third'}:{tmp_path / 'second'}")
    assert environments.install(spec(), quiet).path == built.path
    monkeypatch.setenv("SCHEDQ_ENVS", str(occupied / "envs"))
    with pytest.raises(Temporary, match="SCHEDQ_ENVS"):
        environments.install(spec(), quiet)


def test_another_user_may_read_an_environment_and_not_write_it(envs: Path, wheel: str) -> None:
    before = os.umask(0o077)
    try:
        built = environments.install(spec(requirements=[wheel]), quiet)
    finally:
        os.umask(before)
    module = next(Path(built.path).rglob("toymodel.py"))
    for path in (Path(built.path), module.parent, Path(built.path) / "bin"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    for path in (module, Path(built.path) / environments.MARKER):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_declared_interpreter_is_taken_as_it_is(tmp_path: Path) -> None:
    declared = {**spec(), "environment": None, "python": sys.executable}
    assert environments.python_of(declared) == sys.executable
    assert environments.missing(declared) == ""
    absent = {**declared, "python": str(tmp_path / "python")}
    assert environments.python_of(absent) is None
    assert "worker.python" in environments.missing(absent)
    neither = {**spec(), "environment": None}
    assert "[env]" in environments.missing(neither)
    with pytest.raises(SchedqError, match=r"no \[env\]"):
        environments.install(neither, quiet)


def test_weights_that_are_absent_or_cut_short_are_missing(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"1234")
    declared = {**spec(), "environment": None, "python": sys.executable, "folder": str(tmp_path)}
    whole = {**declared, "files": [{"path": "weights", "bytes": 4}]}
    assert environments.missing(whole) == ""
    short = {**declared, "files": [{"path": "weights", "bytes": 9}]}
    assert "has 4 bytes, and 9 are declared" in environments.missing(short)
    absent = {**declared, "files": [{"path": "other", "url": "https://example.org/other"}]}
    assert "is not there; get it from https://example.org/other" in environments.missing(absent)


@pytest.mark.parametrize(
    ("declared", "version", "holds"),
    [
        (">=3.10,<3.13", "3.12.9", True),
        (">=3.10,<3.13", "3.13.0", False),
        (">=3.10", "3.9.18", False),
        (">3.10", "3.10.0", False),
        ("<=3.11", "3.11.0", True),
        ("==3.11.*", "3.11.7", True),
        ("==3.11", "3.11.7", False),
        ("!=3.11.*", "3.12.0", True),
        ("~=3.10", "3.12.0", True),
        ("~=3.10.2", "3.11.0", False),
        ("", "3.8.0", True),
    ],
)
def test_a_range_of_pythons_holds_what_it_says(declared: str, version: str, holds: bool) -> None:
    assert interpreters.allows(declared, version) is holds


def fake_python(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_shim_that_fails_is_passed_over_for_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(tmp_path / "shims", "python3.9", "echo 'pyenv: python3.9: command not found' >&2; exit 127")
    fake_python(tmp_path / "real", "python3.9", "printf '3.9.4\\n/usr/lib/fake/python3.9\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'real'}")
    found = interpreters.choose(">=3.9,<3.10")
    assert (found.version, found.path) == ("3.9.4", "/usr/lib/fake/python3.9")


def test_when_no_python_will_do_what_was_found_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(tmp_path / "shims", "python3.9", "echo 'pyenv: python3.9: command not found' >&2; exit 127")
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    with pytest.raises(SchedqError) as caught:
        interpreters.choose(">=3.9,<3.10")
    assert "pyenv: python3.9: command not found" in str(caught.value)
    assert sys.executable in str(caught.value)


def test_our_own_python_is_taken_before_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(tmp_path / "bin", "python3.19", "printf '3.19.0\\n/fake\\n'")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert interpreters.choose(">=3.11").path == os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]


def test_a_python_that_was_named_must_be_in_the_range() -> None:
    with pytest.raises(SchedqError, match=r"asks for <3\.9"):
        interpreters.choose("<3.9", sys.executable)


def test_the_fast_verbs_know_a_whole_environment_by_the_same_marker() -> None:
    from scheduler.cli import sight

    assert sight.MARKER == environments.MARKER


def test_a_folder_that_goes_while_it_is_built_is_told_as_the_fault_that_it_is(
    envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken_away(_spec: object, path: str, *_: object) -> None:
        shutil.rmtree(path)
        Path(path, "lib").mkdir()

    monkeypatch.setattr(environments, "_build", taken_away)
    with pytest.raises(SchedqError, match="could not be written: No such file or directory"):
        environments.install(spec(), quiet)


def test_an_interpreter_that_changed_is_held_for_good_until_it_was_asked(envs: Path) -> None:
    built = environments.install(spec(), quiet)
    marked(Path(built.path), stat=[0, 0], version="3.1.0")
    assert environments.missing(spec(), ask=lambda _: None) == ""
    assert environments.python_of(spec(), ask=lambda _: None) == built.python
    assert "was Python 3.1.0" in environments.missing(spec())
