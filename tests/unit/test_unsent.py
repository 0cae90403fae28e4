"""Commands that are known not to have begun wait for their turn again; nothing of one that has ended is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_loop import Night, provider

from scheduler.config import Paths, settings
from scheduler.errors import SchedqError
from scheduler.host import collect, environs
from scheduler.host.local import LocalHost
from scheduler.model.command import EXEC, Shape
from scheduler.model.host import UNKNOWN, Adopt, Assignment, Gone, HostEvent, Park, Replied, Task
from scheduler.model.outcome import Outcome
from scheduler.store import intake

DETACHED = Shape(0.0, 1.0, 0, 1, False, "d", "a").variant()


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night(tmp_path)
    yield made
    if made.store is not None:
        made.store.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(Paths(str(tmp_path)), settings(), queue_id="Q", host_id="here", about={})
    made._kinds[1] = Park(1, EXEC, DETACHED, "", "oneshot", {}, {})
    os.makedirs(made.paths.worker(1))
    environs.keep(made.paths, DETACHED, {"SECRET": "x"})
    yield made
    made.close()


def task() -> Task:
    params = {"command": ["true"], "cwd": "/"}
    return Task(1, 7, 1, EXEC, DETACHED, "x", "me", "", params, "", "", "", None, {}, "")


def replied(host: LocalHost) -> Replied:
    found: list[HostEvent] = host.poll(20.0)
    assert isinstance(found[0], Replied), found
    return found[0]


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (lambda job: Gone(1, 0, begun=None), "queued"),
        (lambda job: Gone(1, 0, begun=(job, 2)), "queued"),
        (lambda job: Gone(1, 0, begun=(job, 1)), "failed"),
        (lambda job: Gone(1, None, begun=UNKNOWN), "failed"),
        (lambda job: Replied(1, job, 1, Outcome("interrupted", "its worker leaves", unsent=True)), "queued"),
        (lambda job: Replied(1, job, 1, Outcome("interrupted", "stopped")), "failed"),
    ],
    ids=["none", "another", "this", "unknown", "unsent", "stopped"],
)
def test_a_command_whose_worker_ended_is_run_again_only_if_it_is_known_not_to_have_begun(
    night: Night, event: Callable[[int], HostEvent], state: str
) -> None:
    night.provide(provider("boltz"))
    night.host.run_s = lambda task: 1000.0
    row: dict[str, Any] = {
        "slug": EXEC, "variant": Shape(0.0, 1.0, 0, 1, False, "f", "a").variant(), "revision": "", "max_attempts": 1,
        "on_lost": "fail", "retry_on": "", "params": {"command": ["true"]},
    }  # fmt: skip
    (job,) = intake.submit(night.paths, [row])
    loop = night.up()
    night.until(lambda: night.state(job) == "running")
    night.host._due.clear()
    night.host.after(0.0, event(job))
    loop.tick()
    assert night.state(job) == state
    if state == "queued":
        assert night.ask("SELECT tries, attempt FROM jobs WHERE id = ?", job) == [(0, 1)]
        night.host.run_s = lambda task: 1.0
        night.until(lambda: night.state(job) == "succeeded")


def test_a_command_is_given_back_while_its_device_cannot_be_found(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: str) -> list[Any]:
        raise SchedqError("it was to be started on device:a, and that is not there any more")

    monkeypatch.setattr(host._commands, "_given", lost)
    host.submit(task())
    outcome = replied(host).outcome
    assert (outcome.kind, outcome.unsent) == ("interrupted", True) and "device:a" in outcome.text


def test_a_command_whose_folders_cannot_be_made_is_tried_later(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.rmdir(host.paths.jobs)
    Path(host.paths.jobs).write_text("a file in the way")
    host.submit(task())
    assert replied(host).outcome.later


def test_a_command_whose_environment_is_gone_is_not(host: LocalHost) -> None:
    environs.forget(host.paths, DETACHED)
    host.submit(task())
    outcome = replied(host).outcome
    assert outcome.kind == "input_changed" and not outcome.later and "submit it again" in outcome.text


def test_what_a_worker_says_that_it_did_not_take_was_not_begun(host: LocalHost) -> None:
    found = collect._without_reply({"untaken": True, "no_reply": True}, Outcome("no_reply", "it ended"))
    assert (found.outcome.kind, found.outcome.unsent) == ("interrupted", True)


# What is stored for a command


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "timed_out"])
def test_the_environment_of_an_adopted_command_goes_with_its_end(host: LocalHost, state: str) -> None:
    row = Adopt(1, EXEC, DETACHED, "", "oneshot", "busy", "", None, None, None, None, Assignment(7, 1, "", task()))
    host.adopt([row])
    host.tell(7, "running")
    assert os.listdir(environs.folder(host.paths)) == [DETACHED]
    host.tell(7, state)
    assert os.listdir(environs.folder(host.paths)) == []


@pytest.mark.parametrize("state", ["queued", "held"])
def test_that_of_one_which_waits_again_stays(host: LocalHost, state: str) -> None:
    row = Adopt(1, EXEC, DETACHED, "", "oneshot", "busy", "", None, None, None, None, Assignment(7, 1, "", task()))
    host.adopt([row])
    host.tell(7, state)
    assert json.loads(Path(environs.folder(host.paths), DETACHED).read_bytes())["env"] == {"SECRET": "x"}
