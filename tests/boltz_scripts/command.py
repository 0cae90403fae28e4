"""`boltz predict` itself on a CPU, for the weights of weights.py: `python command.py SEED predict INPUT OPTIONS`.

Some things are set that a device needs not: the sizes, which Boltz's command overrides with those of its own weights;
the CPU's random numbers, of which reading weights takes some and which a device's own generator does not see; and the
seed of RDKit's conformers, which the worker sets, since its process is not fresh for each input.
"""

import sys

import as_on_a_device  # noqa: F401
import boltz.main
import torch
from boltz.data.module.inferencev2 import PredictionDataset
from boltz.model.models.boltz2 import Boltz2
from pytorch_lightning import seed_everything
from rdkit.Chem import AllChem

SEED, CONFORMER = int(sys.argv[1]), 42


def sized(kind, **sizes):
    return lambda **given: kind(**sizes, **given)


def seeded():
    options = etkdg()
    options.randomSeed = CONFORMER
    return options


def item(self, index):
    if states:
        torch.set_rng_state(states[-1])
    else:
        seed_everything(SEED)
    return get(self, index)


def step(self, *how):
    if not states:
        seed_everything(SEED)
    found = predict(self, *how)
    states.append(torch.get_rng_state())
    return found


states = []
heads = {"pairwise_head_width": 8, "pairwise_num_heads": 2}
boltz.main.PairformerArgsV2 = sized(boltz.main.PairformerArgsV2, num_blocks=1, num_heads=2)
boltz.main.MSAModuleArgs = sized(boltz.main.MSAModuleArgs, msa_s=16, msa_blocks=1, **heads)
get, PredictionDataset.__getitem__ = PredictionDataset.__getitem__, item
predict, Boltz2.predict_step = Boltz2.predict_step, step
etkdg, AllChem.ETKDGv3 = AllChem.ETKDGv3, seeded
boltz.main.cli(sys.argv[2:])
