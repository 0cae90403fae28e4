"""The environments of commands that have no caller: each in a file of its own until its command has ended.

SCHEDQ_HOME/environments/VARIANT, 0600: whatever secrets a shell had when it called are in no database, log, journal or
backup. Standard library only: the fast paths write them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os

from scheduler.clock import now_s
from scheduler.config import Paths
from scheduler.errors import Refused, SchedqError
from scheduler.host.workers import regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MOST_BYTES = 3 << 20
"""What a stored environment and its command may be together: an order to a keeper is no longer."""

UNQUEUED_S = 600.0
"""How long an environment may lie there before its command is in the queue: the submitter was killed in between."""


def folder(paths: Paths) -> str:
    """Where the environments lie."""
    return os.path.join(paths.home, "environments")


def keep(paths: Paths, variant: str, env: dict[str, str], command: Sequence[str] = ()) -> None:
    """Store the environment of a command that is about to be queued, durably. Refused if an order could not carry both.

    Bytes of both are as they are written in an order: as JSON, in ASCII.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    data, words = json.dumps({"env": env, "umask": umask}).encode(), len(json.dumps(list(command)))
    if len(data) + words > MOST_BYTES:
        raise Refused(
            f"the environment is {len(data)} bytes and the command {words}, and together they can be at most"
            f" {MOST_BYTES}; unset what is large, or put long arguments into a file; nothing was queued"
        )
    os.makedirs(folder(paths), mode=0o700, exist_ok=True)
    regular.put(os.path.join(folder(paths), variant), data, sync=True)


def stored(paths: Paths, variant: str) -> dict[str, Any]:
    """What was stored for a command: `env` and `umask`. SchedqError: it is not there; OSError: it cannot be read."""
    path = os.path.join(folder(paths), variant)
    try:
        found = json.loads(regular.content(path, MOST_BYTES))
        return {"env": dict(found["env"]), "umask": int(found["umask"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.EINVAL):
            raise
        raise SchedqError(
            f"the environment that it was submitted with ({path}) is not there any more ({error}); submit it again"
        ) from None


def forget(paths: Paths, variant: str) -> None:
    """A command has ended: its environment is not kept."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder(paths), variant))


def keep_only(paths: Paths, variants: set[str]) -> None:
    """Take away every environment but these commands'. One that is new may be of a command that is not queued yet."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder(paths)):
            path = os.path.join(folder(paths), name)
            if name not in variants and now_s() - os.stat(path).st_mtime > UNQUEUED_S:
                forget(paths, name)
