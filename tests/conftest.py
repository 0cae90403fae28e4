"""What tests of several tiers stand on: a queue's paths, its store, a folder that anybody can reach."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import Paths
from scheduler.host.machine.kfd import FIRST_PID_NAMESPACE
from scheduler.store.engine import Store

APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable)
"""What a process of a parallel run is started by: its own list of processes, so that no test sees another one's."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A parallel run gives each process whole files, slow ones first; it is none where they cannot be kept apart."""
    if not config.getoption("numprocesses", None):
        return
    if subprocess.run([*APART, "-c", ""], capture_output=True).returncode:
        print("one test after another: processes cannot be kept apart here (`unshare --pid` needs root)")
        config.option.numprocesses = 0
    elif config.option.dist == "no":
        config.option.dist, config.option.loadscopereorder = "loadfile", False
        if config.option.maxworkerrestart is None:  # xdist waits for ever for the file of a process that died
            config.option.maxworkerrestart = "0"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    for spec in specs:
        spec.python = shlex.join((*APART, str(Path(__file__).with_name("first_process.py")), sys.executable))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A process of a parallel run leaves out what a run of `-m host_pids` is for."""
    if hasattr(config, "workerinput"):
        left_out = [item for item in items if item.get_closest_marker("host_pids")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("host_pids") and os.readlink("/proc/self/ns/pid") != FIRST_PID_NAMESPACE:
        pytest.skip("this is a container with pids of its own, where a driver's list of processes means nothing")


def pytest_sessionstart() -> None:
    """What tests start hears signals that the tests themselves ignore, begun in a script's background or by `nohup`."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


@pytest.fixture
def store(paths: Paths) -> Iterator[Store]:
    made = Store(paths)
    yield made
    made.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged user can reach; pytest's own are private."""
    made = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    made.chmod(0o755)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)
