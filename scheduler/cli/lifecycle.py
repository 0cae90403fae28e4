"""The scheduler as a process: start it detached, hand it over, bring it down. Waits on pidfds and answers."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

from scheduler import wake
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.clock import monotonic_s
from scheduler.config import Paths, settings
from scheduler.errors import SchedqError, Temporary
from scheduler.store import turnstile

START_S, ANSWER_S, SILENT_S = 60.0, 2.0, 30.0


def up(call: Call) -> int:
    """Start the scheduler; it answers when this returns."""
    paths = Paths()
    if call.flag("takeover"):
        take_over(paths)
    if call.flag("foreground"):
        return _serve(paths, foreground=True, auto_down=False)
    told = answering(paths)
    if told is None and wake.scheduler_runs(paths):
        told = _wait_for_answer(paths)
    if told is not None:
        say.note(f"already up: scheduler {told.get('pid')} serves {paths.home}")
        return 0
    told = start(paths)
    say.note(f"up: scheduler {told.get('pid')} serves {paths.home}")
    return 0


def serve(call: Call) -> int:
    """Be the background scheduler: the process that `start` spawned. Its faults go to the log whole."""
    os.environ["SCHEDQ_DEBUG"] = "1"
    return _serve(Paths(), foreground=False, auto_down=call.flag("auto_down"))


def _serve(paths: Paths, *, foreground: bool, auto_down: bool) -> int:
    from scheduler import app
    from scheduler.cli.about import VERSION

    set_up = settings()
    prepare(paths)
    app.log_to(paths, set_up, foreground=foreground)
    return app.run(paths, set_up, version=VERSION, auto_down_s=set_up.seconds("auto_down") if auto_down else None)


def prepare(paths: Paths) -> None:
    """Make the queue's folder. Temporary if that cannot be done."""
    try:
        os.makedirs(paths.home, mode=0o700, exist_ok=True)
    except OSError as error:
        raise Temporary(
            f"the queue's folder {paths.home} cannot be made: {error.strerror}; set SCHEDQ_HOME to one that can"
        ) from None


def answering(paths: Paths, timeout_s: float = ANSWER_S) -> dict[str, object] | None:
    """What the scheduler says of itself, None if none answers, or if its loop has not turned for SILENT_S."""
    line = wake.Line(paths)
    try:
        told = line.ask(timeout_s, op="ping")
    finally:
        line.close()
    return None if told is not None and float(str(told.get("quiet_s", 0.0))) > SILENT_S else told


def _wait_for_answer(paths: Paths) -> dict[str, object] | None:
    """The answer of a scheduler that holds the lock; Temporary if it stays silent, None if it has gone."""
    until = monotonic_s() + SILENT_S
    while wake.scheduler_runs(paths):
        told = answering(paths, 1.0)
        if told is not None:
            return told
        stopped = turnstile.stopped_scheduler(paths)
        if stopped:
            raise Temporary(f"{turnstile.about_stopped(stopped)} (running work goes on)")
        if monotonic_s() > until:
            raise Temporary(
                f"scheduler {lock_holder(paths) or '(pid unknown)'} holds the lock of {paths.home} and is silent; "
                "schedq up --takeover ends it and takes its place (running work goes on)"
            )
        time.sleep(0.1)
    return None


def lock_holder(paths: Paths) -> int:
    """The pid that holds the scheduler's lock, 0 if that cannot be told."""
    return turnstile.holder(paths.lock_scheduler) or 0


