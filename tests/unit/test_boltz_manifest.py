"""What the shipped boltz takes and where its weights lie, without its code: that is tried by `pytest -m boltz`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from providers import MANIFESTS, declared, spec_of

from scheduler import request
from scheduler.config import Paths
from scheduler.errors import InvalidInput
from scheduler.host import named_files
from scheduler.host.workers.environment import secrets_of
from scheduler.inputs.yamltext import parse_yaml

FOLDER = MANIFESTS / "boltz"
ONE_LETTER = {
    "ALA": "A", "ARG": "R", "ASN": "N", "ASP": "D", "GLN": "Q", "GLU": "E", "GLY": "G", "HIS": "H", "ILE": "I",
    "LEU": "L", "LYS": "K", "MET": "M", "PHE": "F", "PRO": "P", "SER": "S", "THR": "T", "TYR": "Y", "VAL": "V",
}  # fmt: skip
WHOLE = """\
# aller Anfang ist schwer: é
x-msa: &msa {msa}
version: 1
sequences:
  - protein:
      id: ["NO", B]
      sequence: MKV
      msa: *msa
      modifications: [{{position: 2, ccd: SEP}}]
      cyclic: false
  - protein: {{id: C, sequence: MKVA, msa: empty}}
  - dna: {{id: D, sequence: ACGT}}
  - rna: {{id: E, sequence: ACGU}}
  - ligand: {{id: [F, G], ccd: "012"}}
  - ligand: {{id: H, smiles: 'N[C@@H](Cc1ccc(O)cc1)C(=O)O'}}
constraints:
  - bond: {{atom1: [B, 1, CA], atom2: [D, 2, P]}}
  - pocket: {{binder: H, contacts: [[B, 1], [F, C1]], max_distance: 5, force: true}}
  - contact: {{token1: [B, 1], token2: [C, 2]}}
templates:
  - cif: {template}
    chain_id: [B, C]
    template_id: [X, Y]
    force: true
    threshold: 2
  - {{pdb: {template}, chain_id: B}}
properties:
  - affinity: {{binder: H}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    return spec_of("boltz", tmp_path / "home")


def taken(spec: dict[str, Any], folder: Path, text: str, *params: str) -> dict[str, Any]:
    """What is kept of a request, as at submit. InvalidInput if it is refused."""
    given = request.parameters(spec, list(params))
    return request.check(spec, text.encode(), "in.yaml", str(folder), given, Paths(str(folder / "home")))


def test_the_manifest_is_read_without_a_warning_and_needs_a_device(spec: dict[str, Any]) -> None:
    assert spec["warnings"] == []
    assert (spec["policy"], spec["vram_gib"], spec["ram_gib"], spec["mode"]) == ("required", 28.0, 6.0, "resident")
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in spec["environment"]["requirements"])


def test_one_value_of_a_site_moves_the_weights_and_the_worker_that_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["boltz2_conf.ckpt", "boltz2_aff.ckpt", "mols.tar", "mols"]
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = spec_of("boltz", tmp_path / "a")
    assert [named_files.path_of(spec, file) for file in spec["files"]] == [
        f"{tmp_path}/.boltz/{name}" for name in names
    ]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config = tmp_path / "schedq" / "config.toml"
    config.parent.mkdir()
    config.write_text('[providers.boltz.env]\nBOLTZ_CACHE = "/data/boltz"\n')
    spec = spec_of("boltz", tmp_path / "b")
    assert [named_files.path_of(spec, file) for file in spec["files"]] == [f"/data/boltz/{name}" for name in names]
    assert spec["env"]["BOLTZ_CACHE"] == "/data/boltz"


