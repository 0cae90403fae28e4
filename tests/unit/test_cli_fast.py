"""argv to values without a framework: what is wrong with a call is said with the way out."""

from __future__ import annotations

import pytest

from scheduler.cli.fast import Call, parse
from scheduler.cli.grammar import VERBS
from scheduler.errors import UsageError


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("submit boltz --overwritee a", "did you mean --overwrite"),
        ("submit boltz --hol a", "--hol"),
        ("submit boltz --zzz a", "schedq submit --help"),
        ("submit boltz a --name", "--name needs a value: --name NAME"),
        ("submit boltz a --overwrite=yes", "--overwrite takes no value"),
        ("submit", "submit needs SLUG"),
        ("show", "show needs ID"),
        ("show 1 2", "show does not take '2'"),
        ("log 1 -x", "log has no option -x"),
    ],
)
def test_a_wrong_call_is_a_usage_error_that_says_what_is_right(line: str, told: str) -> None:
    verb, *argv = line.split(" ")
    with pytest.raises(UsageError) as caught:
        parse(VERBS[verb], argv)
    assert told in str(caught.value)
    assert caught.value.exit_code == 2


def test_options_may_stand_anywhere_and_a_double_dash_ends_them() -> None:
    call = parse(VERBS["submit"], ["--overwrite", "boltz", "--name=x", "a.json", "--", "--b.json"])
    assert call.flag("overwrite")
    assert call.text("name") == "x"
    assert call.many("input") == ["a.json", "--b.json"]


def test_a_single_dash_is_an_input_and_the_last_of_two_values_counts() -> None:
    call = parse(VERBS["submit"], ["boltz", "-", "--name", "a", "--name", "b", "--param", "a=1", "--param", "b=2"])
    assert call.many("input") == ["-"]
    assert call.text("name") == "b"
    assert call.many("param") == ["a=1", "b=2"]


def test_what_was_not_given_is_none_and_numbers_are_checked() -> None:
    call = Call("submit", {"priority": "-3", "timeout": "90s", "key": "x"})
    assert call.whole("priority") == -3
    assert call.duration_s("timeout") == 90.0
    assert call.text("name") is None and call.whole("attempt") is None and call.duration_s("since") is None
    with pytest.raises(UsageError, match="--priority 'high' is not a whole number"):
        Call("submit", {"priority": "high"}).whole("priority")
    with pytest.raises(UsageError, match=r"--timeout '90'.*90s"):
        Call("submit", {"timeout": "90"}).duration_s("timeout")
