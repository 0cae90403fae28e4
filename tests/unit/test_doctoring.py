"""`doctor` on real folders: what it finds, that it changes nothing, and that nothing which hangs holds it up."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
from pathlib import Path

import pytest
from mounts import mounted
from queues import child, scheduler, submitted, writing

from scheduler.cli import doctoring, examining
from scheduler.cli.fast import Call
from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.host import checkup
from scheduler.rules import health


@pytest.fixture
def queue(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    for name in [name for name in os.environ if name.startswith("SCHEDQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SCHEDQ_HOME", paths.home)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("SCHEDQ_DISK_RESERVE_GIB", "0.001")
    return paths


def tree(folder: str) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its size and time of change; SQLite's shared memory aside."""
    return {
        os.path.join(root, name): (found.st_size, found.st_mtime_ns)
        for root, _, names in os.walk(folder)
        for name in names
        if not name.endswith("-shm")
        for found in [os.lstat(os.path.join(root, name))]
    }


def told(paths: Paths, about: str) -> list[health.Finding]:
    return [each for each in doctoring.findings(paths) if each.about == about]


def test_before_there_is_a_queue_it_looks_and_makes_nothing(queue: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    code = doctoring.doctor(Call("doctor", {"json": True}))
    answer = json.loads(capfd.readouterr().out)
    assert code == (0 if answer["ok"] else 1) and answer["schema_version"] == 1
    abouts = [each["about"] for each in answer["checks"]]
    assert abouts.index("kernel") < abouts.index("space") < abouts.index("database") < abouts.index("leftovers")
    assert {"ok", "warn"} >= {each["status"] for each in answer["checks"]}
    assert all((each["remedy"] is None) == (each["status"] == "ok") for each in answer["checks"])
    assert [each["text"] for each in answer["checks"] if each["about"] == "database"] == [
        "none yet: the first submit makes it"
    ]
    assert not os.path.exists(queue.home)


def test_it_changes_nothing_in_a_queue_and_its_page_fits_80_columns(
    queue: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    submitted(queue)
    before = tree(queue.home)
    assert doctoring.doctor(Call("doctor", {})) == 1
    out, err = capfd.readouterr()
    assert tree(queue.home) == before
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line)
    assert "none runs, and 1 job waits" in " ".join(out.split()) and "do: schedq up" in out
    assert "2 warnings" in err, "its job's provider is not installed either"


def test_one_that_hangs_is_named_and_holds_nothing_up(queue: Paths) -> None:
    release = threading.Event()
    [found] = doctoring.looked("device", lambda: release.wait(60), lambda _: [], within_s=0.1)
    release.set()
    assert found.status == "warn" and "did not answer in 0.1 s" in found.text


def test_a_damaged_database_is_told_once_and_all_else_all_the_same(queue: Paths) -> None:
    submitted(queue)
    for name in ("-wal", "-shm"):
        if os.path.exists(queue.database + name):
            os.unlink(queue.database + name)
    with open(queue.database, "r+b") as file:
        file.write(b"x" * 4096)
    found = doctoring.findings(queue)
    [database] = [each for each in found if each.about == "database"]
    assert database.status == "warn" and not [each for each in found if each.about == "queue"]
    assert [each.status for each in found if each.about == "settings"] == ["ok"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be somebody else")
def test_of_a_queue_that_is_closed_to_who_asks_nothing_is_guessed(queue: Paths, open_folder: Path) -> None:
    closed = Paths(str(open_folder / "queue"))
    submitted(closed)
    os.seteuid(65534)
    try:
        found = doctoring.findings(closed)
    finally:
        os.seteuid(0)
    (said,) = [each for each in found if each.about == "queue"]
    assert said.text == f"{closed.home}: it is root's, and closed to you: nothing of it can be seen"
    assert said.remedy == "sudo -u root schedq doctor"
    assert not {"scheduler", "turnstile", "database", "provider"} & {each.about for each in found}


def test_a_scheduler_that_holds_the_lock_and_says_nothing_is_told(
    queue: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(queue)
    monkeypatch.setattr(examining, "ANSWER_S", 0.1)
    with scheduler(queue):
        [found] = told(queue, "scheduler")
    assert "does not answer" in found.text and found.remedy == "schedq up --takeover"


HOLD = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_stopped_process_in_the_turnstile_and_the_line_behind_it_are_told(queue: Paths) -> None:
    submitted(queue)
    holder = child(HOLD, queue.lock_owner)
    waiters = []
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        waiters = [child(HOLD, queue.lock_owner) for _ in range(2)]
        until = threading.Event()
        for _ in range(200):
            if examining.in_line(queue) == 2:
                break
            until.wait(0.05)
        os.kill(holder.pid, signal.SIGSTOP)
        found = examining.service(queue, {})
    finally:
        for each in (holder, *waiters):
            each.kill()
            each.communicate()
    assert (found.inside, found.inside_stopped, found.in_line) == (holder.pid, True, 2)


def test_settings_that_are_odd_and_secrets_that_others_may_read_are_told(
    queue: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(queue)
    (tmp_path / "config" / "schedq").mkdir(parents=True)
    (tmp_path / "config" / "schedq" / "config.toml").write_text("stirct = true\n")
    Path(queue.secrets).write_text("A=b\n")
    os.chmod(queue.secrets, 0o644)
    monkeypatch.setenv("SCHEDQ_MANIFESTS", "/nowhere")
    found = told(queue, "settings")
    assert [each.status for each in found] == ["warn"] * 3
    assert "did you mean strict" in found[0].text and "/nowhere" in found[1].text
    assert found[2].remedy == f"chmod 600 {queue.secrets}"


def test_what_dead_processes_left_is_told(queue: Paths) -> None:
    submitted(queue)
    for name in ("results/.pruned-3", "workers/7"):
        (Path(queue.home) / name).mkdir()
    os.utime(queue.worker(7), (1, 1))
    (Path(queue.content) / ".staged-999999999-ab").write_text("half")
    (Path(queue.backups) / "queue-1.db.part-999999999").write_text("half")
    held = os.open(queue.worker(7), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    kinds = [kind for kind, _ in checkup.leftovers(queue, "q")]
    os.close(held)
    assert "a folder of a worker that is gone" not in kinds
    found = told(queue, "leftovers")
    assert len(found) == 4 and all(each.remedy for each in found)


def test_a_full_disk_is_told_with_its_figures(queue: Paths, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", options="size=8m") as small:
        (small / "fill").write_bytes(b"x" * (7 << 20))
        found = checkup.disks([("state", str(small / "q")), ("work", str(small / "q" / "jobs"))], 5.0)
        [disk] = found
        assert (
            disk.free_gib is not None and disk.free_gib < 0.002 and disk.reserve_gib == pytest.approx(0.02 * 8 / 1024)
        )


def test_stamps_ahead_of_the_clock_are_told(queue: Paths) -> None:
    submitted(queue)
    with writing(queue) as db:
        db.execute("UPDATE jobs SET submitted_at = ?", (stamp(now_s() + 7200),))
    [found] = told(queue, "clock")
    assert found.status == "warn" and "ahead" in found.text


def test_what_keeps_failing_is_read_from_the_queue(queue: Paths) -> None:
    submitted(queue)
    at = stamp(now_s())
    with writing(queue) as db:
        db.execute("INSERT INTO breakers (slug, failures, last_error, opened_at) VALUES ('esm', 3, 'no weights', 'x')")
        db.execute(
            "INSERT INTO incidents (at, kind, batch, tries, error) VALUES (?, 'batch', 'night', 4, 'HTTP 500')", (at,)
        )
        db.execute("INSERT INTO schedules (cron, zone, argv, cwd, user, created_at, next_at) VALUES"
                   " ('0 22 * * *', 'UTC', '[\"validate\", \"--all\"]', '/', 'ada', 'x', 'y')")  # fmt: skip
        db.execute("INSERT INTO runs (schedule_id, due_at, began_at, ended_at, exit_code, text) VALUES"
                   " (1, '1', '1', '1', 0, ''), (1, '2', '2', '2', 3, 'refused')")  # fmt: skip
        db.execute("UPDATE queue SET paused_at = ?", (at,))
    found = {each.about: each for each in doctoring.findings(queue)}
    assert "esm failed 3 times in a row: no weights" in found["breaker"].text
    assert found["breaker"].remedy.endswith("schedq providers reset esm")
    assert "batch of night was not told in 4 tries: HTTP 500" in found["notification"].text
    assert "schedule 1 (validate --all) ended with 3 when it was last due: refused" in found["schedule"].text
    assert found["queue"].remedy == "schedq queue resume"


def test_a_schedule_that_has_no_exit_code_or_is_not_due_any_more_is_told(queue: Paths) -> None:
    submitted(queue)
    with writing(queue) as db:
        db.execute("INSERT INTO schedules (cron, zone, argv, cwd, user, created_at, next_at) VALUES"
                   " ('0 22 * * *', 'UTC', '[\"table\"]', '/', 'ada', 'x', 'y'),"
                   " ('0 22 * * *', 'Mars', '[\"report\"]', '/', 'ada', 'x', NULL),"
                   " ('0 22 * * *', 'UTC', '[\"wait\"]', '/', 'ada', 'x', 'y'),"
                   " ('0 22 * * *', 'UTC', '[\"plan\"]', '/', 'ada', 'x', 'y')")  # fmt: skip
        db.execute("INSERT INTO runs (schedule_id, due_at, began_at, ended_at, exit_code, text) VALUES"
                   " (1, '1', '1', '1', 0, ''), (1, '2', '2', '2', NULL, 'cut off'),"
                   " (3, '1', '1', '1', 0, '')")  # fmt: skip
    texts = [each.text for each in doctoring.findings(queue) if each.about == "schedule"]
    assert texts == [
        "schedule 1 (table) ended with no exit code when it was last due: cut off",
        "schedule 2 (report) is not due any more: scheduler.log says why",
    ]


def test_without_breakers_schedules_or_notifications_that_fail_nothing_is_said_of_them(queue: Paths) -> None:
    submitted(queue)
    assert not {each.about for each in doctoring.findings(queue)} & {"breaker", "schedule", "notification", "queue"}


def test_a_provider_whose_environment_is_broken_is_told_with_its_command(queue: Paths, tmp_path: Path) -> None:
    from scheduler import catalog
    from scheduler.host import marker

    spec = catalog.load(queue).spec("pyrodigal")
    folder = marker.folder_of(str(tmp_path / "data" / "schedq" / "envs"), spec["environment"]["hash"])
    os.makedirs(folder)
    found = [each for each in told(queue, "provider") if each.status == "warn"]
    assert [each.remedy for each in found] == ["schedq install pyrodigal"] and "is not whole" in found[0].text


def test_it_says_whether_the_clock_is_held_to_another_one_without_changing_it() -> None:
    assert checkup.synchronised() in (True, False, None)
