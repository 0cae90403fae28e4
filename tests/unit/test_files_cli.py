"""`artifacts` and `prune` as they are called: what is printed, what is refused, and what is left alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from queues import asked, row, submitted, writing
from test_pruning import over

from scheduler.cli import artifacts, jobpages, pruning, reading, sizes
from scheduler.cli.fast import Call, parse
from scheduler.cli.verbs_files import FILES
from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Pruned, Refused, Temporary, UsageError
from scheduler.store import content, intake, peek
from scheduler.store.engine import Store

VERBS = {verb.name: verb for verb in FILES}


@pytest.fixture
def queue(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("HOME", os.path.dirname(paths.home))
    monkeypatch.setenv("XDG_CONFIG_HOME", os.path.join(os.path.dirname(paths.home), "config"))
    return paths


def called(*words: str) -> int:
    """The exit code of a call of `artifacts` or `prune`."""
    verb = VERBS[words[0]]
    do = artifacts.artifacts if words[0] == "artifacts" else pruning.prune
    return do(parse(verb, list(words[1:])))


def printed(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[list[str], str]:
    assert called(*words) == code
    out, err = capfd.readouterr()
    return out.splitlines(), " ".join(err.split())


def test_a_path_a_line_and_what_each_is_in_json(queue: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    submitted(queue)
    over(queue, 1)
    lines, err = printed(capfd, "artifacts", "1")
    names = [os.path.relpath(line, queue.home) for line in lines]
    assert names == [
        "results/1/job.json", "results/1/x.pdb", "jobs/1/1/out/half.pdb", "jobs/1/1/log", "jobs/1/1/log.1",
        "jobs/1/work",
    ]  # fmt: skip
    assert err == "" and all(map(os.path.exists, lines))
    [text], _ = printed(capfd, "artifacts", "last", "--json", "--sha256")
    told = json.loads(text)
    assert [(each["kind"], each["attempt"], each["bytes"]) for each in told["files"]][1:] == [
        ("output", None, 4), ("out", 1, 2), ("log", 1, 5), ("log", 1, 7), ("work", None, 9000),
    ]  # fmt: skip
    assert told["destination"] == f"{queue.results}/1" and told["input"]["bytes"] == 8
    assert len(told["files"][1]["sha256"]) == 64 and told["files"][-1]["sha256"] is None


def test_sums_are_as_sha256sum_reads_them(queue: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    import subprocess

    submitted(queue)
    over(queue, 1)
    lines, _ = printed(capfd, "artifacts", "1", "--sha256")
    done = subprocess.run(["sha256sum", "-c"], input="\n".join(lines) + "\n", text=True, capture_output=True)
    assert done.returncode == 0 and done.stdout.count(": OK") == 5


def test_a_job_that_failed_lists_what_its_attempts_left(queue: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    submitted(queue)
    over(queue, 1, state="failed", reply=None)
    lines, err = printed(capfd, "artifacts", "1")
    assert [os.path.basename(line) for line in lines] == ["half.pdb", "log", "log.1", "work"]
    assert "job 1 failed" in err and "what its attempts left is listed" in err
    with pytest.raises(Refused, match=r"there are no outputs to copy: job 1 failed.*lists what its attempts left"):
        called("artifacts", "1", "-o", os.path.dirname(queue.home))


def test_outputs_are_copied_whole_under_the_jobs_name(
    queue: Paths, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue)
    over(queue, 1)
    lines, _ = printed(capfd, "artifacts", "1", "-o", str(tmp_path / "here"))
    assert lines == [str(tmp_path / "here" / "ligand")] and sorted(os.listdir(lines[0])) == ["job.json", "x.pdb"]
    with pytest.raises(Refused, match="ligand exists"):
        called("artifacts", "1", "-o", str(tmp_path / "here"))
    (tmp_path / "here" / "ligand" / "x.pdb").write_text("mine")
    assert called("artifacts", "1", "-o", str(tmp_path / "here"), "--overwrite") == 0
    [aside] = [each for each in os.listdir(tmp_path / "here") if ".before-" in each]
    assert (tmp_path / "here" / aside / "x.pdb").read_text() == "mine"


def test_a_copy_that_fails_leaves_nothing(queue: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    submitted(queue)
    over(queue, 1)
    real = shutil.copytree

    def torn(source: str, target: str, **how: Any) -> Any:
        real(source, target, **how)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", torn)
    with pytest.raises(Temporary, match="No space left"):
        called("artifacts", "1", "-o", str(tmp_path / "here"))
    assert os.listdir(tmp_path / "here") == []


def test_what_was_moved_or_overwritten_is_said(queue: Paths, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    submitted(queue, out=str(tmp_path / "o"))
    over(queue, 1)
    (tmp_path / "o" / "job.json").write_text('{"job": 5}')
    lines, err = printed(capfd, "artifacts", "1")
    assert "was overwritten by job 5" in err and not any("x.pdb" in line for line in lines)
    with pytest.raises(Refused, match="overwritten by job 5"):
        called("artifacts", "1", "-o", str(tmp_path / "here"))
    os.rename(tmp_path / "o", tmp_path / "p")
    _, err = printed(capfd, "artifacts", "1")
    assert "is not there any more" in err
    with pytest.raises(Refused, match="moved or removed"):
        called("artifacts", "1", "-o", str(tmp_path / "here"))


def test_a_job_that_waits_has_left_nothing_yet(queue: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    submitted(queue)
    lines, err = printed(capfd, "artifacts", "1")
    assert lines == [] and "job 1 is queued and has left no file yet" in err
    with pytest.raises(Temporary, match="has no outputs yet; schedq wait 1"):
        called("artifacts", "1", "-o", "here")
    with pytest.raises(NoSuchJob):
        called("artifacts", "9")


def test_prune_needs_a_rule_and_says_which_there_are(queue: Paths) -> None:
    for words in (["prune"], ["prune", "--batch", "n", "--dry-run"]):
        with pytest.raises(UsageError, match=r"prune needs a rule: --older-than 30d, --keep N .* or --max-size G"):
            called(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--older-than", "30"], "is not a duration"),
        (["--keep", "-1"], "cannot be kept"),
        (["--keep", "x"], "is not a whole number"),
        (["--max-size", "5x"], "is no size; write GiB"),
        (["--max-size", "nan"], "is no size"),
        (["--keep", "0", "--outcome", "crashd"], "did you mean crashed"),
        (["--keep", "0", "--rows", "--logs-only"], "choose one"),
    ],
)
def test_what_is_no_rule_is_refused(queue: Paths, words: list[str], said: str) -> None:
    submitted(queue)
    with pytest.raises(UsageError, match=said):
        called("prune", *words)


def test_a_batch_that_is_nobodys_is_no_empty_one(queue: Paths) -> None:
    submitted(queue)
    with pytest.raises(NoSuchJob, match="no job has the batch 'nihgt'"):
        called("prune", "--keep", "0", "--batch", "nihgt")


def test_a_dry_run_lists_what_would_go_with_its_size_and_takes_nothing(
    queue: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue, 2)
    over(queue, 1, days_ago=3), over(queue, 2, days_ago=1)
    lines, err = printed(capfd, "prune", "--older-than", "2d", "--dry-run")
    assert len(lines) == 1 and lines[0].split()[:3] == ["1", "boltz", "ligand"] and lines[0].endswith("KiB")
    assert "would prune 1 job: " in err and "of outputs" in err and "inside the database" in err
    [text], _ = printed(capfd, "prune", "--keep", "0", "--dry-run", "--json")
    told = json.loads(text)
    assert told["dry_run"] and told["ids"] == [1, 2] and told["jobs"][0]["bytes"]["outputs"] > 0
    assert told["disk_bytes"] == sum(n for kind, n in told["freed_bytes"].items() if kind != "database")
    assert os.path.exists(f"{queue.results}/1") and asked(
        queue, "SELECT count(*) FROM jobs WHERE pruned_at IS NOT NULL"
    ) == [(0,)]


def test_prune_says_what_it_freed_and_afterwards_everything_says_that_it_was_pruned(
    queue: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue)
    over(queue, 1)
    _, err = printed(capfd, "prune", "--keep", "0")
    assert "pruned 1 job: " in err and "freed" in err
    _, err = printed(capfd, "prune", "--keep", "0")
    assert "nothing to prune" in err
    lines, err = printed(capfd, "artifacts", "1")
    assert lines == [] and "job 1 was pruned on" in err
    for ask in (lambda: reading.result(Call("result", {"id": "1"})), lambda: reading.log(Call("log", {"id": "1"}))):
        with pytest.raises(Pruned, match=r"pruned on \d{4}-"):
            ask()
    assert any(line.startswith("pruned") for line in jobpages.job(peek.job(queue, 1)))


def test_a_folder_that_stays_too_large_is_said_with_its_figures(
    queue: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue)
    over(queue, 1)
    _, err = printed(capfd, "prune", "--max-size", "1K")
    assert "pruned 1 job" in err and "the queue's folder still takes" in err and "above 1.0 KiB" in err


def test_above_twenty_it_asks_and_without_a_terminal_it_does_nothing(
    queue: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    intake.submit(queue, [row() for _ in range(21)])
    with writing(queue) as db:
        db.execute("UPDATE jobs SET state = 'failed', ended_at = '2026-01-01T00:00:00.000000Z', outcome = 'error'")
    with pytest.raises(UsageError, match=r"prune 21 jobs, for good\? There is no terminal"):
        called("prune", "--keep", "0")
    assert asked(queue, "SELECT count(*) FROM jobs WHERE pruned_at IS NOT NULL") == [(0,)]
    [text], _ = printed(capfd, "prune", "--keep", "0", "--yes", "--json")
    assert json.loads(text)["pruned"] == 21


def test_the_question_names_what_goes_that_is_no_jobs(queue: Paths) -> None:
    intake.submit(queue, [row(batch="n") for _ in range(21)])
    for number in range(4):
        Path(queue.backups, f"queue-{number}.db").write_bytes(b"x" * 4096)
    with writing(queue) as db:
        db.execute("UPDATE jobs SET state = 'failed', ended_at = '2026-01-01T00:00:00.000000Z', outcome = 'error'")
    with pytest.raises(UsageError, match=r"prune 21 jobs and 4.0 KiB of old backups, for good\?"):
        called("prune", "--keep", "0")
    with pytest.raises(UsageError, match=r"prune 21 jobs, for good\?"):
        called("prune", "--keep", "0", "--batch", "n")


def test_json_names_what_was_pruned_and_not_what_came_alive_meanwhile(
    queue: Paths, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(queue, 2)
    over(queue, 1), over(queue, 2)
    monkeypatch.setattr("scheduler.store.pruning.waited_for", lambda tx, ids: {1})
    [text], _ = printed(capfd, "prune", "--keep", "0", "--json")
    assert json.loads(text)["ids"] == [2] and json.loads(text)["pruned"] == 1


def test_a_dry_run_counts_content_that_nobody_names(queue: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    submitted(queue)
    over(queue, 1)
    store = Store(queue)
    with store.write():
        content.put(queue, b"x" * 8192)
    store.close()
    [text], _ = printed(capfd, "prune", "--keep", "0", "--dry-run", "--json")
    assert json.loads(text)["freed_bytes"]["content"] == 8192 and json.loads(text)["ids"] == [1]


def test_what_cannot_be_taken_away_is_named_and_the_exit_code_says_so(
    queue: Paths, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue)
    over(queue, 1)
    os.rename(f"{queue.results}/1", tmp_path / "far")
    os.symlink(tmp_path / "far", f"{queue.results}/1")
    _, err = printed(capfd, "prune", "--keep", "0", code=1)
    assert f"left: {queue.results}/1: it is a link" in err


def test_sizes_are_read_and_shown() -> None:
    assert [sizes.typed(each, "--x") for each in ("1", "1G", "1GiB", "2M", "0.5T")] == [
        1 << 30, 1 << 30, 1 << 30, 2 << 20, 1 << 39,
    ]  # fmt: skip
    assert [sizes.size(each) for each in (0, 1023, 4096, 3 << 20, 5 << 29)] == [
        "0 B", "1023 B", "4.0 KiB", "3.0 MiB", "2.50 GiB",
    ]  # fmt: skip


def test_several_jobs_are_listed_in_order_and_as_a_list_in_json(
    queue: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue, 3, batch="night")
    for job_id in (1, 3):
        over(queue, job_id)
    for words in (("3,1-2",), ("3", "1", "2"), ("--batch", "night")):
        lines, err = printed(capfd, "artifacts", *words)
        firsts = [line for line in lines if line.endswith("x.pdb")]
        assert sorted(os.path.relpath(line, queue.results) for line in firsts) == ["1/x.pdb", "3/x.pdb"]
        assert err == "job 2 is queued and has left no file yet"
    [text], _ = printed(capfd, "artifacts", "1,3", "--json")
    assert [(each["id"], len(each["files"])) for each in json.loads(text)["jobs"]] == [(1, 6), (3, 6)]
    [text], _ = printed(capfd, "artifacts", "--batch", "night", "--json")
    assert [each["id"] for each in json.loads(text)["jobs"]] == [1, 2, 3]
    with pytest.raises(NoSuchJob, match="9"):
        called("artifacts", "1,9")
    with pytest.raises(UsageError, match="needs jobs"):
        called("artifacts")


def test_outputs_of_several_jobs_are_copied_each_under_a_name_of_its_own(
    queue: Paths, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue, 3)
    submitted(queue, name="other")
    for job_id in (1, 3, 4):
        over(queue, job_id)
    lines, err = printed(capfd, "artifacts", "1-4", "-o", str(tmp_path / "here"), code=75)
    assert sorted(os.listdir(tmp_path / "here")) == ["ligand-1", "ligand-3", "other"] and len(lines) == 3
    assert "schedq: job 2 is queued and has no outputs yet; schedq wait 2 copied" in err
