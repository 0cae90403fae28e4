"""Boltz's real code in the shipped worker, with tiny random weights: its answers are those of Boltz's own command.

What Boltz swallows is told, nothing asks a network, and a request leaves nothing that the next one could see.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boltz_made
import pytest
from providers import MANIFESTS, Worker, declared, unmet

pytestmark = [pytest.mark.boltz, pytest.mark.network]

SCRIPT = MANIFESTS / "boltz" / "resident" / "boltz_resident_worker.py"
PARAMS = json.loads((MANIFESTS / "boltz" / "params.schema.json").read_text())["properties"]
QUICK = {"sampling_steps": 3, "recycling_steps": 0, "sampling_steps_affinity": 3, "diffusion_samples_affinity": 1}
SMALL = [case for case in declared("boltz")["validation"] if "trypsin" not in case["input"]]
"""Validation cases that a CPU answers in seconds: the 232 tokens of the other one take it minutes."""

PEPTIDE = "sequences: [{protein: {id: A, sequence: NLYIQWLK, msa: empty}}]\n"
COMPLEX = """
# a comment, é, and what YAML could take for something else
x-msa: &msa first.a3m
version: 1
sequences:
  - protein: {id: "NO", sequence: NLYIQWLK, msa: *msa}
  - protein:
      id: [B, C]
      sequence: SSGR
      msa: empty
      modifications: [{position: 1, ccd: SEP}]
  - ligand: {id: L, smiles: 'NC(=N)c1ccccc1'}
  - ligand: {id: Z, ccd: ZN}
constraints:
  - pocket: {binder: L, contacts: [["NO", 2], ["NO", 3]], max_distance: 8}
properties:
  - affinity: {binder: L}
"""
MSA = ">q\nNLYIQWLK\n>h\nNLYLQWIK\n>i\nNL-IQWLaK\n"
TEMPLATED = """
sequences:
  - protein: {id: A, sequence: MQIFVKTLTG, msa: pairs.csv, cyclic: true}
  - rna: {id: R, sequence: ACGU}
templates:
  - pdb: given/1ubi.pdb
"""
PAIRS = "key,sequence\n1,MQIFVKTLTG\n2,MQIFVRTLSG\n"


class Boltz(Worker):
    """The worker of tests, each request with folders of its own."""

    asked = 0

    def answer(self, source: Path, request: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """The whole reply; `out` is where its files are then."""
        self.asked += 1
        self.out, self.work = (self.folder / f"{name}{self.asked}" for name in ("out", "work"))
        return self.ask({
            "op": "predict", "job": self.asked, "attempt": 1, "name": source.stem,
            "request": {**(request or {}), **params}, "params": params, "input_path": str(source),
            "out_dir": str(self.out), "work_dir": str(self.work),
        })  # fmt: skip

    def result(self, source: Path, **params: Any) -> dict[str, Any]:
        """The answer of a request that succeeds."""
        reply = self.answer(source, **params)
        assert reply["ok"], reply
        return dict(reply["result"])

    def refusal(self, source: Path, **params: Any) -> str:
        """Why a request is refused; the worker is there afterwards."""
        reply = self.answer(source, **{**QUICK, **params})
        assert (reply["ok"], reply.get("reason")) == (False, "refused"), reply
        assert self.ask({"op": "ping"})["busy"] is None
        return str(reply["error"])


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return boltz_made.python(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return boltz_made.cache(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def boltz(python: str, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boltz]:
    """One warm worker, which any connection to a network would end."""
    planted = str(boltz_made.SCRIPTS / "planted.py")
    folder = tmp_path_factory.mktemp("worker")
    with Boltz(
        python, SCRIPT, folder, "--accelerator", "cpu", before=(planted, "alone"), BOLTZ_CACHE=str(cache)
    ) as worker:
        yield worker


@pytest.fixture
def peptide(tmp_path: Path) -> Path:
    path = tmp_path / "peptide.yaml"
    path.write_text(PEPTIDE)
    return path


def written(folder: Path, name: str, text: str) -> Path:
    """A file with this text; its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def with_sequence(text: str) -> str:
    """A PDB file of one chain with SEQRES records before its atoms."""
    names = [line[17:20] for line in text.splitlines() if line.startswith("ATOM") and line[12:16] == " CA "]
    rows = [names[start : start + 13] for start in range(0, len(names), 13)]
    return "".join(f"SEQRES {n:3} A {len(names):4}  {' '.join(row)}\n" for n, row in enumerate(rows, 1)) + text


