"""Pages for people: 80 columns, a reason for everything that waits, names that cannot move the cursor."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.cli import pages, say

AT = "2026-11-29T12:00:00.000000Z"


def job(id: int, state: str = "queued", **over: object) -> dict[str, object]:
    return {
        "id": id, "slug": "boltz", "variant": "", "name": f"complex{id}", "user": "ada", "state": state, "priority": 0,
        "batch": None, "attempt": 0, "submitted_at": "2026-11-29T11:00:00.000000Z", "started_at": None,
        "ended_at": None,        "reason": None, "progress": None, "starts_in_s": None, "ends_in_s": None, **over,
    }  # fmt: skip


def whole(**over: object) -> dict[str, object]:
    return {
        "schema_version": 1, "at": AT, "scheduler": {"running": True, "pid": 12, "since_at": "2026-11-29T09:00:00.0Z"},
        "pools": [
            {"id": "unified", "kind": "unified", "capacity_gib": 119.6, "reserve_gib": 4.0, "charged_gib": 34.0,
             "owed_gib": 2.25, "live_gib": 80.1, "live_source": "MemAvailable"},
            {"id": "device:GPU-0f9a3c7e-1111-2222-3333-444444444444", "kind": "device", "capacity_gib": 139.8,
             "reserve_gib": 0.5, "charged_gib": 0.0, "owed_gib": 0.0, "live_gib": None, "live_source": "nvml: lost"},
        ],
        "workers": [
            {"id": 3, "slug": "proteinmpnn_with_a_very_long_name", "state": "ready", "pid": 4194304,
             "jobs_served": 12000, "idle_s": 360000.0,
             "charges": [{"pool": "unified", "charge_gib": 28.0, "used_gib": 21.3}]},
        ],
        "others": [{"pid": 99, "user": "grace", "command": "python t.py " * 9, "pool": "unified", "used_gib": 11.5}],
        "jobs": [], "counts": {}, "waiting_more": 0, "held_more": 0, "facts_at": "2026-11-29T11:59:00.000000Z", **over,
    }  # fmt: skip


def full() -> dict[str, object]:
    why = {
        "ruling": "pool_full",
        "text": "boltz needs 28.0 GiB and 4.0 stay reserved, and 34.0 of unified are taken",
    }
    return whole(
        jobs=[
            job(1, "running", started_at="2026-11-29T11:58:00.000000Z", ends_in_s=40.0, name="x" * 90,
                progress={"done": 3, "total": 10, "message": "scoring " * 9}),
            *[job(n, reason=why) for n in range(8, 28)],
            job(40, "held", reason={"ruling": "held", "text": "held; `schedq release 40` lets it go"}),
            job(50, "succeeded", ended_at="2026-11-29T11:59:48.000000Z"),
            job(51, "timed_out", ended_at="2026-11-29T11:59:49.000000Z", slug="esm2", variant="t33_650M"),
        ],
        counts={"queued": 1204, "held": 1, "running": 1}, waiting_more=1184,
    )  # fmt: skip


def test_the_status_page_fits_80_columns_and_says_why_things_wait() -> None:
    lines = pages.status(full())
    text = "\n".join(lines)
    assert max(map(say.width, lines)) <= 80, max(lines, key=say.width)
    assert "running (1)" in text and "waiting (1205)" in text and "and 1184 more" in text
    assert "pool_full: boltz needs 28.0 GiB" in " ".join(text.split())
    assert "+19 more" in text
    assert "3/10" in text and "40s left" in text
    assert "esm2:t33_650M" in text and "timed out" in text
    assert "as of 1m 00s ago" in text


def test_a_reason_that_many_share_is_told_once() -> None:
    assert "\n".join(pages.status(full())).count("pool_full") == 1


def test_an_empty_queue_says_what_to_do_first() -> None:
    text = "\n".join(pages.status(whole(pools=[], workers=[], others=[])))
    assert "schedq providers list" in text and "--example" in text


def test_a_name_with_newline_and_escape_stays_on_its_line() -> None:
    lines = pages.status(whole(jobs=[job(1, name="a\nb\x1b[2J")]))
    assert not any("\x1b" in line or "\n" in line for line in lines)
    assert any(r"a\nb\x1b[2J" in line for line in lines)


@pytest.mark.parametrize("state", ["queued", "running", "failed", "succeeded"])
def test_one_jobs_page_fits_80_columns(state: str) -> None:
    row = job(
        7, state, started_at=AT, ended_at=AT, params={"steps": 200}, input_name="i.yaml", input_bytes=10, tries=1,
        input_sha256="ab" * 32, outcome={"kind": "error", "text": "out of cheese " * 20, "exit_code": 1},
        out="/very/long" * 20, reason={"ruling": "busy", "text": "behind job 3"},
        attempts=[{"attempt": 1, "outcome": "error", "outcome_text": "out of cheese"}],
        story=[{"at": AT, "event": "submit", "text": "submitted by ada " * 9}], result=None,
    )  # fmt: skip
    lines = pages.job(row)
    assert max(map(say.width, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "out of cheese" in text and "steps=200" in text
    assert ("busy: behind job 3" in text) is (state == "queued")


def test_the_table_of_asked_jobs_fits_80_columns_and_tells_outcomes() -> None:
    rows = [job(1, "failed", ended_at=AT, outcome={"kind": "crashed", "text": "killed by SIGSEGV " * 8}), job(2)]
    lines = pages.jobs(rows)
    assert max(map(say.width, lines)) <= 80
    assert "crashed: killed by SIGSEGV" in "\n".join(lines)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0, "0s"), (59.4, "59s"), (61, "1m 01s"), (7500, "2h 05m"), (100000, "1d 03h")],
)
def test_a_time_span_is_shown_in_its_two_largest_units(seconds: float | None, shown: str) -> None:
    assert say.span(seconds) == shown


def test_wide_letters_count_as_two_columns() -> None:
    assert say.width("表") == 2
    assert say.width(say.fill("表" * 9, 10)) == 10
    assert say.gib(0.004) == "0.004" and say.gib(None) == "?"


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(say.os, "isatty", lambda _fd: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert say.paint("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "")
    assert say.paint("x", "red") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(say.os, "isatty", lambda _fd: False)
    assert say.paint("x", "red") == "x"


def test_an_estimate_that_is_over_is_not_said_to_be_left() -> None:
    late = job(1, "running", started_at=AT, ends_in_s=0.0, progress={"done": 0, "total": 6, "message": None})
    text = "\n".join(pages.status(whole(jobs=[late])))
    assert "0/6 longer than usual" in text and "left" not in text


def test_asked_jobs_tell_when_they_ended_and_how_long_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "now_s", lambda: pages.seconds("2026-11-29T12:03:00.000000Z"))
    done = job(1, "succeeded", started_at="2026-11-29T11:58:00.000000Z", ended_at=AT)
    waits = job(2, reason={"ruling": "busy", "text": "behind job 1"})
    head, first, second, why = pages.jobs([done, waits])
    assert head.split()[-2:] == ["ended", "took"]
    assert "3m 00s ago" in first and first.endswith("2m 00s")
    assert second.endswith("-") and why.strip() == "waiting for 1h 03m: behind job 1"


def test_the_foot_of_the_status_page_counts_what_has_ended() -> None:
    counts = {"failed": 2, "succeeded": 8, "running": 1}
    lines = pages.status(whole(jobs=[job(1, "succeeded", ended_at=AT)], counts=counts))
    assert lines[-1] == "8 succeeded, 2 failed; schedq status --state succeeded lists them"


def test_one_jobs_page_has_whole_seconds_and_says_nothing_twice() -> None:
    text = "\n".join(pages.job(job(7, "held", reason={"ruling": "held", "text": "held by its operator"})))
    assert "2026-11-29T11:00:00Z" in text
    assert "held: held" not in text and "held by its operator" in text


def test_outputs_that_another_job_has_overwritten_are_said_to_be_gone(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"job": 9, "attempt": 1}')
    first = " ".join("".join(pages.job(job(7, "succeeded", ended_at=AT, out=str(tmp_path)))).split())
    assert "overwritten by job 9" in first
    assert "overwritten" not in "".join(pages.job(job(9, "succeeded", ended_at=AT, out=str(tmp_path))))


def test_a_line_is_as_wide_as_columns_says_and_80_where_nothing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert say.columns() == 132
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(say.os, "get_terminal_size", lambda _fd: (_ for _ in ()).throw(OSError()))
    assert say.columns() == 80
