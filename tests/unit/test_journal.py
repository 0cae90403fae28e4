"""The journal: what is in it and what never is, how much room it takes, and that nothing rests on it."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import unified

from scheduler.errors import Fenced
from scheduler.journal import Journal
from scheduler.model.host import Alive, Answered, Gone, Nudged, Progressed, Replied
from scheduler.model.machine import Holding
from scheduler.model.outcome import Outcome
from scheduler.model.plan import Breaker, Explain, Head, Instruction, Send, Snapshot
from scheduler.model.provider import Provider
from scheduler.simulate.clock import VirtualClock

SEEN = Snapshot(unified(), {("boltz", ""): Provider("boltz"), ("esm2", ""): Provider("esm2")}, (), ())


def snapshot(**over: Any) -> Snapshot:
    return replace(SEEN, **over)


def opened(home: Path, mib: float = 1.0, clock: VirtualClock | None = None, epoch: int = 3) -> Journal:
    home.mkdir(exist_ok=True)
    return Journal(str(home), mib, clock or VirtualClock(), epoch, "1.2")


def turn(journal: Journal, *happened: Any, seen: Snapshot = SEEN, found: tuple[Instruction, ...] = ()) -> None:
    with journal.turn(happened):
        journal.sees(seen, explained=True)
        journal.decides(found)
    journal.write()


def lines(home: Path) -> list[dict[str, Any]]:
    """Every line but the heads; strictly JSON."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    found = []
    for file in sorted((home / "journal").iterdir()):
        head, *rest = file.read_text().splitlines()
        assert json.loads(head)["journal"] == 1
        found += [json.loads(line, parse_constant=refuse) for line in rest]
    return found


