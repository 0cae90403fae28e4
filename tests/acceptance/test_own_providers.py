"""A provider of one's own: written by `new`, run by `try` without a queue, fitted to the machine by `set`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from pathlib import Path

import psutil
import pytest
from driven import Done, Queue, eventually, words_of
from nvml import Card, Stub

from scheduler.host import moving
from scheduler.host.machine.kfd import FIRST_PID_NAMESPACE

KINDS = ("", "--oneshot", "--legacy")


@pytest.fixture
def queue(queue: Queue, tmp_path: Path) -> Queue:
    """A queue whose home, configuration and temporary folder are its own."""
    (tmp_path / "tmp").mkdir()
    queue.env.update(HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "config"), TMPDIR="/tmp")
    return queue


def new(queue: Queue, slug: str, *options: str) -> Path:
    """A provider as `new` writes it, among the queue's manifests."""
    done = queue("providers", "new", slug, "--into", str(queue.manifests), *filter(None, options))
    assert done.code == 0, done
    assert done.out.strip() == str(queue.manifests / slug)
    return queue.manifests / slug


def worker(queue: Queue, code: str, slug: str = "own", **keys: str) -> str:
    """A resident provider with this code and these keys of [worker]; its folder."""
    folder = new(queue, slug)
    (folder / "resident" / f"{slug}_resident_worker.py").write_text(textwrap.dedent(code))
    manifest = (folder / "provider.toml").read_text()
    for key, value in keys.items():
        kept = "".join(line for line in manifest.splitlines(True) if not line.startswith(f"{key} ="))
        manifest = kept.replace("[worker]\n", f"[worker]\n{key} = {value}\n")
    (folder / "provider.toml").write_text(manifest)
    return str(folder)


def tried(queue: Queue, folder: str, *words: str) -> Done:
    """What `try` answers with the provider's own example; nothing of it is left then."""
    before = left()
    done = queue("providers", "try", folder, "--example", *words)
    assert left() == before
    return done


def left() -> set[str]:
    """The folders of trials, and the keepers and workers that live of them."""
    folders = {name for name in os.listdir("/tmp") if name.startswith("schedq-try-")}
    return folders | {str(each.pid) for each in psutil.process_iter() if "schedq-try-" in " ".join(words_of(each))}


# new


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_passes_the_check_and_answers_by_try_and_through_the_queue(queue: Queue, kind: str) -> None:
    folder = new(queue, "own", kind)
    assert queue("providers", "check", "own").out.split() == ["own", "ok"]
    assert not (queue.home / "queue.db").exists()
    once = tried(queue, str(folder), "--param", "times=2")
    assert once.code == 0 and once.json["said"] == "hello hello", once
    assert not (queue.home / "queue.db").exists()
    run = queue("run", "own", "--example", "--param", "times=2")
    assert run.code == 0 and run.json == once.json, run
    [case] = tomllib.loads((folder / "provider.toml").read_text())["validation"]
    assert case["params"] == {"times": 2} and case["expect"] == {"/said": run.json["said"]}
    refused = queue("run", "own", queue.input(say="  "))
    assert refused.code == 3 and "there is nothing to say" in refused.err, refused
    assert queue("run", "own", queue.input(say="x", more=1)).code == 3


def test_the_interpreter_is_run_before_it_is_written_down(queue: Queue, tmp_path: Path) -> None:
    folder = new(queue, "own", "--python", sys.executable)
    assert tomllib.loads((folder / "provider.toml").read_text())["worker"]["python"] == sys.executable
    for odd, said in (
        ("/bin/true", "is no Python"),
        ("nothere", "is not there"),
        (str(tmp_path), "has no bin/python"),
    ):
        done = queue("providers", "new", "other", "--into", str(queue.manifests), "--python", odd)
        assert done.code in (1, 2) and said in done.err, done
    assert os.listdir(queue.manifests) == ["own"]


