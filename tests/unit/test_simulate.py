"""Simulated nights: the real loop on a temporary queue ends them as an independent judge demands."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nights import Job, Night

from scheduler.cli import simulating
from scheduler.errors import Refused, UsageError
from scheduler.model.provider import Provider
from scheduler.simulate import trace
from scheduler.simulate.night import simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from builders import unified
from check_night import check
from overnight_trace import trace as generated


def night_of(raw: dict[str, Any]) -> trace.Trace:
    return trace.read(json.dumps(raw), "night.json")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("arrivals", "mix"), [("batch", "uniform"), ("poisson", "skewed")])
def test_a_judge_that_knows_nothing_of_the_project_finds_no_broken_rule(arrivals: str, mix: str, strict: bool) -> None:
    raw = generated(7, jobs=60, providers=9, capacity=72.0, arrivals=arrivals, mix=mix)
    for overtake_s in (60.0, 900.0):
        found = simulate(night_of(raw), overtake_s=overtake_s, strict=strict)
        broken, figures = check(raw, found, overtake_s, strict)
        assert broken == []
        assert figures["makespan_s"] == found["makespan_s"]
        assert figures["cold_starts"] == found["cold_starts"] and figures["evictions"] == found["evictions"]
        assert figures["worst_wait_s"] == pytest.approx(found["worst_wait_s"], abs=1e-5)
        assert figures["worst_head_wait_s"] == pytest.approx(found["worst_head_wait_s"], abs=1e-5)


def test_the_judge_sees_a_night_that_breaks_a_rule() -> None:
    raw = generated(7, jobs=40, providers=6, capacity=72.0)
    found = simulate(night_of(raw), overtake_s=60.0, strict=False)
    assert check(raw, found, 60.0, strict=True)[0]


def test_the_same_trace_gives_the_same_night() -> None:
    raw = generated(3, jobs=40, providers=6, capacity=72.0, arrivals="poisson")
    first = simulate(night_of(raw), overtake_s=900.0, strict=False)
    assert first == simulate(night_of(raw), overtake_s=900.0, strict=False)
    assert first["lower_bound_s"] == pytest.approx(raw["lower_bound_s"], abs=1e-3)


def test_overtaking_pays_and_nobody_is_lost() -> None:
    raw = generated(5, jobs=80, providers=12, arrivals="batch", mix="uniform")
    overtaking = simulate(night_of(raw), overtake_s=900.0, strict=False)
    strictly = simulate(night_of(raw), overtake_s=900.0, strict=True)
    assert len(overtaking["jobs"]) == len(strictly["jobs"]) == 80
    assert overtaking["makespan_s"] < 0.7 * strictly["makespan_s"]


def test_the_loop_and_the_bare_plan_agree_on_a_night() -> None:
    raw = generated(11, jobs=30, providers=6, capacity=72.0)
    providers = {
        slug: Provider(slug, revision="r", policy="required", vram_gib=each["budget_gib"], idle_timeout_s=0.0)
        for slug, each in raw["providers"].items()
    }
    jobs = [Job(each["id"], each["slug"], each["run_s"], each["arrives_s"]) for each in raw["jobs"]]
    bare = Night(
        replace(unified(72.0, reserve=4.0), cores=1024), providers,
        {slug: each["cold_s"] for slug, each in raw["providers"].items()}, jobs,
    )  # fmt: skip
    bare.run()
    found = simulate(night_of(raw), overtake_s=900.0, strict=False, learned=False)
    assert {each["id"]: each["end_s"] for each in found["jobs"]} == pytest.approx(
        {job.id: job.end_s for job in jobs}, abs=1e-6
    )


def test_a_simulation_leaves_the_users_queue_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path / "mine"))
    simulate(night_of(generated(1, jobs=5, providers=3)), overtake_s=900.0, strict=False)
    assert not (tmp_path / "mine").exists()


def small(**over: Any) -> dict[str, Any]:
    jobs = [
        {"id": 1, "slug": "a", "arrives_s": 0.0, "run_s": 5.0},
        {"id": 2, "slug": "a", "arrives_s": 3.0, "run_s": 4.0},
    ]
    providers = {"a": {"budget_gib": 8.0, "cold_s": 10.0, "warm_s": 5.0}}
    return {"capacity_gib": 64.0, "reserve_gib": 4.0, "providers": providers, "jobs": jobs, **over}


def test_one_provider_loads_once_and_serves_in_order() -> None:
    found = simulate(night_of(small()), overtake_s=900.0, strict=False)
    assert [(job["start_s"], job["end_s"]) for job in found["jobs"]] == [(10.0, 15.0), (15.0, 19.0)]
    assert found["workers"] == [{"id": 1, "slug": "a", "from_s": 0.0, "ready_s": 10.0, "to_s": None}]
    assert found["lower_bound_s"] == 19.0 and found["makespan_s"] == 19.0


def test_a_higher_priority_goes_first() -> None:
    jobs = [{"id": n, "slug": "a", "arrives_s": 0.0, "run_s": 5.0, "priority": n} for n in (1, 2, 3)]
    found = simulate(night_of(small(jobs=jobs)), overtake_s=900.0, strict=False)
    assert sorted(found["jobs"], key=lambda job: job["start_s"])[0]["id"] == 3


def job(**over: Any) -> list[dict[str, Any]]:
    return [{"id": 1, "slug": "a", "arrives_s": 0.0, "run_s": 5.0, **over}]


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"capacity_gib": "much"}, "capacity_gib is 'much'; it must be a number"),
        ({"reserve_gib": -1}, "reserve_gib is -1; it must be at least 0"),
        ({"providers": {}}, "providers must be an object with at least one entry"),
        ({"providers": {"a": 5}}, "providers.a must be an object"),
        ({"providers": {"a": {"budget_gib": 1.0}}}, "providers.a.cold_s is None"),
        ({"jobs": []}, "at least one job"),
        ({"jobs": [7]}, r"jobs\[0\] must be an object"),
        ({"jobs": job(slug="b")}, "'b', which is not among its providers"),
        ({"jobs": job(id=0)}, "whole number from 1"),
        ({"jobs": job(run_s=True)}, r"jobs\[0\]\.run_s is True; it must be a number"),
        ({"jobs": [*job(id=2, arrives_s=9.0), *job(id=1)]}, "in the order of submission"),
        ({"jobs": job(slug=["a"])}, "not among its providers"),
        ({"jobs": job(priority=10**20)}, "priority is 1"),
        ({"jobs": job(run_s=1e308)}, "at most 1e"),
        ({"capacity_gib": 10**400}, "at most 1e"),
        ({"capacity_gib": float("nan")}, "must be a number"),
        ({"lower_bound_s": -3}, "at least 0"),
        ({"providers": {"\ud800": {"budget_gib": 1.0, "cold_s": 1.0}}}, "no provider's name"),
        ({"jobs": job(prioriti=5)}, r"jobs\[0\]\.prioriti = 5: unknown key; did you mean priority\?"),
        ({"jobs": job(Priority=5)}, r"jobs\[0\]\.Priority = 5: unknown key; did you mean priority\?"),
        ({"jobs": [{"id": 1, "slug": "a", "arrive_s": 0.0, "run_s": 5.0}]}, "did you mean arrives_s"),
        ({"providers": {"a": {"budget_gib": 8.0, "cold_s": 1.0, "warm": 5}}}, r"providers\.a\.warm = 5: .*warm_s\?"),
        ({"lower_bound": 3}, "night.json: lower_bound = 3: unknown key; did you mean lower_bound_s"),
    ],
)  # fmt: skip
def test_a_trace_that_is_none_is_refused_with_the_place_and_the_reason(over: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        night_of(small(**over))


def test_keys_of_somebody_else_are_let_be_in_a_trace() -> None:
    raw = small(seed=7, note="x", jobs=job(user="ada", end_s=5.0))
    raw["providers"]["a"]["gpu"] = "GB10"
    assert night_of(raw).jobs[0].priority == 0


def test_the_figures_of_a_night_are_told_by_name_and_number() -> None:
    found = {
        "makespan_s": 700.0, "lower_bound_s": 350.0, "cold_starts": 2, "evictions": 1, "mean_wait_s": 5.0,
        "worst_wait_s": 650.0, "worst_head_wait_s": 605.0, "jobs": [{"slug": "a"}], "workers": [],
    }  # fmt: skip
    lines = simulating.page(found)
    assert lines[-1] == "longest at the head  10m 05s"
    assert {line[21] for line in lines} & {" "} == set() and all(line[20] == " " for line in lines), lines


def test_what_is_no_json_and_a_night_that_cannot_end_are_refused() -> None:
    with pytest.raises(UsageError, match=r"night\.json is not JSON.*line 1"):
        trace.read("{nonsense", "night.json")
    with pytest.raises(Refused, match=r"a needs 80 GiB.*60 GiB can be used"):
        night_of(small(providers={"a": {"budget_gib": 80.0, "cold_s": 1.0}}))
    with pytest.raises(Refused, match="leaves nothing to use"):
        night_of(small(reserve_gib=64.0))


def test_a_night_that_takes_no_time_is_over_at_once() -> None:
    nothing = {"a": {"budget_gib": 0.0, "cold_s": 0.0}}
    found = simulate(night_of(small(providers=nothing, jobs=job(run_s=0.0))), overtake_s=900.0, strict=False)
    assert found["makespan_s"] == found["lower_bound_s"] == 0.0
    assert any("done after" in line for line in simulating.page(found))
