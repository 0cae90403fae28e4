"""Pages for people: 80 columns, a reason for everything that waits, names that cannot move the cursor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.cli import joblines, jobpages, pages, planning, say, stamps
from scheduler.cli.indented import indented

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


def test_before_there_is_a_queue_the_page_is_two_lines_that_say_what_to_do_first() -> None:
    down = {"running": False, "pid": None, "since_at": None}
    page = pages.status(whole(pools=[], workers=[], others=[], facts_at=None, scheduler=down))
    assert len(page) == 2 and all(len(line) <= 80 for line in page)
    for verb in ("run capiti --example", "providers", "up"):
        assert f"schedq {verb}" in "\n".join(page)


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
    lines = jobpages.job(row)
    assert max(say.width(line) for line in lines if "/very/long" not in line) <= 80
    text = " ".join(" ".join(lines).split())
    assert "out of cheese" in text and "steps=200" in text
    assert ("busy: behind job 3" in text) is (state == "queued")


def test_the_table_of_asked_jobs_fits_80_columns_and_tells_outcomes() -> None:
    rows = [job(1, "failed", ended_at=AT, outcome={"kind": "crashed", "text": "killed by SIGSEGV " * 8}), job(2)]
    lines = jobpages.jobs(rows)
    assert max(map(say.width, lines)) <= 80
    assert "crashed: killed by SIGSEGV" in "\n".join(lines)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0, "0s"), (59.4, "59s"), (61, "1m 01s"), (7500, "2h 05m"), (100000, "1d 03h")],
)
def test_a_time_span_is_shown_in_its_two_largest_units(seconds: float | None, shown: str) -> None:
    assert say.span(seconds) == shown


def test_wide_letters_count_as_two_columns() -> None:
    assert say.width("表") == 2 and say.width("e\u0301") == 1 and say.width("\u2764\ufe0f") == 1
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


@pytest.mark.parametrize("rest_s", [0.0, 0.05, 0.9])
def test_of_a_rest_below_a_second_nothing_is_said(rest_s: float) -> None:
    late = job(1, "running", started_at=AT, ends_in_s=rest_s, progress={"done": 0, "total": 6, "message": None})
    [line] = [line for line in pages.status(whole(jobs=[late])) if "complex1" in line]
    assert line.endswith("0s  [---------------]   0%")
    assert joblines.progress({**late, "progress": None}) == ("", "", "")
    assert joblines.progress({**late, "ends_in_s": 1.0}) == ("0/6", "1s left", "")


def test_asked_jobs_tell_when_they_ended_and_how_long_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobpages, "now_s", lambda: jobpages.seconds("2026-11-29T12:03:00.000000Z"))
    done = job(1, "succeeded", started_at="2026-11-29T11:58:00.000000Z", ended_at=AT)
    waits = job(2, reason={"ruling": "busy", "text": "behind job 1"})
    head, first, second, why = jobpages.jobs([done, waits])
    assert head.split()[-2:] == ["ended", "took"]
    assert "3m 00s ago" in first and first.endswith("2m 00s")
    assert second.endswith("-") and why.strip() == "waiting for 1h 03m: behind job 1"


def test_the_foot_of_the_status_page_counts_what_has_ended() -> None:
    counts = {"failed": 2, "succeeded": 8, "running": 1}
    lines = pages.status(whole(jobs=[job(1, "succeeded", ended_at=AT)], counts=counts))
    assert lines[-1] == "2 failed, 8 succeeded; schedq status --state failed lists the failed"
    lines = pages.status(whole(jobs=[job(1, "succeeded", ended_at=AT)], counts={"succeeded": 8}))
    assert lines[-1] == "8 succeeded; schedq status --state succeeded lists them"


def test_one_jobs_page_has_whole_seconds_and_says_nothing_twice() -> None:
    text = "\n".join(jobpages.job(job(7, "held", reason={"ruling": "held", "text": "held by its operator"})))
    assert stamps.local("2026-11-29T11:00:00.000000Z") in text
    assert "held: held" not in text and "held by its operator" in text


def test_outputs_that_another_job_has_overwritten_are_said_to_be_gone(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"job": 9, "attempt": 1}')
    first = " ".join("".join(jobpages.job(job(7, "succeeded", ended_at=AT, out=str(tmp_path)))).split())
    assert "overwritten by job 9" in first
    assert "overwritten" not in "".join(jobpages.job(job(9, "succeeded", ended_at=AT, out=str(tmp_path))))


def told(story: list[tuple[str, str, int | None, str]], **over: object) -> str:
    """The page of a job to which this happened: (event, text, attempt, worker) rows of its story."""
    events = [
        {"at": AT, "event": event, "text": text, "attempt": attempt, "worker_id": int(worker) if worker else None}
        for event, text, attempt, worker in story
    ]
    return "\n".join(jobpages.job(job(7, **{"state": "failed", "story": events, **over})))


ONCE = [
    ("submit", "submitted by ada", None, ""), ("admit", "warm", 1, "5"), ("send", "", 1, "5"),
    ("fail", "error: out of cheese", 1, "5"), ("failed", "error: out of cheese", 1, ""),
]  # fmt: skip


def test_the_story_of_a_job_is_told_in_words_and_its_failure_once() -> None:
    page = told(
        ONCE, outcome={"kind": "error", "text": "out of cheese", "exit_code": None},
        attempts=[{"attempt": 1, "outcome": "error", "outcome_text": "out of cheese"}],
    )  # fmt: skip
    assert page.count("out of cheese") == 1
    story = [line[2:].partition("  ")[2] for line in page.partition("story\n")[2].splitlines()]
    assert story == ["submitted by ada", "sent to worker 5, which was warm", "failed"]


def test_a_job_that_was_tried_twice_tells_what_became_of_each_attempt() -> None:
    page = told(
        [*ONCE[:1], ("admit", "", 1, "4"), ("give_back", "interrupted: no room", 1, "4"),
         ("admit", "", 1, "5"), ("send", "", 1, "5"), ("retry", "crashed: killed", 1, "5"),
         ("busy", "worker 6 has job 3", None, ""), ("admit", "warm", 2, "6"), ("send", "", 2, "6"),
         ("succeed", "ok", 2, "6"), ("succeeded", "ok: ", 2, "")],
        state="succeeded", outcome={"kind": "ok", "text": "", "exit_code": None},
        attempts=[{"attempt": 1, "outcome": "crashed", "outcome_text": "killed"}, {"attempt": 2, "outcome": "ok"}],
    )  # fmt: skip
    assert "attempt 1  crashed: killed" in page and "attempt 2  ok" in page
    for sentence in (
        "taken back from worker 4 (interrupted), not counted as a try", "worker 5 is started for it",
        "attempt 1 ended (crashed), to be tried again",
        "waits (busy): worker 6 has job 3", "sent to worker 6, which was warm",
    ):  # fmt: skip
        assert sentence in " ".join(page.split())
    assert page.endswith("succeeded") and "ok:" not in page


def test_one_jobs_page_says_how_long_it_waited_and_ran_and_shows_parameters_as_they_are_given() -> None:
    done = job(
        7, "succeeded", submitted_at="2026-11-29T11:00:00.000000Z", started_at="2026-11-29T11:58:00.000000Z",
        ended_at="2026-11-29T11:58:00.250000Z", params={"gate": True, "set": "E", "chains": "", "n": [1, 2]},
    )  # fmt: skip
    page = "\n".join(jobpages.job(done))
    at = stamps.local("2026-11-29T11:58:00.000000Z")
    assert f"started    {at}, after 58m 00s in the queue" in page and f"{at}, after 0.25s\n" in page
    assert 'params     gate=true, set=E, chains="", n=[1, 2]' in page


def test_the_wait_of_a_job_that_was_opened_again_counts_from_when_it_was_free_to_start() -> None:
    again = job(
        7, "running", submitted_at="2026-11-29T11:00:00.000000Z", free_at="2026-11-29T11:57:59.000000Z",
        started_at="2026-11-29T11:58:00.000000Z",
    )  # fmt: skip
    assert ", after 1.0s in the queue" in "\n".join(jobpages.job(again))


def test_a_path_is_never_broken() -> None:
    path = "/data/" + "a folder with blanks/" * 9 + "x"
    assert any(line.endswith(path) for line in jobpages.job(job(7, "succeeded", ended_at=AT, out=path)))
    assert say.wrap("in /" + "long" * 30 + " and on", "  ") == ["  in", "  /" + "long" * 30, "  and on"]
    assert max(map(say.width, say.wrap("x" * 200, "  "))) == 80


def test_the_workers_own_word_stands_below_its_job_and_is_not_pushed_out_by_the_estimate() -> None:
    far = job(
        1,
        "running",
        started_at=AT,
        ends_in_s=1e6,
        progress={"done": 12, "total": 100000, "message": "relaxing chain B"},
    )
    lines = pages.status(whole(jobs=[far]))
    at = next(n for n, line in enumerate(lines) if line.lstrip().startswith("1  boltz"))
    assert lines[at].endswith(" 0%") and lines[at + 1] == "        12/100000, 11d 13h left; relaxing chain B"


def test_a_running_job_at_a_glance_is_its_state_its_time_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblines, "now_s", lambda: joblines.seconds("2026-11-29T12:00:12.000000Z"))
    runs = job(1, "running", started_at=AT, progress={"done": 6, "total": 40, "message": "relaxing"}, ends_in_s=20.0)
    assert joblines.at_a_glance(runs) == "job 1 running 12s, 6/40, 20s left, relaxing"
    assert joblines.at_a_glance(job(2, submitted_at=AT)) == "job 2 waits 12s"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0.0, "<0.01s"), (0.042, "0.04s"), (3.21, "3.2s"), (9.96, "10s"), (61, "1m 01s")],
)
def test_what_took_little_time_is_told_in_parts_of_a_second(seconds: float | None, shown: str) -> None:
    assert say.elapsed(seconds) == shown


def test_what_is_to_come_soon_is_never_said_to_take_no_time() -> None:
    assert (say.soon(0.0), say.soon(0.49), say.soon(0.5), say.soon(61)) == ("under 1s", "under 1s", "1s", "1m 01s")
    waits = job(2, reason={"ruling": "busy", "text": "worker 1 has job 1"}, starts_in_s=0.2, ends_in_s=0.3)
    page = " ".join(" ".join(pages.status(whole(jobs=[waits]))).split())
    assert "worker 1 has job 1; expected in under 1s" in page
    planned = planning.page({"jobs": [waits], "blocked": 0, "waiting_more": 0, "scheduler": {"running": True}})
    assert planned[1].endswith("under 1s  under 1s") and planned[-1].endswith("expected to be done in under 1s")
    told = {**waits, "starts_in_s": None, "ends_in_s": None}
    planned = planning.page({"jobs": [told], "blocked": 0, "waiting_more": 0, "scheduler": {"running": True}})
    assert planned[1].split()[-2:] == ["?", "?"] and "nobody can tell yet" in planned[-1]


@pytest.mark.parametrize(
    ("counts", "refused", "told"),
    [
        ({"failed": 1, "refused": 4}, 1, "5 refused; schedq status --state refused lists them"),
        ({"failed": 3, "refused": 4, "succeeded": 2}, 1, "2 failed, 5 refused, 2 succeeded; schedq status --state fai"),
        ({"failed": 3}, 0, "3 failed; schedq status --state failed lists them"),
        ({"failed": 2000}, None, "2000 failed or refused; schedq status --state failed,refused lists them"),
    ],
)
def test_what_its_worker_refused_is_counted_as_refused(counts: dict[str, int], refused: int | None, told: str) -> None:
    page = " ".join(" ".join(pages.status(whole(counts=counts, refused_by_worker=refused))).split())
    assert told in page


def test_a_job_that_its_worker_refused_is_called_refused_in_every_list() -> None:
    bad = job(7, "failed", ended_at=AT, outcome_kind="refused", outcome={"kind": "refused", "text": "too long"})
    assert "refused" in pages.status(whole(jobs=[bad]))[-1] and "failed" not in "".join(jobpages.jobs([bad]))


def test_one_is_not_told_in_the_plural() -> None:
    assert (say.counted(1, "job"), say.counted(0, "job"), say.counted(2, "job")) == ("1 job", "0 jobs", "2 jobs")


def test_a_line_is_as_wide_as_columns_says_and_80_where_nothing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert say.columns() == 132
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(say.os, "get_terminal_size", lambda _fd: (_ for _ in ()).throw(OSError()))
    assert say.columns() == 80


@pytest.mark.parametrize("value", [
    {}, [], 1, "x" * 200, [[]], {"a": {}}, {"a": [{"b": [1, [2, "\u00e9"]]}, None, True]},
    {"n": [0.1] * 300, "m": ["ab"] * 90}, ["y" * 50, "z"], {"k" * 90: [1, 2]},
], ids=lambda each: str(each)[:20])  # fmt: skip
def test_json_for_people_is_the_same_value(value: object) -> None:
    assert json.loads(indented(value, 80)) == value


def test_numbers_and_short_texts_of_a_list_share_lines_as_wide_as_there_is_room() -> None:
    text = indented({"scores": [{"few": [1, 2.5, "a", None], "many": [0.125] * 230}], "long": ["w" * 30, "w"]}, 80)
    lines = text.split("\n")
    assert '      "few": [1, 2.5, "a", null],' in lines
    assert max(map(len, lines)) <= 80 and len(lines) < 40, text
    assert lines[-5:] == ['  "long": [', f'    "{"w" * 30}",', '    "w"', "  ]", "}"]


def busy(id: int, head: int, text: str = "", **over: object) -> dict[str, object]:
    """A job that waits behind the first of its provider."""
    reason = {"ruling": "busy", "text": text or f"behind job {head} of boltz, which waits: pool_full", "behind": head}
    return job(id, reason=reason, **over)


FULL = {"ruling": "pool_full", "text": "boltz needs 28.0 GiB, and 4.0 are free"}
ESM = {"ruling": "cores", "text": "esm2 needs 8 threads"}


def test_who_waits_behind_another_waits_for_the_same_and_that_is_told_once() -> None:
    text = "\n".join(pages.status(whole(jobs=[job(8, reason=FULL), busy(9, 8), busy(10, 8)])))
    assert "+2 more" in text and text.count("pool_full") == 1 and "behind job" not in text


def test_that_no_scheduler_runs_is_told_once_and_what_the_last_one_said_once_a_group() -> None:
    down = {"ruling": "scheduler_down", "text": "no scheduler runs for this queue; `schedq up` starts one"}
    said = {**down, "text": down["text"] + " (the last one said: it is full)", "last": "it is full"}
    rows = [job(1, reason=down, slug="a"), job(2, reason=down, slug="b"), job(3, reason=said), job(4, reason=said)]
    text = "\n".join(pages.status(whole(jobs=rows, scheduler={"running": False})))
    assert text.count("no scheduler runs") == 1 and text.count("it is full") == 1
    assert "no scheduler runs" not in "\n".join(jobpages.jobs(rows))


def test_a_reason_stands_once_below_the_jobs_that_share_it() -> None:
    lines = jobpages.jobs([job(8, reason=FULL), busy(9, 8), busy(10, 8), job(11, "held", reason={"text": "held"})])
    text = "\n".join(lines)
    assert text.count("boltz needs 28.0 GiB") == 1 and "behind job" not in text
    at = next(n for n, line in enumerate(lines) if "these 3 wait" in line)
    assert lines[at - 1].split()[0] == "10" and lines[at + 1].split()[0] in ("11", "free") and "held" in lines[-1]


def test_of_providers_that_take_turns_in_a_list_each_reason_is_told_once_below_it_by_ids() -> None:
    rows = [job(1, reason=FULL), job(2, slug="esm2", reason=ESM), busy(3, 1), busy(4, 1), busy(5, 2, slug="esm2")]
    lines = jobpages.jobs([*rows, job(6, "succeeded", ended_at=AT)])
    told = " ".join(" ".join(lines).split())
    assert "1, 3-4 wait, the first for" in told and "2, 5 wait, the first for" in told
    assert told.count("boltz needs") == told.count("esm2 needs") == 1
    assert [line.split()[0] for line in lines[1:6]] == ["1", "2", "3", "4", "5"] and "succeeded" in lines[-1]


def test_ids_in_short_are_what_a_verb_takes() -> None:
    assert jobpages.spans([3]) == "3" and jobpages.spans([3, 4, 5, 12]) == "3-5, 12"
    assert len(jobpages.spans(list(range(0, 400, 2)))) < 50


@pytest.mark.parametrize(
    ("done", "total", "drawn"),
    [(0, 8, "[------]   0%"), (1, 8, "[------]  12%"), (4, 8, "[###---]  50%"), (7.99, 8, "[#####-]  99%"),
     (8, 8, "[######] 100%"), (9, 8, "[######] 100%"), (-1, 8, "[------]   0%"), (1, 0, "[------]   0%")],
)  # fmt: skip
def test_a_bar_is_full_only_when_all_is_done(done: float, total: float, drawn: str) -> None:
    assert joblines.bar(done, total, 8) == drawn


@pytest.mark.parametrize("columns", ["50", "60", "72", "80"])
def test_a_running_job_shows_a_bar_its_message_and_what_is_left(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    runs = job(1, "running", started_at=AT, ends_in_s=40.0, name="x" * 90,
               progress={"done": 3, "total": 10, "message": "scoring " * 30})  # fmt: skip
    for lines in (pages.status(whole(jobs=[runs], workers=[], others=[])), jobpages.jobs([runs])):
        text = "\n".join(lines)
        assert "[##" in text and " 30%" in text and "3/10, 40s left" in text and "scor" in text
        assert max(map(say.width, lines)) <= int(columns)
    assert "[##" in "\n".join(jobpages.job({**runs, "attempts": [], "story": []}))


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ({"open": 12, "succeeded": 0}, "batch night: 12 jobs, 12 to come"),
        ({"open": 4, "succeeded": 7, "ends_in_s": 100.0},
         "batch night: 12 jobs, 7 succeeded, 1 did not, 4 to come, done in about 1m 40s"),
        ({"open": 0, "succeeded": 12, "ended_at": "2026-11-29T11:59:00.000000Z"},
         "batch night: 12 jobs, 12 succeeded, ended 1m 00s ago, after 1h 59m"),
    ],
)  # fmt: skip
def test_a_batch_is_told_in_a_line_and_a_bar_while_it_runs(over: dict[str, object], told: str) -> None:
    counts = {"batch": "night", "jobs": 12, "first_at": "2026-11-29T10:00:00.000000Z", "ended_at": None}
    lines = jobpages.batch({**counts, "ends_in_s": None, **over}, pages.seconds(AT))
    assert " ".join(line for line in lines if "%" not in line) == told
    assert len([line for line in lines if "%" in line]) == bool(over["open"])
    assert max(map(say.width, lines)) <= 80
