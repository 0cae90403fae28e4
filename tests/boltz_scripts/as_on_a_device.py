"""Boltz's diffusion on a CPU as on a device: in full precision.

Boltz ends half precision there by `torch.autocast("cuda", enabled=False)`, which says nothing to a CPU: its potentials
then fail there, in its own command too.
"""

import torch
from boltz.model.modules.diffusionv2 import AtomDiffusion

half = AtomDiffusion.sample


def whole(self, *how, **given):
    with torch.autocast("cpu", enabled=False):
        return half(self, *how, **given)


AtomDiffusion.sample = whole
