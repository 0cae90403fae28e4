"""Holds capiti's three networks and answers which of their enzyme functions a sequence has."""

import json
import os
from importlib.resources import files

import numpy
import onnxruntime
from capiti.cli import apply_gate, encode, softmax
from capiti.seq import translate
from schedq_worker import Refused, serve

SETS = ("ab9", "E", "C")
RESIDUES = frozenset("ACDEFGHIKLMNPQRSTVWYX")
BASES = frozenset("ACGTUN")


class Panel:
    """One set of targets: the network, its labels, and the active-site residues that each target must have."""

    def __init__(self, name):
        folder = files("capiti") / "_model" / name
        meta = json.loads((folder / "capiti.meta.json").read_text())
        self.labels, self.none, self.longest = meta["labels"], meta["none_idx"], meta["max_len"]
        self.index, self.pad = meta["vocab"], meta["vocab"]["pad"]
        self.sites = json.loads((folder / "gate.json").read_text())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.network = onnxruntime.InferenceSession(
            (folder / "capiti.onnx").read_bytes(), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self.input = self.network.get_inputs()[0].name

    def call(self, protein, gate):
        """The panel's answer for one protein, as the reply has it."""
        tokens = numpy.asarray([encode(protein, self.index, self.pad, self.longest)], dtype=numpy.int64)
        shares = softmax(self.network.run(None, {self.input: tokens})[0])[0]
        top = int(shares.argmax())
        target = max((i for i in range(len(shares)) if i != self.none), key=lambda i: shares[i])
        gated = bool(gate and apply_gate(protein, self.labels[target], self.sites))
        return {
            "p_in_set": 0.0 if gated else float(1.0 - shares[self.none]),
            "top": self.labels[top],
            "p_top": float(shares[top]),
            "gated": gated,
        }


def load():
    return {name: Panel(name) for name in SETS}


def records(path):
    """The records of a FASTA file as a request has them; `.fna` is DNA, `.faa` protein, else the letters decide."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line.startswith(">"):
                found.append([(line[1:].split() or [f"record {len(found) + 1}"])[0], ""])
            elif line:
                if not found:
                    raise Refused("the FASTA file starts without a '>' line")
                found[-1][1] += line
    suffix = os.path.splitext(path)[1].lower()
    dna = suffix == ".fna" or (suffix != ".faa" and all(set(text.upper()) <= BASES for _, text in found))
    return [{"id": name, "dna" if dna else "aa": text if dna else text.rstrip("*")} for name, text in found]


def protein_of(item, longest):
    """The protein that one record asks about. Refused if its letters or its length are no protein of the model's."""
    kind = "dna" if "dna" in item else "aa"
    text = item[kind].upper()
    strange = sorted(set(text) - (BASES if kind == "dna" else RESIDUES))
    if strange:
        raise Refused(f"{item['id']}: {''.join(strange)} are no letters of {'DNA' if kind == 'dna' else 'a protein'}")
    protein = translate(text) if kind == "dna" else text
    if not protein:
        raise Refused(f"{item['id']}: no residue to classify" + (", it starts with a stop" if len(text) > 2 else ""))
    if len(protein) > longest:
        raise Refused(f"{item['id']}: {len(protein)} residues, and the model reads {longest}; cut it to one domain")
    return protein


def predict(panels, request, job):
    panel = panels[request.get("set", "C")]
    asked = request.get("sequences")
    if asked is None:
        asked = records(job.input_path)
    proteins = [(item["id"], protein_of(item, panel.longest)) for item in asked]
    results = []
    for done, (name, protein) in enumerate(proteins):
        if done % 100 == 0 and done:
            job.progress(done, len(proteins), f"{done} of {len(proteins)} sequences")
        results.append({"id": name, "length": len(protein), **panel.call(protein, request.get("gate", True))})
    return {"set": request.get("set", "C"), "results": results}


serve(load=load, predict=predict)
