"""What guard and reclaim look like to people."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.cli import motion
from scheduler.clock import stamp
from scheduler.config import Settings
from scheduler.settable import DEFAULTS

NOW = 1_800_000_000.0


def page(**whole: Any) -> str:
    return " ".join(" ".join(motion.acting(whole, NOW)).split())


def test_nothing_is_said_while_nothing_happens() -> None:
    assert page() == "" and page(guard={"on": True, "closed": [], "acted": []}, reclaim={"running": ""}) == ""


def test_what_the_guard_keeps_closed_did_last_and_cannot_see_is_said() -> None:
    acted = [{"at": stamp(NOW - 900), "text": "long ago"}, {"at": stamp(NOW - 60), "text": "stopped busy worker 3"}]
    told = page(guard={"closed": [{"pool": "host", "text": "bob holds it"}], "acted": acted, "blind": "no meminfo"})
    assert told == "guard: bob holds it guard: no meminfo guard, 1m 00s ago: stopped busy worker 3"
    assert page(guard={"acted": acted[:1]}) == ""


def test_what_is_being_reclaimed_or_was_is_said() -> None:
    last = {"last": "the cache gave 2 of 3 GiB", "last_at": stamp(NOW - 60)}
    assert page(reclaim={"running": "3 GiB are being freed", **last}) == "reclaim: 3 GiB are being freed"
    assert page(reclaim=last) == "reclaim, 1m 00s ago: the cache gave 2 of 3 GiB"
    assert page(reclaim={"tending": "files are dropped"}) == "reclaim: files are dropped"
    assert page(reclaim={**last, "last_at": stamp(NOW - 900)}) == ""


def settings(guard: dict[str, Any], *, on: bool = True, reclaim: str = "auto") -> str:
    return "\n".join(motion.settings({"guard": guard}, {"host": 2.0}, guard_on=on, reclaim=reclaim))


def test_a_reserve_is_compared_with_rate_times_period_and_exit() -> None:
    found = {"fastest_gib_s": {"host": 4.0, "device:gone": 9.0}, "exit_s": 0.2, "needs_gib": {"host": 1.2}}
    told = settings(found)
    assert "it must exceed rate x (period + exit)" in told and "gone" not in told
    assert "the fastest growth seen is 4.00 GiB/s, the longest exit 0.20 s: 1.20 GiB of 2.00 reserved" in told
    assert "its reserve exceeds that" in told
    less = settings({**found, "needs_gib": {"host": 2.5}})
    assert "its reserve is less: raise it to that (reserves = { host = 2.50 })" in less
    assert "none was stopped yet, one period is assumed" in settings({**found, "exit_s": None})


def test_what_is_not_known_yet_and_what_is_off_is_said() -> None:
    assert "its rate is not known yet" in settings({})
    assert settings({}, on=False).startswith("guard: off; nobody is stopped while memory runs out")
    assert settings({}, reclaim="off").endswith("reclaim: off")
    assert "of files that manifests name and workers read, alone" in settings({}, reclaim="files")


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("guard", "off", ""),
        ("guard", "maybe", "must be on or off"),
        ("reclaim", "files", ""),
        ("reclaim", True, "must be auto or files or off"),
        ("reclaim_command", "sudo -n /usr/local/bin/drop-caches", ""),
        ("reclaim_command", "", ""),
        ("reclaim_command", "echo 'x", "must be a command as one text, quotes closed"),
        ("reclaim_command", 3, "must be a command as one text, quotes closed"),
    ],
)
def test_the_settings_are_checked(key: str, value: object, fault: str) -> None:
    found = Settings({**DEFAULTS, key: value}, {**dict.fromkeys(DEFAULTS, "default"), key: "c.toml"}, {}).fault(key)
    assert (fault in found) if fault else (found == "")
