"""`schedq notify ...`: who is told of batches that end and breakers that open, and what became of each notice."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Any

from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.clock import now_at, now_s, seconds
from scheduler.config import Paths, Settings, settings
from scheduler.errors import Temporary, UsageError
from scheduler.host import notices
from scheduler.model.telling import Notice
from scheduler.store import incidents
from scheduler.store.engine import Store
from scheduler.store.kept import is_made

SHOWN = 20
NOBODY = (
    "nobody is told of anything: set notify_url (a webhook) or notify_command in config.toml, then schedq notify test"
    " and schedq restart"
)


def test(call: Call) -> int:
    """Send one notice to everybody, and say what came back. UsageError: there is nobody; Temporary: not all took it."""
    paths = Paths()
    found = settings()
    whom = notices.receivers(found, paths)
    if not whom.names:
        raise UsageError(NOBODY)
    _note_open_files(found)
    host = os.uname().nodename
    body = {
        "schema_version": 1, "id": f"test:{os.getpid()}:{now_at()}", "event": "test", "at": now_at(), "host": host,
        "text": f"schedq on {host}: a test; nothing happened",
    }  # fmt: skip
    told = notices.tell(whom, Notice(0, "test", body))
    shown = dict(zip(whom.names, whom.described(), strict=True))
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "sent": body, "took": list(told.took), "error": told.error or None}))
    else:
        for name in told.took:
            say.out(f"{shown[name]} took it")
    if told.error:
        raise Temporary(told.error)
    return 0


def _note_open_files(found: Settings) -> None:
    """Say which configuration file has an address or a header as it is, and can be read by others."""
    for key in ("notify_url", "notify_headers"):
        path, value = found.origins[key], str(found.values[key])
        plain = value and "${" not in value and not value.startswith("env:")
        if plain and os.path.isfile(path) and os.stat(path).st_mode & 0o044:
            say.note(
                f"note: {path} can be read by others here, and {key} in it may be secret: chmod 600 {path}, or write"
                " ${NAME} and put NAME=... into secrets.env"
            )


def list_notices(call: Call) -> int:
    """Print the newest incidents, and who was told of each."""
    whom = notices.receivers(settings(), paths := Paths())
    rows: list[dict[str, Any]] = []
    if is_made(paths):
        with closing(Store(paths)) as store, store.read() as tx:
            rows = [_told(each) for each in incidents.newest(tx, SHOWN)]
    if call.flag("json"):
        say.out(say.document({"schema_version": 1, "receivers": whom.described(), "incidents": rows}))
        return 0
    for row in rows:
        ago = f"{say.span(now_s() - seconds(row['at']))} ago"
        say.out("\n".join([*say.wrap(f"{ago}: {row['text']}", ""), *say.wrap(_fate(row), "    ")]))
    if not rows:
        say.note("nothing happened yet that is worth telling")
    say.note(f"told are {' and '.join(whom.described())}, of {', '.join(whom.events)}" if whom.names else NOBODY)
    return 0


def _told(row: Any) -> dict[str, Any]:
    return {
        "id": row.id, "at": row.at, "event": row.kind, "slug": row.slug, "batch": row.batch, "text": row.text,
        "tries": row.tries, "next_try_at": row.next_try_at, "sent_at": row.sent_at, "error": row.error,
        "took": list(filter(None, row.took.split(","))), "body": json.loads(row.body),
    }  # fmt: skip


def _fate(row: dict[str, Any]) -> str:
    if row["sent_at"]:
        return f"told {say.span(seconds(row['sent_at']) - seconds(row['at']))} later" + (
            f", at try {row['tries']}" if row["tries"] > 1 else ""
        )
    tries = say.counted(row["tries"], "try").replace("trys", "tries")
    if row["next_try_at"]:
        left_s = seconds(row["next_try_at"]) - now_s()
        soon = f"next in {say.span(left_s)}" if left_s > 0 else "due now"
        return f"not told yet, {soon}" + (f", after {tries}: {row['error']}" if row["tries"] else "")
    if row["tries"]:
        return say.paint("given up", "red") + f" after {tries}: {row['error']}"
    return "nobody was to be told"
