"""Calls of the scheduler are real processes: their ends, their last words, their limits, and what outlives whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from driven import eventually

from scheduler.config import Paths
from scheduler.host import calls
from scheduler.host.calls import Calls
from scheduler.host.workers import tree
from scheduler.model.call import Due, Ended


def made(tmp_path: Path, wake: Callable[[], None] = lambda: None) -> Calls:
    return Calls(Paths(str(tmp_path / "home")), "q1", wake, words=(sys.executable, "-c"))


def due(tmp_path: Path, code: str, run_id: int = 1, left_s: float = 60.0, **environment: str) -> Due:
    return Due(run_id, (code,), str(tmp_path), environment, left_s)


def ends(caller: Calls, count: int = 1) -> list[Ended]:
    found: list[Ended] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        found += caller.over()
        time.sleep(0.01)
    return found


def test_a_call_has_its_folder_its_environment_and_its_end_is_told(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['COLOUR'], os.environ['SCHEDQ_HOME']); sys.exit(3)"
    caller = made(tmp_path)
    caller.make(due(tmp_path, code, COLOUR="red"))
    (end,) = ends(caller)
    assert (end.exit_code, end.text, end.started) == (3, f"{tmp_path} red {tmp_path / 'home'}", True)
    caller.forget(1)
    assert list((tmp_path / "home" / "runs").iterdir()) == []


def test_calls_are_made_one_after_the_other_and_each_end_wakes(tmp_path: Path) -> None:
    woken: list[int] = []
    caller = made(tmp_path, lambda: woken.append(1))
    code = "import pathlib, time; p = pathlib.Path('busy'); print(p.exists()); p.touch(); time.sleep(0.2); p.unlink()"
    for run_id in (1, 2, 3):
        caller.make(due(tmp_path, code, run_id))
    assert [(end.run_id, end.text) for end in ends(caller, 3)] == [(1, "False"), (2, "False"), (3, "False")]
    assert len(woken) == 3


def test_only_the_end_of_what_a_call_prints_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = made(tmp_path)
    caller.make(due(tmp_path, "print('x' * 100_000, 'the end')"))
    (end,) = ends(caller)
    assert end.text.endswith("the end") and len(end.text) <= calls.KEPT_BYTES


def test_a_call_that_hangs_is_ended_with_all_of_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LOOK_S", 0.05)
    monkeypatch.setattr(calls, "GRACE_S", 0.2)
    code = (
        "import signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(subprocess.Popen(['sleep', '1000']).pid, flush=True); time.sleep(1000)"
    )
    caller = made(tmp_path)
    caller.make(due(tmp_path, code, left_s=0.5))
    (end,) = ends(caller)
    why, below = end.text.split("\n")
    assert end.exit_code == -signal.SIGKILL and "longer than the setting schedule_limit allows" in why
    assert not os.path.exists(f"/proc/{below}") or "Z" in Path(f"/proc/{below}/stat").read_text().split()[2]


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    caller = made(tmp_path)
    caller.make(Due(1, ("print()",), str(tmp_path / "gone"), {}, 60.0))
    (end,) = ends(caller)
    assert end.exit_code is None and not end.started
    assert end.text == f"it was not started: the folder {tmp_path / 'gone'}: No such file or directory"


def test_a_call_of_an_earlier_scheduler_is_watched_to_its_end(tmp_path: Path) -> None:
    first = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1); print(7)'],"
        " start_new_session=True, stdout=open(sys.argv[1], 'a'))"
    )
    runs = tmp_path / "home" / "runs"
    runs.mkdir(parents=True)
    log = runs / "5.log"
    subprocess.run([sys.executable, "-c", first, str(log)], env={**os.environ, "SCHEDQ_RUN": "q1:5"}, check=True)
    caller = made(tmp_path)
    caller.attend(5, 60.0)
    (end,) = ends(caller)
    assert (end.exit_code, end.text) == (None, f"{calls.UNSEEN}\n7")


def test_a_call_whose_process_is_gone_was_cut_off(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    runs = tmp_path / "home" / "runs"
    runs.mkdir(parents=True)
    (runs / "5.log").write_text("half of it")
    (runs / "5.pid").write_text(f"{tree.boot_id()}\n{gone.pid}\n")
    caller = made(tmp_path)
    caller.attend(5, 60.0)
    (end,) = ends(caller)
    assert (end.exit_code, end.text, end.started) == (None, f"{calls.CUT_OFF}\nhalf of it", True)
    caller.forget(5)
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize(("boot_id", "started"), [(tree.boot_id(), False), ("an earlier one", True), ("", True)])
def test_a_call_whose_scheduler_died_before_it_began_was_never_started_as_far_as_that_is_sure(
    tmp_path: Path, boot_id: str, started: bool
) -> None:
    runs = tmp_path / "home" / "runs"
    runs.mkdir(parents=True)
    (runs / "5.log").touch()
    (runs / "5.pid").write_text(f"{boot_id}\n".lstrip())
    caller = made(tmp_path)
    caller.attend(5, 60.0)
    (end,) = ends(caller)
    assert (end.exit_code, end.started) == (None, started)


def test_a_call_that_left_no_file_was_never_started(tmp_path: Path) -> None:
    caller = made(tmp_path)
    caller.attend(5, 60.0)
    (end,) = ends(caller)
    assert not end.started and end.text == "it was not started: its scheduler ended first"


def test_a_call_that_ended_but_whose_end_nobody_wrote_down_was_started(tmp_path: Path) -> None:
    caller = made(tmp_path)
    caller.make(due(tmp_path, "print(7)"))
    assert ends(caller)[0].exit_code == 0
    later = made(tmp_path)
    later.attend(1, 60.0)
    (end,) = ends(later)
    assert (end.exit_code, end.text, end.started) == (0, "7", True)


def test_a_call_that_ended_while_no_scheduler_ran_has_its_exit_code(tmp_path: Path) -> None:
    code = (
        "import sys; from scheduler.host.calls import Calls; from scheduler.model.call import Due;"
        "from scheduler.config import Paths; import os, time;"
        "c = Calls(Paths(sys.argv[1]), 'q1', lambda: None, words=(sys.executable, '-c'));"
        "c.make(Due(1, ('import time; time.sleep(0.5); print(7); raise SystemExit(3)',), sys.argv[1], {}, 60.0));"
        "path = sys.argv[1] + '/runs/1.pid'\n"
        "while not os.path.exists(path) or len(open(path).read().split()) < 2: time.sleep(0.01)\nos._exit(0)"
    )
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-c", code, str(home)], check=True)
    eventually(lambda: (home / "runs" / "1.code").exists())
    caller = made(tmp_path)
    caller.attend(1, 60.0)
    (end,) = ends(caller)
    assert (end.exit_code, end.text, end.started) == (3, "7", True)
    caller.forget(1)
    assert list((home / "runs").iterdir()) == []


def test_a_call_that_ended_while_its_scheduler_became_the_next_one_has_its_exit_code(tmp_path: Path) -> None:
    runs = tmp_path / "home" / "runs"
    runs.mkdir(parents=True)
    (runs / "5.log").write_text("done")
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", "raise SystemExit(3)"], os.environ)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    (runs / "5.pid").write_text(f"{tree.boot_id()}\n{child}\n")
    caller = made(tmp_path)
    caller.attend(5, 60.0)
    (end,) = ends(caller)
    assert (end.exit_code, end.text) == (3, "done")
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


def test_a_call_that_fails_by_a_fault_of_ours_has_an_end_and_the_next_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise MemoryError

    caller = made(tmp_path)
    monkeypatch.setattr(caller, "_told", full)
    caller.make(due(tmp_path, "print(7)"))
    (end,) = ends(caller)
    assert (end.exit_code, end.text, end.started) == (None, "a fault of schedq: MemoryError: ", True)
    monkeypatch.undo()
    caller.make(due(tmp_path, "print(8)", 2))
    assert ends(caller)[0].text == "8"


def test_while_no_thread_can_be_had_a_call_waits_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    caller = made(tmp_path)
    monkeypatch.setattr("threading.Thread.start", none)
    caller.make(due(tmp_path, "print(7)"))
    assert caller.over() == []
    monkeypatch.undo()
    assert ends(caller)[0].text == "7"


def test_a_look_at_the_processes_that_fails_does_not_cut_a_call_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "home" / "runs"
    runs.mkdir(parents=True)
    (runs / "5.log").touch()
    code = "import time; time.sleep(1)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, env={**os.environ, "SCHEDQ_RUN": "q1:5"}
    )
    everyone, looks = calls.tree.everyone, []  # type: ignore[attr-defined]

    def full() -> object:
        looks.append(1)
        if len(looks) == 1:
            raise OSError(24, "Too many open files")
        return everyone()

    monkeypatch.setattr(calls, "LOOK_S", 0.01)
    monkeypatch.setattr("scheduler.host.workers.tree.everyone", full)
    caller = made(tmp_path)
    caller.attend(5, 60.0)
    (end,) = ends(caller)
    assert len(looks) == 2 and end.exit_code == 0
    child.returncode = 0  # it was waited for
