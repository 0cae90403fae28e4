"""The scheduler as a process of its own: started detached, waited for, and what stood in the way if it did not come."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial

from scheduler import wake
from scheduler.cli import asking, children, say, takeover
from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import Refused, SchedqError, SchedulerDown, Temporary
from scheduler.host.workers import regular, tree

START_S = 60.0


def prepare(paths: Paths) -> None:
    """Make the queue's folder. Temporary if that cannot be done."""
    try:
        os.makedirs(paths.home, mode=0o700, exist_ok=True)
    except OSError as error:
        raise Temporary(
            f"the queue's folder {paths.home} cannot be made: {error.strerror}; set SCHEDQ_HOME to one that can"
        ) from None


def ensure(paths: Paths) -> asking.Told:
    """Start a scheduler if none runs, or if the one that does is stopped or silent: that one is taken over.

    What it says; it may be about to go (asking.leaves). One that was started so ends by itself after a time without
    work. SchedulerDown if none runs and this is part of a worker of the queue; no scheduler is taken over from there.
    """
    told = asking.heard(paths) if _room_around(paths) is not None else takeover.take_over(paths)
    if told is None:
        told = start(paths, auto_down=True)
        say.note(f"started scheduler {told.get('pid')}")
    return told


def succeed(paths: Paths, told: asking.Told | None = None) -> asking.Told:
    """A scheduler that stays: a new one, as soon as those that go have gone."""
    while told is None or asking.leaves(told):
        if told is not None:
            asking.outwait(paths, told)
        back = told is not None and told.get("supervised") and asking.leaves(told) == "restart"
        told = _returned(paths) if back else start(paths)
    return told


def _returned(paths: Paths) -> asking.Told:
    """What the next scheduler says, which a service manager's process becomes by itself. Temporary: it is silent."""
    until = monotonic_s() + START_S
    while monotonic_s() < until:
        told = asking.answering(paths, 1.0)
        if told is not None:
            return told
        time.sleep(asking.TURN_S)
    raise Temporary(
        f"the service of {paths.home} handed over and no scheduler has answered in {START_S:.0f} s since;"
        f" {paths.scheduler_log} says how far it came, and schedq service status whether it runs"
    )


def start(paths: Paths, *, auto_down: bool = False) -> asking.Told:
    """Spawn a detached scheduler and wait until it, or another that was faster, answers; what that says of itself.

    Temporary: it does not come up for now, in the words of what stands in the way. SchedulerDown: not from here.
    """
    refuse_inside(paths)
    prepare(paths)
    for again in (True, False):
        before = _log_size(paths)
        child = _spawned(paths, *(("--auto-down",) if auto_down else ()))
        told = _first_word(paths, child, leaving=False) or asking.heard(paths)
        if told is not None:
            return told
        if not again or child.returncode != Temporary.exit_code:
            break
    raise _failed(paths, child.returncode, before)


def start_draining(paths: Paths) -> None:
    """Spawn a scheduler that brings down what another left: it starts nothing, and ends by itself.

    When this returns it answers, or has come to its end, or another scheduler is there. Raises as `start` does.
    """
    refuse_inside(paths)
    prepare(paths)
    before = _log_size(paths)
    child = _spawned(paths, "--drain")
    if _first_word(paths, child, leaving=True) is None and child.returncode and not wake.scheduler_runs(paths):
        raise _failed(paths, child.returncode, before)


def refuse_inside(paths: Paths) -> None:
    """SchedulerDown, or Refused while one runs, where this process is part of a worker of the queue.

    What is started there, detached or not, is the worker's: it would end with it, and the worker not before it. In
    another queue's worker a scheduler is a process like all that this one starts.
    """
    claim = _room_around(paths)
    if claim is None:
        return
    name = f"worker {claim.get('worker')} ({claim.get('slug')})"
    where = f"from here: it would be part of {name} of its own queue, counted as that one's and ended with it"
    if wake.scheduler_runs(paths):
        raise Refused(f"the scheduler of {paths.home} cannot be replaced {where}; do it in a shell outside of {name}")
    raise SchedulerDown(
        f"no scheduler runs for {paths.home}, and none can be started {where}; in a shell outside of {name}: schedq up"
    )


