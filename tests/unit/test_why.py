"""Every decision on a job is kept with the numbers that it was made from, and `why` tells it, newest first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from builders import demand, holding, machine, pool, reading
from queues import AT, asked, scheduler, submitted

from scheduler.cli import why as page
from scheduler.cli.fast import Call
from scheduler.clock import seconds
from scheduler.config import Paths
from scheduler.errors import NoSuchJob
from scheduler.loop import Loop
from scheduler.model import outcome
from scheduler.model.machine import Charge, Machine, Reading
from scheduler.model.provider import Provider
from scheduler.model.verdict import Verdict
from scheduler.perform import Identity
from scheduler.rules import admission
from scheduler.rules.evidence import as_json
from scheduler.simulate.clock import VirtualClock
from scheduler.simulate.host import SimHost
from scheduler.store import decisions, intake, operator, peek, reasons, schedulers
from scheduler.store.engine import Store
from scheduler.view import Orders

CAPACITY = 36.0


class Machinery(SimHost):
    """A simulated machine whose live figure a test can set."""

    live_gib: float = CAPACITY

    def machine(self) -> Machine:
        seen = super().machine()
        live = Reading(self.live_gib, "MemAvailable")
        return replace(seen, pools=tuple(replace(each, free=live, available=live) for each in seen.pools))


class Queue:
    """A real queue under the real loop, on a simulated machine of 36 GiB of which 4 are reserved."""

    def __init__(self, paths: Paths, store: Store) -> None:
        self.paths, self.clock = paths, VirtualClock()
        self.host = Machinery(
            self.clock, {}, capacity_gib=CAPACITY, reserve_gib=4.0, load_s=lambda slug: 10.0, run_s=lambda task: 5.0
        )
        with store.write() as tx:
            epoch = schedulers.begin(tx, pid=1, started=1.0, boot_id="b", host_id="h", version="t", at=AT)
        self.loop = Loop(store, self.host, self.clock, Identity(epoch, "h", "q"), Orders(), draw=lambda: 0.5)
        self.loop.recover()

    def provide(self, slug: str, gib: float) -> None:
        self.host.catalog[slug, ""] = Provider(slug, policy="required", vram_gib=gib, revision="r", backoff_s=1.0)

    def submit(self, slug: str) -> int:
        job = {"slug": slug, "name": "x", "revision": "r", "input_name": "x.json", "input_kind": "json", "data": b"{}"}
        return intake.submit(self.paths, [job])[0]

    def until(self, job_id: int, state: str) -> None:
        for _ in range(400):
            if peek.states(self.paths, [job_id])[job_id] == state:
                return
            self.loop.tick()
        raise AssertionError(f"job {job_id} is not {state}: {peek.job(self.paths, job_id)}")

    def why(self, job_id: int) -> list[dict[str, object]]:
        with scheduler(self.paths):
            return peek.decisions(self.paths, job_id)["decisions"]  # type: ignore[no-any-return]


@pytest.fixture
def queue(paths: Paths) -> Iterator[Queue]:
    store = Store(paths)
    yield Queue(paths, store)
    store.close()


def rulings(made: list[dict[str, object]]) -> list[object]:
    return [each["ruling"] for each in made]


def test_a_job_that_runs_tells_how_it_was_admitted_with_every_number(queue: Queue) -> None:
    queue.provide("boltz", 10.0)
    job = queue.submit("boltz")
    queue.until(job, "running")
    confirmed, admitted = queue.why(job)
    assert (confirmed["ruling"], admitted["ruling"]) == ("admit", "admit")
    assert str(admitted["text"]).startswith("worker 1 was started for it: boltz fits: 10 GiB beside 0 charged and 4")
    assert str(confirmed["text"]).startswith(
        "worker 1 may begin, still so when everybody could see its claim: boltz fits"
    )
    for each in (confirmed, admitted):
        evidence = each["evidence"]
        assert each["worker_id"] == 1 and isinstance(evidence, dict)
        [place] = evidence["placement"]
        assert (place["pool"], place["demand_gib"], place["capacity_gib"], place["reserve_gib"]) == (
            "unified", 10.0, CAPACITY, 4.0,
        )  # fmt: skip
        assert (place["charged_gib"], place["live_gib"], place["live_source"]) == (0.0, CAPACITY, "MemAvailable")
        assert evidence["demand"]["device_gib"] == 10.0


def test_the_story_of_a_job_does_not_say_twice_that_it_was_admitted(queue: Queue) -> None:
    queue.provide("boltz", 10.0)
    job = queue.submit("boltz")
    queue.until(job, "running")
    assert [line["event"] for line in peek.job(queue.paths, job)["story"]] == ["submit", "admit", "send"]


def test_each_ruling_on_the_first_of_a_provider_is_kept_newest_first(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    queue.provide("af3", 20.0)
    first, second = queue.submit("boltz"), queue.submit("af3")
    queue.until(first, "running")
    made = queue.why(second)
    assert rulings(made) == ["pool_full"]
    evidence = made[0]["evidence"]
    assert isinstance(evidence, dict)
    [place] = evidence["placement"]
    assert [(held["name"], held["charge_gib"]) for held in place["held"]] == [("boltz", 20.0)]
    assert place["charged_gib"] == 20.0 and evidence["demand"]["slug"] == "af3"
    queue.until(second, "succeeded")
    made = queue.why(second)
    assert rulings(made)[:2] == ["admit", "admit"] and rulings(made)[-1] == "pool_full"
    stamps = [str(each["at"]) for each in made]
    assert stamps == sorted(stamps, reverse=True)


def test_a_reason_whose_figures_change_is_one_decision_and_its_newest_figures(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    queue.host.live_gib = 10.0
    job = queue.submit("boltz")
    for n in range(200):
        queue.host.live_gib = 10.0 + n / 100
        queue.loop.tick(0.5)
    assert asked(queue.paths, "SELECT count(*) FROM events WHERE event = 'no_room_now'") == [(1,)]
    newest, first = queue.why(job)
    assert rulings([newest, first]) == ["no_room_now", "no_room_now"]
    assert newest["evidence"]["placement"][0]["live_gib"] > 11.5  # type: ignore[index]
    assert first["evidence"]["placement"][0]["live_gib"] == 10.0  # type: ignore[index]


def test_a_reason_that_stands_as_it_was_found_is_told_once(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    queue.host.live_gib = 10.0
    job = queue.submit("boltz")
    for _ in range(30):
        queue.loop.tick(1.0)
    assert rulings(queue.why(job)) == ["no_room_now"]


def test_a_job_behind_the_first_tells_that_and_what_the_first_waits_for(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    queue.host.live_gib = 10.0
    first, second = queue.submit("boltz"), queue.submit("boltz")
    queue.loop.tick(0.0)
    [told] = queue.why(second)
    assert told["ruling"] == "busy"
    assert str(told["text"]).startswith(f"behind job {first} of boltz, which waits: no_room_now: boltz needs 20 GiB of")
    assert told["evidence"] == queue.why(first)[0]["evidence"] is not None


def test_a_parked_worker_that_lost_its_room_tells_what_it_was_refused_for(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    job = queue.submit("boltz")
    queue.loop.tick(0.0)
    assert peek.states(queue.paths, [job]) == {job: "admitted"}
    queue.host.live_gib = 10.0
    queue.until(job, "queued")
    refused, admitted = queue.why(job)[-2:]
    assert (refused["ruling"], refused["worker_id"], admitted["ruling"]) == ("no_room_now", 1, "admit")
    assert str(refused["text"]).startswith("worker 1 was ended before anything was spent: boltz needs 20 GiB")
    assert refused["evidence"]["placement"][0]["live_gib"] == 10.0  # type: ignore[index]
    assert queue.why(job)[0]["ruling"] == "backoff"


def test_a_job_that_idle_workers_make_room_for_keeps_what_it_was_refused_on(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    queue.provide("af3", 20.0)
    queue.until(queue.submit("boltz"), "succeeded")
    job = queue.submit("af3")
    queue.until(job, "succeeded")
    first = queue.why(job)[-1]
    assert first["ruling"] == "pool_full" and "idle worker 1 makes room for it now" in str(first["text"])
    assert first["evidence"]["placement"][0]["held"][0]["charge_gib"] == 20.0  # type: ignore[index]


def test_a_job_of_a_warm_worker_needed_no_room(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    queue.submit("boltz")
    second = queue.submit("boltz")
    queue.until(second, "succeeded")
    newest = queue.why(second)[0]
    assert (newest["ruling"], newest["evidence"]) == ("admit", None)
    assert newest["text"] == "sent to worker 1, which was ready: it needed no further room"


def test_without_a_scheduler_that_is_the_reason_and_what_was_decided_stays(queue: Queue) -> None:
    queue.provide("boltz", 20.0)
    queue.host.live_gib = 10.0
    job = queue.submit("boltz")
    queue.loop.tick(0.0)
    made = peek.decisions(queue.paths, job)["decisions"]
    assert rulings(made) == ["scheduler_down", "no_room_now"]
    assert made[0]["evidence"] is None and made[1]["evidence"] is not None


def test_a_job_that_nobody_has_looked_at_says_so(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    [job] = submitted(paths)
    intake.cancel(paths, [job])
    assert peek.decisions(paths, job)["decisions"] == []
    found = peek.decisions(paths, job)
    assert "nothing was decided on it; schedq show 1" in "\n".join(page.page(found, seconds(AT)))


def test_a_job_that_is_held_tells_that(paths: Paths, store: Store) -> None:
    submitted(paths)
    with store.write() as tx:
        operator.hold(tx, 1, AT)
    assert [each["ruling"] for each in peek.decisions(paths, 1)["decisions"]] == ["held"]


def test_no_such_job_is_an_error_of_its_own(paths: Paths) -> None:
    submitted(paths)
    with pytest.raises(NoSuchJob) as caught:
        peek.decisions(paths, 9)
    assert caught.value.exit_code == 4


def test_the_rulings_that_are_looked_for_are_those_of_the_model() -> None:
    assert set(decisions.RULINGS) == set(outcome.RULINGS) - {"admit"}


def test_the_page_is_80_columns_and_json_has_every_number(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", queue.paths.home)
    queue.provide("boltz", 20.0)
    queue.provide("af3", 20.0)
    queue.submit("boltz")
    second = queue.submit("af3")
    queue.until(second, "succeeded")
    assert page.why(Call("why", {"id": str(second)})) == 0
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"job {second}  af3  x  succeeded"
    heads = [line.split() for line in lines if " ago " in line]
    assert (heads[0][-1], heads[-1][-1]) == ("admit", "pool_full")
    assert all(head[2].isalpha() and head[4] == "ago" for head in heads)
    assert page.why(Call("why", {"id": "last", "json": True})) == 0
    whole = json.loads(capfd.readouterr().out)
    assert whole.keys() >= {"schema_version", "id", "state", "decisions"}
    assert (whole["id"], whole["state"]) == (second, "succeeded")
    for each in whole["decisions"]:
        assert each.keys() == {"at", "ruling", "text", "evidence", "worker_id"}


def test_a_long_history_is_cut_on_the_page_and_whole_in_json() -> None:
    one = {"at": AT, "ruling": "busy", "text": "worker 1 has job 2", "evidence": None, "worker_id": None}
    made = [{**one, "worker_id": n} for n in range(60) for _ in range(2)]
    found = {"id": 7, "slug": "esm2", "variant": "t33", "name": "x\x1b[2J", "state": "queued", "decisions": made}
    lines = page.page(found, seconds(AT) + 7500)
    assert lines[-1] == "and 10 earlier; schedq why 7 --json has all", "what is told twice in a second is told once"
    assert "2h 05m ago" in lines[2] and "\x1b" not in lines[0]


def test_evidence_is_json_whatever_could_not_be_read(store: Store) -> None:
    here = machine(
        pool("unified", None, free=math.nan, available=math.inf),
        accelerators=reading(None, missing="the driver does not answer"),
        holdings=(holding(Charge("unified", None, None, "device")),),
        competing=None,
        holdings_missing="/proc is hidden",
    )
    asked_for = demand(math.nan, math.inf)
    verdict = admission.confirm(asked_for, {"unified": math.inf}, here, [], 0)
    found = as_json(verdict)
    text = json.dumps(found, allow_nan=False)
    [place] = found["placement"]
    assert (place["capacity_gib"], place["capacity_missing"]) == (None, "it did not answer")
    assert place["live_gib"] is None and place["demand_gib"] is None and place["held"][0]["charge_gib"] is None
    assert (found["accelerators"], found["accelerators_missing"]) == (None, "the driver does not answer")
    assert found["competing"] is None and "hidden" in text
    with store.write() as tx:
        reasons.put(tx, "boltz", "", None, verdict.ruling, "t", AT, found)


def test_evidence_is_made_only_when_it_is_written(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    from scheduler import perform

    made: list[Verdict] = []
    monkeypatch.setattr(perform, "as_json", lambda verdict: made.append(verdict) or as_json(verdict))
    queue.provide("boltz", 20.0)
    queue.host.live_gib = 10.0
    queue.submit("boltz")
    for _ in range(50):
        queue.loop.tick(0.1)
    assert len(made) == 1
