"""The real providers through the real queue: every validation case, and a worker that knows nothing of us."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driven import Queue
from providers import ENVS, LEGACY, MANIFESTS, SLUGS, declared, unmet

pytestmark = pytest.mark.network

CASES = [(slug, case["name"]) for slug in SLUGS for case in declared(slug)["validation"]]


def case_of(slug: str, name: str) -> dict:
    return next(case for case in declared(slug)["validation"] if case["name"] == name)


@pytest.mark.parametrize(("slug", "name"), CASES, ids=[f"{slug}: {name}" for slug, name in CASES])
def test_a_validation_case_holds_through_the_queue(queue: Queue, slug: str, name: str) -> None:
    case = case_of(slug, name)
    given = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in case.get("params", {}).items()
    }
    params = [f"--param={key}={value}" for key, value in given.items()]
    done = queue("run", slug, str(MANIFESTS / slug / case["input"]), *params, SCHEDQ_ENVS=ENVS, timeout=300)
    assert done.code == 0, done
    assert not unmet(done.json, case["expect"])


def test_the_example_runs_and_the_second_run_finds_the_model_loaded(queue: Queue) -> None:
    first = queue("run", "capiti", "--example", SCHEDQ_ENVS=ENVS, timeout=300)
    second = queue("run", "capiti", "--example", SCHEDQ_ENVS=ENVS, timeout=300)
    assert first.code == second.code == 0, (first, second)
    assert first.json == second.json
    shown = [queue.show(job)["attempts"][0] for job in (1, 2)]
    assert [attempt["warm"] for attempt in shown] == [False, True]
    assert shown[0]["versions"]["capiti"] == "0.1.2"


def test_the_outputs_of_a_command_arrive_at_their_destination(queue: Queue) -> None:
    source = str(MANIFESTS / "propka" / "validation" / "1ubi.pdb")
    done = queue("run", "propka", source, "--out", "pka/{name}", SCHEDQ_ENVS=ENVS, timeout=300)
    assert done.code == 0, done
    made = sorted(path.name for path in (queue.folder / "pka" / "1ubi").iterdir())
    assert "1ubi.pka" in made and "job.json" in made


def test_run_installs_a_provider_on_first_use_and_says_so(queue: Queue, tmp_path: Path) -> None:
    done = queue("run", "pyrodigal", "--example", SCHEDQ_ENVS=str(tmp_path / "fresh"), timeout=300)
    assert done.code == 0, done
    assert "pyrodigal: installed" in done.err
    assert done.json["genes"][0]["begin"] == 93


def test_a_worker_of_a_tooluniverse_tree_runs_as_it_is(queue: Queue) -> None:
    source = queue.folder / "peptide.json"
    source.write_text(json.dumps({"sequence": "ILV"}))
    done = queue("run", "hydropathy", str(source), SCHEDQ_MANIFESTS=str(LEGACY))
    assert done.code == 0, done
    # Kyte and Doolittle 1982: I 4.5, L 3.8, V 4.2; the mean is 12.5 / 3.
    assert done.json["gravy"] == pytest.approx(12.5 / 3, abs=1e-3)
