"""Space of ended jobs given back: what goes, what stays whatever is asked, and what a crash leaves."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import asked, child, ended, row, submitted, writing

from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Pruned, Refused
from scheduler.night import clearing, pruning
from scheduler.night.pruning import Chosen, Pruning
from scheduler.store import content, engine, intake, operator, peek
from scheduler.store import pruning as rows
from scheduler.store.engine import Store

DAY_S = 86400.0
BIG = b'{"n": "' + b"x" * (100 << 10) + b'"}'
"""An input that is kept by content."""


def over(
    paths: Paths, job_id: int, days_ago: float = 0.0, state: str = "succeeded", reply: bytes | None = b'{"a": 1}'
) -> None:
    """A job that ended then, with outputs, a log, work, an event and a reply."""
    at = stamp(now_s() - days_ago * DAY_S)
    with writing(paths) as db:
        db.execute(
            "UPDATE jobs SET state = ?, ended_at = ?, outcome = ?, attempt = 1 WHERE id = ?",
            (state, at, "ok" if state == "succeeded" else "error", job_id),
        )
        (out,) = db.execute("SELECT out FROM jobs WHERE id = ?", (job_id,)).fetchone()
        db.execute("INSERT INTO attempts (job_id, attempt, epoch, admitted_at) VALUES (?, 1, 1, ?)", (job_id, at))
        db.execute("INSERT INTO events (at, job_id, event) VALUES (?, ?, 'submit')", (at, job_id))
        place = out or os.path.join(paths.results, str(job_id))
        if reply is not None:
            sha256 = None
            if len(reply) > content.INLINE_MAX:
                sha256 = content.put(paths, reply)
            db.execute(
                "INSERT INTO results (job_id, attempt, bytes, sha256, reply, destination) VALUES (?, 1, ?, ?, ?, ?)",
                (job_id, len(reply), sha256 or "0" * 64, None if sha256 else reply, place),
            )
    if state == "succeeded":
        os.makedirs(place)
        (Path(place) / "x.pdb").write_text("ATOM")
        (Path(place) / "job.json").write_text(json.dumps({"job": job_id}))
    folder = Path(paths.attempt(job_id, 1))
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "half.pdb").write_text("AT")
    (folder / "log").write_text("said\n")
    (folder / "log.1").write_text("before\n")
    work = Path(paths.job(job_id)) / "work"
    work.mkdir()
    (work / "checkpoint").write_bytes(b"x" * 9000)


def pruned(store: Store, **chosen: Any) -> pruning.Freed:
    """What one call of it freed."""
    work = Pruning(store, Chosen(**chosen), stamp(now_s()))
    those = work.choose()
    work.leftovers(dry=False)
    work.carry_out(those)
    return work.freed


def folders(paths: Paths) -> list[str]:
    return sorted(
        f"{name}/{each}"
        for name, folder in (("results", paths.results), ("jobs", paths.jobs))
        for each in clearing.entries(folder)
    )


def pieces(paths: Paths) -> set[str]:
    return {name for _, _, files in os.walk(paths.content) for name in files}


def test_a_pruned_job_keeps_its_row_and_its_attempts_and_gives_back_all_else(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    over(paths, 1, days_ago=40), over(paths, 2, days_ago=1)
    freed = pruned(store, before_at=stamp(now_s() - 30 * DAY_S))
    assert (freed.jobs, freed.left) == (1, [])
    assert freed.bytes["outputs"] > 0 and freed.bytes["attempts"] >= 9000 and freed.bytes["database"] > 0
    assert folders(paths) == ["jobs/2", "results/2"]
    job = peek.job(paths, 1)
    assert job["state"] == "succeeded" and job["pruned_at"] and len(job["attempts"]) == 1
    assert job["result"] == {"destination": None, "bytes": 8}
    assert asked(paths, "SELECT input IS NULL FROM jobs") == [(1,), (0,)]
    assert asked(paths, "SELECT job_id FROM events WHERE job_id IS NOT NULL AND event = 'submit'") == [(2,)]
    assert engine.check(paths) == []


def test_the_result_of_a_pruned_job_says_that_it_was_pruned_and_when(paths: Paths, store: Store) -> None:
    from scheduler.client import Client

    submitted(paths)
    over(paths, 1)
    pruned(store, keep=0)
    with pytest.raises(
        Pruned, match=r"job 1 succeeded, and was pruned on \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z+-]"
    ) as told:
        Client(paths.home).reply(1)
    assert told.value.exit_code == 4


def test_a_destination_of_ones_own_stays_and_stays_in_the_record(paths: Paths, store: Store, tmp_path: Path) -> None:
    out = str(tmp_path / "mine")
    submitted(paths, out=out)
    over(paths, 1)
    freed = pruned(store, keep=0)
    assert freed.jobs == 1 and freed.bytes["outputs"] == 0
    assert sorted(os.listdir(out)) == ["job.json", "x.pdb"]
    assert peek.job(paths, 1)["result"]["destination"] == out


def test_what_lives_is_never_touched(paths: Paths, store: Store) -> None:
    submitted(paths, 5)
    for job_id, state in ((1, "queued"), (2, "held"), (3, "admitted"), (4, "running")):
        over(paths, job_id, days_ago=400, state="failed", reply=None)
        with writing(paths) as db:
            db.execute("UPDATE jobs SET state = ?, ended_at = NULL, outcome = NULL WHERE id = ?", (state, job_id))
    over(paths, 5, days_ago=400)
    freed = pruned(store, keep=0)
    assert freed.jobs == 1
    assert folders(paths) == ["jobs/1", "jobs/2", "jobs/3", "jobs/4"]


def test_a_job_that_was_opened_again_meanwhile_stays_as_it_is(paths: Paths, store: Store) -> None:
    submitted(paths)
    over(paths, 1, state="failed", reply=None)
    work = Pruning(store, Chosen(keep=0), stamp(now_s()))
    those = work.choose()
    with store.write() as tx:
        operator.requeue(tx, 1, stamp(now_s()))
    work.carry_out(those)
    assert list(those) == [1] and work.freed.jobs == 0 and folders(paths) == ["jobs/1"]
    assert peek.input_bytes(paths, 1) == b'{"n": 1}'


def test_a_pruned_job_is_not_opened_again(paths: Paths, store: Store) -> None:
    submitted(paths)
    over(paths, 1, state="failed", reply=None)
    pruned(store, keep=0)
    with (
        pytest.raises(Refused, match=r"job 1 was pruned on .*: its input is not kept; submit it again"),
        store.write() as tx,
    ):
        operator.requeue(tx, 1, stamp(now_s()))


def waiting_on(paths: Paths, parent: int, job_id: int) -> None:
    """`job_id` waits for `parent`, whose results its input takes."""
    with writing(paths) as db:
        db.execute("UPDATE jobs SET blocked = 'after' WHERE id = ?", (job_id,))
        db.execute("INSERT INTO gates (parent_id, need, open) VALUES (?, 'ok', 0)", (parent,))
        db.execute("INSERT INTO waits SELECT ?, max(id) FROM gates", (job_id,))
        refs = json.dumps([{"at": "/pdb", "job": parent, "pointer": "/a"}])
        db.execute("INSERT INTO drafts (job_id, refs, input) VALUES (?, ?, ?)", (job_id, refs, b"{}"))


def test_results_that_a_live_jobs_input_names_stay_and_are_counted(paths: Paths, store: Store) -> None:
    submitted(paths, 3)
    over(paths, 1), over(paths, 2)
    waiting_on(paths, 1, 3)
    freed = pruned(store, keep=0)
    assert (freed.jobs, freed.kept) == (1, 1) and folders(paths) == ["jobs/1", "results/1"]


def test_a_job_that_comes_to_build_on_one_that_is_chosen_keeps_it(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    over(paths, 1)
    work = Pruning(store, Chosen(keep=0), stamp(now_s()))
    those = work.choose()
    waiting_on(paths, 1, 2)
    work.carry_out(those)
    assert work.freed.jobs == 0 and folders(paths) == ["jobs/1", "results/1"]


def test_the_newest_stay_and_a_job_goes_only_if_every_rule_lets_it(paths: Paths, store: Store) -> None:
    submitted(paths, 5)
    for job_id in range(1, 6):
        over(paths, job_id, days_ago=10 * (6 - job_id))  # 1 is the oldest, 50 days
    work = Pruning(store, Chosen(before_at=stamp(now_s() - 25 * DAY_S), keep=4), stamp(now_s()))
    assert list(work.choose()) == [1]
    assert list(Pruning(store, Chosen(keep=2), "").choose()) == [1, 2, 3]
    assert list(Pruning(store, Chosen(before_at=stamp(now_s() - 25 * DAY_S)), "").choose()) == [1, 2, 3]
    assert list(Pruning(store, Chosen(keep=9), "").choose()) == []


def test_filters_narrow_what_goes_and_what_is_kept(paths: Paths, store: Store) -> None:
    intake.submit(paths, [row(batch="a"), row(batch="b"), row(slug="esm", variant="big"), row(batch="a")])
    for job_id in range(1, 5):
        over(paths, job_id, days_ago=5 - job_id, state="failed" if job_id == 4 else "succeeded", reply=None)
    chosen = {
        (1, 4): {"batch": "a"},
        (3,): {"slug": "esm"},
        (4,): {"outcome": ["error", "crashed"]},
        (): {"slug": "esm:small"},
    }
    for ids, where in chosen.items():
        assert tuple(Pruning(store, Chosen(keep=0, where=where), "").choose()) == ids, where
    assert list(Pruning(store, Chosen(keep=1, where={"batch": "a"}), "").choose()) == [1]
    assert list(Pruning(store, Chosen(keep=0, where={"batch": "a", "slug": "esm"}), "").choose()) == []


def test_oldest_go_first_until_the_folder_is_small_enough(paths: Paths, store: Store) -> None:
    submitted(paths, 4)
    for job_id in range(1, 5):
        over(paths, job_id, days_ago=5 - job_id)
        (Path(paths.results) / str(job_id) / "big").write_bytes(os.urandom(1 << 20))
    whole = clearing.bytes_of(paths.home)
    work = Pruning(store, Chosen(), stamp(now_s()))
    those = work.until_below(work.choose(), whole - (3 << 19))
    assert list(those) == [1, 2]
    work.carry_out(those)
    assert clearing.bytes_of(paths.home) <= whole - (3 << 19) + (64 << 10)
    assert list(work.until_below(work.choose(), whole)) == []


def test_content_goes_with_the_last_job_that_names_it(paths: Paths, store: Store, tmp_path: Path) -> None:
    named = tmp_path / "msa.a3m"
    named.write_bytes(b"m" * 1000)
    from scheduler.store.identity import digest

    entry = {"path": str(named), "bytes": 1000, "sha256": digest(b"m" * 1000)}
    ids = intake.submit(paths, [row(data=BIG, files={"/msa": dict(entry)}) for _ in range(2)])
    assert len(pieces(paths)) == 2
    over(paths, 1, reply=b"r" * (70 << 10)), over(paths, 2)
    assert len(pieces(paths)) == 3
    work = Pruning(store, Chosen(), stamp(now_s()))
    first, last = work.measured(ids)
    assert first.frees["content"] < 80 << 10 < 100 << 10 <= last.frees["content"]
    work.carry_out(array("q", [1]))
    assert len(pieces(paths)) == 2 and peek.input_bytes(paths, 2) == BIG
    assert engine.check(paths) == []
    work.carry_out(array("q", [2]))
    assert pieces(paths) == set() and engine.check(paths) == []


def test_what_drafts_have_pinned_stays(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    over(paths, 1)
    with writing(paths) as db:
        sha256 = content.put(paths, b"pinned")
        pins = json.dumps({"/pdb": {"sha256": sha256, "bytes": 6}})
        db.execute("INSERT INTO drafts (job_id, refs, pins, input) VALUES (2, '[]', ?, ?)", (pins, b"{}"))
    pruned(store, keep=0)
    assert pieces(paths) == {sha256}


def test_content_that_a_submit_names_meanwhile_stays(
    paths: Paths, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submit looked for the piece before it was taken away, and writes its row after."""
    from scheduler.store.identity import digest

    named = tmp_path / "msa.a3m"
    named.write_bytes(b"m" * 1000)
    entry = {"path": str(named), "bytes": 1000, "sha256": digest(b"m" * 1000)}
    intake.submit(paths, [row(files={"/msa": dict(entry)})])
    over(paths, 1)
    real = content.present

    def present(where: Paths, sha256: str) -> bool:
        found = real(where, sha256)
        if found:
            monkeypatch.setattr(content, "present", real)
            thread = threading.Thread(target=lambda: pruned(Store(paths), keep=0))
            thread.start(), thread.join()
            assert pieces(paths) == set()
        return found

    monkeypatch.setattr(content, "present", present)
    intake.submit(paths, [row(files={"/msa": dict(entry)})])
    assert pieces(paths) == {entry["sha256"]} and engine.check(paths) == []


