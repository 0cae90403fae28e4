"""The line of `status` on the disk: there where it matters, with figures and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.cli import diskline
from scheduler.clock import seconds, stamp

NOW = 1_790_000_000.0


def lines(free_gib: float, reserve_gib: float = 5.0, monkeypatch: Any = None, **taken_gib: float) -> str:
    usage = {"at": stamp(NOW - 240), "bytes": {kind: int(gib * (1 << 30)) for kind, gib in taken_gib.items()}}
    disk = {"free_gib": free_gib, "reserve_gib": reserve_gib, "of": "the state folder", "usage": usage}
    monkeypatch.setattr(diskline, "_free_gib", lambda _home: free_gib)
    return " ".join(" ".join(diskline.lines({"home": "/q", "disk": disk}, NOW)).split())


def test_a_small_queue_on_a_roomy_disk_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(400.0, outputs=0.2, monkeypatch=monkeypatch) == ""
    assert diskline.lines({"home": "/nowhere"}, NOW) == []


def test_a_large_queue_is_told_by_kind_the_largest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(400.0, attempts=3.0, outputs=20.5, database=0.5, logs=0.001, monkeypatch=monkeypatch)
    assert told == (
        "disk: 400.00 GiB free; the queue takes 24.00 GiB (outputs 20.50, attempts 3.00, database 0.50), 4m 00s ago"
    )


def test_a_disk_near_its_reserve_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lines(9.0, outputs=0.1, monkeypatch=monkeypatch)
    assert told.endswith("below 5.00 nothing starts any more: schedq prune --older-than 30d --dry-run")
    assert "below 5.00 nothing starts: schedq prune" in lines(3.0, monkeypatch=monkeypatch)


def test_before_anything_was_measured_a_short_disk_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diskline, "_free_gib", lambda _home: 1.0)
    disk = {"free_gib": None, "reserve_gib": 5.0, "of": None, "usage": None}
    assert "disk: 1.00 GiB free; below 5.00" in " ".join(diskline.lines({"home": "/q", "disk": disk}, NOW))
    assert seconds(stamp(NOW)) == NOW
