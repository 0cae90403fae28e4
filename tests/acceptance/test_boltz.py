"""Boltz's real code through the real queue, with tiny random weights under a manifest that needs no device."""

from __future__ import annotations

import json
from pathlib import Path

import boltz_made
import pytest
from driven import Queue, eventually

pytestmark = [pytest.mark.boltz, pytest.mark.network]

QUICK = ("--param", "sampling_steps=3", "--param", "recycling_steps=0", "--param", "seed=1")
TEXT = """\
# é: the bytes of this file are what Boltz reads
x-msa: &msa ../msas/one.a3m
sequences:
  - protein: {id: "NO", sequence: NLYIQWLK, msa: *msa}
  - protein: {id: B, sequence: NLYIQWLK, msa: *msa}
"""
MSA = ">q\nNLYIQWLK\n>h\nNLYLQWIK\n"


@pytest.fixture
def boltz(queue: Queue, tmp_path: Path) -> Queue:
    """A queue whose boltz is the shipped one with tiny weights; two inputs below `night`, their MSA beside that."""
    home = tmp_path / "made"
    boltz_made.manifest(queue.manifests, python=boltz_made.python(home), cache=boltz_made.cache(home))
    for name in ("night/one.yaml", "night/two.yaml", "msas/one.a3m"):
        (queue.folder / name).parent.mkdir(exist_ok=True)
        (queue.folder / name).write_text(MSA if name.endswith("a3m") else TEXT)
    return queue


def test_a_night_on_one_warm_worker_whose_files_may_go_once_they_are_submitted(boltz: Queue) -> None:
    done = boltz("submit", "boltz", "night/*.yaml", "--batch", "n", "--out", "results/{name}", *QUICK)
    assert done.out.split() == ["1", "2"], done
    for path in (*(boltz.folder / "night").iterdir(), boltz.folder / "msas" / "one.a3m"):
        path.unlink()
    boltz("up")
    assert boltz("wait", "--batch", "n", timeout=300).code == 0, boltz("log", "1").out
    replies = [boltz("result", job).json for job in ("1", "2")]
    for name, reply in zip(("one", "two"), replies, strict=True):
        place = boltz.folder / "results" / name
        assert reply["structures"] == [f"predictions/{name}/{name}_model_0.cif"]
        assert (place / reply["structures"][0]).stat().st_size > 1000
        told = json.loads((place / "predictions" / name / f"confidence_{name}_model_0.json").read_text())
        assert reply["confidence"] == [told]
        about = json.loads((place / "job.json").read_text())
        assert about["params"]["sampling_steps"] == 3 and about["params"]["step_scale"] == 1.5
    assert replies[0]["confidence"] == replies[1]["confidence"]
    assert replies[0]["tokens"] == 16
    assert [boltz.show(job)["attempts"][0]["warm"] for job in (1, 2)] == [False, True]
    assert not list((boltz.home / "jobs").glob("*/work/*"))


def test_a_job_that_boltz_skips_is_refused_with_its_words_and_the_worker_stays(boltz: Queue) -> None:
    bare = boltz.folder / "bare.yaml"
    bare.write_text("sequences: [{protein: {id: A, sequence: MK}}]")
    refused = boltz("run", "boltz", "bare.yaml", *QUICK)
    assert refused.code == 3 and 'at /sequences/0/protein: lacks "msa"' in refused.err
    bare.write_text("use_msa_server: true\nsequences: [{protein: {id: A, sequence: MK}}]")
    refused = boltz("run", "boltz", "bare.yaml", *QUICK)
    assert refused.code == 3 and "counts only as --param use_msa_server=VALUE" in refused.err
    bare.write_text("sequences: [{protein: {id: NO, sequence: MK, msa: empty}}]")
    refused = boltz("run", "boltz", "bare.yaml", *QUICK, timeout=300)
    assert refused.code != 0 and "as False and not as text; quote it" in refused.err, refused
    assert boltz.show(1)["outcome"]["kind"] == "refused"
    done = boltz("run", "boltz", "--example", *QUICK, timeout=300)
    assert done.code == 0 and done.json["tokens"] == 20, done
    assert boltz.show(2)["attempts"][0]["warm"]


def test_without_its_weights_it_waits_and_says_which_and_what_fetches_them(boltz: Queue) -> None:
    folder = boltz.manifests / "boltz" / "provider.toml"
    text = folder.read_text()
    cache = text.partition('BOLTZ_CACHE = "')[2].partition('"')[0]
    here = boltz.folder / "cache"
    here.mkdir()
    for path in Path(cache).iterdir():
        if path.name != "boltz2_aff.ckpt":
            (here / path.name).symlink_to(path)
    folder.write_text(text.replace(cache, str(here)))
    done = boltz("submit", "boltz", "--example", *QUICK)
    assert done.code == 0 and f"{here}/boltz2_aff.ckpt is not there" in done.err, done
    assert "schedq files boltz --fetch" in done.err
    boltz("up")
    eventually(lambda: boltz.show(1)["reason"]["ruling"] == "not_installed")
    (here / "boltz2_aff.ckpt").symlink_to(Path(cache) / "boltz2_aff.ckpt")
    assert boltz("wait", "1", timeout=300).code == 0, boltz.show(1)
