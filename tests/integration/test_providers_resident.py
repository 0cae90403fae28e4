"""The shipped resident providers answer what the science says, through the protocol and without a scheduler."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers import LEGACY, MANIFESTS, Worker, declared, installed, spec_of, unmet

CASES = [
    pytest.param(slug, case, id=f"{slug}-{case['name']}")
    for slug in ("capiti", "pyrodigal")
    for case in declared(slug)["validation"]
]
BASES = "TCAG"
CODE = dict(
    zip(
        map("".join, itertools.product(BASES, repeat=3)),
        "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
        strict=True,
    )
)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Worker]]:
    """One warm worker of each provider."""
    home = tmp_path_factory.mktemp("home")
    found: dict[str, Worker] = {}
    try:
        for slug in ("capiti", "pyrodigal"):
            spec = spec_of(slug, home)
            worker = Worker(installed(spec), Path(spec["script"]), tmp_path_factory.mktemp(slug))
            found[slug] = worker.__enter__()
        yield found
    finally:
        for worker in found.values():
            worker.__exit__(None, None, None)


@pytest.mark.network
@pytest.mark.parametrize(("slug", "case"), CASES)
def test_a_validation_case_holds(workers: dict[str, Worker], slug: str, case: dict[str, Any]) -> None:
    reply = workers[slug].predict(MANIFESTS / slug / case["input"], case.get("params", {}))
    assert "error" not in reply, reply
    assert unmet(reply, case["expect"]) == []


def coding(vector: str, begin: int, end: int, strand: int) -> str:
    """The protein that 1-based bases begin..end of a strand code for, by the standard code, stop left out."""
    bases = vector[begin - 1 : end]
    if strand < 0:
        bases = bases[::-1].translate(str.maketrans("ACGT", "TGCA"))
    assert len(bases) % 3 == 0
    return "".join(CODE[bases[i : i + 3]] for i in range(0, len(bases), 3)).removesuffix("*")


@pytest.mark.network
def test_every_gene_is_an_open_frame_that_codes_for_its_protein(workers: dict[str, Worker]) -> None:
    source = MANIFESTS / "pyrodigal" / "validation" / "pBAD30.fna"
    vector = "".join(source.read_text().split("\n")[1:])
    genes = workers["pyrodigal"].predict(source, {"closed": True})["genes"]
    assert {(1082, 1960, -1), (2867, 3727, 1)} <= {(gene["begin"], gene["end"], gene["strand"]) for gene in genes}
    for gene in genes:
        protein = coding(vector, gene["begin"], gene["end"], gene["strand"])
        assert protein[1:] == gene["protein"][1:]
        assert gene["protein"][0] == "M"
        assert "*" not in protein


@pytest.mark.network
def test_a_panel_without_the_function_does_not_call_it(workers: dict[str, Worker]) -> None:
    source = MANIFESTS / "capiti" / "example.json"
    broad, other = (workers["capiti"].predict(source, {"set": name}) for name in ("C", "E"))
    assert (broad["set"], other["set"]) == ("C", "E")
    assert broad["results"][0]["p_in_set"] > other["results"][0]["p_in_set"]


@pytest.mark.network
@pytest.mark.parametrize(
    ("slug", "name", "text", "word"),
    [
        ("capiti", "a.faa", ">odd\nMKV1J\n", "odd: 1J are no letters of a protein"),
        ("capiti", "a.faa", ">long\n" + "A" * 1201, "1201 residues, and the model reads 1200"),
        ("capiti", "a.fna", ">stop\nTAAATG\n", "starts with a stop"),
        ("capiti", "a.faa", "MKV\n", "starts without a '>' line"),
        ("pyrodigal", "a.fna", ">rna\nAUGC\n", "rna: U are no letters of DNA"),
    ],
)
def test_what_is_no_sequence_is_refused_and_the_worker_stays(
    workers: dict[str, Worker], tmp_path: Path, slug: str, name: str, text: str, word: str
) -> None:
    (tmp_path / name).write_text(text)
    reply = workers[slug].predict(tmp_path / name, {})
    assert (reply["ok"], reply["reason"]) == (False, "refused")
    assert word in reply["error"]
    assert workers[slug].ask({"op": "ping"})["ok"]


@pytest.mark.network
def test_fasta_and_json_are_answered_alike(workers: dict[str, Worker], tmp_path: Path) -> None:
    sequence = json.loads((MANIFESTS / "capiti" / "example.json").read_text())["sequences"][0]
    (tmp_path / "a.fasta").write_text(f">{sequence['id']}\n{sequence['aa']}*\n")
    assert (
        workers["capiti"].predict(tmp_path / "a.fasta", {})
        == workers["capiti"].predict(MANIFESTS / "capiti" / "example.json", {})
    )  # fmt: skip


def test_a_worker_of_the_older_protocol_answers_and_says_when_it_goes(tmp_path: Path) -> None:
    import sys

    script = LEGACY / "hydropathy" / "resident" / "hydropathy_resident_worker.py"
    with Worker(sys.executable, script, tmp_path) as worker:
        assert worker.ask({"sequence": "IIV"})["gravy"] == pytest.approx((4.5 + 4.5 + 4.2) / 3)
        failed = worker.ask({"sequence": "MKZ"})
        assert (failed["ok"], failed["reason"]) == (False, "request_failed")
        leaving = worker.ask({"exit": 3})
        assert (leaving["ok"], leaving["reason"], leaving["exit_code"]) == (False, "worker_exiting", 3)
        assert worker.process.wait(30) == 3
        assert not Path(worker.socket).exists()


def test_a_worker_of_the_older_protocol_shuts_down_when_told(tmp_path: Path) -> None:
    import sys

    script = LEGACY / "hydropathy" / "resident" / "hydropathy_resident_worker.py"
    with Worker(sys.executable, script, tmp_path) as worker:
        assert worker.ask({"op": "shutdown"})["ok"]
        assert worker.process.wait(30) == 0
