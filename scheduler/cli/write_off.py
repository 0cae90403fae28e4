"""`schedq workers write-off`: an operator takes leaked memory for lost, or knows that it is free."""

from __future__ import annotations

from contextlib import closing

from scheduler import wake
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.clock import now_at
from scheduler.config import Paths
from scheduler.errors import NoSuchWorker, UsageError
from scheduler.store import identity, leases, workers
from scheduler.store.engine import Store
from scheduler.store.kept import is_made

NONE_LEAKED = "worker {id} has no leaked charge; schedq status shows what is leaked, if anything is"


def write_off(call: Call) -> int:
    """Take back the leaked charges of one worker, recorded with who did it; exit 2 where none of it is leaked."""
    word, pool = call.text("id") or "", call.text("pool") or ""
    if not (word.isascii() and word.isdecimal() and len(word) <= 18):
        raise UsageError(f"write-off needs a worker's id, and {word!r} is none; schedq status shows what is leaked")
    paths, worker_id = Paths(), int(word)
    if not is_made(paths):
        raise UsageError(NONE_LEAKED.format(id=worker_id))
    with closing(Store(paths)) as store, store.write() as tx:
        if workers.row(tx, worker_id) is None:
            raise NoSuchWorker(f"there is no worker {worker_id}; schedq status shows what is leaked, if anything is")
        pools = {row.pool for row in leases.charged(tx) if row.worker_id == worker_id}
        asked = pool.removeprefix("device:")
        meant = [each for each in sorted(pools) if each.removeprefix("device:").startswith(asked)]
        if pool and len(meant) != 1:
            what = "several pools" if meant else "no pool"
            known = ", ".join(sorted(pools)) or "none"
            raise UsageError(f"--pool {pool} names {what} that worker {worker_id} is charged on; it is on: {known}")
        gone, left = leases.write_off(tx, worker_id, identity.user(), now_at(), meant[0] if pool else "")
    if call.flag("json"):
        say.out(say.document({
            "schema_version": 1, "worker_id": worker_id,
            "written_off": [{"pool": row.pool, "charge_gib": row.charge_gib} for row in gone],
            "charged": [{"pool": row.pool, "charge_gib": row.charge_gib, "state": row.state} for row in left],
        }))  # fmt: skip
    for row in gone:
        say.note(f"{say.gib(row.charge_gib)} GiB of {row.pool} are not charged to worker {worker_id} any more")
    for row in left:
        why = "its memory may still come back" if row.state == "returning" else "it is not gone"
        say.note(f"{say.gib(row.charge_gib)} GiB of {row.pool} stay charged to worker {worker_id}: {why}")
    if not gone and not left:
        raise UsageError(NONE_LEAKED.format(id=worker_id))
    if gone:
        wake.nudge(paths)
    return 0 if gone else 2
