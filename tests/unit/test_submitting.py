"""`submit` of many jobs, as its caller sees it: folders, files of jobs, what is said, and nothing half queued."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driven import Queue
from queues import asked, asking, submitted, writing

from scheduler.cli import bar, foretelling, submitting
from scheduler.cli.bar import Bar, line
from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.store import peek

Ask = Callable[..., tuple[int, str, str]]
DOWN = "note: no scheduler runs, so nothing starts yet; start it: schedq up\n"


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue(tmp_path)
    for slug in ("echo", "other"):
        made.provider(slug)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "in").mkdir()
    for name in ("b", "a"):
        (tmp_path / "in" / f"{name}.json").write_text(json.dumps({"say": name}))
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def ask(queue: Queue, capfd: pytest.CaptureFixture[str]) -> Iterator[Ask]:
    """A call: (exit code, stdout, stderr), never a fault of schedq itself."""

    yield asking(capfd)


def rows(name: str, *made: object) -> str:
    Path(name).write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in made) + "\n")
    return name


SAY = {"provider": "echo", "inline": {"say": "x"}}


def test_a_folder_is_its_files_in_order_and_what_is_left_out_is_said(ask: Ask) -> None:
    Path("in/notes.txt").touch()
    Path("in/deep").mkdir()
    left = "note: 2 entries left out, which are no files that echo takes: in/deep (a folder), in/notes.txt\n"
    assert ask("submit", "echo", "in") == (0, "1\n2\n", left + DOWN)
    assert asked(Paths(), "SELECT name FROM jobs ORDER BY id") == [("a",), ("b",)]
    Path("none").mkdir()
    code, out, err = ask("submit", "echo", "none", "x*", "in")
    assert (code, out, peek.last_id(Paths())) == (2, "", 2)
    assert err == (
        "schedq: none is a folder, and no file lies in it that ends in .json; name files, or another\n"
        "x* matches no file; correct the pattern\n"
    )


def test_a_file_that_is_named_twice_is_said(ask: Ask) -> None:
    code, out, err = ask("submit", "echo", "in/*.json", "in/", "./in/a.json")
    assert (code, out) == (0, "1\n2\n3\n4\n5\n")
    assert err == f"note: 3 inputs given more than once, and queued as often: in/a.json, in/b.json, ./in/a.json\n{DOWN}"
    assert "more than once" not in ask("submit", "echo", "in")[2]


def test_labels_and_a_begin_go_with_every_job_of_a_call(ask: Ask) -> None:
    code, out, _ = ask("submit", "echo", "in/", "--label", "team=x", "--label", "late", "--begin", "2h", "--json")
    assert (code, json.loads(out)) == (0, {"schema_version": 1, "ids": [1, 2], "batch": None})
    assert asked(Paths(), "SELECT label, job_id FROM labels ORDER BY 1, 2") == [
        ("late", 1), ("late", 2), ("team=x", 1), ("team=x", 2),
    ]  # fmt: skip
    [(blocked, begins)] = asked(Paths(), "SELECT DISTINCT blocked, not_before_at FROM jobs")
    assert blocked == "begin" and begins is not None
    assert ask("submit", "echo", "in", "--label", "=x")[0] == 2
    assert "is past" in ask("submit", "echo", "in", "--begin", "2020-01-01")[2]
    assert peek.last_id(Paths()) == 2


def test_a_key_that_holds_the_name_makes_a_second_call_the_same_jobs(ask: Ask) -> None:
    assert ask("submit", "echo", "in", "--key", "night-{name}")[:2] == (0, "1\n2\n")
    Path("in/c.json").write_text('{"say": "c"}')
    assert ask("submit", "echo", "in", "--key", "night-{name}")[:2] == (0, "1\n2\n3\n")
    assert "--key without {name} in it is one job's" in ask("submit", "echo", "in", "--key", "night")[2]
    Path("in/c.json").write_text('{"say": "d"}')
    code, _, err = ask("submit", "echo", "in", "--key", "night-{name}")
    assert code == 3 and "the key 'night-c' belongs to job 3, which asks echo for something else" in err


def test_a_file_of_jobs_is_queued_in_its_order_and_its_paths_are_against_its_folder(ask: Ask) -> None:
    rows("in/jobs.jsonl", {"provider": "other", "input": "b.json"}, {"input": "a.json", "name": "mine"}, SAY)
    assert ask("submit", "echo", "--from", "in/jobs.jsonl", "--batch", "n") == (0, "1\n2\n3\n", DOWN)
    assert asked(Paths(), "SELECT slug, name, batch FROM jobs ORDER BY id") == [
        ("other", "b", "n"), ("echo", "mine", "n"), ("echo", "jobs-3", "n"),
    ]  # fmt: skip


def test_jobs_come_from_standard_input_as_lines(queue: Queue) -> None:
    done = queue("submit", "--from", "-", stdin=json.dumps(SAY) + "\n" + json.dumps({**SAY, "input": "x"}))
    assert (done.code, done.out) == (2, "")
    assert "1 of 2 jobs cannot be queued, so none was:\n  line 2: has both input and inline" in done.err
    done = queue("submit", "--from", "-", stdin=json.dumps(SAY))
    assert (done.code, done.out) == (0, "1\n")
    assert queue("submit", "echo", "-", stdin='{"say": "x"}').out == "2\n"


def test_every_bad_row_is_named_at_once_also_what_only_the_queue_refuses(ask: Ask) -> None:
    ask("submit", "echo", "in/a.json", "--key", "k")
    path = rows("jobs.jsonl", SAY, "{", {**SAY, "key": "k"}, {**SAY, "prio": 1}, {**SAY, "input": "gone.json"})
    code, out, err = ask("submit", "--from", path)
    assert (code, out, peek.last_id(Paths())) == (2, "", 1)
    assert [each.partition(":")[2].partition(";")[0][:28] for each in err.splitlines()] == [
        " 4 of 5 jobs cannot be queue", " not JSON: column 2, at the ", " the key 'k' belongs to job ",
        ' unknown key "prio"', " has both input and inline",
    ]  # fmt: skip


def test_a_tenth_of_all_rows_bad_is_told_in_a_few_lines_and_a_file(ask: Ask) -> None:
    path = rows("jobs.jsonl", *({**SAY, "priority": "x"} if n % 10 == 3 else SAY for n in range(1000)))
    code, out, err = ask("submit", "--from", path)
    assert (code, out) == (2, "") and len(err.splitlines()) == 4
    assert err.startswith("schedq: 100 of 1000 jobs cannot be queued, so none was:\n  100 like line 4: priority = 'x'")
    assert err.endswith("    lines 4, 14, 24, 34, 44 and 95 more\nall of them: jobs.jsonl.faults.txt\n")
    assert len(Path("jobs.jsonl.faults.txt").read_text().splitlines()) == 101
    assert not os.path.exists(Paths().database)


def test_many_bad_inputs_that_were_named_one_by_one_are_summed_up_too(ask: Ask) -> None:
    for n in range(30):
        Path(f"in/bad{n}.json").write_text("{}")
    code, _, err = ask("submit", "echo", "in/*.json")
    assert code == 3 and "30 of 32 inputs cannot be queued, so none was:\n  30 like in/bad0.json: at the top" in err
    assert err.endswith("all of them: submit.faults.txt\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("submit",), "submit needs SLUG and INPUT, or --from FILE"),
        (("submit", "echo", "in/a.json", "--from", "jobs.jsonl"), "an INPUT was given too"),
        (("submit", "--from", "jobs.jsonl", "--name", "n"), "--name was given too"),
        (("submit", "--from", "jobs.jsonl", "--example"), "--example was given too"),
        (("submit", "--from", "jobs.jsonl", "--key", "k"), "--key without {name} in it is one job's"),
        (("submit", "--from", "gone.jsonl"), "gone.jsonl is not there"),
        (("submit", "echo", "in", "--resume"), "--resume goes on with a batch; name it: --batch NAME"),
        (("submit", "--from", "jobs.jsonl", "--resume"), "--resume needs a batch"),
        (("submit", "ehco", "in", "--dry-run"), "did you mean echo?"),
    ],
)  # fmt: skip
def test_a_call_that_contradicts_itself_is_refused_before_anything_is_read(
    ask: Ask, argv: tuple[str, ...], said: str
) -> None:
    rows("jobs.jsonl", SAY, SAY)
    code, out, err = ask(*argv)
    assert (code, out) == (2, "") and said in err
    assert not os.path.exists(Paths().database)


def test_a_batch_goes_on_where_it_stopped_and_says_how_many_of_each(ask: Ask) -> None:
    ask("submit", "echo", "in", "--batch", "night")
    with writing(Paths()) as db:
        db.execute("UPDATE jobs SET state = 'failed', outcome = 'error', ended_at = submitted_at WHERE id = 2")
    Path("in/c.json").write_text('{"say": "c"}')
    code, out, _ = ask("submit", "echo", "in", "--batch", "night", "--resume", "--dry-run")
    assert (code, out.splitlines()[1].split()[:4]) == (0, ["echo", "1", "1", "1"])
    assert asked(Paths(), "SELECT state FROM jobs WHERE id = 2") == [("failed",)]
    note = "note: batch night: 1 added, 1 opened again, 1 left as they are (0 succeeded, 1 not ended)\n"
    assert ask("submit", "echo", "in", "--batch", "night", "--resume") == (0, "1\n2\n3\n", note + DOWN)
    out = ask("submit", "echo", "in", "--batch", "night", "--resume", "--json")[1]
    assert json.loads(out)["resumed"] == {
        "added": 0, "reopened": 0, "replaced": 0, "succeeded": 0, "unended": 3,
    }  # fmt: skip


# What would be


def test_a_dry_run_says_what_would_be_queued_and_writes_nothing(ask: Ask, queue: Queue) -> None:
    path = rows("jobs.jsonl", SAY, {**SAY, "provider": "other"}, {**SAY, "priority": 2})
    code, out, err = ask("submit", "--from", path, "--dry-run")
    assert code == 0
    assert [each.split() for each in out.splitlines()] == [
        ["provider", "new", "again", "left", "done", "in", "first", "of", "them"],
        ["echo", "2", "0", "0", "?", "jobs-1"], ["other", "1", "0", "0", "?", "jobs-2"],
    ]  # fmt: skip
    assert err == (
        "nobody can tell when they should end: no job of echo, other has ended well here (nothing before them)\n"
        "nothing was queued\n"
    )
    assert not queue.home.joinpath("queue.db").exists()


def test_a_dry_run_tells_the_end_from_what_such_jobs_took_and_what_waits_before_them(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(Paths(), 9, slug="echo")
    submitted(Paths(), 2, slug="gone", state="held")
    with writing(Paths()) as db:
        db.execute("INSERT INTO timings VALUES ('echo', '', 3, 30.0, 3, 60.0)")
    monkeypatch.setattr(foretelling, "now_s", lambda: 1_800_000_000.0)
    monkeypatch.setenv("TZ", "UTC")
    code, out, err = ask("submit", "echo", "in/a.json", "--dry-run")
    assert (code, out.splitlines()[1].split()) == (0, ["echo", "1", "0", "0", "10m", "30s", "a"])
    assert err.splitlines()[0] == (
        "should end in 10m 30s, 15 Jan 08:10 (9 jobs before them; from what such jobs took so far; 2 that may not"
        " start yet are not counted)"
    )
    document = json.loads(ask("submit", "echo", "in/a.json", "--dry-run", "--json")[1])
    assert (document["ends_in_s"], document["ends_at"], document["ahead"]) == (630.0, stamp(1_800_000_630.0), 9)
    assert [(each["slug"], each["name"], each["fate"]) for each in document["jobs"]] == [("echo", "a", "added")]


def test_a_dry_run_foretells_no_end_of_what_may_not_start_yet(ask: Ask) -> None:
    submitted(Paths(), slug="echo")
    with writing(Paths()) as db:
        db.execute("INSERT INTO timings VALUES ('echo', '', 3, 30.0, 3, 60.0)")
    for word, said in (("--hold", "2 would be held until schedq release"), ("--after=1", "2 would come after other")):
        code, out, err = ask("submit", "echo", "in", "--dry-run", *word.split("="))
        assert code == 0 and out.splitlines()[1].split() == ["echo", "2", "0", "0", "?", "a"]
        assert err.startswith(said) and ": nobody can tell when these should end\nnothing" in err, err
        document = json.loads(ask("submit", "echo", "in", "--dry-run", "--json", *word.split("="))[1])
        assert (document["ends_in_s"], sum(document["not_counted"].values())) == (None, 2)
    draft = {"provider": "echo", "inline": {"say": {"$from": 1, "pointer": "/said"}}}
    _, out, err = ask("submit", "--from", rows("jobs.jsonl", SAY, {**SAY, "hold": True}, draft), "--dry-run")
    assert out.splitlines()[1].split()[4:] == ["2m", "30s", "jobs-1"]
    assert err.splitlines()[1] == (
        "1 would be held until schedq release and 1 would come after other jobs: that is without these"
    )


def test_a_dry_run_names_what_would_be_refused_with_the_exit_code_of_the_call(ask: Ask) -> None:
    submitted(Paths(), key="k")
    path = rows("jobs.jsonl", SAY, {**SAY, "key": "k"}, {**SAY, "begin": "soon"})
    code, out, err = ask("submit", "--from", path, "--dry-run")
    assert code == 2 and out.splitlines()[1].split()[:2] == ["echo", "1"]
    assert err.startswith("schedq: 2 of 3 jobs cannot be queued, so none would be:\n  line 2: the key 'k' belongs")
    assert err.endswith("nothing was queued\n")
    refused = json.loads(ask("submit", "--from", path, "--dry-run", "--json")[1])["refused"]
    assert [(each["where"], each["exit_code"]) for each in refused] == [("line 2", 3), ("line 3", 2)]
    rows("many.jsonl", *({**SAY, "begin": "soon"} for _ in range(30)))
    assert "30 like line 1: begin 'soon'" in ask("submit", "--from", "many.jsonl", "--dry-run")[2]
    assert not Path("many.jsonl.faults.txt").exists()


# A begin that is changed


def test_a_begin_is_given_moved_and_taken_away(ask: Ask) -> None:
    submitted(Paths(), 2)
    submitted(Paths(), state="held")

    def row(job: int) -> tuple[object, ...]:
        [found] = asked(Paths(), f"SELECT state, blocked, not_before_at IS NULL FROM jobs WHERE id = {job}")
        return found

    code, _, err = ask("update", "1,3", "--begin", "2h")
    assert code == 0 and "job 1: --begin now -> 20" in err
    assert (row(1), row(2), row(3)) == (("queued", "begin", 0), ("queued", None, 1), ("held", None, 0))
    ask("release", "3")
    assert row(3) == ("queued", "begin", 0)
    assert ask("update", "1,3", "--begin", "now")[0] == 0
    assert (row(1), row(3)) == (("queued", None, 1), ("queued", None, 1))
    assert "nothing changed" in ask("update", "1", "--begin", "now")[2]
    assert "is no moment" in ask("update", "1", "--begin", "x")[2]


def test_a_begin_of_a_job_that_waits_at_a_gate_counts_when_that_lets_it_through(ask: Ask) -> None:
    submitted(Paths())
    submitted(Paths(), beside={"after": ["1"]})
    assert ask("update", "2", "--begin", "2h")[0] == 0
    assert asked(Paths(), "SELECT blocked, not_before_at IS NULL FROM jobs WHERE id = 2") == [("after", 0)]


# The bar


def test_a_bar_says_how_much_is_done_and_how_long_the_rest_takes() -> None:
    assert line("checking", 0, 2000, 9.0) == "checking [------------------------] 0 of 2,000"
    assert line("checking", 500, 2000, 10.0) == "checking [######------------------] 500 of 2,000, 30s left"
    assert line("queueing", 2000, 2000, 10.0) == "queueing [########################] 2,000 of 2,000, 0s left"


def test_a_bar_is_drawn_on_a_terminal_only_and_never_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    at_s, shown, free = [0.0], [], [True]
    monkeypatch.setattr(bar, "monotonic_s", lambda: at_s[0])
    monkeypatch.setattr(bar, "_takes_more", lambda: free[0])
    made = Bar("checking", 100)
    made._ticker.on = True
    monkeypatch.setattr(made._ticker, "show", shown.append)
    for seconds, done in ((0.1, 1), (0.5, 2), (0.55, 3), (0.7, 4)):
        at_s[0] = seconds
        made(done)
    free[0], at_s[0] = False, 2.0
    made(5)
    assert [each.partition("] ")[2] for each in shown] == ["2 of 100", "4 of 100"]
    made._ticker.on = False
    free[0], at_s[0] = True, 3.0
    made(6)
    assert len(shown) == 2


def test_a_thousand_jobs_and_more_show_a_bar(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(submitting, "MANY", 3)
    monkeypatch.setattr(submitting, "Bar", lambda what, total: made.append(f"{what} {total}") or Bar(what, total))
    assert ask("submit", "--from", rows("jobs.jsonl", *[SAY] * 4))[0] == 0
    assert made == ["checking 4", "queueing 4"]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_rows_that_come_after_others_are_looked_at_beside_bad_ones(ask: Ask, more: tuple[str, ...]) -> None:
    chain = {"provider": "echo", "inline": {"say": {"$from": "k", "pointer": "/said"}}}
    name = rows(
        "jobs.jsonl", {**SAY, "inline": {"say": ""}, "key": "k"}, {**SAY, "after": 77}, {**SAY, "after": "k"}, chain,
        {**SAY, "after": "c", "key": "b"}, {**SAY, "after": "b", "key": "c"}, {**SAY, "prio": 1, "key": "odd"},
        {**SAY, "after": "odd"}, '{"name": "torn", "inline": ', {**SAY, "after": "torn"}, {**SAY, "after": "nobody"},
    )  # fmt: skip
    code, out, err = ask("submit", "--from", name, *more)
    named = [line.strip().partition(":")[0] for line in err.splitlines() if line.startswith("  line ")]
    assert named == ["line 1", "line 2", "line 5", "line 7", "line 9", "line 11"], err
    assert "schedq: 6 of 11 jobs cannot be queued" in err
    assert (code, peek.last_id(Paths())) == (2, None), out


def test_a_row_of_a_table_that_is_none_can_still_be_come_after(ask: Ask) -> None:
    Path("jobs.csv").write_bytes(
        b'provider,inline,key,after\necho,"{""say"": ""\xdf""}",a,\necho,"{""say"": ""x""}",b,a\n'
        b'echo,"{""say"": ""x""}",c,b,more\necho,"{""say"": ""x""}",d,c;a\n'
    )
    _, _, err = ask("submit", "--from", "jobs.csv")
    assert [line.strip().partition(":")[0] for line in err.splitlines()[1:]] == ["line 2", "line 4"], err


def bad(*ids: int) -> None:
    """These jobs fail."""
    with writing(Paths()) as db:
        for job_id in ids:
            db.execute(
                "UPDATE jobs SET state = 'failed', outcome = 'error', ended_at = submitted_at WHERE id = ?", (job_id,)
            )


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_slip_in_the_name_of_a_batch_to_resume_queues_nothing(ask: Ask, more: tuple[str, ...]) -> None:
    ask("submit", "echo", "in", "--batch", "night")
    code, out, err = ask("submit", "echo", "in", "--batch", "nigth", "--resume", *more)
    assert (code, out) == (4, "") and "no job has the batch 'nigth'; did you mean night?" in err
    assert peek.last_id(Paths()) == 2
    Path("in/x.json").write_text("{")
    assert ask("submit", "echo", "in", "--batch", "nigth", "--resume", *more)[0] == 4  # whatever else is wrong


def test_the_first_evening_of_a_batch_is_no_resume(ask: Ask) -> None:
    code, out, err = ask("submit", "echo", "in", "--batch", "night", "--resume")
    assert (code, out) == (4, "") and err.endswith("the first time, leave out --resume\n")
    assert peek.last_id(Paths()) is None


@pytest.mark.parametrize("key", [(), ("--key", "n-{name}")])
def test_an_input_that_was_mended_makes_its_batch_whole(ask: Ask, key: tuple[str, ...]) -> None:
    call = ("submit", "echo", "in", "--batch", "night", *key)
    ask(*call)
    bad(2)
    Path("in/b.json").write_text('{"say": "mended"}')
    code, out, err = ask(*call, "--resume", "--dry-run")
    assert (code, out.splitlines()[1].split()[:4]) == (0, ["echo", "0", "1", "1"])
    assert "1 of those again with its request replaced by this one" in err
    note = "note: batch night: 0 added, 0 opened again, 1 opened again with its request replaced, 1 left as they are"
    code, out, err = ask(*call, "--resume")
    assert (code, out) == (0, "1\n2\n") and err.startswith(note)
    found = peek.job(Paths(), 2)
    assert (found["state"], found["batch"]) == ("queued", "night")
    told = next(each["text"] for each in found["story"] if each["event"] == "replaced")
    assert told.startswith("replaced: input (sha256 ") and found["input_sha256"][:12] in told
    assert "its request was replaced: input (sha256" in " ".join(ask("show", "2")[1].split())
    assert json.loads(ask(*call, "--resume", "--json")[1])["resumed"]["unended"] == 2


def test_names_that_could_mean_several_jobs_are_added_and_that_is_said(ask: Ask) -> None:
    for folder in ("one", "two"):
        Path(folder).mkdir()
        Path(folder, "a.json").write_text(f'{{"say": "{folder}"}}')
        ask("submit", "echo", folder, "--batch", "night")
    bad(1, 2)
    Path("one/a.json").write_text('{"say": "mended"}')
    code, out, err = ask("submit", "echo", "one", "--batch", "night", "--resume")
    assert (code, out) == (0, "3\n") and "note: 1 added though jobs of that batch that did not succeed have" in err


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_each_child_of_a_batch_is_queued_though_a_parent_of_one_has_just_failed(
    ask: Ask, more: tuple[str, ...]
) -> None:
    ask("submit", "echo", "in", "--batch", "gen1")
    bad(2)
    would = "would" if more else "will"
    code, _, err = ask("submit", "echo", "in/a.json", "--each-after", "gen1", *more)
    note = f"note: 1 of these {would} end failed in the scheduler's next turn, for the parent that it comes after has"
    assert code == 0 and note in err
    code, _, err = ask("submit", "echo", "in/a.json", "--after", "2", *more)
    assert code == 3 and "needs it to succeed" in err
    path = rows("next.jsonl", {**SAY, "after": 1}, {**SAY, "after": 2}, {**SAY, "after": "gen1"})
    code, _, err = ask("submit", "--from", path, *more)
    assert code == 0 and f"note: 2 of these {would} end failed" in err


def test_hints_can_be_copied_into_a_shell_whatever_a_batch_is_called(ask: Ask) -> None:
    ask("submit", "echo", "in", "--batch", "two words; rm")
    bad(1)
    err = ask("submit", "echo", "in/a.json", "--after", "two words; rm")[2]
    assert "schedq requeue --batch 'two words; rm' tries again, --after 'two words; rm:any' takes any end" in err


def test_a_batch_has_no_name_that_cannot_be_seen(ask: Ask) -> None:
    for wrong in ("a\nb", "a\x1b[2J", "a\tb", "\u200b"):
        code, out, err = ask("submit", "echo", "in", "--batch", wrong)
        assert (code, out) == (2, "") and "must be a name without line ends and other characters" in err
        code, _, err = ask("submit", "--from", rows("jobs.jsonl", {**SAY, "batch": wrong}))
        assert code == 2 and err.startswith("schedq: jobs.jsonl, line 1: batch = ")
    assert peek.last_id(Paths()) is None


def test_the_only_row_of_a_file_has_its_place_in_what_is_said_of_it(ask: Ask) -> None:
    for row, said in (
        ({}, "names no provider"), ({"provider": "echo"}, "has no input"), ({**SAY, "after": 77}, "--after 77: there"),
        ("{", "not JSON: column 2, at the end of the line"), ({**SAY, "inline": {}}, "at the top"),
        ({**SAY, "out": "o/{nme}"}, "--out 'o/{nme}': {nme} is none of {name} {id} {slug} {batch}; did you mean"),
    ):  # fmt: skip
        for more in ((), ("--dry-run",)):
            code, _, err = ask("submit", "--from", rows("one.jsonl", row), *more)
            assert code and f"schedq: one.jsonl, line 1: {said}" in err, err


def test_what_is_wrong_with_all_inputs_alike_is_said_once(ask: Ask) -> None:
    Path("in/c.json").write_text('{"say": "c"}')
    err = ask("submit", "echo", "in", "--out", "out/{nme}")[2]
    assert err == "schedq: --out 'out/{nme}': {nme} is none of {name} {id} {slug} {batch}; did you mean {name}?\n"
    err = ask("submit", "echo", "in", "--out", "out/{batch}")[2]
    assert err.splitlines()[1:] == ["  all 3: --out 'out/{batch}' needs a --batch"]
    err = ask("submit", "echo", "in", "--out", "fixed")[2]
    assert len(err.splitlines()) == 2 and "  in/b.json, in/c.json: would go to " in err
    assert ", where the outputs of in/a.json go; put {name} or {id} into --out so that each has its own" in err


def test_a_second_call_with_keys_says_what_was_there_already(ask: Ask) -> None:
    call = ("submit", "echo", "in", "--key", "k-{name}")
    assert "already" not in ask(*call)[2]
    Path("in/c.json").write_text('{"say": "c"}')
    assert ask(*call) == (0, "1\n2\n3\n", "note: 1 queued, 2 were there already\n" + DOWN)


def test_a_link_that_leads_nowhere_is_named_and_no_input_is_left_out_for_it(ask: Ask) -> None:
    for name, to in (("loop", "loop.json"), ("gone", "nothing.json")):
        os.symlink(to, f"in/{name}.json")
    os.symlink("gone", "in/other.txt")
    code, out, err = ask("submit", "echo", "in/")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "schedq: in/gone.json is a link to nothing.json, which is not there; correct the link",
        "in/loop.json cannot be read: Too many levels of symbolic links",
    ]
    for name in ("loop", "gone"):
        os.unlink(f"in/{name}.json")
    os.mkfifo("in/pipe.json")
    Path("in/x.json").mkdir()
    code, out, err = ask("submit", "echo", "in/")
    assert (code, out) == (0, "1\n2\n") and err.startswith(
        "note: 3 entries left out, which are no files that echo takes: in/other.txt (a link that leads nowhere),"
        " in/pipe.json (a pipe), in/x.json (a folder)\n"
    )
