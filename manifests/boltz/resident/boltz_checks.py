"""What Boltz would take for something else without a word: refused before its parser sees it, with the place."""

import string
from pathlib import Path

import pandas
from schedq_worker import Refused

POLYMERS = ("protein", "dna", "rna")
MAKES = ("sequence", "smiles", "ccd")
LONGEST_NAME = 5
"""Characters of a chain's name that Boltz's tables hold."""

INSERTED = str.maketrans("", "", string.ascii_lowercase)


def refuse_options(data, options):
    """Refuse an input that holds options: with use_msa_server in a file its sequences would leave unasked."""
    own = [name for name in options if name in data]
    if own:
        raise Refused(
            f"{own[0]} stands in the input, and it counts only as --param {own[0]}=VALUE; take it out of the input"
        )


def refuse_misread(data, output_format):
    """Refuse chains, residues and templates that Boltz would drop, cut short, or take one for another."""
    chains = list(_chains(data))
    _refuse_names(chains, output_format)
    _refuse_alike(chains)
    _refuse_outside(data, chains)
    _refuse_stems(data)


def refuse_msas(data):
    """Refuse MSA files whose rows are not aligned to their first: Boltz reads them one after another, uncounted."""
    seen = set()
    for where, kind, body in _chains(data):
        path = body.get("msa")
        if kind == "protein" and path not in (None, "", "empty", *seen) and Path(path).is_file():
            seen.add(path)
            _refuse_rows(f"{where}: the MSA {Path(path).name}", _rows(Path(path)))


def _refuse_rows(what, rows):
    columns = None
    for place, row in rows:
        has = len(row.translate(INSERTED))
        if columns is None:
            columns = has
        if has != columns:
            raise Refused(
                f"{what}: {place} has {has} columns, and the first sequence {columns}; give an aligned MSA, each "
                "sequence on one line, gaps as -, insertions in lower case"
            )
    if not columns:
        raise Refused(f"{what} has no sequence; give one that begins with the chain's own, or write `msa: empty`")


def _rows(path):
    """The rows of an MSA as Boltz reads them, each with its place in the file."""
    if path.suffix == ".csv":
        try:
            table = pandas.read_csv(path)
        except pandas.errors.EmptyDataError:
            return
        for number, row in enumerate(table.get("sequence", ()), 1):
            if not isinstance(row, str):
                raise Refused(f"the MSA {path.name}: row {number} has no sequence; take it out")
            if row.strip():
                yield f"row {number}", row.strip()
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and line.strip()[0] not in "#>":
                yield f"line {number}", line.strip()


def _chains(data):
    """Each entry of the input: its place, its kind, what it says."""
    for number, item in enumerate(data["sequences"]):
        if isinstance(item, dict) and item:
            kind, body = next(iter(item.items()))
            if isinstance(body, dict):
                yield f"/sequences/{number}/{kind}", kind, body


def _names(body, key="id"):
    named = body.get(key)
    return [named] if isinstance(named, str) else named or []


def _refuse_names(chains, output_format):
    seen = {}
    for where, _, body in chains:
        for name in _names(body):
            if name in seen:
                raise Refused(
                    f"{where}: the chain {name} is there already, at {seen[name]}, and Boltz would leave one of them "
                    "out; give each chain an id of its own"
                )
            seen[name] = where
            if len(name) > LONGEST_NAME:
                raise Refused(
                    f"{where}: the id {name} has {len(name)} characters, and Boltz keeps {LONGEST_NAME}; shorten it"
                )
            if output_format == "pdb" and len(name) > 1:
                raise Refused(
                    f"{where}: the id {name} has {len(name)} characters, and a PDB file has one column for it; give "
                    "the chain one letter, or leave output_format at mmcif"
                )


def _refuse_alike(chains):
    """Boltz makes one entity of entries of one kind and text, and gives all of them what stands at the first."""
    first = {}
    for where, kind, body in chains:
        make = next((key for key in MAKES if key in body), None)
        other, says = first.setdefault((kind, str(body.get(make))), (where, _modified(body, make)))
        if says != _modified(body, make):
            raise Refused(
                f"{where} has the text of {other}, with other modifications, another `cyclic`, or as another kind of "
                f"ligand: Boltz would take both for {other}, and cannot have both in one input; ask for them apart, "
                "or write both ligands as smiles"
            )


def _modified(body, make):
    at = {each.get("position"): each.get("ccd") for each in body.get("modifications") or ()}
    return make, at, bool(body.get("cyclic"))


def _refuse_outside(data, chains):
    """Boltz passes over a constraint on a residue that is not there, and counts position 0 from the end."""
    lengths = {}
    for where, kind, body in chains:
        if kind in POLYMERS:
            lengths.update(dict.fromkeys(_names(body), len(body.get("sequence", ""))))
            for each in body.get("modifications") or ():
                _refuse_residue(f"{where}/modifications", (_names(body) or [""])[0], each.get("position"), lengths)
    for number, item in enumerate(data.get("constraints") or ()):
        for kind, rule in item.items() if isinstance(item, dict) else ():
            for token in _tokens(rule) if isinstance(rule, dict) else ():
                _refuse_residue(f"/constraints/{number}/{kind}", *token[:2], lengths)


def _tokens(rule):
    found = [*(rule.get("contacts") or ()), *(rule.get(key) for key in ("token1", "token2", "atom1", "atom2"))]
    return [token for token in found if isinstance(token, list) and len(token) > 1]


def _refuse_residue(where, chain, residue, lengths):
    if chain in lengths and not (type(residue) is int and 1 <= residue <= lengths[chain]):
        raise Refused(
            f"{where}: there is no residue {residue} in chain {chain}, which has 1 to {lengths[chain]}; residues are "
            "counted from 1 in the sequence that is given"
        )


def _refuse_stems(data):
    """Boltz keeps templates by the name of their file without its ending, the later over the earlier."""
    seen = {}
    for item in data.get("templates") or ():
        for key in ("cif", "pdb"):
            path = item.get(key) if isinstance(item, dict) else None
            if isinstance(path, str) and seen.setdefault(Path(path).stem, path) != path:
                raise Refused(
                    f"two templates are called {Path(path).stem}, and Boltz would take the second for both; give each "
                    "file a name of its own"
                )


def notes_of_templates(data, record):
    """A line for each template that leaves a chain without it: Boltz gives each chain of a template away once."""
    proteins = [name for _, kind, body in _chains(data) if kind == "protein" for name in _names(body)]
    for item in data.get("templates") or ():
        stem = Path(item.get("cif") or item.get("pdb")).stem
        given = {each.query_chain for each in record.templates if each.name == stem}
        without = [name for name in _names(item, "chain_id") or proteins if name not in given]
        if without:
            yield (
                f"the template {stem} is used for {', '.join(sorted(given)) or 'no chain'} and not for "
                f"{', '.join(without)}: Boltz gives each of its chains to one chain; chain_id and template_id, lists "
                "of one length, say which goes to which"
            )