def options(params: dict[str, Any]) -> list[str]:
    """Parameters as Boltz's command takes them."""
    words = []
    for name, value in params.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def assert_same(ours: Path, theirs: Path) -> None:
    """Two folders with the same files, arrays compared by their bytes."""
    assert sorted(path.name for path in ours.iterdir()) == sorted(path.name for path in theirs.iterdir())
    for path in sorted(theirs.iterdir()):
        if path.suffix == ".npz":
            assert boltz_made.arrays(ours / path.name) == boltz_made.arrays(path), path.name
        else:
            assert (ours / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_complex_with_affinity_is_answered_as_boltz_itself_answers_it(
    boltz: Boltz, python: str, cache: Path, tmp_path: Path
) -> None:
    source = written(tmp_path, "my complex.yaml", COMPLEX)
    written(tmp_path, "first.a3m", MSA)
    params = {
        "sampling_steps": 4,
        "sampling_steps_affinity": 4,
        "diffusion_samples": 2,
        "diffusion_samples_affinity": 2,
    }
    theirs = boltz_made.command(python, cache, source, tmp_path / "theirs", *options(params), seed=5)
    found = boltz.result(source, seed=5, **params)
    ours = boltz.out / "predictions" / "my complex"
    assert_same(ours, theirs)
    assert found["structures"] == [f"predictions/my complex/my complex_model_{n}.cif" for n in (0, 1)]
    for number in (0, 1):
        assert found["confidence"][number] == json.loads(
            (theirs / f"confidence_my complex_model_{number}.json").read_text()
        )
    assert found["affinity"] == json.loads((theirs / "affinity_my complex.json").read_text())
    # 8 and twice 4 residues, the heavy atoms of benzamidine (C7H8N2) and zinc.
    assert found["tokens"] == 8 + 2 * 4 + 9 + 1
    assert (found["seed"], found["kernels"]) == (5, False)
    assert list(boltz.work.iterdir()) == []


def test_every_option_reaches_boltz(boltz: Boltz, python: str, cache: Path, tmp_path: Path) -> None:
    source = written(tmp_path, "templated.yaml", TEMPLATED)
    written(tmp_path, "pairs.csv", PAIRS)
    written(tmp_path, "given/1ubi.pdb", with_sequence((MANIFESTS / "propka" / "validation" / "1ubi.pdb").read_text()))
    params = {
        "recycling_steps": 1, "sampling_steps": 5, "diffusion_samples": 2, "max_parallel_samples": 4,
        "step_scale": 1.25, "output_format": "pdb", "use_potentials": True, "method": "solution nmr", "max_msa_seqs": 1,
        "subsample_msa": True, "num_subsampled_msa": 1, "write_embeddings": True, "no_kernels": True,
    }  # fmt: skip
    theirs = boltz_made.command(python, cache, source, tmp_path / "theirs", *options(params), seed=8)
    boltz.result(source, seed=8, **params)
    assert_same(boltz.out / "predictions" / "templated", theirs)
    one = (boltz.out / "predictions" / "templated" / "templated_model_0.pdb").read_bytes()
    for other in (
        {"method": "md"},
        {"step_scale": 2.0},
        {"use_potentials": False},
        {"recycling_steps": 0},
        {"seed": 9},
    ):
        boltz.result(source, **{"seed": 8, **params, **other})
        assert (boltz.out / "predictions" / "templated" / "templated_model_0.pdb").read_bytes() != one, other


def test_an_answer_does_not_depend_on_what_was_asked_before(boltz: Boltz, tmp_path: Path, peptide: Path) -> None:
    source = written(tmp_path, "complex.yaml", COMPLEX)
    written(tmp_path, "first.a3m", MSA)
    first = boltz.result(source, seed=3, **QUICK)
    ours = boltz.out / "predictions" / "complex"
    boltz.result(
        peptide, seed=4, use_potentials=True, step_scale=2.0, subsample_msa=True, num_subsampled_msa=1, **QUICK
    )
    assert boltz.result(source, seed=3, **QUICK) == first
    assert_same(boltz.out / "predictions" / "complex", ours)


def test_without_a_seed_one_is_drawn_and_said(boltz: Boltz, peptide: Path) -> None:
    first, second = (boltz.result(peptide, **QUICK) for _ in range(2))
    ours = boltz.out / "predictions" / "peptide"
    assert first["seed"] != second["seed"]
    assert boltz.result(peptide, **QUICK, seed=second["seed"]) == second
    assert_same(boltz.out / "predictions" / "peptide", ours)


def test_the_files_of_an_input_are_read_where_they_were_handed_on_to(boltz: Boltz, tmp_path: Path) -> None:
    text = (
        "sequences: [{protein: {id: A, sequence: NLYIQWLK, msa: x/first.a3m}},"
        " {protein: {id: B, sequence: NLYIQWLK, msa: x/first.a3m}}]\n"
    )
    source = written(tmp_path, "in/two.yaml", text)
    given = [str(written(tmp_path, f"kept/{number}/first.a3m", MSA)) for number in (0, 1)]
    request = {"sequences": [{"protein": {"msa": path}} for path in given]}
    reply = boltz.answer(source, request, seed=1, **QUICK)
    assert reply["ok"], reply
    assert "not there" not in str(reply)
    assert source.read_text() == text
    written(tmp_path, "kept/0/first.a3m", MSA.replace("NLYIQWLK\n", "NLYIQWLR\n", 1))
    reply = boltz.answer(source, request, seed=1, **QUICK)
    assert "does not begin with the sequence of its chain" in reply["error"]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case["name"])
