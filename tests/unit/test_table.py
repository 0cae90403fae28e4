"""A row for each job with values of its reply: as CSV, as a table, as JSON; in the order that was asked for."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from made_nights import made
from queues import submitted, writing

from scheduler.cli import tabulating
from scheduler.cli.fast import Call
from scheduler.config import Paths
from scheduler.errors import NoSuchJob, UsageError
from scheduler.night.values import MISSING, columns, ordered, pointers, safe, sorting
from scheduler.rules.breaker import OWN_TIME
from scheduler.store import content
from scheduler.store.turnstile import Turnstile

REPLIES = (
    {"confidence": {"iptm": 0.5, "plddt": 90}, "name": "=cmd()", "tags": ["a", 'b"c'], "ok": True, "none": None},
    {"confidence": {"iptm": -0.25}, "name": 'a,"b"\nc', "tags": []},
    {"confidence": {"iptm": 11}, "name": "", "1/2": {"~": 3}},
    {"confidence": {}, "name": "-plain"},
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    paths = Paths(str(tmp_path / "queue"))
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    submitted(paths, len(REPLIES) + 1, batch="night")
    with writing(paths) as db:
        for job_id, reply in enumerate(REPLIES, 1):
            db.execute(
                "INSERT INTO results (job_id, attempt, reply, destination) VALUES (?, 1, ?, ?)",
                (job_id, json.dumps(reply).encode(), f"/out/{job_id}"),
            )
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = submitted_at WHERE id <= ?", (len(REPLIES),))
    return paths


def table(*ids: str, **values: Any) -> int:
    return tabulating.table(Call("table", {"ids": list(ids), **values}))


def rows(capfd: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(capfd.readouterr().out)))


def test_a_batch_is_a_row_a_job_with_the_values_that_are_wanted(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    assert table("night", col=["iptm=/confidence/iptm", "/ok", "/tags", "odd=/1~12/~0"]) == 0
    found = rows(capfd)
    assert [each["id"] for each in found] == ["1", "2", "3", "4", "5"]
    assert [each["iptm"] for each in found] == ["0.5", "-0.25", "11", "", ""]
    assert found[0] == {
        "id": "1", "name": "ligand", "state": "succeeded", "iptm": "0.5", "ok": "true", "tags": '["a", "b\\"c"]',
        "odd": "", "output": "/out/1",
    }  # fmt: skip
    assert found[2]["odd"] == "3"
    assert found[4] == {**dict.fromkeys(found[4], ""), "id": "5", "name": "ligand", "state": "queued"}


def test_numbers_are_sorted_as_numbers_and_what_is_empty_comes_last_either_way(
    here: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    table("night", col=["iptm=/confidence/iptm"], sort="-iptm")
    assert [each["id"] for each in rows(capfd)] == ["3", "1", "2", "4", "5"]
    table("night", col=["iptm=/confidence/iptm"], sort="iptm")
    assert [each["id"] for each in rows(capfd)] == ["2", "1", "3", "4", "5"]
    table("night", sort="-id")
    assert [each["id"] for each in rows(capfd)] == ["5", "4", "3", "2", "1"]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"), ("+1", "'+1"), ("-x", "'-x"), ("@sum", "'@sum"), ("\t=1", "'\t=1"), (-1.5, "-1.5"),
        (-3, "-3"),
        (True, "true"), (None, ""), (MISSING, ""), ("a=b", "a=b"), ([1], "[1]"), (1e-9, "1e-09"), (10**30, str(10**30)),
    ],
)  # fmt: skip
def test_a_text_that_a_spreadsheet_would_carry_out_is_marked_and_a_number_is_not(value: Any, cell: str) -> None:
    assert safe(value) == cell


def test_texts_with_commas_quotes_and_lines_come_back_from_csv_as_they_were(
    here: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    table("night", col=["said=/name"])
    assert [each["said"] for each in rows(capfd)] == ["'=cmd()", 'a,"b"\nc', "", "'-plain", ""]


def test_in_json_values_keep_their_kinds(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    table("1-4", col=["iptm=/confidence/iptm", "/ok", "said=/name"], json=True)
    found = json.loads(capfd.readouterr().out)
    assert found["schema_version"] == 1
    assert found["columns"] == ["id", "name", "state", "iptm", "ok", "said", "output", "why"]
    assert found["rows"][0] == {
        "id": 1, "name": "ligand", "state": "succeeded", "iptm": 0.5, "ok": True, "said": "=cmd()", "output": "/out/1",
        "why": None,
    }  # fmt: skip
    assert found["rows"][3]["iptm"] is None


def test_a_table_without_a_row_is_a_head(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    assert table(state="failed", col=["/a"]) == 0
    assert capfd.readouterr().out == "id,name,state,a,output\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["iptm"], "write NAME=/POINTER"),
        (["iptm=confidence"], "write iptm=/confidence"),
        (["=/a"], "is no column"),
        (["id=/a"], "already"),
        (["/a/x", "/b/x"], "already; name this one, like x2=/b/x"),
    ],
)
def test_a_column_that_is_none_is_named_with_what_to_write(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        columns(words)


def test_a_pointer_names_its_column_by_its_last_part() -> None:
    assert [each.name for each in columns(["/confidence/iptm", "/a~1b", "/0", "all="])] == ["iptm", "a/b", "0", "all"]


def test_a_column_to_sort_by_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"there is no column 'plddt'; there are id, name, state, iptm, output"):
        sorting("-plddt", ["id", "name", "state", "iptm", "output"])
    assert sorting("-odd", ["id", "-odd"]) == (1, False)


def test_numbers_come_before_texts_and_a_number_that_is_none_last() -> None:
    found = [["b"], [2], [float("nan")], [None], ["a"], [10], [MISSING]]
    assert [row[0] for row in ordered(found, 0, falling=False)][:4] == [2, 10, "a", "b"]
    assert [row[0] for row in ordered(found, 0, falling=True)][:4] == [10, 2, "b", "a"]


def test_rows_of_one_value_stay_in_the_order_of_their_ids() -> None:
    found = [[n, 1.0] for n in range(50)]
    assert ordered(found, 1, falling=False) == found
    assert ordered(found, 1, falling=True) == found


def test_who_names_no_column_is_told_what_there_is(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    table("night")
    assert "job 1 has /name, /ok, /none, /confidence/iptm, /confidence/plddt, /tags/0" in capfd.readouterr().err
    table("night", col=["/iptm"])
    assert "no reply has anything at /iptm; job 1 has /name" in capfd.readouterr().err
    table("5", col=["/iptm"])
    assert "none of these jobs has a reply yet" in capfd.readouterr().err


def test_pointers_to_the_values_of_a_reply_are_the_nearest_first() -> None:
    deep: dict[str, Any] = {"a": 1}
    for _ in range(50):
        deep = {"in": deep, "n": 1}
    assert pointers(deep)[:2] == ["/n", "/in/n"]
    assert len(pointers({str(n): n for n in range(1000)})) == 12
    assert pointers("text") == []


def test_a_large_reply_is_read_from_where_it_is_kept_and_a_damaged_one_is_named(
    here: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    reply = json.dumps({"confidence": {"iptm": 7}, "pad": "x" * 100_000}).encode()
    with Turnstile(here).section():
        sha256 = content.put(here, reply)
    with writing(here) as db:
        db.execute("UPDATE results SET reply = NULL, sha256 = ? WHERE job_id = 1", (sha256,))
        db.execute("UPDATE results SET reply = NULL, sha256 = ? WHERE job_id = 2", ("0" * 64,))
        db.execute("UPDATE results SET reply = ? WHERE job_id = 3", (b"{no json",))
    assert table("night", col=["iptm=/confidence/iptm"]) == 1
    out, err = capfd.readouterr()
    assert [line.split(",")[3] for line in out.splitlines()] == ["iptm", "7", "", "", "", ""]
    assert "the stored reply of 2, 3 is gone or damaged" in err


def test_what_is_no_batch_and_no_id_is_said(here: Paths) -> None:
    with pytest.raises(NoSuchJob, match="nihgt"):
        table("nihgt")
    with pytest.raises(UsageError, match="table needs jobs"):
        table()


def test_many_rows_come_in_the_order_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    paths = Paths(str(tmp_path / "queue"))
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    made(paths, 2600, providers=3)
    assert table("night", col=["/confidence/iptm"], sort="-iptm") == 0
    found = rows(capfd)
    assert len(found) == 2600
    there = [float(each["iptm"]) for each in found if each["iptm"]]
    assert there == sorted(there, reverse=True)
    assert not any(each["iptm"] for each in found[len(there) :])


def test_columns_of_numbers_that_have_no_room_are_left_out_and_named(
    here: Paths, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tabulating, "_on_terminal", lambda: True)
    with writing(here) as db:
        reply = json.dumps({key: 1234567.5 + n for n, key in enumerate("abcdef")}).encode()
        db.execute("UPDATE results SET reply = ?", (reply,))
    table("night", col=[f"a_long_name_{each}=/{each}" for each in "abcdef"], sort="-a_long_name_f")
    out, err = capfd.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    head = out.splitlines()[0].split()
    assert head == ["id", "name", "state", "a_long_name_a", "a_long_name_b", "a_long_name_f"]
    assert "no room for a_long_name_c, a_long_name_d, a_long_name_e; > FILE has them" in " ".join(err.split())


def test_on_a_terminal_it_is_aligned_and_shows_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    paths = Paths(str(tmp_path / "queue"))
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("COLUMNS", "80")
    made(paths, 300, providers=3)
    monkeypatch.setattr(tabulating, "_on_terminal", lambda: True)
    table("night", col=["/confidence/iptm", "/confidence/plddt"])
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 201
    assert max(map(len, out.splitlines())) <= 80
    assert "the first 200 of 300; --all shows all" in err
    table("night", all=True)
    assert len(capfd.readouterr().out.splitlines()) == 301


def test_why_a_job_ended_badly_is_said_on_a_terminal_and_in_json_and_csv_stays_as_it_was_asked_for(
    here: Paths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = "UPDATE jobs SET state = ?, outcome = ?, outcome_text = ?, timeout_s = ? WHERE id = ?"
    with writing(here) as db:
        db.execute("DELETE FROM results WHERE job_id < 4")
        db.execute(ended, ("timed_out", "timed_out", OWN_TIME, 90.0, 1))
        db.execute(ended, ("failed", "crashed", "killed by\nsignal 9", None, 2))
        db.execute(ended, ("failed", "error", "ValueError: no", None, 3))
        faults = json.dumps([{"place": "/a", "expected": "1", "found": "2"}])
        db.execute(
            'INSERT INTO checks (job_id, "case", expect, verdict, faults) VALUES (4, "c", "{}", "failed", ?)', (faults,)
        )
    table("night", col=["/ok"], json=True)
    assert [each["why"] for each in json.loads(capfd.readouterr().out)["rows"]] == [
        "it took longer than its --timeout of 1m 30s", "crashed: killed by signal 9", "ValueError: no",
        "/a: expected 1, found 2", None,
    ]  # fmt: skip
    table("night", col=["/ok"])
    assert capfd.readouterr().out.splitlines()[0] == "id,name,state,ok,output"
    monkeypatch.setattr(tabulating, "_on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "110")
    table("night", col=["/ok"])
    head, first, *_ = capfd.readouterr().out.splitlines()
    assert head.split() == ["id", "name", "state", "ok", "why", "output"]
    assert "it took longer than its --timeout of 1m 30s" in first
    table("5", col=["/ok"])
    assert capfd.readouterr().out.splitlines()[0].split() == ["id", "name", "state", "ok", "output"]


def test_a_column_of_ones_own_called_why_is_the_only_one(
    here: Paths, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with writing(here) as db:
        db.execute("UPDATE jobs SET state = 'failed', outcome = 'error', outcome_text = 'no' WHERE id = 1")
    table("night", col=["why=/name"], json=True)
    told = json.loads(capfd.readouterr().out)
    assert told["columns"].count("why") == 1 and told["rows"][0]["why"] == "=cmd()"
    monkeypatch.setattr(tabulating, "_on_terminal", lambda: True)
    table("night", col=["why=/name"])
    assert capfd.readouterr().out.splitlines()[0].split().count("why") == 1


def test_replies_that_were_pruned_are_told_apart_from_those_that_never_were(
    here: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    with writing(here) as db:
        db.execute("DELETE FROM results")
    table("night", col=["/ok"])
    assert capfd.readouterr().err.strip() == "none of these jobs has a reply yet"
    with writing(here) as db:
        db.execute("UPDATE jobs SET pruned_at = ended_at WHERE id <= 4")
    table("night", col=["/ok"])
    said = "the replies of 4 jobs were pruned, and are not kept; the other 1 of these jobs have none"
    assert said in " ".join(capfd.readouterr().err.split())


def test_a_validation_case_has_its_cases_name_in_its_row(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    with writing(here) as db:
        db.execute('INSERT INTO checks (job_id, "case", expect) VALUES (2, "by its CA atoms", "{}")')
    table("1-3", col=["/ok"])
    assert [each["name"] for each in rows(capfd)] == ["ligand", "by its CA atoms", "ligand"]
