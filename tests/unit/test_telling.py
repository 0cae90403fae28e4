"""What is told, when, and how often: the outbox under a virtual clock, with somebody who takes it or does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from queues import row, writing

from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.model.plan import BreakerState
from scheduler.model.telling import Notice, Told
from scheduler.rules.again import next_try_s
from scheduler.simulate.clock import VirtualClock
from scheduler.store import breakers, incidents, intake, operator, schedules, upcoming
from scheduler.store.engine import Store
from scheduler.telling import Telling


class Receiver:
    """Who is told: keeps what it was told, and takes it unless `refuses` says why not."""

    def __init__(self) -> None:
        self.events: tuple[str, ...] = ("batch_ended", "breaker_opened")
        self.told: list[Notice] = []
        self.refuses = ""
        self.silent = False
        self._over: list[Told] = []

    def wants(self, event: str) -> bool:
        return event in self.events

    def tell(self, notice: Notice) -> None:
        self.told.append(notice)
        if not self.silent:
            self._over.append(Told(notice.incident_id, () if self.refuses else ("url",), self.refuses))

    def over(self) -> list[Told]:
        found, self._over = self._over, []
        return found


class Night:
    def __init__(self, folder: Path) -> None:
        self.paths = Paths(str(folder / "home"))
        self.clock, self.store, self.receiver = VirtualClock(), Store(self.paths), Receiver()
        self.telling = Telling(self.receiver, self.clock, "q1")

    def submit(self, count: int, batch: str = "night") -> list[int]:
        return intake.submit(self.paths, [row(batch=batch, submitted_at=self.at()) for _ in range(count)])

    def at(self) -> str:
        return stamp(self.clock.now_s())

    def cancel(self, ids: list[int]) -> None:
        with self.store.write() as tx:
            for job_id in ids:
                tx.exec_driver_sql(
                    "UPDATE jobs SET state = 'cancelled', ended_at = ? WHERE id = ?", (self.at(), job_id)
                )

    def requeue(self, job_id: int) -> None:
        with self.store.write() as tx:
            operator.requeue(tx, job_id, self.at())

    def turn(self) -> None:
        with self.store.write() as tx:
            deeds = self.telling.turn(tx)
        for deed in deeds:
            deed()

    def wait(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.turn()

    def texts(self) -> list[str]:
        return [str(notice.body["text"]).partition(": ")[2] for notice in self.receiver.told]

    def incidents(self) -> list[Any]:
        with self.store.read() as tx:
            return incidents.newest(tx, 100)


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    with closing(made.store):
        yield made


def test_a_batch_that_ended_is_told_once_when_it_has_been_over_for_a_while(night: Night) -> None:
    night.cancel(night.submit(2))
    night.turn()
    assert night.receiver.told == [] and night.telling.due_in_s() == [5.0]
    night.wait(5.0)
    assert night.texts() == ["batch night ended: 0 of 2 succeeded, 2 cancelled"]
    (notice,) = night.receiver.told
    assert notice.body["id"] == "q1:1" and notice.body["event"] == "batch_ended" and notice.body["jobs"] == 2
    for _ in range(3):
        night.wait(3600.0)
    assert len(night.receiver.told) == 1 and night.incidents()[0].sent_at is not None


def test_a_batch_that_is_still_being_submitted_is_not_told_job_by_job(night: Night) -> None:
    for _ in range(5):
        night.cancel(night.submit(1))
        night.wait(3.0)
    assert night.receiver.told == []
    night.wait(5.0)
    assert night.texts() == ["batch night ended: 0 of 5 succeeded, 5 cancelled"]


def test_a_batch_that_is_opened_again_is_told_again_when_it_ends(night: Night) -> None:
    (job_id,) = night.submit(1)
    night.cancel([job_id])
    night.turn(), night.wait(5.0)
    night.requeue(job_id)
    night.wait(60.0)
    assert len(night.receiver.told) == 1
    night.cancel([job_id])
    night.turn(), night.wait(5.0)
    assert [notice.body["id"] for notice in night.receiver.told] == ["q1:1", "q1:2"]


def test_what_is_not_taken_is_tried_again_less_and_less_often_under_the_same_id(night: Night) -> None:
    night.receiver.refuses = "https://hooks.example.org answered 500"
    night.cancel(night.submit(1))
    night.turn(), night.wait(5.0), night.turn()
    waits = []
    for _ in range(8):
        waits.append(round(night.telling.due_in_s()[0]))
        night.wait(waits[-1]), night.turn()
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert {notice.body["id"] for notice in night.receiver.told} == {"q1:1"}
    night.receiver.refuses = ""
    night.wait(3600.0), night.turn()
    (incident,) = night.incidents()
    assert incident.sent_at is not None and incident.error is None and incident.tries == 10


def test_after_a_day_it_is_given_up_and_that_is_kept(night: Night) -> None:
    night.receiver.refuses = "nobody there"
    night.cancel(night.submit(1))
    night.turn(), night.wait(5.0), night.turn()
    for _ in range(60):
        night.wait(3600.0), night.turn()
    (incident,) = night.incidents()
    assert (incident.next_try_at, incident.sent_at, incident.error) == (None, None, "nobody there")
    assert incident.tries < 40 and night.telling.due_in_s() == []


def test_one_that_hangs_holds_back_no_record_and_is_not_asked_twice_at_once(night: Night) -> None:
    night.receiver.silent = True
    night.cancel(night.submit(1, "one"))
    night.turn(), night.wait(5.0)
    night.cancel(night.submit(1, "two"))
    night.turn(), night.wait(5.0), night.wait(60.0)
    assert len(night.receiver.told) == 1 and len(night.incidents()) == 2


def test_the_next_scheduler_tells_what_this_one_could_not(night: Night) -> None:
    night.receiver.silent = True
    night.cancel(night.submit(1))
    night.turn(), night.wait(5.0)
    night.receiver.silent = False
    night.telling = Telling(night.receiver, night.clock, "q1")
    night.turn(), night.turn()
    assert [notice.body["id"] for notice in night.receiver.told] == ["q1:1", "q1:1"]
    assert night.incidents()[0].sent_at is not None


def test_who_took_it_already_is_not_asked_again(night: Night) -> None:
    night.cancel(night.submit(1))
    night.receiver.tell = lambda notice: (  # type: ignore[method-assign]
        night.receiver.told.append(notice),
        night.receiver._over.append(Told(notice.incident_id, ("command",), "the webhook is down")),
    )
    night.turn(), night.wait(5.0), night.turn(), night.wait(60.0)
    assert [notice.took for notice in night.receiver.told] == [(), ("command",)]


def test_where_nobody_is_to_be_told_it_is_written_down_and_never_sent(night: Night) -> None:
    night.receiver.events = ()
    night.cancel(night.submit(1))
    night.turn(), night.wait(5.0)
    night.receiver.events = ("batch_ended",)
    night.wait(60.0)
    assert night.receiver.told == []
    assert [(incident.kind, incident.tries, incident.next_try_at) for incident in night.incidents()] == [
        ("batch_ended", 0, None)
    ]


def test_a_rolled_back_turn_loses_no_answer(night: Night) -> None:
    class Full(Exception):
        pass

    night.cancel(night.submit(1))
    night.turn(), night.wait(5.0)
    with pytest.raises(Full), night.store.write() as tx:
        night.telling.turn(tx)
        raise Full
    night.telling.doubt()
    night.turn()
    assert night.incidents()[0].sent_at is not None and len(night.receiver.told) == 1


def test_what_was_told_in_the_last_moment_is_recorded_at_the_end(night: Night) -> None:
    night.cancel(night.submit(1))
    night.turn(), night.wait(5.0)
    with night.store.write() as tx:
        night.telling.record(tx, night.clock.now_s())
    assert night.incidents()[0].sent_at is not None


def test_a_clock_that_is_turned_back_tells_a_batch_all_the_same(night: Night) -> None:
    night.cancel(night.submit(1))
    night.clock._start_s -= 7200.0
    night.turn()
    assert len(night.receiver.told) == 1


def test_a_breaker_that_opens_is_told_and_one_that_closes_is_kept(night: Night) -> None:
    now_s = night.clock.now_s()
    with night.store.write() as tx:
        breakers.put(tx, "boltz", BreakerState(1, ("(start)",), "no weights"), night.at())
        opened = BreakerState(2, ("(start)", "(start)"), "no weights", now_s, now_s + 60.0)
        breakers.put(tx, "boltz", opened, night.at())
        breakers.put(tx, "boltz", BreakerState(3, opened.inputs, "no weights", now_s, now_s + 120.0), night.at())
        breakers.put(tx, "boltz", None, night.at())
        breakers.put(tx, "esm", BreakerState(0, (), "the licence server is asleep", now_s, now_s + 60.0), night.at())
    night.turn(), night.turn()
    assert [incident.kind for incident in night.incidents()] == ["breaker_closed", "breaker_opened"]
    (text,) = night.texts()
    assert text.startswith("boltz failed 2 times in a row and is left alone until 2027-") and "no weights" in text


def test_a_retry_waits_from_a_minute_to_an_hour_and_a_day_at_most() -> None:
    assert [next_try_s(n, 0.0, 0.0) for n in (1, 2, 6, 7, 500)] == [60.0, 120.0, 1920.0, 3600.0, 3600.0]
    assert next_try_s(3, 0.0, 86400.0) is None


def test_no_statement_of_a_turn_walks_through_a_table(night: Night) -> None:
    """Its cost does not grow with the incidents, batches and runs of a long time (P12)."""
    asked = [incidents.ENDED_BATCHES, incidents.SOONEST, incidents.DUE, incidents.UNJUDGED, incidents.BY_STATE]
    asked += [schedules.NEXT, schedules.DUE, schedules.UNENDED, upcoming.NEXT, upcoming.UNSENT, upcoming.RUNNING]
    night.turn()
    values = {"now_at": night.at(), "batch": "night"}
    with writing(night.paths) as db:
        for statement in asked:
            given = values if ":" in statement else (night.at(), 3)[: statement.count("?")]
            steps = [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {statement}", given)]
            walked = [
                step
                for step in steps
                if step.startswith("SCAN") and "INDEX" not in step and step != "SCAN CONSTANT ROW"
            ]
            assert walked == [], statement
