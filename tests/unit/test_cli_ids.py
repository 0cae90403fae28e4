"""Which jobs a call means."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.cli import ids
from scheduler.cli.fast import Call
from scheduler.config import Paths
from scheduler.errors import NoSuchJob, UnknownProvider, UsageError


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


def test_ids_ranges_and_lists_come_in_order_and_once(paths: Paths) -> None:
    assert ids.numbers(["7", "3-5,12", "4"], paths) == [7, 3, 4, 5, 12]


@pytest.mark.parametrize("word", ["x", "", "3-", "-3", "3-x", "1.5", "9-3", "1-99999999", "٣", "1" * 30])
def test_what_is_no_id_is_said_to_be_none(word: str, paths: Paths) -> None:
    with pytest.raises(UsageError):
        ids.numbers([word], paths)


def test_last_of_an_empty_queue_is_no_such_job(paths: Paths) -> None:
    with pytest.raises(NoSuchJob, match="schedq submit"):
        ids.numbers(["last"], paths)


def test_a_verb_of_one_job_refuses_two(paths: Paths) -> None:
    with pytest.raises(UsageError, match="names 2 jobs"):
        ids.one("3-4", paths)


def test_a_slip_in_the_name_of_a_provider_is_not_taken_for_nothing_to_do(paths: Paths) -> None:
    with pytest.raises(UnknownProvider, match="did you mean capiti"):
        ids.chosen(Call("wait", {"slug": "capity"}), paths)
    assert ids.chosen(Call("wait", {"slug": "capiti"}), paths) == []


def test_ids_and_filters_are_not_mixed_and_one_of_them_is_needed(paths: Paths) -> None:
    with pytest.raises(UsageError, match="ids or filters, not both"):
        ids.chosen(Call("cancel", {"ids": ["7"], "batch": "night"}), paths)
    with pytest.raises(UsageError, match="cancel needs jobs"):
        ids.needed(Call("cancel", {"ids": []}), paths)


def test_filters_are_checked_against_the_known_words() -> None:
    with pytest.raises(UsageError, match="--state 'runing' is none of queued"):
        ids.filters(Call("status", {"state": "runing"}))
    given = ids.filters(Call("status", {"mine": True, "since": "2h", "slug": "boltz"}))
    assert set(given) == {"user", "since", "slug"}
    assert str(given["since"]).endswith("Z")
