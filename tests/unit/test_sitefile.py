"""A measured budget goes into the user's file; everything else of it stays, to the byte."""

from __future__ import annotations

import errno
import os
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import locks, sitefile
from scheduler.errors import Temporary, UsageError

VALUES: dict[str, float | str] = {"vram_budget_gb": 31.5, "date": "2026-11-30"}


def put(tmp_path: Path, text: str | None, name: str = "boltz", **values: float | str) -> str:
    path = tmp_path / "config.toml"
    if text is not None:
        path.write_text(text)
    sitefile.put(str(path), name, values or VALUES)
    return path.read_text()


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    assert sitefile.put(str(path), "boltz", VALUES) == str(path)
    assert tomllib.loads(path.read_text()) == {"providers": {"boltz": VALUES}}


def test_a_table_that_is_not_there_is_put_at_the_end(tmp_path: Path) -> None:
    before = '# mine\novertake = "10m"  # patience\n\n[providers.esm]\nvram_budget_gb = 4.0\n'
    after = put(tmp_path, before)
    assert after == before + '\n[providers.boltz]\nvram_budget_gb = 31.5\ndate = "2026-11-30"\n'


def test_a_value_is_replaced_in_its_line_and_what_is_said_behind_it_stays(tmp_path: Path) -> None:
    before = '[providers.boltz]\nvram_budget_gb = 28  # as "told" # by bob\nstart_timeout_s = 9\n'
    before += "\n# the end\n[reserves]\nhost = 1\n"
    after = put(tmp_path, before)
    assert after == before.replace("= 28  #", "= 31.5  #").replace("= 9\n", '= 9\ndate = "2026-11-30"\n')


def test_a_budget_that_stands_in_a_table_of_its_own_is_replaced_there(tmp_path: Path) -> None:
    before = "[providers.boltz]\nstart_timeout_s = 9\n[providers.boltz.gpu]\nvram_budget_gb = 28.0\n"
    after = put(tmp_path, before, vram_budget_gb=31.5)
    assert after == before.replace("28.0", "31.5")


def test_a_variant_has_a_table_by_its_quoted_name(tmp_path: Path) -> None:
    after = put(tmp_path, None, "esm2:t33_650M")
    assert '[providers."esm2:t33_650M"]' in after
    again = put(tmp_path, after, "esm2:t33_650M", vram_budget_gb=3.0)
    assert tomllib.loads(again)["providers"]["esm2:t33_650M"] == {**VALUES, "vram_budget_gb": 3.0}
    assert again.count("[providers") == 1


@pytest.mark.parametrize(
    "text",
    [
        "providers.boltz.vram_budget_gb = 28.0\n",
        "providers = { boltz = { vram_budget_gb = 28.0 } }\n",
        "[providers]\nboltz = { vram_budget_gb = 28.0 }\n",
        '[providers.boltz]\nnote = """\nvram_budget_gb = 3\n"""\nvram_budget_gb = 28.0\n',
        "[providers.boltz\n",
    ],
)
def test_what_cannot_be_changed_line_by_line_stays_as_it_was_and_the_lines_are_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        sitefile.put(str(path), "boltz", VALUES)
    assert path.read_text() == text
    assert "[providers.boltz]\nvram_budget_gb = 31.5" in str(refused.value) or "not TOML" in str(refused.value)
    assert os.listdir(tmp_path) == ["config.toml"]


def test_a_link_stays_a_link_and_the_mode_stays_the_files_own(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_text("# mine\n")
    real.chmod(0o640)
    link.symlink_to(real)
    assert sitefile.put(str(link), "boltz", VALUES) == str(real)
    assert link.is_symlink() and "31.5" in real.read_text() and real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, Temporary), (errno.EROFS, UsageError)])