def test_boltzs_own_yaml_is_taken_whole_with_the_files_that_it_names(spec: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "msas").mkdir()
    (tmp_path / "msas" / "one.a3m").write_text(">q\nMKV\n")
    (tmp_path / "t.cif").write_text("data_t\n")
    row = taken(spec, tmp_path, WHOLE.format(msa="msas/one.a3m", template="t.cif"))
    assert {pointer: Path(file["path"]).name for pointer, file in row["files"].items()} == {
        "/sequences/0/protein/msa": "one.a3m", "/templates/0/cif": "t.cif", "/templates/1/pdb": "t.cif",
    }  # fmt: skip
    assert (row["input_kind"], row["size"]) == ("yaml", 3 + 4 + 4 + 4)
    assert row["params"]["sampling_steps"] == 200 and row["params"]["seed"] is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("sequences: [{protein: {id: A, sequence: MK}}]", 'at /sequences/0/protein: lacks "msa"'),
        ("sequences: [{protein: {id: A, sequence: MK, msa: }}]", "at /sequences/0/protein/msa: must be text, not null"),
        ("sequences: [{protein: {id: A, sequence: MK, msa: a.fasta}}]", "[.](a3m|csv)$"),
        ("sequences: [{protein: {id: A, sequence: MK, msa: a.a3m}}]", "a.a3m is not there, from the input's folder"),
        ("sequences: [{protein: {id: 012, sequence: MK, msa: empty}}]", "at /sequences/0/protein/id"),
        ("sequences: [{protein: {id: A, sequence: M K, msa: empty}}]", ': " " at 2 is none of these'),
        ("sequences: [{protein: {id: A, sequence: nlyiqwlk, msa: empty}}]",
         'at /sequences/0/protein/sequence: must match pattern ^[ACDEFGHIKLMNPQRSTVWYXBZJOU]+$, and is "nlyiqwlk": "n'),
        ("sequences: [{protein: {id: A, sequence: MK-V, msa: empty}}]", '"-" at 3 is none of these'),
        ("sequences: [{rna: {id: A, sequence: ACGT}}]", 'must match pattern ^[ACGUN]+$, and is "ACGT": "T" at 4'),
        ("sequences: [{dna: {id: A, sequence: ACGU}}]", 'must match pattern ^[ACGTN]+$, and is "ACGU": "U" at 4'),
        ("sequences: [{dna: {id: A, sequence: acgt}}]", '"a" at 1 is none of these'),
        ("sequences: [{dna: {id: [A, chain1], sequence: ACGT}}]", 'at most 5 characters, and has 6: "chain1"'),
        ("sequences: [{dna: {id: A, sequence: ACGT}}]\nconstraints: [{contact: {token1: [A, 0], token2: [A, 2]}}]",
         "at /constraints/0/contact/token1/1: must be bigger than or equal to 1, and is 0"),
        ("use_msa_server: true\nsequences: [{protein: {id: A, sequence: MK}}]",
         "at the top: holds use_msa_server, which counts only as --param use_msa_server=VALUE; take it out"),
        ("use_msa_server: false\nsequences: [{dna: {id: A, sequence: ACGT}}]", "holds use_msa_server"),
        ("msa_server_url: http://x\nsequences: [{dna: {id: A, sequence: ACGT}}]", 'has no key "msa_server_url"'),
        ("sequences: [{protein: {id: A, sequence: MK, msa: empty, cylic: true}}]", 'did you mean "cyclic"?'),
        ("sequences: [{protien: {id: A, sequence: MK, msa: empty}}]", 'did you mean "protein"?'),
        ("sequences: [{ligand: {id: A, smiles: C, ccd: ATP}}]", "fits 2 of 2 forms and must fit exactly one"),
        ("sequences: [{ligand: {id: A, smiles: C}}]\ntemplate: []", 'did you mean "templates"?'),
        ("sequences: [{ligand: {id: A, smiles: C}}]\nproperties:", "at /properties: must be a list, not null"),
        ("sequences: []", "at /sequences: must have at least 1"),
    ],
)  # fmt: skip
def test_a_slip_is_refused_at_submit_with_its_place(spec: dict[str, Any], tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(word)):
        taken(spec, tmp_path, text)


