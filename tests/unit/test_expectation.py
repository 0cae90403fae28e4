"""What a validation case expects, and what is said of a reply that is not so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.rules.expectation import ENDINGS, Fault, File, Outputs, globs, judge, standing

REPLY = {
    "said": "hello", "count": 1, "done": True, "nothing": None, "score": 0.3, "a/b": {"~": 5}, "": "empty",
    "confidence": [{"iptm": 0.81, "ptm": 0.5}, {"iptm": float("nan")}], "big": float("inf"),
}  # fmt: skip


def faults(expect: dict[str, Any], reply: Any = REPLY, outputs: Outputs | None = None) -> list[Fault]:
    return judge(expect, reply, outputs or Outputs())


MET: list[tuple[str, Any]] = [
    ("/said", "hello"),
    ("/count", 1.0),
    ("/count", {"min": 1, "max": 1}),
    ("/done", True),
    ("/nothing", None),
    ("/nothing", {"exists": True}),
    ("/missing", {"exists": False}),
    ("/confidence/2", {"exists": False}),
    ("/confidence/0", {"value": {"iptm": 0.81, "ptm": 0.5}}),
    ("/confidence/0", {"value": {"iptm": 0.8, "ptm": 0.5}, "abs": 0.01}),
    ("/confidence/0/iptm", {"min": 0.5}),
    ("/a~1b/~0", 5),
    ("/", "empty"),
    ("", {"exists": True}),
    ("/score", {"value": 0.4, "abs": 0.1}),
    ("/score", {"value": 0.2, "abs": 0.1}),
    ("/score", {"value": 0.4, "rel": 0.25}),
    ("/score", {"value": 0.4, "abs": 0.01, "rel": 0.25}),
    ("/big", {"min": 5}),
]


@pytest.mark.parametrize(("place", "rule"), MET, ids=lambda each: json.dumps(each))
def test_what_is_as_expected_is_no_fault(place: str, rule: Any) -> None:
    assert faults({place: rule}) == []


UNMET: list[tuple[str, Any, str, str]] = [
    ("/said", "bye", '"bye"', '"hello"'),
    ("/done", 1, "1", "true"),
    ("/count", True, "true", "1"),
    ("/said", None, "null", '"hello"'),
    ("/said", {"min": 1}, "at least 1", '"hello", which is no number'),
    ("/done", {"max": 5}, "at most 5", "true, which is no number"),
    ("/count", {"min": 2, "max": 3}, "2 to 3", "1"),
    ("/score", {"value": 0.5, "abs": 0.1}, "0.5 +- 0.1", "0.3"),
    ("/score", {"value": 0.5, "abs": 0.1, "rel": 0.05}, "0.5 +- 0.1 or 5 %", "0.3"),
    ("/confidence/1/iptm", {"min": 0}, "at least 0", "NaN"),
    ("/confidence/1/iptm", {"value": 0.5, "abs": 9.0}, "0.5 +- 9.0", "NaN"),
    ("/big", {"max": 1e300}, "at most 1e+300", "Infinity"),
    ("/missing", 5, "5", "nothing at /missing; at the top there are said, count, done, nothing, score, a/b, ,"
                         " confidence and 1 more"),
    ("/confidence/2/iptm", {"min": 0.5}, "at least 0.5", "nothing at /confidence/2/iptm; at /confidence there is a"
                                                         " list of 2"),
    ("/confidence/00", {"exists": True}, "something", "nothing at /confidence/00; at /confidence there is a list of 2"),
    ("/confidence/-1", {"exists": True}, "something", "nothing at /confidence/-1; at /confidence there is a list of 2"),
    ("/confidence/0/pae", 1, "1", "nothing at /confidence/0/pae; at /confidence/0 there are iptm, ptm"),
    ("/a~1b/x", 1, "1", "nothing at /a~1b/x; at /a~1b there is ~"),
    ("/said/0", 1, "1", 'nothing at /said/0; at /said there is "hello"'),
    ("/score", {"exists": False}, "nothing", "0.3"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "rule", "expected", "found"), UNMET, ids=lambda each: str(each)[:40])
def test_what_is_not_as_expected_is_told_by_its_place_what_was_expected_and_what_is_there(
    place: str, rule: Any, expected: str, found: str
) -> None:
    assert faults({place: rule}) == [Fault(place, expected, found)]


def test_the_first_difference_inside_a_value_is_named() -> None:
    reply = {"x": [1.0, {"y": 2.5, "z": 1}]}
    near = {"value": [1.0, {"y": 2.0, "z": 1}], "abs": 0.1}
    assert faults({"/x": near}, reply)[0].found == '[1.0, {"y": 2.5, "z": 1}]; /1/y is 2.5, not 2.0'
    assert faults({"/x": [1.0]}, reply)[0].found.endswith("it has 2 entries, not 1")
    assert faults({"/x/1": {"value": {"y": 2.5}}}, reply)[0].found.endswith("/z is there, which was not expected")
    assert faults({"/x/1": {"value": {"y": 2.5, "z": 1, "w": 0}}}, reply)[0].found.endswith("/w is not there")


def test_a_long_value_is_shown_short() -> None:
    assert len(faults({"/x": 1}, {"x": "A" * 5000})[0].found) == 100
    assert faults({"/x": 1}, {"x": list(range(5000))})[0].found == "a list of 5000"


def test_every_expectation_that_is_not_met_is_told_in_their_order() -> None:
    assert [each.place for each in faults({"/said": "x", "/count": 1, "/done": False, "/zz": 0})] == [
        "/said", "/done", "/zz",
    ]  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_a_value_is_what_it_is_after_a_way_through_json(value: Any) -> None:
    assert faults({"": {"value": value}}, json.loads(json.dumps(value))) == []


@given(JSON, JSON)
def test_two_values_are_alike_just_when_json_says_so(one: Any, other: Any) -> None:
    alike = faults({"": {"value": one}}, other) == []
    assert alike == (faults({"": {"value": other}}, one) == [])
    if json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True):
        assert alike


@given(st.decimals(-1000, 1000, places=3), st.decimals(0, 10, places=3), st.decimals(-12, 12, places=3))
def test_a_tolerance_is_met_as_decimals_are_written(value: Any, by: Any, off: Any) -> None:
    met = faults({"/x": {"value": float(value), "abs": float(by)}}, {"x": float(value + off)}) == []
    assert met == (abs(off) <= by)


@given(JSON, st.lists(st.text(max_size=3), max_size=4))
def test_any_pointer_into_any_reply_is_answered(reply: Any, parts: list[str]) -> None:
    pointer = "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)
    there, gone = faults({pointer: {"exists": True}}, reply), faults({pointer: {"exists": False}}, reply)
    assert bool(there) != bool(gone)


FILES = Outputs(
    ("log.txt", "out/a.pdb", "out/b.pdb"),
    {
        "**/*.pdb": (File("out/a.pdb", 10, "aa"), File("out/b.pdb", 900, "bb")), "*.cif": (),
        "log.txt": (File("log.txt", 0, "cc"),),
    },
)  # fmt: skip


@pytest.mark.parametrize(
    "rule",
    [
        {"**/*.pdb": True},
        {"**/*.pdb": {"min_bytes": 10}},
        {"*.cif": False},
        {"*.cif": {"exists": False}},
        {"log.txt": {"sha256": "cc", "min_bytes": 0}},
        ["**/*.pdb", "log.txt"],
    ],
    ids=str,
)
def test_files_that_are_there_as_expected_are_no_fault(rule: Any) -> None:
    assert faults({"files": rule}, None, FILES) == []


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (["*.cif"], Fault("files *.cif", "a file", "none; there are log.txt, out/a.pdb, out/b.pdb")),
        (
            {"*.cif": {"min_bytes": 5, "sha256": "aa"}},
            Fault("files *.cif", "a file of at least 5 bytes of this sha256",
                  "none; there are log.txt, out/a.pdb, out/b.pdb"),
        ),
        ({"**/*.pdb": False}, Fault("files **/*.pdb", "no file", "out/a.pdb, out/b.pdb")),
        ({"**/*.pdb": {"min_bytes": 11}}, Fault("files **/*.pdb", "at least 11 bytes", "out/a.pdb has 10")),
        (
            {"**/*.pdb": {"sha256": "cc"}},
            Fault("files **/*.pdb", "sha256 cc", "out/a.pdb has aa, and 1 more differ"),
        ),
    ],
    ids=str,
)  # fmt: skip
def test_files_that_are_not_as_expected_are_named(rule: Any, told: Fault) -> None:
    assert faults({"files": rule}, None, FILES) == [told]


def test_without_outputs_that_is_said() -> None:
    assert faults({"files": ["*.cif"]}, None)[0].found == "none; there are no outputs"


def test_only_files_whose_hash_is_expected_are_hashed() -> None:
    assert globs({"/x": 1, "files": {"a": True, "b": {"sha256": "aa"}}}) == {"a": False, "b": True}
    assert globs({"/x": 1}) == {}


@pytest.mark.parametrize(
    ("state", "outcome", "verdict", "word"),
    [
        ("succeeded", "ok", "passed", "passed"),
        ("succeeded", "ok", "failed", "failed"),
        ("succeeded", "ok", None, "not judged"),
        ("failed", "crashed", None, "did not run"),
        ("failed", "refused", None, "refused"),
        ("refused", "refused", None, "refused"),
        ("cancelled", "cancelled", None, "did not run"),
        ("timed_out", "timed_out", None, "did not run"),
        ("queued", None, None, "waits"),
        ("held", None, None, "waits"),
        ("running", None, None, "waits"),
    ],
)
def test_whether_a_case_passed_is_apart_from_whether_it_ran(
    state: str, outcome: str | None, verdict: str | None, word: str
) -> None:
    assert standing(state, outcome, verdict) == word and word in ENDINGS
