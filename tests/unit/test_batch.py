"""Many jobs in one call: rows of a file with their own options, all or nothing, and a batch that is submitted again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from driven import Queue
from queues import asked, row, submitted, writing

from scheduler.client import Client
from scheduler.clock import now_at
from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Refused, SchedqError, UsageError
from scheduler.inputs import jobs_file
from scheduler.night.batch import Batch, words
from scheduler.store import intake, peek


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue(tmp_path)
    for slug in ("echo", "other"):
        made.provider(slug)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def batch_of(queue: Queue, *rows: dict[str, Any], slug: str = "", **base: Any) -> Batch:
    """The rows of a file, checked."""
    path = queue.folder / "in" / "jobs.jsonl"
    path.parent.mkdir(exist_ok=True)
    (path.parent / "a.json").write_text('{"say": "a"}')
    path.write_text("\n".join(json.dumps(each) for each in rows))
    made = Batch(Client(), slug, base)
    made.add_all(jobs_file.read(str(path)))
    return made


def faults(batch: Batch) -> list[str]:
    return [str(error) for _, _, error in batch.asking.faults]


SAY = {"inline": {"say": "x"}}


def test_a_row_says_of_its_job_what_the_options_of_a_call_say(queue: Queue) -> None:
    full = {
        "provider": "other", "input": "a.json", "name": "n", "key": "k", "priority": 7, "batch": "b",
        "out": "results/{name}",
        "labels": ["x", "team=y"], "params": {"loud": True}, "timeout": "90s", "begin": "2h", "max_attempts": 4,
        "retry_on": "crashed", "on_lost": "hold", "overwrite": True, "after": ["1", "k2:any"], "on_parent": "hold",
    }  # fmt: skip
    batch = batch_of(queue, full, {**SAY, "hold": True})
    assert faults(batch) == ["names no provider; write one into the key provider, or name it before --from"]
    [made] = batch.asking.rows
    assert made["beside"] == {"labels": ["x", "team=y"], "after": ["1", "k2:any"], "own": ["1", "k2:any"]}
    assert made["data"] == b'{"say": "a"}'
    assert made["not_before_at"] > now_at() and made["blocked"] == "begin"
    expected = {
        "slug": "other", "input_name": "a.json", "name": "n", "key": "k", "priority": 7, "batch": "b",
        "out": str(queue.folder / "in/results/n"), "params": {"loud": True, "stubborn": False}, "timeout_s": 90.0,
        "max_attempts": 4, "retry_on": "crashed", "on_lost": "hold", "overwrite": True, "on_parent": "hold",
        "state": "queued", "where": "line 1",
    }  # fmt: skip
    assert {key: made[key] for key in expected} == expected


def test_what_a_row_does_not_say_the_call_says_for_all(queue: Queue) -> None:
    base = {"priority": 2, "batch": "night", "labels": ["all"], "params": ["loud=true"], "key": "night-{name}"}
    batch = batch_of(
        queue, {**SAY, "provider": "other"}, {**SAY, "priority": 0, "labels": ["one"], "params": {"loud": False}},
        slug="echo", **base,
    )  # fmt: skip
    assert faults(batch) == []
    one, two = batch.asking.rows
    assert (one["slug"], one["priority"], one["batch"], one["key"]) == ("other", 2, "night", "night-jobs-1")
    assert (two["slug"], two["priority"], two["name"], two["key"]) == ("echo", 0, "jobs-2", "night-jobs-2")
    assert (one["params"]["loud"], two["params"]["loud"]) == (True, False)
    assert (one["beside"], two["beside"]) == ({"labels": ["all"]}, {"labels": ["all", "one"]})


def test_an_inline_input_is_what_a_program_would_give(queue: Queue) -> None:
    batch = batch_of(queue, {"input": {"say": "ä"}}, {"inline": '{"say": "ä"}', "key": "k"}, slug="echo")
    assert [(each["data"], each["name"], each["input_name"]) for each in batch.asking.rows] == [
        (b'{"say": "\\u00e4"}', "jobs-1", "input.json"), ('{"say": "ä"}'.encode(), "k", "input.json"),
    ]  # fmt: skip
    one, _two = Client().enqueue(batch.asking.rows)
    assert Client().submit("echo", {"say": "ä"}, key="again") != one
    assert peek.job(Paths(), one)["input_sha256"] == peek.job(Paths(), one + 2)["input_sha256"]


def test_a_table_has_texts_and_columns_for_parameters(queue: Queue) -> None:
    path = queue.folder / "jobs.csv"
    path.write_text(
        "provider,inline,labels,priority,params.loud,params,hold,overwrite\n"
        'echo,"{""say"": ""q""}",a;b=2,+5,true,,yes,no\n'
        'echo,"{""say"": ""q""}","a, c",,,"{""stubborn"": true}",,\n'
        "echo,{},,x,,,maybe,\n"
    )
    batch = Batch(Client(), "", {})
    batch.add_all(jobs_file.read(str(path)))
    one, two = batch.asking.rows
    assert (one["priority"], one["state"], one["params"]["loud"]) == (5, "held", True)
    assert (one["beside"]["labels"], two["beside"]["labels"]) == (["a", "b=2"], ["a", "c"])
    assert two["params"] == {"loud": False, "stubborn": True}
    assert faults(batch) == [
        "priority = 'x': must be a whole number between -9223372036854775808 and 9223372036854775807"
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"provider": "ecko", **SAY}, "no provider 'ecko'; did you mean echo?"),
        ({"provider": 5, **SAY}, "names no provider"),
        ({}, "has no input: input is the path of a file"),
        ({"input": "a.json", **SAY}, "has both input and inline; keep one"),
        ({"input": "b.json"}, "in/b.json is not there; did you mean"),
        ({"input": "-"}, "input = '-': must be the path of a file"),
        ({"inline": 5}, "inline = 5: must be the document itself"),
        ({"inline": {"say": ""}}, "line 1: at /say: must have at least 1 character"),
        ({**SAY, "priority": 1.5}, "priority = 1.5: must be a whole number"),
        ({**SAY, "timeout": 90}, "timeout = 90: must be a duration with its unit"),
        ({**SAY, "timeout": "0s"}, "timeout 0s would end every attempt at once"),
        ({**SAY, "begin": "soon"}, "begin 'soon' is no moment"),
        ({**SAY, "hold": "perhaps"}, "hold = 'perhaps': must be True or False"),
        ({**SAY, "labels": "a b,=c"}, "labels = '=c': must be NAME or NAME=VALUE"),
        ({**SAY, "params": [1]}, "params = [1]: must be an object"),
        ({**SAY, "params": {"lout": True}}, 'params: "lout": echo has no such parameter; did you mean loud?'),
        ({**SAY, "after": {"a": 1}}, 'after = {"a": 1}: must be a job\'s id'),
        ({**SAY, "out": "/proc/x"}, "the destination /proc/x cannot be made"),
        ({**SAY, "on_lost": "cry"}, "on_lost = 'cry': must be one of requeue, hold, fail"),
        ({**SAY, "name": 7}, "name = 7: must be text"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_said_and_nothing_else_is(queue: Queue, wrong: dict[str, Any], said: str) -> None:
    batch = batch_of(queue, wrong, SAY, slug="echo")
    [fault] = faults(batch)
    assert said in fault
    assert [each["where"] for each in batch.asking.rows] == ["line 2"]


def test_what_a_job_comes_after_is_a_list_of_words() -> None:
    assert (words(7), words("7:any k"), words("a;b"), words([7, "k:any"])) == (
        ["7"], ["7:any", "k"], ["a", "b"], ["7", "k:any"],
    )  # fmt: skip
    assert words('"night one";7 "the last one":any') == ["night one", "7", "the last one:any"]
    for wrong in (True, [True], False, [False], 1.5, {}):
        with pytest.raises(UsageError, match="must be a job's id, a batch, a key or a name"):
            words(wrong)


def test_each_job_of_a_batch_gets_its_own_child_or_none_does(queue: Queue) -> None:
    client = Client()
    first = [client.submit("echo", {"say": "x"}, name="same", batch="first") for _ in range(2)]
    after = {"each_after": "first", "batch": "second"}
    with pytest.raises(UsageError, match=r"jobs 1 and 2 of first would have children with one key, 'k-same', so one"):
        client.submit_many("echo", [{"say": "y"}], key="k-{name}", **after)
    assert peek.last_id(Paths()) == 2
    made = client.submit_many("echo", [{"say": "y"}], key="k-{name}-{parent}", **after)
    assert [peek.job(Paths(), each)["key"] for each in made] == ["k-same-1", "k-same-2"]
    assert [[gate["id"] for gate in peek.job(Paths(), each)["parents"]] for each in made] == [[each] for each in first]
    assert client.submit_many("echo", [{"say": "y"}], key="k-{name}-{parent}", **after) == made


def test_one_key_for_rows_that_come_after_different_jobs_is_refused(queue: Queue) -> None:
    client = Client()
    client.submit_many("echo", [{"say": "a"}, {"say": "b"}])
    keyed = {**SAY, "key": "k"}
    batch = batch_of(queue, {**keyed, "after": 1}, {**keyed, "after": 2}, slug="echo")
    for _ in range(2):
        with pytest.raises(Refused, match="the key 'k' is that of another row of this call, which comes after another"):
            client.enqueue(batch.asking.rows)
        same = batch_of(queue, {**keyed, "after": 1}, {**keyed, "after": 1}, slug="echo")
        assert client.enqueue(same.asking.rows) == [3, 3]


@pytest.mark.parametrize("wrong", [0, "0"])
def test_a_job_that_there_never_is_is_no_parent(queue: Queue, wrong: object) -> None:
    batch = batch_of(queue, {**SAY, "after": wrong}, {**SAY, "after": False}, {**SAY, "after": []}, slug="echo")
    assert faults(batch) == ["after = false: must be a job's id, a batch, a key or a name, or a list of them"]
    with pytest.raises(NoSuchJob, match="there is no job 0 in this queue"):
        Client().enqueue(batch.asking.rows)
    with pytest.raises(NoSuchJob, match="there is no job 0 in this queue"):
        Client().submit("echo", {"say": "x"}, after=0)
    with pytest.raises(UsageError, match="after = False: must be a job's id"):
        Client().submit("echo", {"say": "x"}, after=False)


def test_an_input_in_a_row_may_not_be_larger_than_one_in_a_file(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDQ_INPUT_MAX_MIB", "0.001")
    large = {"say": "x" * 1100}
    batch = batch_of(queue, {"inline": large}, {"input": large}, {"inline": json.dumps(large)}, SAY, slug="echo")
    assert len(faults(batch)) == 3
    assert faults(batch)[0].startswith("line 1 has 1111 bytes (0.0 MiB), and an input may have 1048 (0.0 MiB); make it")
    with pytest.raises(SchedqError, match="the input has 1111 bytes"):
        Client().submit("echo", large)


def test_what_a_row_cannot_hold_is_read_where_it_is_kept_and_not_before(queue: Queue) -> None:
    large = json.dumps({"say": "x" * 70_000})
    (queue.folder / "in").mkdir()
    (queue.folder / "in" / "large.json").write_text(large)
    batch = batch_of(queue, {"input": "large.json"}, {"input": "a.json"}, {"inline": large}, slug="echo")
    assert [len(each.get("data") or b"") for each in batch.asking.rows] == [0, 12, len(large)]
    ids = Client().enqueue(batch.asking.rows)
    assert [peek.input_bytes(Paths(), each) for each in ids] == [large.encode(), b'{"say": "a"}', large.encode()]


def test_two_rows_with_one_destination_are_named(queue: Queue) -> None:
    batch = batch_of(queue, SAY, SAY, {**SAY, "out": "two"}, slug="echo", out=str(queue.folder / "out"))
    assert faults(batch) == [
        f"would go to {queue.folder}/out, where the outputs of line 1 go; put {{name}} or {{id}} into --out so that"
        " each has its own"
    ]


# Many rows into the queue


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "home"))


def test_every_row_that_the_queue_refuses_is_named_and_none_goes_in(paths: Paths, tmp_path: Path) -> None:
    submitted(paths, key="k")
    submitted(paths, out=str(tmp_path / "out"))
    rows = [
        row(key="k", data=b"{}", where="line 1"), row(), row(out=str(tmp_path / "out"), where="line 3"),
        row(key="m"), row(key="m", data=b"{}", name="fifth"),
    ]  # fmt: skip
    with pytest.raises(Refused) as error:
        intake.submit(paths, rows)
    assert str(error.value).splitlines()[0] == "3 of 5 jobs cannot be queued, so none was:"
    assert [(index, where) for index, where, _ in error.value.faults] == [(0, "line 1"), (2, "line 3"), (4, "fifth")]
    assert peek.last_id(paths) == 2
    fates, seen = intake.foretold(paths, rows)
    assert fates == ["refused", "added", "refused", "added", "refused"]
    assert [(index, str(why)) for index, _, why in seen] == [(index, str(why)) for index, _, why in error.value.faults]


def test_what_a_call_would_do_is_told_before_there_is_a_queue_and_nothing_is_made(paths: Paths) -> None:
    fates, seen = intake.foretold(paths, [row(key="a"), row(key="a"), row(key="a", data=b"other")])
    assert (fates, [index for index, _, _ in seen]) == (["added", "known", "refused"], [2])
    assert not Path(paths.home).exists()


def test_who_is_told_how_far_it_is_hears_of_every_row(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "AT_ONCE", 4)
    heard: list[int] = []
    submitted(paths, key="k")
    intake.submit(paths, [row(key="k"), *(row() for _ in range(10))], tell=heard.append)
    assert heard == [5, 9, 11]


def end(paths: Paths, job_id: int, state: str, outcome: str = "ok") -> None:
    with writing(paths) as db:
        db.execute(
            "UPDATE jobs SET state = ?, ended_at = submitted_at, outcome = ?, tries = 2, attempt = 2 WHERE id = ?",
            (state, outcome, job_id),
        )


def test_a_batch_that_is_submitted_again_goes_on_where_it_stopped(paths: Paths) -> None:
    rows = [row(name=f"n{n}", batch="night", data=b"%d" % n, params={"b": 1, "a": 2}) for n in range(6)]
    assert intake.submit(paths, rows[:5]) == [1, 2, 3, 4, 5]
    for job_id, state in ((1, "succeeded"), (2, "failed"), (3, "cancelled"), (4, "timed_out")):
        end(paths, job_id, state, "error")
    again = [{**each, "params": '{"a":2,"b":1}', "revision": "r2", "size": 9.0} for each in rows]
    assert intake.foretold(paths, again, resume=True) == (
        ["succeeded", "reopened", "reopened", "reopened", "unended", "added"], [],
    )  # fmt: skip
    fates: list[str] = []
    assert intake.submit(paths, again, resume=True, fates=fates) == [1, 2, 3, 4, 5, 6]
    assert fates == ["succeeded", "reopened", "reopened", "reopened", "unended", "added"]
    columns = "state, tries, attempt, outcome, ended_at, revision, size"
    assert asked(paths, f"SELECT {columns} FROM jobs WHERE id = 2") == [("queued", 0, 2, None, None, "r2", 9.0)]
    assert asked(paths, "SELECT state, revision FROM jobs WHERE id IN (1, 5)") == [
        ("succeeded", "r1"),
        ("queued", "r1"),
    ]
    assert asked(paths, "SELECT text FROM events WHERE job_id = 2 AND event = 'requeue'") == [
        ("was failed; its batch was submitted again",)
    ]
    assert asked(paths, "SELECT jobs, open, succeeded FROM batches") == [(6, 5, 1)]
    assert intake.submit(paths, again, resume=True) == [1, 2, 3, 4, 5, 6]


def test_two_rows_that_ask_for_the_same_mean_two_jobs_of_the_batch(paths: Paths) -> None:
    assert intake.submit(paths, [row(batch="b"), row(batch="b")]) == [1, 2]
    end(paths, 1, "succeeded")
    fates: list[str] = []
    assert intake.submit(paths, [row(batch="b")] * 3, resume=True, fates=fates) == [1, 2, 3]
    assert fates == ["succeeded", "unended", "added"]


def test_what_was_changed_since_or_belongs_elsewhere_is_added(paths: Paths) -> None:
    intake.submit(paths, [row(batch="b"), row(batch="c"), row(batch="d", name="elsewhere")])
    end(paths, 1, "succeeded")
    for other in ({"data": b"new"}, {"name": "other"}, {"params": {"seed": 2}}, {"slug": "esm"}, {"batch": "d"}):
        fates: list[str] = []
        intake.submit(paths, [row(**{"batch": "b", **other})], resume=True, fates=fates)
        assert fates == ["added"]
    with writing(paths) as db:
        db.execute("UPDATE jobs SET pruned_at = submitted_at, state = 'failed' WHERE id = 1")
    assert intake.foretold(paths, [row(batch="b")], resume=True)[0] == ["added"]


def test_the_job_of_a_key_is_opened_again_too(paths: Paths) -> None:
    intake.submit(paths, [row(batch="b", key="k")])
    end(paths, 1, "failed", "error")
    fates: list[str] = []
    assert intake.submit(paths, [row(batch="b", key="k")] * 2, resume=True, fates=fates) == [1, 1]
    assert fates == ["reopened", "unended"]


def test_what_cannot_be_opened_again_keeps_all_of_the_call_out(paths: Paths, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    intake.submit(paths, [row(batch="b", out=out)])
    end(paths, 1, "failed", "error")
    submitted(paths, out=out)
    with pytest.raises(Refused, match=r"job 2 \(queued\) has the destination .* of job 1 now"):
        intake.submit(paths, [row(batch="b", out=out), row(batch="b", name="new")], resume=True)
    assert asked(paths, "SELECT id, state FROM jobs") == [(1, "failed"), (2, "queued")]
    with pytest.raises(SchedqError, match="--resume needs a batch"):
        intake.submit(paths, [row()], resume=True)
