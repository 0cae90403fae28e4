"""Reasons that read alike but for numbers and names, told once, whichever provider they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scheduler.night.report import ProviderNight, Why
from scheduler.night.words import alike, same_reason


def causes(providers: Sequence[ProviderNight]) -> list[tuple[tuple[str, ...], Why]]:
    """(providers, the reason with the sum of their jobs) of whatever ended badly, the most frequent first.

    What was cancelled comes last; the first job is that with the smallest id, and its provider stands first.
    """
    found: dict[tuple[str, str, str], list[tuple[str, Why]]] = {}
    for provider in providers:
        for why in provider.whys:
            read = alike(why.text) if why.kind == "check" else same_reason(why.text, why.first_name)
            found.setdefault((why.became, why.kind, read), []).append((provider.name, why))
    summed = []
    for those in found.values():
        ordered = sorted(those, key=lambda each: each[1].first_id)
        whole = replace(ordered[0][1], count=sum(why.count for _, why in those))
        summed.append((tuple(dict.fromkeys(name for name, _ in ordered)), whole))
    return sorted(summed, key=lambda each: (each[1].became == "cancelled", -each[1].count, each[1].first_id))
