"""An environment that is there is taken as it is: its check runs in it, and nothing of it is changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from driven import eventually

from scheduler.clock import monotonic_s
from scheduler.errors import SchedqError, UsageError
from scheduler.host import from_env


def spec(**over: Any) -> dict[str, Any]:
    """A provider that declares an environment."""
    declared = {"python": ">=3.8", "requirements": ["toymodel==1.5", "--no-deps", "toydep==0.3"], "check": "", **over}
    return {"slug": "toy", "manifest": "/m/toy/provider.toml", "environment": declared}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A venv of the user's own, with a package in it."""
    path = tmp_path / "mine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    site = next(path.glob("lib/python3*/site-packages"))
    (site / "toymodel.py").write_text("answer = 42\n")
    (site / "toymodel-1.5+cu126.dist-info").mkdir()
    (site / "toydep-0.4.dist-info").mkdir()
    return path


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(each): (each.lstat().st_mtime_ns, each.lstat().st_size) for each in folder.rglob("*")}


def test_the_check_runs_in_it_and_leaves_nothing_there(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    before = tree(mine)
    found = from_env.taken(spec(check="import toymodel; assert toymodel.answer == 42"), str(mine))
    assert (found.prefix, found.python) == (str(mine), str(mine / "bin" / "python"))
    assert found.packages["toymodel"] == "1.5+cu126" and found.version.startswith("3.")
    assert tree(mine) == before
    assert found.notes == ("it holds other versions than the manifest pins: toydep 0.4 instead of 0.3",)


def test_the_interpreter_itself_may_be_named_and_is_not_followed(mine: Path) -> None:
    assert from_env.python_of(str(mine / "bin" / "python")) == str(mine / "bin" / "python")


def test_a_check_that_fails_is_told_with_its_last_words(mine: Path) -> None:
    with pytest.raises(SchedqError, match=r"its check does not run in .*(?s:.*)No module named 'boltz'") as caught:
        from_env.taken(spec(check="import boltz"), str(mine))
    assert "nothing was recorded" in str(caught.value)


def test_the_check_sees_what_a_worker_will_see_and_not_the_callers_packages(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchedqError, match="only_here"):
        from_env.taken(spec(check="import only_here"), str(mine))


def test_the_check_runs_with_what_the_manifest_sets_and_its_programs_are_found_first(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOGUS", "1")
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    (mine / "bin" / "toytool").write_text("#!/bin/sh\n")
    (mine / "bin" / "toytool").chmod(0o755)
    check = (
        "import os, shutil; assert os.environ['CACHE'] == os.environ['HOME'] + '/c' and 'BOGUS' not in os.environ; "
        "import toymodel; assert shutil.which('toytool') == os.environ['WANTED']; __debug__ or exit('not checked')"
    )
    wanted = {**spec(check=check), "unset": ["BOGUS"], "env": {"CACHE": "~/c", "WANTED": str(mine / "bin" / "toytool")}}
    assert from_env.taken(wanted, str(mine)).prefix == str(mine)


def test_what_a_python_complains_of_is_not_its_version(mine: Path) -> None:
    site = next(mine.glob("lib/python3*/site-packages"))
    farewell = "lambda: (sys.stdout.flush(), sys.stderr.write('a farewell\\n'))"
    noise = f"import atexit, sys; atexit.register({farewell}); print('a greeting')\n"
    (site / "noise.pth").write_text(noise)
    assert from_env.taken(spec(), str(mine)).version == ".".join(map(str, sys.version_info[:3]))


def test_a_variable_in_the_path_is_replaced_and_one_that_cannot_be_recorded_is_refused(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    assert from_env.taken(spec(), "$PLACE/mine").python == str(mine / "bin" / "python")
    monkeypatch.chdir(tmp_path)
    mine.rename(tmp_path / "$PLACE")
    with pytest.raises(UsageError, match=r"has a \$ in its name, which a configuration takes for a variable"):
        from_env.taken(spec(), "$PLACE")
    os.rename(tmp_path / "$PLACE", os.fsencode(tmp_path) + b"/m\xff")
    with pytest.raises(UsageError, match=r"m.udcff is no UTF-8"):
        from_env.taken(spec(), os.fsdecode(os.fsencode(tmp_path) + b"/m\xff"))


def test_what_is_no_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="has no bin/python"):
        from_env.python_of(str(tmp_path))
    with pytest.raises(UsageError, match="is not there; name the folder"):
        from_env.python_of(str(tmp_path / "nowhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text("/opt/conda\n/opt/conda/envs/boltz\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"did you mean /opt/conda/envs/boltz\?"):
        from_env.python_of("boltz")


def test_a_python_that_is_too_old_for_a_worker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\necho 3.7.9\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    with pytest.raises(SchedqError, match=r"is Python 3\.7\.9, and a worker needs >=3\.8"):
        from_env.taken(spec(), str(tmp_path))


def test_what_is_not_known_of_it_is_said(mine: Path) -> None:
    activate = mine / "etc" / "conda" / "activate.d"
    activate.mkdir(parents=True)
    (activate / "cuda.sh").touch()
    notes = "\n".join(from_env.taken(spec(python="<3.9", requirements=[]), str(mine)).notes)
    assert "declares no check" in notes and "asks for <3.9" in notes
    assert "activation would run cuda.sh" in notes and "[providers.toy.env]" in notes


def test_versions_are_compared_as_pip_compares_them() -> None:
    pins = [
        "a==1.0",
        "B_c[x] == 2.0 # why",
        "d==3.*",
        "e>=1",
        "f==1; python_version < '3'",
        "g @ https://x/g.whl",
        "h==4",
    ]
    held = {"a": "1.0+cu126", "b-c": "2.1", "h": "4"}
    assert from_env.differing(pins, held) == ["B_c 2.1 instead of 2.0"]
    assert from_env.differing(["a==1.0+cpu", "z==1"], held) == ["a 1.0+cu126 instead of 1.0+cpu", "no z (1)"]


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_program_that_the_check_started_ends_with_the_call(mine: Path, tmp_path: Path) -> None:
    check = "import os, pathlib, time; pathlib.Path(os.environ['AT']).write_text(str(os.getpid())); time.sleep(99)"
    code = f"from scheduler.host import from_env; from_env.taken({spec(check=check)!r}, {str(mine)!r})"
    at = tmp_path / "pid"
    env = {**os.environ, "AT": str(at), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen([sys.executable, "-c", code], env=env) as call:
        while not at.exists() or not at.read_text():
            assert call.poll() is None
        call.kill()
        call.wait(30)
    pid = int(at.read_text())
    eventually(lambda: has_ended(pid), what="the check has ended")


def test_a_check_that_leaves_a_process_behind_is_not_waited_for_beyond_its_own_end(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nsleep 30 &\necho $! >> {tmp_path}/pids\n{mine}/bin/python "$@"\n')
    (tmp_path / "python").chmod(0o755)
    began_s = monotonic_s()
    try:
        with pytest.raises(SchedqError, match=r"its check does not run in(?s:.*)its last words"):
            from_env.taken(spec(check="raise SystemExit('its last words')"), str(tmp_path / "python"))
        assert monotonic_s() - began_s < 20
    finally:
        for pid in (tmp_path / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_the_folder_of_a_killed_check_goes_with_the_next_call_and_that_of_a_running_one_stays(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rooms := tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(rooms))
    check = "import os, pathlib, time; pathlib.Path(os.environ['AT']).touch(); time.sleep(99)"
    code = f"from scheduler.host import from_env; from_env.taken({spec(check=check)!r}, {str(mine)!r})"
    at = tmp_path / "checking"
    env = {**os.environ, "AT": str(at), "TMPDIR": str(rooms), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen([sys.executable, "-c", code], env=env) as call:
        try:
            eventually(at.exists, what="the check runs")
            from_env.taken(spec(), str(mine))
            assert len(os.listdir(rooms)) == 1
        finally:
            call.kill()
            call.wait(30)
    assert len(os.listdir(rooms)) == 1
    from_env.taken(spec(), str(mine))
    assert os.listdir(rooms) == []
