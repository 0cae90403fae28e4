"""Files of jobs: what a row is, and what is said of one that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.errors import InvalidInput, UsageError
from scheduler.inputs import jobs_file


def told(path: Path) -> list[str]:
    """What is wrong with each row of a file."""
    return [str(error) for _, _, error in jobs_file.read(str(path)).faults]


def written(folder: Path, text: str | bytes, name: str = "jobs.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_every_line_of_json_is_a_row_and_blank_ones_are_none(tmp_path: Path) -> None:
    path = written(tmp_path, '\ufeff{"provider": "a", "input": "x"}\n\n  \n{"inline": [1]}')
    found = jobs_file.read(str(path))
    assert found.rows == [(1, {"provider": "a", "input": "x"}), (4, {"inline": [1]})]
    assert (found.faults, found.count, found.folder, found.stem) == ([], 2, str(tmp_path), "jobs")


def test_every_bad_line_is_named_and_the_good_ones_are_read(tmp_path: Path) -> None:
    lines = ["nonsense", "[1]", '{"prio": 1}', '{"a": 1, "a": 2}', '{"input": "x"}', '{"zzz": 1}', '{"Labels": 1}']
    path = written(tmp_path, "\n".join(lines).encode() + b'\n{"name": "\xff"}\n')
    found = jobs_file.read(str(path))
    assert [line for line, _ in found.rows] == [5]
    assert [str(error).partition(";")[0] for _, _, error in found.faults] == [
        "line 1: not JSON: column 1, near 'nonsense': expecting value",
        'line 2: must be an object like {"provider": "NAME", "input": "FILE"}, not [1]',
        'line 3: unknown key "prio"',
        'line 4: column 10: the key "a" is there twice, first at column 2',
        'line 6: unknown key "zzz"',
        'line 7: unknown key "Labels"',
        "line 8: byte 10 (0xFF) is not UTF-8, which JSON must be",
    ]
    assert told(path)[2].endswith("did you mean priority?")
    assert told(path)[4].endswith(f"a row has {', '.join(jobs_file.KEYS)}")
    assert told(path)[5].endswith("did you mean labels?")
    assert {type(error) for _, _, error in found.faults} == {InvalidInput, UsageError}


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_is_read_by_its_head_whatever_stands_between_its_cells(tmp_path: Path, mark: str) -> None:
    text = '\ufeffprovider,input, name ,params.seed\n\na,x.json,"one, two",1\nb,,,\n,,,\nc,"two\nlines",n\n'
    path = written(tmp_path, text.replace(",", mark), "jobs.csv")
    found = jobs_file.read(str(path))
    assert found.rows == [
        (3, {"provider": "a", "input": "x.json", "name": f"one{mark} two", "params.seed": "1"}),
        (4, {"provider": "b"}),
        (6, {"provider": "c", "input": "two\nlines", "name": "n"}),
    ]


def test_a_table_whose_head_says_what_nobody_knows_is_refused_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        jobs_file.read(str(written(tmp_path, "slug,input,input,param.x\n", "jobs.csv")))
    assert 'unknown key "slug"; did you mean provider?' in str(error.value)
    assert 'unknown key "param.x"; did you mean params?' in str(error.value)
    assert 'the column "input" is there twice' in str(error.value)


def test_a_row_with_too_many_cells_is_named_and_a_quote_that_never_ends_too(tmp_path: Path) -> None:
    path = written(tmp_path, 'provider,input\na,b,c\nd,e\nf,"g\n', "jobs.csv")
    assert told(path) == [
        "line 2: has 3 cells, and the head has 2; a cell with a comma needs double quotes",
        "line 4: not CSV: unexpected end of data; the rest was not read",
    ]
    assert jobs_file.read(str(path)).rows == [(3, {"provider": "d", "input": "e"})]


def test_a_row_of_a_table_that_is_no_text_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    text = b'provider,name\na,x\nb,Stra\xdfe\nc,"two\nl\xf6nes\n"\nd,y\n,"\xff\ne\n'
    path = written(tmp_path, text, "jobs.csv")
    assert told(path) == [
        "line 3: byte 6 (0xDF) is not UTF-8, which csv must be; save the file as UTF-8",
        "line 5: byte 1 (0xF6) is not UTF-8, which csv must be; save the file as UTF-8",
        "line 8: not CSV: unexpected end of data; the rest was not read",
    ]
    found = jobs_file.read(str(path))
    assert [line for line, _ in found.rows] == [2, 7]
    assert [(line, at) for line, at, _ in found.faults] == [(3, "line 3"), (4, "line 4"), (8, "line 8")]
    with pytest.raises(UsageError, match=r"its head: line 1: byte 0 \(0xFF\) is not UTF-8"):
        jobs_file.read(str(written(tmp_path, b"\xffprovider,name\na,x\n", "jobs.csv")))


@pytest.mark.parametrize(("name", "head"), [("jobs.jsonl", ""), ("jobs.csv", "name,inline\n")])
def test_a_line_that_is_too_long_is_named_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, head: str
) -> None:
    monkeypatch.setenv("SCHEDQ_INPUT_MAX_MIB", "0.001")
    monkeypatch.setattr(jobs_file, "MORE", 100)
    good, long = ('{"name": "x"}', '{"name": "%s"}') if not head else ("x,", "x,%s")
    path = written(tmp_path, f"{head}{good}\n{long % ('y' * 9000)}\n{good}\n{long % ('y' * 2500)}", name)
    found, first = jobs_file.read(str(path)), 2 if head else 1
    assert found.rows == [(first, {"name": "x"}), (first + 2, {"name": "x"})]
    assert [line for line, _, _ in found.faults] == [first + 1, first + 3]
    assert told(path)[0] == (
        f"line {first + 1}: has more than 2196 bytes, and that is no row: an input may have 1048; name a file, or raise"
        " input_max_mib in the configuration"
    )


def test_what_is_no_file_of_jobs_is_refused(tmp_path: Path) -> None:
    for name, text, words in (
        ("jobs.txt", "x", "ends in .txt; a file of jobs is .jsonl"),
        ("jobs", "x", "ends in nothing"),
        ("jobs.jsonl", "\n \n", "has no row"),
        ("jobs.csv", "", "has no row"),
        ("jobs.csv", "provider,input\n", "has no row"),
    ):
        with pytest.raises(UsageError, match=words):
            jobs_file.read(str(written(tmp_path, text, name)))
    with pytest.raises(UsageError, match=r"gone.jsonl is not there"):
        jobs_file.read(str(tmp_path / "gone.jsonl"))
    with pytest.raises(UsageError, match="is a folder"):
        jobs_file.read(str(tmp_path))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize(
    "text",
    [
        "provider,input,,\na,x,,\nb,y\n,,,\nc,z, ,\n",
        "provider,,input\na,,x\nb,,y\n\nc,,z\n",
        "provider,input\na,x,,,\nb,y,\n\nc,z,\n",
    ],
)
def test_columns_without_a_name_that_are_empty_are_none(tmp_path: Path, mark: str, text: str) -> None:
    found = jobs_file.read(str(written(tmp_path, text.replace(",", mark), "jobs.csv")))
    assert found.faults == [] and [row for _, row in found.rows] == [
        {"provider": name, "input": path} for name, path in zip("abc", "xyz", strict=True)
    ]


def test_a_value_without_a_name_for_its_column_is_an_error_of_its_row(tmp_path: Path) -> None:
    path = written(tmp_path, "provider,,input,\na,,x,\nb,oops,y,\nc,,z,7\n", "jobs.csv")
    assert told(path) == [
        'line 3: has "oops" in column 2, which has no name in the head; name it, or empty it',
        'line 4: has "7" in column 4, which has no name in the head; name it, or empty it',
    ]
    with pytest.raises(UsageError, match="its head: no column has a name"):
        jobs_file.read(str(written(tmp_path, ",,\na,b,c\n", "none.csv")))


def test_what_is_said_of_a_line_speaks_of_the_line_and_of_every_ending(tmp_path: Path) -> None:
    path = written(tmp_path, '{"provider": \n{"a": 1, "a": 2}\n')
    assert [each.removesuffix("; keep one") for each in told(path)] == [
        "line 1: not JSON: column 14, at the end of the line: expecting value",
        'line 2: column 10: the key "a" is there twice, first at column 2',
    ]
    with pytest.raises(UsageError, match=r"is \.jsonl or \.ndjson \(a JSON object a line\), \.csv or \.tsv \(a table"):
        jobs_file.read(str(written(tmp_path, "x", "jobs.txt")))
    for ending, kind in jobs_file.ENDINGS.items():
        text = "{}\n{}\n" if kind == "jsonl" else "name\nx\ny\n"
        assert jobs_file.read(str(written(tmp_path, text, f"a{ending}"))).count == 2
