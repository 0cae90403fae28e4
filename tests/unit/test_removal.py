"""An environment is taken away in one step, never under somebody who runs in it, and nothing else is."""

from __future__ import annotations

import _ctypes
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.errors import Temporary
from scheduler.host import marker, removal

HASH = "ab" * 8


def made(root: Path, name: str = HASH, *, whole: bool = True) -> Path:
    """An environment of a hash as an installation leaves it, or as one that was killed does."""
    path = root / name
    (path / "lib").mkdir(parents=True)
    (path / "install.log").write_text("pip's words")
    (path / "lib" / "code.py").write_bytes(b"x" * 10_000)
    if whole:
        told = {"hash": name, "python": "/p", "version": "3.11.7", "stat": [0, 0], "packages": []}
        (path / marker.MARKER).write_text(json.dumps(told))
    return path


def test_environments_are_found_and_nothing_else_that_lies_there(tmp_path: Path) -> None:
    whole, half = made(tmp_path), made(tmp_path, "cd" * 8, whole=False)
    (tmp_path / "notes").mkdir()
    (tmp_path / ("ef" * 8)).mkdir()
    (tmp_path / ("01" * 8)).symlink_to(whole)
    assert removal.found([str(tmp_path), str(tmp_path / "nowhere")]) == [
        removal.Found(str(whole), HASH, True), removal.Found(str(half), "", True),
    ]  # fmt: skip


def test_what_is_removed_is_gone_and_only_that(tmp_path: Path) -> None:
    path, other = made(tmp_path), made(tmp_path, "cd" * 8)
    assert removal.bytes_of(str(path)) >= 10_000
    removal.remove(str(path), lambda: "")
    assert [each.name for each in tmp_path.iterdir()] == [other.name]


def test_hard_links_are_counted_once_and_not_if_they_stay_elsewhere(tmp_path: Path) -> None:
    path = made(tmp_path)
    before = removal.bytes_of(str(path))
    os.link(path / "lib" / "code.py", path / "lib" / "again.py")
    assert removal.bytes_of(str(path)) == before
    os.link(path / "lib" / "code.py", tmp_path / "outside.py")
    assert removal.bytes_of(str(path)) <= before - 10_000


def test_one_that_somebody_runs_in_meanwhile_is_as_it_was(tmp_path: Path) -> None:
    path = made(tmp_path)

    def used() -> str:
        assert not (path / marker.MARKER).exists(), "nothing may start in it any more while it is looked at"
        return "worker 3 runs"

    with pytest.raises(Temporary, match="worker 3 runs"):
        removal.remove(str(path), used)
    assert marker.read(str(path)) is not None


def test_one_that_is_being_installed_is_left_alone(tmp_path: Path) -> None:
    path = made(tmp_path, whole=False)
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Temporary, match=f"is being installed by process {os.getpid()}"):
            removal.remove(str(path), lambda: "")
    finally:
        os.close(lock)
    assert path.exists()


def test_a_process_of_whatever_queue_is_seen_to_run_in_it(tmp_path: Path) -> None:
    path = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    code = "print('up', flush=True); import sys; sys.stdin.read()"
    with subprocess.Popen(
        [path / "bin" / "python", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        assert removal.used_by(str(path)) == [child.pid]
        assert removal.used_by(str(tmp_path / "en")) == []
        child.communicate()
    assert removal.used_by(str(path)) == []


def running(argv: list[str], cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """A Python that has come up and lasts until its input ends."""
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    child = subprocess.Popen([*argv, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd)
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    return child


@pytest.mark.parametrize("word", ["alias/bin/python", "env/bin/python", "bin/python", "../env/bin/python", "linked"])
def test_who_runs_in_it_is_seen_by_whatever_path_it_was_started(tmp_path: Path, word: str) -> None:
    path = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    (tmp_path / "alias").symlink_to(path)
    (tmp_path / "linked").symlink_to(path / "bin" / "python")
    cwd = path if word.startswith(("bin", "..")) else tmp_path
    for given in (word, str(cwd / word)):
        with running([f"./{given}" if "/" not in given else given], cwd) as child:
            assert removal.used_by(str(path)) == removal.used_by(str(tmp_path / "alias")) == [child.pid]
            child.communicate()


def test_who_has_something_of_it_loaded_is_seen_whatever_it_calls_itself(tmp_path: Path) -> None:
    made(tmp_path / "envs")
    library = tmp_path / "envs" / HASH / "lib" / "title.so"
    shutil.copy(_ctypes.__file__, library)
    code = f"import ctypes, sys; ctypes.CDLL({str(library)!r}); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", f"exec(bytes.fromhex('{code.encode().hex()}'))"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        assert removal.used_by(str(tmp_path / "envs" / HASH)) == [child.pid]
        child.communicate()


def test_who_reads_its_log_does_not_run_in_it(tmp_path: Path) -> None:
    path = made(tmp_path)
    with subprocess.Popen(["tail", "-f", str(path / "install.log")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.read(5) == b"pip's"
        assert removal.used_by(str(path)) == []
        child.kill()


def test_one_that_is_to_be_built_again_is_waited_for_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = tmp_path / "env", list[str]()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True)
    with running([str(path / "bin" / "python")]) as child:
        monkeypatch.setattr(removal, "PATIENCE_S", 0.2)
        with pytest.raises(Temporary, match=f"process {child.pid} of it still runs; nothing was changed"):
            removal.wait_unused(str(path), said.append)
        assert len(said) == 1
        monkeypatch.setattr(removal, "PATIENCE_S", 60.0)

        def end(_: str) -> None:
            child.communicate()

        removal.wait_unused(str(path), end)


def test_one_whose_removal_was_killed_before_it_was_decided_is_whole_again(tmp_path: Path) -> None:
    path = made(tmp_path)
    code = (
        "import os, sys; from scheduler.host import removal; "
        "removal.remove(sys.argv[1], lambda: os.kill(os.getpid(), 9))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    assert subprocess.run([sys.executable, "-c", code, str(path)], env=env).returncode == -9
    assert marker.read(str(path)) is None
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        removal.sweep([str(tmp_path)])
        assert marker.read(str(path)) is None, "somebody is at work on it"
    finally:
        os.close(lock)
    removal.sweep([str(tmp_path)])
    assert removal.found([str(tmp_path)]) == [removal.Found(str(path), HASH, True)]


def test_a_folder_that_is_named_twice_is_looked_into_once(tmp_path: Path) -> None:
    path = made(tmp_path / "envs")
    (tmp_path / "again").symlink_to(tmp_path / "envs")
    roots = [str(tmp_path / "envs"), str(tmp_path / "again")]
    assert [each.path for each in removal.found(roots)] == [str(path)]


def test_what_a_killed_removal_left_is_swept(tmp_path: Path) -> None:
    made(tmp_path)
    code = (
        "import os, shutil, sys; from scheduler.host import removal; shutil.rmtree = lambda _: os._exit(9); "
        "removal.remove(sys.argv[1], lambda: '')"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / HASH)], env=env)
    assert done.returncode == 9
    assert [each.name[:6] for each in tmp_path.iterdir()] == [".gone-"]
    removal.sweep([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
