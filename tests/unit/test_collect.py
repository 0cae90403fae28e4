"""What a worker's words become: an outcome that can be stored, whatever they are."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mounts import mounted

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


@pytest.mark.parametrize("reason", ["busy", "leaving"])
def test_a_worker_that_takes_no_request_costs_the_job_no_try(tmp_path: Path, reason: str) -> None:
    got = collected(tmp_path, json.dumps({"ok": False, "reason": reason, "error": f"the worker is {reason}"}))
    assert (got.outcome.kind, got.outcome.unsent, got.untaken) == ("interrupted", True, True)


@pytest.mark.parametrize(("name", "pattern"), [(".x.cif", "*.cif"), (".fold/model.cif", "**/*.cif")])
def test_an_output_whose_name_begins_with_a_dot_is_one(tmp_path: Path, name: str, pattern: str) -> None:
    made = tmp_path / "jobs" / "7" / "1" / "out" / name
    made.parent.mkdir(exist_ok=True)
    made.write_text("data_x")
    assert collected(tmp_path, '{"ok":true,"result":{}}', outputs=[pattern]).outcome.kind == "ok"


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


def _closed(folder: Path) -> str:
    (folder / "file").write_text("")
    return str(folder / "file" / "below")


def _looped(folder: Path) -> str:
    (folder / "loop").symlink_to("loop")
    return str(folder / "loop" / "below")


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (_closed, "Not a directory"),
        (_looped, "cannot be put at"),
        (lambda folder: str(folder / "od" / ("a" * 256)), "File name too long"),
        (lambda folder: str(folder / "/".join(["a" * 200] * 30)), "File name too long"),
        (lambda _folder: "/proc/x", "cannot be put at /proc/x"),
    ],
)
def test_a_destination_that_will_never_take_the_outputs_is_the_jobs_error_and_the_reply_is_kept(
    tmp_path: Path, out: Callable[[Path], str], why: str
) -> None:
    (tmp_path / "jobs" / "7" / "1" / "out" / "a.pdb").write_text("ATOM")
    got = collected(tmp_path, '{"ok":true,"result":{"n":1}}', out=out(tmp_path))
    assert got.outcome.kind == "error" and not got.outcome.later and got.destination == ""
    assert why in got.outcome.text and "schedq result 7 has the reply" in got.outcome.text
    assert len(got.outcome.text) < 1000
    assert json.loads(got.reply or b"") == {"n": 1}
    assert (tmp_path / "jobs" / "7" / "1" / "out" / "a.pdb").read_text() == "ATOM"


def test_a_destination_that_is_there_by_now_keeps_the_reply_too(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "jobs" / "7" / "1" / "out" / "a.pdb").write_text("ATOM")
    got = collected(tmp_path, '{"ok":true,"oneshot":true,"exit_code":0}', out=str(tmp_path / "there"), mode="oneshot")
    assert got.outcome.kind == "error" and "is there by now" in got.outcome.text
    assert json.loads(got.reply or b"") == {"outputs": [{"path": "a.pdb", "bytes": 4}]}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["rename", "mkdir", "copy"])
def test_what_the_disk_cannot_do_now_is_tried_again_and_says_what_the_disk_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    (tmp_path / "jobs" / "7" / "1" / "out" / "a.pdb").write_text("ATOM")
    out = str(tmp_path / "od" / "x")
    real = {name: getattr(os, name) for name in ("rename", "mkdir")}

    def fail(name: str) -> Callable[..., None]:
        def one(path: str, *rest: object) -> None:
            if out in (path, *rest) or (name == "mkdir" and path == os.path.dirname(out)):
                raise OSError(errno.EXDEV if call == "copy" else number, os.strerror(number), path)
            real[name](path, *rest)

        return one

    monkeypatch.setattr(os, "rename" if call == "copy" else call, fail("rename" if call == "copy" else call))
    if call == "copy":

        def fail_to_copy(path: str, *_rest: object, **_more: object) -> None:
            raise shutil.Error([(path, out, str(OSError(number, os.strerror(number))))])

        monkeypatch.setattr(shutil, "copytree", fail_to_copy)
    got = collected(tmp_path, '{"ok":true}', out=out)
    assert got.outcome.later and os.strerror(number) in got.outcome.text and got.reply is None
    assert not os.path.exists(out) and not list(tmp_path.glob("od/.schedq-*"))


def test_outputs_reach_the_longest_name_on_another_filesystem(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "7" / "1" / "out" / "a.pdb").write_text("ATOM")
    with mounted(tmp_path / "disk") as disk:
        got = collected(tmp_path, '{"ok":true}', out=str(disk / ("a" * 255)))
        assert got.outcome.kind == "ok" and os.listdir(disk) == ["a" * 255]


def test_a_deep_destination_is_made_level_by_level(tmp_path: Path) -> None:
    out = str(tmp_path / "/".join(["a"] * 1500))
    try:
        got = collected(tmp_path, '{"ok":true}', out=out)
        assert got.outcome.kind == "ok" and os.path.exists(os.path.join(out, "job.json"))
    finally:  # deeper than what pytest's own tidying can take away
        subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)


@pytest.mark.parametrize("number", ["1e400", "-1e999"])
def test_a_number_that_no_double_holds_is_no_reply(tmp_path: Path, number: str) -> None:
    outcome = collected(tmp_path, '{"ok":true,"result":' + number + "}").outcome
    assert outcome.kind == "no_reply" and f"{number} is no JSON number" in outcome.text


def test_our_own_record_of_a_job_is_not_listed_among_its_outputs(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "7" / "1" / "out" / "model.pka").write_text("x")
    got = collected(tmp_path, '{"oneshot": true, "exit_code": 0}', mode="oneshot")
    assert got.reply is not None and json.loads(got.reply) == {"outputs": [{"path": "model.pka", "bytes": 1}]}
    assert (Path(got.destination) / "job.json").exists()


def test_a_command_that_ends_well_and_leaves_a_broken_result_has_failed_and_its_outputs_stay(tmp_path: Path) -> None:
    out = tmp_path / "jobs" / "7" / "1" / "out"
    (out / "result.json").write_text("{broken")
    reply = {"oneshot": True, "exit_code": 0, "result_error": "is not JSON: Expecting ... line 1 column 2 (char 1)"}
    got = collected(tmp_path, json.dumps(reply), mode="oneshot")
    assert (got.outcome.kind, got.outcome.exit_code, got.destination) == ("error", 0, "")
    assert "its result.json is not JSON" in got.outcome.text and "line 1 column 2" in got.outcome.text
    assert str(out) in got.outcome.text and (out / "result.json").exists()


def test_the_exit_code_of_a_command_says_more_than_its_broken_result(tmp_path: Path) -> None:
    reply = {"oneshot": True, "exit_code": 3, "result_error": "is not JSON"}
    assert collected(tmp_path, json.dumps(reply), mode="oneshot").outcome.kind == "refused"


@pytest.mark.parametrize(
    ("last", "wait_s"),
    [
        ("later: the licence server is busy (retry_after_s=90)", 90.0),
        ("later: x (retry_after_s=1e+06)", 43_200.0),
        ("busy", 60.0),
        ("(retry_after_s=1.2.3)", 60.0),
    ],
)
def test_a_command_that_asks_for_another_time_gets_the_one_that_it_names(
    tmp_path: Path, last: str, wait_s: float
) -> None:
    (tmp_path / "jobs" / "7" / "1" / "log").write_text(f"loading\n{last}\n")
    outcome = collected(tmp_path, '{"oneshot": true, "exit_code": 75}', mode="oneshot").outcome
    assert outcome.later and outcome.retry_after_s == wait_s


@pytest.mark.parametrize("asked", [True, False], ids=["--out", "default"])
def test_outputs_that_were_put_in_place_before_their_scheduler_ended_are_the_answers(
    tmp_path: Path, asked: bool
) -> None:
    out = str(tmp_path / "wanted") if asked else ""
    made = tmp_path / "jobs" / "7" / "1" / "out" / "model.cif"
    made.write_text("DATA")
    reply = '{"ok":true,"result":{"n":1}}'
    first = collected(tmp_path, reply, out=out, outputs=["*.cif"])
    again = collected(tmp_path, reply, out=out, outputs=["*.cif"])
    assert (again.outcome.kind, again.destination, again.reply) == ("ok", first.destination, first.reply)


def test_the_outputs_of_another_queues_job_of_the_same_number_are_not_taken_for_its_own(tmp_path: Path) -> None:
    out = tmp_path / "wanted"
    out.mkdir()
    (out / "job.json").write_text('{"job": 7, "attempt": 1, "slug": "other"}')
    got = collected(tmp_path, '{"ok":true,"result":{"n":1}}', out=str(out))
    assert (got.outcome.kind, got.destination) == ("error", "")
    assert [path.name for path in out.iterdir()] == ["job.json"]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ({"ok": True, "result": {"result": 1, "score": 2, "job": 3, "attempt": 4, "event": "x", "ok": False}}, None),
        ({"ok": True, "result": [1]}, [1]),
        ({"ok": True, "score": 2}, {"score": 2}),
        ({"ok": True, "result": 1, "score": 2}, {"result": 1, "score": 2}),
        ({"ok": True, "job": 3, "attempt": 4}, {"job": 3, "attempt": 4}),
        ({"ok": True}, {}),
    ],
)
def test_an_answer_is_what_stands_under_result_alone_or_all_that_stands_beside_ok(
    tmp_path: Path, reply: dict[str, object], answer: object
) -> None:
    got = collected(tmp_path, json.dumps(reply))
    assert got.reply is not None
    assert json.loads(got.reply) == (reply["result"] if answer is None else answer)


def test_the_folders_above_a_destination_follow_the_askers_umask(tmp_path: Path) -> None:
    mine = os.umask(0o077)
    try:
        got = collected(tmp_path, '{"ok":true,"result":{}}', out=str(tmp_path / "a" / "b" / "c"))
    finally:
        os.umask(mine)
    assert got.outcome.kind == "ok"
    assert [oct((tmp_path / each).stat().st_mode & 0o777) for each in ("a", "a/b", "a/b/c")] == ["0o755"] * 3
