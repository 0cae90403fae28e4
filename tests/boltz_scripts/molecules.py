"""Boltz's folder `mols`, for some components of the PDB: `python molecules.py FOLDER CODE ...`, where biotite is.

As Boltz has them: pickled molecules of RDKit with the atoms' names, which of them leave in a chain, ideal coordinates.
"""

import pickle
import sys
from pathlib import Path

from biotite.interface import rdkit as bridge
from biotite.structure import info
from biotite.structure.info.ccd import get_from_ccd
from rdkit import Chem


def molecule(code):
    atoms = info.residue(code)
    made = bridge.to_mol(atoms)
    table = get_from_ccd("chem_comp_atom", code)
    leaves = dict(zip(table["atom_id"].as_array(), table["pdbx_leaving_atom_flag"].as_array(), strict=True))
    for atom, name in zip(made.GetAtoms(), atoms.atom_name, strict=True):
        atom.SetProp("name", str(name))
        atom.SetProp("leaving_atom", "1" if leaves[name] == "Y" else "0")
    made.GetConformer().SetProp("name", "Ideal")
    Chem.SanitizeMol(made)
    Chem.AssignStereochemistryFrom3D(made)
    return made


Chem.SetDefaultPickleProperties(Chem.PropertyPickleOptions.AllProps)
folder = Path(sys.argv[1])
folder.mkdir()
for each in sys.argv[2:]:
    (folder / f"{each}.pkl").write_bytes(pickle.dumps(molecule(each)))
