"""Holds Boltz-2 and answers Boltz's own YAML as `boltz predict` does, with its files in the output folder.

`--accelerator cpu` runs it without a device, as Boltz's option of that name does. The weights lie in BOLTZ_CACHE, as
Boltz lays them out; nothing is fetched.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
from pathlib import Path

import boltz_input
import torch
from boltz.data.write.writer import BoltzAffinityWriter, BoltzWriter
from boltz_networks import AFFINITY, STRUCTURE, Networks
from pytorch_lightning import seed_everything
from schedq_worker import NoAccelerator, Refused, serve

PARAMETERS = Path(__file__).resolve().parents[1] / "params.schema.json"
SUFFIX = {"mmcif": "cif", "pdb": "pdb"}


def load(arguments):
    """The networks, on their device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--accelerator", choices=("gpu", "cpu"), default="gpu")
    accelerator = parser.parse_args(arguments).accelerator
    cache = Path(os.environ.get("BOLTZ_CACHE") or "~/.boltz").expanduser().resolve()
    for name in ("mols", STRUCTURE, AFFINITY):
        if not (cache / name).exists():
            raise Refused(f"{cache / name} is not there; BOLTZ_CACHE names the folder that has it")
    if accelerator == "gpu" and not torch.cuda.is_available():
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA at all"
        raise NoAccelerator(f"torch {torch.__version__}, built for {build}, sees no CUDA device")
    for name in ("CUEQ_DEFAULT_CONFIG", "CUEQ_DISABLE_AOT_TUNING"):
        os.environ.setdefault(name, "1")
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("highest")
    boltz_input.listen()
    return Networks(cache, torch.device("cuda:0" if accelerator == "gpu" else "cpu"))


def predict(networks, request, job):
    """Boltz's files in `predictions/NAME` of the output folder, and their figures as the reply."""
    options = {name: job.params.get(name, rule["default"]) for name, rule in _parameters().items()}
    if options["seed"] is None:
        options["seed"] = random.SystemRandom().randrange(1 << 32)
    work = job.work_dir / f"boltz-{job.attempt}"
    for left in job.work_dir.glob("boltz-*"):
        shutil.rmtree(left)
    try:
        return _answer(networks, request, job, options, work)
    except RuntimeError as error:
        if "CUDA error" in str(error) and "out of memory" not in str(error):
            raise SystemExit(f"the device is lost to this process: {error}") from error
        raise
    finally:
        networks.steps = None
        shutil.rmtree(work, ignore_errors=True)
        if networks.device.type == "cuda":
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()


def _parameters():
    with open(PARAMETERS, encoding="utf-8") as file:
        return json.load(file)["properties"]


def _answer(networks, request, job, options, work):
    record = boltz_input.read(job, request, options, networks.cache, work)
    affinity = record.affinity is not None
    if affinity:
        networks.read_affinity()
    networks.steps = networks.steps_of(job, options, affinity=affinity)
    seed_everything(options["seed"], verbose=False)
    features = boltz_input.features(record, networks.cache, work, method=options["method"])
    tokens = int(features["token_pad_mask"].sum())
    seed_everything(options["seed"], verbose=False)
    found = networks.structure(features, options)
    predictions = job.out_dir / "predictions"
    writer = BoltzWriter(
        data_dir=work / "processed" / "structures", output_dir=predictions, output_format=options["output_format"],
        boltz2=True, write_embeddings=options["write_embeddings"],
    )  # fmt: skip
    writer.write_on_batch_end(None, None, found, None, features, 0, 0)
    structures = [
        f"{record.id}_model_{number}.{SUFFIX[options['output_format']]}"
        for number in range(options["diffusion_samples"])
    ]
    lacks = [name for name in structures if not (predictions / record.id / name).is_file()]
    if lacks:
        raise RuntimeError(f"Boltz ended without a word and did not write {', '.join(lacks)}")
    reply = {
        "structures": [f"predictions/{record.id}/{name}" for name in structures],
        "confidence": [
            _figures(predictions / record.id / f"confidence_{record.id}_model_{number}.json")
            for number in range(options["diffusion_samples"])
        ],
        "tokens": tokens,
        "seed": options["seed"],
        "kernels": networks.kernels(options),
    }
    if affinity:
        features = boltz_input.features(record, networks.cache, work, structures=predictions, method="other")
        found = networks.affinity(features, options)
        writer = BoltzAffinityWriter(data_dir=work / "processed" / "structures", output_dir=predictions)
        writer.write_on_batch_end(None, None, found, None, features, 0, 0)
        reply["affinity"] = _figures(predictions / record.id / f"affinity_{record.id}.json")
    if options["use_msa_server"]:
        _keep_msas(work / "msa", job.out_dir / "msa")
    return {**reply, "notes": list(boltz_input.notes)}


def _figures(path):
    """A JSON file of Boltz's, whose figures must be numbers."""
    try:
        return json.loads(path.read_text(), parse_constant=_no_number)
    except OSError as error:
        raise RuntimeError(f"Boltz ended without a word and did not write {path.name}") from error
    except FloatingPointError as error:
        raise FloatingPointError(f"{path.name} has {error} for a figure; try another seed") from None


def _no_number(word):
    raise FloatingPointError(word)


def _keep_msas(made, kept):
    for path in sorted(made.glob("*.csv")):
        kept.mkdir(exist_ok=True)
        shutil.copyfile(path, kept / path.name)


serve(load=load, predict=predict)