@pytest.mark.parametrize(
    ("slug", "code", "said"),
    [
        ("exec", 2, "exec is reserved"),
        ("My-Model", 2, "like my_model"),
        ("9lives", 2, "like lives"),
        ("../own", 2, "can be no provider's name"),
        ("own:big", 2, "names a variant"),
        ("\u00e4", 2, "can be no provider's name"),
        ("a" * 65, 2, "has 65 characters"),
        ("capiti", 3, "a provider capiti is there already"),
        ("own", 3, "is there, and nothing in it is changed"),
        ("file", 3, "is there, and nothing in it is changed"),
        ("dangling", 3, "is there, and nothing in it is changed"),
    ],
)
def test_a_name_that_cannot_be_or_is_taken_is_refused_and_nothing_is_written(
    queue: Queue, slug: str, code: int, said: str
) -> None:
    kept = new(queue, "own") / "provider.toml"
    kept.write_text("mine")
    (queue.manifests / "file").write_text("")
    (queue.manifests / "dangling").symlink_to("nowhere")
    before = sorted(str(each) for each in queue.folder.rglob("*") if queue.home not in each.parents)
    done = queue("providers", "new", slug, "--into", str(queue.manifests))
    assert done.code == code and said in " ".join(done.err.split()) and not done.out, done
    assert before == sorted(str(each) for each in queue.folder.rglob("*") if queue.home not in each.parents)
    assert kept.read_text() == "mine"


def test_without_a_place_it_is_the_current_folder_and_what_comes_next_is_said(queue: Queue) -> None:
    done = queue("providers", "new", "own", "--oneshot", "--json")
    assert done.json["folder"] == str(queue.folder / "own") and done.json["kind"] == "oneshot", done
    assert "predict.py" in done.json["files"] and (queue.folder / "own" / "predict.py").exists()
    assert f'export SCHEDQ_MANIFESTS="$SCHEDQ_MANIFESTS:{queue.folder}"' in done.err, done
    assert queue("providers", "new", "b", "--oneshot", "--legacy").code == 2
    assert queue("providers", "new", "b", "--into", str(queue.folder / "no")).code == 2


def test_a_folder_is_named_so_that_a_shell_takes_it_and_one_that_cannot_be_named_is_refused(queue: Queue) -> None:
    (queue.folder / "a:b").mkdir()
    colon = queue("providers", "new", "own", "--into", "a:b")
    assert colon.code == 2 and "divided by colons" in colon.err and not os.listdir(queue.folder / "a:b"), colon
    odd = queue.folder / "a $HOME `b`"
    odd.mkdir()
    for before in ("/x", ""):
        done = queue("providers", "new", "own", "--into", str(odd), SCHEDQ_MANIFESTS=before)
        line = next(each for each in done.err.splitlines() if each.startswith("export ")).split("     ")[0]
        shell = ["sh", "-c", f'{line}; printf %s "$SCHEDQ_MANIFESTS"']
        said = subprocess.run(shell, env={**queue.env, "SCHEDQ_MANIFESTS": before}, capture_output=True, text=True)
        assert said.stdout == (f"/x:{odd}" if before else str(odd)), line
        shutil.rmtree(odd / "own")


# try


def test_a_worker_that_never_answers_is_ended_and_said_with_what_to_look_at(queue: Queue) -> None:
    folder = worker(queue, "import time\nprint('still reading')\ntime.sleep(600)\n", start_timeout_s="0.5")
    done = tried(queue, folder)
    assert done.code == 1, done
    assert "still reading" in done.err and "start_timeout_s = 0.5 s" in done.err
    assert "does the script call serve()" in done.err and f"{folder}/resident/own_resident_worker.py" in done.err


def test_a_worker_that_dies_while_it_loads_is_said_with_its_last_words(queue: Queue) -> None:
    done = tried(queue, worker(queue, "raise RuntimeError('weights are not there')\n"))
    assert done.code == 1 and "RuntimeError: weights are not there (exit code 1)" in done.err, done
    assert "it ended before it answered" in done.err and "it was run as: " in done.err


