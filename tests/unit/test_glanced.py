"""Some of many jobs: those on a worker are among them, however old, and what is read does not grow with the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from queues import submitted, writing

from scheduler.cli import grammar, looking
from scheduler.cli.fast import parse
from scheduler.config import Paths
from scheduler.errors import NoSuchJob
from scheduler.store import glanced, peek, whole_batch


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A batch of 30 of which the third and the fifth are on a worker, and another one beside it."""
    paths = Paths(str(tmp_path / "home"))
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("COLUMNS", "80")
    submitted(paths, 30, batch="night"), submitted(paths, 5, batch="day")
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'admitted' WHERE id = 3")
        db.execute("UPDATE jobs SET state = 'running' WHERE id IN (5, 33)")
    return paths


def asked(paths: Paths, *words: str) -> looking.Asked:
    verb, rest = grammar.verb_of(["status", *words])
    assert verb is not None
    return looking.Asked(parse(verb, rest), paths)


def test_those_on_a_worker_are_among_the_few_and_the_last_of_the_others(night: Paths) -> None:
    assert glanced.some(night, {"batch": "night"}, 4) == ([3, 5, 29, 30], True)
    assert glanced.some(night, {"batch": "night", "state": "queued"}, 2) == ([29, 30], True)
    assert glanced.some(night, {"slug": "boltz"}, 3) == ([3, 5, 33], True)
    assert glanced.some(night, {"batch": "day"}, 5) == ([31, 32, 33, 34, 35], False)
    assert glanced.some_of(night, list(range(1, 31)), 3) == [3, 5, 30]
    assert glanced.some_of(night, list(range(1, 31)), 2) == [3, 5]
    assert glanced.some_of(night, [9, 5, 7], 3) == [9, 5, 7]


@pytest.mark.parametrize("watch", [(), ("--watch",)])
def test_a_page_of_a_large_batch_shows_what_runs_and_says_that_it_is_not_all(
    night: Paths, monkeypatch: pytest.MonkeyPatch, watch: tuple[str, ...]
) -> None:
    monkeypatch.setattr(looking, "SHOWN", 4)
    page = asked(night, "--batch", "night", *watch)
    whole = page.look()
    assert [job["id"] for job in whole["jobs"]] == [3, 5, 29, 30]
    told = "\n".join(page.page_with_trouble(whole))
    assert looking.ONLY_SOME in told and "30" in told
    assert looking.ONLY_SOME not in "\n".join(asked(night, "--batch", "day", *watch).page_with_trouble(whole))


def test_what_is_watched_reads_no_more_jobs_than_it_shows_and_foretells_now_and_then(
    night: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "SHOWN", 4)
    read: list[int] = []
    foretold: list[bool] = []
    jobs, batch = peek.jobs, whole_batch.batch

    def jobs_noted(paths: Paths, ids: list[int]) -> Any:
        read.append(len(ids))
        return jobs(paths, ids)

    def batch_noted(*words: Any, **more: Any) -> Any:
        foretold.append(more["foretold"])
        return batch(*words, **more)

    monkeypatch.setattr(peek, "jobs", jobs_noted)
    monkeypatch.setattr(peek, "ids", lambda *_: pytest.fail("all of the batch was read"))
    monkeypatch.setattr(whole_batch, "batch", batch_noted)
    page = asked(night, "--batch", "night", "--watch")
    page.look(), page.look(), page.look()
    assert read == [4, 4, 4] and foretold == [True, False, False]


def test_a_batch_that_is_none_is_refused_by_the_watch_too(night: Paths) -> None:
    with pytest.raises(NoSuchJob, match="nigth"):
        asked(night, "--batch", "nigth", "--watch").look()
    assert os.path.exists(night.database)
