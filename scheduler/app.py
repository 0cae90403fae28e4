"""The composition root: a scheduler process, from its lock to its last tick."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import signal
import sys
from collections.abc import Mapping

from scheduler import clock as clocks
from scheduler import locks, wake
from scheduler.config import Paths, Settings, envs, manifest_folders
from scheduler.errors import Displaced, SchedqError, TakenOver, Temporary
from scheduler.host.calls import Calls
from scheduler.host.local import LocalHost
from scheduler.host.notices import Notices, receivers
from scheduler.host.workers import tree
from scheduler.journal import Journal
from scheduler.loop import Loop
from scheduler.model.host import Asked, Nudged
from scheduler.perform import Identity
from scheduler.schedules import Schedules
from scheduler.store import identity, schedulers, spare
from scheduler.store.engine import Store
from scheduler.telling import Telling
from scheduler.view import Orders

log = logging.getLogger("schedq")

AGAIN = -1
"""What `run` answers where its process is to become the next scheduler: after `restart`, under a service manager."""


class SchedulerLock:
    """One scheduler a queue: a kernel lock on a directory, gone with its holder."""

    def __init__(self, paths: Paths) -> None:
        """Temporary if another scheduler has it; who only looks whether one does is waited out."""
        self._folder = paths.lock_scheduler
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        fd = locks.take(paths.lock_scheduler)
        if fd is None:
            raise Temporary(_taken(paths))
        self._fd = fd

    def stands(self) -> bool:
        """Whether what is locked is still the queue's: False once its folder was removed, or another is there."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._fd), os.stat(self._folder))
        return False

    def release(self) -> None:
        """Let the next scheduler in."""
        locks.let_go(self._fd)


def _taken(paths: Paths) -> str:
    if wake.scheduler_runs(paths):
        return f"a scheduler already runs for {paths.home}; `schedq status` shows it"
    pid = locks.holder(paths.lock_scheduler)
    who = f"process {pid} ({locks.command(pid)})" if pid else "somebody"
    return f"{who} kept the scheduler's lock of {paths.home} for {locks.PROBED_S:g} s; nothing was started; try again"


def run(
    paths: Paths, settings: Settings, *, version: str, auto_down_s: float | None = None, drain: bool = False,
    supervised: bool = False, environ: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """Be this queue's scheduler until told to go; the exit status, or AGAIN.

    `auto_down_s`: end by itself that long after the last job and worker (a scheduler that `run` started). `drain`: it
    only brings down what another left, is about to go from its first tick on and starts nothing. `supervised`: a
    service manager counts on this very process, so that `restart` must not put another in its place. `environ`: what
    calls of schedq that are due are made with, this process's own unless given.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # threads and programs have what stands here when they are started
    umask = os.umask(0o077)
    lock = SchedulerLock(paths)
    try:
        return _serve(
            paths, settings, version, auto_down_s, umask, lock, drain=drain, supervised=supervised, environ=environ
        )
    finally:
        lock.release()
        os.umask(umask)


def _serve(
    paths: Paths, settings: Settings, version: str, auto_down_s: float | None, umask: int, lock: SchedulerLock, *,
    drain: bool, supervised: bool, environ: Mapping[str, str] | None,
) -> int:  # fmt: skip
    from scheduler.store.engine import upgrade

    upgrade(paths)
    store = Store(paths)
    clock = clocks.SystemClock()
    host_id, pid = identity.host_id(), os.getpid()
    stat = tree.stat_of(pid)
    boot_id = tree.boot_id()
    with store.write() as tx:
        last = schedulers.last_of(tx, host_id)
        epoch = schedulers.begin(
            tx, pid=pid, started=stat.started if stat else None, boot_id=boot_id, host_id=host_id,
            version=version, at=clocks.now_at(),
        )  # fmt: skip
        queue_id = schedulers.queue_id(tx)
    spare.keep(paths)
    log.info("scheduler started: pid %d, epoch %d, schedq %s, %s", pid, epoch, version, paths.home)
    if last is not None and last[0] != boot_id:
        log.info("the machine was started anew since the last scheduler came up (%s): what ran then is lost", last[1])
    about = {
        "pid": pid,
        "epoch": epoch,
        "version": version,
        "since_at": clocks.now_at(),
        "home": paths.home,
        "manifests": manifest_folders(),
        "envs": envs(),
        "trouble": "",
        "supervised": supervised,
    }
    host = LocalHost(paths, settings, queue_id=queue_id, host_id=host_id, about=about, umask=umask, owned=lock.stands)
    orders = Orders(settings.seconds("overtake"), strict=settings.flag("strict"))
    journal = Journal(paths.home, settings.number("journal_max_mib"), clock, epoch, version)
    loop = Loop(store, host, clock, Identity(epoch, host_id, queue_id), orders, journal=journal)
    calls = Calls(paths, queue_id, lambda: host.emit(Nudged()), umask=umask, env=environ)
    loop.chores.schedules = Schedules(calls, clock, settings.seconds("schedule_limit"))
    notices = Notices(receivers(settings, paths), lambda: host.emit(Nudged()))
    loop.chores.telling = Telling(notices, clock, queue_id)
    signalled = _on_signals(host)
    if drain:
        host.emit(Asked("down"))
    try:
        host.open()
        loop.recover()
        while loop.tick(0.0 if host.idles else None):
            about["trouble"] = loop.trouble
            idle_s = clock.monotonic_s() - loop.last_activity
            idle = auto_down_s is not None and idle_s > auto_down_s
            if idle and host.idles:  # it was said, and the queue was looked at once more since
                log.info("nothing to do for %.0f s: this scheduler was started for one run and ends", idle_s)
                break
            host.idles = idle
    except TakenOver as error:
        log.warning("another scheduler has taken over: %s", error)
        return 0
    except Displaced as error:
        log.error("%s: this scheduler has nothing to serve any more and ends", error)
    except BaseException:
        log.exception("the scheduler ends on an error; workers go on, `schedq up` adopts them")
        raise
    finally:
        if not lock.stands():
            host.vacate()
            os._exit(Displaced.exit_code)  # closing the old database would remove the new one's -wal, by its name
        notices.close()
        host.close()
        journal.close()
        with contextlib.suppress(SchedqError), store.write() as tx:
            loop.chores.part(tx)
            schedulers.end(tx, epoch, clocks.now_at())
        store.close()
    log.info("scheduler ended (%s)", loop.leaving or "idle")
    return AGAIN if supervised and loop.leaving == "restart" and not signalled else 0


def _on_signals(host: LocalHost) -> list[int]:
    """TERM hands over (workers stay); a second `up` adopts. INT in the foreground goes down in order.

    The signals that came, as long as the process lives.
    """
    came: list[int] = []

    def leave(signum: int, _frame: object) -> None:
        came.append(signum)
        host.emit(Asked("restart" if signum == signal.SIGTERM else "down", now=False))

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return came


def log_to(paths: Paths, settings: Settings, *, foreground: bool) -> None:
    """Where the scheduler's own words go: the terminal in the foreground, else a bounded file."""
    handler: logging.Handler
    if foreground:
        handler = logging.StreamHandler(sys.stderr)
    else:
        bytes_a_file = int(settings.number("log_max_mib") * (1 << 20) / 4)
        handler = logging.handlers.RotatingFileHandler(paths.scheduler_log, maxBytes=bytes_a_file, backupCount=3)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