@pytest.mark.parametrize(("code", "exit_code"), [(3, 3), (5, 5), (75, 75), (1, 1)])
def test_a_worker_that_leaves_while_it_loads_gives_the_exit_code_of_what_that_means(
    queue: Queue, code: int, exit_code: int
) -> None:
    done = tried(queue, worker(queue, f"import sys\nprint('no kernels here')\nsys.exit({code})\n"))
    assert done.code == exit_code and "no kernels here" in done.err, done


KIT = "from schedq_worker import serve, Refused, Later\ndef load():\n    return 1\ndef predict(model, request, job):\n"


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            "    import os; print('going', flush=True); os.kill(os.getpid(), 9)",
            1,
            "crashed: the worker was killed by SIGKILL",
        ),
        ("    import os; os._exit(0)", 1, "left (exit 0)"),
        ("    raise ValueError('odd')", 1, "ValueError: odd"),
        ("    raise Refused('too long')", 3, "refused: too long"),
        ("    raise Later('licence', retry_after_s=9)", 75, "tried again after 9 s"),
        ("    return [1]", 1, "predict returned list, not a dict"),
        ("    import time; time.sleep(600)", 1, "no progress line came for request_timeout_s = 0.5 s"),
        ("    raise MemoryError()", 1, "memory ran out"),
    ],
)
def test_an_attempt_that_fails_is_said_as_a_job_says_it(queue: Queue, body: str, code: int, said: str) -> None:
    folder = worker(queue, f"{KIT}{body}\nserve(load=load, predict=predict)\n", request_timeout_s="0.5")
    done = tried(queue, folder)
    assert done.code == code and said in done.err and not done.out, done


def test_a_traceback_is_spoken_of_only_where_one_was_printed(queue: Queue) -> None:
    hint = "an exception of predict() stands in its log"
    for number, (body, printed) in enumerate(
        [("    return 1.5", False), ("    return {'a': {1}}", False), ("    raise ValueError('mine')", True)]
    ):
        code = f"{KIT}{body}\nserve(load=load, predict=predict)\n"
        done = tried(queue, worker(queue, code, f"own{number}", request_timeout_s="20"))
        assert done.code == 1 and (hint in done.err) == printed == ("Traceback" in done.err), done


GARBAGE = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[sys.argv.index("--socket") + 1])
listening.listen(8)
while True:
    peer, _ = listening.accept()
    said = peer.makefile("rb").readline()
    peer.sendall(b'{"ok": true}\\n' if b"ping" in said else REPLY)
    peer.close()
"""


@pytest.mark.parametrize(
    ("reply", "said"),
    [("b'<html>'", "the worker closed the connection"), (r"b'<html>\n'", "the worker's reply cannot be used")],
)
def test_a_worker_that_says_garbage_is_ended_and_what_a_reply_is_is_said(queue: Queue, reply: str, said: str) -> None:
    done = tried(queue, worker(queue, GARBAGE.replace("REPLY", reply), stop_grace_s="1"))
    assert done.code == 1 and said in done.err and "a reply is one line of JSON" in done.err, done


def test_what_lacks_of_the_promised_outputs_is_named(queue: Queue) -> None:
    done = tried(
        queue, worker(queue, f"{KIT}    return {{}}\nserve(load=load, predict=predict)\n", outputs='["*.cif"]')
    )
    assert done.code == 1 and "wrote no *.cif" in done.err and "worker.outputs" in done.err, done


def test_outputs_go_where_they_are_asked_to_and_never_over_something(queue: Queue) -> None:
    folder = str(new(queue, "own"))
    done = tried(queue, folder, "--out", "results/{name}")
    place = queue.folder / "results" / "example"
    assert done.code == 0 and f"outputs: {place}" in done.err, done
    assert (place / "said.txt").read_text() == "hello\n" and json.loads((place / "job.json").read_text())["tried"]
    again = tried(queue, folder, "--out", "results/{name}")
    assert again.code == 3 and "exists" in again.err, again
    facts = json.loads((place / "job.json").read_text())
    assert facts["queue_id"].startswith("try-") and (facts["job"], facts["attempt"]) == (1, 1), facts
    assert len(facts["input_sha256"]) == 64


def test_what_is_there_is_refused_before_anything_starts_also_where_it_is_called_try(queue: Queue) -> None:
    folder = worker(queue, "open('started', 'w')\n")
    (queue.folder / "outs" / "try").mkdir(parents=True)
    done = tried(queue, folder, "--out", "outs/{id}")
    assert done.code == 3 and f"the destination {queue.folder}/outs/try exists" in done.err, done
    done = tried(queue, folder, "--out", "outs/{batch}")
    assert done.code == 2 and "is in no batch" in done.err and "--batch" not in done.err, done
    assert not (Path(folder) / "started").exists()


def test_outputs_that_find_no_place_are_kept_and_the_reply_is_printed(queue: Queue) -> None:
    body = """
    import pathlib
    (job.out_dir / "a").write_text("kept")
    pathlib.Path(request["say"]).mkdir()
    return {"n": 1}
