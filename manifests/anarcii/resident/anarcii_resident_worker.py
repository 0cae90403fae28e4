"""Holds ANARCII's networks and answers how the variable domains of antibodies and T-cell receptors are numbered."""

import csv
import string

import torch
from anarcii import Anarcii
from anarcii.classifii import Classifii
from anarcii.inference.model_runner import ModelRunner
from anarcii.inference.window_selector import WindowFinder
from anarcii.input_data_processing.sequences import SequenceProcessor
from anarcii.output_data_processing import imgt_order
from anarcii.output_data_processing.schemes import convert_number_scheme
from schedq_worker import Refused, serve

KINDS = {"antibody": ("accuracy", "speed"), "tcr": ("accuracy", "speed"), "shark": ("accuracy",)}
BATCH, CHUNK = 8, 64
ANTIBODY = ("H", "K", "L")
ABOUT = ("id", "chain", "domain", "chain_type", "score", "begin", "end", "scheme")
CDRS = {"cdr1": (27, 38), "cdr2": (56, 65), "cdr3": (105, 117)}
LETTERS = frozenset(string.ascii_uppercase)
LONGEST, MOST = 10000, 10000


class Numberer(Anarcii):
    """ANARCII for one kind of sequence, with its networks kept: the package reads them anew for every call."""

    def __init__(self, kind, mode):
        super().__init__(seq_type=kind, mode=mode, batch_size=BATCH, cpu=True, ncpu=torch.get_num_threads())
        self.runner = ModelRunner(kind, mode, BATCH, self.device, False, False)
        self.window = WindowFinder(kind, mode, BATCH, self.device)

    def number_with_type(self, seqs, seq_type, scfv):
        return self.runner(*SequenceProcessor(seqs, self.runner, self.window, scfv, False).process_sequences())


class Suite:
    """Every network of the package: a numberer for each kind and mode, and what tells antibodies from receptors."""

    def __init__(self):
        self.numberers = {(kind, mode): Numberer(kind, mode) for kind, modes in KINDS.items() for mode in modes}
        self.classify = Classifii(batch_size=BATCH, device=torch.device("cpu"))

    def number(self, sequences, kind, mode, scfv):
        """What the package answers for {key: sequence}, in the order of the keys."""
        groups = self.classify(sequences) if kind == "unknown" else {kind: sequences}
        found = {}
        for each, group in groups.items():
            numberer = self.numberers[each, "accuracy" if each == "shark" else mode]
            found.update(numberer.number(dict(group), scfv=scfv))
        order = list(sequences)
        return dict(sorted(found.items(), key=lambda item: (order.index(item[0].split("-")[0]), item[0])))


def load():
    return Suite()


def records(path):
    """The records of a FASTA file, named by their whole '>' line."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line.startswith(">"):
                found.append({"id": line[1:].strip() or f"sequence {len(found) + 1}", "aa": ""})
            elif line:
                if not found:
                    raise Refused("the FASTA file starts without a '>' line")
                found[-1]["aa"] += line
    return found


def foreign(letters):
    """What is wrong with a chain that holds these letters: `holds - and 1, which are no letters of a protein`."""
    *some, last = ("a blank" if letter.isspace() else letter for letter in letters)
    few = f"{', '.join(some)} and {last}, which are no letters" if some else f"{last}, which is no letter"
    return f"holds {few} of a protein"


def chains(asked):
    """The chains that are asked about, (name, place, sequence): a sequence with `/` in it is several, from 1 on."""
    if len(asked) > MOST:
        raise Refused(f"{len(asked)} sequences in one request, and {MOST} can be answered; split them over jobs")
    found, names = [], set()
    for item in asked:
        if item["id"] in names:
            raise Refused(f"two sequences are called {item['id']}; give each a name of its own")
        names.add(item["id"])
        parts = [part.strip().rstrip("*") for part in item["aa"].upper().split("/")]
        parts = [part for part in parts if part]
        if not parts:
            raise Refused(f"{item['id']}: no residue to number")
        for number, part in enumerate(parts, 1):
            strange = sorted(set(part) - LETTERS)
            if strange:
                gaps = "; take the gaps out of an aligned sequence" if "-" in strange or "." in strange else ""
                raise Refused(f"{item['id']} {foreign(strange)}{gaps}")
            if len(part) > LONGEST:
                raise Refused(f"{item['id']}: {len(part)} residues, and {LONGEST} are looked through for a domain")
            found.append((item["id"], number, part))
    return found


def written(number):
    """A residue's number as schemes write it: 52, 52A."""
    return f"{number[0]}{number[1].strip()}"