def test_what_a_validation_case_expects_whatever_the_weights_holds(boltz: Boltz, case: dict[str, Any]) -> None:
    given = {**case.get("params", {}), "sampling_steps": 2, "recycling_steps": 0}
    found = boltz.result(MANIFESTS / "boltz" / case["input"], **given)
    judges_weights = [pointer for pointer in case["expect"] if pointer.rpartition("/")[2] in ("complex_plddt", "ptm")]
    expect = {pointer: rule for pointer, rule in case["expect"].items() if pointer not in judges_weights}
    assert len(expect) >= 2
    assert unmet(found, expect) == []
    for pointer in judges_weights:
        assert unmet(found, {pointer: {"min": 0.0, "max": 1.0}}) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("sequences: [{protein: {id: A, sequence: MK}}]", "/sequences/0/protein has no msa; name an .a3m or .csv file"),
        ("sequences: [{protein: {id: A, sequence: MK, msa: no.a3m}}]", "no.a3m not found"),
        ("sequences: [{protein: {id: A, sequence: MK, msa: odd.a3m}}]", "there is no '*' in it, or Boltz"),
        ("sequences: [{protein: {id: A, sequence: MK, msa: other.a3m}}]", "does not begin with the sequence"),
        ("sequences: [{protein: {id: NO, sequence: MK, msa: empty}}]", "/id as False and not as text; quote it"),
        ("sequences: [{protein: {id: [A, 012], sequence: MK, msa: empty}}]", "as 10 and not as text; quote it"),
        ("sequences: [{ligand: {id: A, ccd: QQQ}}]", "CCD component QQQ not found!"),
        ("sequences: [{ligand: {id: A, smiles: 'C1CC'}}]", "is no input that Boltz takes"),
        ("sequences: [{dna: {id: A, sequence: AC}}]\nconstraints: [{bond: {atom1: [A, 2, X], atom2: [A, 1, P]}}]",
         "there is no ('A', 1, 'X') in it"),
        ("sequences: [{dna: {id: A, sequence: AC}}]\nproperties: [{affinity: {binder: A}}]", "A is not a ligand!"),
        ("sequences: [{dna: {id: A, sequence: AC}}]\ntemplates: [{cif: no.cif}]", "no.cif"),
        ("sequences: [{protein: {id: A, sequence: MK, msa: empty}}]\ntemplates: [{pdb: bare.pdb}]",
         "bare.pdb has no SEQRES records"),
        ("version: 2\nsequences: [{dna: {id: A, sequence: AC}}]", "Invalid version 2 in input!"),
        ("a: 1", "it is no Boltz input: a mapping with the list `sequences` is needed"),
    ],
)  # fmt: skip
def test_what_boltz_would_skip_with_a_line_in_its_log_is_refused_in_its_words(
    boltz: Boltz, tmp_path: Path, text: str, word: str
) -> None:
    written(tmp_path, "odd.a3m", ">q\nMK\n>x\nM*\n")
    written(tmp_path, "other.a3m", ">q\nMR\n")
    written(
        tmp_path, "bare.pdb", "ATOM      1  CA  MET A   1       0.000   0.000   0.000  1.00  0.00           C\nEND\n"
    )
    assert word in boltz.refusal(written(tmp_path, "wrong.yaml", text))
    assert list(boltz.work.iterdir()) == []


