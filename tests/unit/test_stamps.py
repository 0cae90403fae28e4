"""Times that people read: this machine's own clock with its zone; what programs read stays UTC."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from queues import submitted, writing

from scheduler.cli import changing, jobpages, stamps, why
from scheduler.cli.fast import Call
from scheduler.client import Client
from scheduler.config import Paths

ROOT = Path(__file__).resolve().parents[2]
AT = "2026-11-29T21:04:05.123456Z"
HERE = "2026-11-29 22:04:05 CET"


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def test_a_stamp_is_shown_on_the_clock_of_this_machine_with_its_zone() -> None:
    assert stamps.local(AT) == HERE
    assert stamps.local("2026-07-01T22:30:00Z") == "2026-07-02 00:30:00 CEST", "the day may be another one"
    assert stamps.local("no stamp") == "no stamp"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"was told not to begin before {AT[:19]}Z", f"was told not to begin before {HERE}"),
        (f"begin now -> {AT[:19]}Z; x", f"begin now -> {HERE}; x"),
        (f"paused since {AT}: nothing", f"paused since {HERE}: nothing"),
        (f"batch measure-boltz-{AT[:19]}Z", f"batch measure-boltz-{AT[:19]}Z"),
        (f"lies in /backups/{AT[:19]}Z/q", f"lies in /backups/{AT[:19]}Z/q"),
        (f"file a.{AT[:19]}Z.gz", f"file a.{AT[:19]}Z.gz"),
        ("The Zoo", "The Zoo"),
    ],
)
def test_a_stamp_in_a_sentence_is_shown_so_too_but_never_one_in_a_name(text: str, shown: str) -> None:
    assert stamps.locally(text) == shown


def test_the_pages_of_a_job_have_no_raw_stamp_and_their_json_has_no_other(paths: Paths) -> None:
    submitted(paths)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET blocked = 'begin', not_before_at = ?", ("2099-11-29T21:04:05.000000Z",))
    told = Client(paths.home).status(1)
    told["story"] = [{"at": AT, "event": "update", "text": f"begin now -> {AT[:19]}Z", "attempt": None}, *told["story"]]
    for page in (jobpages.job({**told, "pruned_at": AT}), jobpages.jobs([told])):
        text = " ".join(" ".join(page).split())
        assert "not to begin before 2099-11-29 22:04:05 CET" in text and "T21:" not in text and "Z " not in text
        assert max(map(len, page)) <= 80
    assert "2099-11-29T21:04:05Z" in told["reason"]["text"] and told["submitted_at"].endswith("Z")
    assert "CET" not in json.dumps(told) and "CEST" not in json.dumps(told)


def test_why_has_them_so_too(paths: Paths) -> None:
    made = {"at": AT, "ruling": "begin", "text": f"not before {AT[:19]}Z", "worker_id": None}
    found = {"id": 1, "slug": "boltz", "variant": "", "name": "x", "state": "queued", "decisions": [made]}
    page = why.page(found, stamps.seconds(AT))
    assert page[2].startswith(f"{HERE}  0s ago") and page[3].strip() == f"not before {HERE}"


def test_what_is_said_of_a_change_has_them_so_too(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    from scheduler.cli import control

    submitted(paths)
    call = Call("update", {"ids": ["1"], "begin": "2099-11-29T21:04:05Z"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCHEDQ_HOME", paths.home)
        assert control.update(call) == 0
    assert "-> 2099-11-29 22:04:05 CET" in capfd.readouterr().err and changing.__doc__


def test_nothing_that_speaks_to_people_cuts_a_stamp_by_hand() -> None:
    """`[:19]` and its like leave a time in UTC that looks like a local one; what is kept in files may."""
    kept = {
        "night/junit.py",
        "night/stepping.py",
        "cli/measuring.py",
        "cli/why.py",
        "store/reason.py",
        "store/operator.py",
    }
    found = {
        str(file.relative_to(ROOT / "scheduler"))
        for file in (ROOT / "scheduler").rglob("*.py")
        if any(f"at{quote}[:{n}]" in file.read_text() for quote in ("", "']", '"]', ")") for n in (10, 16, 19))
    }
    assert found <= kept
