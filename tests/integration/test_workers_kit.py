"""The kit under a real keeper, and under the oldest interpreter at hand: what a provider's author relies on."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keepers import Yard, until

from scheduler.host.workers.environment import KIT
from scheduler.host.workers.orders import Launch, Stored
from scheduler.model.host import Answered, Gone, Progressed

SCRIPT = """
import os, sys, time
from decimal import Decimal
from schedq_worker import Later, NoAccelerator, Refused, serve

print("a library's greeting on stdout")

def load():
    how = os.environ.get("LOAD")
    if how == "refused": raise Refused("no weights in /models;\\nrun the download first")
    if how == "absent": raise NoAccelerator("no CUDA device")
    if how == "later": raise Later("the licence server is busy", retry_after_s=30)
    if how == "crash": raise RuntimeError("broken checkpoint")
    return {"name": "model"}

class OutOfMemoryError(RuntimeError): pass

def predict(model, request, job):
    do = request.get("do", "echo")
    if do == "echo":
        job.progress(1, 2, "half")
        print("noise between")
        return {"model": model["name"], "request": request, "name": job.name, "params": job.params,
                "deadline_s": job.deadline_s, "input": job.input_path and job.input_path.read_text()}
    if do == "write": (job.out_dir / "x.cif").write_text("data"); (job.work_dir / "state").write_text("s"); return {}
    if do == "none": return None
    if do == "list": return [1]
    if do == "refused": raise Refused("sequence of 9000 residues, at most 2000")
    if do == "later": raise Later("rate limit", retry_after_s=12)
    if do == "absent": raise NoAccelerator("the card fell off the bus")
    if do == "error": raise ValueError("chain B has no atoms")
    if do == "oom": raise OutOfMemoryError("tried to allocate 20 GiB")
    if do == "oom_in_disguise":
        try: raise RuntimeError("CUDA error: out of memory")
        except RuntimeError as e: raise ValueError("prediction failed") from e
    if do == "memory": raise MemoryError
    if do == "exit": sys.exit(request["code"])
    if do == "nan": return {"scores": [1.0, {"p/t": float("nan")}]}
    if do == "object": return {"deep": {"set": {1, 2}}}
    if do == "huge": return {"x": "y" * (65 << 20)}
    if do == "collide": return {"result": 1, "job": 2, "attempt": 3, "event": "progress", "ok": False, "exiting": True}
    if do == "talk": job.progress(1, 1, "x" * 100_000); return {"talked": True}
    if do == "odd":
        for done in (float("nan"), float("inf"), Decimal("1.5"), "a" * 100_000, object(), 10**400, [1]):
            job.progress(done, done, "odd")
        return {"told": True}
    if do == "deep":
        found = []
        for _ in range(100_000): found = [found]
        return {"deep": found}
    if do == "foreign": return {"text": "\u00e4" * (18 << 20)}
    if do == "wait":
        job.progress(0, None, "waiting")
        while not os.path.exists(request["path"]): time.sleep(0.005)
        return {"waited": True}

serve(load=load, predict=predict, versions={"tool": "2.2.1"})
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path / "home")
    (tmp_path / "worker.py").write_text(SCRIPT)
    yield made
    made.end()


def old_python() -> str | None:
    """An interpreter of version 3.8 that runs, or None."""
    found, check = shutil.which("python3.8"), "import sys; assert sys.version_info[:2] == (3, 8)"
    if found and subprocess.run([found, "-c", check], check=False, capture_output=True).returncode == 0:
        return found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next((str(p / "bin" / "python3") for p in sorted(versions.glob("3.8.*"))), None)


@pytest.fixture(params=["ours", "3.8"])
def python(request: pytest.FixtureRequest) -> str:
    if request.param == "ours":
        return sys.executable
    found = old_python()
    if found is None:
        pytest.skip("no python3.8 on this machine: the kit runs under ours, and its source compiles for 3.8")
    return found


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": KIT, "PYTHONUNBUFFERED": "1", **more}


