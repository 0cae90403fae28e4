from __future__ import annotations

import hashlib
import os
import pwd
import signal
import stat
import threading
import time
from pathlib import Path

import pytest
from queues import asked, child, ended, row, submitted, writing

from scheduler.config import Paths
from scheduler.errors import NoSuchJob, Refused, Temporary
from scheduler.model.states import JOB, JOB_ENDED
from scheduler.store import content, destinations, gates, intake, peek
from scheduler.store.turnstile import Turnstile


def test_the_first_submit_makes_a_private_queue(paths: Paths) -> None:
    assert submitted(paths) == [1]
    assert stat.S_IMODE(os.stat(paths.home).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(paths.database).st_mode) == 0o600
    for folder in (paths.content, paths.jobs, paths.run, paths.lock_owner, paths.backups):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


@pytest.mark.parametrize("name", ["a b", "what?mode=memory", "a#b", "100%41", "line\nbreak", "é;'\"", "x&cache=shared"])
def test_any_folder_name_is_that_folder(tmp_path: Path, name: str) -> None:
    paths = Paths(str(tmp_path / name))
    assert submitted(paths, 2) == [1, 2]
    assert peek.states(paths, [1, 2]) == {1: "queued", 2: "queued"}
    assert os.listdir(tmp_path) == [name]


def test_a_queue_with_a_very_long_path_works_too(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / ("d" * 200) / ("e" * 200)))
    assert submitted(paths) == [1]
    assert os.stat(paths.run).st_uid == os.getuid()
    os.rmdir(paths.run)


def test_what_was_submitted_is_what_is_stored(paths: Paths) -> None:
    data = b'{"n": 1}'
    [job_id] = intake.submit(
        paths, [row(data=data, variant="big", batch="night", priority=3, params={"b": 2, "a": "ä"})]
    )
    job = peek.job(paths, job_id)
    assert (job["slug"], job["variant"], job["batch"], job["priority"]) == ("boltz", "big", "night", 3)
    assert job["params"] == {"b": 2, "a": "ä"} and job["input_bytes"] == len(data)
    assert job["input_sha256"] == hashlib.sha256(data).hexdigest()
    assert peek.input_bytes(paths, job_id) == data


