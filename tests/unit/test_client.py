"""The Python API: what is waited for is told, not polled for; parts of replies; failures with their exit codes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler import client as clients
from scheduler.absence import Absence
from scheduler.client import Client, at_pointer, ending, failure
from scheduler.config import Paths
from scheduler.errors import (
    AcceleratorAbsent,
    InvalidInput,
    NoSuchJob,
    SchedqError,
    Temporary,
    UsageError,
    WaitTimedOut,
)
from scheduler.host.doorbell import Doorbell
from scheduler.store import intake, peek


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "home"))


@pytest.fixture
def queue(paths: Paths) -> Iterator[Client]:
    with Client(paths.home) as made:
        yield made


@pytest.fixture
def bell(paths: Paths) -> Iterator[Doorbell]:
    queued(paths)
    made = Doorbell(paths, lambda _event: None, {"pid": 1})
    made.open()
    yield made
    made.close()


def queued(paths: Paths, count: int = 1) -> list[int]:
    return intake.submit(paths, [{"slug": "echo", "name": "a", "data": b"{}"} for _ in range(count)])


def test_a_wait_is_over_when_the_scheduler_says_so(
    queue: Client, paths: Paths, bell: Doorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued(paths)[0]
    monkeypatch.setattr(clients, "HEARD_S", 60.0)
    watched = threading.Event()
    monkeypatch.setattr(bell, "emit", lambda _event: watched.set())
    teller = threading.Thread(target=lambda: watched.wait(10) and bell.tell(job, "succeeded"))
    teller.start()
    assert queue.wait([job], timeout_s=20) == {job: "succeeded"}
    teller.join()


def test_a_word_on_another_job_or_of_a_start_does_not_end_a_wait(
    queue: Client, paths: Paths, bell: Doorbell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = queued(paths, 2)
    watched = threading.Event()
    monkeypatch.setattr(bell, "emit", lambda _event: watched.set())

    def tell() -> None:
        watched.wait(10)
        bell.tell(job, "running")
        bell.tell(other, "succeeded")

    teller = threading.Thread(target=tell)
    teller.start()
    with pytest.raises(WaitTimedOut):
        queue.wait([job], timeout_s=0.3)
    teller.join()


def test_a_wait_without_a_scheduler_looks_into_the_queue(
    queue: Client, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "UNHEARD_S", 0.02)
    monkeypatch.setattr(Absence, "check", lambda *_, **_more: None)
    job = queued(paths)[0]
    waiter: dict[int, str] = {}

    def wait() -> None:
        with Client(paths.home) as other:
            waiter.update(other.wait([job], timeout_s=20))

    thread = threading.Thread(target=wait)
    thread.start()
    queue.cancel([job])
    thread.join(20)
    assert waiter == {job: "cancelled"}


def test_a_wait_that_takes_too_long_names_the_jobs_and_leaves_them(queue: Client, paths: Paths, bell: Doorbell) -> None:
    job = queued(paths)[0]
    with pytest.raises(WaitTimedOut, match=f"job {job} had not ended after 0.05 s and goes on") as caught:
        queue.wait([job], timeout_s=0.05)
    assert caught.value.exit_code == 124
    assert queue.status(job)["state"] == "queued"


def test_a_job_that_is_not_there_cannot_be_waited_for(queue: Client, paths: Paths) -> None:
    queued(paths)
    with pytest.raises(NoSuchJob, match="no job 99"):
        queue.wait([99], timeout_s=5)


def test_a_result_that_is_not_there_yet_may_be_there_later(queue: Client, paths: Paths) -> None:
    job = queued(paths)[0]
    with pytest.raises(Temporary, match="is queued and has no result yet"):
        queue.result(job)
    queue.cancel([job])
    with pytest.raises(SchedqError, match=f"job {job} .echo. cancelled") as caught:
        queue.result(job)
    assert caught.value.exit_code == 1


def test_status_is_that_of_the_command_line(queue: Client, paths: Paths) -> None:
    assert queue.status()["jobs"] == []
    job = queued(paths)[0]
    assert queue.status()["jobs"][0]["id"] == job
    assert queue.status(job)["slug"] == "echo"


@pytest.mark.parametrize(
    ("pointer", "part"),
    [("", {"a": [1, {"b/c": "x"}], "~": 2}), ("/a/0", 1), ("/a/1/b~1c", "x"), ("/~0", 2)],
)
def test_a_pointer_names_a_part(pointer: str, part: object) -> None:
    assert at_pointer({"a": [1, {"b/c": "x"}], "~": 2}, pointer) == part


@pytest.mark.parametrize(
    ("pointer", "told"),
    [("a", "does not begin with /"), ("/b", "its top has a"), ("/a/2", "/a is a list of 2"), ("/a/0/x", "a int")],
)
def test_a_pointer_to_nothing_says_where_it_stopped(pointer: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        at_pointer({"a": [1, 2]}, pointer)


@pytest.mark.parametrize(
    ("kind", "code"), [("refused", 3), ("no_accelerator", 5), ("error", 1), ("crashed", 1), ("cancelled", 1)]
)
def test_a_failure_is_reported_with_its_reason_and_exit_code(kind: str, code: int, paths: Paths) -> None:
    folder = Path(paths.attempt(7, 1))
    folder.mkdir(parents=True)
    (folder / "log").write_text("Traceback")
    job = {"id": 7, "slug": "x", "state": "failed", "attempt": 1, "outcome": {"kind": kind, "text": "no residues"}}
    error = failure(job, paths)
    assert error.exit_code == code
    assert "job 7" in str(error) and "no residues" in str(error) and "schedq log 7" in str(error)


def test_a_failure_whose_log_is_empty_does_not_send_anybody_to_it(paths: Paths) -> None:
    job = {"id": 7, "slug": "x", "state": "failed", "attempt": 1, "outcome": {"kind": "crashed", "text": "SIGKILL"}}
    error = failure(job, paths)
    assert "wrote nothing" in str(error) and "schedq show 7" in str(error)
    job["outcome"] = {"kind": "refused", "text": "no residues"}
    assert str(failure(job, paths)) == "job 7 (x) failed: refused: no residues", "a refusal says all that there is"
    job["outcome"] = {"kind": "refused", "text": ""}
    assert "schedq show 7" in str(failure(job, paths))


@pytest.mark.parametrize(
    ("state", "kind", "text", "told"),
    [
        ("failed", "error", "no residues", "failed: error: no residues"),
        ("cancelled", "cancelled", "cancelled before it ran", "cancelled before it ran"),
        ("timed_out", "timed_out", "after 5 s", "timed out: after 5 s"),
        ("refused", "refused", "", "refused"),
    ],
)
def test_an_ending_says_nothing_twice(state: str, kind: str, text: str, told: str) -> None:
    assert ending({"state": state, "outcome": {"kind": kind, "text": text}}) == told


def test_what_a_program_gave_is_not_spoken_of_as_a_file_or_a_flag(
    queue: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "manifests" / "echo"
    folder.mkdir(parents=True)
    (folder / "provider.toml").write_text(
        'slug = "echo"\nmode = "resident"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
        '[worker]\npython = "/usr/bin/python3"\nscript = "w.py"\n'
        '[input]\naccept = [".json"]\nschema = "s.json"\nparams = "p.json"\n'
    )
    (folder / "w.py").touch()
    (folder / "s.json").write_text('{"type": "object", "required": ["say"]}')
    (folder / "p.json").write_text('{"type": "object", "properties": {"loud": {"type": "boolean"}}}')
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(tmp_path / "manifests"))
    with pytest.raises(InvalidInput, match=r"the input.*say") as caught:
        queue.submit("echo", {})
    assert "input.json" not in str(caught.value)
    with pytest.raises(UsageError, match=r"params: \"laud\".*did you mean loud"):
        queue.submit("echo", {"say": "x"}, params={"laud": True})


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A provider that takes anything."""
    folder = tmp_path / "manifests" / "echo"
    folder.mkdir(parents=True)
    (folder / "provider.toml").write_text(
        'slug = "echo"\nmode = "resident"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
        '[worker]\npython = "/usr/bin/python3"\nscript = "w.py"\n[input]\naccept = [".json"]\nparams = "p.json"\n'
    )
    (folder / "w.py").touch()
    (folder / "p.json").write_text('{"type": "object", "properties": {"say": {"type": "array"}}}')
    monkeypatch.setenv("SCHEDQ_MANIFESTS", str(tmp_path / "manifests"))
    return "echo"


