"""`schedq workers ...`: what it does to which worker, what it says of it, and what a page of workers has room for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from manifests_made import BASE, Manifests
from queues import asked, scheduler, submitted, writing

from scheduler import catalog, config
from scheduler.cli import say, workers
from scheduler.cli.fast import Call, parse
from scheduler.cli.grammar import VERBS
from scheduler.clock import now_s, stamp
from scheduler.config import Paths
from scheduler.errors import NoSuchWorker, Refused, UnknownProvider, UsageError
from scheduler.store import peek

ONCE = stamp(now_s() - 90_000.0)
"""Longer ago than a day."""


@pytest.fixture
def manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifests:
    """The provider fold alone."""
    real = config.migrations_folder()
    made = Manifests(tmp_path, monkeypatch)
    monkeypatch.setattr(config, "migrations_folder", lambda: real)
    made.add(text=BASE.replace("~/envs/x/bin/python", "python3"))
    return made


@pytest.fixture
def paths(manifests: Manifests) -> Paths:
    """A queue with that provider; no scheduler runs."""
    return Paths(str(manifests.home))


def live(paths: Paths, *states: str, slug: str = "fold", **columns: object) -> list[int]:
    """Workers in these states; a busy one, and an `admitted` one that starts, have a job."""
    ids = []
    for state in states:
        bound = {"busy": "running", "coming": "admitted", "bound": "admitted"}.get(state)
        job = submitted(paths, slug=slug)[0] if bound else submitted(paths, slug="other", state="held")[0]
        values = {
            "slug": slug, "host_id": "here", "epoch": 1, "created_at": ONCE, "idle_since_at": ONCE,
            "state": {"coming": "starting", "bound": "ready"}.get(state, state), **columns,
        }  # fmt: skip
        with writing(paths) as db:
            names, marks = ", ".join(values), ", ".join("?" * len(values))
            made = db.execute(f"INSERT INTO workers ({names}) VALUES ({marks})", tuple(values.values()))
            ids.append(int(made.lastrowid or 0))
            db.execute(
                "INSERT INTO leases (worker_id, slug, pool, charge_gib, state, host_id, reserved_at)"
                " VALUES (?, ?, 'unified', 12.5, 'held', 'here', ?)", (ids[-1], slug, ONCE),
            )  # fmt: skip
            if bound:
                db.execute("UPDATE jobs SET state = ?, worker_id = ? WHERE id = ?", (bound, ids[-1], job))
    return ids


def called(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `schedq workers WORDS`."""
    verb = VERBS[f"workers {words[0]}"]
    call: Call = parse(verb, list(words[1:]))
    code = getattr(workers, verb.run.partition(":")[2])(call)
    out = capfd.readouterr()
    return code, out.out, out.err


def marks(paths: Paths) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in asked(paths, "SELECT id, retire_after, pinned FROM workers ORDER BY id")}


