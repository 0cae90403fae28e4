"""What was measured, beside what is declared; and many times as their median and the longest."""

from __future__ import annotations

from typing import Any

from scheduler import catalog
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.night.report import Memory, Times
from scheduler.rules.peaks import budget_gib, judged


def times(found: list[float]) -> Times:
    """The median and the longest. Of an even number the median is the mean of the two in the middle."""
    if not found:
        return Times()
    ordered = sorted(found)
    middle = len(ordered) // 2
    median_s = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0
    return Times(len(ordered), median_s, ordered[-1])


class Declared:
    """What the providers declare on this machine. Manifests that cannot be read declare nothing."""

    def __init__(self, paths: Paths) -> None:
        self._catalog: catalog.Catalog | None = None
        try:
            self._catalog = catalog.load(paths)
        except (SchedqError, OSError):
            pass

    def beside(self, name: str, used: tuple[float | None, float | None, bool]) -> tuple[Memory, ...]:
        """Each part of a provider's memory that is declared or was measured: (device GiB, host GiB, tonight)."""
        spec = self._spec(name)
        found = []
        for part, used_gib in (("device", used[0]), ("host", used[1])):
            declared_gib = None if spec is None else _declared(spec, part)
            if part == "device" and (spec is None or spec["policy"] != "required"):
                continue
            if declared_gib is None and used_gib is None:
                continue
            word = judged(declared_gib, used_gib) if used_gib is not None and spec is not None else ""
            wanted = budget_gib(used_gib, part) if used_gib is not None else None
            found.append(Memory(part, declared_gib, used_gib, word, used[2], wanted))
        return tuple(found)

    def _spec(self, name: str) -> dict[str, Any] | None:
        if self._catalog is None:
            return None
        try:
            return self._catalog.spec(name)
        except SchedqError:
            return None


def _declared(spec: dict[str, Any], part: str) -> float | None:
    if part == "host":
        return None if spec["ram_gib"] is None else float(spec["ram_gib"])
    return spec["vram_gib"] if spec["policy"] == "required" else 0.0
