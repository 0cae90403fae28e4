"""What a model gets is what was submitted: its own files byte for byte, what they name, parameters, a place to resume.

And what it leaves is at its destination whole, with the record of how it came about, or not at all.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from pathlib import Path

import pytest
from driven import Queue, eventually
from nvml import DRIVER, Card, Stub

WORKER = """
import hashlib, json, os, signal, sys, time
from pathlib import Path
from schedq_worker import serve

def load():
    return None

def named(value):
    if isinstance(value, dict):
        return [each for key, inner in value.items() for each in ([inner] if key == "msa" else named(inner))]
    return [each for inner in value for each in named(inner)] if isinstance(value, list) else []

def predict(model, request, job):
    data = Path(job.input_path).read_bytes()
    files = [[path, Path(path).read_text()] for path in named(request)]
    mark = job.work_dir / "checkpoint"
    resumed = mark.read_text() if mark.exists() else ""
    mark.write_text(f"{resumed}x")
    (job.out_dir / "first.cif").write_text("data_first")
    (job.out_dir / "deep").mkdir()
    (job.out_dir / "deep" / "second.cif").write_text("data_second")
    if job.params.get("dies") and len(resumed) < job.params["dies"]:
        os.kill(os.getpid(), signal.SIGKILL)
    while job.params.get("waits_for") and not os.path.exists(job.params["waits_for"]):
        time.sleep(0.01)
    return {"sha256": hashlib.sha256(data).hexdigest(), "file": Path(job.input_path).name, "name": job.name,
            "files": files, "resumed": resumed, "params": job.params}

serve(load=load, predict=predict)
"""

MANIFEST = """
slug = "reader"
title = "Says what it was given"
mode = "resident"
[gpu]
policy = "none"
[host]
ram_budget_gb = 0.1
[worker]
python = "{python}"
script = "reader_worker.py"
outputs = ["**/*.cif"]
stop_grace_s = 1
[retry]
max_attempts = 3
backoff_s = 0.1
[input]
accept = [".json", ".yaml", ".fasta", ".pdb", ".cif"]
params = "params.schema.json"
files = ["/sequences/*/msa", "/templates/*/msa"]
"""

PARAMS = {
    "type": "object",
    "properties": {
        "dies": {"type": "integer", "default": 0},
        "waits_for": {"type": "string", "default": ""},
        "seed": {"type": "integer", "default": 7},
        "scale": {"type": "number"},
        "label": {"type": "string"},
        "exact": {"type": "boolean"},
        "chains": {"type": "array", "items": {"type": "string"}},
    },
    "additionalProperties": False,
}

YAML = """\
# a remark with an umlaut: Grüße, 蛋白質
version: 012
sequences:
- protein: &first
    id: NO
    sequence: "MKQ\\u00c4"   # on: off
- protein:
    <<: *first
    id: [Y, 1e3, 0x1F, 1:30, ~]