def test_logs_alone_go_and_the_rest_stays(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    over(paths, 1, days_ago=2), over(paths, 2)
    freed = pruned(store, keep=1, logs=True)
    assert freed.jobs == 1 and set(+freed.bytes) == {"logs"}
    assert sorted(os.listdir(paths.attempt(1, 1))) == ["out"] and os.path.exists(f"{paths.results}/1/x.pdb")
    assert sorted(os.listdir(paths.attempt(2, 1))) == ["log", "log.1", "out"]
    job = peek.job(paths, 1)
    assert job["logs_pruned_at"] and not job["pruned_at"]
    assert list(Pruning(store, Chosen(keep=1, logs=True), "").choose()) == []


def test_rows_go_where_that_is_asked_and_counts_stay_right(paths: Paths, store: Store) -> None:
    intake.submit(paths, [row(batch="n", beside={"labels": ["x"]}), row(batch="n"), row()])
    over(paths, 1), over(paths, 2)
    with writing(paths) as db:
        db.execute("INSERT INTO checks (job_id, \"case\", expect) VALUES (1, 'c', '{}')")
    pruned(store, keep=1)
    freed = pruned(store, keep=0, rows=True)
    assert freed.rows == 2 and folders(paths) == []
    with pytest.raises(NoSuchJob):
        peek.job(paths, 1)
    for table in ("attempts", "results", "labels", "checks"):
        assert asked(paths, f"SELECT count(*) FROM {table}") == [(0,)], table
    assert asked(paths, "SELECT count(*) FROM batches") == [(0,)]
    assert engine.check(paths) == []
    assert submitted(paths) == [4]


CUT = """
import os, sys
from scheduler import crash
from scheduler.config import Paths
from scheduler.night import pruning
from scheduler.store.engine import Store
def cut(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), 9)
pruning.crashpoint = cut
store = Store(Paths(sys.argv[1]))
work = pruning.Pruning(store, pruning.Chosen(keep=0, rows=sys.argv[3] == "rows"), "2026-01-01T00:00:00.000000Z")
work.carry_out(work.choose())
"""


@pytest.mark.parametrize("rows_too", ["rows", ""])
@pytest.mark.parametrize("point", ["prune.marked", "prune.content"])
def test_what_a_killed_prune_leaves_is_found_by_the_next(paths: Paths, point: str, rows_too: str) -> None:
    intake.submit(paths, [row(data=BIG), row()])
    over(paths, 1), over(paths, 2)
    code, _, err = ended(child(CUT, paths.home, point, rows_too))
    assert code == -signal.SIGKILL, err
    left = folders(paths)
    assert bool(left) == (point == "prune.marked") and pieces(paths)
    store = Store(paths)
    again = pruned(store, keep=0)
    store.close()
    assert again.jobs == 0 and folders(paths) == [] and pieces(paths) == set()
    assert engine.check(paths) == []


def test_folders_of_ids_that_this_database_never_gave_are_left_alone(paths: Paths, store: Store) -> None:
    submitted(paths)
    for name in ("results/77", "jobs/77", "results/notes", "results/1.before-2026"):
        (Path(paths.home) / name).mkdir(parents=True)
    pruned(store, keep=0)
    assert folders(paths) == ["jobs/77", "results/1.before-2026", "results/77", "results/notes"]


def test_a_link_in_place_of_a_folder_is_not_followed(paths: Paths, store: Store, tmp_path: Path) -> None:
    submitted(paths)
    over(paths, 1)
    elsewhere = tmp_path / "elsewhere"
    os.rename(f"{paths.results}/1", elsewhere)
    os.symlink(elsewhere, f"{paths.results}/1")
    freed = pruned(store, keep=0)
    assert [path for path, _ in freed.left] == [f"{paths.results}/1"]
    assert sorted(os.listdir(elsewhere)) == ["job.json", "x.pdb"]


def test_folders_that_a_worker_closed_go_too(paths: Paths, store: Store) -> None:
    submitted(paths)
    over(paths, 1)
    os.chmod(f"{paths.job(1)}/work", 0o500)
    assert pruned(store, keep=0).left == [] and folders(paths) == []


def test_backups_beyond_the_newest_three_go(paths: Paths, store: Store) -> None:
    submitted(paths)
    for number in range(5):
        path = Path(paths.backups) / f"queue-{number}.db"
        path.write_bytes(b"x" * 5000)
        os.utime(path, (1000 + number, 1000 + number))
    (Path(paths.backups) / "mine.db").write_text("kept: not named as ours are")
    work = Pruning(store, Chosen(keep=0), stamp(now_s()))
    work.housekeeping(now_s(), now_s(), dry=True)
    assert len(os.listdir(paths.backups)) == 6 and work.freed.bytes["backups"] > 0
    work.housekeeping(now_s(), now_s(), dry=False)
    assert sorted(os.listdir(paths.backups)) == ["mine.db", "queue-2.db", "queue-3.db", "queue-4.db"]


def test_folders_of_workers_that_are_gone_for_long_go_and_others_stay(paths: Paths, store: Store) -> None:
    submitted(paths)
    with writing(paths) as db:
        for worker, state, gone in ((1, "gone", 9), (2, "gone", 0), (3, "ready", None), (4, "gone", 9)):
            at = None if gone is None else stamp(now_s() - gone * DAY_S)
            db.execute(
                "INSERT INTO workers (id, slug, host_id, epoch, state, created_at, gone_at)"
                " VALUES (?, 'e', 'h', 1, ?, 'x', ?)",
                (worker, state, at),
            )
            os.makedirs(paths.worker(worker))
            db.execute("INSERT INTO events (at, worker_id, event) VALUES ('x', ?, 'exit')", (worker,))
    import fcntl

    held = os.open(paths.worker(4), os.O_RDONLY)  # as a keeper holds it
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        work = Pruning(store, Chosen(keep=0), stamp(now_s()))
        work.housekeeping(now_s() - DAY_S, now_s() - DAY_S, dry=False)
    finally:
        os.close(held)
    assert sorted(os.listdir(paths.workers)) == ["2", "3", "4"]
    assert asked(paths, "SELECT worker_id FROM events WHERE event = 'exit' ORDER BY 1") == [(2,), (3,)]


def test_old_samples_and_told_incidents_go(paths: Paths, store: Store) -> None:
    submitted(paths)
    old, new = stamp(now_s() - 40 * DAY_S), stamp(now_s())
    with writing(paths) as db:
        for at in (old, new):
            db.execute("INSERT INTO samples (at, host_id, pool, capacity_gib, reserve_gib, charged_gib)"
                       " VALUES (?, 'h', 'host', 1, 1, 1)", (at,))  # fmt: skip
            db.execute("INSERT INTO incidents (at, kind, sent_at) VALUES (?, 'batch', ?)", (at, at))
        db.execute("INSERT INTO incidents (at, kind, next_try_at) VALUES (?, 'batch', ?)", (old, new))
    Pruning(store, Chosen(keep=0), new).housekeeping(now_s() - 30 * DAY_S, now_s(), dry=False)
    assert asked(paths, "SELECT at FROM samples") == [(new,)]
    assert asked(paths, "SELECT at FROM incidents ORDER BY id") == [(new,), (old,)]


@pytest.fixture
def long_history(paths: Paths) -> Iterator[Paths]:
    submitted(paths)
    with writing(paths) as db:
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
            " INSERT INTO jobs (slug, user, host_id, state, submitted_at, ended_at, outcome, name, pruned_at)"
            " SELECT 'b', 'u', 'h', 'succeeded', 'x', '2020-01-01T00:00:00.' || printf('%06d', i) || 'Z', 'ok', '', 'y'"
            " FROM n"
        )
    yield paths