def test_a_folder_that_takes_nothing_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\n")

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(kind, match=f"{os.strerror(number)}; it is as it was"):
        sitefile.put(str(path), "boltz", VALUES)
    assert path.read_text() == "# mine\n" and os.listdir(tmp_path) == ["config.toml"]


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def test_a_file_with_the_line_ends_of_windows_keeps_them_and_its_new_lines_have_them(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(crlf("# mine\n[providers.boltz]\nvram_budget_gb = 28  # told\n\n[reserves]\nhost = 1\n").encode())
    sitefile.put(str(path), "boltz", VALUES)
    sitefile.put(str(path), "esm", VALUES)
    after = path.read_bytes().decode()
    assert after == crlf(
        '# mine\n[providers.boltz]\nvram_budget_gb = 31.5  # told\ndate = "2026-11-30"\n\n[reserves]\nhost = 1\n\n'
        '[providers.esm]\nvram_budget_gb = 31.5\ndate = "2026-11-30"\n'
    )


def test_a_file_of_both_line_ends_keeps_each(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"[providers.boltz]\r\nvram_budget_gb = 28\r\nthreads = 1\n")
    sitefile.put(str(path), "boltz", {"vram_budget_gb": 31.5})
    assert path.read_bytes() == b"[providers.boltz]\r\nvram_budget_gb = 31.5\r\nthreads = 1\n"


WRONG = {
    "what is no UTF-8": (b"note = '\xff'\n", 0o644, "cannot be read"),
    "what is not TOML": (b"[providers\n", 0o644, "not TOML"),
    "what is not changed line by line": (b"providers = {}\n", 0o644, "line by line"),
}


@pytest.mark.parametrize(("data", "mode", "says"), WRONG.values(), ids=WRONG)
def test_whatever_stands_in_the_way_the_lines_to_put_in_by_hand_are_told(
    tmp_path: Path, data: bytes, mode: int, says: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=says) as refused:
        sitefile.put(str(path), "boltz", VALUES)
    assert str(refused.value).endswith('by hand:\n[providers.boltz]\nvram_budget_gb = 31.5\ndate = "2026-11-30"')
    assert path.read_bytes() == data


def test_where_no_folder_can_be_made_the_lines_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: .*\n\[providers.boltz\]\nvram_budget_gb = 31.5"):
        sitefile.put(str(tmp_path / "file" / "config.toml"), "boltz", VALUES)


def test_who_writes_at_the_same_moment_is_waited_for_and_neither_table_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read, go_on, text_of = tmp_path / "config.toml", threading.Event(), threading.Event(), sitefile.text_of
    path.write_text("# mine\n")

    def slow(path: str) -> str:
        text = text_of(path)
        if threading.current_thread().name == "slow":
            read.set()
            assert go_on.wait(10.0)
        return text

    monkeypatch.setattr(sitefile, "text_of", slow)
    first = threading.Thread(target=sitefile.put, args=(str(path), "boltz", VALUES), name="slow")
    second = threading.Thread(target=sitefile.put, args=(str(path), "esm", VALUES))
    first.start()
    assert read.wait(10.0)
    second.start()
    second.join(0.3)
    go_on.set()
    first.join(10.0)
    second.join(10.0)
    assert set(tomllib.loads(path.read_text())["providers"]) == {"boltz", "esm"}


def test_one_that_writes_for_ever_is_not_waited_for_and_the_lines_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitefile, "PATIENCE_S", 0.05)
    lock = locks.take(str(tmp_path))
    assert lock is not None
    try:
        with pytest.raises(Temporary, match=r"being written by another process(.|\n)*vram_budget_gb = 31.5"):
            sitefile.put(str(tmp_path / "config.toml"), "boltz", VALUES)
    finally:
        locks.let_go(lock)


LINES = st.lists(
    st.sampled_from(
        ["# a word", "", "[reserves]", "host = 2.0", "[providers.esm]", "note = 'x # y'", "[providers.boltz]  # ours",
         "start_timeout_s = 4 # s", "vram_budget_gb = 9.0#now", "  ram_budget_gb=1", "[providers.boltz.host]",
         "[providers.boltz.gpu]", "overtake = '1m'"]
    ),
    max_size=9,
)  # fmt: skip


@given(LINES)
def test_whatever_the_file_says_only_those_keys_change(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    after = sitefile.changed(text, "boltz", VALUES)
    assert not text.count("\n") or sitefile.changed(crlf(text), "boltz", VALUES) == crlf(after)
    said = tomllib.loads(after)
    table = said["providers"]["boltz"]
    assert (table.get("gpu", {}).get("vram_budget_gb") or table["vram_budget_gb"]) == 31.5 and table["date"] == VALUES[
        "date"
    ]
    kept = [line for line in lines if line.strip() and "vram_budget_gb" not in line]
    assert [line for line in after.split("\n") if line in kept][: len(kept)] == kept
    for key, value in before.items():
        if key != "providers":
            assert said[key] == value


def removed(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.toml"
    path.write_text(text)
    assert sitefile.remove(str(path), "boltz", "python")
    return path.read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('a = 1\n\n[providers.boltz]\npython = "/x"\n', "a = 1\n\n"),
        ('[providers.boltz]\npython = "/x"  # mine\nthreads = 2\n[reserves]\nhost = 1\n',
         "[providers.boltz]\nthreads = 2\n[reserves]\nhost = 1\n"),
        ('[providers.boltz]\n# said here\npython = "/x"\n[reserves]\n', "[providers.boltz]\n# said here\n[reserves]\n"),
        ('[providers.boltz.worker]\npython = "/x"\nstop_grace_s = 1\n', "[providers.boltz.worker]\nstop_grace_s = 1\n"),
    ],
)  # fmt: skip
def test_a_key_is_taken_out_and_everything_else_stays(tmp_path: Path, before: str, after: str) -> None:
    assert removed(tmp_path, before) == after


def test_a_key_that_is_not_there_is_not_taken_out_and_one_of_another_form_is_left_to_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert not sitefile.remove(str(path), "boltz", "python")
    path.write_text("[providers.boltz]\nthreads = 2\n")
    assert not sitefile.remove(str(path), "boltz", "python")
    path.write_text('providers.boltz.python = "/x"\n')
    with pytest.raises(UsageError, match="take it out by hand"):
        sitefile.remove(str(path), "boltz", "python")
    assert path.read_text() == 'providers.boltz.python = "/x"\n'


def test_an_interpreter_that_stands_in_a_table_of_its_own_is_replaced_there(tmp_path: Path) -> None:
    after = put(tmp_path, '[providers.boltz.worker]\npython = "/x"\n', python="/y")
    assert after == '[providers.boltz.worker]\npython = "/y"\n'