"""

FILES = {
    "chains.yaml": YAML.encode(),
    "windows.yaml": YAML.replace("\n", "\r\n").encode(),
    "marked.yaml": b"\xef\xbb\xbf" + YAML.encode(),
    "two chains.fasta": b">A|protein  x\r\nMKQ\r\n\r\n>B\r\nACGT*\r\n",
    "1ubi.pdb": b"HEADER    X\nATOM      1  N   MET A   1      27.340  24.430   2.614  1.00  9.67\nEND   \n",
    "4hhb.cif": b"# \ndata_4HHB\nloop_\n_atom_site.id\n_atom_site.auth_asym_id\n1 'A'\n2 \"B\"\n",
    "spaced.json": b'{ "a" : 1.50, "b":"\\u00e9\xc3\xa9" ,\n\n "big": 123456789012345678901234567890 }\n\n',
    "Prot\u00e9ine (2).yaml": b"a: !!str 012\n",
}


@pytest.fixture
def reader(queue: Queue) -> Queue:
    """A queue with a provider that answers what it was given."""
    folder = queue.manifests / "reader"
    folder.mkdir()
    (folder / "provider.toml").write_text(MANIFEST.format(python=sys.executable))
    (folder / "reader_worker.py").write_text(WORKER)
    (folder / "params.schema.json").write_text(json.dumps(PARAMS))
    return queue


def test_every_kind_of_file_reaches_the_model_byte_for_byte_under_its_own_name(reader: Queue) -> None:
    for name, data in FILES.items():
        (reader.folder / name).write_bytes(data)
    sent = reader("submit", "reader", *(str(reader.folder / name) for name in FILES))
    assert sent.code == 0, sent
    for name in FILES:
        (reader.folder / name).write_bytes(b"changed after it was submitted")
    ids = sent.out.split()
    assert reader("up").code == 0
    assert reader("wait", *ids, "--timeout", "60s").code == 0
    for job, (name, data) in zip(ids, FILES.items(), strict=True):
        got = reader("result", job).json
        assert got["sha256"] == hashlib.sha256(data).hexdigest(), name
        assert (got["file"], got["name"]) == (name, name.rsplit(".", 1)[0])


def test_files_that_an_input_names_are_kept_by_content_as_they_were_when_it_was_submitted(reader: Queue) -> None:
    inside = reader.folder / "inputs" / "msas"
    inside.mkdir(parents=True)
    (inside / "a.a3m").write_text(">query\nMKQ\n")
    elsewhere = reader.folder / "a.a3m"
    elsewhere.write_text(">another of that name\nAAA\n")
    for ligand in range(4):
        text = f"ligand: {ligand}\nsequences:\n- msa: msas/a.a3m\n- msa: {elsewhere}\ntemplates:\n- msa: msas/a.a3m\n"
        (reader.folder / "inputs" / f"l{ligand}.yaml").write_text(text)
    inputs = sorted(str(path) for path in (reader.folder / "inputs").glob("*.yaml"))
    ids = reader("submit", "reader", *inputs).out.split()
    (inside / "a.a3m").write_text("changed afterwards")
    elsewhere.unlink()
    assert reader("up").code == 0
    assert reader("wait", *ids, "--timeout", "60s").code == 0
    answers = [reader("result", job).json["files"] for job in ids]
    for files in answers:
        assert [text for _, text in files] == [">query\nMKQ\n", ">another of that name\nAAA\n", ">query\nMKQ\n"]
        assert all(Path(path).is_absolute() for path, _ in files)
    kept = [path for path in reader.home.rglob("*") if path.is_file() and path.read_bytes() == b">query\nMKQ\n"]
    assert len({(path.stat().st_dev, path.stat().st_ino) for path in kept}) == 1, kept


def test_a_file_that_is_named_and_not_there_queues_nothing_and_says_where_it_was_looked_for(reader: Queue) -> None:
    source = reader.folder / "x.yaml"
    source.write_text("sequences:\n- msa: ./msas/missing.a3m\n")
    sent = reader("submit", "reader", str(source))
    assert sent.code == 3 and "missing.a3m" in sent.err and "/sequences/0/msa" in sent.err, sent
    assert reader.status()["jobs"] == []


def test_parameters_arrive_typed_with_defaults_and_are_part_of_the_record(reader: Queue) -> None:
    source = reader.folder / "x.yaml"
    source.write_text("a: 1\n")
    words = ["scale=1e-3", "label=012", "exact=true", 'chains=["NO", "1"]']
    done = reader("run", "reader", str(source), *(each for word in words for each in ("--param", word)))
    expected = {"dies": 0, "waits_for": "", "seed": 7, "scale": 0.001, "label": "012", "exact": True}
    assert done.json["params"] == {**expected, "chains": ["NO", "1"]}
    wrong = reader("run", "reader", str(source), "--param", "exact=perhaps")
    assert wrong.code in (2, 3) and "exact" in wrong.err and "perhaps" in wrong.err, wrong


def test_outputs_are_at_their_destination_whole_or_not_at_all_and_work_survives_the_attempts(reader: Queue) -> None:
    gate = reader.folder / "gate"
    source = reader.folder / "fold.yaml"
    source.write_text("a: 1\n")
    reader("up")
    options = ["--param", "dies=1", "--param", f"waits_for={gate}", "--out", "results/{name}"]
    (job,) = reader("submit", "reader", str(source), *options).out.split()

    def attempt() -> object:
        shown = reader.show(job)
        return shown["state"] == "running" and len(shown["attempts"]) == 2

    eventually(attempt, what="the second attempt runs")
    assert not (reader.folder / "results").exists() or list((reader.folder / "results").iterdir()) == []
    gate.touch()
    assert reader("wait", job, "--timeout", "60s").code == 0
    made = reader.folder / "results" / "fold"
    found = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    assert found == ["deep/second.cif", "first.cif", "job.json", "result.json"]
    assert json.loads((made / "result.json").read_text())["resumed"] == "x"


def test_a_job_that_fails_leaves_no_destination_and_keeps_what_it_wrote_for_its_operator(reader: Queue) -> None:
    source = reader.folder / "fold.yaml"
    source.write_text("a: 1\n")
    done = reader("run", "reader", str(source), "--param", "dies=9", "--out", "results/{name}", timeout=120)
    assert done.code == 1, done
    results = reader.folder / "results"
    assert not results.exists() or list(results.iterdir()) == []
    assert len(list(reader.home.rglob("first.cif"))) >= 1


def test_the_record_beside_the_outputs_says_what_made_them(reader: Queue) -> None:
    source = reader.folder / "fold.yaml"
    source.write_text("a: 1\n")
    out = reader.folder / "there"
    assert reader("run", "reader", str(source), "--param", "seed=11", "--out", str(out)).code == 0
    facts = json.loads((out / "job.json").read_text())
    assert (facts["slug"], facts["name"], facts["attempt"], facts["seed"]) == ("reader", "fold", 1, 11)
    assert facts["params"]["seed"] == 11 and facts["params"]["dies"] == 0
    assert facts["revision"] == reader.show(1)["revision"]
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["versions"]["schedq"]
    assert facts["environment"] and (facts["devices"], facts["driver"]) == ([], None)


def test_the_record_names_the_device_and_its_driver(reader: Queue, tmp_path: Path) -> None:
    card = Card(used_gib=1.0)
    reader.env.update(Stub(tmp_path).cards([card]).write().env())
    declared = reader.manifests / "reader" / "provider.toml"
    declared.write_text(declared.read_text().replace('policy = "none"', 'policy = "required"\nvram_budget_gb = 1.0'))
    source = reader.folder / "fold.yaml"
    source.write_text("a: 1\n")
    out = reader.folder / "there"
    done = reader("run", "reader", str(source), "--out", str(out))
    assert done.code == 0, done
    facts = json.loads((out / "job.json").read_text())
    assert (facts["devices"], facts["driver"]) == ([f"device:{card.id}"], DRIVER)
    (attempt,) = reader.show(1)["attempts"]
    assert (attempt["device"], attempt["driver"]) == (f"device:{card.id}", DRIVER)