def start(yard: Yard, tmp_path: Path, python: str = sys.executable, **env: str) -> None:
    yard.shown = yard.park()
    yard.roster.go(1, Launch([python, str(tmp_path / "worker.py")], environment(**env), str(tmp_path)))


def ask(yard: Yard, job: int = 7, **request: Any) -> dict[str, Any]:
    reply = yard.send(request, job=job)
    assert not yard.ear.wait(Stored).no_reply
    return dict(json.loads(reply.read_bytes()))


def test_a_model_is_loaded_once_and_asked_many_times(yard: Yard, tmp_path: Path, python: str) -> None:
    start(yard, tmp_path, python)
    answered = yard.ear.wait(Answered)
    assert answered.versions["tool"] == "2.2.1"
    assert answered.versions["python"].startswith("3.")
    for job in (7, 8):
        answer = ask(yard, job, seed=job)["result"]
        assert (answer["model"], answer["request"]) == ("model", {"seed": job})
    assert yard.ear.wait(Progressed).message == "half"
    assert (Path(yard.paths.attempt(8, 1)) / "log").read_text() == "noise between\n"
    assert oct(os.stat(os.path.join(yard.paths.run, "1.w")).st_mode & 0o777) == "0o600"
    assert yard.stop(5.0).exit_code == 0
    assert yard.sockets() == []


def test_a_job_knows_its_surroundings(yard: Yard, tmp_path: Path) -> None:
    start(yard, tmp_path)
    yard.ear.wait(Answered)
    folder = Path(yard.paths.attempt(7, 1))
    folder.mkdir(parents=True)
    (tmp_path / "TEM-1.fasta").write_text(">a\nMKV\n")
    message = {
        "op": "predict", "job": 7, "attempt": 1, "request": {}, "name": "TEM-1", "params": {"seed": 3},
        "input_path": str(tmp_path / "TEM-1.fasta"), "deadline_s": 100.0,
    }  # fmt: skip
    reply = folder / "r.json"
    yard.roster.send(1, 7, 1, message, reply_path=str(reply), log_path="")
    yard.ear.wait(Stored)
    found = json.loads(reply.read_bytes())["result"]
    assert (found["name"], found["params"], found["input"]) == ("TEM-1", {"seed": 3}, ">a\nMKV\n")
    assert 90.0 < found["deadline_s"] <= 100.0


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("refused", 3, "refused: no weights in /models; run the download first"),
        ("absent", 5, "no accelerator: no CUDA device"),
        ("later", 75, "later: the licence server is busy (retry_after_s=30)"),
        ("crash", 1, "RuntimeError: broken checkpoint"),
    ],
)
def test_a_load_that_fails_ends_with_its_code_and_says_why_last(
    yard: Yard, tmp_path: Path, how: str, code: int, said: str
) -> None:
    start(yard, tmp_path, LOAD=how)
    gone = yard.ear.wait(Gone)
    assert (gone.exit_code, gone.text) == (code, said)


def test_what_predict_raises_is_an_answer_and_the_worker_stays(yard: Yard, tmp_path: Path, python: str) -> None:
    start(yard, tmp_path, python)
    yard.ear.wait(Answered)
    refused = ask(yard, do="refused")
    assert (refused["reason"], refused["error"]) == ("refused", "sequence of 9000 residues, at most 2000")
    later = ask(yard, do="later")
    assert (later["reason"], later["retry_after_s"]) == ("later", 12.0)
    assert (ask(yard, do="absent")["reason"], ask(yard, do="none")) == ("no_accelerator", {"ok": True, "result": {}})
    error = ask(yard, do="error")
    assert (error["reason"], error["error"]) == ("error", "ValueError: chain B has no atoms")
    assert "in predict" in error["traceback"]
    assert ask(yard, do="list")["error"] == "predict returned list, not a dict"
    assert "/scores/1/p~1t is nan" in ask(yard, do="nan")["error"]
    assert "/deep/set is of type set" in ask(yard, do="object")["error"]
    assert "may have 67108864; write files to job.out_dir" in ask(yard, do="huge")["error"]
    assert ask(yard)["ok"]


