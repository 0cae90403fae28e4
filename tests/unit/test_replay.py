"""A bug report is a journal: what a scheduler wrote down, decided again by the planner, gives the same instructions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import replay
from builders import broken, lease, provider, snapshot, unified, waiting, worker

from scheduler.config import Paths
from scheduler.journal import Journal
from scheduler.loop import Loop
from scheduler.model.host import Nudged, Task
from scheduler.model.machine import Charge, Device, Holding, Reading, Tenant
from scheduler.model.outcome import Outcome
from scheduler.model.plan import Send, Snapshot
from scheduler.model.provider import Provider
from scheduler.perform import Identity
from scheduler.rules.desk import Desk
from scheduler.simulate import night, trace
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import BOOT_ID, SimHost
from scheduler.store import intake, peek, schedulers
from scheduler.store.engine import Store
from scheduler.view import Orders

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from overnight_trace import trace as generated


class Evening:
    """Schedulers that come and go on one queue of a simulated machine, each with its journal; replies may fail."""

    def __init__(self, folder: Path, outcome: Callable[[Task], Outcome] = lambda task: Outcome("ok")) -> None:
        self.paths, self.clock = Paths(str(folder / "home")), VirtualClock()
        self.journal = folder / "home" / "journal"
        self.heard: list[str] = []
        self.host = SimHost(
            self.clock, {}, capacity_gib=36.0, reserve_gib=4.0, load_s=lambda slug: 10.0, run_s=lambda task: 5.0,
            outcome=outcome,
        )  # fmt: skip
        poll = self.host.poll
        self.host.poll = lambda timeout_s: [self.heard.append(type(e).__name__) or e for e in poll(timeout_s)]
        for slug, gib in (("boltz", 20.0), ("esm2", 20.0), ("propka", 8.0)):
            self.host.catalog[slug, ""] = Provider(
                slug, policy="required", vram_gib=gib, revision="r", backoff_s=1.0, idle_timeout_s=60.0
            )

    def submit(self, slug: str, count: int = 1) -> None:
        row = {"slug": slug, "name": "x", "revision": "r", "input_name": "x.json", "input_kind": "json", "data": b"{}"}
        intake.submit(self.paths, [row] * count)
        self.host.after(0.0, Nudged())

    def serve(self, ticks: int) -> None:
        """A scheduler that ends after so many ticks, as if it was killed."""
        store = Store(self.paths)
        with store.write() as tx:
            at = "2027-01-15T08:00:00Z"
            epoch = schedulers.begin(tx, pid=1, started=1.0, boot_id=BOOT_ID, host_id="h", version="t", at=at)
        journal = Journal(self.paths.home, 8.0, self.clock, epoch, "t")
        loop = Loop(
            store, self.host, self.clock, Identity(epoch, "h", "q"), Orders(30.0), draw=lambda: 0.5, journal=journal
        )
        try:
            loop.recover()
            for _ in range(ticks):
                loop.tick()
        finally:
            store.close()


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Evening:
    """An evening with evictions, crashes, breakers and three schedulers."""
    outcomes = {5: Outcome("crashed", "it died"), 10: Outcome("error", "no such residue")}
    evening = Evening(
        tmp_path_factory.mktemp("evening"), lambda task: outcomes.get(task.job_id) or Outcome("ok")
    )  # fmt: skip
    for slug, count in (("boltz", 6), ("esm2", 5), ("propka", 7)):
        evening.submit(slug, count)
    for ticks in (9, 14, 120):
        evening.serve(ticks)
    states = peek.states(evening.paths, list(range(1, 19)))
    assert set(states.values()) == {"succeeded", "failed"}, states
    return evening


@pytest.fixture
def journal(lived: Evening, tmp_path: Path) -> Path:
    """A copy of that evening's journal, which a test may damage."""
    return Path(shutil.copytree(lived.journal, tmp_path / "journal"))


def test_an_evening_with_evictions_crashes_and_new_schedulers_is_decided_again_the_same(journal: Path) -> None:
    found, plans, turns = replay.first_difference(journal)
    assert (found, len(list(journal.iterdir()))) == ("", 3)
    assert plans >= 30 and turns > plans
    said = {each["is"] for turn in replay.turns(journal) for each in turn.told.get("instructions", ())}
    assert said >= {"Start", "Go", "Send", "Retire", "Head", "Explain", "Prefer"}


def test_every_event_that_the_host_told_stands_in_it(lived: Evening) -> None:
    turns = [turn.told for turn in replay.turns(lived.journal)]
    assert [event["is"] for turn in turns for event in turn.get("events", ())] == lived.heard


def simulated(folder: Path, monkeypatch: pytest.MonkeyPatch, **over: Any) -> Path:
    """The journal of a night as `simulate` runs it."""

    def kept(store: Store, host: SimHost, clock: VirtualClock, *rest: Any, **more: Any) -> Loop:
        return Loop(store, host, clock, *rest, **more, journal=Journal(str(folder), 8.0, clock, 1, "t"))

    monkeypatch.setattr(night, "Loop", kept)
    raw = generated(7, jobs=60, providers=9, capacity=72.0, arrivals="poisson", mix="uniform")
    night.simulate(trace.read(json.dumps(raw), "x"), **{"overtake_s": 60.0, "strict": False, **over})
    return folder / "journal"


