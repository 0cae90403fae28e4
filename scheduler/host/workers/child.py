"""The worker's process: how a keeper starts it, and what a command leaves behind."""

from __future__ import annotations

import os

from scheduler.host.workers import regular
from scheduler.host.workers.lean import PR_SET_PDEATHSIG, dumps, fault, loads, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

RESULT_MAX = 1 << 20


def start(argv: list[str], env: dict[str, str], cwd: str, umask: int) -> tuple[int, int]:
    """Fork and exec in a session of its own: its pid, and our end of the pipe that its output goes to."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    keeper, every = os.getpid(), range(1, 32)
    signal.pthread_sigmask(signal.SIG_BLOCK, every)  # a TERM between fork and exec must not go to our handler
    try:
        pid = os.fork()
        if pid == 0:
            become(keeper, theirs, argv, env, cwd, umask)
    except OSError:
        os.close(ours)
        raise
    finally:
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
        os.write(output, f"schedq: cannot run {argv[0]} in {cwd}: {error.strerror}\n".encode(errors="replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    except BaseException as error:
        os.write(output, f"schedq: cannot run {argv}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(126)


def reply_of(exit_code: int | None, result_path: str) -> bytes:
    """The reply that stands for a command, whatever it left: its exit code, and its result or what is wrong with it."""
    reply = {"oneshot": True, "exit_code": exit_code}
    try:
        return dumps({**reply, **_result(result_path)}, finite=True)
    except Exception as error:
        return dumps({**reply, "result_error": f"cannot be used: {error or type(error).__name__}"})


def _result(path: str) -> dict[str, Any]:
    try:
        data = regular.content(path, RESULT_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {"result_error": f"cannot be read: {error.strerror}"}
    if len(data) > RESULT_MAX:
        return {"result_error": f"is longer than {RESULT_MAX} bytes; what is large belongs into files beside it"}
    try:
        value = loads(data)
    except ValueError:
        return {"result_error": f"is not JSON: {fault(data)}"}
    return {"result": value} if isinstance(value, dict) else {"result_error": "is JSON and not an object"}
