"""Space of ended jobs given back: chosen oldest first, marked in the queue, then taken off the disk.

The row is changed first, the files go after its commit: what a crash leaves is found again by the next call, because
its job is marked, or its name begins with `.pruned-`. Each stay inside the turnstile is short, so that submitters and
the scheduler go on. Nothing is touched that is live, that a live job builds on, or that lies outside of the queue's
own folder.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.clock import monotonic_s, stamp
from scheduler.config import Paths
from scheduler.crash import crashpoint
from scheduler.night.clearing import bytes_of, dropped, entries, log_bytes, logs_of, put_away
from scheduler.store import pruning as rows
from scheduler.store import sparing
from scheduler.store.engine import Store
from scheduler.store.pruning import Chosen as Chosen

PAGE, LEAST, MOST, SECTION_S = 20_000, 16, 2000, 0.03
"""Ids that are read at once; jobs that are marked in one stay inside the turnstile, and how long that should take."""

KINDS = ("outputs", "attempts", "logs", "content", "database", "workers", "backups")
"""What is freed: outputs in our own folder, what attempts left, their logs alone, inputs, files and replies that are
kept by content, those that lie in rows (their room stays the database's), folders of gone workers, old backups."""

BACKUPS_KEPT = 3
FIRST = ("", 0)
Told = Callable[[int, int], None]


@dataclass
class Candidate:
    """One job that may go: its row in brief, and what it frees, bytes by kind."""

    row: Any
    frees: dict[str, int]

    @property
    def bytes(self) -> int:
        """What the disk gets back."""
        return sum(count for kind, count in self.frees.items() if kind != "database")


@dataclass
class Freed:
    """What was freed, or would be: jobs, bytes by kind, what could not be taken away and why; `kept` for live jobs.

    `ids`: the jobs that were pruned.
    """

    jobs: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    left: list[tuple[str, str]] = field(default_factory=list)
    kept: int = 0
    rows: int = 0
    ids: array[int] = field(default_factory=lambda: array("q"))

    @property
    def disk_bytes(self) -> int:
        """What the disk gets back in all."""
        return sum(count for kind, count in self.bytes.items() if kind != "database")


class Pruning:
    """One call of it. `at` is its moment (a stamp); `told` hears how many jobs are done, of how many."""

    def __init__(self, store: Store, chosen: Chosen, at: str, told: Told = lambda done, of: None) -> None:
        self.store, self.chosen, self.at, self.told = store, chosen, at, told
        self.paths: Paths = store.paths
        self.freed = Freed()
        self._users: Counter[str] | None = None
        self._needed: set[int] = set()
        self._spared = sparing.Spared(self.paths.results)
        self._until = at

    def choose(self) -> array[int]:
        """The ids of those that the rules let go, oldest end first; what a live job builds on is left out."""
        found = array("q")
        with self.store.read() as tx:
            self._needed = rows.needed(tx) | self._spared.all(tx)
            last = rows.newest(tx, self.chosen)
        self._until = last[0] if last is not None else self.at
        after = FIRST
        while last is not None:
            with self.store.read() as tx:
                those = rows.page(tx, self.chosen, last, after, PAGE)
            if not those:
                break
            after = those[-1]
            found.extend(job_id for _, job_id in those if job_id not in self._needed)
            self.freed.kept += sum(job_id in self._needed for _, job_id in those)
        return found

    def measured(self, ids: Sequence[int]) -> Iterator[Candidate]:
        """Each of these jobs with what it frees, pieces that are kept by content with the last job that names them."""
        left = Counter(self.users())
        for at in range(0, len(ids), 500):
            with self.store.read() as tx:
                found = rows.briefly(tx, ids[at : at + 500])
            for row in found:
                yield Candidate(row, self._frees(row, left))

    def users(self) -> Counter[str]:
        """How often each piece of the content is named by jobs that have not been pruned."""
        if self._users is None:
            with self.store.read() as tx:
                named, _ = rows.file_users(tx)
                self._users = Counter([*named, *rows.piece_users(tx)])
        return self._users

    def _frees(self, row: Any, left: Counter[str]) -> dict[str, int]:
        if self.chosen.logs:
            return {"logs": log_bytes(self.paths.job(row.id))}
        content = 0
        pieces = [each for each in (row.input_sha256, row.reply_sha256) if each]
        for each in (*pieces, *(rows.hashes_of(row.files) if row.pruned_at is None else ())):
            left[each] -= 1
            if left[each] == 0:
                content += bytes_of(self.paths.content_of(each))
        outputs = bytes_of(os.path.join(self.paths.results, str(row.id)))
        inside = row.input_bytes * (row.input_sha256 is None) + row.reply_bytes * (row.reply_sha256 is None)
        attempts = bytes_of(self.paths.job(row.id))
        return {"outputs": outputs, "attempts": attempts, "content": content, "database": inside}

    def until_below(self, ids: Sequence[int], most_bytes: int, beside: int = 0) -> array[int]:
        """As many of these, oldest first, as bring the queue's folder below so many bytes, where `beside` goes too."""
        over = bytes_of(self.paths.home) - beside - most_bytes
        found = array("q")
        for each in self.measured(ids) if over > 0 else ():
            if over <= 0:
                break
            found.append(each.row.id)
            over -= each.bytes
            self.told(len(found), len(ids))
        return found

    def carry_out(self, ids: Sequence[int]) -> None:
        """Mark these jobs, a few at a time, and take away what is theirs; then what of the content nobody names."""
        at, count = 0, LEAST
        while at < len(ids):
            chunk = ids[at : at + count]
            with self.store.read() as tx:
                brief = {row.id: row for row in rows.briefly(tx, chunk)}
            began_s = monotonic_s()
            done = self._mark(chunk)
            count = max(LEAST, min(MOST, int(count * min(2.0, SECTION_S / max(1e-6, monotonic_s() - began_s)))))
            crashpoint("prune.marked")
            for job_id in done:
                self._clear(brief[job_id])
            at += len(chunk)
            self.freed.jobs += len(done)
            self.freed.ids.extend(done)
            self.told(at, len(ids))
        if not self.chosen.logs:
            self._drop_content()

    def _mark(self, ids: Sequence[int]) -> list[int]:
        with self.store.write() as tx:
            live = rows.waited_for(tx, ids) | self._spared.among(tx, ids)  # who builds on one may have come since
            those = [each for each in ids if each not in live]
            if self.chosen.logs:
                return rows.prune_logs(tx, those, self.at, self._until)
            if self.chosen.rows:
                done = rows.remove(tx, those, self._until)
                self.freed.rows += len(done)
                return done
            return rows.prune(tx, those, self.at, self.paths.results, self._until)

    def _clear(self, row: Any) -> None:
        if self.chosen.logs:
            for path in logs_of(self.paths.job(row.id)):
                self._take(path, "logs")
            return
        self.freed.bytes["database"] += row.input_bytes * (row.input_sha256 is None)
        self.freed.bytes["database"] += row.reply_bytes * (row.reply_sha256 is None)
        self._take(os.path.join(self.paths.results, str(row.id)), "outputs")
        self._take(self.paths.job(row.id), "attempts")

    def _take(self, path: str, kind: str) -> None:
        freed, why = dropped(path)
        self.freed.bytes[kind] += freed
        if why:
            self.freed.left.append((path, why))

    def leftovers(self, *, dry: bool) -> None:
        """What an earlier call marked and did not come to take away."""
        for folder, kind in ((self.paths.results, "outputs"), (self.paths.jobs, "attempts")):
            names = entries(folder)
            gone = [name for name in names if name.startswith(".pruned-")]
            ids = [int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 19]
            for at in range(0, len(ids), PAGE):
                with self.store.read() as tx:
                    gone += map(str, rows.leftover(tx, ids[at : at + PAGE]))
            self._all(folder, gone, kind, dry=dry)
        for folder, kind in (
            (self.paths.content, "content"), (self.paths.workers, "workers"), (self.paths.backups, "backups"),
        ):  # fmt: skip
            self._all(folder, [name for name in entries(folder) if name.startswith(".pruned-")], kind, dry=dry)

    def _all(self, folder: str, names: Sequence[str], kind: str, *, dry: bool) -> None:
        for name in names:
            if dry:
                self.freed.bytes[kind] += bytes_of(os.path.join(folder, name))
            else:
                self._take(os.path.join(folder, name), kind)

    def _drop_content(self) -> None:
        """Take away what of the content no job names: looked for beside the turnstile, made sure of inside."""
        free, named, last, event = self._unnamed()
        for at in range(0, len(free), LEAST * 4):
            aside = []
            with self.store.write() as tx:
                more, last = rows.file_users(tx, last)
                made, event = sparing.taken(tx, event)
                named |= {*more, *made}
                for sha256 in rows.unused(tx, free[at : at + LEAST * 4], named):
                    aside.append(put_away(self.paths.content_of(sha256), self.paths.content))
            crashpoint("prune.content")
            for path in filter(None, aside):
                self._take(path, "content")

    def _unnamed(self) -> tuple[list[str], set[str], int, int]:
        """(pieces of the content that no job names, those that are named, the last job and event looked at)."""
        there = [sha256 for part in entries(self.paths.content) for sha256 in self._pieces(part)]
        if not there:
            return [], set(), 0, 0
        with self.store.read() as tx:
            files, last = rows.file_users(tx)
            named, event = {*files, *rows.piece_users(tx)}, sparing.last_event(tx)
        return [sha256 for sha256 in there if sha256 not in named], named, last, event

    def beside(self, before_s: float, gone_before_s: float, *, whole: bool) -> Counter[str]:
        """What would go beside the jobs, bytes by kind: content that nobody names; of the `whole` queue all else."""
        was, self.freed = self.freed, Freed()
        try:
            if whole:
                self.leftovers(dry=True)
                self.housekeeping(before_s, gone_before_s, dry=True)
            if not self.chosen.logs:
                self.freed.bytes["content"] += sum(bytes_of(self.paths.content_of(each)) for each in self._unnamed()[0])
            return self.freed.bytes
        finally:
            self.freed = was

    def _pieces(self, part: str) -> list[str]:
        names = entries(os.path.join(self.paths.content, part)) if len(part) == 2 else []
        return [name for name in names if len(name) == 64]

    def housekeeping(self, before_s: float, gone_before_s: float, *, dry: bool) -> None:
        """What belongs to no job: folders of workers that went before, backups but the newest, old rows."""
        from scheduler.night import clearing

        with self.store.read() as tx:
            ids = [int(name) for name in entries(self.paths.workers) if name.isascii() and name.isdecimal()]
            gone = rows.gone_workers(tx, ids, stamp(gone_before_s))
        self._all(self.paths.workers, clearing.not_living(self.paths, self.store, gone), "workers", dry=dry)
        self._all(self.paths.backups, clearing.old_backups(self.paths, BACKUPS_KEPT), "backups", dry=dry)
        while not dry:
            with self.store.write() as tx:
                count = rows.old_rows(tx, stamp(before_s), MOST)
            self.freed.rows += count
            if not count:
                break
