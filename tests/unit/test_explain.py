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
from scheduler.rules.admission import Claim, decide
from scheduler.rules.remedy import Change
from scheduler.rules.whatif import fits_if


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


# What would let it in


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([], ""),
        (
            [Change("retire", "boltz", {"unified": 28.0}, 3, idle_s=41.2)],
            "it fits if boltz (worker 3), idle 41 s, 28 GiB of unified, is retired",
        ),
        (
            [
                Change("retire", "esm", {"device:a": 20.0}, 1, idle_s=150.0),
                Change("wait", "boltz", {"device:a": 28.5, "device:b": 28.5}, 2, job_id=9),
            ],
            "it fits if esm (worker 1), idle 2 min, 20 GiB of device:a, is retired; and boltz (worker 2), 28.5 GiB of "
            "device:a and 28.5 GiB of device:b, is retired when job 9 has ended",
        ),
        (
            [Change("wait", "boltz", {"unified": 28.0}, 3)],
            "it fits if boltz (worker 3), 28 GiB of unified, is retired when it is ready and has nothing to do",
        ),
        (
            [Change("unpin", "boltz", {"unified": 28.0}, 3, idle_s=7300.0)],
            "it fits if boltz (worker 3), pinned, idle 2 h, 28 GiB of unified, is unpinned and retired",
        ),
        (
            [Change("return", "boltz", {"unified": 28.0}, 3)],
            "it fits if the 28 GiB of unified of boltz (worker 3) are back, which it is giving back now",
        ),
        (
            [Change("heal", "boltz", {"unified": 28.0}, 3)],
            "it fits if the 28 GiB of unified are back that boltz (worker 3) did not give back when it ended",
        ),
        ([Change("stop", "train.py (pid 7, bob)", {"device:a": 40.0}, pid=7)],
         "it fits if train.py (pid 7, bob), 40 GiB of device:a, ends"),
        (
            [Change("stop", "x (pid 7, bob)", {"device:a": 0.0}, pid=7, known=False)],
            "it fits if x (pid 7, bob), whose budget nobody declared, ends (schedq machine declare 7 --vram G --ram G "
            "says what it holds)",
        ),
        (
            [Change("free", "unified", {"unified": 14.0})],
            "it fits when 14 GiB more of unified are free, which nothing that is held here would give back",
        ),
        ([Change("budget", "unified", {"unified": 117.0})], "the most that it could ever be is 117 GiB of unified"),
    ],
)  # fmt: skip
def test_what_would_let_it_in_is_a_sentence_with_who_how_long_idle_and_how_much(
    changes: list[Change], text: str
) -> None:
    assert fits_if(changes) == text


def test_of_several_devices_it_is_said_which_one_is_told_of() -> None:
    here = machine(pool("device:a", 80.0), pool("device:b", 80.0), pool("host"))
    claims = [Claim(1, "w1", {"device:a": 70.0}), Claim(2, "w2", {"device:b": 60.0})]
    told = explain.sentence(decide(demand(30.0), here, claims))
    assert "30 GiB of device:b (of 2 places the one that lacks least)" in told


def test_every_device_of_a_place_that_is_too_full_is_told_of_and_by_the_beginning_of_its_uuid() -> None:
    one, two = (f"device:GPU-0000000{n}-0000-4000-8000-000000000000" for n in (1, 2))
    here = machine(pool(one, 80.0, reserve=0.5), pool(two, 80.0, reserve=0.5))
    claims = [Claim(1, "w1", {one: 60.0}), Claim(2, "w2", {two: 50.0})]
    told = explain.sentence(decide(demand(40.0, count=2), here, claims))
    assert "40 GiB of GPU-00000001, 0.5 GiB stay reserved and 60 GiB are charged (w1 60): 100.5 GiB of 80; and" in told
    assert told.endswith("it starts when 20.5 GiB of GPU-00000001 and 10.5 GiB of GPU-00000002 are given back")
    short = replace(here, pools=tuple(replace(p, free=reading(30.0), available=reading(30.0)) for p in here.pools))
    told = explain.sentence(decide(demand(40.0, 0.0, count=2), short, []))
    assert told.endswith("10.5 GiB more of GPU-00000001 and 10.5 GiB more of GPU-00000002 are free")


@pytest.mark.parametrize(("device", "host"), [(-1.0, 1.0), (28.0, float("nan"))])
def test_a_budget_that_is_no_amount_is_quoted(device: float, host: float) -> None:
    told = explain.sentence(decide(demand(device, host), unified(), []))
    assert ("vram_budget_gb = -1.0" in told) == (device < 0) and ("ram_budget_gb = nan" in told) == (device > 0)
    assert "no amount of memory" in told
