"""Boltz-2's two checkpoints, small and random, one block everywhere: `python weights.py FOLDER`, where boltz is.

Every switch of the real model's that adds a part is on, so that every part is there. No weight is 0: the real model's
start at 0 where a part ends, and a part that does nothing hides its faults.
"""

import sys
from pathlib import Path

import pytorch_lightning
import torch
from boltz.model.models.boltz2 import Boltz2
from omegaconf import OmegaConf

HEADS = {"pairwise_head_width": 8, "pairwise_num_heads": 2}
BLOCK = {"num_blocks": 1, "dropout": 0.0, **HEADS}


def arguments(*, affinity):
    head = {"token_s": 32, "num_blocks": 1, "num_heads": 2, "activation_checkpointing": False}
    head = {"pairformer_args": BLOCK, "transformer_args": head}
    return {
        "atom_s": 16, "atom_z": 8, "token_s": 32, "token_z": 16, "num_bins": 64, "atom_feature_dim": 187,
        "training_args": OmegaConf.create(
            {"max_lr": 0.001, "weight_decay": 0.0, "diffusion_multiplicity": 1, "recycling_steps": 1}
        ),
        "validation_args": {}, "diffusion_loss_args": {}, "diffusion_process_args": {}, "validate_structure": False,
        "embedder_args": {
            "atom_encoder_depth": 1, "atom_encoder_heads": 2, "add_method_conditioning": True,
            "add_modified_flag": True, "add_cyclic_flag": True, "add_mol_type_feat": True,
        },
        "msa_args": {"msa_s": 16, "msa_blocks": 1, "msa_dropout": 0.0, "z_dropout": 0.0, **HEADS},
        "pairformer_args": {"num_blocks": 1, "num_heads": 2, "dropout": 0.0, "v2": True},
        "score_model_args": {
            "sigma_data": 16, "dim_fourier": 16, "conditioning_transition_layers": 1,
            "atom_encoder_depth": 1, "atom_encoder_heads": 2, "atom_decoder_depth": 1, "atom_decoder_heads": 2,
            "token_transformer_depth": 1, "token_transformer_heads": 2,
        },
        "confidence_model_args": {
            "pairformer_args": {**BLOCK, "num_heads": 2},
            "confidence_args": {
                "num_plddt_bins": 50, "num_pde_bins": 64, "num_pae_bins": 64, "use_separate_heads": True,
            },
            "add_s_to_z_prod": True, "add_s_input_to_s": True, "add_z_input_to_z": True,
        },
        "template_args": {"template_dim": 8, "template_blocks": 1, **HEADS},
        "affinity_prediction": affinity, "affinity_ensemble": affinity, "alpha_pae": 1.0,
        "affinity_model_args1": head, "affinity_model_args2": head,
        "fix_sym_check": True, "cyclic_pos_enc": True, "bond_type_feature": True, "use_no_atom_char": True,
        "use_atom_backbone_feat": True, "use_residue_feats_atoms": True, "use_templates": True,
        "use_templates_v2": True,
    }  # fmt: skip


for name, affinity in (("boltz2_conf.ckpt", False), ("boltz2_aff.ckpt", True)):
    torch.manual_seed(7)
    model = Boltz2(**arguments(affinity=affinity))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.1 if weight.dim() > 1 else 0.02))
    held = {
        "state_dict": model.state_dict(), "hyper_parameters": arguments(affinity=affinity),
        "pytorch-lightning_version": pytorch_lightning.__version__,
    }  # fmt: skip
    torch.save(held, Path(sys.argv[1]) / name)