serve(load=load, predict=predict)
"""
    folder = worker(queue, f"{KIT}{body}")
    out = str(queue.folder / "out")
    before = left()
    done = queue("providers", "try", folder, queue.input(say=out), "--out", out)
    assert done.code == 1 and done.json == {"n": 1}, done
    said = " ".join(done.err.split())
    assert f"{out} is there by now" in said and "schedq result" not in said and "schedq-try-" not in said, done
    kept = Path(said.partition("the outputs are kept in ")[2].split()[0])
    assert (kept / "a").read_text() == "kept" and left() == before
    shutil.rmtree(kept.parent)


def test_copies_of_two_trials_at_one_place_have_names_of_their_own_and_go() -> None:
    facts = [{"queue_id": f"try-{each}", "job": 1, "attempt": 1} for each in "ab"]
    assert moving.beside("/x/out", facts[0], 1) != moving.beside("/x/out", facts[1], 1)


def test_what_run_refuses_is_refused_and_nothing_is_started(queue: Queue) -> None:
    folder = worker(queue, "open('started', 'w')\n")
    for words_, code in (
        ((queue.input(say=3),), 3), (("no.json",), 2), ((), 2), (("--example", "--param", "tims=2"), 2),
        (("--example", "--device", "GPU-none"), 2), (("--example", "--variant", "big"), 2),
    ):  # fmt: skip
        assert queue("providers", "try", folder, *words_).code == code, words_
    assert not (Path(folder) / "started").exists()
    assert queue("providers", "try", "nobody", "--example").code == 2


def test_what_does_not_fit_is_not_started_unless_that_is_asked_for(queue: Queue) -> None:
    folder = new(queue, "own")
    assert queue("providers", "set", "own", "ram_budget_gb", "900000").code == 0
    refused = tried(queue, str(folder))
    assert refused.code == 3 and "too_big" in refused.err and "900000" in refused.err, refused
    done = tried(queue, str(folder), "--anyway")
    assert done.code == 0 and "started all the same" in done.err, done


def test_its_environment_is_that_of_a_worker_without_a_device(queue: Queue) -> None:
    code = f"{KIT}    import os; return dict(os.environ)\nserve(load=load, predict=predict)\n"
    folder = worker(queue, code, env='{ MINE = "${HOME}/x" }', unset='["LANG"]', stop_grace_s="1")
    here = tried(queue, folder).json
    there = queue("run", "own", "--example", STRANGE="1").json
    own = {"SCHEDQ_WORKER", "TMPDIR", "PYTHONPATH"}
    assert {k: v for k, v in here.items() if k not in own} == {k: v for k, v in there.items() if k not in own}
    assert here["MINE"] == f"{queue.env['HOME']}/x" and here["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "STRANGE" not in there and here["PYTHONPATH"] == there["PYTHONPATH"]


def test_the_time_that_is_given_is_over(queue: Queue) -> None:
    done = tried(queue, worker(queue, "import time\ntime.sleep(600)\n"), "--timeout", "500ms")
    assert done.code == 124 and "--timeout of 0.5 s was over" in done.err, done
    deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n"
    done = tried(queue, worker(queue, deaf, "other"), "--timeout", "500ms")
    assert done.code == 124 and "did not leave within 1 s of being told to" in done.err, done


WAITS = f"""{KIT}    open("asked", "w").close(); import time; time.sleep(600)
serve(load=load, predict=predict)
"""
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAITS}"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_the_worker_and_all_of_it(queue: Queue, number: int, code: int) -> None:
    folder, before = worker(queue, WAITS), left()
    going = queue.start("providers", "try", folder, "--example")
    eventually(lambda: (Path(folder) / "asked").exists())
    going.send_signal(number)
    _, err = going.communicate(timeout=20)
    assert going.returncode == code and "stopping it" in err, err
    assert left() == before


def test_a_second_ctrl_c_kills_a_worker_that_does_not_heed_the_first(queue: Queue) -> None:
    folder, before = worker(queue, DEAF), left()
    going = queue.start("providers", "try", folder, "--example")
    eventually(lambda: (Path(folder) / "asked").exists())
    going.send_signal(signal.SIGINT)
    assert going.stderr is not None
    while "stopping it" not in going.stderr.readline():
        pass
    began = time.monotonic()
    going.send_signal(signal.SIGINT)
    assert going.wait(timeout=20) == 130
    assert time.monotonic() - began < 10.0
    going.communicate()
    assert left() == before


def test_who_is_killed_leaves_nothing_behind(queue: Queue) -> None:
    folder, before = worker(queue, WAITS, stop_grace_s="1"), left()
    going = queue.start("providers", "try", folder, "--example")
    eventually(lambda: (Path(folder) / "asked").exists())
    assert left() > before
    going.kill()
    going.communicate()
    eventually(lambda: left() == before, what="keeper, worker and folder are gone")


def test_what_it_declares_is_seen_by_everybody_while_it_runs(queue: Queue) -> None:
    folder = worker(queue, WAITS, stop_grace_s="1")
    assert queue("providers", "set", "own", "ram_budget_gb", "0.37").code == 0
    going = queue.start("providers", "try", folder, "--example")
    eventually(lambda: (Path(folder) / "asked").exists())
    seen = queue("machine", "show", "--json").json
    going.send_signal(signal.SIGINT)
    going.communicate(timeout=20)
    assert [(each["name"], each["charge_gib"]) for each in seen["others"]] == [("own", 0.37)], seen["others"]


HOLDS = """
import os, time
from schedq_worker import serve

