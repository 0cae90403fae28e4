"""How a provider's worker is started, whoever asks for it: the scheduler for a job, or somebody who tries it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from scheduler.host.workers.orders import Launch


def launched(spec: Mapping[str, Any], python: str, env: dict[str, str], log_max_bytes: int) -> Launch:
    """The order to start a worker of `spec` in the environment that was built for it; its TMPDIR is made. OSError."""
    argv = [*spec["wrap"], python, os.path.join(spec["folder"], spec["script"] or ""), *spec["args"]]
    os.makedirs(env["TMPDIR"], mode=0o700, exist_ok=True)
    return Launch(
        argv=argv, env=env, cwd=spec["folder"], mode=spec["mode"], stop_grace_s=spec["stop_grace_s"],
        log_max_bytes=log_max_bytes,
    )  # fmt: skip
