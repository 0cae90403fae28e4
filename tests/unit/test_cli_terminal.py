"""How calls end and look on what they are printed to: a pipe that nobody reads, no colour, a narrow terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.cli import joblines, jobpages, pages, planning, say
from scheduler.cli.tables import Column, Table

ROOT = Path(__file__).resolve().parents[2]
AT = "2026-11-29T12:00:00.000000Z"
COMMAND = [sys.executable, "-m", "scheduler"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("SCHEDQ_")},
        "HOME": str(tmp_path), "SCHEDQ_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "TERM": "xterm",
    }  # fmt: skip


@pytest.mark.parametrize("line", ["status", "providers list", "--help", "submit --help", "workers --help", "version"])
def test_a_call_whose_reader_has_gone_ends_quietly_and_alike(env: dict[str, str], line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, *line.split()], stdout=writer, stderr=subprocess.PIPE, text=True, env=env, cwd="/")
    os.close(writer)
    assert (done.returncode, done.stderr) == (say.BROKEN_PIPE, "")


@pytest.mark.parametrize("line", ["--help", "submit --help", "queue --help"])
def test_with_no_color_help_on_a_terminal_sends_no_escapes(env: dict[str, str], line: str) -> None:
    def printed(**more: str) -> bytes:
        ours, theirs = os.openpty()
        child = subprocess.Popen([*COMMAND, *line.split()], stdout=theirs, stderr=theirs, env={**env, **more}, cwd="/")
        os.close(theirs)
        found = b""
        try:
            while block := os.read(ours, 1 << 16):
                found += block
        except OSError:
            pass
        os.close(ours)
        assert child.wait() == 0
        return found

    assert b"\x1b" in printed()
    assert b"\x1b" not in printed(NO_COLOR="1")


def job(id: int, state: str = "queued", **over: object) -> dict[str, object]:
    return {
        "id": id, "slug": "proteinmpnn_with_a_long_name", "variant": "v1", "name": f"complex{id}" * 4, "user": "ada",
        "state": state, "priority": 0, "batch": "b" * 70, "attempt": 0, "submitted_at": "2026-11-29T11:00:00.000000Z",
        "started_at": AT, "ended_at": AT if state in joblines.OVER else None, "progress": {"done": 3, "total": 1000},
        "reason": {"ruling": "pool_full", "text": "it needs 28.0 GiB and 4.0 stay reserved of 119.6 of unified"},
        "starts_in_s": 3725.0, "ends_in_s": 7000.0, **over,
    }  # fmt: skip


def whole(**over: object) -> dict[str, object]:
    return {
        "at": AT,
        "scheduler": {"running": True, "pid": 4194304, "since_at": "2026-11-29T09:00:00.0Z", "rebooted": True},
        "pools": [
            {"id": "device:GPU-0f9a3c7e-1111", "kind": "device", "capacity_gib": 139.8, "reserve_gib": 0.5,
             "charged_gib": 100.0, "owed_gib": 100.0, "live_gib": 110.0, "live_source": "nvml"},
        ],
        "workers": [
            {"id": 3, "slug": "proteinmpnn_with_a_long_name", "state": "ready", "pid": 4194304, "jobs_served": 12000,
             "idle_s": 360000.0, "charges": [{"pool": "unified", "charge_gib": 128.0, "used_gib": 121.3}]},
        ],
        "others": [{"pid": 4194304, "user": "grace", "command": "python t.py " * 9, "pool": "unified"}],
        "jobs": [job(1, "running"), *[job(n) for n in (2, 3)], job(4, "failed")], "paused_at": AT,
        "counts": {"failed": 3, "succeeded": 5}, "facts_at": "2026-11-29T11:59:00.000000Z", **over,
    }  # fmt: skip


@pytest.mark.parametrize("columns", [50, 55, 60, 72, 80, 200])
def test_a_page_follows_the_terminal_down_to_50_columns(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    plan = planning.page(
        {"jobs": [job(1, "running"), job(2)], "blocked": 2, "waiting_more": 3, "scheduler": {"running": 1}}
    )
    for lines in (
        pages.status(whole()), pages.status(whole(jobs=[], pools=[], workers=[], others=[])), plan,
        jobpages.jobs([job(1, "failed", outcome={"kind": "error", "text": "out of cheese " * 9}), job(2)]),
        jobpages.job({**job(7, "failed"), "outcome": None, "params": {"a" * 20: "b c"}, "attempts": [], "story": [
            {"at": AT, "event": "submit", "text": "submitted by ada " * 9, "attempt": None, "worker_id": None}]}),
    ):  # fmt: skip
        assert max(map(say.width, lines)) <= min(80, columns), max(lines, key=say.width)
    text = "\n".join(pages.status(whole()))
    assert "139.80" in text and "3/1000" in text and "failed" in text and "ready" in text


def test_a_table_shrinks_first_and_then_leaves_out_what_matters_least() -> None:
    columns = Column("id", 4, right=True), Column("name", 20, before=1, least=6), Column("source", 10, before=2, drop=1)
    assert Table(*columns, room=80).row("7", "abcdefgh", "x") == "   7 abcdefgh              x"
    assert Table(*columns, room=24).row("7", "a" * 30, "s" * 30) == "   7 aaaaa..  ssssssss.."
    assert Table(*columns, room=22).row("7", "a" * 30, "s") == "   7 " + "a" * 15 + ".."
    assert "s" not in Table(*columns, room=22).row("7", "a" * 30, "s")


@pytest.mark.parametrize("columns", [50, 60, 80])
@pytest.mark.parametrize("line", ["providers list", "status", "workers", "plan", "queue"])
def test_what_is_printed_follows_columns(env: dict[str, str], line: str, columns: int) -> None:
    done = subprocess.run(
        [*COMMAND, *line.split()], capture_output=True, text=True, env={**env, "COLUMNS": str(columns)}, cwd="/"
    )
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines()), default=0) <= columns
