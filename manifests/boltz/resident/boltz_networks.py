"""Boltz-2's two networks, read once and asked many times: what `boltz predict` sets at its start is set per request."""

import importlib.util
import time
from dataclasses import asdict

import torch
from boltz.data.module.inferencev2 import Boltz2InferenceDataModule
from boltz.main import Boltz2DiffusionParams, BoltzSteeringParams, MSAModuleArgs, PairformerArgsV2
from boltz.model.models.boltz2 import Boltz2
from schedq_worker import Refused

STRUCTURE, AFFINITY = "boltz2_conf.ckpt", "boltz2_aff.ckpt"
SIZES = ("num_blocks", "num_heads", "msa_s", "msa_blocks", "pairwise_head_width", "pairwise_num_heads")
"""Arguments that say how large a network is: a checkpoint's own stand, since no other fits its weights."""

AFFINITY_RECYCLING_STEPS = 5
SAY_S = 1.0
KERNELS_FROM = 8
"""The CUDA compute capability that Boltz asks for before it uses its kernels."""


class Steps:
    """How far a request is: passes through the trunk and steps of the diffusion, said once a second."""

    def __init__(self, job, total):
        self.job, self.total, self.done, self.said_s = job, total, 0, 0.0

    def one(self, text):
        """One more is done."""
        self.done += 1
        if time.monotonic() - self.said_s >= SAY_S:
            self.said_s = time.monotonic()
            self.job.progress(min(self.done, self.total), self.total, text)


class Networks:
    """The network for structures, and from the first request on that asks for it the one for affinity."""

    def __init__(self, cache, device):
        self.cache, self.device, self.steps = cache, device, None
        self.has_kernels = (
            device.type == "cuda"
            and torch.cuda.get_device_capability(device)[0] >= KERNELS_FROM
            and importlib.util.find_spec("cuequivariance_torch") is not None
        )
        self.for_structure = self._read(STRUCTURE, BoltzSteeringParams())
        self.for_affinity = None

    def read_affinity(self):
        """Read the network for affinity, if it was not yet: before a seed is set, since that takes random numbers."""
        if self.for_affinity is None:
            none = BoltzSteeringParams(contact_guidance_update=False)
            self.for_affinity = self._read(AFFINITY, none, affinity_mw_correction=False)

    def _read(self, name, steering, **more):
        path = self.cache / name
        try:
            sizes = torch.load(path, map_location="cpu", mmap=True, weights_only=False)["hyper_parameters"]
        except Exception as error:
            why = " ".join(str(error).split())[:200]
            raise Refused(f"{path} is no checkpoint of Boltz-2, or not whole ({why}); fetch it again") from error
        network = Boltz2.load_from_checkpoint(
            path, strict=True, map_location="cpu", ema=False, predict_args={}, steering_args=asdict(steering),
            diffusion_process_args=asdict(Boltz2DiffusionParams()),
            pairformer_args=_sized(PairformerArgsV2(), sizes["pairformer_args"]),
            msa_args=_sized(MSAModuleArgs(), sizes["msa_args"]), **more,
        )  # fmt: skip
        network.eval().to(self.device)
        network.pairformer_module.register_forward_hook(lambda *_: self._passed("trunk"))
        network.structure_module.score_model.register_forward_hook(lambda *_: self._passed("diffusion"))
        return network

    def _passed(self, where):
        if self.steps is not None:
            self.steps.one(where)

    def structure(self, features, options):
        """Boltz's prediction of the structure, by these options."""
        network, guided = self.for_structure, options["use_potentials"]
        network.use_kernels = self.kernels(options)
        network.steering_args = asdict(BoltzSteeringParams(fk_steering=guided, physical_guidance_update=guided))
        network.predict_args = {
            "recycling_steps": options["recycling_steps"], "sampling_steps": options["sampling_steps"],
            "diffusion_samples": options["diffusion_samples"], "max_parallel_samples": options["max_parallel_samples"],
        }  # fmt: skip
        return self._predicted(network, features, options)

    def affinity(self, features, options):
        """Boltz's prediction of the affinity, by these options."""
        network = self.for_affinity
        network.affinity_mw_correction = options["affinity_mw_correction"]
        network.predict_args = {
            "recycling_steps": AFFINITY_RECYCLING_STEPS, "sampling_steps": options["sampling_steps_affinity"],
            "diffusion_samples": options["diffusion_samples_affinity"], "max_parallel_samples": 1,
        }  # fmt: skip
        return self._predicted(network, features, options)

    def kernels(self, options):
        """Whether the structure is computed with the kernels of cuequivariance."""
        return self.has_kernels and not options["no_kernels"]

    def _predicted(self, network, features, options):
        network.structure_module.step_scale = options["step_scale"]
        network.msa_module.subsample_msa = options["subsample_msa"]
        network.msa_module.num_subsampled_msa = options["num_subsampled_msa"]
        features = Boltz2InferenceDataModule.transfer_batch_to_device(None, features, self.device, 0)
        with torch.inference_mode(), torch.autocast(self.device.type, dtype=torch.bfloat16):
            found = network.predict_step(features, 0)
        if found["exception"]:
            raise MemoryError("out of memory, by Boltz's word")
        if not torch.isfinite(found["coords"]).all():
            raise FloatingPointError("Boltz's coordinates are not all numbers; try another seed")
        return found

    def steps_of(self, job, options, *, affinity):
        """A count of what a request takes, to be shown while it runs."""
        samples = options["diffusion_samples"] * (
            BoltzSteeringParams().num_particles if options["use_potentials"] else 1
        )
        total = 1 + options["recycling_steps"]
        total += options["sampling_steps"] * calls_a_step(samples, options["max_parallel_samples"])
        if affinity:
            calls = calls_a_step(options["diffusion_samples_affinity"], 1)
            total += 1 + AFFINITY_RECYCLING_STEPS + options["sampling_steps_affinity"] * calls
        return Steps(job, total)


def calls_a_step(samples, most):
    """How many calls of the network a step of the diffusion takes: Boltz cuts the samples into s mod m + 1 parts.

    Without a number for the most, they are one part.
    """
    if most is None:
        return 1
    size = -(-samples // (samples % most + 1))
    return -(-samples // size)


def _sized(args, own):
    return {**asdict(args), **{key: own[key] for key in SIZES if key in own}}
