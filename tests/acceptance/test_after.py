"""Jobs that come after others, as people queue them: --after, --each-after, and inputs that take results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driven import Queue, eventually


@pytest.fixture
def queue(queue: Queue) -> Queue:
    queue.provider()
    return queue


def draft(queue: Queue, name: str = "draft.json", **body: object) -> str:
    path = queue.folder / name
    path.write_text(json.dumps(body))
    return str(path)


def state(queue: Queue, job_id: int | str) -> str:
    return str(queue("show", str(job_id), "--json").json["state"])


def test_what_one_answers_is_what_the_next_is_asked(queue: Queue) -> None:
    assert queue("up").code == 0
    gate = queue.folder / "go"
    first = queue(
        "submit", "echo", queue.input(say="from the first", wait_for=str(gate), write="x.txt"), "--batch", "b"
    )
    assert first.out == "1\n", first
    values = draft(queue, say={"$from": "parent", "pointer": "/said"})
    text = draft(queue, "text.json", say={"$from": 1, "file": "*.txt"})
    assert queue("submit", "echo", values, "--after", "1").out == "2\n"
    assert queue("submit", "echo", text).out == "3\n"
    assert queue("submit", "echo", queue.input("b.json"), "--after", "b:any", "--name", "plain").out == "4\n"
    waits = queue("show", "2")
    assert "comes after job 1 (a), which" in " ".join(waits.out.split()), waits
    assert queue("show", "1").out.count("children") == 1
    why = queue("why", "3")
    assert "its input takes what job 1 answers" in " ".join(why.out.split()), why
    gate.touch()
    done = queue("wait", "1-4", "--timeout", "60s")
    assert done.code == 0, done
    assert queue("result", "2").json["said"] == "from the first"
    assert queue("result", "3").json["said"] == "DATA\n"
    shown = queue("show", "2", "--json").json
    assert shown["parents"][0]["id"] == 1 and shown["draft"]["made_at"], shown
    assert "its input was made" in queue("show", "2").out
    assert queue("show", "1", "--json").json["children"]["count"] == 3
    assert queue("db", "check").code == 0


def test_a_result_that_is_not_there_or_does_not_fit_ends_the_job_with_the_place(queue: Queue) -> None:
    assert queue("up").code == 0
    assert queue("submit", "echo", queue.input(say="x", write="x.txt")).out == "1\n"
    for name, ref in (
        ("typo", {"$from": 1, "pointer": "/siad"}),
        ("number", {"$from": 1, "pointer": "/count"}),
        ("file", {"$from": 1, "file": "y.txt"}),
    ):
        assert queue("submit", "echo", draft(queue, f"{name}.json", say=ref)).code == 0
    assert queue("wait", "2-4", "--timeout", "60s").code == 1
    typo, number, file = (queue("show", str(each), "--json").json["outcome"] for each in (2, 3, 4))
    assert typo["kind"] == "parent_failed" and "job 1 (echo a): the reply has nothing at '/siad'" in typo["text"], typo
    assert "said" in typo["text"]
    assert number["kind"] == "refused" and "at /say: must be text, not 1" in number["text"], number
    assert file["kind"] == "parent_failed" and "job 1 (echo a) has no output y.txt" in file["text"], file
    assert "x.txt" in file["text"]


def test_a_batch_after_a_batch_one_by_one(queue: Queue) -> None:
    assert queue("up").code == 0
    for name in ("alpha", "beta"):
        queue.input(f"{name}.json", say=f"I am {name}")
    assert queue("submit", "echo", "alpha.json", "beta.json", "--batch", "first").out == "1\n2\n"
    again = draft(queue, say={"$from": "parent", "pointer": "/said"})
    made = queue("submit", "echo", again, "--each-after", "first", "--batch", "second", "--out", "out/{name}")
    assert made.out == "3\n4\n", made
    wrong = queue("submit", "echo", "alpha.json", "beta.json", again, "--each-after", "first")
    assert wrong.code == 2 and "it has 2 jobs, and 3 inputs were given" in wrong.err, wrong
    assert queue("wait", "--batch", "second", "--timeout", "60s").code == 0
    assert [queue("show", str(each), "--json").json["name"] for each in (3, 4)] == ["alpha", "beta"]
    assert [queue("result", str(each)).json["said"] for each in (3, 4)] == ["I am alpha", "I am beta"]
    assert (queue.folder / "out" / "alpha").is_dir()


def test_what_cannot_come_after_is_refused_and_nothing_is_queued(queue: Queue, tmp_path: Path) -> None:
    a = queue.input()
    missing = queue("submit", "echo", a, "--after", "77")
    assert missing.code == 4 and "there is no job 77" in missing.err and missing.out == "", missing
    batch = queue("submit", "echo", a, "--batch", "night", "--after", "night")
    assert batch.code == 4 and "those of this call are not meant" in batch.err, batch
    circle = tmp_path / "jobs.jsonl"
    circle.write_text(
        "\n".join(
            json.dumps({"provider": "echo", "inline": {"say": "x"}, "key": key, "after": after})
            for key, after in (("a", "b"), ("b", "a"))
        )
    )
    turned = queue("submit", "--from", str(circle))
    assert turned.code == 2 and "waits for itself: a -> b -> a" in turned.err, turned
    bad = queue("submit", "echo", draft(queue, say={"$from": 1, "pointre": "/x"}))
    assert bad.code == 3 and 'at /say: beside $from stands "pointre"' in bad.err, bad
    known = queue(
        "submit", "echo", draft(queue, say={"$from": "last"}, sya=1, more={"$from": 1, "file": "/etc/passwd"})
    )
    assert known.code == 3 and "leads out of them" in known.err, known
    assert queue("status", "--json").json["counts"] == {}


def test_a_parent_that_fails_fails_or_holds_its_children(queue: Queue) -> None:
    assert queue("up").code == 0
    gate = queue.folder / "go"
    assert queue("submit", "echo", queue.input(fail=True, wait_for=str(gate))).out == "1\n"
    assert queue("submit", "echo", queue.input("b.json"), "--after", "1").out == "2\n"
    assert queue("submit", "echo", queue.input("c.json"), "--after", "1", "--on-parent", "hold").out == "3\n"
    assert queue("submit", "echo", queue.input("d.json"), "--after", "2").out == "4\n"
    gate.touch()
    assert queue("wait", "1", "2", "4", "--timeout", "60s").code == 1
    told = queue("status", "2", "4").out
    assert "job 1 (echo a) failed: error" in " ".join(told.split()), told
    eventually(lambda: state(queue, 3) == "held", what="the third is held")
    late = queue("submit", "echo", queue.input("e.json"), "--after", "1")
    assert late.code == 3 and "and this needs it to succeed: schedq requeue 1 tries again" in late.err, late
    refused = queue("release", "3")
    assert refused.code == 3 and "schedq update 3 --after none" in refused.err, refused
    assert queue("update", "3", "--after", "none").code == 0
    assert queue("release", "3").code == 0
    assert queue("wait", "3", "--timeout", "60s").code == 0
