"""Commands on this machine: what their keepers are told when it is their turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.host import attempt as attempts
from scheduler.host import environs
from scheduler.host.workers.devices import visible
from scheduler.host.workers.environment import THREADS
from scheduler.host.workers.orders import Launch
from scheduler.host.workers.roster import Roster
from scheduler.model.command import EXEC, GRACE_S, is_kept_by_caller, shape_of
from scheduler.model.host import Task
from scheduler.model.machine import Pool
from scheduler.model.outcome import Outcome


def spec_of(variant: str) -> dict[str, Any] | None:
    """A command as a catalog's entry has it, as far as its end is judged by that. None if it is none."""
    shape = shape_of(variant)
    if shape is None:
        return None
    return {
        **shape.spec(), "variant": variant, "mode": "oneshot", "command": [], "outputs": [], "environment": None,
        "revision": "", "threads": shape.threads, "stop_grace_s": GRACE_S,
    }  # fmt: skip


def given_env(variant: str, pools: Sequence[Pool], task: Task) -> dict[str, str]:
    """What is set in a command's environment, over what its caller has: its devices, its threads, whose job it is."""
    shape = shape_of(variant)
    threads = shape.threads if shape is not None else 1
    env = {**visible(pools), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **dict.fromkeys(THREADS, str(threads))}
    env["OMP_WAIT_POLICY"] = "PASSIVE"  # E19
    env["SCHEDQ_JOB"] = str(task.job_id)
    return env


class Commands:
    """The commands of one queue: begun by their keepers, in whatever order they are admitted."""

    def __init__(
        self, paths: Paths, roster: Roster, given: Callable[[str], list[Pool]],
        undone: Callable[[Task, Outcome], None], log_max_bytes: int = 64 << 20,
    ) -> None:  # fmt: skip
        """`given` are the pools that a worker's devices are of; `undone` ends an attempt that could not begin."""
        self.paths, self._roster, self._given, self._undone = paths, roster, given, undone
        self._log_max = log_max_bytes
        self._running: dict[int, str] = {}

    def go(self, worker_id: int) -> None:
        """Let its keeper be ready; what it runs comes with the order to begin."""
        self._roster.go(worker_id, Launch([], {}, "/", "oneshot", self._log_max, GRACE_S))

    def send(self, task: Task, device: str) -> None:
        """Let its keeper begin: its caller's command, or with the stored environment the one that was submitted."""
        place = attempts.desk(self.paths, task.job_id, task.attempt, "")
        self.adopted(task)
        more: dict[str, Any] = {}
        argv: list[str] = []
        try:
            pools = self._given(device)
        except SchedqError as error:  # its driver may have failed for a moment
            self._undone(task, Outcome("interrupted", str(error), unsent=True))
            return
        try:
            env = given_env(task.variant, pools, task)
            os.makedirs(place.folder, mode=0o700, exist_ok=True)
            if not is_kept_by_caller(task.slug, task.variant):
                kept = environs.stored(self.paths, task.variant)
                for each in (place.out_dir, place.work_dir):
                    os.makedirs(each, mode=0o700, exist_ok=True)
                env = {**kept["env"], **env, "SCHEDQ_OUT": place.out_dir, "SCHEDQ_WORK": place.work_dir}
                argv, more = list(task.params["command"]), {"umask": kept["umask"]}
        except OSError as error:
            text = f"the attempt's folders could not be made, or its environment not read: {attempts.told(error)}"
            self._undone(task, attempts.outside(text))
            return
        except (SchedqError, KeyError) as error:
            self._undone(task, Outcome("input_changed", str(error)))
            return
        self._roster.send(
            task.worker_id, task.job_id, task.attempt, {}, reply_path=place.reply_path,
            log_path=place.log_path if argv else "", log_max=self._log_max, argv=argv,
            cwd=str(task.params.get("cwd") or "/"), env=env,
            devices=[pool.seen_as or pool.id for pool in pools], **more,
        )  # fmt: skip

    def adopted(self, task: Task) -> None:
        """A command runs, begun here or by an earlier scheduler: what is stored for it goes when it has ended."""
        if task.slug == EXEC:
            self._running[task.job_id] = task.variant

    def done(self, job_id: int, state: str) -> None:
        """A command has ended, or waits again: of one that has ended nothing is kept."""
        variant = self._running.pop(job_id, "")
        if variant and state not in ("queued", "held"):
            environs.forget(self.paths, variant)
