"""What a worker's words become: an outcome that can be stored, whatever they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.config import Paths
from scheduler.host import attempt as attempts
from scheduler.host.collect import collect
from scheduler.model.host import Task

SPEC = {"mode": "resident", "outputs": []}


def collected(tmp_path: Path, reply: str, *, out: str = "", **spec: object):  # noqa: ANN201
    paths = Paths(str(tmp_path))
    task = Task(1, 7, 1, "echo", "", "x", "me", "", {}, "x.json", "json", "0" * 64, b"{}", {}, out)
    place = attempts.lay_out(paths, task, whole=True) if not (tmp_path / "jobs").exists() else _made(paths, task)
    Path(place.reply_path).write_text(reply)
    return collect(paths, {**SPEC, **spec}, task, {"job": 7, "attempt": 1}, 0o022)


def _made(paths: Paths, task: Task) -> attempts.Desk:
    return attempts.desk(paths, task.job_id, task.attempt, task.input_name)


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "7" / "1" / "out").mkdir(parents=True)


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        ('{"ok":false,"error":"\\ud800 broken"}', "error", "broken"),
        ('{"ok":false,"error":"x","exit_code":' + "9" * 40 + "}", "error", "x"),
        ('{"ok":true,"result":NaN}', "no_reply", "NaN is no JSON number"),
        ('{"ok":true,"a":' + "[" * 100_000 + "]" * 100_000 + "}", "no_reply", "nested too deep"),
        ("[]", "no_reply", "no JSON object"),
        ('{"ok":true,"oneshot":true,"exit_code":"abc"}', "ok", ""),
        ('{"ok":false,"error":"a\\u0000\\u001bb"}', "error", "a??b"),
    ],
)
def test_a_strange_reply_is_an_outcome_with_words(tmp_path: Path, reply: str, kind: str, says: str) -> None:
    outcome = collected(tmp_path, reply).outcome
    assert outcome.kind == kind and says in outcome.text
    outcome.text.encode()


def test_a_worker_cannot_ask_to_be_tried_at_once_or_never(tmp_path: Path) -> None:
    asked = [collected(tmp_path, json.dumps({"ok": False, "reason": "later", "retry_after_s": s})) for s in (-5, 1e12)]
    assert [got.outcome.retry_after_s for got in asked] == [1.0, 43_200.0]


def test_what_was_asked_for_with_out_has_the_answer_beside_it_and_follows_the_askers_umask(tmp_path: Path) -> None:
    out = tmp_path / "wanted"
    got = collected(tmp_path, '{"ok":true,"result":{"n":1}}', out=str(out))
    assert got.destination == str(out)
    assert json.loads((out / "result.json").read_text()) == {"n": 1}
    assert json.loads((out / "job.json").read_text())["job"] == 7
    assert oct(out.stat().st_mode & 0o777) == "0o755" and oct((out / "result.json").stat().st_mode & 0o777) == "0o644"


def test_a_destination_that_cannot_be_written_is_tried_again_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    got = collected(tmp_path, '{"ok":true}', out=str(tmp_path / "file" / "below"))
    assert got.outcome.later and "could not be put in place" in got.outcome.text