def load():
    path = os.environ["NVML"]
    with open(path) as file:
        text = file.read()
    with open(path + ".worker", "w") as file:
        file.write(text + "0 compute %d %d\\n" % (os.getpid(), 3 << 30))
    os.replace(path + ".worker", path)

def predict(model, request, job):
    time.sleep(2.5)
    return {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "SCHEDQ_CHARGE_DEVICE_GIB")}

serve(load=load, predict=predict)
"""


def test_a_device_is_shown_where_it_is_asked_for_and_what_is_held_there_is_said(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "stub").mkdir()
    stub = Stub(tmp_path / "stub").cards([Card(total_gib=24.0)]).write()
    queue.env.update(stub.env())
    folder = worker(queue, HOLDS, env=f'{{ NVML = "{stub.path}" }}')
    manifest = Path(folder) / "provider.toml"
    text = manifest.read_text().replace('policy = "none"', 'policy = "required"\nvram_budget_gb = 5.0')
    manifest.write_text(text)
    done = tried(queue, folder, "--device", "0")
    assert done.code == 0, done
    assert done.json == {"CUDA_VISIBLE_DEVICES": Card(total_gib=24.0).id, "SCHEDQ_CHARGE_DEVICE_GIB": "5.0"}, done
    if os.readlink("/proc/self/ns/pid") == FIRST_PID_NAMESPACE:
        assert "at most 3.00 GiB of device memory (5.00 declared)" in done.err, done
    manifest.write_text(text.replace("5.0", "500.0"))
    assert tried(queue, folder, "--device", "0").code == 3
    blind = tried(queue, folder)
    assert blind.json["CUDA_VISIBLE_DEVICES"] == "-1" and "is shown none; --device gives it one" in blind.err, blind


def test_a_worker_that_does_not_leave_is_said_so(queue: Queue) -> None:
    code = DEAF.replace('open("asked", "w").close(); import time; time.sleep(600)', "return {}")
    code = code.replace(
        "serve(load=load, predict=predict)", "serve(load=load, predict=predict)\nimport time\ntime.sleep(600)"
    )
    done = tried(queue, worker(queue, code, stop_grace_s="0.5"))
    assert done.code == 0 and done.json == {} and "did not leave within stop_grace_s = 0.5 s" in done.err, done


# set


def test_a_value_is_written_counts_and_is_taken_out_again(queue: Queue) -> None:
    new(queue, "own")
    file = Path(queue.env["XDG_CONFIG_HOME"]) / "schedq" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('# mine\novertake = "10m"\n')
    done = queue("providers", "set", "own", "start_timeout_s", "2m", "--json")
    assert done.json["value"] == 120.0 and str(file) in done.json["origin"] and "at once" in done.json["counts"], done
    for key, value in (("env.CACHE", "/data"), ("threads", "1"), ("retry.outcomes", '["crashed"]')):
        assert queue("providers", "set", "own", key, value).code == 0
    assert tomllib.loads(file.read_text()) == {
        "overtake": "10m",
        "providers": {
            "own": {"start_timeout_s": 120.0, "threads": 1, "outcomes": ["crashed"], "env": {"CACHE": "/data"}}
        },
    }
    assert file.read_text().startswith('# mine\novertake = "10m"\n\n[providers.own]\n')
    for key in ("worker.start_timeout_s", "env.CACHE", "threads", "outcomes"):
        assert queue("providers", "set", "own", key, "--unset").code == 0
    assert file.read_text().strip() == '# mine\novertake = "10m"'
    again = queue("providers", "set", "own", "threads", "--unset")
    assert again.code == 0 and "nothing was changed" in again.err, again


def config_of(queue: Queue, text: str = "") -> Path:
    """The user's configuration, made."""
    file = Path(queue.env["XDG_CONFIG_HOME"]) / "schedq" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_the_folder_that_try_takes_is_taken_by_set_too_and_means_its_provider(queue: Queue) -> None:
    folder, file = new(queue, "own"), config_of(queue)
    manifest = folder / "provider.toml"
    manifest.write_text(manifest.read_text() + "[variants.big]\n")
    for given in (str(folder), "manifests/own"):
        done = queue("providers", "set", given, "ram_budget_gb", "3")
        assert done.code == 0 and "host.ram_budget_gb = 3" in done.out, done
    assert queue("providers", "set", f"{folder}:big", "threads", "1").code == 0
    assert tomllib.loads(file.read_text())["providers"] == {"own": {"ram_budget_gb": 3}, "own:big": {"threads": 1}}
    assert "no effect" not in queue("providers", "check", "own").err
    assert queue("providers", "set", str(folder), "ram_budget_gb", "--unset").code == 0
    assert tomllib.loads(file.read_text())["providers"] == {"own:big": {"threads": 1}}
    nobody = queue("providers", "set", str(queue.folder), "threads", "1")
    assert nobody.code == 2 and "has no provider.toml" in nobody.err, nobody


