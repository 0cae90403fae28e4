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
import wheels
from web import served

from scheduler import clock, locks
from scheduler.errors import SchedqError, Temporary, UsageError
from scheduler.host import environments, interpreters, marker, pip

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
    return made_wheel(tmp_path / "wheels", "toymodel")


def made_wheel(folder: Path, name: str, asks_for: str = "") -> str:
    """A wheel of one module, version 1.5, that may ask for another package; its requirement."""
    info = f"{name}-1.5.dist-info"
    more = f"Requires-Dist: {asks_for}\n" if asks_for else ""
    with zipfile.ZipFile(folder / f"{name}-1.5-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "answer = 42\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n{more}")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return f"{name}==1.5"


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


def test_what_stands_below_no_deps_comes_without_what_it_asks_for(envs: Path, tmp_path: Path, wheel: str) -> None:
    made_wheel(tmp_path / "wheels", "bare", asks_for="nowhere-to-be-had>=2")
    wanted = spec(requirements=[wheel, "--no-deps", "bare==1.5"], check="import toymodel, bare")
    assert environments.install(wanted, quiet).fresh
    assert {"toymodel", "bare"} <= environments.versions(wanted).keys()


def test_what_stands_above_no_deps_comes_with_what_it_asks_for(envs: Path, tmp_path: Path, wheel: str) -> None:
    made_wheel(tmp_path / "wheels", "asking", asks_for="toymodel")
    made_wheel(tmp_path / "wheels", "bare", asks_for="nowhere-to-be-had>=2")
    wanted = spec(requirements=["asking==1.5", "# bare runs without it", "--no-deps", "bare==1.5"])
    environments.install(wanted, quiet)
    assert environments.versions(wanted)["toymodel"] == "1.5"


def test_a_list_that_begins_with_no_deps_installs_only_what_is_listed(envs: Path, tmp_path: Path, wheel: str) -> None:
    made_wheel(tmp_path / "wheels", "asking", asks_for="toymodel")
    wanted = spec(requirements=["# alone", "--no-deps", "asking==1.5"])
    environments.install(wanted, quiet)
    assert "toymodel" not in environments.versions(wanted)


def cached(folder: Path, *made: Path) -> None:
    """Wheels as pip's cache has them: what was downloaded by a hash, an older pip's inside a record, what was built."""
    for number, (wheel, where) in enumerate(zip(made, ("http-v2/a/b", "http/a/b", "wheels/ab/cd"), strict=False)):
        place = folder / where
        place.mkdir(parents=True)
        data = wheel.read_bytes()
        if where.startswith("wheels"):
            (place / wheel.name).write_bytes(data)
        elif where.startswith("http/"):
            head = b"cc=4,\x82\xa8response\x86\xa4body\xc6" + len(data).to_bytes(4, "big")
            (place / f"{number}f").write_bytes(head + data + b"\xa7headers\x80")
        else:
            (place / f"{number}f").write_bytes(b"cc=5,")
            (place / f"{number}f.body").write_bytes(data)
        wheel.unlink()


def test_offline_what_pip_has_in_its_cache_is_installed_however_it_is_kept(
    envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "away"
    made = wheels.made(away, "one", "1.0", needs=("two", "three")), wheels.made(away, "two", "2.0+cpu", build="7")
    cached(tmp_path / "cache", *made, wheels.made(away, "three", "3.0"))
    (tmp_path / "cache" / "http-v2" / "broken.body").write_bytes(b"PK\x03\x04 and then nothing")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    wanted = spec(requirements=["one==1.0", "two==2.0"], check="import one, two, three")
    built = environments.install(wanted, quiet, sources=pip.Sources(offline=True))
    assert environments.versions(wanted) == {
        "python": environments.versions(wanted)["python"], "one": "1.0", "two": "2.0+cpu", "three": "3.0",
    }  # fmt: skip
    assert not (Path(built.path) / pip.WHEELS).exists(), "an environment is not to lean on a cache that may be emptied"


def test_offline_no_network_is_asked_whatever_is_configured_and_what_lacks_is_named(
    envs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as web:
        for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
            monkeypatch.setenv(name, f"{web.address}/simple")
        monkeypatch.delenv("PIP_NO_INDEX")
        folder = tmp_path / "given"
        wheels.made(folder, "here", "1.0")
        sources = pip.sources(True, [str(folder)])
        with pytest.raises(SchedqError, match=r"no wheel of away==1\.0 .*pip download -d wheels away==1\.0") as caught:
            environments.install(spec(requirements=["here==1.0", "away==1.0"]), quiet, sources=sources)
        assert str(folder) in str(caught.value) and "pip's cache" in str(caught.value)
        with pytest.raises(SchedqError, match=r"is installed from http.*no wheel away-1\.0-py3-none-any\.whl"):
            line = f"away @ {web.address}/away-1.0-py3-none-any.whl"
            environments.install(spec(requirements=[line]), quiet, sources=sources)
        assert web.asked == []
    line = f"here @ https://weights.invalid/{next(folder.iterdir()).name}"
    assert environments.install(spec(requirements=[line], check="import here"), quiet, sources=sources).fresh


def test_offline_all_that_lacks_is_named_with_one_command_that_fetches_it(envs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    for name in ("Not_here", "old", "other"):
        wheels.made(folder, name, "1.0")
    (folder / "native-1.0-cp27-cp27m-win32.whl").touch()
    (folder / "no.whl").touch()
    wanted = [
        "away==1.0", "# why", "not-here==1.0", "old[x]==2.0 # pinned", "native==1.0", "past==1; python_version < '3'",
        "--no-deps", "alone>=3,<4",
    ]  # fmt: skip
    with pytest.raises(SchedqError) as caught:
        environments.install(spec(requirements=wanted), quiet, sources=pip.sources(True, [str(folder)]))
    told = str(caught.value)
    assert "no wheel of away==1.0, old==2.0, native==1.0, alone<4,>=3 for this Python" in told, told
    assert "pip download -d wheels away==1.0 old==2.0 native==1.0 'alone<4,>=3')" in told, told


def test_offline_all_packages_that_are_installed_by_address_and_lack_are_named_at_once(envs: Path) -> None:
    wanted = [f"{name} @ https://weights.invalid/{name}-1.0-py3-none-any.whl" for name in ("one", "two")]
    with pytest.raises(SchedqError, match=r"(?s)one-1\.0.*two-1\.0"):
        environments.install(spec(requirements=wanted), quiet, sources=pip.Sources(offline=True))


def test_find_links_that_are_addresses_are_refused_offline() -> None:
    with pytest.raises(UsageError, match="asks no network"):
        pip.sources(True, ["https://example.org/wheels"])
    with pytest.raises(UsageError, match="is not there"):
        pip.sources(False, ["nowhere"])


def test_what_of_pips_settings_breaks_an_environments_isolation_is_left_out_and_said(
    envs: Path, wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[install]\ntarget = {tmp_path / 'elsewhere'}\n[global]\nuser = true\nquiet = 3\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    monkeypatch.setenv("PIP_PREFIX", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "0")
    monkeypatch.setenv("PIP_DRY_RUN", "1")
    monkeypatch.setenv("PIP_NO_DEPS", "1")
    monkeypatch.setenv("PIP_NO_DEPENDENCIES", "1")
    said: list[str] = []
    built = environments.install(spec(requirements=[wheel], check="import toymodel"), said.append)
    assert built.fresh and not (tmp_path / "elsewhere").exists()
    left = [text.split("pip's ")[1].split(" is left")[0] for text in said if "is left out" in text]
    assert left == ["dry-run", "no-dependencies", "no-deps", "prefix", "quiet", "target", "user"]


def test_a_constraint_and_links_of_pip_conf_count_and_are_relative_to_the_caller(
    envs: Path, wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels.made(tmp_path / "more", "toymodel", "1.4")
    (tmp_path / "pip.conf").write_text("[install]\nconstraint = limits.txt\n[global]\nfind-links = wheels more\n")
    (tmp_path / "limits.txt").write_text("toymodel<1.5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_CONFIG_FILE", "pip.conf")
    wanted = spec(requirements=["toymodel"])
    environments.install(wanted, quiet)
    assert environments.versions(wanted)["toymodel"] == "1.4"


def test_paths_in_pips_variables_are_the_callers_whichever_folder_pip_runs_in() -> None:
    given = {
        "PIP_FIND_LINKS": "w https://x/y /z", "PIP_CONSTRAINT": "c.txt", "PIP_CACHE_DIR": "a b", "PIP_CERT": "",
        "PIP_INDEX_URL": "x", "LANG": "w",
    }  # fmt: skip
    assert pip.absolute(given, "/here") == {
        **given, "PIP_FIND_LINKS": "/here/w https://x/y /z", "PIP_CONSTRAINT": "/here/c.txt",
        "PIP_CACHE_DIR": "/here/a b",
    }  # fmt: skip


def test_passwords_of_an_index_are_in_no_log(envs: Path, wheel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://ada:sesame@127.0.0.1:9/simple")
    built = environments.install(spec(requirements=[wheel]), quiet)
    assert "sesame" not in (Path(built.path) / "install.log").read_text()


def test_another_python_than_it_was_built_with_is_not_put_over_an_environment(
    envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(environments.install(spec(), quiet, python=sys.executable).path)
    assert not environments.install(spec(), quiet, python=sys.executable).fresh
    marked(path, version="3.9.1")
    monkeypatch.setattr(marker, "fault", lambda *_: "")
    with pytest.raises(SchedqError, match=r"is installed with Python 3\.9\.1 .*schedq uninstall toy"):
        environments.install(spec(), quiet, python=sys.executable)


def test_an_environment_that_is_named_is_told_by_what_it_holds(envs: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "mine")], check=True)
    named = {**spec(), "python": str(tmp_path / "mine" / "bin" / "python")}
    site = next((tmp_path / "mine").glob("lib/python3*/site-packages"))
    (site / "toymodel-1.5.dist-info").mkdir()
    assert environments.folder_in(named) == str(tmp_path / "mine")
    assert environments.versions(named)["toymodel"] == "1.5"
    before = environments.identity(named)
    (site / "toymodel-1.5.dist-info").rename(site / "toymodel-1.6.dist-info")
    assert environments.versions(named)["toymodel"] == "1.6"
    assert environments.identity(named) not in (before, spec()["environment"]["hash"])
    assert environments.identity(spec()) == spec()["environment"]["hash"]
    assert environments.identity({**spec(), "python": "/usr/bin/env"}) == ""


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


def test_one_that_somebody_runs_in_is_not_emptied(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = environments.install(spec(), quiet)
    (Path(built.path) / environments.MARKER).unlink()
    monkeypatch.setattr(environments.removal, "PATIENCE_S", 0.1)
    words = [built.python, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == b"up\n"
        with pytest.raises(Temporary, match=f"process {worker.pid} of it still runs"):
            environments.install(spec(), quiet)
        assert os.access(built.python, os.X_OK)
        worker.communicate(b"\n")
    assert environments.install(spec(), quiet).fresh


def test_one_whose_removal_was_killed_is_taken_as_it_is(envs: Path) -> None:
    path = Path(environments.install(spec(), quiet).path)
    marker.put_aside(str(path))
    assert environments.find(spec()) is None
    assert not environments.install(spec(), quiet).fresh
    assert environments.find(spec()) is not None


def test_the_check_of_a_built_one_runs_with_what_the_manifest_sets(envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOGUS", "1")
    check = (
        "import os, sys; assert os.environ['CACHE'] == os.environ['HOME'] + '/c' and 'BOGUS' not in os.environ; "
        "assert os.environ['PATH'].split(':')[0] == os.path.dirname(sys.executable)"
    )
    wanted = {**spec(check=check), "env": {"CACHE": "~/c"}, "unset": ["BOGUS"]}
    assert environments.install(wanted, quiet).fresh


def test_an_environment_of_another_kind_of_machine_is_neither_taken_nor_emptied(envs: Path) -> None:
    path = Path(environments.install(spec(), quiet).path)
    marked(path, machine="vax")
    assert "another kind, vax" in environments.missing(spec())
    with pytest.raises(SchedqError, match=r"another kind, vax.*nothing was changed.*SCHEDQ_ENVS"):
        environments.install(spec(), quiet)
    whole = json.loads((path / environments.MARKER).read_text())
    del whole["machine"]
    (path / environments.MARKER).write_text(json.dumps(whole))
    assert environments.missing(spec()) == "", "what was built before it was recorded still holds"


def test_an_interpreter_that_the_configuration_names_and_is_gone_is_told_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "schedq").mkdir()
    gone = {**spec(), "variant": "big", "python": str(tmp_path / "gone" / "python")}
    assert "worker.python = " in environments.missing(gone)
    for table, name in [("[providers.toy]", "toy"), ('[providers."toy:big".worker]', "toy:big")]:
        (tmp_path / "schedq" / "config.toml").write_text(f'{table}\npython = "{gone["python"]}"\n')
        told = environments.missing(gone)
        assert f"which {tmp_path}/schedq/config.toml names in [providers.{name}]" in told, told
        assert told.endswith(f"run: schedq providers set {name} python --unset") and "/m/toy" not in told


def failed(folder: Path, *lines: str, argv: tuple[str, ...] = ()) -> SchedqError:
    """What it means that pip said these lines and failed."""
    lock = os.open(folder, os.O_RDONLY)
    code = "import sys; print(sys.argv[1]); sys.exit(1)"
    try:
        with pytest.raises(SchedqError) as caught:
            environments.Step("toy", str(folder), lock, quiet).run(
                "pip", [sys.executable, "-c", code, "\n".join(lines), *argv]
            )
        return caught.value
    finally:
        os.close(lock)


RETRIED = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(refused)': /simple/toy/"


@pytest.mark.parametrize(
    ("lines", "code", "word"),
    [
        ((RETRIED, "ERROR: No matching distribution found for toy==1"), 75, "index was not reached"),
        ((RETRIED, "ERROR: Failed to build wheel", "bad source"), 1, "pip failed with exit 1"),
        (("ERROR: Exception:", "Traceback", "ReadTimeoutError: Read timed out."), 75, "index was not reached"),
        (("Could not fetch URL: Max retries exceeded (Caused by SSLError(CERTIFICATE_VERIFY_FAILED))",
          "ERROR: No matching distribution found for toy==1"), 1, "PIP_CERT names"),
        (("ERROR: Could not install packages due to an OSError: [Errno 28] No space left",), 75, "TMPDIR"),
    ],
)  # fmt: skip
def test_why_pip_failed_is_told_by_its_last_error(tmp_path: Path, lines: tuple[str, ...], code: int, word: str) -> None:
    error = failed(tmp_path, *lines)
    assert error.exit_code == code and word in str(error), error


def test_passwords_of_a_folder_of_wheels_are_in_no_log_and_no_message(tmp_path: Path) -> None:
    link = "http://ada:ses@me@127.0.0.1:9/wheels"
    error = failed(tmp_path, f"ERROR: {link} is not there", argv=("--find-links", link))
    log = (tmp_path / "install.log").read_text()
    assert "http://****@127.0.0.1:9/wheels" in log and "http://****@127" in str(error)
    assert not any(word in text for word in ("ada", "ses", "me@") for text in (log, str(error)))


def test_offline_a_requirement_is_read_as_pip_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with blank"
    wheel = wheels.made(folder, "here", "1.0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("PIP_FIND_LINKS", f"file://{str(folder).replace(' ', '%20')}")
    tool = pip.Pip(sys.executable, str(tmp_path), pip.Sources(offline=True))
    assert str(folder) in tool.where() and str(folder) in tool.install()
    near = f"here @ file://{str(folder).replace(' ', '%20')}/{wheel.name}"
    asked = {
        f"here @ https://x.invalid/{wheel.name}": near,
        f"here @ https://x.invalid/{wheel.name}#sha256=ab ; os_name == 'x'": f"{near}#sha256=ab ; os_name == 'x'",
        "# built from here @ https://x.invalid/here.whl": "# built from here @ https://x.invalid/here.whl",
        "here==1.0  # as ada@x says: https://example.org": "here==1.0  # as ada@x says: https://example.org",
        "here @ file:///srv/here.whl": "here @ file:///srv/here.whl",
    }
    assert tool.ready(list(asked)) == list(asked.values())


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
    with pytest.raises(Temporary, match=r"Free: \d+\.\d\d GiB in .* \(TMPDIR\), .* \(pip.s cache\)"):
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
    told = environments.missing(absent)
    assert "is not there; run: schedq files toy --fetch (from https://example.org/other)" in told
    unknown = {**declared, "files": [{"path": "other"}, {"path": "third"}]}
    assert "is not there (and 1 more); /m/toy/provider.toml gives no address" in environments.missing(unknown)


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


def test_a_check_that_leaves_a_process_behind_is_not_waited_for_beyond_its_own_end(envs: Path, tmp_path: Path) -> None:
    check = f"import os; print('its words', flush=True); os.system('sleep 30 & echo $! > {tmp_path}/pid')"
    began_s = clock.monotonic_s()
    try:
        made = environments.install(spec(check=check), quiet)
        assert clock.monotonic_s() - began_s < 25 and not locks.is_held(made.path)
        assert "its words" in (Path(made.path) / "install.log").read_text()
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
