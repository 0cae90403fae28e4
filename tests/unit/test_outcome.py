"""How a worker ended is told in English, whatever its exit status."""

from __future__ import annotations

import pytest

from scheduler import record
from scheduler.model.outcome import exit_words


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
    assert record._death("", code, text).text == told


@pytest.mark.parametrize("code", [3, 5, 75])
def test_a_code_that_is_a_contract_is_told_with_what_it_means(code: int) -> None:
    assert exit_words(code).startswith(f"exit {code}: ")
