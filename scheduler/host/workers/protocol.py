"""What scheduler, keeper and worker say to each other: numbers, limits, and the two languages.

Both are one JSON object per line over a unix stream socket. Standard library only and light: keepers import it.

**Scheduler and keeper** (`run/<id>.k`, many connections, the scheduler's is held). The keeper speaks first:
`{"hello": "schedq-keeper", "protocol": N, ...its status}`; the other side answers `{"op": "hello", "protocol": N}`
with a number that both speak. Orders are answered by `{"re": op, "ok": bool, "error"?, ...}`:

- `go` argv, env, cwd, socket, mode, umask, log_max, stop_grace_s: spend the claim (parked keepers only)
- `send` job, attempt, reply_path, log_path, log_max, length: that many bytes of request follow. A oneshot keeper
  gets argv, cwd, env (added to go's) and result_path instead
- `charge` charges: show these in argv, GiB by pool; answered with them once they can be read there
- `attach` job, attempt: `is` = running | done (`how`: what `stored` says) | unknown
- `status`: state, job, attempt, leader, exit code · `stop` grace_s, why

Events, to every connection that said hello: `started`, `answered` (leader_pid, leader_started, protocol, versions,
device), `life`, `progress`, `stored` (job, attempt, reply_path, no_reply, error, exiting, exit_code), `dropped` (a
request that did not arrive whole), `waiting` (job, attempt, error:
an end that cannot be stored yet), `leader_exit` (exit_code).

**Keeper and worker** (`run/<id>.w`, a connection per request): `{"op": "ping"}`, `{"op": "predict", ...}`,
`{"op": "shutdown"}`; lines with an `event` and no `ok` may come before the reply, `taken` first from a worker
whose ping says `says_taken`: of one that ends before that nothing was asked. The reply: `{"ok": true, "result":
{...}}`, as legacy workers say it `{"ok": true, ...}`, or `{"ok": false, "error", "reason"}`. A worker
whose ping names no protocol is a legacy one and gets the request itself.
"""

from __future__ import annotations

PROTOCOL = 1
SPEAKS = (PROTOCOL, PROTOCOL - 1)
"""Ours and the one before."""

LINE_LIMIT = 64 << 20
"""Bytes of a request or reply, at most."""

ORDER_LIMIT = 4 << 20
"""Bytes of an order to a keeper, at most: an environment fits many times."""

CHUNK = 64 << 10
"""Bytes that are read at once, and that a line is held in memory for; longer ones go to their file as they come."""

HELD = 256 << 10
"""Bytes that may wait for a slow reader before its source is read no more."""

PARKED_S = 60.0
"""How long a parked keeper waits for somebody to come."""

CLAIM = "--schedq-keeper"
"""The word in argv after which a keeper's claim stands, as `key=value` words."""

TOLD = "its keeper was told to terminate"
"""Why a keeper stopped that got a SIGTERM: a shutdown, the end of a container or session, a person."""

MARK = "SCHEDQ_WORKER"
"""The variable that marks every process of a worker: `<queue_id>:<worker_id>`."""


def agreed(theirs: object) -> int | None:
    """The protocol number to speak with a side whose own is `theirs`; None = there is none."""
    return theirs if isinstance(theirs, int) and theirs in SPEAKS else None


def claim_of(argv: list[str]) -> dict[str, str] | None:
    """What a process claims if it is a keeper: `worker`, `slug`, `variant`, `queue`, `control`...; None if it is not.

    Words that may come more than once (`lease`, `charge`) are joined by spaces; `folder` is the last word.
    """
    if CLAIM not in argv:
        return None
    words = argv[argv.index(CLAIM) + 1 :]
    claim: dict[str, str] = {"folder": words[-1]} if words else {}
    for word in words[:-1]:
        key, equals, value = word.partition("=")
        if equals:
            value = value.rstrip() if key == "charge" else value  # it has room for another number
            claim[key] = f"{claim[key]} {value}" if key in claim else value
    return claim


def introduced(answer: dict[str, object]) -> dict[str, object]:
    """Of a worker's answer to its first ping, what others may hear, whatever shape it had."""
    number, versions, device = answer.get("protocol", "legacy"), answer.get("versions"), answer.get("device")
    named = versions.items() if isinstance(versions, dict) else ()
    return {
        "protocol": number if isinstance(number, int) else "legacy",
        "versions": {name: value for name, value in named if isinstance(value, str | int | float)},
        "device": device if isinstance(device, str) else "",
        "says_taken": answer.get("says_taken") is True,
    }