def test_no_key_of_an_answer_is_taken_for_one_of_the_protocols(yard: Yard, tmp_path: Path, python: str) -> None:
    start(yard, tmp_path, python)
    yard.ear.wait(Answered)
    answer = {"result": 1, "job": 2, "attempt": 3, "event": "progress", "ok": False, "exiting": True}
    assert ask(yard, do="collide") == {"ok": True, "result": answer}
    assert ask(yard, job=8)["ok"]


def test_progress_that_is_no_number_costs_nobody_an_answer(yard: Yard, tmp_path: Path, python: str) -> None:
    start(yard, tmp_path, python)
    yard.ear.wait(Answered)
    assert ask(yard, do="odd") == {"ok": True, "result": {"told": True}}
    assert ask(yard, job=8)["ok"]


def test_an_answer_that_is_nested_too_deep_to_be_written_is_an_error_and_the_worker_stays(
    yard: Yard, tmp_path: Path, python: str
) -> None:
    start(yard, tmp_path, python)
    yard.ear.wait(Answered)
    assert "nested too deep" in ask(yard, do="deep")["error"]
    assert ask(yard, job=8)["ok"]


def test_a_long_word_of_progress_is_not_taken_for_the_answer(yard: Yard, tmp_path: Path) -> None:
    start(yard, tmp_path)
    yard.ear.wait(Answered)
    assert ask(yard, do="talk")["result"] == {"talked": True}


def test_an_answer_of_letters_that_are_longer_in_ascii_passes(yard: Yard, tmp_path: Path, python: str) -> None:
    start(yard, tmp_path, python)
    yard.ear.wait(Answered)
    reply = yard.send({"do": "foreign"})
    assert not yard.ear.wait(Stored, deadline_s=60).no_reply
    assert len(json.loads(reply.read_bytes())["result"]["text"]) == 18 << 20


@pytest.mark.parametrize("how", ["oom", "oom_in_disguise", "memory"])
def test_out_of_memory_is_answered_and_then_the_worker_leaves(yard: Yard, tmp_path: Path, how: str) -> None:
    start(yard, tmp_path)
    yard.ear.wait(Answered)
    reply = ask(yard, do=how)
    assert (reply["ok"], reply["reason"], reply["exiting"]) == (False, "over_budget", True)
    gone = yard.ear.wait(Gone)
    assert gone.exit_code == 1
    assert gone.text.startswith("leaving: ")


def test_a_predict_that_ends_the_process_is_answered_first(yard: Yard, tmp_path: Path) -> None:
    start(yard, tmp_path)
    yard.ear.wait(Answered)
    reply = ask(yard, do="exit", code=4)
    assert (reply["reason"], reply["exit_code"]) == ("worker_exiting", 4)
    assert yard.ear.wait(Gone).exit_code == 4