NOT_TEXT = "caf\udce9"


@pytest.mark.parametrize(
    "given",
    [
        {"priority": 10**20}, {"priority": 1.5}, {"priority": "high"},
        {"timeout_s": float("inf")}, {"timeout_s": float("nan")}, {"timeout_s": 0.0}, {"timeout_s": -1},
        {"timeout_s": "1h"}, {"name": NOT_TEXT}, {"batch": NOT_TEXT}, {"key": NOT_TEXT}, {"out": "/tmp/" + NOT_TEXT},
        {"out": "/tmp/a\0b"}, {"name": "a\0b"}, {"name": 5}, {"params": ["say=" + NOT_TEXT]}, {"params": {NOT_TEXT: 1}},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_queue_cannot_hold_is_a_usage_error_that_names_it_and_nothing_is_queued(
    queue: Client, paths: Paths, echo: str, given: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=next(iter(given)).rstrip("s")) as caught:
        queue.submit(echo, {}, **given)
    assert caught.value.exit_code == 2
    assert not Path(paths.database).exists()


def test_a_file_whose_name_is_no_text_is_an_input_all_the_same(queue: Client, echo: str, tmp_path: Path) -> None:
    source = tmp_path / (NOT_TEXT + ".json")
    source.write_bytes(b"{}")
    job = queue.submit(echo, str(source))
    assert queue.status(job)["name"] == "caf\ufffd"


def test_the_input_is_checked_before_what_can_never_run_is_refused(
    queue: Client, echo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = tmp_path / "manifests" / echo / "provider.toml"
    needs = 'policy = "required"\nvram_budget_gb = 4'
    manifest.write_text(manifest.read_text().replace('policy = "none"', needs))
    monkeypatch.setattr(peek, "facts", lambda _paths: {"pools": [], "accelerators": 0})
    (tmp_path / "bad.json").write_text('{"say": ')
    for wrong, kind in [(str(tmp_path / "bad.json"), InvalidInput), (str(tmp_path / "away.json"), UsageError)]:
        with pytest.raises(kind, match=os.path.basename(wrong)):
            queue.submit(echo, wrong)
    with pytest.raises(UsageError, match="loud"):
        queue.submit(echo, {}, params={"loud": True})
    with pytest.raises(AcceleratorAbsent, match="no_device"):
        queue.submit(echo, {})
