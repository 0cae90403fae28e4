"""What a manifest's `expect` may say: every slip is an error with its key and the fix, what is meant is taken."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_expectation import JSON

from scheduler.declared.expecting import unmeant
from scheduler.rules.expectation import Outputs, judge


def told(text: str) -> list[str]:
    return list(unmeant(tomllib.loads(text), "validation[0].expect"))


@pytest.mark.parametrize(
    "text",
    [
        '"/a" = 1',
        '"" = {exists = true}',
        '"/a" = {value = {x = 1}, rel = 0.1}',
        '"/a" = {min = 1, max = 1}',
        '"/a" = {exists = false}',
        '"/a" = [{min = 1}]',
        'files = ["*.cif"]',
        'files = {"*.cif" = true, "*.pdb" = false, "a/**" = {min_bytes = 1, exists = true}}',
    ],
)
def test_what_is_meant_is_taken(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "key", "fix"),
    [
        ('"/a" = {mni = 0.5}', "./a.mni = 0.5: ", "did you mean min?"),
        ('"/a" = {minimum = 0.5}', "./a.minimum = 0.5: ", "did you mean min?"),
        ('"/a" = {value = 1, tolerance = 0.5}', "./a.tolerance = 0.5: ", "did you mean abs?"),
        ('"/a" = {value = 1, foo = 2}', "./a.foo = 2: ", "an expectation is a value, {value, abs, rel}"),
        ('"/a" = {x = 1}', './a = {"x": 1}: ', "write {value = {...}} to expect a table"),
        ('"/a" = {}', "./a = {}: ", "says nothing to expect"),
        ('"/a" = {min = "0.5"}', './a.min = "0.5": ', "write min = 0.5, without quotes"),
        ('"/a" = {max = true}', "./a.max = true: ", "must be a number"),
        ('"/a" = {abs = 0.5}', "./a.abs = 0.5: ", "how near to what? add value"),
        ('"/a" = {value = 1, rel = -0.5}', "./a.rel = -0.5: ", "at least 0"),
        ('"/a" = {min = 2, max = 1}', "./a.min = 2: ", "swap them"),
        ('"/a" = {value = 2, max = 1}', "./a = ", "keep one of them"),
        ('"/a" = {exists = "no"}', './a.exists = "no": ', "true or false"),
        ('"/a" = {exists = false, min = 1}', "./a.exists = false: ", "min says of what is"),
        ("a = 1", ".a = 1: ", 'write "/a", the place in the reply'),
        ('"confidence/iptm" = 1', ".confidence/iptm = 1: ", 'write "/confidence/iptm"'),
        ("file = []", ".file = []: ", "did you mean files?"),
        ("files = true", ".files = true: ", "must be a table of globs"),
        ('files = {"/etc/*" = true}', "./etc/* = true: ", "leads out"),
        ('files = {"../*" = true}', "files.../* = true: ", "leads out"),
        ('files = ["../x"]', "files.../x = true: ", "leads out"),
        ('files = {"*" = 5}', "files.* = 5: ", "must be true, false, or a table"),
        ('files = {"*" = {min_byte = 5}}', "files.*.min_byte = 5: ", "did you mean min_bytes?"),
        ('files = {"*" = {min_bytes = 1.5}}', "files.*.min_bytes = 1.5: ", "whole number"),
        ('files = {"*" = {sha256 = "ab"}}', 'files.*.sha256 = "ab": ', "64 hex digits"),
        ('files = {"*" = {exists = false, min_bytes = 5}}', "files.*.exists = false: ", "min_bytes says of what is"),
    ],
)
def test_a_slip_is_named_by_its_key_with_the_fix(text: str, key: str, fix: str) -> None:
    [fault] = told(text)
    assert fault.startswith("validation[0].expect") and key in fault and fix in fault


@given(
    st.dictionaries(
        st.sampled_from(["/a", "/b/0", "", "files"]),
        JSON | st.dictionaries(st.sampled_from(["value", "min", "max", "abs", "rel", "exists", "*.x"]), JSON),
    ),
    JSON,
)
def test_whatever_is_taken_can_be_judged(expect: dict[str, object], reply: object) -> None:
    if not list(unmeant(expect, "expect")):
        judge(expect, reply, Outputs())
