"""What a prune spares: what came alive meanwhile, what a live job is made of, and no more than what must go."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from queues import asked, row, submitted, writing
from test_pruning import BIG, folders, over, pieces, pruned

from scheduler import judging
from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.night import clearing, pruning
from scheduler.night.pruning import Chosen, Pruning
from scheduler.store import checks, content, intake, operator, passing
from scheduler.store import pruning as rows
from scheduler.store.engine import Store

DAY_S = 86400.0


@pytest.mark.parametrize("chosen", [{}, {"rows": True}, {"logs": True}])
def test_a_job_that_was_opened_again_and_has_succeeded_meanwhile_keeps_its_result(
    paths: Paths, store: Store, chosen: dict[str, Any]
) -> None:
    submitted(paths, 2)
    over(paths, 1, days_ago=40, state="failed", reply=None), over(paths, 2, days_ago=40)
    work = Pruning(store, Chosen(keep=0, **chosen), stamp(now_s()))
    those = work.choose()
    with store.write() as tx:
        operator.requeue(tx, 1, stamp(now_s()))
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = ?, outcome = 'ok' WHERE id = 1", (stamp(now_s()),))
    work.carry_out(those)
    assert sorted(those) == [1, 2] and work.freed.jobs == 1 and list(work.freed.ids) == [2]
    assert os.path.exists(f"{paths.attempt(1, 1)}/log") and asked(
        paths, "SELECT pruned_at, logs_pruned_at FROM jobs WHERE id = 1"
    ) == [(None, None)]


def test_what_goes_beside_the_jobs_is_counted_before_jobs_are_chosen_by_size(paths: Paths, store: Store) -> None:
    intake.submit(paths, [row(data=BIG), row()])
    over(paths, 1), over(paths, 2)
    for number in range(6):
        (Path(paths.backups) / f"queue-{number}.db").write_bytes(os.urandom(1 << 20))
    (Path(paths.results) / ".pruned-9").mkdir()
    (Path(paths.results) / ".pruned-9" / "x").write_bytes(os.urandom(1 << 20))
    with store.write():
        content.put(paths, os.urandom(1 << 20))
    work = Pruning(store, Chosen(), stamp(now_s()))
    beside = work.beside(now_s(), now_s(), whole=True)
    assert {kind: count >> 20 for kind, count in beside.items() if count} == {"backups": 3, "outputs": 1, "content": 1}
    assert work.freed.disk_bytes == 0
    whole = clearing.bytes_of(paths.home)
    assert list(work.until_below(work.choose(), whole - (4 << 20), beside.total())) == []
    assert list(work.until_below(work.choose(), whole - (4 << 20))) != []


def large(paths: Paths, parent: int) -> str:
    """The `files` of a job that names a large file in another one's outputs by its path."""
    path = f"{paths.results}/{parent}/x.pdb"
    return json.dumps({"/pdb": {"path": path, "bytes": 4, "sha256": "a" * 64, "pinned": True}})


def test_outputs_that_hold_a_live_jobs_file_stay(paths: Paths, store: Store) -> None:
    submitted(paths, 4)
    over(paths, 1), over(paths, 2), over(paths, 3)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET files = ? WHERE id = 4", (large(paths, 1),))
        db.execute("UPDATE jobs SET files = ? WHERE id = 2", (large(paths, 3),))  # that one has ended
    freed = pruned(store, keep=0)
    assert (freed.jobs, freed.kept) == (2, 1) and folders(paths) == ["jobs/1", "results/1"]