def row(sequence, answer, scheme):
    """What the reply says of one domain, and its numbering. Begin and end are 1-based and inclusive.

    Positions without a residue are left out.
    """
    about = {"chain_type": None, "score": round(answer["score"], 2), "length": len(sequence)}
    if not answer["numbering"]:
        return {**about, "error": answer["error"]}, []
    loops = {
        loop: "".join(
            letter for (number, _), letter in answer["numbering"] if first <= number <= last and letter != "-"
        )
        for loop, (first, last) in CDRS.items()
    }
    if answer["chain_type"] not in ANTIBODY:
        scheme = "imgt"
    if scheme != "imgt":
        numbering = convert_number_scheme({"it": answer}, scheme)["it"]["numbering"]
    else:
        numbering = answer["numbering"]
    numbering = [(number, letter) for number, letter in numbering if letter != "-"]
    domain = sequence[answer["query_start"] : answer["query_end"] + 1]
    numbers = {written(number): letter for number, letter in numbering}
    if "".join(numbers.values()) != domain:
        sizes = ", ".join(f"a {loop.upper()} of {len(loops[loop])}" for loop in loops)
        why = f"{scheme} has no numbers for a domain with {sizes} residues"
        return {**about, "chain_type": answer["chain_type"], "scheme": scheme, **loops, "error": why}, []
    return {
        **about,
        "chain_type": answer["chain_type"],
        "begin": answer["query_start"] + 1,
        "end": answer["query_end"] + 1,
        "scheme": scheme,
        **loops,
        "numbering": numbers,
    }, numbering


def table(path, rows):
    """A CSV file with a column for each position that any of the domains has."""
    positions = {number for _, numbering in rows for number, _ in numbering}
    imgt = all(found.get("scheme", "imgt") == "imgt" for found, _ in rows)
    columns = [written(number) for number in (imgt_order(positions) if imgt else sorted(positions))]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*ABOUT, *columns])
        for found, _ in rows:
            numbers = found.get("numbering", {})
            writer.writerow([*map(found.get, ABOUT), *(numbers.get(column, "-") for column in columns)])


def predict(suite, request, job):
    kind, mode = request.get("seq_type", "antibody"), request.get("mode", "accuracy")
    scheme, scfv = request.get("scheme", "imgt"), request.get("scfv", False)
    if kind == "tcr" and scheme != "imgt":
        raise Refused(f"{scheme} is a scheme of antibodies; T-cell receptors are numbered by imgt")
    asked = chains(request["sequences"] if "sequences" in request else records(job.input_path))
    rows = []
    for begin in range(0, len(asked), CHUNK):
        job.progress(begin, len(asked), f"{begin} of {len(asked)} chains")
        chunk = {str(begin + index): each[2] for index, each in enumerate(asked[begin : begin + CHUNK])}
        for key, answer in suite.number(chunk, kind, mode, scfv).items():
            place, _, domain = key.partition("-")
            name, chain, sequence = asked[int(place)]
            found, numbering = row(sequence, answer, scheme)
            rows.append(({"id": name, "chain": chain, "domain": int(domain or 1), **found}, numbering))
    stem = (job.name or "numbering").replace("/", "_").lstrip(".")[:100] or "numbering"
    table(job.out_dir / f"{stem}.csv", rows)
    return {"results": [found for found, _ in rows]}


serve(load=load, predict=predict)
