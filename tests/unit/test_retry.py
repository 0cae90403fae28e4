"""What becomes of a job when an attempt ended: the table, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from builders import provider
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.outcome import KINDS, Outcome
from scheduler.model.states import JOB
from scheduler.rules.retry import LONGEST_BACKOFF_S, Decision, backoff_s, decide

BOLTZ = provider("boltz", 28.0, max_attempts=3, backoff_s=10.0)


def end(kind: str, *, by: Any = BOLTZ, tries: int = 1, **over: Any) -> Decision:
    return decide(Outcome(kind, "so it said"), provider=by, tries=tries, **over)


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("ok", "succeed"),
        ("error", "fail"),
        ("refused", "fail"),
        ("no_outputs", "fail"),
        ("input_changed", "fail"),
        ("no_accelerator", "fail"),
        ("quarantined", "fail"),
        ("crashed", "retry"),
        ("no_reply", "retry"),
        ("lost", "retry"),
        ("over_budget", "retry"),
        ("timed_out", "time_out"),
        ("cancelled", "stop"),
        ("interrupted", "give_back"),
    ],
)
def test_each_outcome_is_its_own_event_on_the_first_try(kind: str, event: str) -> None:
    assert end(kind).event == event


def test_a_job_that_says_itself_what_is_tried_again_overrules_its_provider() -> None:
    assert end("crashed", retry_on=()).event == "fail"
    assert end("crashed", retry_on=("error",)).event == "fail"
    assert end("error", retry_on=("error",)).event == "retry"
    assert end("timed_out", retry_on=("timed_out",)).event == "retry"
    assert end("crashed", retry_on=None).event == "retry"
    assert end("refused", retry_on=("refused",)).event == "fail"
    assert end("over_budget", retry_on=()).event == "retry"


@pytest.mark.parametrize("kind", ["crashed", "no_reply", "lost"])
def test_what_is_nobodys_fault_is_tried_again_while_tries_are_left(kind: str) -> None:
    assert end(kind, tries=2).event == "retry"
    assert end(kind, tries=3).event == "fail"
    assert end(kind, tries=1, max_attempts=1).event == "fail"


def test_the_second_worker_killed_by_one_job_ends_it_whatever_tries_are_left() -> None:
    found = end("crashed", tries=2, deaths=2, by=provider(max_attempts=9))
    assert found.event == "fail" and found.outcome.kind == "quarantined"
    assert "2 workers" in found.outcome.text and "so it said" in found.outcome.text
    assert end("crashed", tries=2, deaths=1).event == "retry"


def test_over_budget_is_tried_once_more_alone_and_no_oftener() -> None:
    again = end("over_budget", tries=2, max_attempts=1)
    assert (again.event, again.alone, again.backoff_s) == ("retry", True, 0.0)
    assert end("over_budget", tries=2, max_attempts=9, alone=True).event == "fail"


def test_what_fails_otherwise_is_not_put_behind_the_others() -> None:
    assert not end("crashed", tries=1).alone
    assert end("crashed", tries=1, alone=True).event == "retry"


def test_a_time_out_is_final_unless_the_policy_lists_it() -> None:
    patient = provider(retry_outcomes=("timed_out",), max_attempts=2)
    assert end("timed_out", by=patient).event == "retry"
    assert end("timed_out", by=patient, tries=2).event == "time_out"
    assert end("crashed", by=patient).event == "fail"


def test_what_the_job_wants_done_when_it_is_lost_is_done() -> None:
    assert end("lost", on_lost="hold").event == "park"
    assert end("lost", on_lost="fail").event == "fail"
    assert end("crashed", on_lost="hold").event == "retry"


def later(waited_s: float, retry_after_s: float = 60.0, **over: Any) -> Decision:
    said = Outcome("error", "the licence server is busy", 75, retry_after_s)
    return decide(said, provider=provider(later_for_s=3600.0), tries=5, waited_s=waited_s, **over)


def test_later_has_a_count_and_a_patience_of_its_own() -> None:
    assert later(0.0) == Decision("retry", Outcome("error", "the licence server is busy", 75, 60.0), 60.0)
    assert later(3590.0).backoff_s == pytest.approx(10.0)
    expired = later(3600.0, laters=40)
    assert expired.event == "fail" and expired.outcome.kind == "later_expired"
    assert "41 times" in expired.outcome.text and "3600" in expired.outcome.text
    assert later(0.0, retry_after_s=-5.0).backoff_s == 1.0


def test_a_reply_that_was_there_first_wins_over_a_cancel() -> None:
    assert end("ok", cancel_asked=True).event == "succeed"
    assert end("error", cancel_asked=True).event == "fail"
    for kind in ("crashed", "lost", "timed_out", "interrupted", "over_budget", "no_reply"):
        found = end(kind, cancel_asked=True)
        assert (found.event, found.outcome.kind) == ("stop", "cancelled"), kind
    assert later(0.0, cancel_asked=True).event == "stop"


def test_the_wait_doubles_and_is_spread_and_bounded() -> None:
    assert [backoff_s(10.0, tries, 0.5) for tries in (1, 2, 3)] == [10.0, 20.0, 40.0]
    assert backoff_s(10.0, 1, 0.0) == 5.0
    assert backoff_s(10.0, 10_000, 0.999) < 1.5 * LONGEST_BACKOFF_S
    assert end("crashed", jitter=0.5).backoff_s == 10.0
    assert end("error").backoff_s == 0.0


@given(
    kind=st.sampled_from(KINDS), tries=st.integers(1, 9), deaths=st.integers(0, 5), cancel=st.booleans(),
    on_lost=st.sampled_from(["requeue", "hold", "fail"]), most=st.one_of(st.none(), st.integers(1, 9)),
    listed=st.lists(st.sampled_from(KINDS)),
)  # fmt: skip
def test_every_end_is_an_event_that_a_running_job_has(
    kind: str, tries: int, deaths: int, cancel: bool, on_lost: str, most: int | None, listed: list[str]
) -> None:
    by = provider(retry_outcomes=tuple(listed))
    found = decide(
        Outcome(kind), provider=by, tries=tries, deaths=deaths, on_lost=on_lost, max_attempts=most, cancel_asked=cancel
    )
    assert found.event in JOB["running"]
    if found.event == "retry":
        assert tries < (by.max_attempts if most is None else most) or found.alone
        assert not (deaths >= 2 and kind in ("crashed", "no_reply"))