def take_over(paths: Paths) -> None:
    """End the scheduler that holds the lock and does not answer, by pidfd, after checking who it is."""
    if not wake.scheduler_runs(paths):
        return
    stopped = turnstile.stopped_scheduler(paths)
    if stopped is None and answering(paths) is not None:
        raise Temporary("the scheduler answers; there is nothing to take over (schedq restart hands over in order)")
    pid = lock_holder(paths)
    if not pid:
        raise Temporary(f"who holds the lock of {paths.home} is not in /proc/locks; end that process by hand")
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if lock_holder(paths) != pid:
            raise Temporary("the lock of the scheduler has changed hands meanwhile; try again")
        if not _is_scheduler_of(paths, pid):
            raise Temporary(
                f"process {pid} seems to hold the lock of {paths.home} and is not the scheduler that the queue knows; "
                "nothing was ended: look at it, and end it by hand"
            )
        import signal

        signal.pidfd_send_signal(fd, signal.SIGKILL)
        select.select([fd], [], [], START_S)
        why = "was stopped" if stopped else "did not answer"
        say.note(f"scheduler {pid} {why} and is ended now; its workers go on and are adopted")
    except PermissionError:
        raise Temporary(f"scheduler {pid} belongs to another user and cannot be ended from here") from None
    finally:
        os.close(fd)


def _is_scheduler_of(paths: Paths, pid: int) -> bool:
    """Whether a process is the queue's newest scheduler: by boot, pid and start time, never by pid alone."""
    from scheduler.host.workers import tree
    from scheduler.store import schedulers
    from scheduler.store.engine import Store

    with Store(paths).read() as tx:
        known = schedulers.latest(tx)
    return known is not None and known == (pid, known[1], tree.boot_id()) and tree.is_alive(pid, known[1])


