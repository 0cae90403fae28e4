"""`schedq prune`: space that ended jobs take, given back by age, count and size."""

from __future__ import annotations

from collections import Counter

from scheduler.cli import changing, ids, pages, say
from scheduler.cli.fast import Call
from scheduler.cli.sizes import size, typed
from scheduler.cli.ticker import Ticker
from scheduler.clock import now_at, now_s, seconds, stamp
from scheduler.config import Paths
from scheduler.errors import DiskFull, SchedqError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from scheduler.night.pruning import Candidate, Chosen, Freed, Pruning

NARROWING = ("batch", "slug", "outcome")
KEPT_S, GONE_S = 30 * 86400.0, 86400.0
"""How old rows of no job are, and folders of workers that went, when they go where no age is given."""

WORDS = {
    "outputs": "outputs", "attempts": "what attempts left", "logs": "logs", "content": "inputs and replies",
    "workers": "folders of workers that are gone", "backups": "old backups",
}  # fmt: skip

NO_RULE = (
    "prune needs a rule: --older-than 30d, --keep N (so many that ended last stay) or --max-size G (oldest first, until"
    " the queue's folder is below that); --batch, --slug and --outcome only narrow it (all of a batch: --keep 0)"
)


def prune(call: Call) -> int:
    """Give back the space of ended jobs that every rule given lets go; 1 if something could not be taken away."""
    from scheduler.store import spare
    from scheduler.store.kept import is_made

    chosen, most = _chosen(call), call.text("max_size")
    most_bytes = None if most is None else typed(most, "--max-size")
    if call.text("older_than") is None and chosen.keep is None and most_bytes is None:
        raise UsageError(NO_RULE)
    paths = Paths()
    if not is_made(paths):
        raise UsageError(f"there is no queue in {paths.home} yet, so there is nothing to prune")
    try:
        return _tried(call, paths, chosen, most_bytes)
    except DiskFull as error:
        if not spare.give(paths):
            raise
        say.note(f"{str(error).partition(';')[0]}; the {size(spare.BYTES)} that were kept for this are used now")
    code = _tried(call, paths, chosen, most_bytes)
    spare.keep(paths)
    return code


def _tried(call: Call, paths: Paths, chosen: Chosen, most_bytes: int | None) -> int:
    from scheduler.night.pruning import Pruning
    from scheduler.store.engine import Store

    ids.found(dict(chosen.where), paths) if chosen.where else None
    ticker, store = Ticker(), Store(paths)

    def told(done: int, of: int) -> None:
        ticker.show(f"{done} of {say.counted(of, 'job')}")

    try:
        work = Pruning(store, chosen, now_at(), told)
        return _carried_out(call, work, most_bytes, ticker)
    finally:
        ticker.clear()
        store.close()


def _carried_out(call: Call, work: Pruning, most_bytes: int | None, ticker: Ticker) -> int:
    dry, old_s = call.flag("dry_run"), call.duration_s("older_than")
    those = work.choose()
    whole = not work.chosen.logs and not work.chosen.where
    worker_s = GONE_S if old_s is None else max(GONE_S, old_s)
    before = now_s() - (KEPT_S if old_s is None else old_s), now_s() - worker_s
    asks = not dry and len(those) > changing.ASK_ABOVE and not call.flag("yes")
    beside = work.beside(*before, whole=whole) if dry or asks or most_bytes is not None else Counter()
    if most_bytes is not None:
        those = work.until_below(those, most_bytes, beside.total())
        ticker.clear()
    if asks and len(those) > changing.ASK_ABOVE:
        what = "the logs of " * work.chosen.logs
        changing.confirm(f"prune {what}{say.counted(len(those), 'job')}{_and(beside)}, for good?")
    listed: list[dict[str, Any]] = []
    if dry:
        work.freed.bytes.update(beside)
        listed = _listed(call, work, those)
    elif whole:
        work.leftovers(dry=False)
        work.housekeeping(*before, dry=False)
    if not dry:
        work.carry_out(those)
    ticker.clear()
    if call.flag("json"):
        say.out(say.document(_document(work, those, listed, dry=dry)))
    else:
        _say(work.freed, work.chosen, dry=dry)
        if most_bytes is not None and not dry:
            _note_above(work.paths, most_bytes)
    return SchedqError.exit_code if work.freed.left else 0


def _and(beside: Counter[str]) -> str:
    """What goes that is no job's, for the question."""
    parts = [f"{size(beside[kind])} of {WORDS[kind]}" for kind in ("workers", "backups") if beside[kind]]
    return f" and {' and '.join(parts)}" if parts else ""


