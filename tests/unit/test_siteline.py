"""One value of a provider goes into the user's file, or out of it; everything else stays, to the byte."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import siteline
from scheduler.errors import UsageError

ENV = (("env",), ("worker", "env"))
FLAT = ((), ("worker",))
BEFORE = '# mine\novertake = "10m"  # patience\n\n[providers.boltz]\nthreads = 2 # "cores"\n\n[reserves]\nhost = 1\n'


def put(tmp_path: Path, text: str | None, key: str, value: Any, tables: siteline.Tables = FLAT) -> str:
    path = tmp_path / "config.toml"
    if text is not None:
        path.write_bytes(text.encode())
    siteline.set_one(str(path), "boltz", key, value, tables)
    return path.read_bytes().decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"),
        (2.5, "2.5"),
        (True, "true"),
        ('a"b', '"a\\"b"'),
        (["x", "y"], '["x", "y"]'),
        ([], "[]"),
        ("\x7f", '"\\u007f"'),
    ],
)
def test_a_value_is_written_as_toml_has_it(tmp_path: Path, value: Any, text: str) -> None:
    after = put(tmp_path, None, "python", value)
    assert after == f"[providers.boltz]\npython = {text}\n"
    assert tomllib.loads(after)["providers"]["boltz"]["python"] == value


def test_a_value_is_replaced_where_it_stands_and_a_new_one_put_behind_the_last(tmp_path: Path) -> None:
    assert put(tmp_path, BEFORE, "threads", 4) == BEFORE.replace("= 2 #", "= 4 #")
    assert put(tmp_path, BEFORE, "python", "p") == BEFORE.replace('"cores"\n', '"cores"\npython = "p"\n')


def test_a_variable_has_the_table_of_variables_that_is_there_or_one_at_the_end(tmp_path: Path) -> None:
    assert put(tmp_path, BEFORE, "A", "1", ENV) == BEFORE + '\n[providers.boltz.env]\nA = "1"\n'
    nested = BEFORE + '\n[providers.boltz.worker.env]\n"B" = "2"\n'
    assert put(tmp_path, nested, "A", "1", ENV) == nested + 'A = "1"\n'
    assert put(tmp_path, nested, "B", "1", ENV) == nested.replace('"2"', '"1"')


def test_line_ends_and_a_last_line_without_one_stay_as_they_are(tmp_path: Path) -> None:
    crlf = "[providers.boltz]\r\nthreads = 2\r\nmax_workers = 1\r\n"
    assert put(tmp_path, crlf, "python", "p") == crlf + 'python = "p"\r\n'
    assert (
        put(tmp_path, "[providers.boltz]\nthreads = 2", "python", "p") == '[providers.boltz]\nthreads = 2\npython = "p"'
    )


def test_what_is_set_is_taken_out_wherever_it_stands_with_the_table_that_says_no_more(tmp_path: Path) -> None:
    text = BEFORE + '\n[providers.boltz.env]\nA = "1"\n[providers.boltz.worker.env]\nA = "2"\nB = "3"\n'
    path = tmp_path / "config.toml"
    path.write_text(text)
    assert siteline.unset_one(str(path), "boltz", "A", ENV)
    assert path.read_text() == BEFORE + '\n[providers.boltz.worker.env]\nB = "3"\n'
    assert not siteline.unset_one(str(path), "boltz", "A", ENV)


@pytest.mark.parametrize(
    "text",
    [
        "[providers.boltz]\nthreads = [\n 1,\n]\n", "[providers.boltz\n",
        '[providers.boltz]\nnote = """\nthreads = 3\n"""\nthreads = 2\n', '[[providers]]\nx = 1\n',
    ],
)  # fmt: skip
def test_another_form_stays_as_it_was_and_the_lines_are_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        siteline.set_one(str(path), "boltz", "threads", 4, FLAT)
    parts = "[providers.boltz], set:\nthreads = 4", "Put this into it by hand:\n[providers.boltz]\nthreads = 4"
    is_there = "[providers.boltz]\n" in text
    assert path.read_text() == text and [part in str(refused.value) for part in parts] == [is_there, not is_there]
    if "[providers.boltz\n" not in text and "[[" not in text:
        with pytest.raises(UsageError, match="take it out by hand"):
            siteline.unset_one(str(path), "boltz", "threads", FLAT)
    assert path.read_text() == text and [each.name for each in tmp_path.iterdir()] == ["config.toml"]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_any_text_that_is_written_is_read_again(text: str) -> None:
    assert tomllib.loads(f"x = {siteline.written(text)}\n")["x"] == text


@pytest.mark.parametrize(
    ("text", "after", "gone"),
    [
        ('[providers.boltz]\nenv = { A = "1" } # x\n', '[providers.boltz]\nenv = { A = "1", B = "2" } # x\n', None),
        ('[providers.boltz]\nenv = { B = "1" }\n', '[providers.boltz]\nenv = { B = "2" }\n', "[providers.boltz]\n"),
        (
            '[providers.boltz]\nworker = { threads = 1, env = { B = "1" } }\n',
            '[providers.boltz]\nworker = { threads = 1, env = { B = "2" } }\n',
            "[providers.boltz]\nworker = { threads = 1 }\n",
        ),
        ('[providers.boltz]\nenv.A = "1"\n', '[providers.boltz]\nenv.A = "1"\nenv.B = "2"\n', None),
        ("[providers.boltz]\nworker.env.'B' = ''\n", "[providers.boltz]\nworker.env.'B' = \"2\"\n", None),
        ('providers.boltz.env.B = "1"\nx = 1\n', 'providers.boltz.env.B = "2"\nx = 1\n', "x = 1\n"),
        ('[providers]\nboltz = { env = {} }\n', '[providers]\nboltz = { env = { B = "2" } }\n', None),
    ],
)  # fmt: skip
def test_a_table_in_one_line_and_dotted_keys_are_changed_where_they_stand(
    tmp_path: Path, text: str, after: str, gone: str | None
) -> None:
    assert put(tmp_path, text, "B", "2", ENV) == after
    assert siteline.unset_one(str(tmp_path / "config.toml"), "boltz", "B", ENV)
    left = (tmp_path / "config.toml").read_text()
    assert "B" not in left and (gone is None or left.strip() == gone.strip())
    assert not siteline.unset_one(str(tmp_path / "config.toml"), "boltz", "B", ENV)


def test_what_is_told_of_a_value_goes_with_it_and_all_else_stays(tmp_path: Path) -> None:
    text = BEFORE.replace("threads = 2", 'date = "2026-01-01"\nnote = "by Ada"\nthreads = 2')
    path = tmp_path / "config.toml"
    path.write_text(text)
    siteline.set_one(str(path), "boltz", "threads", 4, FLAT, ("measured", "date"))
    assert path.read_text() == BEFORE.replace("threads = 2", 'note = "by Ada"\nthreads = 4')