def start(paths: Paths, *, auto_down: bool = False) -> dict[str, object]:
    """Spawn a detached scheduler and wait until it answers; what it says of itself."""
    prepare(paths)
    words = [sys.executable, "-m", "scheduler", "serve"]
    if auto_down:
        words.append("--auto-down")
    try:
        log = os.open(paths.scheduler_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Temporary(f"{paths.scheduler_log} cannot be written: {error.strerror}") from None
    try:
        before = os.fstat(log).st_size
        child = subprocess.Popen(
            words, cwd="/", env=_environment(paths), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(log)
    until = monotonic_s() + START_S
    while True:
        told = answering(paths, 1.0)
        if told is not None:
            child.returncode = child.poll() or 0  # it stays; nobody here waits for it
            return told
        code = child.poll()
        if code is not None:
            told = _wait_for_answer(paths) if wake.scheduler_runs(paths) else None
            if told is not None:
                return told
            raise _failed(paths, code, before)
        if monotonic_s() > until:
            raise Temporary(
                f"scheduler {child.pid} was started and has not answered in {START_S:.0f} s; see {paths.scheduler_log}"
            )
        time.sleep(0.02)


def _failed(paths: Paths, code: int, before: int) -> SchedqError:
    with open(paths.scheduler_log, "rb") as file:
        file.seek(before)
        last = file.read()[-4000:].decode(errors="replace").strip().splitlines()
    words = last[-1].removeprefix("schedq: ") if last else f"exit status {code}"
    error = SchedqError(f"the scheduler did not start: {words} (all of it: {paths.scheduler_log})")
    error.exit_code = code if code in (2, 3, 75) else 1
    return error


def _environment(paths: Paths) -> dict[str, str]:
    env = dict(os.environ, SCHEDQ_HOME=paths.home)
    env.pop("SCHEDQ_WORKER", None)
    for variable in ("SCHEDQ_MANIFESTS", "SCHEDQ_ENVS"):
        if env.get(variable):
            env[variable] = ":".join(os.path.abspath(each) for each in env[variable].split(":") if each)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in [os.path.abspath(each) for each in sys.path[1:]]:
        env["PYTHONPATH"] = root + (":" + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
    return env


def ensure(paths: Paths) -> None:
    """Start a scheduler if none runs, or if the one that does is stopped or silent: that one is taken over.

    One that was started so ends by itself after a time without work.
    """
    if wake.scheduler_runs(paths) and _answers_in_time(paths):
        return
    try:
        take_over(paths)
    except Temporary:
        if answering(paths) is None:
            raise
        return
    told = start(paths, auto_down=True)
    say.note(f"started scheduler {told.get('pid')}")


def _answers_in_time(paths: Paths) -> bool:
    """Whether the scheduler that holds the lock answers within SILENT_S; a stopped one will not."""
    stopped = turnstile.stopped_scheduler(paths)
    if stopped:
        say.note(f"scheduler {stopped} is stopped: taking over")
        return False
    if answering(paths) is not None:
        return True
    say.note(
        f"scheduler {lock_holder(paths) or '(pid unknown)'} does not answer yet: waiting up to"
        f" {SILENT_S:.0f} s for it, then taking over"
    )
    try:
        return _wait_for_answer(paths) is not None
    except Temporary:
        return False


def down(call: Call) -> int:
    """Stop the scheduler and every worker; waits for running jobs unless --now."""
    paths = Paths()
    now = call.flag("now")
    if not wake.scheduler_runs(paths):
        if not _left_behind(paths):
            _tidy(paths)
            say.note(f"no scheduler runs for {paths.home}")
            return 0
        say.note("the last scheduler left workers behind: starting one to bring them down")
        start(paths)
    if not now:
        _say_what_runs(paths)
    _leave(paths, "down", now=now)
    _tidy(paths)
    say.note("down")
    return 0


def restart(call: Call) -> int:
    """Hand over to a new scheduler of the installed version."""
    paths = Paths()
    if wake.scheduler_runs(paths):
        _leave(paths, "restart", now=False)
    told = start(paths)
    say.note(f"up: scheduler {told.get('pid')} serves {paths.home}")
    return 0


def _leave(paths: Paths, op: str, *, now: bool) -> None:
    stopped = turnstile.stopped_scheduler(paths)
    if stopped:
        raise Temporary(f"{turnstile.about_stopped(stopped)}, then schedq {op} again")
    line = wake.Line(paths)
    try:
        told = line.ask(SILENT_S, op=op, now=now)
    finally:
        line.close()
    if told is None:
        if not wake.scheduler_runs(paths):
            return
        raise Temporary(
            f"scheduler {lock_holder(paths) or '(unknown pid)'} does not answer; "
            f"schedq up --takeover ends it and takes its place, then schedq {op} again"
        )
    pid = told.get("pid")
    if isinstance(pid, int) and pid != os.getpid():
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            fd = -1
        if fd >= 0:
            try:
                select.select([fd], [], [])
            finally:
                os.close(fd)
    while wake.scheduler_runs(paths):
        time.sleep(0.02)


def _left_behind(paths: Paths) -> bool:
    from scheduler.store import peek

    return bool(peek.workers(paths))


def _tidy(paths: Paths) -> None:
    """Take away what a scheduler that was killed left: its address, dead workers' sockets, the database's log."""
    from contextlib import suppress

    from scheduler.host.workers.records import sweep
    from scheduler.store import content, folders, schedulers
    from scheduler.store.connection import open_writer
    from scheduler.store.engine import Store

    if not wake.take_away(paths):
        return
    with suppress(SchedqError, OSError):
        with Store(paths).read() as tx:
            queue_id = schedulers.queue_id(tx)
        sweep(paths, queue_id)
        with turnstile.Turnstile(paths).section():
            content.tidy(paths)
            open_writer(paths).close()  # the last one to close empties the log and removes it
    folders.leave(paths)


def _say_what_runs(paths: Paths) -> None:
    from scheduler.store import peek

    jobs = [job for job in peek.status(paths)["jobs"] if job["state"] == "running"]
    if jobs:
        named = ", ".join(f"{job['id']} ({job['slug']}, {say.plain(str(job['name']))})" for job in jobs[:8])
        more = f" and {len(jobs) - 8} more" if len(jobs) > 8 else ""
        say.note(f"waiting for {len(jobs)} running: {named}{more}; schedq down --now would not")


def install_first(slug: str) -> None:
    """Build a provider's environment in a process of its own, its progress on stderr."""
    words = [sys.executable, "-m", "scheduler", "install", slug]
    paths = Paths()
    child = subprocess.Popen(words, env=_environment(paths), stdin=subprocess.DEVNULL, stdout=2)
    try:
        code = child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
    if code:
        error = SchedqError(f"{slug} could not be installed (exit {code}); nothing was queued")
        error.exit_code = code if code in (2, 3, 75) else 1
        raise error
