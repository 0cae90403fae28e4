"""Every fact that is cited stands in EVIDENCE.md, with its limit."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CITED = re.compile(r"\bE(\d{1,2})\b")


def entries() -> dict[str, list[str]]:
    lines = (ROOT / "scheduler" / "EVIDENCE.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| E")]
    return {row[0]: row for row in rows}


def test_what_the_code_cites_is_told_there() -> None:
    cited = {
        f"E{number}": path.relative_to(ROOT)
        for folder in ("scheduler", "migrations", "manifests")
        for path in (ROOT / folder).rglob("*.py")
        for number in CITED.findall(path.read_text())
    }
    missing = {fact: str(where) for fact, where in cited.items() if fact not in entries()}
    assert not missing


def test_every_entry_says_what_kind_of_fact_it_is_and_where_it_ends() -> None:
    for fact, row in entries().items():
        assert len(row) == 4 and row[1] and row[3], fact
        assert row[2] in ("measured", "reference", "report"), fact
