"""Where outputs go: the words of --out, what no job may take the place of, and what can never be made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scheduler import outputs
from scheduler.errors import Refused, UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The queue's folder; the user's home and the current folder lie beside it."""
    for name in ("me", "work/here", "queue/results/3"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path / "work" / "here")
    return tmp_path / "queue"


def taken(home: Path, *outs: str | Path, may_exist: bool = False) -> None:
    rows: list[dict[str, Any]] = [{"out": str(out), "input_name": f"{at}.json"} for at, out in enumerate(outs)]
    outputs.refuse_taken(rows, str(home), may_exist=may_exist)


def refusal(home: Path, *outs: str | Path, may_exist: bool = False) -> str:
    with pytest.raises(Refused) as caught:
        taken(home, *outs, may_exist=may_exist)
    assert caught.value.exit_code == 3
    return str(caught.value)


# The words of --out


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


@pytest.mark.parametrize(
    ("template", "name", "made"),
    [
        ("od/sub/{name}", "..", "od/sub/__"),
        ("od/{name}/x", ".", "od/_/x"),
        ("od/.{name}", ".", "od/._"),
        ("{name}", "~root", "_root"),
        ("{name}/x", "~", "_/x"),
        ("{name}", "/etc", "_etc"),
        ("{name}", "../..", ".._.."),
        ("x{name}", "...", "x___"),
    ],
)
def test_what_fills_a_placeholder_names_one_entry_and_leads_nowhere(
    home: Path, template: str, name: str, made: str
) -> None:
    here = os.getcwd()
    assert outputs.destination(template, "boltz", name, "") == os.path.join(here, made)
    assert outputs.destination(template.replace("name", "batch"), "boltz", "x", name) == os.path.join(here, made)


def test_a_home_folder_is_meant_only_by_who_wrote_the_template(home: Path) -> None:
    assert outputs.destination("~/x", "boltz", "a", "") == str(home.parent / "me" / "x")
    for template in ("~nobody-of-that-name/x", "~{name}/x"):
        with pytest.raises(UsageError, match="nobody's home"):
            outputs.destination(template, "boltz", "root", "")


@pytest.mark.parametrize("template", ["a\0b", "a/\udcff", "\ud800"])
def test_what_is_no_path_is_a_usage_error(home: Path, template: str) -> None:
    with pytest.raises(UsageError, match="is no path"):
        outputs.destination(template, "boltz", "a", "")


def test_a_current_folder_that_is_no_text_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = os.path.join(os.getcwd(), "\udcff")
    os.mkdir(odd)
    monkeypatch.chdir(odd)
    with pytest.raises(UsageError, match="whose bytes are not UTF-8"):
        outputs.destination("x", "boltz", "a", "")


def test_a_current_folder_that_is_gone_is_said(home: Path) -> None:
    os.rmdir(os.getcwd())
    with pytest.raises(UsageError, match=r"--out 'x' is relative, and the folder that you are in is not there"):
        outputs.destination("x", "boltz", "a", "")
    taken(home, home.parent / "elsewhere")


# Whose it is


def test_two_rows_with_one_destination_are_both_named(home: Path) -> None:
    assert "where the outputs of 0.json go" in refusal(home, home.parent / "x", home.parent / "x")


def test_one_destination_reached_through_a_link_is_one_destination(home: Path) -> None:
    (home.parent / "real").mkdir()
    (home.parent / "link").symlink_to("real")
    made = [outputs.destination(f"{home.parent}/{name}/x", "boltz", "a", "") for name in ("real", "link")]
    assert made == [str(home.parent / "real" / "x")] * 2
    assert "where the outputs of 0.json go" in refusal(home, *made)


@pytest.mark.parametrize("may_exist", [False, True])
@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("queue", "the queue itself lies in it"),
        ("queue/jobs/1", "lies in the folder of the queue itself"),
        ("queue/queue.db", "lies in the folder of the queue itself"),
        ("queue/results", "lies in the folder of the queue itself"),
        ("queue/results/99", "is that of job 99"),
        ("", "lies in it"),
        ("me", "your home folder lies in it"),
        ("work/here", "the folder that you are in lies in it"),
        ("work", "the folder that you are in lies in it"),
        ("/", "lies in it"),
        ("to-queue", "the queue itself lies in it"),
        ("to-queue/jobs", "lies in the folder of the queue itself"),
        ("to-me", "your home folder lies in it"),
    ],
)
def test_no_job_takes_the_place_of_the_queue_the_home_the_current_folder_or_what_they_lie_in(
    home: Path, out: str, told: str, may_exist: bool
) -> None:
    (home.parent / "to-queue").symlink_to("queue")
    (home.parent / "to-me").symlink_to("me")
    assert told in refusal(home, os.path.join(home.parent, out).rstrip("/") or "/", may_exist=may_exist)


