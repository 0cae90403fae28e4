"""Validation cases in the queue: which jobs are to be judged, what was found, and which want a worker of their own.

A row of `checks` says: `case`, its name; `expect`, the expectations as the manifest had them at submit (JSON); `fresh`,
whether it wants a worker that has served nothing; `open` = 1 from its job's success until it is judged; `verdict`,
passed or failed, NULL while it was not judged; `faults`, what was not met (JSON: a list of {place, expected, found});
`at`, when it was judged. Whether the job ran stands in the job alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection

from scheduler.store import rows

OPEN = (
    "SELECT c.job_id, c.expect, r.job_id IS NOT NULL AND j.pruned_at IS NULL AS kept, r.reply, r.sha256, r.destination"
    " FROM checks AS c JOIN jobs AS j ON j.id = c.job_id LEFT JOIN results AS r ON r.job_id = c.job_id"
    " WHERE c.open = 1 AND c.job_id NOT IN (SELECT value FROM json_each(:but)) ORDER BY c.job_id LIMIT :most"
)
STILL = "SELECT job_id FROM checks WHERE open = 1 AND job_id IN (SELECT value FROM json_each(:ids))"
JUDGE = (
    "UPDATE checks SET verdict = :verdict, faults = :faults, at = :at, open = 0"
    " WHERE job_id = :job_id AND verdict IS NULL AND open = 1"
)
FRESH = "SELECT job_id FROM checks WHERE fresh = 1 AND job_id IN (SELECT value FROM json_each(:ids))"


def to_judge(tx: Connection, most: int, but: Collection[int] = ()) -> list[Any]:
    """The first jobs that succeeded and are not judged yet, those in `but` left out: what is expected and their result.

    `kept` = 0: the result was pruned. Costs what is to be judged, whatever there was before.
    """
    return rows.found(tx, OPEN, {"but": json.dumps(sorted(but)), "most": most})


def still_open(tx: Connection, ids: Collection[int]) -> set[int]:
    """Those of these jobs that are still to be judged."""
    return {row.job_id for row in rows.found(tx, STILL, {"ids": json.dumps(list(ids))})} if ids else set()


def judge(tx: Connection, job_id: int, faults: Sequence[dict[str, str]], at: str) -> None:
    """Keep what was found of a case: passed if there are no faults. One that was judged before stays as it is."""
    rows.write(
        tx, JUDGE,
        {
            "job_id": job_id, "verdict": "failed" if faults else "passed", "at": at,
            "faults": json.dumps(list(faults), ensure_ascii=False),
        },
    )  # fmt: skip


def fresh(tx: Connection, ids: Collection[int]) -> frozenset[int]:
    """Those of these jobs that want a worker that has served nothing, and that serves nothing after them."""
    if not ids:
        return frozenset()
    return frozenset(row.job_id for row in rows.found(tx, FRESH, {"ids": json.dumps(list(ids))}))