def test_only_a_parameter_sends_sequences_to_a_server(spec: dict[str, Any], tmp_path: Path) -> None:
    """No option of Boltz's command may stand in a file: a YAML of somebody else's would have it its way."""
    text = "sequences: [{protein: {id: A, sequence: MK}}]\n"
    for name in json.loads((FOLDER / "params.schema.json").read_text())["properties"]:
        with pytest.raises(InvalidInput, match=name):
            taken(spec, tmp_path, text + f"{name}: true\n", "use_msa_server=true")
    path = tmp_path / "in.yaml"
    path.write_text(text + "use_msa_server: true\n")
    with pytest.raises(InvalidInput, match="holds use_msa_server"):
        taken(spec, tmp_path, path.read_text())


def test_templates_are_paired_alike_in_each_process(spec: dict[str, Any]) -> None:
    assert spec["env"]["PYTHONHASHSEED"] == "0"


def test_a_site_hands_the_msa_servers_secrets_to_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the README says it: names in config.toml, values in secrets.env, neither in the manifest."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    config = tmp_path / "schedq" / "config.toml"
    config.parent.mkdir()
    config.write_text('[providers.boltz]\npass = ["BOLTZ_MSA_USERNAME", "BOLTZ_MSA_PASSWORD"]\n')
    spec = spec_of("boltz", tmp_path / "home")
    assert spec["pass"] == ["BOLTZ_MSA_USERNAME", "BOLTZ_MSA_PASSWORD"]
    secrets = tmp_path / "secrets.env"
    secrets.write_text("BOLTZ_MSA_USERNAME=ada\nBOLTZ_MSA_PASSWORD=a b\n")
    secrets.chmod(0o600)
    assert secrets_of(str(secrets), spec["pass"]) == {"BOLTZ_MSA_USERNAME": "ada", "BOLTZ_MSA_PASSWORD": "a b"}


def test_an_msa_may_lack_only_where_a_server_is_to_make_it(spec: dict[str, Any], tmp_path: Path) -> None:
    text = "sequences: [{protein: {id: A, sequence: MK}}]"
    assert taken(spec, tmp_path, text, "use_msa_server=true")["params"]["use_msa_server"] is True
    with pytest.raises(InvalidInput, match='lacks "msa"'):
        taken(spec, tmp_path, text, "use_msa_server=false")


def test_the_sequences_of_the_validation_cases_are_those_that_they_are_said_to_be() -> None:
    def chain(name: str) -> str:
        found = parse_yaml((FOLDER / name).read_text(), name)["sequences"][0]
        return str(next(iter(found.values()))["sequence"])

    lines = (MANIFESTS / "propka" / "validation" / "1ubi.pdb").read_text().splitlines()
    ubiquitin = "".join(ONE_LETTER[line[17:20]] for line in lines if line.startswith("ATOM") and line[12:16] == " CA ")
    assert chain("validation/ubiquitin.yaml") == ubiquitin
    rows = (FOLDER / "validation" / "ubiquitin.a3m").read_text().split("\n")[1::2]
    assert rows[0] == ubiquitin and {len(row) for row in rows if row} == {76}
    trypsin = chain("validation/trypsin_benzamidine.yaml")
    assert len(trypsin) == 223
    # By chymotrypsin's numbers Ile16 begins it; His57, Asp102 and Ser195 are the triad, Asp189 binds benzamidine.
    assert trypsin.startswith("IVGGY") and "AAHC" in trypsin and "DIMLIKL" in trypsin and "DSCQGDSGGP" in trypsin
    duplex = chain("validation/dodecamer.yaml")
    assert duplex == duplex[::-1].translate(str.maketrans("ACGT", "TGCA"))


def test_each_validation_case_names_an_input_that_is_taken(spec: dict[str, Any]) -> None:
    for case in declared("boltz")["validation"]:
        path = FOLDER / case["input"]
        params = [f"{name}={value}" for name, value in case["params"].items()]
        taken(spec, path.parent, path.read_text(), *params)
