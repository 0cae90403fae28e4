"""The operator's verbs without a scheduler: which jobs, in which words, with which exit code; and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import AT, asked, asking, row, scheduler, submitted, writing

from scheduler import given
from scheduler.cli import control, pausing
from scheduler.cli.options import RETRIED
from scheduler.config import Paths
from scheduler.errors import UsageError
from scheduler.model.plan import BreakerState
from scheduler.rules.retry import ON_LOST, POLICY_MAY_RETRY
from scheduler.store import breakers, engine, intake, peek, schema
from scheduler.store.engine import Store

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """A call on a queue without a scheduler: (exit code, stdout, stderr), never a fault of schedq itself."""
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(tmp_path / "manifests"))
    manifest = tmp_path / "manifests" / "boltz" / "provider.toml"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(
        'slug = "boltz"\nmode = "resident"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
        '[worker]\npython = "/usr/bin/python3"\nscript = "w.py"\n[input]\naccept = [".json"]\n'
    )
    (manifest.parent / "w.py").touch()

    return asking(capfd)


def in_state(paths: Paths, state: str, job_id: int = 1) -> None:
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = ?, blocked = NULL WHERE id = ?", (state, job_id))


@pytest.mark.parametrize(
    ("verb", "changes", "same"),
    [
        ("hold", {"queued": "held", "admitted": "held"}, {"held"}),
        ("release", {"held": "queued"}, set()),
        ("requeue", dict.fromkeys(("failed", "cancelled", "timed_out", "refused"), "queued"), set()),
    ],
)
def test_every_cell_of_an_operators_event_is_carried_out_or_told_with_exit_2(
    ask: Ask, paths: Paths, verb: str, changes: dict[str, str], same: set[str]
) -> None:
    submitted(paths, len(schema.JOB_STATES))
    for job_id, state in enumerate(schema.JOB_STATES, 1):
        in_state(paths, state, job_id)
        code, out, err = ask(verb, str(job_id), "--json")
        [told] = json.loads(out)["jobs"]
        now = changes.get(state, state)
        assert (told["id"], told["before"], told["state"]) == (job_id, state, now) and peek.states(paths, [job_id])
        assert peek.states(paths, [job_id]) == {job_id: now} and err == ""
        assert code == (0 if state in changes or state in same else 2)
        assert (told["refused"] is None) is (code == 0)
        events = [each["event"] for each in peek.job(paths, job_id)["story"]]
        assert (verb in events) is (state in changes)
    assert engine.check(paths) == []


def test_one_of_several_named_jobs_that_can_be_changed_is_a_success_and_the_others_are_told(
    ask: Ask, paths: Paths
) -> None:
    submitted(paths, 2)
    in_state(paths, "running")
    code, _, err = ask("hold", "1-2")
    assert code == 0 and err == (
        "job 1 is running: hold does nothing there; `schedq cancel` stops it\njob 2: held\n"
        "in all: 1 held, 1 runs already\n"
    )
    code, _, err = ask("hold", "--slug", "boltz")
    assert (code, err) == (0, "nothing was held: 1 runs already, 1 is held already\n")
    assert ask("hold", "1")[0] == 2 and ask("hold", "2")[0] == 0


def test_a_job_that_is_not_there_stops_the_call_before_anything_is_changed(ask: Ask, paths: Paths) -> None:
    for verb in (("hold",), ("release",), ("requeue",), ("update", "--priority", "1"), ("update", "--repin")):
        code, _, err = ask(*verb, "7")
        assert code == 4 and "no job 7" in err, err
    assert not os.path.exists(paths.database)
    submitted(paths)
    assert ask("hold", "1,7")[0] == 4 and peek.states(paths, [1]) == {1: "queued"}


def test_a_requeue_whose_destination_another_has_by_now_is_refused(ask: Ask, paths: Paths) -> None:
    out = paths.home + "-out"
    submitted(paths, out=out)
    intake.cancel(paths, [1])
    submitted(paths, out=out)
    code, _, err = ask("requeue", "1")
    assert code == 3 and "job 2 (queued) has the destination" in err


def test_a_requeue_gives_what_it_opens_another_time_limit_and_leaves_all_else(ask: Ask, paths: Paths) -> None:
    submitted(paths, 3, timeout_s=60.0)
    for job_id, state in ((1, "timed_out"), (2, "succeeded")):
        in_state(paths, state, job_id)
    limits = "SELECT state, timeout_s FROM jobs ORDER BY id"
    ask("requeue", "1-3", "--timeout", "4h", "--dry-run")
    assert asked(paths, limits) == [("timed_out", 60.0), ("succeeded", 60.0), ("queued", 60.0)]
    ask("requeue", "1-3", "--timeout", "4h")
    assert asked(paths, limits) == [("queued", 14400.0), ("succeeded", 60.0), ("queued", 60.0)]
    code, _, err = ask("requeue", "1", "--timeout", "0s")
    assert code == 2 and "would end every attempt at once" in err


def test_a_requeue_opens_parents_before_their_children_whatever_their_ids(ask: Ask, paths: Paths) -> None:
    rows = [row(key="c", batch="b", beside={"after": ["p"]}), row(key="p", batch="b")]
    assert intake.submit(paths, rows) == [1, 2]
    for job_id in (2, 1):
        in_state(paths, "failed", job_id)
    code, _, err = ask("requeue", "--batch", "b")
    assert code == 0 and "cannot" not in err
    assert asked(paths, "SELECT state, blocked FROM jobs ORDER BY id") == [("queued", "after"), ("queued", None)]


def test_many_jobs_are_changed_in_many_short_writes(ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(paths, 2 * control.AT_ONCE + 1)
    stays: list[int] = []
    write = Store.write
    monkeypatch.setattr(Store, "write", lambda store: stays.append(1) or write(store))
    code, _, err = ask("hold", "--state", "queued", "--yes")
    assert code == 0 and f"in all: {2 * control.AT_ONCE + 1} held" in err and len(stays) == 3


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--priority", "high"), "not a whole number"),
        (("--max-attempts", "0"), "--max-attempts 0: must be a whole number"),
        (("--on-lost", "shrug"), "--on-lost shrug: must be one of requeue, hold, fail"),
        (("--retry-on", "refused"), "--retry-on refused: must be some of crashed"),
        (("--retry-on", ""), "--retry-on is empty"),
        (("--timeout", "0s"), "would end every attempt at once"),
        ((), "needs something to change"),
    ],
)
def test_a_change_that_cannot_be_meant_is_a_usage_error(
    ask: Ask, paths: Paths, argv: tuple[str, ...], told: str
) -> None:
    submitted(paths)
    before = asked(paths, "SELECT * FROM jobs")
    code, _, err = ask("update", "1", *argv)
    assert code == 2 and told in err, err
    assert asked(paths, "SELECT * FROM jobs") == before


def test_the_words_of_the_command_line_are_those_of_the_rules() -> None:
    assert RETRIED == POLICY_MAY_RETRY and ON_LOST == schema.ON_LOST


def test_a_policy_is_what_was_given_and_nothing_else() -> None:
    assert given.policy(None, None, None) == {}
    assert given.policy("hold", 3, "lost,crashed,lost") == {
        "on_lost": "hold", "max_attempts": 3, "retry_on": "lost,crashed",
    }  # fmt: skip
    assert given.policy(None, None, "none") == {"retry_on": ""} == given.policy(None, None, [])
    for wrong in ("", "crashed, lost", "none,lost", 3, ["ok"]):
        with pytest.raises(UsageError, match="retry_on"):
            given.policy(None, None, wrong)


# Breakers


def test_a_reset_says_what_the_breaker_was_and_forgets_it(ask: Ask, paths: Paths, store: Store) -> None:
    with store.write() as tx:
        breakers.put(tx, "boltz", BreakerState(3, ("a", "b", "c"), "out of luck", 1.7e9, 4e9))
        breakers.put(tx, "away", BreakerState(1, ("(start)",), "no weights"))
    code, out, err = ask("providers", "reset", "boltz", "away")
    assert (code, out) == (0, "")
    first, second = err.splitlines()
    assert first.startswith("boltz: was broken (failed 3 times in a row: out of luck) and would have been tried again")
    assert second == "away: was not broken yet (failed 1 time in a row: no weights); forgotten"
    assert asked(paths, "SELECT count(*) FROM breakers") == [(0,)]
    assert [event for (event,) in asked(paths, "SELECT event FROM events")] == ["reset", "reset"]
    assert ask("providers", "reset", "boltz")[2] == "boltz: was not broken\n"
    assert ask("providers", "reset", "blotz")[0] == 2


# The whole queue


def test_a_pause_is_kept_with_its_first_moment_and_every_waiting_job_says_so(ask: Ask, paths: Paths) -> None:
    intake.submit(paths, [row(), row(), row(slug="esm"), row(state="held"), row(blocked="backoff", not_before_at=AT)])
    with writing(paths) as db:
        db.execute("UPDATE queue SET paused_at = ?", (AT,))
    code, _, err = ask("queue", "pause")
    assert code == 0 and err.startswith("paused already, for ")
    assert asked(paths, "SELECT paused_at FROM queue") == [(AT,)]
    with scheduler(paths):
        jobs = {job["id"]: job["reason"] for job in peek.status(paths)["jobs"]}
    assert {job: reason["ruling"] for job, reason in jobs.items()} == {
        1: "paused", 2: "paused", 3: "paused", 4: "held", 5: "paused",
    }  # fmt: skip
    assert jobs[2]["text"] == (
        "the queue is paused since 2023-11-14T22:13:20Z: nothing new is sent or started until `schedq queue resume`"
    )
    assert "no scheduler runs" in peek.job(paths, 1)["reason"]["text"]
    shown = json.loads(ask("queue", "status", "--json")[1])
    assert (shown["state"], shown["paused_at"], shown["drained_at"]) == ("paused", AT, None)
    code, _, err = ask("queue", "resume")
    assert code == 0 and "resumed: 4 jobs may go on" in err
    assert "neither paused nor drained" in ask("queue", "resume")[2]
    assert [event for (event,) in asked(paths, "SELECT event FROM events")] == ["pause", "resume", "resume"]


def test_a_queue_that_nobody_made_yet_can_be_paused(ask: Ask, paths: Paths) -> None:
    assert ask("queue", "pause")[0] == 0 and peek.stopped(paths)[0] is not None
    assert ask("queue")[1].startswith("paused for ")


def test_a_drain_without_a_scheduler_while_a_job_runs_is_none_and_says_what_is_left(ask: Ask, paths: Paths) -> None:
    submitted(paths)
    in_state(paths, "running")
    code, _, err = ask("queue", "drain", "--timeout", "10s")
    assert code == 6 and "not drained" in err and "1 running: 1 (boltz" in err, err
    assert json.loads(ask("queue", "--json")[1])["state"] == "draining"


def test_a_drain_whose_scheduler_goes_away_ends_with_6_and_the_queue_stays_drained(
    ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(paths)
    in_state(paths, "running")
    runs = iter([True])
    monkeypatch.setattr(pausing.wake, "scheduler_runs", lambda _: next(runs, False))
    monkeypatch.setattr(pausing, "GRACE_S", 0.0)
    monkeypatch.setattr(pausing, "LOOK_S", 0.001)
    code, _, err = ask("queue", "drain")
    assert code == 6 and "stays drained" in err, err
    assert peek.stopped(paths)[1] is not None
