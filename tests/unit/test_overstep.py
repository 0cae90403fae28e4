"""What the queue makes of a worker that the guard has ended: the attempt, the job, the provider, the lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_loop import Night, provider

from scheduler.clock import seconds
from scheduler.model.host import Gone, Overstepped, Reclaimed, Returned
from scheduler.model.outcome import Outcome
from scheduler.store import ending, peek

OVER = "it held 12 GiB of unified and it is charged 10 GiB there, while 6 GiB were left and 4 stay reserved"
NOBODY = "unified had 4.5 GiB left while it was starting; nobody is at fault, and it is started again"


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    made.crash()


def ended(night: Night, worker_id: int, text: str, outcome: str = "", wait_s: float = 0.0) -> None:
    """As the guard does it: told first, then gone."""
    night.host._due = [item for item in night.host._due if getattr(item[2], "worker_id", None) != worker_id]
    night.host.after(0.0, Overstepped(worker_id, text, outcome, wait_s))
    why = f"{outcome}: {text}" if outcome else text
    night.host._alive.pop(worker_id, None)
    night.host.after(0.2, Gone(worker_id, -9, "", why))
    night.host.after(0.3, Returned(worker_id, back=True))


def started(night: Night, state: str, slug: str = "boltz") -> int:
    night.provide(provider(slug))
    night.up()
    job_id = night.submit(slug)
    night.until(lambda: night.state(job_id) == state and _worker(night) in ("starting", "busy"))
    return job_id


def _worker(night: Night) -> str:
    rows = night.ask("SELECT state FROM workers ORDER BY id DESC LIMIT 1")
    return str(rows[0][0]) if rows else ""


def shown(night: Night, job_id: int) -> dict[str, Any]:
    return peek.job(night.paths, job_id)


def test_an_attempt_whose_worker_overstepped_ends_as_over_budget_by_what_the_guard_said(night: Night) -> None:
    job_id = started(night, "running")
    ended(night, 1, OVER, "over_budget")
    night.until(lambda: _first(night, job_id)["outcome"] is not None)
    first = _first(night, job_id)
    assert first["outcome"] == "over_budget" and OVER in first["outcome_text"]
    assert night.ask("SELECT state, why FROM workers WHERE id = 1") == [("gone", f"over_budget: {OVER}")]
    night.until(lambda: not night.ask("SELECT 1 FROM leases WHERE worker_id = 1 AND state <> 'released'"))


def _first(night: Night, job_id: int) -> dict[str, Any]:
    return shown(night, job_id)["attempts"][0]


def test_a_start_that_is_nobodys_fault_goes_back_uncounted_and_waits_its_time(night: Night) -> None:
    job_id = started(night, "admitted")
    at_s = night.clock.now_s()
    ended(night, 1, NOBODY, wait_s=10.0)
    night.until(lambda: night.state(job_id) == "queued")
    row = shown(night, job_id)
    assert (row["tries"], row["blocked"]) == (0, "backoff")
    assert seconds(row["not_before_at"]) == pytest.approx(at_s + 10.0, abs=0.5)
    assert night.ask("SELECT failures FROM breakers WHERE failures > 0") == []
    night.until(lambda: night.state(job_id) == "succeeded")


def test_starts_above_their_charge_open_the_breaker_of_their_provider(night: Night) -> None:
    job_id = started(night, "admitted")
    ended(night, 1, OVER, "over_budget")
    night.until(lambda: night.ask("SELECT 1 FROM workers WHERE id = 2 AND state = 'starting'") != [])
    ended(night, 2, OVER, "over_budget")
    night.until(lambda: night.ask("SELECT last_error FROM breakers WHERE next_try_at IS NOT NULL") != [])
    assert night.ask("SELECT last_error FROM breakers") == [(f"over_budget: {OVER}",)]
    assert shown(night, job_id)["tries"] == 0


def test_an_idle_worker_that_makes_room_is_retired(night: Night) -> None:
    job_id = started(night, "running")
    night.until(lambda: night.state(job_id) == "succeeded")
    ended(night, 1, "unified has 4 GiB left; boltz does nothing")
    night.until(lambda: _worker(night) == "gone")
    assert ("retire",) in night.ask("SELECT event FROM events WHERE worker_id = 1")
    assert night.ask("SELECT failures FROM breakers WHERE failures > 0") == []


def test_a_request_that_met_a_worker_on_its_way_out_is_interrupted_and_not_counted(night: Night) -> None:
    job_id = started(night, "running")
    ended(night, 1, "unified has 4 GiB left; boltz does nothing")
    night.until(lambda: night.state(job_id) == "queued")
    row = shown(night, job_id)
    assert row["tries"] == 0 and row["attempts"][0]["outcome"] == "interrupted"
    night.until(lambda: night.state(job_id) == "succeeded")


def test_what_is_heard_of_a_worker_that_is_gone_already_changes_nothing(night: Night) -> None:
    job_id = started(night, "running")
    night.host.after(0.0, Gone(1, -9, "", ""))
    night.host.after(0.0, Overstepped(1, OVER, "over_budget"))
    night.host.after(0.0, Overstepped(99, OVER, "over_budget"))
    night.until(lambda: _first(night, job_id)["outcome"] is not None)
    assert _first(night, job_id)["outcome"] == "crashed"


def test_what_a_reclaim_gained_stands_in_its_jobs_story(night: Night) -> None:
    job_id = started(night, "admitted")
    night.host.after(0.0, Reclaimed("unified", 3.0, 2.5, "the file cache gave 2.5 of 3 GiB", job_id))
    night.until(lambda: [e for e in shown(night, job_id)["story"] if e["event"] == "reclaimed"] != [])


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def alone(night: Night, state: str) -> int:
    """A job whose first start ran out of memory, and whose second worker, alone, is in this state, sent nothing."""
    job_id = started(night, "admitted")
    _dies(night, 1)
    night.until(lambda: night.ask("SELECT alone FROM workers WHERE id = 2 AND state = ?", state) == [(1,)])
    assert night.state(job_id) == "admitted"
    return job_id


def _dies(night: Night, worker_id: int, text: str = OOM) -> None:
    night.host._due = [item for item in night.host._due if getattr(item[2], "worker_id", None) != worker_id]
    night.host._alive.pop(worker_id, None)
    night.host.after(0.0, Gone(worker_id, 1, text, ""))
    night.host.after(0.1, Returned(worker_id, back=True))


@pytest.mark.parametrize("how", ["guard", "starting", "ready"])
def test_a_start_that_ran_out_of_memory_even_alone_was_the_one_try_more(night: Night, how: str) -> None:
    job_id = alone(night, "ready" if how == "ready" else "starting")
    if how == "guard":
        ended(night, 2, OVER, "over_budget")
    else:
        _dies(night, 2)
    night.until(lambda: night.state(job_id) == "failed")
    row, said = shown(night, job_id), OVER if how == "guard" else OOM
    assert (row["outcome"]["kind"], row["tries"]) == ("over_budget", 0)
    for words in ("it ran out of memory alone as well", said, "GiB charged"):
        assert words in row["outcome"]["text"]
    assert [each["outcome"] for each in row["attempts"]] == ["interrupted", "over_budget"]
    other = night.submit("other")
    night.provide(provider("other"))
    night.until(lambda: night.state(other) == "succeeded")
    assert night.ask("SELECT count(*) FROM workers WHERE slug = 'boltz'") == [(2,)], "and no third one"


def test_a_measurement_whose_load_runs_out_of_memory_ends_with_that(night: Night) -> None:
    night.provide(provider("boltz"))
    night.up()
    job_id = night.submit("boltz", blocked="after", behind=0, measures=1)
    night.until(lambda: _worker(night) == "starting")
    _dies(night, 1)
    night.until(lambda: night.state(job_id) == "failed")
    text = shown(night, job_id)["outcome"]["text"]
    assert "it ran out of memory alone, with all that its pool could give" in text and "as well" not in text


def test_one_that_was_cancelled_before_it_ran_out_again_is_cancelled(night: Night) -> None:
    job_id, at = alone(night, "starting"), "2027-01-15T09:00:00Z"
    assert night.store is not None
    with night.store.write() as tx:
        tx.exec_driver_sql("UPDATE jobs SET cancel_requested_at = ? WHERE id = ?", (at, job_id))
        assert ending.finish(tx, job_id, 2, "give_up", Outcome("over_budget", OOM), at) == "cancelled"


def test_an_idle_worker_that_makes_room_before_it_ran_its_job_alone_is_not_started_again_at_once(night: Night) -> None:
    job_id = alone(night, "ready")
    at_s = night.clock.now_s()
    ended(night, 2, "unified has 4 GiB left; boltz does nothing")
    night.until(lambda: night.state(job_id) == "queued")
    row = shown(night, job_id)
    assert (row["tries"], row["blocked"]) == (0, "backoff")
    assert seconds(row["not_before_at"]) == pytest.approx(at_s + 60.0, abs=1.0)
    night.until(lambda: night.state(job_id) == "succeeded")
