"""When waiting jobs are expected to be sent: from learned means, charges and the order of starts."""

from __future__ import annotations

from math import inf

from builders import broken, machine, pool, provider, snapshot, waiting, worker
from pytest import approx

from scheduler.model.plan import Predict
from scheduler.rules import expected
from scheduler.rules.predict import predict
from scheduler.store import outlook

HERE = machine(pool("host", 64.0))


def told(*parts: object, **over: object) -> dict[str, tuple[float, float, int]]:
    found = predict(snapshot(*parts, **over))
    assert all(isinstance(each, Predict) for each in found)
    return {each.slug: (each.starts_in_s, each.run_s, each.workers) for each in found}


def test_a_job_behind_a_busy_worker_is_sent_when_that_is_expected_to_be_done() -> None:
    known = provider(load_s=100.0, run_s=40.0)
    assert told(known, waiting(), worker(3, state="busy", job_id=9, state_s=30.0)) == {"boltz": (10.0, 40.0, 1)}
    late = told(known, waiting(), worker(3, state="busy", job_id=9, state_s=500.0))
    assert late["boltz"][0] == approx(expected.LEAST_LEFT * 40.0)


def test_a_job_behind_a_loading_worker_waits_for_the_load_and_for_the_job_that_it_is_for() -> None:
    known = provider(load_s=100.0, run_s=40.0)
    assert told(known, waiting(), worker(3, state="starting", job_id=9, state_s=30.0)) == {"boltz": (110.0, 40.0, 1)}


def test_an_absent_provider_starts_when_its_room_is_given_back_and_then_loads() -> None:
    parts = (provider(ram=40.0, load_s=100.0, run_s=40.0), provider("esm", ram=40.0, load_s=9.0, run_s=60.0))
    busy = worker(5, "esm", "busy", 40.0, job_id=9, state_s=20.0)
    assert told(*parts, waiting(), busy) == {"boltz": (140.0, 40.0, 1)}
    behind = told(*parts, waiting(), waiting("esm", 2, count=3), busy)
    assert behind["boltz"][0] == approx(40.0 + 3 * 60.0 + 100.0) and behind["esm"][0] == approx(40.0)


def test_what_fits_now_only_loads() -> None:
    assert told(provider(ram=4.0, load_s=100.0, run_s=5.0), waiting()) == {"boltz": (100.0, 5.0, 1)}


def test_nothing_is_said_of_what_waits_for_the_end_of_a_command() -> None:
    """Nobody knows how long a command takes, however short the others' jobs are."""
    short = provider(ram=40.0, load_s=1.0, run_s=0.1)
    command = worker(5, "exec", "busy", 40.0, job_id=9, state_s=20.0, variant="v0r40n0t1-fabc")
    assert told(short, waiting(), command) == {}
    seen = provider("esm", ram=40.0, load_s=1.0, run_s=60.0)
    assert told(short, seen, waiting(), worker(5, "esm", "busy", 40.0, job_id=9, state_s=20.0)) != {}
    beside = told(short, provider("esm", ram=10.0, load_s=2.0, run_s=0.1), waiting(), waiting("esm", 2), command)
    assert beside == {"esm": (2.0, approx(0.1), 1)}


ECHO = provider("echo", ram=1.0, load_s=0.05, run_s=0.01)
"""A provider that is quick, and says nothing of how long others take."""


def test_of_a_provider_that_never_ran_nothing_is_said_however_quick_the_others_are() -> None:
    assert told(provider(), waiting()) == {}
    assert told(ECHO, provider(), waiting()) == {}
    assert told(ECHO, provider(), waiting(), worker(3, state="starting", job_id=9, state_s=30.0)) == {}
    assert told(ECHO, provider(), waiting(), worker(3, state="busy", job_id=9, state_s=30.0)) == {}
    assert told(ECHO, provider(), waiting(), worker(3, state="ready", idle_s=1.0)) == {"boltz": (0.0, inf, 1)}


def test_where_only_the_load_is_known_the_first_start_is_told_and_no_end() -> None:
    assert told(ECHO, provider(load_s=9.0), waiting()) == {"boltz": (9.0, inf, 1)}
    assert told(ECHO, provider(run_s=9.0), waiting()) == {}


def test_nothing_is_said_of_what_needs_the_room_of_one_that_was_never_seen() -> None:
    known, unseen = provider(ram=40.0, load_s=9.0, run_s=1.0), provider("esm", ram=40.0)
    for at_it in ("starting", "busy"):
        assert told(known, unseen, ECHO, waiting(), worker(5, "esm", at_it, 40.0, job_id=9, state_s=20.0)) == {}
    first = told(known, unseen, ECHO, waiting("esm", 1), waiting("boltz", 2), order=(("esm", ""), ("boltz", "")))
    assert first == {}
    beside = told(known, provider("esm", ram=1.0), ECHO, waiting("esm", 1), waiting("boltz", 2))
    assert beside == {"boltz": (9.0, 1.0, 1)}


def test_nothing_is_said_of_what_nobody_here_can_start() -> None:
    assert told(provider(), broken(), waiting()) == {}
    assert told(provider(ram=63.0), waiting()) == {}
    assert told(provider(), waiting(), paused=True) == {}


def test_what_a_reading_refuses_is_not_said_to_start_now() -> None:
    cached = machine(pool("host", 64.0, free=5.0, available=60.0))
    parts = (provider(ram=20.0, load_s=10.0, run_s=5.0), provider("esm", ram=1.0, load_s=1.0, run_s=60.0))
    busy = worker(5, "esm", "busy", 1.0, job_id=9, state_s=20.0)
    assert told(*parts, waiting(), busy, machine=cached) == {"boltz": (50.0, 5.0, 1)}
    behind = told(*parts, waiting(), waiting("esm", 2, count=2), busy, machine=cached)
    assert behind["boltz"][0] == approx(40.0 + 2 * 60.0 + 10.0)
    full = machine(pool("host", 64.0, free=5.0, available=60.0), competing=1)
    assert told(provider(ram=20.0), waiting(), machine=full) == {}


def test_several_workers_serve_side_by_side() -> None:
    two = provider(max_workers=2, load_s=1.0, run_s=40.0)
    parts = (worker(3, state="busy", job_id=8, state_s=35.0), worker(4, state="busy", job_id=9, state_s=5.0))
    assert told(two, waiting(), *parts) == {"boltz": (5.0, 40.0, 2)}


def test_status_counts_what_is_left_as_the_rules_do() -> None:
    assert outlook.LEAST_LEFT == expected.LEAST_LEFT