ONE = "{protein: {id: A, sequence: NLYIQWLK, msa: empty%s}}"
TWO = "sequences: [" + ONE % "" + ", {ligand: {id: L, ccd: ATP}}]\nconstraints: "


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"sequences: [{ONE % ''}, {{protein: {{id: A, sequence: MK, msa: empty}}}}]",
         "/sequences/1/protein: the chain A is there already, at /sequences/0/protein"),
        ("sequences: [{dna: {id: [A, A], sequence: ACGT}}]", "the chain A is there already"),
        (f"sequences: [{ONE % ''}, {{ligand: {{id: [L, A], ccd: ZN}}}}]", "the chain A is there already"),
        ("sequences: [{dna: {id: [chain1, chain2], sequence: ACGT}}]", "the id chain1 has 6 characters, and Boltz"),
        (f"sequences: [{ONE % ''}, {(ONE % ', modifications: [{position: 1, ccd: SEP}]').replace('A', 'B', 1)}]",
         "/sequences/1/protein has the text of /sequences/0/protein, with other modifications"),
        (f"sequences: [{ONE % ', cyclic: true'}, {(ONE % '').replace('A', 'B', 1)}]", "another `cyclic`"),
        ("sequences: [{ligand: {id: A, ccd: C}}, {ligand: {id: B, smiles: C}}]", "or write both ligands as smiles"),
        (f"sequences: [{ONE % ', modifications: [{position: 9, ccd: SEP}]'}]",
         "/sequences/0/protein/modifications: there is no residue 9 in chain A, which has 1 to 8"),
        (TWO + "[{pocket: {binder: L, contacts: [[A, 1], [A, 400]]}}]",
         "/constraints/0/pocket: there is no residue 400 in chain A, which has 1 to 8"),
        (TWO + "[{pocket: {binder: L, contacts: [[A, 0]]}}]", "there is no residue 0 in chain A"),
        (TWO + "[{contact: {token1: [A, 1], token2: [A, CA]}}]", "there is no residue CA in chain A"),
        (TWO + "[{contact: {token1: [A, -1], token2: [A, 2]}}]", "/constraints/0/contact: there is no residue -1"),
        (TWO + "[{contact: {token1: [A, 1], token2: [L, C99]}}]", "there is no ('L', 0, 'C99') in it"),
        (TWO + "[{bond: {atom1: [A, 9, CA], atom2: [L, 1, PG]}}]", "/constraints/0/bond: there is no residue 9 in"),
        (f"sequences: [{ONE % ''}]\ntemplates: [{{pdb: a/t.pdb}}, {{cif: b/t.cif}}]", "two templates are called t"),
        (f"use_msa_server: true\nsequences: [{ONE % ''}]",
         "use_msa_server stands in the input, and it counts only as --param use_msa_server=VALUE"),
        (f"msa_server_url: 'http://127.0.0.1:9'\nsequences: [{ONE % ''}]", "msa_server_url stands in the input"),
        ("use_msa_server: true\nsequences: [{protein: {id: A, sequence: MK}}]", "use_msa_server stands in the input"),
    ],
)  # fmt: skip
def test_what_boltz_would_take_for_something_else_is_refused_with_its_place(
    boltz: Boltz, tmp_path: Path, text: str, word: str
) -> None:
    for name in ("a/t.pdb", "b/t.cif"):
        written(tmp_path, name, "SEQRES   1 A    1  ALA\n")
    source = written(tmp_path, "wrong.yaml", text)
    request = {"use_msa_server": True, "msa_server_url": "http://127.0.0.1:9"} if "server" in text else {}
    reply = boltz.answer(source, request, **QUICK)
    assert (reply["ok"], reply.get("reason")) == (False, "refused"), reply
    assert word in reply["error"]


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("m.a3m", MSA + ">j\nNLYIQW\n", "the MSA m.a3m: line 8 has 6 columns, and the first sequence 8"),
        (
            "m.a3m",
            ">q\nNLYIQ\nWLK\n",
            "line 3 has 3 columns, and the first sequence 5; give an aligned MSA, each",
        ),
        ("m.a3m", "#8 1\n>q\nNLYIQWLK\n\n>h\nNLYIQWLKaaK\n", "line 6 has 9 columns"),
        ("m.a3m", "", "the MSA m.a3m has no sequence"),
        ("m.a3m", ">q\n", "the MSA m.a3m has no sequence"),
        ("m.csv", "", "the MSA m.csv has no sequence"),
        ("m.csv", "key,sequence\n", "the MSA m.csv has no sequence"),
        ("m.csv", "key,sequence\n1,NLYIQWLK\n-1,NLYIQWL\n", "the MSA m.csv: row 2 has 7 columns"),
        ("m.csv", "key,sequence\n1,NLYIQWLK\n2,\n", "row 2 has no sequence"),
        ("m.csv", "name,sequence\n1,NLYIQWLK\n", "Invalid CSV format, expected columns"),
    ],
)
def test_an_msa_that_is_not_aligned_or_empty_is_refused_with_its_row(
    boltz: Boltz, tmp_path: Path, name: str, text: str, word: str
) -> None:
    written(tmp_path, name, text)
    source = written(tmp_path, "in.yaml", f"sequences: [{{protein: {{id: A, sequence: NLYIQWLK, msa: {name}}}}}]")
    assert word in boltz.refusal(source)


