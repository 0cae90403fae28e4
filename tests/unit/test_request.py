"""A request before it is queued: inputs found and read, checked against what the provider accepts, parameters typed."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests_made import BASE, PARAMS, SCHEMA, Manifests

from scheduler import catalog, request
from scheduler.config import Paths
from scheduler.errors import InvalidInput, SchedqError, UsageError

GOOD = b'{"sequences": [{"id": "A"}]}'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifests:
    made = Manifests(tmp_path, monkeypatch)
    made.add()
    return made


@pytest.fixture
def spec(made: Manifests) -> dict[str, Any]:
    return catalog.load(Paths()).spec("fold")


def checked(
    spec: dict[str, Any], data: bytes, name: str = "x.json", folder: str | None = "/", params: Any = None
) -> Any:
    values = request.parameters(spec, []) if params is None else params
    return request.check(spec, data, name, folder, values, Paths())


def refusal(spec: dict[str, Any], data: bytes, name: str = "x.json", folder: str | None = "/") -> str:
    with pytest.raises(InvalidInput) as caught:
        checked(spec, data, name, folder)
    return str(caught.value)


def usage(call: Any, *args: Any) -> str:
    with pytest.raises(UsageError) as caught:
        call(*args)
    return str(caught.value)


# Finding and reading


def test_patterns_are_expanded_and_everything_that_is_missing_is_named(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "[odd].json", "x y.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "d.json").mkdir()
    at = str(tmp_path)
    assert request.expand([f"{at}/?.json", "-", f"{at}/[odd].json"]) == [
        f"{at}/a.json", f"{at}/b.json", "-", f"{at}/[odd].json",
    ]  # fmt: skip
    (tmp_path / "empty").mkdir()
    told = usage(
        request.expand, [f"{at}/aa.json", f"{at}/*.pdb", f"{at}/empty", f"{at}/b.json", "new\nline", "nul\0", ""]
    )
    assert told.split("\n") == [
        f"{at}/aa.json is not there; did you mean {at}/a.json?",
        f"{at}/*.pdb matches no file; correct the pattern",
        f"{at}/empty is a folder, and no file lies in it; name files, or another",
        "'new\\nline' is not there; correct the path",
        "'nul\\x00' is not there; correct the path",
        "'' is not there; correct the path",
    ]


def test_of_a_folder_come_the_files_that_are_accepted_and_the_others_are_told(tmp_path: Path) -> None:
    for name in ("b.pdb", "a.pdb", "c.json", ".d.json", "e.json.gz", "f.JSON", "g.yml"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "inner.pdb").mkdir()
    at = str(tmp_path)

    def found(*accept: str) -> tuple[list[str], list[str]]:
        left_out: list[str] = []
        inside = request.expand([at], list(accept), left_out)
        return [each.removeprefix(f"{at}/") for each in inside], [each.removeprefix(f"{at}/") for each in left_out]

    assert found(".pdb") == (["a.pdb", "b.pdb"], ["c.json", "e.json.gz", "f.JSON", "g.yml", "inner.pdb"])
    assert found(".json", ".yaml") == (["c.json", "f.JSON", "g.yml"], ["a.pdb", "b.pdb", "e.json.gz", "inner.pdb"])
    assert found()[1] == ["inner.pdb"]
    told = usage(request.expand, [at], [".fasta"])
    assert told == f"{at} is a folder, and no file lies in it that ends in .fasta; name files, or another"
    assert "given twice" in usage(request.expand, ["-", "-"])


def test_a_link_that_leads_nowhere_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to("gone.json")
    assert "is a link to gone.json, which is not there" in usage(request.expand, [str(tmp_path / "x.json")])


def test_an_input_is_read_with_its_name_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b.json").write_bytes(GOOD)
    monkeypatch.chdir(tmp_path)
    assert request.read("a b.json") == (GOOD, "a b.json", str(tmp_path))
    odd = os.fsencode(tmp_path) + b"/\xff.json"
    Path(os.fsdecode(odd)).write_bytes(GOOD)
    assert request.read(os.fsdecode(odd))[1] == "\ufffd.json"


def test_what_is_no_file_is_named_for_what_it_is_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert "is a pipe; hand its data over as -" in usage(request.read, str(pipe))
    assert "is a device" in usage(request.read, "/dev/zero")
    assert "is a folder" in usage(request.read, str(tmp_path))
    assert "is not there" in usage(request.read, str(tmp_path / "none.json"))
    assert "is not there" in usage(request.read, str(tmp_path / "pipe.json" / "x"))
    assert "NUL" in usage(request.read, "a\0b")


def test_an_unreadable_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_args: object) -> int:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "x.json"
    path.write_bytes(GOOD)
    monkeypatch.setattr("os.open", forbidden)
    assert "may not be read by you; change its permissions" in usage(request.read, str(path))


def test_a_large_input_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(
        InvalidInput, match=r"has 68157440 bytes \(65.0 MiB\), and an input may have 67108864 \(64.0 MiB\)"
    ):
        request.read(str(path))
    monkeypatch.setenv("SCHEDQ_INPUT_MAX_MIB", "66")
    assert len(request.read(str(path))[0]) == 65 << 20


def test_standard_input_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GOOD)))
    assert request.read("-") == (GOOD, "stdin", None)
    monkeypatch.setenv("SCHEDQ_INPUT_MAX_MIB", "0.00001")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GOOD)))
    with pytest.raises(InvalidInput, match=r"standard input has at least 11 bytes"):
        request.read("-")
    monkeypatch.setattr("sys.stdin", None)
    assert "closed" in usage(request.read, "-")


# Checking


def test_a_good_input_is_described(spec: dict[str, Any]) -> None:
    assert checked(spec, GOOD) == {
        "input_name": "x.json", "input_kind": "json", "input_sha256": hashlib.sha256(GOOD).hexdigest(),
        "input_bytes": len(GOOD), "files": {}, "size": float(len(GOOD)), "params": {"seed": 1},
    }  # fmt: skip
    assert checked(spec, b"sequences: [{id: NO}]", "x.yml")["input_kind"] == "yaml"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "x.json is empty (0 bytes)"),
        (b"{", "line 1, column 2"),
        (b"[1]", "at the top: must be an object, not [1]"),
        (b"{}", 'at the top: lacks "sequences"'),
        (b'{"sequnces": 1}', 'lacks "sequences"; is "sequnces" meant to be it?'),
        (b'{"sequences": []}', "at /sequences: must have at least 1 item, and has 0: []"),
        (b'{"sequences": [{"id": "A"}, {"id": 5}]}', "at /sequences/1/id: must be text, not 5"),
        (b'{"sequences": [{"id": "a"}]}', 'at /sequences/0/id: must match pattern ^[A-Z]+$, and is "a": "a" at 1 is'),
        (b'{"sequences": [{"id": "A", "aaa": 1}]}', 'at /sequences/0: has no key "aaa"; did you mean "aa"?'),
        (b'{"sequences": [{"id": "A"}], "seed": 0.5}', "at /seed: must be a whole number, not 0.5"),
    ],
)  # fmt: skip
def test_a_refused_input_says_where_and_why(spec: dict[str, Any], data: bytes, says: str) -> None:
    assert says in refusal(spec, data)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, 'has no key "Z"; keys match ^[A-C]$;'),
        ({"properties": {"mean": {}}}, 'has no key "Z"; known: "mean"; others match ^[A-C]$;'),
        ({"patternProperties": {"^[A-C]$": {}, "^x-": {}}}, 'has no key "Z"; keys match ^[A-C]$ or ^x-;'),
        ({"patternProperties": {}}, 'has no key "Z"; none is known;'),
    ],
)
def test_keys_that_are_known_by_a_pattern_are_told_by_it(made: Manifests, more: dict[str, Any], says: str) -> None:
    bias = {"patternProperties": {"^[A-C]$": {}}, "additionalProperties": False, **more}
    made.add(schema={"properties": {"bias": bias}})
    assert says in refusal(catalog.load(Paths()).spec("fold"), b'{"bias": {"Z": 1}}')


def test_what_was_filled_in_by_default_is_not_said_to_be_in_the_file(made: Manifests) -> None:
    defaults = {"seed": {"type": "integer", "default": 1}, "sequence": {"type": "boolean", "default": False}}
    schema = {"required": ["sequences"], "properties": {"sequences": {}, **defaults}, "additionalProperties": False}
    made.add(schema=schema, params={"properties": defaults})
    spec = catalog.load(Paths()).spec("fold")
    assert refusal(spec, b"{}").partition(";")[0] == 'x.json: at the top: lacks "sequences"'
    assert "it is empty" in refusal(spec, b"{}")
    assert 'it has "dna";' in refusal(spec, b'{"dna": 1}')
    made.add(schema={"properties": {"seed": {}}, "minProperties": 3}, params={"properties": {"seed": defaults["seed"]}})
    spec = catalog.load(Paths()).spec("fold")
    assert 'must have at least 3 keys, and has 1: {"dna": 1};' in refusal(spec, b'{"dna": 1}')


@pytest.mark.parametrize(
    ("rule", "value", "says"),
    [
        ({"minItems": 2}, [1], "must have at least 2 items, and has 1: [1]"),
        ({"maxItems": 1}, [1, 2], "must have at most 1 item, and has 2: [1, 2]"),
        ({"minLength": 1}, "", 'must have at least 1 character, and has 0: ""'),
        ({"maxLength": 2}, "abc", 'must have at most 2 characters, and has 3: "abc"'),
        ({"minProperties": 1}, {}, "must have at least 1 key, and has 0: {}"),
    ],
)
def test_too_few_and_too_many_are_counted_in_english(made: Manifests, rule: Any, value: Any, says: str) -> None:
    made.add(schema={"properties": {"x": rule}})
    assert says in refusal(catalog.load(Paths()).spec("fold"), json.dumps({"x": value}).encode())


def test_the_first_character_that_a_pattern_does_not_take_is_named(made: Manifests) -> None:
    made.add(schema={"properties": {"x": {"pattern": "^[ACGU]*$"}, "y": {"pattern": "^[A-Z][.]$"}}})
    spec = catalog.load(Paths()).spec("fold")
    assert '): "T" at 401 is none of these;' in refusal(spec, json.dumps({"x": "A" * 400 + "T"}).encode())
    assert 'must match pattern ^[A-Z][.]$, and is "a.";' in refusal(spec, b'{"y": "a."}')


def test_a_parameter_may_be_kept_out_of_the_input(made: Manifests) -> None:
    flag = {"type": "boolean"}
    made.add(
        schema={"properties": {"send": {**flag, "readOnly": True}, "odd": True, "own": {"readOnly": True}}},
        params={"properties": {"send": {**flag, "default": False}, "odd": {}}},
    )
    spec = catalog.load(Paths()).spec("fold")
    assert "at the top: holds send, which counts only as --param send=VALUE" in refusal(spec, b'{"send": true}')
    assert checked(spec, b'{"odd": 1, "own": 1}', params=request.parameters(spec, ["send=true"]))["params"]["send"]


def test_keys_with_strange_characters_are_pointed_at_exactly(made: Manifests) -> None:
    made.add(schema={"additionalProperties": {"additionalProperties": {"type": "integer"}}})
    spec = catalog.load(Paths()).spec("fold")
    assert "at /a~1b.c/~0[0]: must be a whole number" in refusal(spec, b'{"a/b.c": {"ok": 1, "~[0]": "x"}}')
    assert "at /a/b.c: must be a whole number" in refusal(spec, b'{"a.b": {"c": 1}, "a": {"b.c": "x"}}')
    assert "at /a.b/c: must be a whole number" in refusal(spec, b'{"a.b": {"c": "x"}, "a": {"b.c": 1}}')


def test_of_several_forms_the_nearest_is_explained(made: Manifests) -> None:
    chain = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
    forms = [{"required": [kind], "properties": {kind: chain}} for kind in ("protein", "dna")]
    made.add(
        schema={
            "properties": {"items": {"items": {"oneOf": forms}}, "n": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
        }
    )
    spec = catalog.load(Paths()).spec("fold")
    assert 'at /items/0/dna: lacks "id"; it is empty (the nearest of 2 forms)' in refusal(
        spec, b'{"items": [{"dna": {}}]}'
    )
    assert "fits 2 of 2 forms and must fit exactly one" in refusal(
        spec, b'{"items": [{"dna": {"id": "A"}, "protein": {"id": "B"}}]}'
    )
    assert "at /n: fits none of 2 forms: must be text, not 3; or: must be null, not 3" in refusal(spec, b'{"n": 3}')


def test_schemas_of_every_make_are_compiled(made: Manifests) -> None:
    made.add(schema={
        "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.org/x.json",
        "properties": {
            "mail": {"format": "email"}, "expression": {"format": "regex"}, "half": {"multipleOf": 0.5},
            "tree": {"$ref": "https://example.org/x.json#/definitions/tree"}, "day": {"format": "date"},
        },
        "definitions": {"tree": {"items": {"$ref": "#/definitions/tree"}, "type": "array"}},
    })  # fmt: skip
    spec = catalog.load(Paths()).spec("fold")
    checked(spec, b'{"mail": "a@b.de", "expression": "a+", "half": 1.5, "tree": [[], [[]]], "day": "2026-11-29"}')
    for data, at in (
        (b'{"mail": "a"}', "/mail"), (b'{"expression": "("}', "/expression"), (b'{"half": 0.4}', "/half"),
        (b'{"tree": [[1]]}', "/tree/0/0"), (b'{"day": "29.11."}', "/day"),
        (b'{"half": 1' + b"0" * 400 + b"}", "/half"),
    ):  # fmt: skip
        told = refusal(spec, data)
        assert f"at {at}:" in told or "cannot be checked" in told


def test_a_value_that_is_fixed_by_the_schema_is_that_or_refused(made: Manifests) -> None:
    made.add(schema={"properties": {"version": {"const": 1}, "kinds": {"items": {"const": "protein"}}}})
    spec = catalog.load(Paths()).spec("fold")
    checked(spec, b'{"version": 1, "kinds": ["protein"]}')
    assert "at /version: must be 1, not 2" in refusal(spec, b'{"version": 2}')
    assert 'at /kinds/1: must be "protein", not "dna"' in refusal(spec, b'{"kinds": ["protein", "dna"]}')


def test_an_input_of_another_kind_is_told_what_is_taken(spec: dict[str, Any]) -> None:
    assert "x.pdb is a .pdb file, and fold takes .json, .yaml" in refusal(spec, b"ATOM  ", "x.pdb")
    assert "'a b' is without a suffix" in refusal(spec, GOOD, "a b")


def test_other_kinds_are_text_or_bytes_and_meet_no_schema(made: Manifests) -> None:
    made.add(text=BASE.replace('".json", ".yaml"', '".fa", ".pdb", ".csv", ".bin"'))
    spec = catalog.load(Paths()).spec("fold")
    assert checked(spec, b">a\nACGT", "x.fasta")["input_kind"] == "fasta"
    assert checked(spec, b"a,b", "x.csv")["input_kind"] == "text"
    assert checked(spec, b"\xff\0", "x.bin")["input_kind"] == "bytes"
    assert "line 1: the record has no sequence" in refusal(spec, b">a\n", "x.fa")
    assert "byte 1 (0xFF)" in refusal(spec, b">\xff", "x.fa")


def test_standard_input_gets_the_suffix_of_its_kind(spec: dict[str, Any]) -> None:
    assert checked(spec, GOOD, "stdin", None)["input_name"] == "stdin.json"
    assert checked(spec, b"sequences: [{id: A}]", "stdin", None)["input_name"] == "stdin.yaml"


def with_files(made: Manifests, rule: str = '["/sequences/*/msa"]') -> dict[str, Any]:
    made.add(more=f'files = {rule}\nsize = {{ sum_len = "/sequences/*/aa" }}\n')
    return catalog.load(Paths()).spec("fold")


def test_files_that_an_input_names_are_found_beside_it(
    made: Manifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = with_files(made)
    (tmp_path / "msa").mkdir()
    path = tmp_path / "msa" / "a.a3m"
    path.write_bytes(b">a\nAC\n")
    chains = [{"id": "A", "aa": "ACDE", "msa": "msa/a.a3m"}, {"id": "B", "aa": "AC", "msa": str(path)}, {"id": "C"}]
    data = json.dumps({"sequences": [*chains, {"id": "D", "msa": None}]}).encode()
    found = checked(spec, data, folder=str(tmp_path))
    kept = {
        "path": str(path), "sha256": hashlib.sha256(b">a\nAC\n").hexdigest(), "bytes": 6,
        "mtime_ns": path.stat().st_mtime_ns,
    }  # fmt: skip
    assert found["files"] == {"/sequences/0/msa": kept, "/sequences/1/msa": kept}
    assert found["size"] == 6.0
    monkeypatch.chdir(tmp_path)
    assert checked(spec, data, "stdin", None)["files"] == found["files"]
    path.write_bytes(b">a\nACG\n")
    assert checked(spec, data, folder=str(tmp_path))["files"]["/sequences/0/msa"]["bytes"] == 7


def test_files_that_cannot_be_used_are_named_by_pointer_and_path(made: Manifests, tmp_path: Path) -> None:
    spec = with_files(made)
    os.mkfifo(tmp_path / "pipe")
    names: list[object] = ["none.a3m", ".", "pipe", 5, "a\ud800"[:1] + "\0"]
    data = json.dumps({"sequences": [{"id": "A", "msa": name} for name in names]}).encode()
    told = refusal(spec, data, folder=str(tmp_path)).split("\n")
    assert told[0] == "x.json names 5 files that cannot be used:"
    assert told[1] == f'/sequences/0/msa = "none.a3m": {tmp_path}/none.a3m is not there, from the input\'s folder'
    assert "is a folder" in told[2]
    assert "is a pipe" in told[3]
    assert told[4] == "/sequences/3/msa: must be the path of a file, not 5"
    assert "NUL" in told[5]


def test_a_default_of_the_schema_never_gets_into_the_input(made: Manifests) -> None:
    chain = SCHEMA["definitions"]["chain"]
    properties = {**chain["properties"], "msa": {"default": "none.a3m"}}
    made.add(schema={**SCHEMA, "definitions": {"chain": {**chain, "properties": properties}}})
    (made.root / "fold" / "provider.toml").write_text(BASE.replace("{slug}", "fold") + 'files = ["/sequences/*/msa"]\n')
    assert checked(catalog.load(Paths()).spec("fold"), GOOD)["files"] == {}


def test_words_that_stand_where_a_file_could_are_left_alone(made: Manifests) -> None:
    spec = with_files(made, '[{ pointer = "/sequences/*/msa", except = ["empty"] }]')
    assert checked(spec, b'{"sequences": [{"id": "A", "msa": "empty"}]}')["files"] == {}
    assert '"empti"' in refusal(spec, b'{"sequences": [{"id": "A", "msa": "empti"}]}')


# Parameters


def test_parameters_are_typed_by_their_schema(spec: dict[str, Any]) -> None:
    words = ["seed=7", "temperature=1e-1", "fast=True", "mode=beam", 'chains=["A"]', "note=12=x", "limit=null"]
    assert request.parameters(spec, words) == {
        "seed": 7, "temperature": 0.1, "fast": True, "mode": "beam", "chains": ["A"], "note": "12=x", "limit": None,
    }  # fmt: skip
    assert request.parameters(spec, []) == {"seed": 1}
    assert request.parameters(spec, ["limit=3", "temperature=2"]) == {"seed": 1, "limit": 3, "temperature": 2}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("seed=x", "--param seed=x: must be a whole number; allowed: 0 to 9"),
        ("seed=1.5", "--param seed=1.5: must be a whole number"),
        ("seed=10", "allowed: 0 to 9"),
        ("seed=" + "9" * 5000, "must be a whole number"),
        ("temperature=nan", "must be a number"),
        ("temperature=0", "--param temperature=0: must be bigger than 0"),
        ("fast=1", "must be true or false"),
        ("mode=sample", "allowed: greedy, beam"),
        ('mode="greedy"', "allowed: greedy, beam; the quotation marks are part of it: leave them out"),
        ("chains=A,B", "must be a JSON list, like [1, 2]"),
        ("chains=[1]", "at /0: must be text, not 1"),
        ("sed=1", "fold has no such parameter; did you mean seed?; it has chains, fast"),
        ("seed", 'seed" has no value; write it as NAME=VALUE'),
        ("note=\udcff", "must be text"),
    ],
    ids=range(14),
)
def test_a_wrong_parameter_names_itself_its_value_and_what_is_allowed(
    spec: dict[str, Any], word: str, says: str
) -> None:
    assert says in usage(request.parameters, spec, [word])


def test_a_parameter_is_given_once_and_only_where_there_are_some(made: Manifests) -> None:
    made.add("plain", text=BASE.replace('params = "params.schema.json"', ""))
    found = catalog.load(Paths())
    assert "given twice" in usage(request.parameters, found.spec("fold"), ["seed=1", "seed=2"])
    assert "plain takes no parameters" in usage(request.parameters, found.spec("plain"), ["seed=1"])
    assert request.parameters(found.spec("plain"), []) == {}


def test_a_parameter_that_is_needed_is_asked_for(made: Manifests) -> None:
    made.add(params={**PARAMS, "required": ["mode"]})
    assert 'lacks "mode"' in usage(request.parameters, catalog.load(Paths()).spec("fold"), [])


def test_a_default_yields_to_what_the_input_says_and_a_given_value_does_not(spec: dict[str, Any]) -> None:
    data = b'{"sequences": [{"id": "A"}], "seed": 7}'
    assert checked(spec, data)["params"] == {}
    assert checked(spec, data, params=request.parameters(spec, ["seed=1"]))["params"] == {"seed": 1}
    assert checked(spec, data, params={"seed": 1})["params"] == {}
    assert checked(spec, data, params={"seed": 2})["params"] == {"seed": 2}
    assert checked(spec, GOOD)["params"] == {"seed": 1}


def test_parameters_that_the_schema_knows_are_checked_in_their_place(made: Manifests) -> None:
    made.add(schema={**SCHEMA, "required": ["sequences", "seed"]})
    spec = catalog.load(Paths()).spec("fold")
    values = request.parameters(spec, ["fast=true", "seed=3"])
    assert checked(spec, GOOD, params=values)["params"] == {"seed": 3, "fast": True}


def test_the_request_is_the_input_with_the_parameters_over_it() -> None:
    assert request.merged("json", b'{"a": 1, "b": 2}', {"b": 3}) == {"a": 1, "b": 3}
    assert request.merged("yaml", b"chain: NO", {"b": 3}) == {"chain": "NO", "b": 3}
    assert request.merged("json", b"[1]", {"b": 3}) == {"b": 3}
    assert request.merged("fasta", b"\xff", {"b": 3}) == {"b": 3}


# Whatever comes


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(["json", "yaml", "fasta", "text", "bytes"]), data=st.binary(max_size=200))
def test_merging_any_bytes_raises_only_our_errors(kind: str, data: bytes) -> None:
    try:
        assert isinstance(request.merged(kind, data, {"a": 1}), dict)
    except SchedqError as error:
        assert str(error)


@settings(max_examples=200, deadline=None)
@given(sources=st.lists(st.text(max_size=20) | st.binary(max_size=20).map(os.fsdecode), max_size=3))
def test_expanding_any_arguments_raises_only_our_errors(sources: list[str]) -> None:
    try:
        for each in request.expand(sources):
            if each != "-":
                request.read(each)
    except SchedqError as error:
        assert str(error)


def test_checking_any_document_raises_only_our_errors(spec: dict[str, Any]) -> None:
    inner = st.none() | st.integers() | st.text(max_size=4) | st.just("A")
    chains = st.lists(inner | st.dictionaries(st.sampled_from(["id", "aa", "x{}", "{data}"]), inner), max_size=3)
    keys = {"sequences": inner | chains, "seed": inner, "x.y": inner}

    @settings(max_examples=200, deadline=None)
    @given(value=st.fixed_dictionaries({}, optional=keys))
    def holds(value: dict[str, Any]) -> None:
        try:
            checked(spec, json.dumps(value).encode())
        except SchedqError as error:
            assert "cannot be checked" not in str(error)

    holds()


def test_any_parameter_raises_only_our_errors(spec: dict[str, Any]) -> None:
    @settings(max_examples=200, deadline=None)
    @given(name=st.sampled_from([*PARAMS["properties"], ""]), value=st.text(max_size=12))
    def holds(name: str, value: str) -> None:
        try:
            request.parameters(spec, [f"{name}={value}"])
        except SchedqError as error:
            assert str(error)

    holds()