def test_a_folder_is_checked_and_a_name_that_is_unknown_is_told_how_a_folder_is_named(queue: Queue) -> None:
    folder, away = new(queue, "own"), queue.folder / "mine" / "gc"
    shutil.copytree(folder, away)
    manifest = away / "provider.toml"
    manifest.write_text(manifest.read_text().replace('"own"', '"gc"') + "[variants.big]\n")
    for named in (str(away), "mine/gc", "mine/gc/", f"{away}:big"):
        done = queue("providers", "check", named)
        assert done.code == 0 and done.out.startswith(named), done
    none = queue("providers", "check", f"{away}:tall")
    assert none.code == 2 and "no variant 'tall'; it has big" in none.err, none
    manifest.write_text(manifest.read_text() + "[nonsense\n")
    broken = queue("providers", "check", str(away))
    assert broken.code == 2 and "broken" in broken.out and "provider.toml" in broken.out, broken
    unknown = queue("providers", "check", "gc")
    assert unknown.code == 2 and "SCHEDQ_MANIFESTS adds folders" in unknown.err and "./gc" in unknown.err, unknown


def test_what_a_value_keeps_a_provider_from_here_is_said_at_once_and_written_all_the_same(queue: Queue) -> None:
    new(queue, "own")
    file = config_of(queue)
    never = queue("providers", "set", "own", "ram_budget_gb", "900000")
    assert never.code == 0 and "note: here it can never start: too_big: own needs 900000 GiB" in never.err, never
    for _ in range(2):
        gone = queue("providers", "set", "own", "python", "/nope/python")
        assert gone.code == 0 and "note: own is not installed: /nope/python, which" in gone.err, gone
        assert "run: schedq providers set own python --unset" in gone.err, gone
    other = queue("providers", "set", "own", "idle_timeout_s", "60")
    assert other.code == 0 and "note:" not in other.err, other
    given = {"ram_budget_gb": 900000, "python": "/nope/python", "idle_timeout_s": 60}
    assert tomllib.loads(file.read_text())["providers"]["own"] == given
    for key in ("python", "ram_budget_gb"):
        mended = queue("providers", "set", "own", key, "--unset")
        assert mended.code == 0 and "note:" not in mended.err, mended