def test_outputs_that_a_draft_has_taken_a_large_file_of_stay(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    over(paths, 1)
    with writing(paths) as db:
        db.execute("INSERT INTO drafts (job_id, refs, pins, input) VALUES (2, '[]', ?, ?)", (large(paths, 1), b"{}"))
    assert pruned(store, keep=0).kept == 1 and folders(paths) == ["jobs/1", "results/1"]


def test_a_job_that_comes_meanwhile_keeps_the_outputs_that_its_file_lies_in(paths: Paths, store: Store) -> None:
    submitted(paths)
    over(paths, 1)
    work = Pruning(store, Chosen(keep=0), stamp(now_s()))
    those = work.choose()
    submitted(paths)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET files = ? WHERE id = 2", (large(paths, 1),))
    work.carry_out(those)
    assert list(those) == [1] and work.freed.jobs == 0 and folders(paths) == ["jobs/1", "results/1"]


def test_a_case_that_is_not_judged_yet_keeps_its_reply(paths: Paths, store: Store) -> None:
    submitted(paths, 2)
    over(paths, 1), over(paths, 2)
    with writing(paths) as db:
        db.execute("INSERT INTO checks (job_id, \"case\", expect, open) VALUES (1, 'c', '{}', 1)")
    freed = pruned(store, keep=0)
    assert (freed.jobs, freed.kept) == (1, 1) and folders(paths) == ["jobs/1", "results/1"]


def test_a_case_whose_reply_was_pruned_says_so(paths: Paths, store: Store) -> None:
    submitted(paths)
    over(paths, 1)
    pruned(store, keep=0)
    with writing(paths) as db:
        db.execute(
            "INSERT INTO checks (job_id, \"case\", expect, open) VALUES (1, 'c', ?, 1)",
            (json.dumps({"/a": {"equals": 1}}),),
        )
    with store.read() as tx:
        [check] = checks.to_judge(tx, 5)
    assert [fault.found for fault in judging.judged(paths, check)] == ["it was pruned before it was judged"]


def test_what_a_killed_prune_left_of_a_worker_goes(paths: Paths, store: Store) -> None:
    submitted(paths)
    for folder in (paths.workers, paths.backups):
        os.makedirs(f"{folder}/.pruned-7/run")
    pruned(store, keep=0)
    assert os.listdir(paths.workers) == [] and os.listdir(paths.backups) == []


def test_the_logs_of_a_job_that_is_tried_again_are_there_again(paths: Paths, store: Store) -> None:
    submitted(paths)
    over(paths, 1, state="failed", reply=None)
    pruned(store, keep=0, logs=True)
    with store.write() as tx:
        operator.requeue(tx, 1, stamp(now_s()))
    assert asked(paths, "SELECT logs_pruned_at FROM jobs") == [(None,)]


def test_no_section_looks_at_every_draft(paths: Paths, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What drafts have taken is read once, beside the turnstile; inside only what was taken since."""
    submitted(paths, 1)
    with store.write():
        for number in range(200):
            content.put(paths, b"%d" % number)
    count, real = 0, rows._pinned

    def pinned(tx: Any) -> list[str]:
        nonlocal count
        count += 1
        return real(tx)

    monkeypatch.setattr(rows, "_pinned", pinned)
    pruned(store, keep=0)
    assert count == 1 and pieces(paths) == set()


@pytest.mark.parametrize("whole", [True, False])
def test_a_piece_that_a_draft_takes_while_unused_ones_go_stays(
    paths: Paths, store: Store, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    submitted(paths, 1)
    with writing(paths) as db:
        db.execute("INSERT INTO drafts (job_id, refs, input) VALUES (1, '[]', ?)", (b"{}",))
    with store.write():
        kept, named, _ = (content.put(paths, each) for each in (b"kept", b"named", b"gone"))
    real = Pruning._unnamed

    def unnamed(work: Pruning) -> Any:
        found = real(work)
        files = {"/a3m": {"path": "x", "bytes": 5, "sha256": named}}
        made: Any = {"input_name": "x", "input_sha256": "0" * 64, "input_bytes": 2, "params": {}, "files": files}
        made = made if whole else None
        with store.write() as tx:
            passing.pin(tx, 1, {"0": {"sha256": kept}}, made, b"{}" if whole else None, stamp(now_s()))
        return found

    monkeypatch.setattr(pruning.Pruning, "_unnamed", unnamed)
    pruned(store, keep=0)
    assert pieces(paths) == ({kept, named} if whole else {kept})