@pytest.mark.parametrize("strict", [False, True])
def test_a_simulated_night_is_decided_again_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
) -> None:
    found, plans, _ = replay.first_difference(simulated(tmp_path, monkeypatch, strict=strict))
    assert found == "" and plans > 40


def test_a_rule_that_was_changed_is_seen_at_the_first_plan_that_follows_from_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scheduler.rules.desk.victims", lambda *_: None)
    assert replay.main([str(journal)]) == 1
    said = capsys.readouterr().out
    assert "jsonl:" in said and "of epoch 3 is decided otherwise" in said and '- {"is": "Retire"' in said, said
    monkeypatch.setattr(Desk, "make_room", lambda *_: 1 // 0)
    assert replay.main([str(journal)]) == 1
    assert '+ {"is": "failed", "text": "ZeroDivisionError' in capsys.readouterr().out


def test_a_plan_that_failed_left_what_it_saw_and_fails_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evening = Evening(tmp_path)
    evening.submit("boltz")
    with monkeypatch.context() as broken:
        broken.setattr(Desk, "start", lambda *_: {}["boltz"])
        evening.serve(5)
        found, plans, _ = replay.first_difference(evening.journal)
        assert found == "" and plans >= 1
    found, _, _ = replay.first_difference(evening.journal)
    assert """- {"is": "failed", "text": "KeyError: 'boltz'"}""" in found and '+ {"is": "Start"' in found


def test_every_field_of_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    card = Device(
        "GPU-1", "NVIDIA", "H100", Reading(80.0, "nvml"), Reading(None, "nvml", "it did not answer"),
        Reading(None, "nvml"), (Tenant(7, None, False),), display=True, number=3,
    )  # fmt: skip
    held = Holding("esm", 500, "bob", (Charge("unified", None, 1.5, "device"),), None, "", 12.25, None)
    seen = snapshot(
        provider(), provider("esm2", None, variant="big"), waiting(head_for_s=3.5, victims=(1, 2), following=(0, 9)),
        worker(gib=0.1 + 0.2), lease(), broken(), machine=unified(holdings=(held,), devices=(card,), notes=("a", "b")),
        order=(("boltz", ""), ("esm2", "big")), paused=True,
    )  # fmt: skip
    journal = Journal(str(tmp_path), 1.0, VirtualClock(), 1, "t")
    for n, each in enumerate((snapshot(), seen, seen)):
        with journal.turn(()):
            journal.sees(each, explained=True)
            journal.decides((Send(1, n),))
        journal.write()
    again = [turn.seen for turn in replay.turns(tmp_path / "journal")]
    assert again[0] == snapshot()
    for one in again[1:]:
        assert isinstance(one, Snapshot)
        assert {**vars(one), "breakers": {}} == {**vars(seen), "breakers": {}}
        assert one.breakers["boltz"].next_try_in_s == 30.0 and one.breakers["boltz"].last_error == ""


def run(*words: object) -> subprocess.CompletedProcess[str]:
    script = Path(replay.__file__)
    return subprocess.run(
        [sys.executable, str(script), *map(str, words)], capture_output=True, text=True, cwd="/",
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )  # fmt: skip


def test_the_tool_says_what_it_replayed_and_shows_what_is_decided_otherwise(journal: Path) -> None:
    done = run(journal)
    assert done.returncode == 0 and "the same instructions" in done.stdout, done
    first = sorted(journal.iterdir())[0]
    first.write_text(first.read_text().replace('"is":"Start","job_id":12', '"is":"Start","job_id":11', 1))
    done = run(journal)
    assert done.returncode == 1 and '- {"is": "Start", "job_id": 11' in done.stdout, done


def test_a_last_line_that_was_cut_is_left_out_and_what_is_no_journal_is_named(journal: Path, tmp_path: Path) -> None:
    before = replay.first_difference(journal)
    first, *_, last = sorted(journal.iterdir())
    last.write_bytes(last.read_bytes()[:-30])
    (journal / "00000009-000001.jsonl").write_bytes(b'{"journal":1,"ver')
    found, _, turns = replay.first_difference(journal)
    assert (found, turns) == ("", before[2] - 1)
    first.write_text(first.read_text().replace('"turn":2', "turn:2", 1))
    for folder, said in ((journal, f"{first.name}:3 is no line of a journal"), (tmp_path / "none", "has no journal")):
        done = run(folder)
        assert done.returncode == 2 and said in done.stderr, done
    first.write_text('{"journal": 99}\n')
    assert "no head of a journal of format 1" in run(journal).stderr


def test_a_journal_whose_oldest_files_were_dropped_is_replayed_from_where_it_begins(tmp_path: Path) -> None:
    made = Evening(tmp_path)
    small = partial(Journal, made.paths.home, 0.02)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(globals(), "Journal", lambda home, mib, *rest: small(*rest))
        made.submit("boltz", 10)
        made.submit("propka", 10)
        made.serve(100)
    names = sorted(path.name for path in made.journal.iterdir())
    assert names[0] > "00000001-000002"
    found, plans, _ = replay.first_difference(made.journal)
    assert found == "" and plans
