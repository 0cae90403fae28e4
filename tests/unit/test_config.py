"""Settings: every value is fit to be used or its origin is named; what each means is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler import config
from scheduler.cli import settings as page
from scheduler.cli.fast import Call
from scheduler.errors import UsageError

WRONG = [
    ("log_max_mib", "abc", "a number"), ("reserve_host_gib", "-1", "a number"), ("disk_reserve_gib", "nan", "a number"),
    ("overtake", "900", "a duration with its unit"), ("auto_down", "soon", "a duration"),
    ("strict", "maybe", "must be true or false; .* to false"),
    ("unified", "perhaps", "must be auto, true or false"),
    ("unattributed", "nobody", "must be charged or ours; set it to charged"),
    ("reserves", "host", "must be name=GiB.*; set it to host=8,GPU-5d1f=2"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in config.DEFAULTS:
        monkeypatch.delenv("SCHEDQ_" + key.upper(), raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_the_defaults_are_fit_to_be_used_and_each_is_explained() -> None:
    assert config.settings().faults() == []
    assert config.ABOUT.keys() == config.DEFAULTS.keys()


@pytest.mark.parametrize(("key", "value", "why"), WRONG)
def test_a_value_that_cannot_be_used_is_named_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, key: str, value: str, why: str
) -> None:
    monkeypatch.setenv("SCHEDQ_" + key.upper(), value)
    with pytest.raises(UsageError, match=why) as caught:
        config.settings()
    assert f"$SCHEDQ_{key.upper()}" in str(caught.value) and value in str(caught.value)


def test_all_wrong_values_are_named_at_once_with_their_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "schedq").mkdir()
    path = folder / "schedq" / "config.toml"
    path.write_text('overtake = 900\nstrict = "x"\n')
    monkeypatch.setenv("SCHEDQ_LOG_MAX_MIB", "abc")
    with pytest.raises(UsageError) as caught:
        config.settings()
    assert str(caught.value).count(str(path)) == 2 and str(caught.value).count("\n") == 2


def test_config_show_shows_all_and_then_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCHEDQ_LOG_MAX_MIB", "abc")
    with pytest.raises(UsageError, match=r"\$SCHEDQ_LOG_MAX_MIB") as caught:
        page.show(Call("config show", {}))
    out = capfd.readouterr().out
    assert caught.value.exit_code == 2 and "abc" in out and "unified" in out


def test_config_show_fits_80_columns_and_shows_values_as_a_file_has_them(capfd: pytest.CaptureFixture[str]) -> None:
    assert page.show(Call("config show", {})) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "/" not in line) <= 80
    text = "\n".join(lines)
    assert "false" in text and "False" not in text and "900s" not in text
    for key, meaning in config.ABOUT.items():
        assert key in text and meaning in text


def test_config_show_shows_every_part_of_a_list_and_a_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "schedq").mkdir()
    (folder / "schedq" / "config.toml").write_text("[reserves]\nhost = 8\n")
    card = "GPU-0f9a3c7e-1111-2222-3333-444444444444"
    monkeypatch.setenv("SCHEDQ_LEAVE_ALONE", f"{card},card1")
    assert page.show(Call("config show", {})) == 0
    lines = capfd.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("leave_alone"))
    assert lines[at].split() == ["leave_alone", "2", "entries", "$SCHEDQ_LEAVE_ALONE"]
    assert lines[at + 1 : at + 3] == [f"    {card}", "    card1"]
    at = next(n for n, line in enumerate(lines) if line.startswith("reserves"))
    assert lines[at].split()[:3] == ["reserves", "1", "entry"] and lines[at + 1] == "    host = 8.0"
    assert page.show(Call("config show", {"json": True})) == 0
    shown = json.loads(capfd.readouterr().out)["settings"]
    assert shown["leave_alone"] == {"value": [card, "card1"], "origin": "$SCHEDQ_LEAVE_ALONE"}
    assert shown["reserves"]["value"] == {"host": 8.0}


def test_a_list_that_cannot_be_used_is_shown_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCHEDQ_RESERVES", "host")
    with pytest.raises(UsageError, match="host=8,GPU-5d1f=2, or unset it"):
        page.show(Call("config show", {"json": True}))
    assert json.loads(capfd.readouterr().out)["settings"]["reserves"]["value"] == "host"
