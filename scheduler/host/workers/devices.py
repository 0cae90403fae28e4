"""Which devices a worker sees: what is set in its environment, and whether what it says agrees.

By uuid, never by number: numbers change with the order in which a library counts and with every card that is added.
Libraries of one vendor do not read the other's variables, so that a worker sees the devices that it was given and of
every other vendor none.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.model.machine import Pool

CUDA, ROCR, HIP = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
NO_DEVICE = "-1"
"""Hides every device. The empty string does so in the drivers, but programs take it for a variable that is not set
(CTranslate2 issue 1693, flux-core issue 3154); an index that no device has is understood by all."""

HIDDEN = {CUDA: NO_DEVICE, ROCR: NO_DEVICE, HIP: NO_DEVICE}


def visible(pools: Sequence[Pool]) -> dict[str, str]:
    """The variables that show a worker these pools' devices and no other; all are hidden where there are none.

    An integrated device that has no name (its driver says none, or the operator's word is all there is) is the first.
    """
    if not pools:
        return dict(HIDDEN)
    named = ",".join(pool.seen_as or "0" for pool in pools)
    if (
        pools[0].vendor == "AMD"
    ):  # HIP counts anew among what ROCR lets through, and reads CUDA's variable without its own
        return {**HIDDEN, ROCR: named, HIP: ",".join(str(n) for n in range(len(pools)))}
    return {**HIDDEN, CUDA: named}


def contradiction(pools: Sequence[Pool], said: str) -> str:
    """Why what a worker says of its devices is not what it was given; "" if it agrees, or cannot tell.

    `said` are the devices' names, comma-separated, as `visible` gives them or the framework does.
    """
    given = [pool.seen_as for pool in pools if pool.seen_as]
    seen = [name for name in said.split(",") if name]
    if not seen or len(given) != len(pools):
        return ""
    if sorted(map(_plain, seen)) == sorted(map(_plain, given)):
        return ""
    was = " and ".join(given) if given else "no device"
    return (
        f"it was given {was} and sees {' and '.join(seen)}: something that it runs sets {CUDA} or {ROCR} anew; "
        "take that out, its device is chosen by the scheduler"
    )


def _plain(name: str) -> str:
    return name.strip().lower().removeprefix("gpu-")
