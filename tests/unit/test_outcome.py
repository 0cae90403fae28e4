"""How a worker ended is told in English, whatever its exit status."""

from __future__ import annotations

import pytest

from scheduler.model.outcome import TERMINATED, exit_words
from scheduler.rules.deaths import death


@pytest.mark.parametrize(
    ("code", "text", "told"),
    [
        (9, "", "the worker ended with exit code 9"),
        (1, "out of cheese", "the worker ended with exit code 1: out of cheese"),
        (-9, "", "the worker was killed by SIGKILL"),
        (-200, "", "the worker was killed by signal 200"),
    ],
)
def test_a_death_is_told_as_a_sentence(code: int, text: str, told: str) -> None:
    assert death("", code, text, told=False).text == told


@pytest.mark.parametrize("code", [3, 5, 75])
def test_a_code_that_is_a_contract_is_told_with_what_it_means(code: int) -> None:
    assert exit_words(code).startswith(f"exit {code}: ")


@pytest.mark.parametrize("code", TERMINATED)
def test_an_end_by_a_terminate_that_schedq_did_not_send_is_a_loss_and_no_crash(code: int) -> None:
    assert death("", code, "bye", told=False).kind == "lost"
    assert death("timed_out: too long", code, "bye", told=False).kind == "timed_out"


def test_whatever_a_worker_ends_with_once_its_keeper_was_told_to_terminate_it_is_lost() -> None:
    assert [death("", code, "", told=True).kind for code in (0, 1, -9, 3, None)] == ["lost"] * 5
