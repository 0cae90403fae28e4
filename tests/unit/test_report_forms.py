"""A report in each of its forms: whole, within its width, and nothing that a job or a worker says is more than text."""

from __future__ import annotations

import json
import os
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from made_nights import BEGIN_S, made
from queues import submitted, writing

from scheduler.cli import report_page, reporting, say
from scheduler.cli.fast import Call
from scheduler.clock import stamp
from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Refused, UsageError
from scheduler.night.as_json import as_json
from scheduler.night.comparing import compared
from scheduler.night.gathering import gathered
from scheduler.night.html import html
from scheduler.night.junit import junit
from scheduler.night.markdown import markdown
from scheduler.night.report import Report
from scheduler.night.stepping import with_steps

HOSTILE = (
    "<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "\"><b>'bold'", "\x1b[31mred\x1b]0;t\x07",
    "| a | b |\n# head\n```", "\u202eexe.gnp", "x" * 10_000, "]]>&amp;<!--", "\x00\x08\x0b\ufffe nul", "名前 ünïcode",
    "'; DROP TABLE jobs; --", "$(reboot) `reboot`", "\t\r\n", "&lt;b&gt;", "{{7*7}}", "",
)  # fmt: skip
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path / "queue"))


def night(paths: Paths, **over: Any) -> Report:
    made(paths, **{"jobs": 135, "failing": 0.3, "open_jobs": 3, **over})
    return with_steps(gathered(paths, over.get("batch", "night")))


def hostile(paths: Paths) -> Report:
    """Everything that others write is hostile: names, texts, cases, batch, faults, a breaker's error."""
    batch = "<script>alert(1)</script>\"'&"
    made(
        paths, 160, providers=4, failing=0.6, cases=True, batch=batch, texts=[("error", text) for text in HOSTILE],
        names=lambda n: HOSTILE[n % len(HOSTILE)],
    )  # fmt: skip
    with writing(paths) as db:
        for n, text in enumerate(HOSTILE):
            db.execute('UPDATE checks SET "case" = ? WHERE job_id % ? = ?', (text, len(HOSTILE), n))
            db.execute(
                "UPDATE jobs SET outcome_text = ? WHERE state = 'failed' AND id % ? = ?", (text, len(HOSTILE), n)
            )
        db.execute("UPDATE checks SET faults = ? WHERE verdict = 'failed'", (json.dumps([{"place": HOSTILE[0]}]),))
        db.execute("UPDATE checks SET faults = '[{\"pl' WHERE job_id % 7 = 0")
        db.execute("UPDATE incidents SET text = ?", (HOSTILE[1],))
        db.execute("UPDATE samples SET pool = '<script>pool</script>'")
    found = gathered(paths, batch)
    from dataclasses import replace

    return with_steps(replace(found, against=compared(found, gathered(paths, batch))))


