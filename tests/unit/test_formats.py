"""How each kind of input is read: what is accepted, and where a refusal points."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.errors import InvalidInput
from scheduler.inputs import formats
from scheduler.request import parsed


def refusal(kind: str, data: bytes | str) -> str:
    with pytest.raises(InvalidInput) as caught:
        parsed(kind, data.encode() if isinstance(data, str) else data, "x")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1,\n "b": }', "line 2, column 7"),
        ('{"a": 1,}', "line 1, column 8, near ',}'" if sys.version_info >= (3, 13) else "line 1, column 9, near '}'"),
        ('{"a": 1', "at the end of the file"),
        ('{"a": {"b": 1,\n"c": 2, "b": 3}}', 'line 2, column 9: the key "b" is there twice, first at line 1, column 8'),
        ("[1,\n  NaN]", "line 2, column 3: NaN is no JSON number; write a number or null"),
        ('{"NaN": -Infinity}', "line 1, column 9: -Infinity"),
        ("[1e999]", "line 1, column 2"),
        ("9" * 5000, "a whole number of 5000 digits"),
        ('["ok", "\\ud800"]', "line 1, column 8"),
        ("[" * 100_000, "more than 200 levels"),
        ("[" * 201 + "]" * 201, "more than 200 levels"),
        ('{"a": "tab\there"}', "line 1, column 11"),
        ("", "nothing but blanks"),
    ],
    ids=range(13),
)
def test_a_json_refusal_names_the_place(text: str, says: str) -> None:
    assert says in refusal("json", text)


def test_json_keeps_what_it_may_hold() -> None:
    text = '{"a": "\\ud83d\\ude00", "b": [[1]], "c": 10000000000000000000000, "d": 1.5e300, "\\\\u": "NaN"}'
    assert parsed("json", text.encode(), "x") == json.loads(text)
    assert parsed("json", b"[" * 200 + b"]" * 200, "x")


def test_a_byte_that_is_not_utf_8_is_named_by_its_offset() -> None:
    assert "byte 3 (0xE9)" in refusal("json", b'{"\xc3\xa9'[:2] + b"a\xe9")
    assert "byte order mark" in refusal("fasta", b"\xef\xbb\xbf>a\nA")
    assert parsed("yaml", b"\xef\xbb\xbfa: 1", "x") == {"a": 1}


def test_a_structure_may_have_any_bytes_beside_its_atoms() -> None:
    atom = b"ATOM      1  N   MET A   1\n"
    parsed("pdb", b"REMARK   1 G\xf6del\n" + atom, "x")
    parsed("pdb", b"\xef\xbb\xbfHEADER\n" + atom, "x")
    parsed("cif", b"\xef\xbb\xbfdata_1ABC\n_citation.title 'G\xf6del'\n", "x")
    assert "its first atom would not be seen; save it without" in refusal("pdb", b"\xef\xbb\xbf" + atom)
    assert "no ATOM or HETATM line" in refusal("pdb", b"\xff\xfe")
    for kind in ("json", "yaml", "fasta"):
        assert "is not UTF-8" in refusal(kind, b">a\n\xf6")


def test_yaml_text_stays_text() -> None:
    text = "chain: NO\non: yes\nday: 2001-12-14\ntime: 1:30\nNO: x\n1: y\n"
    text += "float: 1_0.5\noctal: 0o14\nhex: 0x1F\nn: ~\nb: true"
    assert parsed("yaml", text.encode(), "x") == {
        "chain": "NO", "on": "yes", "day": "2001-12-14", "time": "1:30", "NO": "x", "1": "y", "float": 10.5,
        "octal": 12, "hex": 31, "n": None, "b": True,
    }  # fmt: skip


def test_yaml_merges_and_aliases_are_followed() -> None:
    assert parsed("yaml", b"a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\nc: *x", "x") == {
        "a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}, "c": {"p": 1, "q": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1,\nb: 2", "line 2, column 5"),
        ("a: 1\nb: 2\na: 3", 'line 3, column 1: the key "a" is there twice'),
        ("a: .nan", "line 1, column 4"),
        ("a: -.inf", "line 1, column 4"),
        ("a: !!binary aGk=", "!!binary has no counterpart"),
        ("a: !!set {x}", "!!set has no counterpart"),
        ("a: !mine x", "!mine has no counterpart"),
        ("? [1, 2]\n: x", "line 1, column 3: a key must be text"),
        ("a: &x [*x]", "an alias that holds itself"),
        ("a: 1\n---\nb: 2", "line 2, column 1"),
        ("# only a remark", "without a value"),
        ("a: " + "[" * 5000, "levels deep"),
        ("a: " + "9" * 5000, "no number that JSON can hold"),
        ('a: "\\ud800"', "half a surrogate pair"),
    ],
)
def test_a_yaml_refusal_names_the_place(text: str, says: str) -> None:
    assert says in refusal("yaml", text)


def test_yaml_aliases_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
    laughs += "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    assert "aliases expand to more than" in refusal("yaml", laughs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nACGT\n", "line 2: a FASTA record starts with a '>' line"),
        (">a\n>b\nAC", "line 1: the record has no sequence"),
        (">a\nAC\n>b\n\n", "line 3: the record has no sequence"),
        (">a\nA\x00C", "line 2: holds a control character"),
    ],
)
def test_a_fasta_refusal_names_the_line(text: str, says: str) -> None:
    assert says in refusal("fasta", text)


@pytest.mark.parametrize(
    "text", [">a\nACGT", "\n\n>a b\r\nAC\r\nGT\r\n\r\n>c\r\nAA", ">a\rACGT", ">B|smiles\nN[C@@H](C)C(=O)O"]
)
def test_fasta_as_people_write_it_is_accepted(text: str) -> None:
    assert parsed("fasta", text.encode(), "x") is None


def test_a_structure_has_atoms_or_a_data_block() -> None:
    assert "no ATOM or HETATM line" in refusal("pdb", "REMARK ATOM  1\n")
    assert "data_" in refusal("cif", "loop_\n")
    parsed("pdb", b"HEADER\nATOM      1  N   MET A   1\n", "x")
    parsed("cif", b"# x\nDATA_1ABC\n", "x")


def test_a_kind_is_known_by_its_suffix() -> None:
    assert formats.suffix("a.b.JSON", [".json"]) == ".json"
    assert formats.suffix("x.cif.gz", [".cif", ".cif.gz"]) == ".cif.gz"
    assert formats.suffix(".json", [".json"]) == ""
    assert formats.accepted(".yml", [".json", ".yaml"])
    assert formats.accepted(".faa", [".fasta"])
    assert not formats.accepted("", [".json"])
    assert not formats.accepted(".txt", [".csv"])


@pytest.mark.parametrize(
    ("data", "accept", "ending"),
    [
        (b'  {"a": 1}', [".yaml", ".json"], ".json"),
        (b"[x]", [".yaml", ".fasta"], ".yaml"),
        (b"\n>a\nAC", [".json", ".fa"], ".fa"),
        (b"a: 1", [".json", ".yaml"], ".yaml"),
        (b"ATOM", [".pdb"], ".pdb"),
    ],
)
def test_unnamed_bytes_are_known_by_their_first_character(data: bytes, accept: list[str], ending: str) -> None:
    assert formats.sniffed(data, accept) == ending


BYTES = st.binary(max_size=200) | st.text(max_size=120).map(lambda each: each.encode("utf-8", "surrogatepass"))
MARKS = st.text(alphabet="{}[]:,\"'\\&*!|>%@`#-?~ \n\tabu0123456789.eE<=NaInfity", max_size=60).map(str.encode)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(sorted(formats.WORDS)), data=BYTES | MARKS)
def test_no_bytes_raise_anything_but_a_refusal(kind: str, data: bytes) -> None:
    try:
        value = parsed(kind, data, "x")
    except InvalidInput as error:
        assert str(error).startswith("x: ")
    else:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@settings(max_examples=200, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    )
)
def test_json_that_python_writes_is_read_back(value: object) -> None:
    assert parsed("json", json.dumps(value).encode(), "x") == value
