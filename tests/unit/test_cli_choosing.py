"""Which jobs a verb takes by filters, what it would do to them, and what a filter that names nobody is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import asked, asking, submitted, writing

from scheduler.config import Paths
from scheduler.store import peek, schema

Ask = Callable[..., tuple[int, str, str]]
ROWS = "SELECT * FROM jobs ORDER BY id"


@pytest.fixture
def ask(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """A call on a queue without a scheduler: (exit code, stdout, stderr)."""
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SCHEDQ_MANIFESTS", raising=False)

    return asking(capfd)


def batch_of(paths: Paths, *states: str, batch: str = "b2") -> list[int]:
    """Jobs of one batch in these states."""
    ids = submitted(paths, len(states), batch=batch)
    with writing(paths) as db:
        for job_id, state in zip(ids, states, strict=True):
            db.execute("UPDATE jobs SET state = ? WHERE id = ?", (state, job_id))
    return ids


MIXED = ("queued", "queued", "queued", "held", "running", *schema.JOB_STATES[4:])


@pytest.mark.parametrize(
    ("words", "changed", "told"),
    [
        (("hold",), 3, "hold 3 jobs; 1 runs already, 1 is held already"),
        (("release",), 1, "release 1 job"),
        (("cancel",), 5, "cancel 5 jobs"),
        (("requeue",), 4, "requeue 4 jobs"),
        (("update", "--priority", "5"), 4, "update 4 jobs; 1 runs already"),
        (("update", "--max-attempts", "5"), 5, "update 5 jobs"),
        (("update", "--priority", "0"), 0, "update no job; 4 had that already, 1 runs already"),
    ],
)
def test_a_dry_run_names_and_counts_exactly_those_that_the_call_then_changes(
    ask: Ask, paths: Paths, words: tuple[str, ...], changed: int, told: str
) -> None:
    batch_of(paths, *MIXED)
    before = asked(paths, ROWS)
    code, out, err = ask(*words, "--batch", "b2", "--dry-run")
    assert (code, err) == (0, f"would {told}\n") and asked(paths, ROWS) == before
    _, dry, _ = ask(*words, "--batch", "b2", "--dry-run", "--json")
    _, real, _ = ask(*words, "--batch", "b2", "--json")
    dry_document, document = json.loads(dry), json.loads(real)
    assert dry_document.pop("dry_run") is True and dry_document == document
    now = dict(zip((row[0] for row in before), asked(paths, ROWS), strict=True))
    listed = {int(line.split()[0]) for line in out.splitlines()}
    assert listed == {row[0] for row in before if now[row[0]] != row} and len(listed) == changed


def test_a_dry_run_shows_id_provider_name_and_state_of_each(ask: Ask, paths: Paths) -> None:
    queued, running = batch_of(paths, "queued", "running")
    _, out, _ = ask("cancel", "--batch", "b2", "--dry-run")
    assert [line.split() for line in out.splitlines()] == [
        [str(queued), "boltz", "ligand", "queued", "->", "cancelled"], [str(running), "boltz", "ligand", "running"],
    ]  # fmt: skip


def test_a_dry_run_of_named_jobs_says_why_nothing_can_be_done_and_ends_like_the_call(ask: Ask, paths: Paths) -> None:
    held, running = batch_of(paths, "held", "running")
    for words in (("hold", str(running)), ("hold", f"{held},{running}"), ("cancel", str(held)), ("hold", "99")):
        dry, real = ask(*words, "--dry-run"), ask(*words)
        assert dry[0] == real[0]
    assert ask("hold", str(running), "--dry-run") == (
        2, "", f"would hold no job; 1 runs already\njob {running} is running: hold does nothing there;"
        " `schedq cancel` stops it\n",
    )  # fmt: skip


def test_a_requeue_that_another_jobs_destination_forbids_is_told_by_the_dry_run_too(ask: Ask, paths: Paths) -> None:
    (ended,) = submitted(paths, out=paths.home + "-out")
    ask("cancel", str(ended))
    submitted(paths, out=paths.home + "-out")
    code, _, err = ask("requeue", str(ended), "--dry-run")
    assert code == 3 and "would requeue no job; 1 cannot be requeued\n" in err and "has the destination" in err


def test_the_question_counts_what_can_be_changed_and_not_what_ended_long_ago(ask: Ask, paths: Paths) -> None:
    batch_of(paths, *["succeeded"] * 65, "queued", "queued")
    assert ask("cancel", "--slug", "boltz") == (0, "", "job 66: cancelled\njob 67: cancelled\nin all: 2 cancelled\n")
    batch_of(paths, *["queued"] * 21, *["failed"] * 30)
    assert "hold 21 jobs?" in ask("hold", "--batch", "b2")[2]


def test_a_state_that_is_given_and_ids_are_taken_as_they_are(ask: Ask, paths: Paths) -> None:
    first, _ = batch_of(paths, "failed", "succeeded")
    assert ask("cancel", "--state", "failed,succeeded")[2] == "nothing was cancelled: 1 has failed, 1 has succeeded\n"
    assert ask("cancel", str(first))[0] == 2
    assert ask("cancel", "--batch", "b2") == (0, "", "no job matches that can be cancelled; nothing was cancelled\n")
    assert json.loads(ask("cancel", "--batch", "b2", "--json")[1]) == {"schema_version": 1, "jobs": []}


VERBS = ("status", "wait", "cancel", "hold", "release", "requeue", "update --priority 1")


@pytest.mark.parametrize("verb", VERBS)
def test_a_batch_or_a_provider_that_never_was_is_named_with_the_nearest(ask: Ask, paths: Paths, verb: str) -> None:
    submitted(paths, batch="night", slug="gone")
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded'")
    code, out, err = ask(*verb.split(), "--batch", "nigth")
    assert (code, out) == (4, "") and "no job has the batch 'nigth'" in err and "did you mean night?" in err
    code, out, err = ask(*verb.split(), "--batch", "zzz")
    assert (code, out) == (4, "") and "did you mean" not in err
    for slip, near in (("capity", "capiti"), ("gnoe", "gone")):
        code, out, err = ask(*verb.split(), "--slug", slip)
        assert (code, out) == (2, "") and f"did you mean {near}?" in err, err
    for words in (("--batch", "night", "--name", "no"), ("--slug", "gone", "--name", "no"), ("--slug", "capiti")):
        assert ask(*verb.split(), *words)[0] == 0


def test_before_there_is_a_queue_a_batch_is_nobodys_and_a_provider_is_one(ask: Ask) -> None:
    assert ask("status", "--batch", "night")[0] == 4
    assert ask("wait", "--slug", "capiti")[0] == 0


def test_states_and_outcomes_may_be_lists(ask: Ask, paths: Paths) -> None:
    batch_of(paths, "queued", "running", "failed", "timed_out")
    with writing(paths) as db:
        db.execute("UPDATE jobs SET outcome = iif(state = 'failed', 'crashed', 'timed_out') WHERE id > 2")
    for words, ids in (
        (("--state", "running, queued,running"), [1, 2]),
        (("--outcome", "crashed,timed_out"), [3, 4]),
        (("--outcome", "crashed,timed_out", "--state", "failed"), [3]),
    ):
        assert [job["id"] for job in json.loads(ask("status", *words, "--json")[1])["jobs"]] == ids
    code, _, err = ask("status", "--outcome", "crashed,crahsed")
    assert code == 2 and "--outcome 'crahsed' is none of ok" in err and "did you mean crashed?" in err


def test_near_batches_are_looked_for_among_the_last_jobs_only(
    ask: Ask, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(paths, batch="night")
    submitted(paths, 3, batch="day")
    monkeypatch.setattr("scheduler.store.brief.LOOKED_AT", 3)
    assert peek.names(paths, "nigth") == (["day"], ["boltz"])
    assert peek.names(paths, "night")[0] is None
