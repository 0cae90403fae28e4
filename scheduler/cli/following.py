"""`log --follow`: what a job's workers write, from attempt to attempt, until it ends; and why it waits meanwhile."""

from __future__ import annotations

import os

from scheduler import wake
from scheduler.absence import Absence
from scheduler.cli import reading, say
from scheduler.client import ENDED, ending
from scheduler.config import Paths
from scheduler.store import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLLOW_S, TURNS = 0.3, 4
"""How often a log is looked at, and how often it is before the job is."""


class _Followed:
    """One job's log as far as it was printed. `wanted`: one attempt alone."""

    def __init__(self, paths: Paths, job_id: int, wanted: int | None) -> None:
        self._paths, self._job_id, self._wanted = paths, job_id, wanted
        self._attempt = self._began = 0
        self._log: reading.Log | None = None
        self._said = ""

    def _path(self, attempt: int) -> str:
        return os.path.join(self._paths.attempt(self._job_id, attempt), "log")

    def pour(self) -> None:
        """Print what was written since."""
        self._log = self._log or reading.Log(self._path(self._attempt))
        self._log.pour()

    def close(self) -> None:
        """Let go of the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def move_to(self, newest: int) -> None:
        """Print the rest of the attempt that is over, and of each after it, up to this one."""
        while self._attempt != newest:
            if self._attempt:
                self.pour()
            self.close()
            self._attempt = self._attempt + 1 if self._attempt else newest
            if self._attempt > 1:
                say.note(f"-- attempt {self._attempt}")

    def over(self, job: dict[str, Any]) -> bool:
        """Whether no more will be written: the job has ended, or tries again and one attempt alone was asked for."""
        if job["state"] in ENDED or self._wanted is None:
            return job["state"] in ENDED
        return int(job["attempt"]) > self._wanted or job["state"] not in ("admitted", "running")

    def tell(self, job: dict[str, Any]) -> None:
        """That it waits, and why, as often as that changes; and what a worker wrote that was started in vain."""
        if job["state"] in ("admitted", "running"):
            self._said = ""
            return
        if not os.path.exists(self._path(self._attempt)) and self._began != self._attempt:
            self._began = self._attempt
            reading.pour_start(self._paths, job, self._attempt)
        ruling = (job.get("reason") or {}).get("ruling") or ""
        if job["state"] not in ENDED and ruling and ruling != self._said:
            self._said = ruling
            say.note(f"-- job {self._job_id} waits: {reading.why(job, self._paths) or ruling}")


def follow(paths: Paths, job_id: int, wanted: int | None) -> int:
    """Print a job's log until the job has ended, and say then how. SchedulerDown if nobody runs who could end it."""
    line, absence = wake.Line(paths), Absence(paths, "follow its log again")
    followed = _Followed(paths, job_id, wanted)
    try:
        line.say(op="watch", jobs=[job_id])
        while True:
            job = peek.job(paths, job_id)
            over = followed.over(job)
            followed.move_to(wanted or int(job["attempt"]))
            for _ in range(1 if over else TURNS):
                followed.pour()
                if over or (line.hear(FOLLOW_S) or {}).get("state") in ENDED:
                    break
            followed.tell(job)
            if over:
                if job["state"] in ENDED:
                    say.note(f"-- job {job_id} {'succeeded' if job['state'] == 'succeeded' else ending(job)}")
                return 0
            absence.check([job_id])
    finally:
        followed.close()
        line.close()