def test_the_user_is_who_the_kernel_says(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "mallory")
    monkeypatch.setenv("LOGNAME", "mallory")
    [job_id] = intake.submit(paths, [row(user="mallory", host_id="elsewhere")])
    job = peek.job(paths, job_id)
    assert job["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert len(job["host_id"]) == 16 and job["host_id"] != "elsewhere"


def test_one_refused_row_refuses_them_all(paths: Paths, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    submitted(paths, out=out)
    with pytest.raises(Refused):
        intake.submit(paths, [row(), row(), row(out=out), row()])
    assert asked(paths, "SELECT count(*) FROM jobs") == [(1,)]
    assert submitted(paths) == [2]


def test_an_id_is_never_given_twice(paths: Paths) -> None:
    submitted(paths, 3)
    with writing(paths) as connection:
        connection.execute("DELETE FROM jobs WHERE id = 3")
    assert submitted(paths) == [4]


def test_a_column_that_a_submitter_may_not_know_is_an_error(paths: Paths) -> None:
    with pytest.raises(TypeError, match="no column outcome"):
        intake.submit(paths, [row(outcome="ok")])


def test_the_same_key_is_the_same_job(paths: Paths) -> None:
    first = submitted(paths, key="rule-7")
    again = intake.submit(paths, [row(), row(key="rule-7"), row(key="new"), row(key="new")])
    assert again == [2, first[0], 3, 3]
    assert asked(paths, "SELECT count(*) FROM jobs") == [(3,)]


@pytest.mark.parametrize("other", [{"data": b"else"}, {"slug": "esm"}, {"variant": "big"}, {"params": {"seed": 2}}])
def test_a_key_that_belongs_to_another_request_names_its_job(paths: Paths, other: dict) -> None:
    submitted(paths, key="rule-7")
    with pytest.raises(Refused, match="'rule-7' belongs to job 1"):
        intake.submit(paths, [row(key="rule-7", **other)])
    with pytest.raises(Refused, match="'fresh' belongs to another row"):
        intake.submit(paths, [row(key="fresh"), row(key="fresh", **other)])


def test_a_key_of_another_user_is_refused(paths: Paths) -> None:
    submitted(paths, key="rule-7")
    with writing(paths) as connection:
        connection.execute("UPDATE jobs SET user = 'ada'")
    with pytest.raises(Refused, match="belongs to job 1 of ada"):
        submitted(paths, key="rule-7")


def test_a_destination_belongs_to_one_job(paths: Paths, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    submitted(paths, out=out)
    with pytest.raises(Refused, match=r"job 1 \(queued\) has the destination .*/out"):
        submitted(paths, out=out)
    with pytest.raises(Refused, match="two jobs of this call"):
        intake.submit(paths, [row(out=out + "2"), row(out=out + "2")])
    intake.cancel(paths, [1])
    assert submitted(paths, out=out) == [2]


def test_a_destination_that_a_succeeded_job_had_and_that_is_gone_is_taken_over_as_is_said(
    paths: Paths, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    submitted(paths, out=out)
    with writing(paths) as connection:
        connection.execute("UPDATE jobs SET state = 'succeeded'")
    with pytest.raises(Refused, match=r"job 1 \(succeeded\) has .*nothing is there; --overwrite takes it over"):
        submitted(paths, out=out)
    assert submitted(paths, out=out, overwrite=1) == [2]


@pytest.mark.parametrize(("first", "then"), [("d", "d/b"), ("d/b", "d"), ("d", "d/b/c/e"), ("d/b/c/e", "d")])
def test_a_destination_in_that_of_a_job_that_has_not_ended_or_around_it_is_refused(
    paths: Paths, tmp_path: Path, first: str, then: str
) -> None:
    submitted(paths, out=str(tmp_path / first))
    for call in ([then], ["other", then]):
        with pytest.raises(Refused, match=r"where job 1 \(queued\) puts its outputs"):
            intake.submit(paths, [row(out=str(tmp_path / out)) for out in call])
    with pytest.raises(Refused, match="another job of this call"):
        intake.submit(paths, [row(out=str(tmp_path / f"new/{out}")) for out in (first, then)])
    beside = [f"{first}0", f"{first}-", f"e/{then}", "c/x", "c/y"]
    assert intake.submit(paths, [row(out=str(tmp_path / out)) for out in beside]) == [2, 3, 4, 5, 6]
    with writing(paths) as connection:
        connection.execute("UPDATE jobs SET state = 'succeeded', ended_at = submitted_at, outcome = 'ok'")
    assert submitted(paths, out=str(tmp_path / then)) == [7]


def test_what_lies_in_and_around_a_destination_is_looked_up_by_the_index(paths: Paths) -> None:
    submitted(paths)
    with writing(paths) as connection:
        for asked, values in ((destinations.BELOW, ("/a/", "/a0")), (destinations.OWNER, ("/a",))):
            [(*_, plan)] = connection.execute(f"EXPLAIN QUERY PLAN {asked}", values).fetchall()
            assert plan.startswith("SEARCH jobs USING INDEX jobs_out (out"), plan


def test_a_destination_that_exists_is_refused_unless_it_may_be_overwritten(paths: Paths, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(Refused, match="exists; give another --out"):
        submitted(paths, out=str(out))
    assert submitted(paths, out=str(out), overwrite=True) == [1]


def test_overwriting_takes_the_destination_from_a_job_that_has_ended_and_says_so(paths: Paths, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    submitted(paths, out=out)
    with pytest.raises(Refused, match="job 1"):
        submitted(paths, out=out, overwrite=True)
    with writing(paths) as connection:
        connection.execute("UPDATE jobs SET state = 'succeeded', ended_at = submitted_at, outcome = 'ok'")
    with pytest.raises(Refused, match="job 1"):
        submitted(paths, out=out)
    [job_id] = submitted(paths, out=out, overwrite=True)
    assert f"job {job_id} takes its destination {out}" in [line["text"] for line in peek.job(paths, 1)["story"]]


def test_a_large_input_is_beside_the_database_and_whole(paths: Paths) -> None:
    data = os.urandom(content.INLINE_MAX + 1)
    [small] = submitted(paths, data=data[:-1])
    assert os.listdir(paths.content) == []
    [large] = submitted(paths, data=data)
    assert content.present(paths, hashlib.sha256(data).hexdigest())
    assert peek.input_bytes(paths, large) == data and peek.input_bytes(paths, small) == data[:-1]


def test_files_that_an_input_names_are_kept_once_by_content(paths: Paths, tmp_path: Path) -> None:
    source = tmp_path / "a.msa"
    source.write_bytes(b"MSA" * 1000)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    files = {"/a": {"sha256": sha256, "bytes": 3000, "path": str(source)}}
    pinned = {"/b": {"sha256": "ff" * 32, "bytes": 1, "path": "/data/huge", "pinned": True}}
    intake.submit(paths, [row(files=dict(files)), row(files={**files, **pinned})])
    source.unlink()
    assert content.read(paths, sha256) == b"MSA" * 1000
    assert peek.job(paths, 2)["files"] == {**files, **pinned}
    assert [name for name in os.listdir(paths.content) if name.startswith(".")] == []
    assert intake.submit(paths, [row(files=dict(files))]) == [3]


def test_a_file_over_the_limit_is_pinned_and_not_copied(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDQ_INPUTS_COPY_MAX_GIB", "0.000001")
    source = tmp_path / "a.msa"
    source.write_bytes(b"MSA" * 1000)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    intake.submit(paths, [row(files={"/a": {"sha256": sha256, "bytes": 3000, "path": str(source)}})])
    assert peek.job(paths, 1)["files"]["/a"]["pinned"] is True
    assert os.listdir(paths.content) == []


def test_a_refused_submit_leaves_no_staged_file(paths: Paths, tmp_path: Path) -> None:
    source = tmp_path / "a.msa"
    source.write_bytes(b"MSA")
    files = {"/a": {"sha256": hashlib.sha256(b"MSA").hexdigest(), "bytes": 3, "path": str(source)}}
    with pytest.raises(Refused):
        intake.submit(paths, [row(out=str(tmp_path)), row(files=files)])
    assert os.listdir(paths.content) == []


def test_held_and_later_jobs_go_in_as_such(paths: Paths) -> None:
    intake.submit(paths, [row(state="held"), row(blocked="begin", not_before_at="2099-01-01T00:00:00.000000Z"), row()])
    assert asked(paths, "SELECT state, n FROM depth ORDER BY state") == [("blocked", 1), ("held", 1), ("queued", 1)]


def test_the_ids_are_said_after_they_are_durable_and_before_a_signal_can_come_between(paths: Paths) -> None:
    seen: list[object] = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("interrupted"))
    try:

        def say(ids: list[int]) -> None:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            seen.append(peek.states(paths, ids))

        intake.submit(paths, [row()], say)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [{1: "queued"}, "interrupted"]


def test_cancel_does_what_the_table_of_states_says(paths: Paths) -> None:
    """One that is running is only marked: the scheduler carries it out."""
    assert intake.CANCEL.keys() == JOB.keys() - {"(insert)"}
    for state, cell in intake.CANCEL.items():
        [job_id] = submitted(paths)
        with writing(paths) as connection:
            connection.execute("UPDATE jobs SET state = ? WHERE id = ?", (state, job_id))
        [(_, before, now)] = intake.cancel(paths, [job_id])
        [(stored, requested)] = asked(paths, "SELECT state, cancel_requested_at FROM jobs WHERE id = ?", job_id)
        told = {"cancelled": "cancelled", "says": state, "same": state}[JOB[state]["cancel"]]
        assert before == state and now == stored
        if state == "running":
            assert (cell, now) == ("ask", state) and requested is not None and JOB[state]["cancel"] == "same"
        else:
            assert now == told and cell == JOB[state]["cancel"]
            assert (requested is not None) == (state not in JOB_ENDED)


def test_a_cancelled_job_has_an_end_an_outcome_and_a_story(paths: Paths) -> None:
    submitted(paths, blocked="begin", not_before_at="2099-01-01T00:00:00.000000Z")
    assert intake.cancel(paths, [1]) == [(1, "queued", "cancelled")]
    job = peek.job(paths, 1)
    assert job["ended_at"] is not None and job["outcome"]["kind"] == "cancelled" and job["reason"] is None
    assert [line["event"] for line in job["story"]] == ["submit", "cancel", "cancelled"]
    assert asked(paths, "SELECT state, n FROM depth") == [("cancelled", 1)]


def test_cancel_names_every_id_that_is_not_there_and_changes_nothing(paths: Paths) -> None:
    with pytest.raises(NoSuchJob, match="no job 1 in the queue"):
        intake.cancel(paths, [1])
    assert not os.path.exists(paths.home)
    submitted(paths)
    with pytest.raises(NoSuchJob, match="no job 7, 8 in the queue"):
        intake.cancel(paths, [1, 7, 8])
    assert peek.states(paths, [1]) == {1: "queued"}


def test_many_rows_are_one_transaction(paths: Paths) -> None:
    ids = intake.submit(paths, [row(name=str(n)) for n in range(3000)])
    assert ids == list(range(1, 3001))
    assert asked(paths, "SELECT n FROM depth") == [(3000,)]


def test_a_log_of_more_than_8_mib_is_checkpointed_in_the_turnstile(paths: Paths) -> None:
    submitted(paths)
    keeps_it_open = peek.open_reader(paths)
    try:
        keeps_it_open.execute("SELECT count(*) FROM jobs").fetchall()
        intake.submit(paths, [row(data=b"x" * 60_000) for _ in range(200)])
        assert os.stat(paths.database).st_size > 10 << 20
    finally:
        keeps_it_open.close()


def test_a_submit_imports_nothing_slow(paths: Paths) -> None:
    submitted(paths)
    code = """
from scheduler.config import Paths
from scheduler.store import intake, peek
paths = Paths(sys.argv[1])
intake.submit(paths, [{"slug": "boltz", "data": b"1"}])
intake.cancel(paths, [1])
peek.status(paths), peek.job(paths, 1), peek.ids(paths, {}), peek.result(paths, 1)
slow = {"typer", "pydantic", "sqlalchemy", "alembic", "rich", "dataclasses", "inspect", "typing", "pathlib",
        "subprocess", "argparse", "tempfile", "shutil", "glob", "threading", "hashlib", "contextlib",
        "scheduler.model.plan"}
print(sorted(slow & set(sys.modules)))
"""
    assert ended(child(code, paths.home)) == (0, "[]\n", "")


def made(folder: Path) -> Path:
    """A destination with something in it."""
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    return folder


def test_what_is_overwritten_is_moved_aside_when_its_job_goes_in(paths: Paths, tmp_path: Path) -> None:
    out = made(tmp_path / "out")
    submitted(paths, out=str(out), overwrite=True)
    assert not out.exists()
    [aside] = tmp_path.glob("out.before-*")
    assert (aside / "old.txt").read_text() == "old"


def test_a_submitter_that_is_ended_while_it_waits_for_the_queue_leaves_the_destination_as_it_is(
    paths: Paths, tmp_path: Path
) -> None:
    submitted(paths)
    folder = tmp_path / "manifests" / "echo"
    folder.mkdir(parents=True)
    (folder / "provider.toml").write_text(
        'slug = "echo"\nmode = "resident"\n[gpu]\npolicy = "none"\n[host]\nram_budget_gb = 0.1\n'
        '[worker]\npython = "/usr/bin/python3"\nscript = "w.py"\n[input]\naccept = [".json"]\n'
    )
    (folder / "w.py").touch()
    out = made(tmp_path / "out")
    code = """
import os
os.environ["SCHEDQ_MANIFESTS"] = sys.argv[2]
from scheduler.client import Client
Client(sys.argv[1]).submit("echo", {"say": "x"}, out=sys.argv[3], overwrite=True)
"""
    with Turnstile(paths).section():
        waits = child(code, paths.home, folder.parent, out)
        inode = f":{os.stat(paths.lock_owner).st_ino} "
        deadline = time.monotonic() + 20
        while not any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()):
            assert waits.poll() is None and time.monotonic() < deadline, ended(waits)
            time.sleep(0.002)
        waits.send_signal(signal.SIGKILL)
        assert ended(waits)[0] == -signal.SIGKILL
    assert (out / "old.txt").read_text() == "old" and list(tmp_path.glob("out.before-*")) == []
    assert peek.ids(paths, {}) == [1]


def test_a_submit_that_is_refused_puts_back_what_it_moved_aside(paths: Paths, tmp_path: Path) -> None:
    first, second = made(tmp_path / "first"), made(tmp_path / "second")
    with pytest.raises(Refused, match="second exists"):
        intake.submit(paths, [row(out=str(first), overwrite=True), row(out=str(second))])
    assert (first / "old.txt").exists() and list(tmp_path.glob("*.before-*")) == []
    submitted(paths, out=str(tmp_path / "third"))
    with pytest.raises(Refused, match="job 1"):
        intake.submit(paths, [row(out=str(first), overwrite=True), row(out=str(tmp_path / "third"))])
    assert (first / "old.txt").exists() and list(tmp_path.glob("*.before-*")) == []


def test_what_cannot_be_put_back_is_named_with_the_place_where_it_lies_now(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made(tmp_path / "first"), made(tmp_path / "second")
    real = os.rename

    def once(here: str, there: str) -> None:
        if here == str(second) or ".before-" in here:
            raise PermissionError(1, "Operation not permitted", here)
        real(here, there)

    monkeypatch.setattr(os, "rename", once)
    rows = [row(out=str(each), overwrite=True) for each in (first, second)]
    with pytest.raises(Temporary, match=r"first\.before-\S+ is what was at .*/first.*Operation not permitted"):
        intake.submit(paths, rows)


def test_the_same_key_again_moves_nothing_aside(paths: Paths, tmp_path: Path) -> None:
    submitted(paths, key="k")
    out = made(tmp_path / "out")
    assert submitted(paths, key="k", out=str(out), overwrite=True) == [1]
    assert (out / "old.txt").exists()


def test_the_folder_that_the_queue_lies_in_is_never_overwritten(paths: Paths, tmp_path: Path) -> None:
    submitted(paths)
    for out in (paths.home, str(tmp_path)):
        with pytest.raises(Refused, match="the queue itself lies in it"):
            submitted(paths, out=out, overwrite=True)
    assert peek.ids(paths, {}) == [1]


def test_large_inputs_are_written_before_the_queue_is_locked_and_only_named_inside(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    def heard(module: object, name: str, word: str) -> None:
        real = getattr(module, name)

        def one(*given: object) -> object:
            happened.append(f"{word} {given[0]}" if word == "sync" else word)
            return real(*given)

        monkeypatch.setattr(module, name, one)

    submitted(paths)
    for module, name, word in (
        (content, "stage", "write"), (content, "stage_bytes", "write"), (content, "sync", "sync"),
        (intake, "open_or_create", "locked"),
    ):  # fmt: skip
        heard(module, name, word)
    data = [b"%d " % n * 40_000 for n in range(60)]
    for n, each in enumerate(data[:3]):
        (tmp_path / f"{n}.txt").write_bytes(each)
    hashes = [hashlib.sha256(each).hexdigest() for each in data]
    rows = [
        {**row(input_sha256=hashes[n], input_bytes=len(data[n]), source=str(tmp_path / f"{n}.txt")), "data": None}
        for n in range(3)
    ] + [row(data=each) for each in data]  # fmt: skip
    ids = intake.submit(paths, rows)
    assert happened[:61] == ["write"] * 60 + ["locked"]
    inside = happened[61:]
    folders = {f"sync {os.path.dirname(content.path(paths, each))}" for each in hashes}
    assert len(folders) < 60 and {each for each in inside if each in folders} == folders
    assert len(inside) == len(set(inside))
    assert [peek.input_bytes(paths, each) for each in ids[:4]] == [*data[:3], data[0]]
    assert peek.job(paths, ids[0])["input_bytes"] == len(data[0])
    assert [each for each in os.listdir(paths.content) if each.startswith(".staged")] == []


def test_a_large_input_that_changes_while_it_is_submitted_is_not_queued(paths: Paths, tmp_path: Path) -> None:
    source, data = tmp_path / "large.txt", b"x" * 70_000
    source.write_bytes(data + b"y")
    told = {"data": None, "input_sha256": hashlib.sha256(data).hexdigest(), "input_bytes": len(data)}
    with pytest.raises(Refused, match=r"large.txt, which the call names, changed while it was submitted"):
        intake.submit(paths, [row(), row(source=str(source), **told)])
    assert peek.last_id(paths) is None and os.listdir(paths.content) == []


def test_a_large_input_that_is_pruned_before_it_is_named_is_kept_again(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, real = b"x" * 70_000, intake.open_or_create
    submitted(paths, data=data)

    def pruned(*given: Paths) -> object:
        os.unlink(content.path(paths, hashlib.sha256(data).hexdigest()))
        return real(*given)

    monkeypatch.setattr(intake, "open_or_create", pruned)
    [job_id] = submitted(paths, data=data)
    assert peek.input_bytes(paths, job_id) == data


def test_what_is_said_of_a_broken_batch_costs_no_look_at_its_other_jobs(paths: Paths) -> None:
    submitted(paths)
    plan = asked(paths, f"EXPLAIN QUERY PLAN {gates.BAD_OF}", "night")
    assert "USING INDEX jobs_bad (batch=?)" in str(plan) and "TEMP B-TREE" not in str(plan)
