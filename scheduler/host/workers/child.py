"""The worker's process: how a keeper starts it, and what a command leaves behind."""

from __future__ import annotations

import os

from scheduler.host.workers.lean import PR_SET_PDEATHSIG, loads, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal


def start(argv: list[str], env: dict[str, str], cwd: str, umask: int) -> tuple[int, int]:
    """Fork and exec in a session of its own: its pid, and our end of the pipe that its output goes to."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    keeper = os.getpid()
    every = range(1, 32)
    signal.pthread_sigmask(signal.SIG_BLOCK, every)  # a TERM between fork and exec must not go to our handler
    pid = os.fork()
    if pid == 0:
        become(keeper, theirs, argv, env, cwd, umask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, every)
    os.close(theirs)
    os.set_blocking(ours, False)
    return pid, ours


def become(keeper: int, output: int, argv: list[str], env: dict[str, str], cwd: str, umask: int) -> None:
    """The child's side of the fork; ends in exec, or in a line of the log and exit 127 or 126."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(137)
        for number in range(1, 32):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with open("/proc/self/oom_score_adj", "r+") as file:
            adjusted = min(1000, int(file.read()) + 500)
            file.seek(0)
            file.write(str(adjusted))
        os.umask(umask)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(output, f"schedq: cannot run {argv[0]} in {cwd}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    except BaseException as error:
        os.write(output, f"schedq: cannot run {argv}: {error}\n".encode())
    os._exit(126)


def result_of(path: str) -> dict[str, Any]:
    """What a command left in its result file, if it is a JSON object of at most 1 MiB."""
    try:
        with open(path, "rb") as file:
            data = file.read((1 << 20) + 1)
        value = loads(data) if len(data) <= 1 << 20 else None
        return {"result": value} if isinstance(value, dict) else {"result_error": "not an object of at most 1 MiB"}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return {"result_error": str(error)}
