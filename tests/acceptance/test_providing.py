"""What a provider needs before it starts, as people give it: installed, taken as it is, fetched, verified, removed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import wheels
from driven import Queue, eventually
from nvml import Card, Stub
from web import Web, served

WEIGHTS = bytes(range(256)) * 4096
SHA = hashlib.sha256(WEIGHTS).hexdigest()
WORKER = """
import os
from schedq_worker import serve

def load():
    import toymodel
    return toymodel

def predict(model, request, job):
    return {"answer": model.answer, "prefix": __import__("sys").prefix}

serve(load=load, predict=predict)
"""
MANIFEST = """
slug = "{slug}"
mode = "resident"
[gpu]
policy = "{policy}"
{vram}
[host]
ram_budget_gb = 0.1
[worker]
script = "worker.py"
stop_grace_s = 2
[env]
requirements = ["toymodel==1.5"]
check = "import toymodel"
{more}
"""


@pytest.fixture
def queue(queue: Queue, tmp_path: Path) -> Queue:
    """A queue whose environments, configuration and pip are its own, and a folder of one wheel."""
    wheels.made(tmp_path / "wheels", "toymodel", "1.5")
    for name in [name for name in queue.env if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        del queue.env[name]
    queue.env.update(
        SCHEDQ_ENVS=str(tmp_path / "envs"), XDG_CONFIG_HOME=str(tmp_path / "config"), HOME=str(tmp_path),
        PIP_CONFIG_FILE=os.devnull,
    )  # fmt: skip
    return queue


@pytest.fixture
def web() -> Iterator[Web]:
    with served() as web:
        yield web


def provider(queue: Queue, slug: str = "toy", *, more: str = "", policy: str = "none") -> Path:
    """A provider that needs the wheel; its folder."""
    folder = queue.manifests / slug
    folder.mkdir()
    vram = "vram_budget_gb = 1.0" if policy == "required" else ""
    (folder / "provider.toml").write_text(MANIFEST.format(slug=slug, more=more, policy=policy, vram=vram))
    (folder / "worker.py").write_text(WORKER)
    return folder


def install(queue: Queue, *slugs: str) -> None:
    done = queue("install", *slugs, "--offline", "--find-links", "wheels", timeout=300)
    assert done.code == 0, done


def environments(queue: Queue) -> list[str]:
    return sorted(os.listdir(queue.env["SCHEDQ_ENVS"]))


def test_an_environment_is_built_offline_shared_kept_while_it_is_used_and_removed(queue: Queue) -> None:
    provider(queue)
    provider(queue, "twin")
    install(queue, "toy", "twin")
    assert len(environments(queue)) == 1
    ran = queue("run", "toy", queue.input(), "--out", "there")
    assert ran.code == 0 and ran.json["answer"] == 42, ran
    facts = json.loads((queue.folder / "there" / "job.json").read_text())
    assert facts["environment"] == environments(queue)[0] and facts["versions"]["toymodel"] == "1.5"

    both = queue("uninstall", "toy")
    assert both.code == 3 and "is that of twin too" in both.err and "schedq uninstall toy twin" in both.err, both
    warm = queue("uninstall", "toy", "twin")
    assert warm.code == 75 and "worker 1 of toy (ready) runs in" in warm.err, warm
    assert len(environments(queue)) == 1
    assert queue("workers", "retire", "toy").code == 0
    eventually(lambda: queue.status()["workers"] == [], what="the worker is gone")
    told = queue("uninstall", "toy", "twin", "--dry-run", "--json").json
    assert told["dry_run"] and told["freed_bytes"] > 100_000 and len(environments(queue)) == 1
    gone = queue("uninstall", "toy", "twin")
    assert gone.code == 0 and "MiB" in gone.out and environments(queue) == [], gone
    waits = queue("submit", "toy", queue.input())
    assert waits.code == 0 and "schedq install toy" in waits.err, waits
    again = queue("uninstall", "toy")
    assert again.code == 3 and "there is nothing to remove" in again.err, again


def test_an_environment_that_was_left_unfinished_is_removed_by_its_providers_name(queue: Queue) -> None:
    folder = provider(queue)
    (folder / "provider.toml").write_text((folder / "provider.toml").read_text().replace("import toymodel", "1 / 0"))
    assert queue("install", "toy").code == 1 and len(environments(queue)) == 1
    gone = queue("uninstall", "toy")
    assert gone.code == 0 and "left unfinished" in gone.out and environments(queue) == [], gone


def test_environments_that_nobody_declares_are_removed_on_request_alone(queue: Queue) -> None:
    folder = provider(queue)
    install(queue, "toy")
    text = (folder / "provider.toml").read_text()
    (folder / "provider.toml").write_text(text.replace('check = "import toymodel"', 'check = "import sys"'))
    install(queue, "toy")
    before = environments(queue)
    assert len(before) == 2
    broken = queue.manifests / "broken"
    broken.mkdir()
    (broken / "provider.toml").write_text("slug = 1")
    refused = queue("uninstall", "--all-unused")
    assert refused.code == 3 and "the manifest of broken is broken" in refused.err, refused
    (broken / "provider.toml").unlink()
    gone = queue("uninstall", "--all-unused")
    assert gone.code == 0 and gone.out.startswith("removed "), gone
    assert len(environments(queue)) == 1 and queue("uninstall", "--all-unused").out == "nothing is unused\n"
    assert queue("run", "toy", queue.input()).code == 0


def test_an_environment_that_is_there_is_used_as_it_is_and_told_by_what_it_holds(queue: Queue) -> None:
    provider(queue)
    mine = queue.folder / "mine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(mine)], check=True)
    site = next(mine.glob("lib/python3*/site-packages"))
    empty = queue("install", "toy", "--from-env", "mine")
    assert empty.code == 1 and "No module named 'toymodel'" in empty.err and "nothing was recorded" in empty.err, empty
    assert not (queue.folder / "config").exists()
    (site / "toymodel.py").write_text("answer = 43\n")
    (site / "toymodel-1.6.dist-info").mkdir()
    taken = queue("install", "toy", "--from-env", "mine")
    assert taken.code == 0 and "toymodel 1.6 instead of 1.5" in taken.err, taken
    ran = queue("run", "toy", queue.input(), "--out", "there")
    assert ran.code == 0 and ran.json == {"answer": 43, "prefix": str(mine)}, ran
    facts = json.loads((queue.folder / "there" / "job.json").read_text())
    shown = queue("providers", "show", "toy", "--json").json
    assert facts["versions"]["toymodel"] == "1.6"
    assert facts["environment"] == shown["runs_in"]["hash"] != shown["environment"]["hash"]
    assert shown["runs_in"]["path"] == str(mine)

    other = queue("install", "toy")
    assert other.code == 2 and "schedq uninstall toy ends that" in other.err, other
    forgotten = queue("uninstall", "toy")
    assert forgotten.code == 0 and "stays as it is" in forgotten.out, forgotten
    assert (mine / "bin" / "python").exists()
    assert "schedq install toy" in queue("providers", "show", "toy", "--json").json["missing"]


BARE = """
slug = "{slug}"
mode = "oneshot"
[gpu]
policy = "none"
[host]
ram_budget_gb = 0.1
[worker]
{worker}
[env]
check = "{check}"
[variants.small]
cpu = {{ threads = 1 }}
"""


def bare(manifests: Path, slug: str = "foo", check: str = "import sys", worker: str = "") -> None:
    """A provider whose environment is empty, with a variant."""
    (manifests / slug).mkdir(parents=True)
    text = BARE.format(slug=slug, check=check, worker=worker or 'command = ["{python}", "-c", ""]')
    (manifests / slug / "provider.toml").write_text(text)


def whole(queue: Queue) -> list[bool]:
    """Whether each environment has its marker."""
    root = Path(queue.env["SCHEDQ_ENVS"])
    return [(root / name / "schedq-environment.json").exists() for name in environments(queue)]


def test_a_taken_variant_gives_nothing_away_that_others_of_its_provider_run_in(queue: Queue) -> None:
    bare(queue.manifests)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(queue.folder / "mine")], check=True)
    assert queue("install", "foo").code == 0
    alone = queue("uninstall", "foo:small")
    assert alone.code == 3 and "is that of foo too" in alone.err and whole(queue) == [True], alone
    assert queue("install", "foo:small", "--from-env", "mine").code == 0
    ended = queue("uninstall", "foo:small")
    assert ended.code == 0 and "no longer run foo:small in what" in ended.out and whole(queue) == [True], ended

    assert queue("install", "foo", "--from-env", "mine").code == 0
    of_all = queue("uninstall", "foo:small")
    assert of_all.code == 3 and of_all.err.rstrip().endswith("schedq uninstall foo"), of_all
    dry = queue("uninstall", "foo", "--dry-run")
    assert dry.code == 0 and "would no longer run foo in" in dry.out and "would remove" not in dry.out, dry
    taken = queue("uninstall", "foo")
    assert taken.code == 0 and "what was built for it stays" in taken.err and whole(queue) == [True], taken
    built = queue("uninstall", "foo")
    assert built.code == 0 and environments(queue) == [], built


def test_an_environment_that_was_taken_and_is_gone_is_told_with_where_it_was_named(queue: Queue) -> None:
    bare(queue.manifests)
    mine = queue.folder / "mine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(mine)], check=True)
    assert queue("install", "foo", "--from-env", "$HOME/mine").code == 0
    mine.rename(queue.folder / "elsewhere")
    told = queue("submit", "foo", queue.input())
    assert "config.toml names in [providers.foo]" in told.err, told
    assert "run: schedq providers set foo python --unset; the job waits" in told.err, told
    given_up = queue("providers", "set", "foo", "python", "--unset")
    assert given_up.code == 0 and "note: foo is not installed: it has no environment yet" in given_up.err, given_up


def test_a_provider_that_runs_a_program_is_told_so(queue: Queue) -> None:
    bare(queue.manifests, worker='command = ["true"]')
    manifest = queue.manifests / "foo" / "provider.toml"
    manifest.write_text(manifest.read_text().replace('[env]\ncheck = "import sys"\n', ""))
    told = queue("install", "foo", "--python", sys.executable)
    assert told.code == 2 and "(a program of its own)" in told.err and "--from-env" not in told.err, told


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_removal_that_is_ended_before_it_was_decided_leaves_what_was_there(queue: Queue, signum: int) -> None:
    bare(queue.manifests)
    assert queue("install", "foo").code == 0 and queue("up").code == 0
    call = queue.start("uninstall", "foo")
    eventually(lambda: whole(queue) == [False], what="its marker is away")
    call.send_signal(signum)
    _out, err = call.communicate(timeout=30)
    if signum != signal.SIGKILL:
        assert call.returncode == 128 + signum and "is as it was" in err and "Traceback" not in err, err
        assert whole(queue) == [True]
    again = queue("install", "foo")
    assert again.code == 0 and "making an environment" not in again.err and whole(queue) == [True], again


def test_what_a_running_scheduler_serves_counts_as_declared(queue: Queue, tmp_path: Path) -> None:
    bare(queue.manifests)
    bare(tmp_path / "more", "bar", check="import os")
    both = f"{queue.manifests}:{tmp_path / 'more'}"
    assert queue("install", "foo", "bar", SCHEDQ_MANIFESTS=both).code == 0
    assert queue("up", SCHEDQ_MANIFESTS=both).code == 0
    refused = queue("uninstall", "--all-unused")
    assert refused.code == 3 and f"SCHEDQ_MANIFESTS={both}" in refused.err and whole(queue) == [True, True], refused
    assert queue("uninstall", "--all-unused", SCHEDQ_MANIFESTS=both).out == "nothing is unused\n"


def test_what_went_is_told_where_the_next_one_cannot_go(queue: Queue, tmp_path: Path) -> None:
    bare(queue.manifests)
    bare(queue.manifests, "bar", check="import os")
    assert queue("install", "foo", "bar").code == 0 and queue("up").code == 0
    first, second = sorted(Path(queue.env["SCHEDQ_ENVS"]).iterdir())
    (first / "many").mkdir()
    for number in range(20_000):  # removing these takes longer than the worker below needs to come up
        (first / "many" / str(number)).touch()
    call = queue.start("uninstall", "foo", "bar")
    eventually(lambda: not (first / "schedq-environment.json").exists(), what="the first is being removed")
    with subprocess.Popen([second / "bin" / "python", "-c", "input()"], stdin=subprocess.PIPE) as worker:
        out, err = call.communicate(timeout=60)
        worker.communicate(b"\n")
    assert call.returncode == 75 and f"process {worker.pid} runs in {second}" in err, err
    assert out.startswith(f"removed {first} (") and str(second) not in out and whole(queue) == [True], out


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--from-env", "mine", "--offline"], "--from-env builds nothing, and --offline says how"),
        (["--find-links", "nowhere"], "is not there; name a folder"),
        (["--python", "nowhere"], "the Python that was named does not run"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_built(queue: Queue, flags: list[str], word: str) -> None:
    provider(queue)
    done = queue("install", "toy", *flags)
    assert done.code in (1, 2) and word in done.err, done
    assert not any((queue.folder / "envs").glob("*/bin"))


def reason_of(queue: Queue, job: str) -> str:
    """Why a job waits: its ruling and its words."""
    reason = queue.show(job).get("reason") or {}
    return f"{reason.get('ruling')}: {reason.get('text')}"


def files_of(address: str, more: str = "") -> str:
    return f'[[files]]\npath = "w.bin"\nbytes = {len(WEIGHTS)}\nsha256 = "{SHA}"\nurl = "{address}"\n{more}'


def test_nothing_is_downloaded_unless_it_is_asked_for_and_then_a_job_that_waits_starts(queue: Queue, web: Web) -> None:
    folder = provider(queue, more=files_of(web.page("/w.bin", WEIGHTS)))
    refused = queue("run", "toy", queue.input())
    assert refused.code == 1 and "run: schedq files toy --fetch" in refused.err, refused
    assert "nothing was queued" in refused.err and not (queue.folder / "envs").exists(), "it was installed in vain"
    install(queue, "toy")
    assert queue("up").code == 0
    job = queue("submit", "toy", queue.input()).out.strip()
    eventually(lambda: reason_of(queue, job).startswith("not_installed"), what="it waits")
    assert "schedq files toy --fetch" in reason_of(queue, job)
    listed = queue("files", "toy")
    assert listed.code == 0 and "missing" in listed.out and "schedq files toy --fetch" in listed.err, listed
    assert web.asked == []
    fetched = queue("files", "toy", "--fetch")
    assert fetched.code == 0 and (folder / "w.bin").read_bytes() == WEIGHTS, fetched
    assert queue("wait", job, "--timeout", "60s").code == 0


def test_files_that_are_not_what_is_declared_are_told_and_replaced_on_request_alone(queue: Queue, web: Web) -> None:
    more = f'[[files]]\npath = "none.bin"\nurl = "{web.address}/none"\n'
    folder = provider(queue, more=files_of(web.page("/w.bin", WEIGHTS), more))
    first = queue("files", "toy", "--fetch", "--json")
    assert first.code == 1 and "404" in first.err, first
    assert [row["state"] for row in first.json["files"]] == ["verified", "missing"] and not first.json["good"]
    (folder / "w.bin").write_bytes(b"x" * len(WEIGHTS))
    (folder / "none.bin").touch()
    assert [row["state"] for row in queue("files", "toy", "--json").json["files"]] == ["there", "there"]
    odd = queue("files", "toy", "--verify")
    assert odd.code == 1 and "wrong content" in odd.out and SHA in " ".join(odd.out.split()), odd
    assert queue("files", "toy", "--fetch").code == 0, "what has its size is not read by --fetch alone"
    assert (folder / "w.bin").read_bytes()[:1] == b"x"
    assert queue("files", "toy", "--fetch", "--overwrite").code == 0
    assert queue("files", "toy", "--verify").code == 0 and (folder / "w.bin").read_bytes() == WEIGHTS
    web.page("/none", fails=99)
    (folder / "none.bin").unlink()
    ill = queue("files", "toy", "--fetch")
    assert ill.code == 75 and "503" in ill.err, ill
    both = queue("files", "toy", "--fetch", "--verify")
    assert both.code == 2 and "two things" in both.err, both


def test_a_fetch_that_is_interrupted_says_so_and_the_same_call_goes_on(queue: Queue, web: Web) -> None:
    folder = provider(queue, more=files_of(web.page("/w.bin", WEIGHTS, holds_after=300_000)))
    call = queue.start("files", "toy", "--fetch")
    assert web.holds.wait(30)
    eventually(lambda: (folder / ".w.bin.part").stat().st_size == 300_000, what="what came is written")
    call.send_signal(signal.SIGINT)
    _out, err = call.communicate(timeout=30)
    assert call.returncode == 130 and "goes on after it" in err, err
    part = queue("files", "toy", "--json").json["files"][0]
    assert (part["state"], part["have_bytes"]) == ("in part", 300_000)
    web.pages["/w.bin"].holds_after = None
    assert queue("files", "toy", "--fetch").code == 0 and web.ranges() == ["", "bytes=300000-"]
    assert (folder / "w.bin").read_bytes() == WEIGHTS


def test_a_torch_for_no_device_on_a_machine_that_has_one_is_told_with_the_remedy(queue: Queue, tmp_path: Path) -> None:
    wheels.torch(tmp_path / "wheels", "2.13.0+cpu")
    (tmp_path / "driver").mkdir()
    stub = Stub(tmp_path / "driver").cards([Card(name="NVIDIA GH200 480GB")])
    stub.write()
    queue.env.update(stub.env())
    folder = provider(queue, policy="required")
    text = (folder / "provider.toml").read_text()
    (folder / "provider.toml").write_text(text.replace('"toymodel==1.5"', '"toymodel==1.5", "torch==2.13.0"'))
    done = queue("install", "toy", "--offline", "--find-links", "wheels", timeout=300)
    assert done.code == 0, done
    for told in (done.err, queue("providers", "check", "toy").out, queue("providers", "show", "toy").out):
        told = " ".join(told.split())
        assert "torch 2.13.0+cpu in" in told and "is built without CUDA" in told, told
        assert "this machine has NVIDIA GH200 480GB" in told
        assert (
            "schedq uninstall toy, then PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu126 schedq install"
            in told
        )
    stub.cards([]).write()
    assert "torch" not in queue("providers", "check", "toy").out