def test_alike_chains_that_are_alike_in_all_are_taken_as_one_entity(boltz: Boltz, tmp_path: Path) -> None:
    more = ", cyclic: false, modifications: []"
    text = f"sequences: [{ONE % ''}, {(ONE % more).replace('A', 'B', 1)}, {{ligand: {{id: [C, D], ccd: ZN}}}}]\n"
    text += "constraints: [{contact: {token1: [A, 8], token2: [B, 1]}}]\n"
    assert boltz.result(written(tmp_path, "two.yaml", text), **QUICK)["tokens"] == 18


def test_a_pdb_file_is_refused_for_chains_whose_names_it_cannot_hold(boltz: Boltz, tmp_path: Path) -> None:
    source = written(tmp_path, "long.yaml", "sequences: [{dna: {id: [A, BB], sequence: ACGT}}]")
    assert "the id BB has 2 characters, and a PDB file has one column" in boltz.refusal(source, output_format="pdb")
    assert boltz.result(source, **QUICK)["tokens"] == 8


def test_a_template_that_is_not_used_for_each_copy_is_noted(boltz: Boltz, tmp_path: Path) -> None:
    written(tmp_path, "1ubi.pdb", with_sequence((MANIFESTS / "propka" / "validation" / "1ubi.pdb").read_text()))
    text = "sequences: [{protein: {id: [A, B], sequence: MQIFVKTLTG, msa: empty}}]\ntemplates: [{pdb: 1ubi.pdb%s}]"
    notes = boltz.result(written(tmp_path, "t.yaml", text % ""), **QUICK)["notes"]
    assert len(notes) == 1 and notes[0].startswith("the template 1ubi is used for "), notes
    both = text % ", chain_id: [A, B], template_id: [A1, A1]"
    assert boltz.result(written(tmp_path, "both.yaml", both), **QUICK)["notes"] == []


def test_without_a_most_all_samples_are_made_at_once(boltz: Boltz, peptide: Path) -> None:
    found = boltz.result(peptide, **QUICK, seed=1, diffusion_samples=3, max_parallel_samples=None)
    assert len(found["structures"]) == 3
    assert {each["total"] for each in boltz.progress if each["event"] == "progress"} <= {4}