def test_retire_says_of_each_worker_what_becomes_of_it(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    idle, busy, coming, bound, _, loading = live(paths, "ready", "busy", "coming", "bound", "retiring", "starting")
    code, _, err = called(capfd, "retire", f"{idle}-{loading}")
    lines = err.splitlines()
    assert code == 0 and lines[0] == f"worker {idle}: it ends now"
    assert "it ends after job" in lines[1] and "it ends after job" in lines[3]
    assert "it comes up for job" in lines[2] and "cancel the job" in lines[2]
    assert lines[4].endswith("on its way out already") and lines[5].endswith("it ends now")
    assert "no scheduler runs here" in lines[6]
    kept = {worker_id for worker_id, (why, _) in marks(paths).items() if why}
    assert kept == {idle, busy, bound, loading}
    assert called(capfd, "retire", str(coming))[0] == 2


def test_idle_spares_the_pinned_and_who_has_a_job_and_all_spares_nobody(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    (idle, busy), (pinned,) = live(paths, "ready", "busy"), live(paths, "ready", pinned=1)
    called(capfd, "warm", "fold")
    code, _, err = called(capfd, "retire", "--idle")
    assert code == 0 and f"worker {pinned}: it is pinned and stays" in err
    assert {worker_id for worker_id, (why, _) in marks(paths).items() if why} == {idle}
    called(capfd, "warm", "fold")
    code, _, err = called(capfd, "retire", "--all")
    assert {worker_id for worker_id, (why, _) in marks(paths).items() if why} == {idle, busy, pinned}


def test_retire_needs_to_be_told_which_and_one_way_only(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="workers retire needs workers"):
        called(capfd, "retire")
    for words in (("3", "--all"), ("--idle", "--all")):
        with pytest.raises(UsageError, match=f"--all is every worker; leave it out, or leave {words[0]} out"):
            called(capfd, "retire", *words)
    assert called(capfd, "retire", "--idle") == (0, "", "no worker is idle; nothing was changed\n")
    for word, text in (("7", "no worker 7 lives"), ("fold", "no worker of fold lives; schedq workers warm fold")):
        for verb in ("retire", "pin", "unpin"):
            with pytest.raises(NoSuchWorker, match=text) as caught:
                called(capfd, verb, word)
            assert caught.value.exit_code == 4
    with pytest.raises(UnknownProvider, match="fold"):
        called(capfd, "retire", "folt")


def test_ids_of_which_some_are_not_there_are_counted_and_the_others_retired(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = live(paths, "ready", "ready")
    code, _, err = called(capfd, "retire", f"{first}-99")
    assert code == 0 and err.startswith(f"97 workers of {first}-99 are not there; schedq workers")
    assert {worker_id for worker_id, (why, _) in marks(paths).items() if why} == {first, second}
    assert called(capfd, "pin", str(first), "77")[2].startswith("worker 77 is not there;")
    with pytest.raises(NoSuchWorker, match="no worker 50-99 77 lives; schedq workers lists"):
        called(capfd, "unpin", "50-99", "77")
    with pytest.raises(UsageError, match="'9-3' runs backwards; write 3-9"):
        called(capfd, "pin", "9-3")


def test_the_idle_workers_of_one_provider_alone_are_retired(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    (other,), (idle, busy) = live(paths, "ready", slug="other"), live(paths, "ready", "busy")
    told = f"no worker of {busy} is idle; nothing was changed\n"
    assert called(capfd, "retire", str(busy), "--idle") == (0, "", told)
    assert called(capfd, "retire", "fold", "--idle")[0] == 0
    assert {worker_id for worker_id, (why, _) in marks(paths).items() if why} == {idle}
    assert called(capfd, "retire", f"{idle}-{busy}", str(other), "--idle")[0] == 0
    assert {worker_id for worker_id, (why, _) in marks(paths).items() if why} == {idle, other}


def test_a_wish_for_what_is_not_installed_says_what_installs_it(
    paths: Paths, manifests: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    text = BASE.replace('python = "~/envs/x/bin/python"', "")
    manifests.add("bare", text=f'{text}\n[env]\nrequirements = ["x==1"]\n')
    code, _, err = called(capfd, "warm", "bare")
    assert code == 0 and "bare: wanted warm, and not started before it is installed: " in err
    assert "run: schedq install bare" in err
    assert asked(paths, "SELECT slug FROM wishes") == [("bare",)]


def test_only_what_is_a_provider_or_was_wished_can_be_wanted_no_longer(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    called(capfd, "warm", "fold")
    with pytest.raises(UnknownProvider, match="did you mean fold"):
        called(capfd, "warm", "fold", "folt", "--remove")
    with writing(paths) as db:
        db.execute("UPDATE wishes SET slug = 'gone'")
    assert called(capfd, "warm", "gone", "--remove")[::2] == (0, "gone is not wanted warm any more\n")


def test_what_the_help_of_warm_shows_can_be_asked_as_it_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCHEDQ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for example in VERBS["workers warm"].examples:
        assert called(capfd, *example.split()[2:])[0] == 0


def test_a_worker_of_a_provider_is_pinned_by_its_name_and_let_go_by_its_id(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = live(paths, "ready", "starting")
    (leaving,) = live(paths, "busy", retire_after="ann asked for it")
    code, _, err = called(capfd, "pin", "fold")
    assert code == 0 and f"worker {leaving}: it is on its way out, nothing was changed" in err
    assert {worker_id for worker_id, (_, pinned) in marks(paths).items() if pinned} == {first, second}
    assert called(capfd, "unpin", str(second))[0] == 0
    assert {worker_id for worker_id, (_, pinned) in marks(paths).items() if pinned} == {first}
    assert called(capfd, "pin", str(leaving))[0] == 2


def test_a_wish_is_written_while_no_scheduler_runs_and_taken_back(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = called(capfd, "warm", "fold", "--pin")
    assert code == 0 and "fold: wanted warm" in err and "no scheduler runs here" in err
    assert asked(paths, "SELECT slug, pinned, dropped_at FROM wishes") == [("fold", 1, None)]
    _, out, _ = called(capfd, "list")
    assert "fold is wanted warm: no scheduler runs" in " ".join(out.split())
    with writing(paths) as db:
        db.execute("UPDATE wishes SET ruling = 'pool_full', text = 'fold needs 28 GiB and 4 are free'")
    with scheduler(paths):
        _, out, _ = called(capfd, "list")
    assert "fold is wanted warm and pinned: fold needs 28 GiB and 4 are free" in " ".join(out.split())
    assert called(capfd, "warm", "fold", "--remove")[::2] == (0, "fold is not wanted warm any more\n")
    assert called(capfd, "warm", "fold", "--remove")[::2] == (0, "fold was not wanted warm\n")
    assert asked(paths, "SELECT count(*) FROM wishes") == [(0,)]


def test_a_worker_that_is_there_is_named_and_one_that_is_to_go_or_of_another_revision_does_not_count(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    revision = catalog.load(paths).spec("fold")["revision"]
    live(paths, "ready", revision="another")
    live(paths, "busy", revision=revision, retire_after="ann asked for it")
    assert "wanted warm" in called(capfd, "warm", "fold")[2]
    (there,) = live(paths, "busy", revision=revision)
    assert f"worker {there} is warm and pinned" in called(capfd, "warm", "fold", "--pin")[2]
    assert asked(paths, "SELECT count(*) FROM wishes") == [(0,)]
    assert marks(paths)[there] == (None, 1)


def test_what_can_never_be_warm_is_refused_before_anything_is_written(
    paths: Paths, manifests: Manifests, capfd: pytest.CaptureFixture[str]
) -> None:
    manifests.add("undone", text=BASE.replace("vram_budget_gb", "#"))
    manifests.add("once", text=BASE.replace('"resident"', '"oneshot"'))
    for slug, error, text in (
        ("once", UsageError, "starts a process for each job"),
        ("undone", Refused, "undeclared"),
        ("folt", UnknownProvider, "fold"),
    ):
        with pytest.raises(error, match=text):
            called(capfd, "warm", "fold", slug)
    assert not Path(paths.database).exists() or asked(paths, "SELECT count(*) FROM wishes") == [(0,)]


def test_the_page_of_workers_has_room_for_the_longest_and_tells_what_each_does(
    paths: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    live(paths, "busy", slug="proteinmpnn_with_a_very_long_name", jobs_served=120000, device="device:GPU-1")
    live(paths, "retiring", why="idle for idle_timeout_s = 600 s", overdue_at=ONCE)
    live(paths, "ready", pinned=1, warm_hits=11, jobs_served=12)
    _, out, _ = called(capfd, "list")
    assert max(map(say.width, out.splitlines())) <= 80
    told = " ".join(out.split())
    assert "job 1; 12.50 GiB of unified" in told and "unkillable" in told and "what it holds stays charged" in told
    assert "12 11" in told and "pinned" in told
    first, second, third = peek.workers(paths)
    assert (first["job_id"], first["device"], first["unkillable"]) == (1, "device:GPU-1", False)
    assert (second["unkillable"], third["warm_hits"], third["job_id"]) == (True, 11, None)


def test_a_wish_that_was_given_up_is_shown_for_a_day(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    called(capfd, "warm", "fold")
    with writing(paths) as db:
        db.execute("UPDATE wishes SET dropped_at = ?, text = 'it can never fit'", (stamp(now_s()),))
    shown = called(capfd, "list")[1]
    told = "fold was wanted warm and is given up: it can never fit; schedq workers warm fold tries again, schedq"
    assert f"{told} workers warm fold --remove forgets it" == " ".join(shown.split()) and shown[0] != "\n"
    with writing(paths) as db:
        db.execute("UPDATE wishes SET dropped_at = ?", (ONCE,))
    assert "no workers" in called(capfd, "list")[2]