def _room_around(paths: Paths) -> dict[str, str] | None:
    """The claim of the worker of this queue that this process is part of; None if it is part of none."""
    home = regular.inode(paths.home)
    rooms = tree.rooms_around(os.getpid()) if home is not None else []
    return next((each for each in rooms if regular.inode(_home_of(each)) == home), None)


def _home_of(claim: dict[str, str]) -> str:
    return os.path.dirname(os.path.dirname(claim["folder"]))


def _first_word(paths: Paths, child: subprocess.Popen[bytes], *, leaving: bool) -> asking.Told | None:
    """What the scheduler of the queue says once it answers, one that is about to go if `leaving`; None: child ended."""
    until = monotonic_s() + START_S
    while child.poll() is None:
        told = asking.answering(paths, 1.0)
        if told is not None and (leaving or not asking.leaves(told)):
            child.returncode = child.poll() or 0  # it stays; nobody here waits for it
            return told
        if monotonic_s() > until:
            raise Temporary(
                f"scheduler {child.pid} was started and has not answered in {START_S:.0f} s; {paths.scheduler_log}"
                " says how far it came; schedq up waits for it again"
            )
        time.sleep(asking.TURN_S)
    return None


def _spawned(paths: Paths, *flags: str) -> subprocess.Popen[bytes]:
    """The process. Signals that its parent holds back are not held back from it, nor from what it starts."""
    for other in tree.rooms_around(os.getpid())[:1]:
        name = f"worker {other.get('worker')} of the queue at {_home_of(other)}"
        say.note(f"note: a scheduler that is started here is part of {name}, and ends with it")
    words = children.argv("serve", *flags)
    try:
        log = os.open(paths.scheduler_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritten(paths, error) from None
    try:
        return subprocess.Popen(
            words, cwd="/", env=children.environment(paths), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, ()),
        )  # fmt: skip
    finally:
        os.close(log)


def _log_size(paths: Paths) -> int:
    try:
        return os.stat(paths.scheduler_log).st_size
    except OSError:
        return 0


def _unwritten(paths: Paths, error: OSError) -> SchedqError:
    """What it means that the log cannot be written: the disk, with its figures, or who may not."""
    from scheduler.store.connection import translated

    return translated(error, paths) or Temporary(f"{paths.scheduler_log} cannot be written: {error.strerror}")


def _failed(paths: Paths, code: int, before: int) -> SchedqError:
    """Why a scheduler ended before it answered: by its last words, by a signal, or by the disk that took no words."""
    if code < 0:
        return _killed(paths, -code)
    said = ""
    try:
        with open(paths.scheduler_log, "r+b", buffering=0) as file:
            file.seek(before)
            lines = file.read()[-4000:].decode(errors="replace").strip().splitlines()
            said = lines[-1].removeprefix("schedq: ") if lines else ""
            if not said:
                file.write(f"a scheduler ended with exit status {code} and left no word\n".encode())
    except OSError as error:
        ours = _unwritten(paths, error)
        return type(ours)(f"the scheduler did not start (exit status {code}), nor could it say why: {ours}")
    words = said or f"it ended with exit status {code} and left no word; schedq up --foreground shows more"
    failure = SchedqError(f"the scheduler did not start: {words} (all of it: {paths.scheduler_log})")
    failure.exit_code = code if code in (2, 3, 75) else 1
    return failure


def _killed(paths: Paths, number: int) -> SchedqError:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number not in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return SchedqError(
            f"the scheduler did not start: it was ended by {name}, a fault of the interpreter or of a library;"
            f" {paths.scheduler_log} has its last words; schedq up --foreground shows more"
        )
    who = "somebody, or the kernel for want of memory (dmesg tells)" if number == signal.SIGKILL else "somebody"
    return Temporary(f"the scheduler did not start: {who} ended it by {name} meanwhile; schedq up tries again")