def test_a_ping_is_answered_while_predict_runs_and_a_second_request_is_not_taken(yard: Yard, tmp_path: Path) -> None:
    start(yard, tmp_path)
    yard.ear.wait(Answered)
    reply = yard.send({"do": "wait", "path": str(tmp_path / "done")}, job=7, attempt=2)
    yard.ear.wait(Progressed)

    def say(message: dict[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(os.path.join(yard.paths.run, "1.w"))
            sock.sendall(json.dumps(message).encode() + b"\n")
            return dict(json.loads(sock.makefile("rb").readline()))

    assert say({"op": "ping"})["busy"] == {"job": 7, "attempt": 2}
    assert say({"op": "predict", "request": {}})["reason"] == "busy"
    assert "no op" in say({"op": "dance"})["error"]
    assert "not a request" in say({"no": "op"})["error"]
    (tmp_path / "done").touch()
    yard.ear.wait(Stored)
    assert json.loads(reply.read_bytes())["result"]["waited"]


def test_term_ends_a_worker_in_the_middle_of_predict(yard: Yard, tmp_path: Path) -> None:
    start(yard, tmp_path)
    yard.ear.wait(Answered)
    yard.send({"do": "wait", "path": "/never"})
    yard.ear.wait(Progressed)
    assert yard.stop(10.0).exit_code == -15


ONCE = [
    ({}, 0, None),
    ({"do": "refused"}, 3, "refused"),
    ({"do": "later"}, 75, "later"),
    ({"do": "absent"}, 5, "no_accelerator"),
    ({"do": "error"}, 1, "error"),
    ({"do": "oom"}, 1, "over_budget"),
    ({"do": "exit", "code": 7}, 7, "worker_exiting"),
]


@pytest.mark.parametrize(("asked", "code", "reason"), ONCE)
def test_the_same_script_answers_once(tmp_path: Path, python: str, asked: Any, code: int, reason: str | None) -> None:
    (tmp_path / "worker.py").write_text(SCRIPT)
    (tmp_path / "a.json").write_text(json.dumps(asked))
    line = [python, str(tmp_path / "worker.py"), "--input", str(tmp_path / "a.json"), "--output", str(tmp_path / "out")]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    if code == 0:
        assert result["model"] == "model"
    else:
        assert (result["ok"], result.get("reason")) == (False, reason)


FRAMEWORKS = {
    "torch/__init__.py": """
        __version__ = "0"
        from . import cuda
        ready = True
    """,
    "torch/cuda.py": """
        calls, queued = [], []
        def _lazy_call(f): queued.append(f)
        def is_initialized(): return bool(calls)
        def device_count(): return 1
        class P: total_memory = 80 << 30
        def get_device_properties(n): return P
        def set_per_process_memory_fraction(f, n): calls.append((round(f, 4), n))
        def get_device_name(n): return "Fake 80"
    """,
    "jax/__init__.py": "",
}


@pytest.mark.parametrize(
    ("env", "torch", "xla"),
    [
        ({"SCHEDQ_CHARGE_DEVICE_GIB": "28.5"}, [[0.35, 0]], "0.3500"),
        ({"SCHEDQ_CHARGE_DEVICE_GIB": "28.5", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".9"}, [[0.35, 0]], ".9"),
        (
            {"SCHEDQ_CHARGE_DEVICE_GIB": "28.5", "PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.5"},
            [],
            "0.3500",
        ),
        ({"SCHEDQ_CHARGE_DEVICE_GIB": "28.5", "CUDA_VISIBLE_DEVICES": "-1"}, [], None),
        ({}, [], None),
    ],
)
def test_the_frameworks_allocators_are_capped_below_the_charge(
    tmp_path: Path, python: str, env: dict[str, str], torch: list[Any], xla: str | None
) -> None:
    for name, text in FRAMEWORKS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    (tmp_path / "worker.py").write_text(
        textwrap.dedent("""
        import os
        from schedq_worker import serve
        def load():
            import torch
            assert torch.ready and torch.cuda.calls == []   # not before torch itself sets up its devices
            for call in torch.cuda.queued: call()
            return torch
        def predict(torch, request, job):
            return {"torch": torch.cuda.calls, "xla": os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION")}
        serve(load=load, predict=predict)
    """)
    )
    (tmp_path / "a.json").write_text("{}")
    env = environment(**{"CUDA_VISIBLE_DEVICES": "0", "SCHEDQ_DEVICE_TOTAL_GIB": "80", **env})
    env["PYTHONPATH"] += f":{tmp_path}"
    line = [python, str(tmp_path / "worker.py"), "--input", str(tmp_path / "a.json"), "--output", str(tmp_path / "out")]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["torch"], result["xla"]) == (torch, xla)


def test_a_script_that_is_called_wrongly_says_how(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "worker.py")], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "give --socket PATH, or --input FILE with --output DIR" in done.stderr
    assert until(lambda: True)
