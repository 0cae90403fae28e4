"""A command of `schedq exec` in a real terminal: job control, Ctrl-C, Ctrl-Z, window size, line editing."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import psutil
import pytest
from driven import Queue, eventually

ECHOES = "import sys; print('tty', *[s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)], flush=True)"


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A shell with job control on a pseudo-terminal of its own, as a person has it."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.said = queue, ""
        self.ours, theirs = pty.openpty()
        self.resize(24, 80)
        self.shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**queue.env, "PS1": "$ ", "TERM": "dumb", "HISTFILE": ""}, cwd=queue.folder,
            preexec_fn=_own_terminal,
        )  # fmt: skip
        os.close(theirs)
        self.run = " ".join(queue.command("exec", "--ram", "0.1", "--"))

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def expect(self, pattern: str, within_s: float = 30.0) -> re.Match[str]:
        """Read until that is there; what stood before it is not looked at again."""
        until = time.monotonic() + within_s
        while True:
            found = re.search(pattern, self.said)
            if found:
                self.said = self.said[found.end() :]
                return found
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.ours], [], [], left)[0]:
                raise AssertionError(f"{pattern!r} is not in {self.said!r}")
            try:
                self.said += os.read(self.ours, 65536).decode(errors="replace").replace("\r\n", "\n")
            except OSError:
                raise AssertionError(f"the terminal is gone; {pattern!r} is not in {self.said!r}") from None

    def close(self) -> None:
        if self.ours >= 0:
            os.close(self.ours)
            self.ours = -1


@pytest.fixture
def terminal(queue: Queue) -> Iterator[Terminal]:
    assert queue("up").code == 0
    made = Terminal(queue)
    yield made
    made.close()
    made.shell.kill()
    made.shell.wait(10)


def test_a_command_has_the_terminal_and_ctrl_c_ends_it_alone(terminal: Terminal) -> None:
    loop = f'{sys.executable} -c "{ECHOES}; import time; time.sleep(60)"'
    terminal.type(f"{terminal.run} {loop}; echo code=$?\n")
    terminal.expect(r"tty True True True\n")
    terminal.type("\x03")
    assert terminal.expect(r"code=(\d+)\n")[1] == "130"
    terminal.type("echo still here\n")
    terminal.expect(r"\nstill here\n")
    eventually(lambda: terminal.queue.show(1)["state"] == "failed", what="the end of the job")


def test_ctrl_z_stops_it_and_fg_goes_on(terminal: Terminal) -> None:
    terminal.type(f"{terminal.run} {sys.executable} -c \"print('begun', flush=True); print('got', input())\"\n")
    terminal.expect(r"begun\n")
    terminal.type("\x1a")
    terminal.expect(r"Stopped")
    assert terminal.queue.show(1)["state"] == "running"
    terminal.type("jobs; echo asked\n")
    terminal.expect(r"Stopped[^\n]*exec[\s\S]*\nasked\n")
    terminal.type("fg; echo code=$?\n")
    terminal.type("a line\n")
    terminal.expect(r"got a line\n")
    assert terminal.expect(r"code=(\d+)\n")[1] == "0"


def test_ctrl_c_reaches_a_command_that_made_a_group_of_its_own(terminal: Terminal) -> None:
    looping = "trap 'echo got it; exit 9' INT; echo begun; while :; do sleep 0.1; done"
    terminal.type(f'{terminal.run} timeout 60 sh -c "{looping}"; echo code=$?\n')
    terminal.expect(r"begun\n")
    terminal.type("\x03")
    terminal.expect(r"got it\n")
    assert terminal.expect(r"code=(\d+)\n")[1] == "9"


def test_ctrl_z_stops_all_of_such_a_group_and_fg_lets_all_of_it_go_on(terminal: Terminal) -> None:
    # `exec`: a shell that is stopped between its vfork and the child's exec is not stopped but waits for that
    terminal.type(f"{terminal.run} timeout 60 sh -c 'echo begun $$; exec sleep 60'; echo code=$?\n")
    shell = int(terminal.expect(r"begun (\d+)\n")[1])
    terminal.type("\x1a")
    terminal.expect(r"Stopped")
    eventually(lambda: psutil.Process(shell).status() == psutil.STATUS_STOPPED, what="the inner process stopped")
    terminal.type("fg\n")
    eventually(lambda: psutil.Process(shell).status() != psutil.STATUS_STOPPED, what="the inner process going on")
    terminal.type("\x03")
    terminal.expect(r"\$ ")
    eventually(lambda: terminal.queue.show(1)["state"] == "failed", what="the end of the job")


def test_ctrl_z_stops_a_call_whose_command_waits(terminal: Terminal) -> None:
    assert terminal.queue("queue", "pause").code == 0
    terminal.type(f"{terminal.run} echo ran; echo code=$?\n")
    eventually(lambda: terminal.queue.status()["jobs"], what="the command queued")
    terminal.type("\x1a")
    terminal.expect(r"Stopped")
    terminal.type("fg\n")
    assert terminal.queue("queue", "resume").code == 0
    terminal.expect(r"\nran\n")


def test_a_terminal_that_goes_leaves_a_command_whose_call_was_told_to_outlive_it(terminal: Terminal) -> None:
    queue, gate = terminal.queue, terminal.queue.folder / "gate"
    waiting = f"sh -c 'echo begun > begun; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended > ended'"
    terminal.type(f"nohup {terminal.run} {waiting} &\n")
    eventually((queue.folder / "begun").exists, what="its start")
    terminal.close()
    terminal.shell.wait(30)
    words = {each: each.info["cmdline"] or [""] for each in psutil.process_iter(["cmdline"])}
    callers = [each for each, said in words.items() if "exec" in said and str(gate) in said[-1]]
    eventually(lambda: not any(each.is_running() and each.terminal() for each in callers), what="the terminal's end")
    assert callers and queue.show(1)["state"] == "running"
    gate.touch()
    eventually(lambda: queue.show(1)["state"] == "succeeded", what="its end")
    assert (queue.folder / "ended").exists()


def test_a_shell_inside_has_job_control_of_its_own(terminal: Terminal) -> None:
    terminal.type(f"{terminal.run} bash --norc --noprofile -i; echo code=$?\n")
    terminal.type("PS1='inner> '\n")
    terminal.expect(r"\ninner> ")
    terminal.type("sleep 60\n")
    time.sleep(0.5)
    terminal.type("\x1a")
    terminal.expect(r"Stopped")
    terminal.type("fg\n")
    terminal.expect(r"sleep 60\n")
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.expect(r"inner> ")
    terminal.type("exit 7\n")
    assert terminal.expect(r"code=(\d+)\n")[1] == "7"


def test_an_interactive_python_runs_in_it(terminal: Terminal) -> None:
    terminal.type(f"{terminal.run} {sys.executable} -q -i; echo code=$?\n")
    terminal.expect(r">>> ")
    terminal.type("6 * 7\n")
    terminal.expect(r"\n42\n")
    terminal.type("exit(4)\n")
    assert terminal.expect(r"code=(\d+)\n")[1] == "4"


def test_a_command_hears_that_its_window_changed(terminal: Terminal) -> None:
    code = (
        "import os, signal, time\n"
        "seen = lambda *_: print('now', os.get_terminal_size().columns, flush=True)\n"
        "signal.signal(signal.SIGWINCH, seen)\n"
        "seen()\n"
        "while os.get_terminal_size().columns != 133: time.sleep(0.05)\n"
    )
    (terminal.queue.folder / "window.py").write_text(code)
    terminal.type(f"{terminal.run} {sys.executable} window.py; echo code=$?\n")
    terminal.expect(r"now 80\n")
    terminal.resize(50, 133)
    terminal.expect(r"now 133\n")
    assert terminal.expect(r"code=(\d+)\n")[1] == "0"


@pytest.mark.skipif(not os.path.exists("/usr/bin/less"), reason="there is no less here")
def test_a_pager_reads_a_pipe_and_its_keys_from_the_terminal(terminal: Terminal) -> None:
    terminal.type(f"seq 500 | {terminal.run} env TERM=xterm less; echo code=$?\n")
    terminal.expect(r"\n20\s")
    terminal.type("q")
    assert terminal.expect(r"code=(\d+)\n")[1] == "0"


def test_a_terminal_that_goes_takes_its_command_with_it(terminal: Terminal) -> None:
    terminal.type(f"{terminal.run} sh -c 'trap \"\" HUP; echo begun; sleep 600'\n")
    terminal.expect(r"begun\n")
    queue = terminal.queue
    assert queue.show(1)["state"] == "running"
    terminal.close()
    job = eventually(lambda: (found := queue.show(1))["state"] != "running" and found, what="the end of the command")
    assert job["state"] == "cancelled" and "its caller ended" in job["outcome"]["text"], job  # type: ignore[index]
    eventually(lambda: not queue.status()["workers"], what="its lease back")


def test_a_command_in_the_background_does_not_take_the_terminal(terminal: Terminal) -> None:
    terminal.type(f"{terminal.run} sh -c 'echo begun; sleep 1; echo ended' & wait $!; echo code=$?\n")
    terminal.expect(r"begun\n")
    terminal.expect(r"ended\n")
    assert terminal.expect(r"code=(\d+)\n")[1] == "0"


def test_signals_that_only_the_caller_gets_are_passed_on(terminal: Terminal) -> None:
    queue = terminal.queue
    code = (
        "import signal, sys, time\n"
        "for n in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(n, lambda n, _: (print('got', n, flush=True), n == signal.SIGTERM and sys.exit(9)))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    process = queue.start("exec", "--ram", "0.1", "--", sys.executable, "-c", code)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        assert process.stdout.readline() == f"got {int(number)}\n"
    process.communicate(timeout=30)
    assert process.returncode == 9