def test_a_queue_that_is_reached_through_a_link_is_kept_from_both_sides(home: Path) -> None:
    (home.parent / "disk").mkdir()
    (home.parent / "mnt").symlink_to("disk")
    queue = home.parent / "mnt" / "queue"
    queue.mkdir()
    for out in ("mnt", "disk", "mnt/queue", "disk/queue"):
        assert "the queue itself" in refusal(queue, home.parent / out, may_exist=True)


def test_beside_them_and_below_home_and_here_and_among_the_results_is_room(home: Path) -> None:
    at = home.parent
    taken(home, at / "me" / "x", at / "work" / "here" / "x", at / "queue" / "results" / "mine", at / "queue2")
    taken(home, at / "queue" / "results" / "{id}")


def test_nothing_is_put_into_what_a_job_has_where_no_destination_is_asked_for(home: Path) -> None:
    results = home / "queue" / "results"
    for out, told in (("7", "is that of job 7"), ("7/x", "lies in that of job 7")):
        with pytest.raises(Refused, match=told):
            outputs.refuse_taken([{"out": str(results / out), "input_name": "a"}], str(home / "queue"), may_exist=False)
    outputs.refuse_taken([{"out": str(results / "7a"), "input_name": "a"}], str(home / "queue"), may_exist=False)


def test_what_a_name_holds_is_not_filled_in_again(home: Path) -> None:
    found = outputs.destination("{name}/{id}", "boltz", "a{id}{slug}b", "")
    assert found == os.path.realpath("a_id_{slug}b/{id}")


def test_a_destination_that_exists_or_cannot_be_made_is_refused(home: Path) -> None:
    (home.parent / "there").mkdir()
    (home.parent / "file").touch()
    assert "exists" in refusal(home, home.parent / "there")
    taken(home, home.parent / "there", may_exist=True)
    assert "cannot be made" in refusal(home, home.parent / "file" / "x")
    assert "cannot be made" in refusal(home, home.parent / "file" / "{id}")


# What can never be made


@pytest.mark.parametrize(
    ("below", "told"),
    [
        ("a" * 256, "has 256 bytes, and"),
        ("é" * 128, "has 256 bytes, and"),
        ("a" * 256 + "/x", "has 256 bytes, and"),
        ("{id}" + "a" * 250, "bytes, and"),
        ("/".join(["a"] * 2500), "a path of 3584 leaves room"),
        ("/".join(["a" * 200] * 25), "a path of 3584 leaves room"),
    ],
)
def test_a_name_or_a_path_that_is_too_long_for_the_filesystem_is_refused(home: Path, below: str, told: str) -> None:
    said = refusal(home, home.parent / "od" / below)
    assert told in said and "cannot be made" in said and len(said) < 500


def test_the_longest_name_is_no_fault(home: Path) -> None:
    taken(home, home.parent / "od" / ("a" * 255), home.parent / "od" / "/".join(["b"] * 1200))


@pytest.mark.parametrize("out", ["/proc/x", "/proc/self/x/y", "/sys/kernel/x"])
def test_the_kernels_own_folders_keep_no_outputs(home: Path, out: str) -> None:
    assert "cannot be made" in refusal(home, os.path.realpath(out))


# What is there already


def test_what_is_overwritten_is_moved_aside_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert outputs.set_aside(str(out)) is None
    out.mkdir()
    (out / "old").write_text("x")
    moved = outputs.set_aside(str(out))
    assert moved is not None and not out.exists()
    assert (Path(moved[1]) / "old").read_text() == "x"


def test_what_has_the_longest_name_can_be_moved_aside_too(tmp_path: Path) -> None:
    for name in ("a" * 255, "é" * 127):
        (tmp_path / name).mkdir()
        moved = outputs.set_aside(str(tmp_path / name))
        assert moved is not None and os.path.isdir(moved[1]) and ".before-" in moved[1]


def test_what_cannot_be_moved_aside_is_refused(tmp_path: Path) -> None:
    made = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True)
    if made.returncode:
        pytest.skip("no tmpfs may be mounted here")
    try:
        with pytest.raises(Refused, match=r"cannot be moved aside \("):
            outputs.set_aside(str(tmp_path))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# What a pointer names


@pytest.mark.parametrize("pointer", ["/a/00", "/a/01", "/a/٣", "/a/²", "/a/-1", "/a/+1", "/a/1_0", "/a/" + "9" * 5000])
def test_an_index_is_ascii_digits_without_a_leading_zero(pointer: str) -> None:
    with pytest.raises(UsageError, match="/a is a list of 12"):
        outputs.at_pointer({"a": list(range(12))}, pointer)


def test_an_index_with_two_digits_is_one() -> None:
    assert outputs.at_pointer({"a": list(range(12))}, "/a/10") == 10 and outputs.at_pointer([7], "/0") == 7
