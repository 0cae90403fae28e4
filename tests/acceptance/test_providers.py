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
    assert not unmet(done.json, case["expect"], queue.home / "results" / "1")


@pytest.mark.parametrize("slug", ["proteinmpnn", "anarcii"])
def test_what_ships_passes_as_validate_queues_it(queue: Queue, slug: str) -> None:
    done = queue("validate", slug, "--wait", "--timeout", "300s", SCHEDQ_ENVS=ENVS, timeout=320)
    assert done.code == 0, done
    count = len(declared(slug)["validation"])
    assert f"of 1 provider: {count} passed, 0 failed, 0 refused, 0 did not run" in done.out


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


def test_antibodies_are_modelled_redesigned_and_numbered_in_one_evening(queue: Queue) -> None:
    """flash_abb -> proteinmpnn -> anarcii, queued before anything runs: each takes what the one before answered.

    The designs keep the framework's shape and so its numbers, whatever residues they have: IMGT's conserved cysteine
    104 lies where the chain's third loop begins, and a heavy chain stays one.
    """
    for each in json.loads((MANIFESTS / "flash_abb" / "example.json").read_text())["antibodies"]:
        for name in ("one", "two"):
            (queue.folder / f"{name}.json").write_text(json.dumps({"antibodies": [{**each, "id": name}]}))
    backbone = {"$from": "parent", "pointer": "/structures/0/pdb"}
    (queue.folder / "backbone.json").write_text(json.dumps(backbone))
    (queue.folder / "file.json").write_text(json.dumps({"pdb": {"$from": 2, "file": "*.pdb"}, "num_seqs": 1}))
    chains = [{"id": each, "aa": {"$from": "parent", "pointer": f"/designs/0/chains/{each}"}} for each in "HL"]
    (queue.folder / "chains.json").write_text(json.dumps({"sequences": chains}))
    for args in (
        ("flash_abb", "one.json", "two.json", "--batch", "model"),
        ("proteinmpnn", "backbone.json", "--each-after", "model", "--batch", "design", "--param", "num_seqs=1"),
        ("anarcii", "chains.json", "--each-after", "design", "--batch", "number"),
        ("proteinmpnn", "file.json", "--batch", "file"),
    ):
        done = queue("submit", *args, SCHEDQ_ENVS=ENVS)
        assert done.code == 0, done
    assert queue("up", SCHEDQ_ENVS=ENVS).code == 0
    waited = queue("wait", "1-7", "--timeout", "280s", timeout=300)
    assert waited.code == 0, (waited, queue("status", "1-7"))
    model, design, number = (queue("result", str(each)).json for each in (1, 3, 5))
    shown = queue.show(3)
    assert (shown["name"], shown["input_name"], shown["input_kind"]) == ("one", "backbone.pdb", "pdb")
    assert shown["parents"][0]["id"] == 1 and shown["input_bytes"] == len(model["structures"][0]["pdb"].encode())
    assert design["residues"] == sum(model["structures"][0]["residues"].values())
    assert [(each["id"], each["chain_type"]) for each in number["results"]] == [("H", "H"), ("L", "K")]
    for each, chain in zip(number["results"], "HL", strict=True):
        residues = [residue for residue in each["numbering"].values() if residue != "-"]
        assert "".join(residues) in design["designs"][0]["chains"][chain], each
    assert queue("result", "7").json["native"] == queue("result", "4").json["native"]
