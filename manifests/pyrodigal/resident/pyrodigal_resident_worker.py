"""Holds Prodigal's 50 trained genome profiles and answers where the genes of a prokaryotic sequence are."""

import time

import pyrodigal
from schedq_worker import Refused, serve

LETTERS = frozenset("ACGTNRYSWKMBDHV")


def load():
    pyrodigal.GeneFinder(meta=True).find_genes(b"ATG" * 100)
    return pyrodigal


def contigs(path):
    """The records of a FASTA file: (id, sequence)."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if line.startswith(">"):
                found.append(((line[1:].split() or [f"contig {len(found) + 1}"])[0], []))
            elif line:
                if not found:
                    raise Refused("the FASTA file starts without a '>' line")
                found[-1][1].append(line)
    return [(name, "".join(lines)) for name, lines in found]


def row(contig, gene):
    """One gene of the reply: 1-based, inclusive, on the forward strand's coordinates, begin < end."""
    return {
        "contig": contig,
        "begin": gene.begin,
        "end": gene.end,
        "strand": gene.strand,
        "partial": f"{gene.partial_begin:d}{gene.partial_end:d}",
        "start": gene.start_type,
        "rbs": gene.rbs_motif,
        "table": gene.translation_table,
        "score": gene.score,
        "protein": gene.translate(include_stop=False),
    }


def predict(model, request, job):
    finder = model.GeneFinder(
        meta=True,
        closed=request.get("closed", False),
        mask=request.get("mask", False),
        min_gene=request.get("min_gene", 90),
        min_edge_gene=min(60, request.get("min_gene", 90)),
        max_overlap=min(60, request.get("min_gene", 90)),
    )
    asked = [(request.get("id", "sequence"), request["dna"])] if "dna" in request else contigs(job.input_path)
    for name, dna in asked:
        strange = sorted(set(dna.upper()) - LETTERS)
        if strange:
            raise Refused(f"{name}: {''.join(strange)} are no letters of DNA (IUPAC: {''.join(sorted(LETTERS))})")
    genes, said_s = [], time.monotonic()
    for done, (name, dna) in enumerate(asked):
        genes += [row(name, gene) for gene in finder.find_genes(dna.upper().encode())]
        if time.monotonic() - said_s > 1.0:
            said_s = time.monotonic()
            job.progress(done + 1, len(asked), f"{len(genes)} genes in {done + 1} of {len(asked)} contigs")
    return {"genes": genes}


serve(load=load, predict=predict)
