"""Why a job waits, in words: what was asked, what stands in the way in numbers, what to do next."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders import broken, claim, demand, holding, machine, pool, provider, reading, unified, waiting, worker
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.machine import Charge
from scheduler.model.plan import Breaker
from scheduler.rules import explain
from scheduler.rules.admission import decide


def test_a_sum_that_is_a_little_too_much_is_shown_as_more() -> None:
    assert explain.figures([28.0, 4.0], 24.0) == (["28", "4"], "32", "24", "8")
    assert explain.figures([56.04], 56.0)[1:3] == ("56.04", "56.00".rstrip("0").rstrip("."))
    assert explain.figures([56.000001], 56.0)[1:3] == ("56.000001", "56")
    assert explain.figures([10.4, 10.4], 20.0)[0:2] == (["10.4", "10.4"], "20.8")


@given(st.lists(st.floats(0.0, 500.0), min_size=1, max_size=4), st.floats(0.0, 500.0))
def test_what_is_shown_compares_and_adds_up_as_what_is_true(parts: list[float], limit: float) -> None:
    shown, total, bound, _ = explain.figures(parts, limit)
    if abs(math.fsum(parts) - limit) > 1e-6:
        assert (float(total) > float(bound)) == (math.fsum(parts) > limit)
    assert float(total) == pytest.approx(math.fsum(map(float, shown)), abs=1e-6)


def test_an_exact_pool_is_not_said_to_be_smaller_than_itself() -> None:
    verdict = decide(demand(0.0, 62.04), machine(pool("host", 64.0)), [])
    text = explain.sentence(verdict)
    assert "62.04 GiB of host" in text and "64.04" in text and "all of its 64 GiB" in text and "never" in text


def test_a_full_pool_names_who_is_charged_and_how_much_must_come_back() -> None:
    foreign = holding(Charge("host", 20.0, 20.0), name="af3", pid=812)
    verdict = decide(demand(0.0, 30.0), machine(pool("host", 64.0), holdings=(foreign,)), [claim(1, host=15.5)])
    text = explain.sentence(verdict)
    assert verdict.ruling == "pool_full"
    for said in ("30 GiB of host", "2 GiB stay reserved", "35.5 GiB are charged", "af3 (pid 812, bob) 20", "w1 15.5"):
        assert said in text
    assert "67.5 GiB of 64" in text and "3.5 GiB are given back" in text


def test_no_room_now_tells_the_reading_its_source_and_what_is_owed() -> None:
    here = machine(pool("host", 64.0, free=5.0), competing=None)
    text = explain.sentence(decide(demand(0.0, 20.0), here, [claim(1, host=10.0)]))
    for said in (
        "20 GiB of host",
        "10 GiB are still owed",
        "32 GiB",
        "5 GiB are there now (free)",
        "could not be counted",
        "27 GiB more",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("loading", "said"),
    [(1, "while 1 worker loads or computes"), (2, "while 2 workers load or compute")],
)
def test_no_room_now_says_that_free_memory_alone_counts_and_because_of_whom(loading: int, said: str) -> None:
    here = machine(pool("host", 64.0, free=5.0))
    busy = [replace(claim(n, host=0.5), competes=True) for n in range(1, loading + 1)]
    text = explain.sentence(decide(demand(0.0, 20.0), here, busy))
    assert f"free memory alone counts, not what the cache would give back, {said}" in text
    assert "compete for it" not in text


def test_no_room_now_says_nothing_of_the_cache_when_nobody_competes_or_it_is_a_devices_memory() -> None:
    alone = explain.sentence(decide(demand(0.0, 20.0), machine(pool("host", 64.0, available=5.0)), []))
    cards = machine(pool("device:a", 64.0, free=5.0), pool("host", 64.0))
    on_card = explain.sentence(decide(demand(20.0), cards, [replace(claim(1, host=0.5), competes=True)]))
    for text in (alone, on_card):
        assert "17 GiB more are free" in text
        assert "cache" not in text and "compete" not in text, text


def test_an_unknown_holder_is_named() -> None:
    unknown = holding(Charge("host", None), name="boltzgen@feature", pid=77)
    text = explain.sentence(decide(demand(0.0, 1.0), machine(holdings=(unknown,)), []))
    assert "boltzgen@feature (pid 77, bob)" in text and "declare" in text


def test_what_could_not_be_read_is_told_with_its_reason() -> None:
    blind = replace(machine(), accelerators=reading(None, missing="NVIDIA (/dev/nvidia0): present, not supported"))
    assert "/dev/nvidia0" in explain.sentence(decide(demand(28.0), blind, []))
    hung = replace(machine(), holdings_missing="the process table did not answer in 2 s")
    assert "did not answer in 2 s" in explain.sentence(decide(demand(0.0), hung, []))


def test_a_missing_budget_and_a_missing_device_say_what_to_do() -> None:
    assert "vram_budget_gb" in explain.sentence(decide(demand(None), unified(), []))
    assert "this machine has none" in explain.sentence(decide(demand(28.0), machine(), []))
    assert "needs 2 devices" in explain.sentence(
        decide(demand(28.0, count=2), machine(pool("device:a"), pool("host")), [])
    )


def test_an_admitted_demand_is_told_as_a_sum() -> None:
    assert "34 GiB beside 12 charged and 4 reserved are 50 of 121 GiB of unified" in explain.sentence(
        decide(demand(28.0, 6.0), unified(), [claim(1, unified=12.0)])
    )


def test_a_broken_provider_tells_its_count_its_last_error_and_that_it_is_tried_again() -> None:
    text = explain.broken(broken(), "boltz")
    assert "3 times in a row" in text and "weights are not there" in text and "tried again" in text


def test_one_failure_is_said_as_one_and_a_wish_for_another_time_as_none() -> None:
    once = explain.broken(Breaker("af3", 1, "no such device", 30.0), "af3")
    assert once.startswith("af3 failed once; the last error: no such device; ")
    put_off = explain.broken(Breaker("af3", 0, "the licence server is busy", 30.0), "af3")
    assert put_off.startswith("af3 asked to be tried later, and nothing of it failed; ")
    assert "the licence server is busy" in put_off and "tried again by itself" in put_off


def test_a_taken_worker_is_named_with_what_it_does() -> None:
    ruling, text = explain.occupied(worker(3, state="busy", job_id=12), provider(run_s=47.0))
    assert ruling == "busy" and "worker 3" in text and "job 12" in text and "47 s" in text
    assert explain.occupied(worker(3, state="starting"), provider())[0] == "starting"


def test_cores_disk_and_a_kept_room_are_told_in_numbers() -> None:
    assert "4 threads" in explain.too_few_cores("boltz", 4, 6, 8) and "6 of the 8" in explain.too_few_cores(
        "boltz", 4, 6, 8
    )
    assert "runs alone" in explain.too_few_cores("boltz", 16, 6, 8)
    assert "4.99" in explain.disk_full(4.99, 5.0)
    assert "could not be read" in explain.disk_full(None, 5.0)
    assert "job 7 of af3" in explain.reserved("boltz", waiting("af3", 7))


def test_one_core_and_one_thread_are_not_told_in_the_plural() -> None:
    assert explain.too_few_cores("fold", 1, 8, 8) == (
        "fold computes with 1 thread, and others compute on 8 of the 8 cores: it starts when 1 is free"
    )
    wide = explain.too_few_cores("fold", 2, 1, 1)
    assert "2 threads, more than the 1 core: it runs alone, when the 1 that others compute on is free" in wide


def test_a_provider_without_a_manifest_or_an_environment_says_what_to_do() -> None:
    gone = explain.not_installed("boltz", None)
    assert "the running scheduler has no manifest of boltz" in gone and "schedq restart" in gone
    assert "schedq install boltz" in explain.not_installed("boltz", provider(installed=False))
