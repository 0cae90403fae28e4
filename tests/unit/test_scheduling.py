"""`schedq schedule ...`: what it keeps, what it refuses and in which words, and what its pages say."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from manifests_made import BASE, Manifests
from queues import row, submitted, writing

from scheduler import config
from scheduler.cli import ahead, grammar, notifying, scheduling, zones
from scheduler.cli.fast import carry_out, parse
from scheduler.clock import now_s, seconds, stamp
from scheduler.config import Paths
from scheduler.errors import SchedqError, UsageError
from scheduler.host.calls import CUT_OFF
from scheduler.store import called, incidents, intake, peek, schedulers, schedules
from scheduler.store.engine import Store

Ask = Callable[..., tuple[str, str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """A call of a queue of its own, with the provider fold alone: its stdout and stderr."""
    real = config.migrations_folder()
    made = Manifests(tmp_path, monkeypatch)
    monkeypatch.setattr(config, "migrations_folder", lambda: real)
    made.add(text=BASE.replace("~/envs/x/bin/python", "python3"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.chdir(tmp_path)

    def asked(*argv: str) -> tuple[str, str]:
        verb, rest = grammar.verb_of(list(argv))
        assert verb is not None
        carry_out(verb, parse(verb, rest))
        out, err = capfd.readouterr()
        return out, err

    return asked


def test_a_call_is_kept_with_its_zone_its_folder_and_little_of_the_environment(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    out, err = ask("schedule", "add", "0 22 * * *", "--zone", "Europe/Berlin", "submit", "fold", "a.json", "--hold")
    assert out == "1\n" and "next" in err and "22:00 +0" in err and "schedq up" in err
    with closing(Store(Paths())) as store, store.read() as tx:
        (row,) = schedules.all_of(tx)
    assert json.loads(row.argv) == ["submit", "fold", "a.json", "--hold"]
    assert (row.cwd, row.zone, row.removed_at) == (str(tmp_path), "Europe/Berlin", None)
    assert "PATH" in json.loads(row.environment) and "s3cret" not in row.environment


def test_the_zone_is_the_machines_unless_given_and_is_shown(ask: Ask) -> None:
    ask("schedule", "add", "0 22 * * *", "report", "--since", "20:00")
    out, _ = ask("schedule", "list", "--json")
    (told,) = json.loads(out)["schedules"]
    assert told["zone"] == zones.machine_zone() == "Europe/Berlin"
    assert told["call"] == ["report", "--since", "20:00"] and told["last"] is None
    assert seconds(told["next_at"]) == __import__("datetime").datetime.fromisoformat(told["next_local"]).timestamp()


def test_the_same_call_at_the_same_times_is_kept_once(ask: Ask) -> None:
    first, _ = ask("schedule", "add", "0 22 * * *", "queue", "pause")
    again, err = ask("schedule", "add", "0  22 * * *", "schedq", "queue", "pause")
    assert first == again == "1\n" and "is there already" in err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["0 22 31 2 *", "submit", "fold", "a"], "is never due: its day of month is 31, and Feb has at most 29 days"),
        (["0", "22", "*", "*", "*", "submit"], "has 1 field and needs 5"),
        (["0 22 * * *", "validat", "--all"], "no verb 'validat'"),
        (["0 22 * * *", "submit", "fold", "--prioriti", "3"], "did you mean --priority?"),
        (["0 22 * * *", "why"], "why needs ID"),
        (["0 22 * * *", "submit", "folds", "a.json"], "no provider 'folds'"),
        (["0 22 * * *", "submit", "fold", "-"], "it reads stdin"),
        (["0 22 * * *", "up"], "it is about the scheduler"),
        (["0 22 * * *", "down", "--now"], "it is about the scheduler"),
        (["0 22 * * *", "serve"], "it is about the scheduler"),
        (["0 22 * * *", "run", "fold", "a.json"], "submit queues a job"),
        (["0 22 * * *", "exec", "--ram", "1", "--", "make"], "submit queues a job"),
        (["0 22 * * *", "log", "last", "-f"], "somebody at a terminal"),
        (["0 5 * * *", "prune", "--older-than", "30d"], "it asks before more than 20 jobs"),
        (["0 5 * * *", "cancel", "--batch", "night"], "nobody to answer then; add --yes"),
        (["0 22 * * *", "schedule", "remove", "1"], "changes schedules"),
        (["0 22 * * *", "--help"], "schedule add"),
        (["--zone", "Europe/Berln", "0 22 * * *", "queue", "pause"], "did you mean Europe/Berlin?"),
        (["--zone", "Berlin", "0 22 * * *", "queue", "pause"], "did you mean Europe/Berlin?"),
        (["--zone", "../../etc/passwd", "0 22 * * *", "queue", "pause"], "there is no such time zone"),
        (["0 22 * * *", "queue", "pause", "--zone", "UTC"], "stand before the cron line"),
    ],
)
def test_what_cannot_be_repeated_is_refused_at_once_and_nothing_is_kept(ask: Ask, argv: list[str], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        ask("schedule", "add", *argv)
    assert told in str(refused.value)
    assert ask("schedule", "list", "--json")[0].count('"id"') == 0


def test_a_call_that_does_not_ask_is_kept(ask: Ask) -> None:
    for argv in (["prune", "--older-than", "30d", "--yes"], ["prune", "--dry-run"], ["cancel", "7"]):
        assert ask("schedule", "add", "0 5 * * *", *argv)[0]


def test_a_time_in_a_skipped_hour_is_kept_and_said(ask: Ask) -> None:
    _, err = ask("schedule", "add", "--zone", "Europe/Berlin", "30 2 * * *", "queue", "pause")
    assert "clocks skip 02:30 on" in err and "made up at 03:00 then" in err


def test_a_schedule_is_shown_hastened_and_removed_and_one_that_is_not_there_is_exit_4(ask: Ask) -> None:
    ask("schedule", "add", "0 22 * * *", "queue", "pause")
    assert "due for 0s" in (ask("schedule", "run", "1"), ask("schedule"))[1][0]
    with closing(Store(Paths())) as store, store.write() as tx:
        due = schedules.due(tx, stamp(now_s()))
        run_id = schedules.begin(tx, 1, due.next_at, stamp(now_s()))
        assert run_id is not None
        schedules.end(tx, run_id, stamp(now_s()), 2, "schedq: paused already\nreally")
    out, _ = ask("schedule", "show", "1")
    assert "queue pause" in out and "exit 2 after" in out and "  really" in out and out.count("then  ") == 2
    assert max(map(len, out.splitlines())) <= 80
    ask("schedule", "remove", "1")
    for verb in ("show", "run", "remove"):
        with pytest.raises(SchedqError, match="there is no schedule 1") as gone:
            ask("schedule", verb, "1")
        assert gone.value.exit_code == 4
    with pytest.raises(UsageError, match="is no schedule's number"):
        ask("schedule", "show", "x")
    assert ask("schedule")[0] == ""


def test_a_run_that_was_cut_off_and_said_much_is_shown_within_the_page(ask: Ask) -> None:
    ask("schedule", "add", "0 22 * * *", "queue", "pause")
    with closing(Store(Paths())) as store, store.write() as tx:
        run_id = schedules.begin(tx, 1, stamp(now_s() - 90), stamp(now_s()))
        assert run_id is not None
        schedules.end(tx, run_id, stamp(now_s()), None, f"{CUT_OFF}\n{'=' * 78}\n  {'a word ' * 30}")
    out, _ = ask("schedule", "show", "1")
    assert max(map(len, out.splitlines())) <= 80
    assert f"\n  {'=' * 78}\n" in out and "it is not run again" in " ".join(out.split())


def test_status_has_a_line_for_a_call_that_is_due_within_a_day(ask: Ask) -> None:
    ask("schedule", "add", "--zone", "UTC", "* * * * *", "queue", "pause")
    ask("schedule", "add", "--zone", "UTC", "0 0 29 2 *", "queue", "resume")
    whole = peek.status(Paths())
    (line,) = ahead.lines(whole, seconds(whole["at"]))[1:]
    assert line.startswith("schedule 1, in ") and line.endswith(": schedq queue pause")


def test_status_says_what_nobody_could_be_told(ask: Ask) -> None:
    assert ahead.lines({"schedules": [], "notices": None}, 0.0) == []
    with closing(Store(Paths())) as store, store.write() as tx:
        at = stamp(now_s())
        one = incidents.record(tx, "batch_ended", at, "batch night ended", {}, batch="night")
        incidents.failed(tx, one, "", "https://hooks.example.org answered 500", None)
    whole = peek.status(Paths())
    assert "1 notice given up: https://hooks.example.org answered 500" in " ".join(ahead.lines(whole, now_s()))
    out, err = ask("notify")
    assert "given up after 1 try: https://hooks.example.org answered 500" in out and "nobody is told" in err


def test_notify_test_says_what_came_back(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDQ_NOTIFY_COMMAND", "/bin/true s3cret")
    assert ask("notify", "test")[0] == "the command /bin/true took it\n"
    monkeypatch.setenv("SCHEDQ_NOTIFY_URL", "http://127.0.0.1:1/s3cret")
    with pytest.raises(SchedqError) as down:
        ask("notify", "test")
    assert str(down.value) == "http://127.0.0.1:1 cannot be reached: Connection refused" and down.value.exit_code == 75
    with pytest.raises(SchedqError):
        ask("notify", "test", "--json")
    assert "s3cret" not in str(ask("config", "show")) + str(ask("config", "show", "--json"))
    assert notifying.SHOWN > 1 and scheduling.RUNS_SHOWN > 1


def test_a_run_that_queued_a_batch_says_beside_its_exit_code_what_became_of_that(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that only queues ends well whatever its jobs do: whoever looks in the morning wants these."""
    ask("schedule", "add", "0 22 * * *", "queue", "pause")
    with closing(Store(Paths())) as store, store.write() as tx:
        run_id = schedules.begin(tx, 1, stamp(now_s() - 90), stamp(now_s()))
        queue_id = schedulers.queue_id(tx)
    assert json.loads(ask("schedule", "list", "--json")[0])["schedules"][0]["last"]["batch"] is None
    for mark in (f"{queue_id}:99", f"other:{run_id}", "nonsense", f"{queue_id}:", ""):
        monkeypatch.setenv(called.MARK, mark)
        submitted(Paths(), batch="other")
    monkeypatch.setenv(called.MARK, f"{queue_id}:{run_id}")
    intake.submit(Paths(), [row(batch="a"), row(batch="b")])
    submitted(Paths())
    submitted(Paths(), 4, batch="validate-1", beside={"check": {"case": "c", "expect": {}, "fresh": False}})
    submitted(Paths(), 2, batch="second")
    monkeypatch.delenv(called.MARK)
    out, _ = ask("schedule")
    assert "batch validate-1: 0 of 4 good, 4 to come" in " ".join(out.split())
    with writing(Paths()) as db:
        first = db.execute("SELECT min(id) FROM jobs WHERE batch = 'validate-1'").fetchone()[0]
        db.execute("UPDATE jobs SET state = 'succeeded', outcome = 'ok', ended_at = submitted_at"
                   " WHERE batch = 'validate-1' AND id <> ?", (first + 1,))  # fmt: skip
        db.execute("UPDATE checks SET verdict = iif(job_id = ?, 'failed', 'passed'), open = 0", (first,))
        db.execute("UPDATE jobs SET state = 'failed', outcome = 'error', ended_at = submitted_at"
                   " WHERE id = ?", (first + 1,))  # fmt: skip
    with closing(Store(Paths())) as store, store.write() as tx:
        schedules.end(tx, int(run_id or 0), stamp(now_s()), 0, "")
    for words in (("schedule",), ("schedule", "show", "1")):
        out, _ = ask(*words)
        told = " ".join(out.split())
        assert "exit 0 after" in told and "; batch validate-1: 2 of 4 good" in told and "to come" not in told
        assert max(map(len, out.splitlines())) <= 80
    last = json.loads(ask("schedule", "show", "1", "--json")[0])["schedule"]["last"]
    assert last["batch"] == {"batch": "validate-1", "jobs": 4, "open": 0, "good": 2}
