"""What a oneshot is told: parameters, the request, the files that its input names, and the launchers before it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from driven import Queue

MANIFEST = """
slug = "own"
mode = "oneshot"
[gpu]
policy = "none"
[host]
ram_budget_gb = 0.1
[worker]
python = "{python}"
{how}
wrap = ["env", "WRAPPED=by env"]
[input]
accept = [".json", ".yaml"]
{asks}
"""
ON_THE_KIT = """
import os, sys
from schedq_worker import serve

def predict(model, request, job):
    request["wrapped"], request["named"] = os.environ.get("WRAPPED"), sorted(set(sys.argv) & {"--params", "--request"})
    request["params"] = job.params
    request["read"] = [open(each["msa"]).read() for each in request.get("chains", ()) if each["msa"][:1] == "/"]
    return request

serve(load=lambda: None, predict=predict)
"""
COMMAND = """
import json, sys
body = json.load(open(sys.argv[1]))
body["read"] = [open(each["msa"]).read() for each in body["chains"]]
json.dump(body, open(sys.argv[2] + "/result.json", "w"))
"""
PARAMS = {"properties": {"times": {"type": "integer", "default": 1}}, "additionalProperties": False}
ASKS_PARAMS, ASKS_FILES = 'params = "params.json"\n', 'files = ["/chains/*/msa"]\n'


@pytest.fixture
def both(queue: Queue) -> list[tuple[str, ...]]:
    """The two ways to ask the provider: through the queue, and without it."""
    return [("run", "own"), ("providers", "try", str(queue.manifests / "own"))]


def provider(queue: Queue, how: str, code: str, asks: str) -> None:
    folder = queue.manifests / "own"
    folder.mkdir()
    (folder / "provider.toml").write_text(MANIFEST.format(python=sys.executable, how=how, asks=asks))
    (folder / "own.py").write_text(code)
    (folder / "params.json").write_text(json.dumps(PARAMS))
    (queue.folder / "a.msa").write_text("AAA")
    (queue.folder / "b.msa").write_text("BBB")
    (queue.folder / "in.yaml").write_text("chains:\n- msa: a.msa\n- msa: b.msa\n")


SCRIPT = 'script = "own.py"'


def test_a_script_is_told_parameters_and_files_by_absolute_paths_below_its_launcher(
    queue: Queue, both: list[tuple[str, ...]]
) -> None:
    provider(queue, SCRIPT, ON_THE_KIT, ASKS_PARAMS + ASKS_FILES)
    for words in both:
        done = queue(*words, "in.yaml", "--param", "times=3")
        assert done.code == 0, done
        told = done.json
        assert (told["times"], told["params"], told["read"]) == (3, {"times": 3}, ["AAA", "BBB"]), told
        assert told["wrapped"] == "by env" and all(Path(each["msa"]).is_absolute() for each in told["chains"])


@pytest.mark.parametrize(
    ("asks", "named"), [("", []), (ASKS_PARAMS, ["--params"]), (ASKS_FILES, ["--request"])], ids=["", "params", "files"]
)
def test_a_script_is_told_no_more_than_its_manifest_declares(
    queue: Queue, both: list[tuple[str, ...]], asks: str, named: list[str]
) -> None:
    provider(queue, SCRIPT, ON_THE_KIT, asks)
    (queue.folder / "in.json").write_text('{"chains": [{"msa": "a.msa"}]}')
    for words in both:
        done = queue(*words, "in.json")
        assert done.code == 0 and done.json["named"] == named, done
        assert done.json["read"] == (["AAA"] if asks == ASKS_FILES else [])
        assert done.json.get("times") == (1 if asks == ASKS_PARAMS else None)


def test_a_command_is_told_the_request_in_a_file_that_goes_with_the_attempt(
    queue: Queue, both: list[tuple[str, ...]]
) -> None:
    how = 'command = ["{python}", "own.py", "{request}", "{out}"]'
    provider(queue, how, COMMAND, ASKS_PARAMS + ASKS_FILES)
    for words in both:
        done = queue(*words, "in.yaml", "--param", "times=2")
        assert done.code == 0 and (done.json["times"], done.json["read"]) == (2, ["AAA", "BBB"]), done
    assert not [each for each in queue.home.glob("jobs/*/*/*.json") if each.name in ("params.json", "request.json")]
    checked = queue("providers", "check", "own")
    assert checked.out.split() == ["own", "ok"], checked
    manifest = queue.manifests / "own" / "provider.toml"
    manifest.write_text(manifest.read_text().replace("{request}", "{input}"))
    assert "worker.command has no {request}" in " ".join(queue("providers", "check", "own").out.split())