def _note_above(paths: Paths, most_bytes: int) -> None:
    """That the queue's folder is still larger than was asked for, and why no more could go."""
    from scheduler.night.clearing import bytes_of

    taken = bytes_of(paths.home)
    if taken > most_bytes:
        database = sum(bytes_of(f"{paths.database}{end}") for end in ("", "-wal"))
        text = (
            f"the queue's folder still takes {size(taken)}, above {size(most_bytes)}: what is left is the database"
            f" ({size(database)}), jobs that have not ended, and what lies there beside"
        )
        for line in say.wrap(text, ""):
            say.note(line)


def _chosen(call: Call) -> Chosen:
    from scheduler.night.pruning import Chosen

    given = {key: value for key, value in ids.filters(call).items() if key in NARROWING}
    old_s, keep = call.duration_s("older_than"), call.whole("keep")
    if keep is not None and keep < 0:
        raise UsageError(f"--keep {keep}: so many jobs cannot be kept; 0 or more")
    if call.flag("rows") and call.flag("logs_only"):
        raise UsageError("--rows takes all of a job away and --logs-only its logs alone; choose one")
    before_at = None if old_s is None else stamp(now_s() - old_s)
    return Chosen(before_at, keep, given, rows=call.flag("rows"), logs=call.flag("logs_only"))


def _listed(call: Call, work: Pruning, those: Sequence[int]) -> list[dict[str, Any]]:
    """Print, or collect for --json, each job that would go with what it frees."""
    rows: list[dict[str, Any]] = []
    for each in work.measured(those):
        work.freed.jobs += 1
        work.freed.bytes.update(each.frees)
        if call.flag("json"):
            rows.append(_row(each))
        else:
            say.out(_line(each))
    return rows


def _row(each: Candidate) -> dict[str, Any]:
    keys = ("id", "slug", "variant", "name", "state", "outcome", "ended_at")
    return {**{key: getattr(each.row, key) for key in keys}, "bytes": each.frees}


def _line(each: Candidate) -> str:
    row, room = each.row, say.page_width() - 33
    shown = {"id": row.id, "slug": row.slug, "variant": row.variant, "name": row.name}
    ago = f"{say.span(now_s() - seconds(row.ended_at))} ago"
    begin = pages.begin(shown, room)
    return f"{begin} {say.fill(row.state.replace('_', ' '), 9)} {ago:>11} {size(each.bytes):>10}"


def _say(freed: Freed, chosen: Chosen, *, dry: bool) -> None:
    """What was freed, in all and by kind, on stderr: stdout has the list of a dry run."""
    if not freed.jobs and not freed.disk_bytes and not freed.left:
        say.note("nothing to prune: no ended job is let go by every rule given" + _kept(freed))
        return
    what = "logs of " * chosen.logs + say.counted(freed.jobs, "job")
    parts = [f"{size(freed.bytes[kind])} of {word}" for kind, word in WORDS.items() if freed.bytes[kind]]
    told = f"{'would prune' if dry else 'pruned'} {what}: {size(freed.disk_bytes)}{' freed' * (not dry)}"
    for line in say.wrap(told + (f" ({', '.join(parts)})" if parts else "") + _kept(freed), ""):
        say.note(line)
    if freed.bytes["database"]:
        inside = size(freed.bytes["database"])
        text = f"and {inside} inside the database, which keeps its size and fills that room with what comes next"
        for line in say.wrap(text, ""):
            say.note(line)
    for path, why in freed.left[:5]:
        say.note(f"left: {path}: {why}")
    if len(freed.left) > 5:
        say.note(f"and {len(freed.left) - 5} more that could not be taken away")


def _kept(freed: Freed) -> str:
    if not freed.kept:
        return ""
    them = "it" if freed.kept == 1 else "them"
    return f"; {say.counted(freed.kept, 'job')} kept, since jobs that have not ended build on {them}"


def _document(work: Pruning, those: Sequence[int], listed: list[dict[str, Any]], *, dry: bool) -> dict[str, Any]:
    freed = work.freed
    done = those if dry else freed.ids
    return {
        "schema_version": 1, "dry_run": dry, "at": work.at, "ids": list(done), **({"jobs": listed} if dry else {}),
        "pruned": freed.jobs, "kept": freed.kept, "freed_bytes": dict(freed.bytes), "disk_bytes": freed.disk_bytes,
        "left": [{"path": path, "why": why} for path, why in freed.left],
    }  # fmt: skip