def test_a_measurement_is_not_told_of_a_value_that_was_set_by_hand(queue: Queue) -> None:
    new(queue, "own")
    notes = 'device = "GB10"\ndate = "2026-01-01"\nmeasured = "host 1.00 GiB at most in 1 case; margin 10%"\n'
    file = config_of(queue, f'[providers.own]\nram_budget_gb = 1.1\nthreads = 1\n{notes}note = "Ada"\n')
    done = queue("providers", "set", "own", "threads", "2")
    assert done.code == 0 and notes in file.read_text(), done
    done = queue("providers", "set", "own", "ram_budget_gb", "5")
    assert done.code == 0 and "(Ada)" in done.err and "GB10" not in done.err, done
    assert file.read_text() == '[providers.own]\nram_budget_gb = 5\nthreads = 2\nnote = "Ada"\n'
    file.write_text(f"[providers.own]\nram_budget_gb = 1.1\nthreads = 1\n{notes}")
    assert queue("providers", "set", "own", "ram_budget_gb", "--unset").code == 0
    assert file.read_text() == "[providers.own]\nthreads = 1\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "[providers.own]\nram_budget_gb = 1\n[providers.own.host]\nram_budget_gb = 2\n",
            "[providers.own]\nram_budget_gb = 1\n[providers.own.host]\nram_budget_gb = 3\n",
        ),
        (
            "[providers.own]\nhost.ram_budget_gb = 1\nram_budget_gb = 2\n",
            "[providers.own]\nhost.ram_budget_gb = 1\nram_budget_gb = 3\n",
        ),
        ("[providers.own]\nhost = { ram_budget_gb = 1 }\n", "[providers.own]\nhost = { ram_budget_gb = 3 }\n"),
    ],
)
def test_of_two_places_of_a_value_the_one_that_counts_is_set(queue: Queue, before: str, after: str) -> None:
    new(queue, "own")
    file = config_of(queue, before)
    done = queue("providers", "set", "own", "ram_budget_gb", "3")
    assert done.code == 0 and done.out.split() == ["host.ram_budget_gb", "=", "3.0"], done
    assert file.read_text() == after