def test_a_long_history_of_pruned_jobs_costs_nothing(long_history: Paths, store: Store) -> None:
    """Counted in steps of SQLite's machine: what was pruned is not looked at again."""
    over(long_history, 1, days_ago=1)
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    with store.read() as tx:
        raw = tx.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.set_progress_handler(step, 1)
        last = rows.newest(tx, Chosen(keep=0))
        assert last is not None
        assert [job for _, job in rows.page(tx, Chosen(keep=0), last, ("", 0), 100)] == [1]
        rows.needed(tx), rows.file_users(tx), rows.piece_users(tx)
    assert count < 500


def test_no_stay_in_the_turnstile_is_long(long_history: Paths, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marked a few at a time: as many as the time of the last ones allows."""
    with writing(long_history) as db:
        db.execute("UPDATE jobs SET pruned_at = NULL")
    sizes: list[int] = []
    real = rows.prune

    def prune(tx: Any, ids: Any, at: str, results: str, until: str) -> list[int]:
        sizes.append(len(ids))
        return real(tx, ids, at, results, until)

    monkeypatch.setattr(rows, "prune", prune)
    monkeypatch.setattr(pruning, "MOST", 700)
    freed = pruned(store, keep=10_000)
    assert freed.jobs == 10_000 and sizes[0] == pruning.LEAST and max(sizes) <= 700 and len(sizes) > 10


def test_a_batch_that_is_submitted_once_more_takes_what_was_pruned_for_what_it_was(paths: Paths, store: Store) -> None:
    """What succeeded is not asked again; what failed is queued anew, since its input is gone."""
    rows_of = [row(batch="n", name="good"), row(batch="n", name="bad")]
    intake.submit(paths, [dict(each) for each in rows_of])
    over(paths, 1), over(paths, 2, state="failed", reply=None)
    pruned(store, keep=0)
    fates: list[str] = []
    assert intake.submit(paths, [dict(each) for each in rows_of], resume=True, fates=fates) == [1, 3]


def test_the_key_of_a_job_that_failed_and_was_pruned_is_refused_at_a_resume(paths: Paths, store: Store) -> None:
    intake.submit(paths, [row(batch="n", key="k")])
    over(paths, 1, state="failed", reply=None)
    pruned(store, keep=0)
    with pytest.raises(Refused, match=r"job 1 was pruned on .*; give this one another key"):
        intake.submit(paths, [row(batch="n", key="k")], resume=True)


def test_what_a_pruned_job_had_pinned_goes(paths: Paths, store: Store) -> None:
    submitted(paths)
    over(paths, 1)
    with writing(paths) as db:
        sha256 = content.put(paths, b"pinned")
        pins = json.dumps({"/pdb": {"sha256": sha256, "bytes": 6}})
        db.execute("INSERT INTO drafts (job_id, refs, pins, input) VALUES (1, '[]', ?, ?)", (pins, b"{}"))
    pruned(store, keep=0)
    assert pieces(paths) == set() and asked(paths, "SELECT input FROM drafts") == [(b"{}",)]
