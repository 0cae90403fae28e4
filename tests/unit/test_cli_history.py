"""`history`: which jobs there were, newest first, for people, spreadsheets and programs; long lists through a pager."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from queues import asking, submitted, writing
from terminals import Terminal

from scheduler.cli import say, sheets
from scheduler.config import Paths

Ask = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "scheduler"]


@pytest.fixture
def ask(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)

    return asking(capfd)


def night(paths: Paths) -> None:
    """Four jobs: one that waits, two that ended badly, one that went well after ten minutes in the queue."""
    submitted(paths, 3, batch="night", name="ligand")
    submitted(paths, 1, slug="esm2", variant="t33_650M", name='表 "1",2')
    with writing(paths) as db:
        db.execute("UPDATE jobs SET submitted_at = '2021-11-29T20:00:00.000000Z', attempt = 1, tries = 1 WHERE id < 4")
        ended = (
            "UPDATE jobs SET state = ?, outcome = ?, outcome_text = ?, started_at = '2021-11-29T20:10:00.000000Z',"
            " ended_at = '2021-11-29T20:12:30.500000Z' WHERE id = ?"
        )
        db.execute(ended, ("failed", "crashed", "killed by SIGSEGV", 1))
        db.execute(ended, ("timed_out", "timed_out", "after 2m", 2))
        db.execute(ended, ("succeeded", "ok", "", 3))
        db.execute(
            "INSERT INTO attempts (job_id, attempt, epoch, admitted_at, sent_at, ended_at)"
            " SELECT id, 1, 1, started_at, started_at, ended_at FROM jobs WHERE id < 4"
        )
        db.executemany("INSERT INTO labels VALUES (?, ?)", [("gpu", 1), ("big", 1), ("gpu", 3)])


def test_a_history_is_told_newest_first_with_how_long_each_waited_and_ran(ask: Ask, paths: Paths) -> None:
    night(paths)
    code, out, err = ask("history")
    assert code == 0 and err == ""
    head, *rows = out.splitlines()
    assert head.split() == ["id", "provider", "name", "ended", "as", "when", "waited", "ran", "tries"]
    assert [row.split()[0] for row in rows] == ["4", "3", "2", "1"]
    assert rows[0].split()[1].startswith("esm2:t33") and "queued" in rows[0] and rows[0].split()[-2:] == ["-", "-"]
    assert rows[1].split()[-5:] == ["10m", "00s", "2m", "31s", "1"] and "succeeded" in rows[1]
    assert "timed out" in rows[2] and "crashed" in rows[3] and "Nov" in rows[3]
    assert max(map(say.width, out.splitlines())) <= 80


@pytest.mark.parametrize("columns", ["50", "60", "80", "200"])
def test_a_history_stays_in_line_whatever_its_names_and_the_terminals_width(
    ask: Ask, paths: Paths, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    night(paths)
    submitted(paths, 1, name="very" * 60)
    submitted(paths, 1, name="表" * 60, slug="proteinmpnn_with_a_long_name")
    head, *rows = ask("history")[1].splitlines()
    assert {say.width(row[: row.index("queued")]) for row in rows if "queued" in row} == {head.index("ended as")}
    assert max(map(say.width, rows)) <= min(80, int(columns))


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (("--state", "failed,timed_out"), [2, 1]), (("--outcome", "crashed"), [1]), (("--batch", "night"), [3, 2, 1]),
        (("--label", "gpu"), [3, 1]), (("--label", "gpu", "--label", "big"), [1]), (("--slug", "esm2"), [4]),
        (("--name", "lig*"), [3, 2, 1]), (("--mine",), [4, 3, 2, 1]), (("--since", "12h"), [4]),
        (("--since", "2021-11-29"), [4, 3, 2, 1]), (("--limit", "2"), [4, 3]), (("--all",), [4, 3, 2, 1]),
        (("--batch", "night", "--limit", "1"), [3]),
    ],
    ids=str,
)  # fmt: skip
def test_filters_choose_and_json_and_csv_have_the_same(
    ask: Ask, paths: Paths, words: tuple[str, ...], ids: list[int]
) -> None:
    night(paths)
    document = json.loads(ask("history", *words, "--json")[1])
    assert [job["id"] for job in document["jobs"]] == ids and document["schema_version"] == 1
    table = list(csv.DictReader(io.StringIO(ask("history", *words, "--csv")[1])))
    assert [int(row["id"]) for row in table] == ids
    assert [int(line.split()[0]) for line in ask("history", *words)[1].splitlines()[1:]] == ids


def test_csv_has_fixed_columns_and_survives_quotes_and_commas(ask: Ask, paths: Paths) -> None:
    night(paths)
    rows = list(csv.DictReader(io.StringIO(ask("history", "--csv")[1])))
    assert tuple(rows[0]) == sheets.COLUMNS
    assert rows[0]["name"] == '表 "1",2' and rows[0]["ran_s"] == rows[0]["ended_at"] == ""
    assert (rows[3]["outcome"], rows[3]["text"], rows[3]["labels"]) == ("crashed", "killed by SIGSEGV", "big gpu")
    assert (rows[3]["waited_s"], rows[3]["ran_s"]) == ("600.0", "150.5")
    of_status = list(csv.DictReader(io.StringIO(ask("status", "1-4", "--csv")[1])))
    assert tuple(of_status[0]) == sheets.COLUMNS
    assert [(row["id"], row["outcome"], row["labels"]) for row in of_status] == [
        (row["id"], row["outcome"], row["labels"]) for row in reversed(rows)
    ]


def test_waiting_begins_when_a_job_is_free_to_start_and_running_is_what_its_attempts_ran(
    ask: Ask, paths: Paths
) -> None:
    night(paths)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET free_at = '2021-11-29T20:09:00.000000Z' WHERE id = 1")  # held until then
        db.execute("UPDATE jobs SET free_at = '2021-11-29T20:11:00.000000Z' WHERE id = 2")  # held after its first try
        db.execute("UPDATE jobs SET ended_at = '2021-11-30T06:00:00.000000Z' WHERE id = 3")
        db.execute(
            "INSERT INTO attempts (job_id, attempt, epoch, admitted_at, sent_at, ended_at)"
            " VALUES (3, 2, 1, 'x', '2021-11-30T05:59:30.000000Z', '2021-11-30T06:00:00.000000Z')"
        )
    for call in (("history", "--csv"), ("status", "1-4", "--csv")):
        found = {row["id"]: row for row in csv.DictReader(io.StringIO(ask(*call)[1]))}
        assert [found[each]["waited_s"] for each in "123"] == ["60.0", "600.0", "600.0"]
        assert [found[each]["ran_s"] for each in "1234"] == ["150.5", "150.5", "180.5", ""]


def test_no_cell_is_a_formula_to_a_spreadsheet(ask: Ask, paths: Paths) -> None:
    submitted(paths, 1, name='=HYPERLINK("http://e")', batch="+1", beside={"labels": ["@x"]})
    for call in (("history", "--csv"), ("status", "1", "--csv")):
        [row] = csv.DictReader(io.StringIO(ask(*call)[1]))
        assert (row["name"], row["batch"], row["labels"]) == ('\'=HYPERLINK("http://e")', "'+1", "'@x")


def test_an_empty_queue_has_a_history_too(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path / "none"))
    assert ask("history") == (0, "no job yet; schedq submit makes one\n", "")
    assert json.loads(ask("history", "--json")[1]) == {"schema_version": 1, "jobs": []}
    assert ask("history", "--csv")[1] == ",".join(sheets.COLUMNS) + "\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--limit", "0"), 2, "leaves nothing to print"), (("--limit", "5", "--all"), 2, "contradict"),
        (("--json", "--csv"), 2, "give one of them"), (("--mine", "--user", "ada"), 2, "give one of them"),
        (("--state", "sucseeded"), 2, "did you mean succeeded"), (("--label", "gqu"), 4, "did you mean gpu?"),
        (("--batch", "nigth"), 4, "did you mean night?"), (("--since", "8pm"), 2, "is no moment"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name(
    ask: Ask, paths: Paths, words: tuple[str, ...], code: int, told: str
) -> None:
    night(paths)
    answered, out, err = ask("history", *words)
    assert (answered, out) == (code, "") and told in err


def test_more_than_fit_are_counted_and_how_to_have_them_is_said(ask: Ask, paths: Paths) -> None:
    submitted(paths, 25)
    _, out, err = ask("history")
    assert len(out.splitlines()) == 21 and err == (
        "the last 20 jobs; --all has every one, --limit N as many as you like\n"
    )
    assert ask("history", "--limit", "3")[2] == ""
    assert len(ask("history", "--all")[1].splitlines()) == 26


def on_terminal(paths: Paths, tmp_path: Path, *words: str, **more: str) -> Terminal:
    env = {**os.environ, "HOME": str(tmp_path), "SCHEDQ_HOME": paths.home, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    env.pop("COLUMNS", None)
    return Terminal([*COMMAND, *words], 80, 12, env={**env, **more}, cwd="/")


def test_on_a_terminal_as_many_as_fit_are_shown_and_a_longer_list_goes_through_the_pager(
    paths: Paths, tmp_path: Path
) -> None:
    submitted(paths, 25)
    mark = tmp_path / "paged"
    pager = f"cat > {mark}"
    for words, lines in ((("history",), 0), (("history", "--all"), 26), (("status", "--slug", "boltz"), 27)):
        terminal = on_terminal(paths, tmp_path, *words, PAGER=pager, NO_COLOR="1")
        assert terminal.ended() == 0
        assert (len(mark.read_text().splitlines()) if mark.exists() else 0) == lines, words
        if not lines:
            assert terminal.written.count(b"boltz") == 8
        terminal.close()


def test_ids_that_are_longer_than_their_column_keep_to_the_page(ask: Ask, paths: Paths) -> None:
    submitted(paths, 2, name="a-name-that-is-long-enough")
    with writing(paths) as db:
        db.execute("UPDATE jobs SET id = 1234567890 WHERE id = 2")
    _, out, _ = ask("history")
    assert max(map(len, out.splitlines())) <= 80 and "1234567890" in out
    newest, oldest = out.splitlines()[1:]
    assert newest.index("queued") == oldest.index("queued")


def test_a_pager_that_is_left_early_or_is_not_there_is_no_error(paths: Paths, tmp_path: Path) -> None:
    submitted(paths, 3000)
    for pager, rows in (("head -n 2", 1), ("cat", 3000), ("", 3000), ("most-of-all -x", 3000), (str(tmp_path), 3000)):
        terminal = on_terminal(paths, tmp_path, "history", "--all", PAGER=pager)
        assert terminal.ended() == 0
        assert terminal.written.count(b"boltz") == rows
        terminal.close()
