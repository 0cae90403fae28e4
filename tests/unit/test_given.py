"""The Python API's arguments: what people naturally give works, everything else is refused by name, value and need."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.client import Client
from scheduler.errors import InvalidInput, SchedqError, UsageError
from scheduler.store import peek

MANIFEST = (
    'slug = "echo"\nmode = "resident"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
    '[worker]\npython = "/usr/bin/python3"\nscript = "w.py"\n'
    '[input]\naccept = [".json"]\nschema = "s.json"\nparams = "p.json"\n'
)
GOOD = {"say": "x"}


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    folder = tmp_path / "manifests" / "echo"
    folder.mkdir(parents=True)
    (folder / "provider.toml").write_text(MANIFEST)
    (folder / "w.py").touch()
    (folder / "s.json").write_text('{"type": "object", "required": ["say"]}')
    (folder / "p.json").write_text('{"type": "object", "properties": {"set": {"type": "string"}}}')
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(tmp_path / "manifests"))
    with Client(tmp_path / "home") as made:
        yield made


def refused(call: Any) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_path_can_be_a_pathlib_path_wherever_a_path_is_taken(queue: Client, tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps(GOOD))
    job = queue.submit("echo", source, out=tmp_path / "out" / "{name}")
    shown = queue.status(job)
    assert shown["input_name"] == "in.json" and shown["out"] == str(tmp_path / "out" / "in")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_bytes_of_a_file_can_be_any_bytes(queue: Client, kind: Any) -> None:
    job = queue.submit("echo", kind(json.dumps(GOOD).encode()))
    assert peek.input_bytes(queue.paths, job) == json.dumps(GOOD).encode()


def test_none_is_an_option_that_is_not_given(queue: Client) -> None:
    job = queue.submit("echo", GOOD, params=None, name=None, key=None, batch=None, out=None)  # type: ignore[arg-type]
    shown = queue.status(job)
    assert (shown["name"], shown["key"], shown["batch"], shown["out"]) == ("input", None, None, None)


def test_one_id_is_as_good_as_a_list_of_one(queue: Client) -> None:
    job = queue.submit("echo", GOOD)
    assert queue.cancel(job) == [(job, "queued", "cancelled")]
    assert queue.wait(job, timeout_s=5) == {job: "cancelled"} == queue.wait([job, job])


@pytest.mark.parametrize("what", ["slug", "name", "key", "batch"])
@pytest.mark.parametrize("value", [5, b"x", "a\0b", "\udcff", ["x"]])
def test_text_is_text_that_can_be_stored(queue: Client, what: str, value: Any) -> None:
    options = {"slug": "echo", "input": GOOD, what: value}
    said = refused(lambda: queue.submit(**options))
    assert said.startswith(f"{what} = ") and "must be text" in said
    assert queue.status()["jobs"] == []


def test_a_slug_has_to_be_named(queue: Client) -> None:
    assert "slug = None: must be a provider's name" in refused(lambda: queue.submit(None, GOOD))  # type: ignore[arg-type]
    assert "slug = ''" in refused(lambda: queue.submit("", GOOD))


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (5, "input = 5: must be a path, the bytes of a file, or a JSON document"),
        (None, "input = None"),
        ({"say"}, "input = {'say'}"),
        ({1: "x"}, "the key 1 is no text"),
        ({"say": {("a",): 1}}, "keys must be str"),
        ({"say": [{"deep": {2: 1}}]}, "the key 2 is no text"),
        ({"say": {"x"}}, "not JSON serializable"),
        (CIRCLE, "it holds itself"),
    ],
)
def test_a_document_is_what_json_has(queue: Client, value: Any, told: str) -> None:
    assert told in refused(lambda: queue.submit("echo", value))


def test_a_number_that_json_has_not_is_refused_where_it_stands(queue: Client) -> None:
    with pytest.raises(InvalidInput, match=r"the input: line 1, column 9: NaN is no JSON number"):
        queue.submit("echo", {"say": math.nan})


@pytest.mark.parametrize("value", ["in/ok.json", b"{}", bytearray(b"{}"), {"say": "x"}, 5, None, Path("in.json")])
def test_several_inputs_are_a_list_and_never_taken_apart(queue: Client, value: Any) -> None:
    assert "inputs = " in refused(lambda: queue.submit_many("echo", value))


def test_several_inputs_can_come_from_anything_that_yields_them(queue: Client) -> None:
    assert queue.submit_many("echo", (GOOD for _ in range(3)), batch="b") == [1, 2, 3]


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ("set=ab9", "params = 'set=ab9': must be a dict, or a list of NAME=VALUE"),
        (5, "params = 5"),
        ([5], "params = 5"),
        ({5: "x"}, "params = 5: must be text"),
        ({"set": {1, 2}}, "params['set'] = {1, 2}: must be a JSON value"),
    ],
)
def test_parameters_are_a_dict_or_words(queue: Client, params: Any, told: str) -> None:
    assert told in refused(lambda: queue.submit("echo", GOOD, params=params))


@pytest.mark.parametrize("value", ["x", 1.5, 2**63, -(2**63) - 1, True, None])
def test_a_priority_is_a_whole_number_that_the_database_keeps(queue: Client, value: Any) -> None:
    assert f"priority = {value!r}: must be a whole number" in refused(
        lambda: queue.submit("echo", GOOD, priority=value)
    )


@pytest.mark.parametrize("value", [-1, 0, "5", math.nan, math.inf, 1e-9, 1e12, True])
def test_an_attempts_time_is_a_finite_number_of_seconds(queue: Client, value: Any) -> None:
    assert "timeout_s = " in refused(lambda: queue.submit("echo", GOOD, timeout_s=value))
    assert queue.status()["jobs"] == []


@pytest.mark.parametrize("value", [-1, "5", math.nan, math.inf])
def test_patience_is_a_finite_number_of_seconds(queue: Client, value: Any) -> None:
    job = queue.submit("echo", GOOD)
    assert "or None for no limit" in refused(lambda: queue.wait(job, timeout_s=value))


@pytest.mark.parametrize("value", [2**63, -1, "1", 1.0, True, None, b"1"])
def test_an_id_is_a_whole_number(queue: Client, value: Any) -> None:
    queue.submit("echo", GOOD)
    for call in (queue.cancel, queue.wait):
        assert "ids = " in refused(lambda call=call: call([value]))
    assert "ids = " in refused(lambda: queue.wait(value))
    for ask in (queue.result, queue.reply, *([queue.status] if value is not None else [])):
        assert "id = " in refused(lambda ask=ask: ask(value))


def test_a_flag_and_a_pointer_are_what_they_are(queue: Client) -> None:
    job = queue.submit("echo", GOOD)
    assert "overwrite = 'no'" in refused(lambda: queue.submit("echo", GOOD, overwrite="no"))  # type: ignore[arg-type]
    assert "pointer = 5" in refused(lambda: queue.result(job, 5))  # type: ignore[arg-type]
    assert "home = 5" in refused(lambda: Client(5))  # type: ignore[arg-type]
    assert "out = 5" in refused(lambda: queue.submit("echo", GOOD, out=5))  # type: ignore[arg-type]


def test_any_value_for_any_argument_raises_only_our_errors(queue: Client) -> None:
    odd = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.binary(max_size=6),
        st.sets(st.integers(), max_size=2), st.lists(st.integers() | st.text(max_size=3), max_size=2),
        st.dictionaries(st.integers() | st.text(max_size=3), st.integers() | st.binary(max_size=2), max_size=2),
        st.just(object()), st.complex_numbers(), st.just(10**30),
    )  # fmt: skip
    names = ("slug", "input", "params", "name", "priority", "key", "batch", "timeout_s", "out", "overwrite")

    @settings(max_examples=100, deadline=None)
    @given(what=st.sampled_from(names), value=odd, ids=odd)
    def holds(what: str, value: Any, ids: Any) -> None:
        options = {"slug": "echo", "input": GOOD, what: value}
        slug, source = options.pop("slug"), options.pop("input")
        for call in (
            lambda: queue.checked(slug, [source], **options),
            lambda: queue.submit_many("echo", value if not isinstance(value, list) else [5]),
            lambda: queue.result(ids),
            lambda: queue.cancel(ids),
            lambda: queue.wait(ids, timeout_s=0) if ids != [] else None,
        ):
            try:
                call()
            except SchedqError as error:
                assert str(error)

    holds()
