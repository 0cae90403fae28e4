"""When a provider counts as broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.outcome import KINDS
from scheduler.model.plan import BreakerState
from scheduler.rules.breaker import CRASHES, OWN_TIME, after, put_off

NEVER_COUNT = sorted({*KINDS} - {*CRASHES, "ok", "no_accelerator"})
"""What an input can cause, and what is nobody's fault: three long sequences must not stop a night."""


def happen(
    *events: tuple[str, str] | str, state: BreakerState | None = None, now_s: float = 0.0
) -> BreakerState | None:
    """The breaker after these kinds (or kind and input), all at one moment."""
    for event in events:
        kind, sha = event if isinstance(event, tuple) else (event, "")
        state = after(state, kind, f"{kind} said", sha, now_s)
    return state


def is_open(state: BreakerState | None) -> bool:
    return state is not None and state.next_try_s is not None


def test_two_failed_starts_in_a_row_open_it_for_a_minute() -> None:
    assert not is_open(happen("failed_start"))
    state = happen("failed_start", "failed_start", now_s=100.0)
    assert state == BreakerState(2, ("(start)", "(start)"), "failed_start said", 100.0, 160.0)


def test_a_start_between_two_failed_ones_breaks_the_row() -> None:
    assert not is_open(happen("failed_start", "started", "failed_start"))


def test_three_crashes_or_time_outs_on_three_inputs_open_it_and_on_two_do_not() -> None:
    assert is_open(happen(("crashed", "a"), ("timed_out", "b"), ("no_reply", "c")))
    assert not is_open(happen(("crashed", "a"), ("crashed", "b"), ("crashed", "a"), ("crashed", "b")))


def test_an_answer_between_crashes_breaks_the_row() -> None:
    assert not is_open(happen(("crashed", "a"), ("crashed", "b"), "ok", ("crashed", "c")))


def test_starting_again_after_a_crash_does_not_break_the_row() -> None:
    assert is_open(happen(("crashed", "a"), "started", ("crashed", "b"), "started", ("crashed", "c")))


@pytest.mark.parametrize("kind", NEVER_COUNT)
def test_what_an_input_can_cause_never_counts(kind: str) -> None:
    before = happen(("crashed", "a"), ("crashed", "b"))
    assert after(before, kind, "", "c", 0.0) is before


def test_an_absent_accelerator_opens_it_at_once() -> None:
    assert is_open(happen("accelerator"))
    assert is_open(happen("no_accelerator"))


def test_each_failed_try_doubles_the_wait_up_to_half_an_hour() -> None:
    state, now_s, waits = happen("failed_start", "failed_start"), 0.0, []
    for _ in range(8):
        assert state is not None and state.next_try_s is not None
        waits.append(state.next_try_s - now_s)
        now_s = state.next_try_s
        state = happen("failed_start", state=state, now_s=now_s)
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0, 1800.0]


def test_a_failure_of_what_was_still_running_does_not_lengthen_the_wait() -> None:
    state = happen("failed_start", "failed_start", now_s=0.0)
    later = happen(("crashed", "a"), state=state, now_s=30.0)
    assert later is not None and later.next_try_s == 60.0 and later.failures == 3


def test_it_closes_by_itself_by_a_start_or_by_an_answer() -> None:
    starts = happen("failed_start", "failed_start")
    assert happen("started", state=starts) == BreakerState()
    crashes = happen(("crashed", "a"), ("crashed", "b"), ("crashed", "c"))
    assert is_open(happen("started", state=crashes))
    assert happen("ok", state=crashes) == BreakerState()


def test_a_clean_provider_stays_clean() -> None:
    assert happen("started") is None and happen("ok") is None


@given(st.lists(st.tuples(st.sampled_from([*NEVER_COUNT, "ok", "started"]), st.text())))
def test_no_run_of_bad_inputs_opens_it(events: list[tuple[str, str]]) -> None:
    assert not is_open(happen(*events))


@given(
    st.lists(
        st.tuples(st.sampled_from(["crashed", "failed_start", "ok", "started", "accelerator"]), st.text(max_size=3))
    )
)
def test_an_answer_always_closes_it(events: list[tuple[str, str]]) -> None:
    assert not is_open(happen(*events, "ok"))


def test_who_asks_for_another_time_is_left_alone_until_then_and_no_failure_is_counted() -> None:
    state = put_off(None, "the licence server is busy", 160.0, 100.0)
    assert state == BreakerState(0, (), "the licence server is busy", 100.0, 160.0)
    assert happen("started", state=state, now_s=170.0) == BreakerState()


def test_asking_for_another_time_neither_breaks_a_row_of_failures_nor_adds_to_it() -> None:
    once = put_off(happen("failed_start"), "busy", 60.0, 0.0)
    assert once.failures == 0 and is_open(happen("failed_start", state=once, now_s=70.0))
    crashes = happen(("crashed", "a"), ("crashed", "b"), ("crashed", "c"))
    put = put_off(crashes, "busy", 60.0, 0.0)
    assert put.failures == 3 and is_open(happen("started", state=put, now_s=70.0))


@pytest.mark.parametrize(("text", "opens"), [(OWN_TIME, False), ("no sign of life for request_timeout_s = 60 s", True)])
def test_time_outs_count_unless_the_job_set_the_limit_itself(text: str, opens: bool) -> None:
    state: BreakerState | None = None
    for number in range(3):
        state = after(state, "timed_out", text, f"input {number}", 1000.0)
    assert is_open(state) == opens