def test_what_boltz_warns_of_is_in_the_reply(boltz: Boltz, tmp_path: Path) -> None:
    long = "C" * 60
    text = (
        "sequences: [{protein: {id: A, sequence: GG, msa: empty}}, {ligand: {id: L, smiles: " + long + "}}]\n"
        "properties: [{affinity: {binder: L}}]\n"
    )
    notes = boltz.result(written(tmp_path, "long.yaml", text), **QUICK)["notes"]
    assert any("larger than 56 heavy-atoms" in note for note in notes), notes
    assert boltz.result(written(tmp_path, "short.yaml", PEPTIDE), **QUICK)["notes"] == []


def test_how_far_it_is_is_said(boltz: Boltz, peptide: Path) -> None:
    boltz.result(peptide, sampling_steps=400, recycling_steps=1)
    said = boltz.progress
    assert {each["total"] for each in said if each["event"] == "progress"} == {402}
    done = [each["done"] for each in said if each["event"] == "progress"]
    assert done == sorted(done) and 1 < done[-1] <= 402


@pytest.mark.parametrize(
    ("fault", "reason", "word", "ends"),
    [
        ("starved", "over_budget", "Tried to allocate 3.25 GiB", 1),
        ("recorded", "over_budget", "out of memory, by Boltz's word", 1),
        ("starved_driver", "over_budget", "CUDA error: out of memory", 1),
        ("lost", "worker_exiting", "the device is lost to this process: CUDA error: an illegal memory access", 1),
        ("unwritten", "error", "Boltz ended without a word and did not write peptide_model_0.cif", None),
        ("unfeatured", "error", "ValueError: planted: no features", None),
        ("not_numbers", "error", "Boltz's coordinates are not all numbers", None),
    ],
)
def test_what_boltz_swallows_fails_the_job_with_words(
    python: str, cache: Path, tmp_path: Path, peptide: Path, fault: str, reason: str, word: str, ends: int | None
) -> None:
    planted = str(boltz_made.SCRIPTS / "planted.py")
    with Boltz(
        python, SCRIPT, tmp_path, "--accelerator", "cpu", before=(planted, fault), BOLTZ_CACHE=str(cache)
    ) as worker:
        reply = worker.answer(peptide, **QUICK)
        assert (reply["ok"], reply["reason"]) == (False, reason), reply
        assert word in reply["error"]
        if ends is None:
            assert worker.ask({"op": "ping"})["ok"]
        else:
            assert worker.process.wait(30) == ends
        assert list(worker.work.iterdir()) == []


@pytest.mark.parametrize(
    ("lacks", "accelerator", "code", "word"),
    [
        ("mols", "cpu", 3, "refused: {cache}/mols is not there; BOLTZ_CACHE names the folder that has it"),
        ("boltz2_aff.ckpt", "cpu", 3, "refused: {cache}/boltz2_aff.ckpt is not there"),
        ("half", "cpu", 3, "refused: {cache}/boltz2_conf.ckpt is no checkpoint of Boltz-2, or not whole"),
        ("", "gpu", 5, "no accelerator: torch 2.13.0+cpu, built for no CUDA at all, sees no CUDA device"),
    ],
)
def test_a_start_that_cannot_be_says_what_lacks(
    python: str, cache: Path, tmp_path: Path, lacks: str, accelerator: str, code: int, word: str
) -> None:
    here = tmp_path / "cache"
    here.mkdir()
    for path in cache.iterdir():
        if path.name != lacks:
            (here / path.name).symlink_to(path)
    if lacks == "half":
        (here / "boltz2_conf.ckpt").unlink()
        (here / "boltz2_conf.ckpt").write_bytes((cache / "boltz2_conf.ckpt").read_bytes()[:5000])
    worker = Boltz(python, SCRIPT, tmp_path, "--accelerator", accelerator, BOLTZ_CACHE=str(here))
    try:
        assert worker.process.wait(120) == code, worker.said()
        assert worker.said().splitlines()[-1].startswith(word.format(cache=here)), worker.said()
    finally:
        worker.__exit__(None, None, None)