class _Tags(HTMLParser):
    """Every tag and attribute of a page; raises for one that is closed and was not opened."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "span", "div", "b", "i", "ul",
    "li", "table", "thead", "tbody", "tr", "th", "td", "svg", "path", "line", "rect", "details", "summary", "pre",
    "footer",
}  # fmt: skip


def read(page: str) -> _Tags:
    found = _Tags()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


def test_the_html_is_whole_and_takes_nothing_from_elsewhere(paths: Paths) -> None:
    page = "".join(html(night(paths)))
    found = read(page)
    assert found.tags <= TAGS
    assert not {"src", "href", "onclick", "onerror", "onload"} & found.attributes
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_the_html_of_a_hostile_night_has_no_tag_more_and_says_what_was_said(paths: Paths) -> None:
    page = "".join(html(hostile(paths)))
    found = read(page)
    assert found.tags <= TAGS
    assert not {"onerror", "src"} & found.attributes
    said = " ".join(found.text)
    assert "<script>alert(1)</script>" in said
    assert "名前 ünïcode" in said
    assert not CONTROL.search(page)
    assert "x" * 400 not in page
    page.encode()


def test_the_html_of_a_large_night_stays_small(paths: Paths) -> None:
    page = "".join(html(night(paths, jobs=8000, failing=0.5)))
    assert len(page) < 300_000
    assert "design-000000" in page


def test_the_text_fits_its_columns_and_moves_no_cursor(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    found = hostile(paths)
    for columns in (50, 66, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = report_page.page(found)
        wide = [line for line in lines if say.width(line) > columns and "schedq" not in line]
        assert wide == []
        assert not any(CONTROL.search(line) for line in lines)


def test_the_text_ends_with_three_commands_and_says_what_went_wrong(paths: Paths) -> None:
    lines = report_page.page(night(paths))
    assert "next" in lines
    assert sum(line.startswith("  schedq ") for line in lines[lines.index("next") :]) == 3
    assert any(re.match(r"  \d+ x  over budget: out of memory", line) for line in lines)
    assert lines[0] == f"batch night: {night_good(paths)} of 135 jobs good"


def night_good(paths: Paths) -> int:
    return gathered(paths, "night").tally.good


def test_a_picture_of_memory_is_drawn_in_ascii_where_nothing_else_is_known_to_be_read(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert all(line.isascii() for line in report_page.page(night(paths)))
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    assert any("█" in line for line in report_page.page(gathered(paths, "night")))


@pytest.mark.parametrize("make", [night, hostile])
def test_the_junit_is_xml_and_its_sums_are_right(paths: Paths, make: Any) -> None:
    found = make(paths)
    root = ElementTree.fromstring("\n".join(junit(found)))  # noqa: S314
    assert root.tag == "testsuites"
    tests = root.findall("./testsuite/testcase")
    assert len(tests) == int(root.attrib["tests"]) == found.tally.jobs
    for element, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert len(root.findall(f".//{element}")) == int(root.attrib[name])
        assert sum(int(suite.attrib[name]) for suite in root) == int(root.attrib[name])
    for suite in root:
        assert len(suite) == int(suite.attrib["tests"])
        names = [test.attrib["name"] for test in suite]
        assert len(set(names)) == len(names)
        float(suite.attrib["time"])


def test_in_junit_what_has_not_ended_is_an_error_and_a_check_that_failed_a_failure(paths: Paths) -> None:
    made(paths, 4, providers=1, failing=0.0, cases=True, open_jobs=1)
    with writing(paths) as db:
        db.execute("UPDATE checks SET verdict = 'failed', faults = '[{\"place\": \"/a\"}]' WHERE job_id = 1")
        db.execute("UPDATE jobs SET state = 'failed', outcome = 'crashed', outcome_text = 'signal 9' WHERE id = 2")
        db.execute("UPDATE checks SET verdict = NULL WHERE job_id = 2")
    root = ElementTree.fromstring("\n".join(junit(gathered(paths, "night"))))  # noqa: S314
    found = {each.tag: each.attrib for test in root.iter("testcase") for each in test}
    assert found["failure"]["type"] == "check"
    assert {"crashed", "waiting"} == {each.attrib["type"] for each in root.iter("error")}


def test_in_junit_a_case_that_was_refused_says_so_once(paths: Paths) -> None:
    made(paths, 1, providers=1, failing=0.0, cases=True)
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'refused', outcome = 'refused', outcome_text = 'no_device: it has none'")
        db.execute("UPDATE checks SET verdict = NULL")
        db.execute("DELETE FROM attempts")
    [found] = ElementTree.fromstring("\n".join(junit(gathered(paths, "night")))).iter("failure")  # noqa: S314
    assert found.text == "job 1: refused\nno_device: it has none\nschedq show 1"


def test_why_a_case_failed_stands_below_it_over_all_columns(paths: Paths) -> None:
    """On a phone a column for it would lie off the screen."""
    page = "".join(html(mixed(paths)))
    _, _, cases = page.partition("<h2>Validation cases</h2>")
    columns = cases.partition("</tr>")[0].count("<th ")
    assert re.search(rf'</tr>\n?<tr class="below "><td class="say" colspan="{columns}"><div>[^<]', cases)
    assert '<th class="" scope="col">why</th>' not in page


def test_markdown_keeps_a_row_a_line_and_a_cell_a_cell(paths: Paths) -> None:
    lines = list(markdown(hostile(paths)))
    assert not any("\n" in line for line in lines)
    tables = [list(rows) for is_row, rows in groupby(lines, lambda line: line.startswith("|")) if is_row]
    assert len(tables) == 2
    for rows in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert not any(re.search(r"(?<!\\)<script", line) for line in lines if not line.startswith("schedq"))


def mixed(paths: Paths) -> Report:
    """A case each of boltz that passed, failed, was refused, and waits; what it came to: two cold starts, one warm."""
    made(paths, 4, providers=1, failing=0.0, cases=True, open_jobs=1)
    with writing(paths) as db:
        db.execute("UPDATE checks SET \"case\" = 'case-' || job_id")
        db.execute("INSERT INTO checks (job_id, \"case\", expect) VALUES (4, 'case-4', '{}')")
        db.execute("UPDATE checks SET verdict = 'failed', faults = '[{\"place\": \"/a\"}]' WHERE job_id = 2")
        db.execute("UPDATE jobs SET state = 'refused', outcome = 'refused', outcome_text = 'too long' WHERE id = 3")
        db.execute("UPDATE checks SET verdict = NULL WHERE job_id = 3")
        db.execute("UPDATE attempts SET warm = job_id = 3")
        incident = "INSERT INTO incidents (at, kind, slug, text) VALUES (?, 'breaker_opened', 'boltz', '3 crashes')"
        db.execute(incident, (stamp(BEGIN_S + 60),))
    return with_steps(gathered(paths, "night"))


def test_each_form_tells_failed_refused_and_waiting_apart_per_provider_and_case(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = mixed(paths)
    page = [line.split() for line in report_page.page(found)]
    assert ["provider", "passed", "failed", "refused", "waits", "cold", "warm", "retries"] in page
    assert ["boltz", "1", "1", "1", "1", "2", "1", "-"] in page
    cases = [line[:6] for line in page if line[:1] == ["boltz"] and line[1].startswith("case-")]
    assert cases == [
        ["boltz", "case-2", "-", "1", "-", "-"], ["boltz", "case-3", "-", "-", "1", "-"],
        ["boltz", "case-4", "-", "-", "-", "1"], ["boltz", "case-1", "1", "-", "-", "-"],
    ]  # fmt: skip
    assert ["too", "long"] in page
    told = list(markdown(found))
    assert any(line.startswith("| boltz | 1 | 1 | 1 | 1 | 2 | 1 |") for line in told)
    assert any(line.startswith(r"| boltz case\-3 | - | - | 1 | - |") and "too long (job 3)" in line for line in told)
    assert "### Breakers" in told and any("boltz opened: 3 crashes" in line for line in told)
    assert any(re.match(r"- unified: .* at most .* charged", line) for line in told)
    said = "".join(html(found))
    for head in ("passed", "failed", "refused", "waits", "cold", "warm"):
        assert re.search(f'<th class="n[^"]*" scope="col">{head}</th>', said), head


def test_every_case_that_did_not_pass_comes_before_those_that_did_and_the_rest_is_counted(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(report_page, "MOST_CASES", 2)
    lines = report_page.page(mixed(paths))
    assert "and 2 more, 1 of them not passed; --html FILE and --json have all" in lines


def test_the_json_holds_what_the_page_shows(paths: Paths) -> None:
    found = night(paths)
    told = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert told["schema_version"] == 1
    assert told["counts"]["jobs"] == 135
    assert sum(each["counts"]["jobs"] for each in told["providers"]) == 135
    assert len(told["next"]) == 3
    assert told["pools"][0]["points"]
    assert {job["became"] for each in told["providers"] for job in each["bad_jobs"]} <= {"failed", "refused"}


@pytest.fixture
def here(paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Paths:
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return paths


def report(**values: Any) -> int:
    return reporting.report(Call("report", values))


def test_files_are_written_whole_in_the_place_of_what_was_there(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    made(here, 27, failing=0.0)
    Path("night.html").write_text("old")
    assert report(batch="night", html="night.html", junit="night.xml") == 0
    read(Path("night.html").read_text())
    ElementTree.parse("night.xml")  # noqa: S314
    assert sorted(os.listdir()) == ["night.html", "night.xml"]
    out, err = capfd.readouterr()
    assert out == "batch night: 27 of 27 jobs good (27 succeeded)\n"
    assert err.count("wrote ") == 2


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(here: Paths) -> None:
    made(here, 3)
    with pytest.raises(UsageError, match=r"nowhere/a.html cannot be written: No such file or directory"):
        report(batch="night", html="nowhere/a.html")
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        Path("folder").mkdir()
        report(batch="night", html="folder")
    with pytest.raises(Refused):
        report(batch="night", html=f"{here.home}/queue.db")
    assert os.listdir() == ["folder"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"batch": "night", "since": "20:00"}, "not both"),
        ({"batch": "night", "md": True, "json": True}, "--json and --md would both go to stdout"),
        ({"batch": "night", "html": "-", "json": True}, "--html - and --json"),
        ({"since": "1h", "against": "last"}, "name it: --against BATCH"),
        ({"batch": "night", "against": "night"}, "is the same batch"),
        ({"since": "25:00"}, "is no moment"),
        ({"since": "yesterday"}, "is no"),
    ],
)
def test_a_call_that_contradicts_itself_is_refused(here: Paths, values: dict[str, Any], said: str) -> None:
    made(here, 3)
    with pytest.raises(UsageError, match=said):
        report(**values)


def test_a_first_night_has_none_to_be_compared_with_and_is_reported_all_the_same(
    here: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    made(here, 3, failing=0.0)
    assert report(batch="night", against="last") == 0
    assert "there is none to compare it with: none before night has any of its cases" in capfd.readouterr().err
    with pytest.raises(NoSuchJob):
        report(batch="night", against="nobody")


def test_without_a_batch_it_is_the_newest_one(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    made(here, 3, batch="old", failing=0.0, begin_s=BEGIN_S - 86400)
    made(here, 3, batch="new", failing=0.0)
    assert report() == 0
    out, err = capfd.readouterr()
    assert out.startswith("batch new")
    assert "the newest batch, new" in err
    assert report(batch="last") == 0


def test_where_no_batch_is_it_is_the_night(here: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    submitted(here, 2, slug="boltz")
    assert report() == 1
    assert "no batch yet" in capfd.readouterr().err
    with pytest.raises(NoSuchJob, match="no batch in the queue"):
        report(batch="last")
