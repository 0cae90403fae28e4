"""README's first command, as it is: a plain install in a fresh environment, run from another folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from driven import Queue, eventually, words_of
from providers import ENVS, ROOT

SLOW = """
slug = "slow"
mode = "oneshot"
[gpu]
policy = "none"
[host]
ram_budget_gb = 0.1
[worker]
command = ["{python}", "-c", ""]
[env]
check = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', '%s']); time.sleep(99)"
"""
"""A provider whose installation takes long, in a program that starts another."""

INNER = "import time; time.sleep(98)"


def installing(queue: Queue) -> bool:
    """Whether the innermost program of the installation runs."""
    return any(INNER in words_of(process) for process in queue.processes())


@pytest.mark.parametrize("verb", ["run", "install"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_an_installation_leaves_nothing_of_it_running(queue: Queue, verb: str, signum: int) -> None:
    folder = queue.manifests / "slow"
    folder.mkdir()
    (folder / "provider.toml").write_text(SLOW % INNER)
    call = queue.start(verb, "slow", *([queue.input()] if verb == "run" else []))
    eventually(lambda: installing(queue), what="it is being installed")
    call.send_signal(signum)
    _out, err = call.communicate(timeout=30)
    assert call.returncode == 128 + signum and signal.Signals(signum).name in err, err
    assert "Traceback" not in err and ("nothing was queued" in err) == (verb == "run"), err
    assert queue.processes() == []


def test_an_installation_ends_with_the_run_that_was_killed(queue: Queue) -> None:
    folder = queue.manifests / "slow"
    folder.mkdir()
    (folder / "provider.toml").write_text(SLOW % INNER)
    call = queue.start("run", "slow", queue.input())
    eventually(lambda: installing(queue), what="it is being installed")
    call.kill()
    call.wait(30)
    eventually(lambda: queue.processes() == [], what="nothing of it is left")
    call.communicate(timeout=30)


@pytest.mark.network
def test_a_plain_install_runs_the_main_job_from_another_folder(tmp_path: Path) -> None:
    bin_folder = tmp_path / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [bin_folder / "pip", "install", "-q", str(ROOT)], cwd=elsewhere, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    env = {
        "PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(tmp_path), "SCHEDQ_ENVS": ENVS, "LANG": "C.UTF-8",
        "SCHEDQ_HOME": str(tmp_path / "home"), "SCHEDQ_RESERVE_HOST_GIB": "0.25", "SCHEDQ_DISK_RESERVE_GIB": "0.01",
    }  # fmt: skip

    def schedq(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [bin_folder / "schedq", *args], cwd=elsewhere, env=env, capture_output=True, text=True, timeout=300
        )

    try:
        done = schedq("run", "capiti", "--example")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["results"][0]["p_in_set"] > 0.5
        assert schedq("db", "check").returncode == 0
    finally:
        assert schedq("down").returncode == 0


@pytest.mark.network
def test_migrations_and_manifests_ship_inside_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)],
        check=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"scheduler", "schedq"}
    assert "scheduler/migrations/env.py" in names
    for slug in ("capiti", "propka", "pyrodigal"):
        assert f"scheduler/manifests/{slug}/provider.toml" in names