def test_the_parameters_are_those_of_boltz_with_its_defaults(python: str) -> None:
    dump = (
        "import json, boltz.main; from boltz.data import const; command = boltz.main.predict;"
        "print(json.dumps({'defaults': {p.name: p.default for p in command.params if p.name in %r},"
        " 'names': [p.name for p in command.params], 'methods': sorted(const.method_types_ids)}, default=str))"
    )
    done = subprocess.run([python, "-c", dump % sorted(PARAMS)], capture_output=True, text=True, env=boltz_made.quiet())
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    # Boltz's own command leaves step_scale to the model, 1.5 for Boltz-2.
    assert theirs["defaults"] == {**{name: rule["default"] for name, rule in PARAMS.items()}, "step_scale": None}
    assert sorted(set(PARAMS["method"]["enum"]) - {None}) == [
        each for each in theirs["methods"] if not each.startswith("future")
    ]
    others = set(theirs["names"]) - set(PARAMS)
    assert others == {
        "data", "out_dir", "cache", "checkpoint", "affinity_checkpoint", "devices", "accelerator", "num_workers",
        "override", "preprocessing_threads", "model", "msa_server_username", "msa_server_password", "api_key_value",
        "write_full_pae", "write_full_pde",
    }  # fmt: skip


class MsaServer(BaseHTTPRequestHandler):
    """Answers as an MSA server does, for one sequence that it gives a relative of."""

    asked: list[str] = []
    down = False
    says: tuple[int, bytes] | None = None

    def log_message(self, *_: object) -> None:
        """Nothing is said."""

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
        code, said = self.says or (
            200,
            b'{"id": "one", "status": "%s"}' % (b"MAINTENANCE" if self.down else b"COMPLETE"),
        )
        self._say(said, code)

    def do_GET(self) -> None:
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w:gz") as tar:
            for name in ("uniref.a3m", "bfd.mgnify30.metaeuk30.smag30.a3m"):
                data = b">101\nNLYIQWLK\n>r\nNLYLQWIK\n\0"
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        self._say(held.getvalue())

    def _say(self, data: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def msa_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), MsaServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    MsaServer.asked, MsaServer.down, MsaServer.says = [], False, None
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_msa_server_is_asked_only_when_told_to_and_what_it_gave_is_kept(
    python: str, cache: Path, tmp_path: Path, msa_server: str
) -> None:
    source = written(tmp_path, "bare.yaml", "sequences: [{protein: {id: A, sequence: NLYIQWLK}}]")
    server = {"msa_server_url": msa_server, **QUICK}
    with Boltz(python, SCRIPT, tmp_path, "--accelerator", "cpu", BOLTZ_CACHE=str(cache)) as worker:
        assert f"sends the sequences to {msa_server}" in worker.refusal(source, **server)
        assert MsaServer.asked == []
        worker.result(source, use_msa_server=True, **server)
        assert MsaServer.asked == ["q=%3E101%0ANLYIQWLK%0A&mode=env"]
        assert (worker.out / "msa" / "bare_0.csv").read_text().split() == [
            "key,sequence", "-1,NLYIQWLK", "-1,NLYLQWIK", "-1,NLYIQWLK", "-1,NLYLQWIK",
        ]  # fmt: skip
        MsaServer.down = True
        reply = worker.answer(source, use_msa_server=True, **server)
        assert (reply["ok"], reply["reason"]) == (False, "later"), reply
        assert "is undergoing maintenance" in reply["error"] and msa_server in reply["error"]
        MsaServer.down = False
        for code, said, reason, word in (
            (401, b"no", "refused", f"the MSA server {msa_server} answered 401; correct msa_server_url, its name and"),
            (404, b'{"error": "no such"}', "refused", f"the MSA server {msa_server} answered 404"),
            (200, b'{"status": "ERROR"}', "refused", "is a valid protein sequence"),
            (200, b"<html>a wiki</html>", "refused", "is a valid protein sequence"),
            (503, b"busy", "later", "API is giving errors"),
        ):
            MsaServer.says = (code, said)
            reply = worker.answer(source, use_msa_server=True, **server)
            assert (reply["ok"], reply["reason"]) == (False, reason), reply
            assert word in reply["error"]
