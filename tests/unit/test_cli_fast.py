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
        ("run", "run needs SLUG"),
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


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["submit", "echo", "a.json", "--priority", "9" * 20], "--priority .*out of bounds"),
        (["submit", "echo", "a.json", "--priority", "9" * 5000], "--priority .*out of bounds"),
        (["log", "1", "--attempt", "9" * 20], "--attempt .*out of bounds"),
        (["wait", "1", "--timeout", "9" * 400 + "s"], "--timeout"),
        (["status", "--since", "99999999d"], "--since"),
        (["status", "--name", "caf\udce9"], "--name .*not UTF-8"),
        (["cancel", "--batch", "caf\udce9"], "--batch .*not UTF-8"),
        (["run", "echo", "--param=say=caf\udce9"], "--param .*not UTF-8"),
        (["result", "1", "--pointer", "/caf\udce9"], "--pointer .*not UTF-8"),
    ],
    ids=lambda each: " ".join(each)[:40] if isinstance(each, list) else "",
)
def test_a_value_that_cannot_be_meant_is_a_usage_error(argv: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        call = parse(VERBS[argv[0]], argv[1:])
        call.whole("priority"), call.whole("attempt"), call.duration_s("timeout"), call.duration_s("since")


def test_a_path_may_be_any_bytes() -> None:
    call = parse(VERBS["result"], ["1", "--output", "caf\udce9"])
    assert call.text("output") == "caf\udce9"
