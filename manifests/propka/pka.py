"""Run PROPKA 3 on one PDB file: its own report (`*.pka`) and `result.json` with the figures, in the output folder.

    python pka.py INPUT.pdb OUTPUT_FOLDER PARAMETERS.json

Exit 3: the file holds nothing to titrate, or is no PDB file; the last line says which.
"""

import json
import logging
import os
import sys

from propka.run import single


def refuse(text):
    print(text, file=sys.stderr)
    sys.exit(3)


def main(source, out, params):
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    with open(params, encoding="utf-8") as file:
        chains = json.load(file).get("chains", "")
    source = os.path.abspath(source)
    with open(source, encoding="utf-8", errors="replace") as file:
        present = {line[21] for line in file if line.startswith(("ATOM", "HETATM")) and len(line) > 54}
    if not present:
        refuse(f"{os.path.basename(source)} has no ATOM record; PROPKA reads PDB files with coordinates")
    absent = [chain for chain in chains if chain not in present]
    if absent:
        have = ", ".join(sorted(present))
        refuse(f"there is no chain {', '.join(absent)} in {os.path.basename(source)}; it has {have}")
    os.chdir(out)
    molecule = single(source, optargs=[f"--chain={chain}" for chain in chains])
    average = molecule.conformations["AVR"]
    sites = {}
    for group in average.get_groups_for_calculations():
        atom = group.atom
        name = group.residue_type if group.residue_type in ("N+", "C-") else atom.res_name
        site = f"{atom.chain_id.strip()}:{name}{atom.res_num}{(atom.icode or '').strip()}"
        sites[site] = {
            "pka": round(group.pka_value, 2),
            "model_pka": round(group.model_pka, 2),
            "buried": round(group.buried, 3),
        }
    if not sites:
        refuse(f"{os.path.basename(source)} has no group that titrates")
    folded, unfolded = molecule.get_pi()
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump({"sites": sites, "pi_folded": round(folded, 2), "pi_unfolded": round(unfolded, 2)}, file, indent=1)
        file.write("\n")


main(*sys.argv[1:])
