"""What the roster is told beside the seam's own values, and what it says beside them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """What a parked keeper is to start. `{socket}` in argv stands for the worker's socket; without it, and for a
    resident, `--socket PATH` is added at the end. `env` is complete and may hold secrets: it is never written down.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    mode: str = "resident"
    log_max_bytes: int = 64 << 20
    stop_grace_s: float = 10.0


@dataclass(frozen=True)
class Stored:
    """An attempt's end lies in `reply_path`. `no_reply`: the keeper wrote it because the worker did not answer;
    then `exit_code` is the worker's, if it had ended by then. `exiting`: the worker said that it leaves. `untaken`: it
    ended before it began with the request. `why`: what its keeper was stopped for, "" = it was not.
    """

    worker_id: int
    job_id: int
    attempt: int
    reply_path: str
    exit_code: int | None = None
    no_reply: bool = False
    error: str = ""
    exiting: bool = False
    untaken: bool = False
    why: str = ""
