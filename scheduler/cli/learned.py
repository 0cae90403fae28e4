"""What jobs were seen to use, beside what their provider declares: for `providers list`, `show`, `check` and `measure`.

Standard library only until something was learned.
"""

from __future__ import annotations

from scheduler.cli import say, stamps
from scheduler.config import Paths
from scheduler.errors import SchedqError
from scheduler.store.learned import learned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Buckets = dict[tuple[str, str], list[dict[str, Any]]]

PARTS = ("device", "host")


def buckets(paths: Paths) -> Buckets:
    """What was learned on this machine, by (slug, variant), smallest size first; nothing where no queue can be read."""
    try:
        return learned(paths)
    except SchedqError:
        return {}


def declared_of(spec: dict[str, Any], part: str) -> float | None:
    """What a provider declares of a part; None = it does not say. A provider without device has none of it."""
    if part == "host":
        return None if spec["ram_gib"] is None else float(spec["ram_gib"])
    return spec["vram_gib"] if spec["policy"] == "required" else 0.0


def most(those: list[dict[str, Any]], part: str) -> float | None:
    """The largest learned peak of a part; None = that part was not seen."""
    return max((each[f"{part}_gib"] for each in those if each[f"{part}_gib"] is not None), default=None)


def judgements(spec: dict[str, Any], those: list[dict[str, Any]]) -> dict[str, str]:
    """Where what is declared is not what is used: by part the sentence that says so."""
    from scheduler.rules.peaks import budget_gib, judged

    found = {}
    for part in PARTS:
        used, declared = most(those, part), declared_of(spec, part)
        if used is None or (part == "device" and spec["policy"] != "required"):
            continue
        word = judged(declared, used)
        if word != "fits":
            found[part] = words(part, word, used, declared, budget_gib(used, part))
    return found


def words(part: str, word: str, used_gib: float, declared_gib: float | None, budget_gib: float) -> str:
    """What a declared budget is beside what was measured, and what to do."""
    key = "vram_budget_gb" if part == "device" else "ram_budget_gb"
    used, budget = f"{say.gib(used_gib)} GiB of {part} memory were used at most", f"{key} = {budget_gib:g}"
    if declared_gib is None:
        return f"{used}, and no {key} is declared; {budget} would do (schedq measure --write)"
    declared = f"{say.gib(declared_gib)} GiB are declared"
    if word == "under":
        return f"{used} and {declared}: too little; {budget} would do (schedq measure --write)"
    if word == "over":
        return f"{used} and {declared}: that keeps room from others; {budget} would do (schedq measure --write)"
    return f"{used} and {declared}"


def row(spec: dict[str, Any], those: list[dict[str, Any]]) -> dict[str, Any]:
    """What was learned of one provider, as JSON has it."""
    return {"learned": those, "misdeclared": judgements(spec, those)}


def lines(those: list[dict[str, Any]]) -> list[str]:
    """A line a size: what was used at most, in how many runs, and when last."""
    from scheduler.rules.peaks import bucket_words

    found = []
    for each in those:
        parts = [f"{part} {say.gib(each[f'{part}_gib'])} GiB" for part in PARTS if each[f"{part}_gib"]]
        where = f" on {each['device']}" if each["device"] else ""
        found.append(
            f"size {bucket_words(each['bucket'])}: {', '.join(parts) or 'nothing seen'} at most in the last "
            f"{each['runs']} runs{where}, the newest {stamps.local(each['at'])}"
        )
    return found