def test_a_provider_whose_manifest_is_broken_can_be_set_and_what_it_goes_by_is_not_made_up(queue: Queue) -> None:
    manifest, file = new(queue, "own") / "provider.toml", config_of(queue)
    manifest.write_text(manifest.read_text().replace('mode = "resident"', 'mode = "odd"'))
    done = queue("providers", "set", "own", "ram_budget_gb", "3")
    assert done.code == 0 and done.out.split() == ["host.ram_budget_gb", "=", "3"], done
    assert f"from {file}; what own goes by is not known" in done.err and "default" not in done.err, done
    gone = queue("providers", "set", "own", "ram_budget_gb", "--unset")
    assert gone.code == 0 and gone.out.strip() == "host.ram_budget_gb: not known", gone


def test_what_is_no_text_is_refused_and_what_begins_with_a_dash_is_said_how_to_give(queue: Queue) -> None:
    new(queue, "own")
    odd = os.fsdecode(b"\xff")
    for words_ in (("env.X", odd), (f"env.{odd}", "x")):
        done = queue("providers", "set", "own", *words_)
        assert done.code == 2 and "is no text: its bytes are not UTF-8" in done.err, done
    for key, value in (("ram_budget_gb", "-3"), ("env.OPTS", "-Xmx2g")):
        done = queue("providers", "set", "own", key, value)
        assert done.code == 2 and "a value that begins with - stands after --" in done.err, done
    assert queue("providers", "set", "own", "env.OPTS", "--", "-Xmx2g").code == 0
    assert "must be at least 0" in queue("providers", "set", "own", "ram_budget_gb", "--", "-3").err


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("start_timeout", "3", "did you mean start_timeout_s?"),
        ("gpu.vram_budge_gb", "3", "did you mean gpu.vram_budget_gb?"),
        ("threads", "1.5", "must be a whole number"),
        ("ram_budget_gb", "much", "must be a number"),
        ("start_timeout_s", "soon", "must be a number"),
        ("on_lost", "hald", "did you mean hold?"),
        ("script", "no.py", "is not there"),
        ("wrap", '["docker", "run", "x"]', "docker run starts the process under a daemon"),
        ("title", "x", "is the same on every machine"),
        ("input.accept", "x", "is the same on every machine"),
        ("env.requirements", "x", "says what install builds"),
        ("env.1", "x", "is not of the right form"),
    ],
)
def test_a_slip_is_named_and_nothing_is_written(queue: Queue, key: str, value: str, said: str) -> None:
    new(queue, "own")
    done = queue("providers", "set", "own", key, value)
    assert done.code == 2 and said in done.err and not done.out, done
    assert not (Path(queue.env["XDG_CONFIG_HOME"]) / "schedq" / "config.toml").exists()


def test_what_counts_from_when_on_is_said(queue: Queue) -> None:
    new(queue, "own")
    for key, value, said in (
        ("ram_budget_gb", "0.3", "from the next start of a worker on"), ("max_attempts", "3", "submitted from now on"),
        ("env.X", "1", "--repin lets them take this"), ("idle_timeout_s", "5", "at once"),
    ):  # fmt: skip
        done = queue("providers", "set", "own", key, value)
        assert done.code == 0 and said in done.err, done
    for words_ in (
        ("own", "threads"),
        ("own", "threads", "1", "--unset"),
        ("own:no", "threads", "1"),
        ("no", "threads", "1"),
    ):
        assert queue("providers", "set", *words_).code == 2, words_


def test_a_value_that_is_wrong_in_the_file_can_be_set_right(queue: Queue) -> None:
    new(queue, "own")
    file = Path(queue.env["XDG_CONFIG_HOME"]) / "schedq" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[providers.own]\nthreads = "many"  # how many?\n')
    done = queue("providers", "set", "own", "threads", "1")
    assert done.code == 0 and file.read_text() == "[providers.own]\nthreads = 1  # how many?\n", done


def test_what_cannot_be_changed_line_by_line_stays_and_the_lines_are_shown(queue: Queue) -> None:
    new(queue, "own")
    text = '[providers.own.env]\nA = """\na"""\n'
    file = config_of(queue, text)
    done = queue("providers", "set", "own", "env.A", "b")
    assert done.code == 2 and 'By hand, in [providers.own.env], set:\nA = "b"' in done.err, done
    assert file.read_text() == text
