"""Where outputs go: the words of --out, and what stands there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler import outputs
from scheduler.errors import Refused, UsageError


def test_the_words_of_a_destination_are_filled_in_and_the_id_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    made = outputs.destination("out/{slug}-{name}/{batch}/{id}", "boltz", "a/b", "night")
    assert made == str(tmp_path / "out/boltz-a_b/night/{id}")


@pytest.mark.parametrize(("template", "told"), [("{nam}", "{nam}"), ("{name", "is none of"), ("{batch}", "--batch")])
def test_a_word_that_is_none_or_has_no_value_is_a_usage_error(template: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        outputs.destination(template, "boltz", "a", "")
    assert told in str(caught.value)


def test_two_rows_with_one_destination_are_both_named(tmp_path: Path) -> None:
    rows = [{"out": str(tmp_path / "x"), "input_name": name} for name in ("a.json", "b.json")]
    with pytest.raises(Refused, match=r"a\.json and b\.json"):
        outputs.refuse_taken(rows, may_exist=False)


def test_a_destination_that_exists_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="exists"):
        outputs.refuse_taken([{"out": str(tmp_path / "there"), "input_name": "a"}], may_exist=False)
    outputs.refuse_taken([{"out": str(tmp_path / "there"), "input_name": "a"}], may_exist=True)
    with pytest.raises(Refused, match="cannot be made"):
        outputs.refuse_taken([{"out": str(tmp_path / "file" / "x"), "input_name": "a"}], may_exist=False)


def test_what_is_overwritten_is_moved_aside_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert outputs.set_aside(str(out)) is None
    out.mkdir()
    (out / "old").write_text("x")
    moved = outputs.set_aside(str(out))
    assert moved is not None and not out.exists()
    assert (Path(moved[1]) / "old").read_text() == "x"
