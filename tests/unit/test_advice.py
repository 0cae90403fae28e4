"""The three commands that a night needs: what stands in the way first, and always three."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.rules.advice import Failure, Morning, next_steps


def commands(**over: Any) -> list[str]:
    morning = Morning(**{"those": "--batch night", "page": "report night --html report.html", **over})
    return [command for command, _ in next_steps(morning)]


CRASHED, WRONG = Failure("crashed", 3, 12), Failure("check", 9, 7, "result")


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"good": 9, "good_id": 4}, ["table --batch night", "result 4", "report night --html report.html"]),
        ({"failures": (CRASHED,)}, ["log 12", "requeue --batch night --outcome crashed"]),
        ({"failures": (WRONG,)}, ["result 7"]),
        ({"failures": (WRONG, CRASHED)}, ["result 7", "requeue --batch night --outcome crashed"]),
        ({"failures": (CRASHED,), "broken": ("boltz",)}, ["providers reset boltz", "log 12"]),
        ({"open": 5, "scheduler": False, "first_open_id": 8}, ["up", "why 8"]),
        ({"open": 5, "first_open_id": 8}, ["why 8", "wait --batch night"]),
        ({"good": 1, "underdeclared": (("boltz", 30.1, 28.0),)}, ["measure boltz --write", "table --batch night"]),
    ],
)
def test_the_most_urgent_comes_first(over: dict[str, Any], expected: list[str]) -> None:
    assert commands(**over)[: len(expected)] == expected


@pytest.mark.parametrize(
    "over",
    [{}, {"open": 1}, {"good": 1}, {"failures": (CRASHED,)}, {"failures": (WRONG,), "open": 3, "broken": ("a", "b")}],
)
def test_there_are_always_three_and_none_twice(over: dict[str, Any]) -> None:
    found = commands(**over)
    assert len(found) == 3
    assert len(set(found)) == 3


def test_what_another_try_cannot_change_is_not_tried_again_unasked() -> None:
    found = commands(failures=(Failure("error", 3, 5),))
    assert found[0] == "log 5"
    assert "requeue --batch night --outcome error --dry-run" in found


def test_what_succeeded_and_is_not_as_expected_is_not_requeued() -> None:
    assert not [each for each in commands(failures=(WRONG,), good=3, good_id=1) if each.startswith("requeue")]
    [told] = [
        why for each, why in next_steps(Morning("-", "page", failures=(WRONG, Failure("error", 2, 3)))) if "req" in each
    ]
    assert told == "2 jobs, once the cause is mended"


def test_each_says_what_it_is_for_in_numbers() -> None:
    told = dict(next_steps(Morning("--batch b", "report b --html r.html", failures=(CRASHED,), good=1)))
    assert told["log 12"] == "what its worker wrote: the first of 3"
    assert told["requeue --batch b --outcome crashed"] == "another try for 3 jobs"


def test_what_never_ran_is_shown_and_requeued_by_what_it_ended_as() -> None:
    found = commands(failures=(Failure("refused", 20, 12, "show"),))
    assert found[:2] == ["show 12", "requeue --batch night --outcome refused --dry-run"]


@pytest.mark.parametrize("failure", [Failure("refused", 2, 12, final=True), Failure("parent_failed", 2, 12, "show")])
def test_what_would_be_refused_again_is_not_requeued(failure: Failure) -> None:
    assert not [each for each in commands(failures=(failure,)) if each.startswith("requeue")]


def test_jobs_that_no_filter_finds_are_named_by_their_ids_or_only_listed() -> None:
    of_time = {"those": "--since 20:00", "exact": False, "failures": (CRASHED, Failure("lost", 1, 40))}
    assert commands(**of_time, named={"crashed": "12-13,20", "lost": "40"})[1] == "requeue 12-13,20,40"
    assert commands(**of_time, named={"crashed": "12-13,20"})[1] == (
        "requeue --since 20:00 --outcome crashed,lost --dry-run"
    )
    assert commands(those="3-90", exact=False, awaited="80-90", open=11)[0] == "wait 80-90"
