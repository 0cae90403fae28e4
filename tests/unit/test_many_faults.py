"""Many bad rows at once: summed up by what is wrong, the first named, all of them in a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scheduler.errors import InvalidInput, Refused, SchedqError, UsageError, all_of
from scheduler.night import faults
from scheduler.night.faults import kind_of, summed


def many(count: int = 30) -> list[tuple[int, str, SchedqError]]:
    made: list[tuple[int, str, SchedqError]] = []
    for n in range(1, count + 1):
        if n % 3:
            made.append((n, f"line {n}", UsageError(f"in/name {n}.json is not there; correct the path")))
        else:
            made.append((n, f"line {n}", InvalidInput(f"line {n}: at /items/{n}/x: must be text, not {n}")))
    return made


def test_what_differs_from_row_to_row_makes_no_kind_of_its_own() -> None:
    for one, other in (
        (("line 1", "a/b.json is not there; correct it"), ("line 22", "/c/d/e.json is not there; correct it")),
        (("a.json", "a.json is empty (0 bytes)"), ("other.json", "other.json is empty (0 bytes)")),
        (("line 1", "line 1: at /x/1/y: must be text, not 5"), ("line 2", "line 2: at /x/2/y: must be text, not 71")),
        (("line 1", "no provider 'ecko'; did you mean echo?"), ("line 2", "no provider 'ekko'; did you mean echo?")),
        (("l", "has 3 cells"), ("m", "has 12 cells")),
    ):
        assert kind_of(*one) == kind_of(*other)
    assert kind_of("a", "at /x/y: must be text") != kind_of("a", "at /x/z: must be text")


def test_a_kind_is_found_without_a_pattern_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re, "escape", lambda _text: pytest.fail("a pattern is made for each row, which takes long"))
    for named, text, kind in (
        ("line 1", "line 1: not line 12, nor a line 1", "#: not line 0, nor a #"),
        ("a", "a b_a aa: a", "# b_a aa: #"),
        ("", "3 cells", "0 cells"),
        ("x", "x", "#"),
    ):
        assert kind_of(named, text) == kind


def test_they_are_summed_by_kind_and_all_stand_in_a_file_beside(tmp_path: Path) -> None:
    source = tmp_path / "jobs.jsonl"
    told = summed(many(), 100, str(source)).splitlines()
    assert told == [
        "30 of 100 jobs cannot be queued, so none was:",
        "  20 like line 1: in/name 1.json is not there; correct the path",
        "    lines 1, 2, 4, 5, 7 and 15 more",
        "  10 like line 3: at /items/3/x: must be text, not 3",
        "    lines 3, 6, 9, 12, 15 and 5 more",
        f"all of them: {source}.faults.txt",
    ]
    lines = (tmp_path / "jobs.jsonl.faults.txt").read_text().splitlines()
    assert lines[0].startswith(f"# schedq submit: 30 of 100 jobs of {source} cannot be queued")
    assert len(lines) == 31
    assert lines[1] == "line 1: in/name 1.json is not there; correct the path"


def test_the_file_takes_the_place_of_an_earlier_one_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert summed(many(), 30, "").endswith("all of them: submit.faults.txt")
    assert summed(many(), 30, "-").endswith("all of them: submit.faults.txt")
    (tmp_path / "submit.faults.txt").write_text("mine")
    assert summed(many(), 30, "").endswith("all of them: submit.2.faults.txt")
    assert (tmp_path / "submit.faults.txt").read_text() == "mine"


def test_where_the_folder_of_the_jobs_file_cannot_be_written_the_file_is_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert summed(many(), 30, "gone/jobs.csv").endswith("all of them: jobs.csv.faults.txt")
    monkeypatch.setattr(faults, "_free", lambda base: f"gone/{base}")
    assert "the file of all of them cannot be written: gone/gone/jobs.csv: No such file" in summed(
        many(), 30, "gone/jobs.csv"
    )


def test_more_kinds_than_can_be_read_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = "abcdefghijklmnopqrstuvwxyz"
    told = summed([(n, f"f{n}", Refused(f"because of {word}")) for n, word in enumerate(words)], 26, "")
    assert "  and 18 other kinds of fault" in told.splitlines()
    assert "  1 like f0: because of a" in told.splitlines()


def test_a_call_of_one_has_its_own_error_and_of_many_the_kind_that_weighs_most() -> None:
    alone = Refused("no")
    assert all_of([(0, "a", alone)], 1) is alone
    both = all_of([(1, "b", UsageError("wrong")), (0, "a", Refused("a: no"))], 5)
    assert (type(both), str(both)) == (
        UsageError, "2 of 5 inputs cannot be queued, so none was:\n  a: no\n  b: wrong",
    )  # fmt: skip
    assert [where for _, where, _ in both.faults] == ["a", "b"]
    assert type(all_of([(0, "a", InvalidInput("no"))], 2)) is InvalidInput
    assert str(all_of(many(), 99)).endswith("\n  and 10 more")


def test_what_is_said_of_many_alike_is_said_once_with_their_count() -> None:
    same = [(n, f"line {n}", UsageError("no such thing")) for n in range(1, 8)]
    assert str(all_of([*same], 7, "jobs")).splitlines()[1:] == ["  all 7: no such thing"]
    told = str(all_of([*same, (9, "line 9", Refused("other"))], 9, "jobs")).splitlines()
    assert told[1:] == ["  line 1, line 2, line 3 and 4 more: no such thing", "  line 9: other"]
    only = all_of([(0, "line 1", Refused("no"))], 1)
    assert (type(only), str(only)) == (Refused, "line 1: no")
