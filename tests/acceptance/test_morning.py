"""The morning after a night that was really run: what the report says of it, its exit codes, and a table."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from driven import Queue, eventually

CASES = """
[[validation]]
name = "smoke"
input = "smoke.json"
expect = { "/said" = "hello" }
[[validation]]
name = "wrong"
input = "smoke.json"
expect = { "/said" = "goodbye" }
"""


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    found = Queue(tmp_path)
    folder = found.provider()
    (folder / "smoke.json").write_text('{"say": "hello"}')
    with (folder / "provider.toml").open("a") as manifest:
        manifest.write(CASES)
    return found


def test_a_night_is_reported_and_its_values_are_a_table(queue: Queue) -> None:
    good = [queue.input(f"g{n}.json", say=f"s{n}") for n in range(3)]
    assert queue("submit", "echo", *good, "--batch", "good").code == 0
    assert queue("submit", "echo", queue.input("bad.json", fail=True), "--batch", "bad").code == 0
    waiting = queue("report", "good")
    assert waiting.code == 1, waiting
    assert "3 jobs wait: no scheduler runs" in waiting.out
    assert "schedq up" in waiting.out
    try:
        assert queue("up").code == 0
        assert queue("wait", "--batch", "good").code == 0
        assert queue("wait", "--batch", "bad").code == 1
        done = queue("report", "good", "--html", "good.html", "--junit", "good.xml")
        assert done.code == 0, done
        assert done.out == "batch good: 3 of 3 jobs good (3 succeeded)\n"
        assert "schedq table --batch good" in queue("report", "good").out
        assert (queue.folder / "good.html").read_text().endswith("</html>\n")
        failed = queue("report", "bad")
        assert failed.code == 1, failed
        assert "1 x  ValueError: cannot do that" in failed.out
        assert "schedq log 4" in failed.out
        assert queue("log", "4").code == 0
        assert queue("report", "nobody").code == 4

        table = queue("table", "good", "--col", "/said", "--col", "n=/count", "--sort", "-said")
        assert table.code == 0, table
        assert [row["said"] for row in csv.DictReader(io.StringIO(table.out))] == ["s2", "s1", "s0"]
        eventually(lambda: queue("report", "good", "--json").json["pools"], what="the pools were written down")
    finally:
        assert queue("down").code == 0
    told = queue("report", "--since", "1h", "--json").json
    assert told["counts"]["jobs"] == 4
    assert told["pools"][0]["points"]
    assert told["cold_starts"] >= 1


def test_validation_cases_count_by_their_checks(queue: Queue) -> None:
    assert queue("validate", "echo", "--batch", "v-1").code == 0
    try:
        assert queue("up").code == 0
        queue("wait", "--batch", "v-1")
        told = eventually(lambda: judged(queue), what="the cases were judged")
    finally:
        assert queue("down").code == 0
    assert (told["counts"]["passed"], told["counts"]["failed"]) == (1, 1)
    [cause] = told["providers"][0]["why"]
    assert cause["kind"] == "check"
    assert cause["text"] == '/said: expected "goodbye", found "hello"'
    assert queue("report", "v-1", "--against", "last").code == 1


def judged(queue: Queue) -> dict | None:
    told = queue("report", "v-1", "--json").json
    return told if told["counts"]["open"] == 0 else None
