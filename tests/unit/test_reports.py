"""A night as facts: what became of each job, what it took, what the machine did, and what changed since."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from made_nights import BEGIN_S, made
from queues import AT, steps, submitted, writing

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.errors import NoSuchJob
from scheduler.night import gathering, memory
from scheduler.night.causes import causes
from scheduler.night.comparing import compared
from scheduler.night.gathering import became, gathered
from scheduler.night.report import Report, Usage
from scheduler.night.stepping import spans, with_steps
from scheduler.night.usage import joined, usage_of
from scheduler.night.words import alike, clean
from scheduler.store import operator, passing, queue, reports
from scheduler.store.connection import open_reader
from scheduler.store.engine import Store


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


def provider(report: Report, name: str) -> Any:
    return next(each for each in report.providers if each.name == name)


def changed(paths: Paths, statement: str, *values: Any) -> None:
    with writing(paths) as db:
        db.execute(statement, values)


@pytest.mark.parametrize(
    ("case", "verdict", "state", "outcome", "expected"),
    [
        (None, None, "succeeded", "ok", "succeeded"),
        (None, None, "failed", "crashed", "failed"),
        (None, None, "timed_out", "timed_out", "failed"),
        (None, None, "failed", "refused", "refused"),
        (None, None, "refused", None, "refused"),
        (None, None, "cancelled", "cancelled", "cancelled"),
        (None, None, "queued", None, "waiting"),
        (None, None, "held", None, "held"),
        (None, None, "admitted", None, "running"),
        ("smoke", "passed", "succeeded", "ok", "passed"),
        ("smoke", "failed", "succeeded", "ok", "failed"),
        ("smoke", None, "succeeded", "ok", "unjudged"),
        ("smoke", None, "failed", "crashed", "failed"),
        ("smoke", None, "refused", None, "refused"),
        ("smoke", None, "queued", None, "waiting"),
    ],
)
def test_a_case_counts_by_its_check_and_any_other_job_by_its_end(
    case: str | None, verdict: str | None, state: str, outcome: str | None, expected: str
) -> None:
    assert became(case, verdict, state, outcome) == expected


def test_every_job_of_a_batch_is_counted_once_whatever_its_attempts(paths: Paths) -> None:
    made(paths, 540, failing=0.3, open_jobs=7)
    found = gathered(paths, "night")
    assert found.tally.jobs == 540
    assert found.tally.waiting == 7
    assert found.tally.good + found.tally.bad == 533
    assert sum(why.count for _, why in causes(found.providers)) == found.tally.bad
    assert found.exit_code == 1


def test_a_good_night_exits_with_0(paths: Paths) -> None:
    made(paths, 54, failing=0.0)
    assert gathered(paths, "night").exit_code == 0


def test_times_are_the_median_and_the_longest_of_what_was_recorded(paths: Paths) -> None:
    made(paths, 3, providers=1, failing=0.0)
    for job_id, run_s in ((1, 10), (2, 40), (3, 30)):
        changed(
            paths, "UPDATE attempts SET sent_at = ?, ended_at = ? WHERE job_id = ?", "2026-11-30T01:00:00.000000Z",
            f"2026-11-30T01:00:{run_s:02d}.500000Z", job_id,
        )  # fmt: skip
    changed(paths, "UPDATE attempts SET warm = 0, load_s = 102.0 WHERE job_id = 1")
    boltz = provider(gathered(paths, "night"), "boltz")
    assert boltz.run.median_s == pytest.approx(30.5, abs=0.01)
    assert boltz.run.most_s == pytest.approx(40.5, abs=0.01)
    assert (boltz.load.median_s, boltz.cold_starts, boltz.warm_hits) == (102.0, 1, 2)


def test_only_tries_count_as_retries_and_one_that_was_put_off_or_given_back_does_not(paths: Paths) -> None:
    made(paths, 1, providers=1, failing=0.0)
    again = (
        "INSERT INTO attempts (job_id, attempt, epoch, admitted_at, sent_at, ended_at, outcome)"
        " VALUES (1, ?, 1, ?, ?, ?, ?)"
    )
    changed(paths, again, 2, AT, AT, AT, "interrupted")
    changed(paths, again, 5, AT, AT, AT, "error")  # it said that it was to be asked again later
    assert gathered(paths, "night").retries == 0
    changed(paths, again, 3, AT, AT, AT, "crashed")
    changed(paths, "UPDATE jobs SET tries = 2")
    assert gathered(paths, "night").retries == 1
    changed(paths, again, 4, AT, None, AT, "interrupted")
    assert gathered(paths, "night").retries == 1


def test_reasons_that_differ_in_numbers_are_one_and_those_of_other_kinds_another(paths: Paths) -> None:
    texts = (("error", "out of memory: {n} GiB asked"), ("crashed", "out of memory: {n} GiB asked"))
    made(paths, 200, providers=2, failing=1.0, texts=texts)
    found = causes(gathered(paths, "night").providers)
    assert sorted((why.kind, why.count) for _, why in found) == [("crashed", 100), ("error", 100)]
    assert found[0][1].first_id == min(why.first_id for _, why in found)


def test_ten_thousand_different_reasons_of_a_provider_become_fifty_and_the_rest(paths: Paths) -> None:
    words = ["".join(chr(97 + int(digit)) for digit in str(n)) for n in range(300)]
    made(paths, 300, providers=1, failing=1.0, texts=[("error", word) for word in words])
    whys = provider(gathered(paths, "night"), "boltz").whys
    assert len(whys) == 51
    assert whys[0].count == 250


def test_jobs_that_ended_since_are_in_and_those_that_ended_before_are_not(paths: Paths) -> None:
    made(paths, 5, batch="old", providers=1, failing=0.0, begin_s=BEGIN_S - 10 * 86400)
    made(paths, 5, batch="new", providers=1, failing=0.0, hours=0.1)
    assert gathered(paths, None, BEGIN_S - 3600).tally.jobs == 5
    changed(paths, "UPDATE jobs SET ended_at = '2026-11-30T02:00:00.000000Z' WHERE id = 1")
    assert gathered(paths, None, BEGIN_S - 3600).tally.jobs == 6


def test_the_commands_of_a_time_name_jobs_that_were_submitted_before_it(paths: Paths) -> None:
    made(paths, 6, providers=1, failing=0.0, begin_s=BEGIN_S)
    changed(paths, "UPDATE jobs SET submitted_at = '2020-01-01T00:00:00.000000Z'")
    changed(paths, "UPDATE jobs SET state = 'failed', outcome = 'crashed', outcome_text = 'x' WHERE id IN (2, 3, 5)")
    changed(paths, "UPDATE jobs SET state = 'queued', outcome = NULL, ended_at = NULL WHERE id = 6")
    steps = [step.command for step in with_steps(gathered(paths, None, BEGIN_S)).steps]
    assert steps == ["schedq up", "schedq log 2", "schedq requeue 2-3,5"]


def test_jobs_are_named_by_ids_as_far_as_there_is_room_and_else_by_when_the_first_was_submitted(paths: Paths) -> None:
    made(paths, 300, providers=1, failing=0.0, begin_s=BEGIN_S)
    changed(paths, "UPDATE jobs SET submitted_at = '2020-01-01T00:00:00.000000Z'")
    changed(paths, "DELETE FROM peaks")
    assert with_steps(gathered(paths, None, BEGIN_S)).steps[0].command == "schedq table 1-300"
    changed(paths, "UPDATE jobs SET ended_at = '2020-01-01T00:00:00.000000Z' WHERE id % 2")
    assert with_steps(gathered(paths, None, BEGIN_S)).steps[0].command == "schedq table --since 2020-01-01T00:00:00Z"
    assert spans([]) == "" and spans([3, 1, 2, 9, 9]) == "1-3,9" and spans(range(0, 400, 2)) == ""


def test_of_jobs_that_never_ran_all_is_shown_and_those_that_a_worker_refused_are_not_tried_again(paths: Paths) -> None:
    made(paths, 4, providers=1, failing=0.0)
    changed(paths, "UPDATE jobs SET state = 'refused', outcome = 'refused', outcome_text = 'is not installed'")
    steps = [step.command for step in with_steps(gathered(paths, "night")).steps]
    assert steps[0] == "schedq show 1" and not [each for each in steps if "requeue" in each]
    changed(paths, "DELETE FROM attempts")
    steps = [step.command for step in with_steps(gathered(paths, "night")).steps]
    assert steps[:2] == ["schedq show 1", "schedq measure boltz --write"]
    assert "schedq requeue --batch night --outcome refused --dry-run" in steps


def test_what_waits_since_long_before_is_said_and_what_an_operator_holds_since_then_is_not(paths: Paths) -> None:
    submitted(paths, 2, slug="boltz")
    changed(paths, "UPDATE jobs SET submitted_at = '2020-01-01T00:00:00.000000Z'")
    changed(paths, "UPDATE jobs SET state = 'held' WHERE id = 2")
    found = gathered(paths, None, BEGIN_S)
    assert (found.tally.waiting, found.tally.held, found.exit_code) == (1, 0, 1)


def test_why_jobs_wait_is_told_in_the_words_of_status(paths: Paths) -> None:
    submitted(paths, 3, slug="boltz", batch="night")
    [why] = provider(gathered(paths, "night"), "boltz").waits
    assert (why.count, why.kind, why.first_id) == (3, "scheduler_down", 1)
    assert "schedq up" in why.text


def test_a_batch_that_is_not_there_is_named_with_the_nearest(paths: Paths) -> None:
    submitted(paths, 1, batch="nightly")
    with pytest.raises(NoSuchJob, match=r"no job has the batch 'nihgtly'.*did you mean nightly"):
        gathered(paths, "nihgtly")


def test_a_queue_that_was_never_made_is_an_empty_night_and_no_batch(paths: Paths) -> None:
    assert gathered(paths, None, BEGIN_S).tally.jobs == 0
    with pytest.raises(NoSuchJob):
        gathered(paths, "night")


def test_measured_memory_stands_beside_what_is_declared(paths: Paths) -> None:
    made(paths, 54, failing=0.0)
    [device, host] = provider(gathered(paths, "night"), "boltz").memory
    assert (device.part, device.judged, device.used_gib, device.tonight) == ("device", "under", 30.1, True)
    assert host.judged == "over"
    assert "schedq measure boltz --write" in [step.command for step in with_steps(gathered(paths, "night")).steps]


def test_a_breaker_that_opened_is_told_with_its_time(paths: Paths) -> None:
    made(paths, 54)
    [(at_s, text)] = provider(gathered(paths, "night"), "boltz").opened
    assert at_s == pytest.approx(BEGIN_S + 7200, abs=0.01)
    assert text.startswith("3 crashes in a row")


def test_the_time_is_divided_and_adds_up_to_the_whole() -> None:
    found = usage_of([(10, 20), (15, 30)], [(5, 12)], [(0, 5), (40, 50)], 0, 100)
    assert found == Usage(running_s=20, loading_s=5, idle_waited_s=15, idle_s=60)
    assert joined([(3, 4), (-5, 2), (2, 3), (90, 200)], 0, 100) == [(0, 4), (90, 100)]
    assert joined([(5, 50), (6, 10), (49, 51)], 0, 100) == [(5, 51)]


def test_of_many_points_of_a_pool_the_highest_of_each_step_is_kept() -> None:
    rows = [("unified", float(n), 100.0, 4.0, 99.0 if n == 7777 else 1.0, None, None) for n in range(20_000)]
    [pool] = memory.pools(rows, [], 0.0, 20_000.0)
    assert len(pool.points) <= memory.MOST_POINTS
    assert pool.most_charged_gib == 99.0
    assert pool.most_used_gib is None


def test_two_nights_are_compared_by_case(paths: Paths) -> None:
    made(paths, 81, batch="v-1", cases=True, failing=0.0, begin_s=BEGIN_S - 86400)
    made(paths, 81, batch="v-2", cases=True, failing=0.0, slower=3.0)
    changed(paths, "UPDATE checks SET verdict = 'failed' WHERE job_id = 1")
    changed(paths, "UPDATE checks SET verdict = 'failed' WHERE job_id = 83")
    found = compared(gathered(paths, "v-2"), gathered(paths, "v-1"))
    assert [(each.provider, each.name, each.id) for each in found.newly_failing] == [("boltzgen", "case-0", 83)]
    assert [(each.provider, each.name, each.before_id) for each in found.newly_passing] == [("boltz", "case-0", 1)]
    assert found.slower
    assert all(each.now_s > each.before_s for each in found.slower)
    assert (found.over[0].provider, found.over[0].before) == ("boltz", True)


def test_what_failed_at_once_makes_nothing_slower_and_nothing_faster(paths: Paths) -> None:
    for batch, at_s in (("v-1", BEGIN_S - 86400), ("v-2", BEGIN_S)):
        made(paths, 4, batch=batch, providers=1, cases=True, failing=0.0, begin_s=at_s)
    ended = "UPDATE attempts SET sent_at = ?, ended_at = ? WHERE job_id BETWEEN ? AND ?"
    for run_s, first, last in ((1, 1, 3), (47, 4, 8)):
        changed(paths, ended, "2026-11-30T01:00:00.000000Z", f"2026-11-30T01:00:{run_s:02d}.000000Z", first, last)
    changed(paths, "UPDATE jobs SET state = 'failed', outcome = 'crashed', outcome_text = 'x' WHERE id < 4")
    changed(paths, "UPDATE checks SET verdict = 'failed' WHERE job_id < 4")
    before, found = gathered(paths, "v-1"), gathered(paths, "v-2")
    assert before.providers[0].run.count == 1 and before.providers[0].run.median_s == pytest.approx(47, abs=0.01)
    told = compared(found, before)
    assert len(told.newly_passing) == 3 and told.slower == ()


def test_time_in_the_queue_begins_when_a_job_is_free_to_start(paths: Paths) -> None:
    made(paths, 4, providers=1, failing=0.0, begin_s=BEGIN_S)
    for job_id in (1, 2, 3, 4):
        changed(paths, "UPDATE jobs SET submitted_at = ? WHERE id = ?", stamp(BEGIN_S - 36000), job_id)
    changed(paths, "UPDATE jobs SET started_at = ?, free_at = ?", stamp(BEGIN_S), stamp(BEGIN_S - 60))
    found = gathered(paths, "night")
    assert found.providers[0].queue.most_s == pytest.approx(60, abs=0.01)
    changed(paths, "UPDATE jobs SET free_at = NULL")
    since_submit = gathered(paths, "night").usage.idle_waited_s
    assert since_submit - found.usage.idle_waited_s == pytest.approx(36000 - 60, abs=0.1)
    changed(paths, "UPDATE jobs SET state = 'queued', blocked = 'begin', ended_at = NULL, started_at = NULL")
    assert gathered(paths, "night").usage.idle_waited_s == 0


@pytest.mark.parametrize("event", ["release", "requeue", "begin", "gate"])
def test_a_job_is_free_to_start_from_when_nothing_keeps_it_back(paths: Paths, event: str) -> None:
    submitted(paths)
    store, at = Store(paths), stamp(BEGIN_S)
    with store.write() as tx:
        if event == "release":
            operator.hold(tx, 1, at), operator.release(tx, 1, at)
        elif event == "requeue":
            tx.exec_driver_sql("UPDATE jobs SET state = 'failed', outcome = 'error', ended_at = submitted_at")
            operator.requeue(tx, 1, at)
        elif event == "begin":
            tx.exec_driver_sql(f"UPDATE jobs SET blocked = 'begin', not_before_at = '{at}'")
            queue.due(tx, stamp(BEGIN_S + 5))
        else:
            tx.exec_driver_sql("UPDATE jobs SET blocked = 'after'")
            tx.exec_driver_sql("INSERT INTO gates (parent_id, need, open) VALUES (9, 'any', 0)")
            tx.exec_driver_sql("INSERT INTO waits VALUES (1, 1)")
            assert passing.let_through(tx, 1, at, 0, 5) == [1]
    store.close()
    with writing(paths) as db:
        assert db.execute("SELECT free_at, state, blocked FROM jobs").fetchall() == [(at, "queued", None)]


def test_a_night_is_no_slower_than_itself_and_a_moment_more_is_not_slower(paths: Paths) -> None:
    made(paths, 54, failing=0.0)
    same = gathered(paths, "night")
    found = compared(same, same)
    assert (found.newly_failing, found.newly_passing, found.slower) == ((), (), ())


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("nightly-7", "nightly-8", "other"), "nightly-7"),
        (("validate-2026-01-01T22:00Z", "validate-2026-01-02T22:00Z"), "validate-2026-01-01T22:00Z"),
        (("monday", "tuesday"), None),
    ],
)
def test_the_last_one_is_the_newest_of_the_same_name_but_for_numbers(
    paths: Paths, names: tuple[str, ...], expected: str | None
) -> None:
    for n, name in enumerate(names):
        made(paths, 2, batch=name, providers=1, begin_s=BEGIN_S + n * 86400)
    assert gathering.earlier(paths, names[1]) == expected


def test_the_last_one_is_also_one_with_the_same_cases_under_another_name(paths: Paths) -> None:
    made(paths, 9, batch="monday", providers=3, cases=True)
    made(paths, 9, batch="tuesday", providers=3, cases=True, begin_s=BEGIN_S + 86400)
    assert gathering.earlier(paths, "tuesday") == "monday"
    assert gathering.earlier(paths, "monday") is None


def test_workers_words_are_made_fit_for_a_line() -> None:
    hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07 a\nb\r\x00c \u202egnp.exe " + "x" * 10_000
    said = clean(hostile)
    assert said.startswith("red a b c gnp.exe xxx")
    assert len(said) <= 160
    assert said.isprintable()
    assert clean("\ud800 alone") == "alone"


def test_texts_read_alike_whatever_their_numbers() -> None:
    assert alike("out of memory: 28.1 GiB asked") == alike("Out of memory: 3 GiB asked")
    assert alike("out of memory") != alike("out of patience")


def test_no_statement_of_a_report_walks_through_the_jobs(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in steps of SQLite's machine: a history a hundred times as long costs what its own jobs cost."""
    made(paths, 30, batch="mine", providers=3)
    cost = steps(monkeypatch)
    gathered(paths, "mine")
    small = cost(lambda: gathered(paths, "mine"))
    since = cost(lambda: gathered(paths, None, BEGIN_S))
    made(paths, 6000, batch="old", providers=3, begin_s=BEGIN_S - 40 * 86400, hours=24)
    assert cost(lambda: gathered(paths, "mine")) <= small * 1.3 + 400
    assert cost(lambda: gathered(paths, None, BEGIN_S)) <= since * 1.3 + 400


@pytest.mark.parametrize("since", [-1, 0, 1, 37, 99, 100])
def test_the_workers_of_a_time_are_found_by_halving(paths: Paths, since: int) -> None:
    submitted(paths)
    with writing(paths) as db:
        for n in range(100):
            db.execute(
                "INSERT INTO workers (slug, host_id, epoch, state, created_at) VALUES ('boltz', 'h', 1, 'gone', ?)",
                (stamp(BEGIN_S + n),),
            )
    connection = open_reader(paths)
    connection.row_factory = sqlite3.Row
    found = reports.workers(connection, BEGIN_S + since, BEGIN_S + 90.5)
    connection.close()
    assert [round(each[3] - BEGIN_S) for each in found] == list(range(max(0, since), 91))