def test_a_line_has_both_times_the_turn_the_epoch_the_events_and_the_instructions(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal = opened(tmp_path, clock=clock)
    clock.move_to(5.0)
    turn(journal, Alive(7), found=(Send(7, 1),))
    [line] = lines(tmp_path)
    assert (line["turn"], line["epoch"], line["mono_s"], line["at_s"]) == (1, 3, 5.0, 1_800_000_005.0)
    assert line["events"] == [{"is": "Alive", "worker_id": 7}]
    assert line["instructions"] == [{"is": "Send", "worker_id": 7, "job_id": 1}]


def test_a_turn_in_which_nothing_happened_is_not_written(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    turn(journal)
    assert not (tmp_path / "journal").exists()
    turn(journal, Nudged())
    [line] = lines(tmp_path)
    assert line["turn"] == 2 and "seen" not in line


def test_what_a_plan_says_again_is_written_once_whatever_its_figures(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for free in ("40", "41", "42"):
        turn(journal, found=(Head(1), Explain("boltz", "", 1, "pool_full", f"{free} GiB are free")))
    assert len(lines(tmp_path)) == 1
    turn(journal, found=(Head(1), Explain("boltz", "", 1, "no_room_now", "none is free")))
    turn(journal, found=(Head(1, victims=(7,)), Explain("boltz", "", 1, "no_room_now", "none is free")))
    assert [line["instructions"][1]["ruling"] for line in lines(tmp_path)] == [
        "pool_full",
        "no_room_now",
        "no_room_now",
    ]
    assert "why" not in lines(tmp_path)[0]["instructions"][1]


def test_a_snapshot_tells_what_differs_from_the_one_before_and_a_new_file_begins_with_all(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    turn(journal, found=(Send(1, 1),))
    turn(journal, seen=snapshot(overtake_s=60.0), found=(Send(1, 2),))
    learned = {**SEEN.providers, ("esm2", ""): Provider("esm2", load_s=3.0)}
    turn(journal, seen=snapshot(overtake_s=60.0, providers=learned), found=(Send(1, 3),))
    machine = replace(SEEN.machine, at_s=9.0)
    turn(journal, seen=snapshot(overtake_s=60.0, providers=learned, machine=machine), found=(Send(1, 4),))
    seen = [line["seen"] for line in lines(tmp_path)]
    assert seen[1] == {"overtake_s": 60.0}
    assert [row[:2] for row in seen[2]["providers"]["rows"]] == [["esm2", ""]] and list(seen[2]) == ["providers"]
    assert seen[3] == {"machine": {"at_s": 9.0}}
    turn(opened(tmp_path, epoch=4), found=(Send(1, 5),))
    assert lines(tmp_path)[-1]["seen"].keys() == seen[0].keys() >= {"machine", "providers", "workers", "paused"}


def test_numbers_that_json_has_not_are_words(tmp_path: Path) -> None:
    turn(opened(tmp_path), seen=snapshot(quiet_s=math.inf, overtake_s=math.nan), found=(Send(1, 1),))
    seen = lines(tmp_path)[0]["seen"]
    assert (seen["quiet_s"], seen["overtake_s"]) == ("inf", "nan")


def test_no_journal_has_what_a_worker_wrote_where_outputs_go_or_how_a_stranger_was_called(tmp_path: Path) -> None:
    secret = "MKTAYIAK"
    holding = Holding("boltz", 7, "ada", (), command=f"python --token {secret}")
    seen = snapshot(
        machine=replace(SEEN.machine, holdings=(holding,)), breakers={"boltz": Breaker("boltz", 2, secret, 9.0)}
    )
    happened = (
        Replied(1, 2, 1, Outcome("error", secret), secret.encode(), f"/out/{secret}", versions={"torch": secret}),
        Gone(1, 1, secret), Progressed(1, 2, 1, 1.0, None, secret), Answered(1, 5, 5.0, {"torch": secret}),
    )  # fmt: skip
    turn(opened(tmp_path), *happened, seen=seen, found=(Send(1, 1),))
    [line] = lines(tmp_path)
    assert len(line["events"]) == 4 and line["events"][0]["outcome"][0] == "error"
    assert secret not in json.dumps(line) and "boltz" in json.dumps(line["seen"]["machine"])


def test_a_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        turn(opened(tmp_path), Nudged())
    finally:
        os.umask(before)
    [file] = (tmp_path / "journal").iterdir()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)]
    assert modes == [0o700, 0o600]


def test_the_oldest_files_are_dropped_so_that_all_of_them_keep_within_their_room(tmp_path: Path) -> None:
    journal, room = opened(tmp_path, mib=0.25), (1 << 20) / 4
    for n in range(3000):
        turn(journal, *[Alive(each) for each in range(20)], found=(Send(1, n),))
        files = sorted((tmp_path / "journal").iterdir())
        assert sum(file.stat().st_size for file in files) <= room + 2000
    assert 6 <= len(files) <= 8 and not files[0].name.endswith("-000001.jsonl")
    assert lines(tmp_path)[-1]["turn"] == 3000


def test_schedulers_that_come_and_go_leave_no_more_than_a_hundred_files(tmp_path: Path) -> None:
    for epoch in range(1, 121):
        turn(opened(tmp_path, epoch=epoch), Nudged())
    names = sorted(path.name for path in (tmp_path / "journal").iterdir())
    assert len(names) == 100 and names[-1].startswith("00000120-")


def test_none_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    turn(opened(tmp_path, mib=0.0), Nudged(), found=(Send(1, 1),))
    assert list(tmp_path.iterdir()) == []


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a disk that is full: the kernel takes a part of a write, and then no more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_is_said_once_and_later_it_goes_on_in_a_new_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    journal = opened(tmp_path, clock=clock)
    turn(journal, found=(Send(1, 1),))
    size = next((tmp_path / "journal").iterdir()).stat().st_size
    with caplog.at_level(logging.WARNING, "schedq"), no_file_longer_than(size + 40):
        for n in range(200):
            clock.move_to(n)
            turn(journal, found=(Send(1, n),))
    assert len(caplog.records) == 1
    assert "journal" in caplog.text and "goes on without it" in caplog.text
    clock.move_to(300.0)
    turn(journal, found=(Send(2, 2),))
    last = sorted((tmp_path / "journal").iterdir())[-1].read_text().splitlines()
    assert len(last) == 2 and "machine" in json.loads(last[1])["seen"]


def test_a_fault_of_the_journal_itself_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.journal.named", lambda those: 1 // 0)
    with caplog.at_level(logging.WARNING, "schedq"):
        turn(opened(tmp_path), Nudged())
    assert "ZeroDivisionError" in caplog.text


def test_nothing_is_written_into_a_queue_that_took_the_place_of_this_one(tmp_path: Path) -> None:
    clock, home = VirtualClock(), tmp_path / "home"
    journal = opened(home, mib=0.0001, clock=clock)
    turn(journal, Nudged())
    os.rename(home, tmp_path / "away")
    home.mkdir()
    for n in range(20):
        clock.move_to(n * 100.0)
        turn(journal, Nudged(), found=(Send(1, n),))
    assert list(home.iterdir()) == []


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal = opened(tmp_path, mib=0.0001, clock=clock)
    turn(journal, Nudged())
    for file in (tmp_path / "journal").iterdir():
        file.unlink()
    (tmp_path / "journal").rmdir()
    for n in range(3):
        clock.move_to(n * 100.0)
        turn(journal, Nudged())
    assert lines(tmp_path)


def test_a_turn_that_was_rolled_back_says_why_and_its_repetitions_are_not_written(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for _ in range(5):
        with pytest.raises(Fenced), journal.turn((Alive(7),)):
            journal.sees(SEEN, explained=True)
            journal.decides((Send(7, 1),))
            raise Fenced("attempt 2 is another's; so far: 21:04 fail (MKTAYIAK is no sequence)")
        journal.write()
    turn(journal, Alive(7), found=(Send(7, 1),))
    first, second = lines(tmp_path)
    assert first["rolled_back"] == "Fenced: attempt 2 is another's" and first["instructions"]
    assert "rolled_back" not in second and second["instructions"]
