"""Holds FlashABB and answers what structure the two variable domains of an antibody have."""

import itertools
import math
import re

import flash_abb
import torch
from schedq_worker import Refused, serve

RESIDUES = frozenset("ACDEFGHIKLMNPQRSTVWYX")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST, MOST = 200, 200
BINS = 50
BONDED, CIS, TRANS = 3.0, (2.6, 3.1), (3.4, 4.2)


def load():
    return flash_abb.pretrained(device="cpu")


def records(path):
    """The antibodies of a FASTA file, each record `HEAVY|LIGHT`; `:` and `/` between the two are taken as well.

    `cut` says whether more stands on the '>' line than the name.
    """
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line.startswith(">"):
                words = line[1:].split() or [f"antibody{len(found) + 1}"]
                found.append([words[0], "", len(words) > 1])
            elif line:
                if not found:
                    raise Refused("the FASTA file starts without a '>' line")
                found[-1][1] += line
    antibodies = []
    for name, text, cut in found:
        parts = re.split(r"[|:/]", text)
        if len(parts) != 2:
            raise Refused(f"{name}: HEAVY|LIGHT is needed in one record, and this has {len(parts)} sequences")
        antibodies.append({"id": name, "heavy": parts[0], "light": parts[1], "cut": cut})
    return antibodies


def foreign(letters):
    """What is wrong with a chain that holds these letters: `holds * and J, which are no residues`."""
    *some, last = ("a blank" if letter.isspace() else letter for letter in letters)
    few = f"{', '.join(some)} and {last}, which are no residues" if some else f"{last}, which is no residue"
    return f"holds {few}"


def checked(asked):
    """The antibodies with their letters in upper case. Refused if one cannot be modelled or be a file's name."""
    if len(asked) > MOST:
        raise Refused(f"{len(asked)} antibodies in one request, and {MOST} can be answered; split them over jobs")
    found, names = [], set()
    for each in asked:
        name, chains = each["id"], (each["heavy"].upper().rstrip("*"), each["light"].upper().rstrip("*"))
        if not NAME.fullmatch(name):
            raise Refused(f"{name!r} cannot be a file's name; use letters, digits, '.', '_' and '-', 100 at most")
        if name.lower() in names:
            cut = any(other.get("cut") for other in asked)
            raise Refused(
                f"two antibodies are called {name}"
                + (" (a name of a FASTA file is cut at the first blank)" if cut else "")
                + "; each has a file of its own, so give each its own name"
            )
        names.add(name.lower())
        for word, chain in zip(("heavy", "light"), chains, strict=True):
            strange = sorted(set(chain) - RESIDUES)
            if strange or not chain:
                raise Refused(f"{name}: the {word} chain " + (foreign(strange) if strange else "is empty"))
            if len(chain) > LONGEST:
                raise Refused(
                    f"{name}: the {word} chain has {len(chain)} residues, and {LONGEST} can be modelled; "
                    "give the variable domain alone"
                )
        found.append((name, *chains))
    return found


def confidence(logits):
    """The expected lDDT of each CA atom, 0 to 100, of the network's own estimate."""
    middle = (torch.arange(BINS) + 0.5) * (100.0 / BINS)
    return [round(float(each), 1) for each in (torch.softmax(logits, -1) * middle).sum(-1)]


def geometry(pdb):
    """What a structure says of itself: steps from CA to CA, which of them no peptide bond makes, disulfide bonds."""
    alphas, sulfurs = [], []
    for line in pdb.splitlines():
        if line.startswith("ATOM"):
            residue, place = (line[21], int(line[22:26])), tuple(float(line[i : i + 8]) for i in (30, 38, 46))
            if line[12:16] == " CA ":
                alphas.append((residue, place, line[17:20]))
            elif line[12:16] == " SG ":
                sulfurs.append((residue, place))
    steps = {b: math.dist(a[1], b[1]) for a, b in itertools.pairwise(alphas) if a[0][0] == b[0][0]}
    strained = [
        f"{residue[0]}{residue[1]}"
        for (residue, _, name), step in steps.items()
        if not TRANS[0] <= step <= TRANS[1] and not (name == "PRO" and CIS[0] <= step <= CIS[1])
    ]
    bonds = [
        {"between": [f"{a[0]}{a[1]}", f"{b[0]}{b[1]}"], "length": round(math.dist(here, there), 2)}
        for i, (a, here) in enumerate(sulfurs)
        for b, there in sulfurs[i + 1 :]
        if math.dist(here, there) < BONDED
    ]
    return {
        "ca_step_min": round(min(steps.values(), default=0.0), 2),
        "ca_step_max": round(max(steps.values(), default=0.0), 2),
        "strained": strained,
        "disulfides": bonds,
    }


def predict(model, request, job):
    asked = checked(request["antibodies"] if "antibodies" in request else records(job.input_path))
    model.dlc_correction = request.get("dlc", True)
    structures = []
    for done, (name, heavy, light) in enumerate(asked):
        job.progress(done, len(asked), f"{name}: {len(heavy)} and {len(light)} residues")
        with torch.inference_mode():
            made = model([f"{heavy}|{light}"])
            made.to_pdbs([name], pdb_dir=str(job.out_dir))
            sure = confidence(made.output["plddt"][0])
        pdb = (job.out_dir / f"{name}.pdb").read_text(encoding="utf-8")
        structures.append({
            "id": name, "file": f"{name}.pdb", "residues": {"H": len(heavy), "L": len(light)},
            "plddt_mean": round(sum(sure) / len(sure), 1),
            "plddt": {"H": sure[: len(heavy)], "L": sure[len(heavy) :]}, **geometry(pdb), "pdb": pdb,
        })  # fmt: skip
    return {"structures": structures}


serve(load=load, predict=predict)
