"""What a worker tells of its own budget: by its argv, by the environment that it was started with. GiB.

The amount that it was started with binds more than the one that a manifest says today. A word that is no amount tells
nothing but that it is wrong: such a holder is an unknown one (P4), and its name says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler.host.machine.asked import CHARGED
from scheduler.host.machine.holders import Holder
from scheduler.host.workers.devices import CUDA, NO_DEVICE, ROCR
from scheduler.model.machine import is_amount

Budget = tuple[float, float]
BudgetOf = Callable[[str], Budget | None]
"""What is declared for a slug: (device GiB, host GiB); None = nobody declared it."""

DeclaredOf = Callable[[str, int, float], Budget | None]
"""What an operator declared of one holder: its slug, its pid, its start in clock ticks since boot."""

TOLD = (("--vram-budget-gb", "VRAM_BUDGET_GB"), ("--ram-budget-gb", "RAM_BUDGET_GB"))
"""The option and the variable that tell a budget, the device's and the host's."""


@dataclass(frozen=True)
class Told:
    """What is known of a holder's budget. None = unknown. `wrong` quotes a word that was to say it and is no amount."""

    device_gib: float | None = None
    host_gib: float | None = None
    wrong: str = ""


def budget(holder: Holder, budget_of: BudgetOf, declared_of: DeclaredOf) -> Told:
    """A holder's budget: as it tells itself, else as its manifest says, else as an operator declared it.

    A worker of this project says in its environment what its devices are charged, and that it has none. A legacy
    worker of which only the device's share is told is charged for what it is seen to use of host memory.
    """
    environment = holder.environment or {}
    said = told(holder.process.argv, environment)
    if holder.mark is not None and not said.wrong:
        said = _charged(said, environment)
    slug, started = holder.slug or holder.name, holder.process.started
    if said.wrong:
        found = declared_of(slug, holder.process.pid, started)
        return Told(*found) if found is not None else said
    device_gib, host_gib = said.device_gib, said.host_gib
    if device_gib is None or host_gib is None:
        found = budget_of(holder.slug) if holder.slug else None
        if found is None:
            found = declared_of(slug, holder.process.pid, started)
        if found is not None:
            device_gib = found[0] if device_gib is None else device_gib
            host_gib = found[1] if host_gib is None else host_gib
        elif holder.mark is None and device_gib is not None:
            host_gib = 0.0
    return Told(device_gib, host_gib)


def told(argv: Sequence[str], environment: Mapping[str, str]) -> Told:
    """What argv says, else what the environment says; the last of several words counts, as option parsers have it."""
    amounts: list[float | None] = []
    for option, variable in TOLD:
        word, quoted = _option(argv, option), option
        if word is None:
            word, quoted = environment.get(variable) or None, variable
        amounts.append(None if word is None else amount(word))
        if word is not None and amounts[-1] is None:
            return Told(wrong=f"{quoted} {word}".strip())
    return Told(amounts[0], amounts[1])


def amount(text: str) -> float | None:
    """The GiB that a text says; None if it is no amount of memory."""
    try:
        gib = float(text)
    except ValueError:
        return None
    return gib if is_amount(gib) else None


def _charged(said: Told, environment: Mapping[str, str]) -> Told:
    """What a worker of this project tells: its environment names the charge on a device, and that it has none."""
    has_none = environment.get(CUDA) == environment.get(ROCR) == NO_DEVICE
    word = environment.get(CHARGED, "0" if has_none else "")
    if not word:
        return said
    gib = amount(word)
    return Told(wrong=f"{CHARGED} {word}") if gib is None else replace(said, device_gib=gib)


def _option(argv: Sequence[str], option: str) -> str | None:
    """The word of an option in argv; empty if it is the last one and has none, None if it is not there."""
    found = None
    for at, word in enumerate(argv):
        if word == option:
            found = argv[at + 1] if at + 1 < len(argv) else ""
        elif word.startswith(f"{option}="):
            found = word.partition("=")[2]
    return found
