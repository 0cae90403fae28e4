"""The files that `schedq providers new` writes: a provider of each kind that answers an echo, to be changed from there.

`@SLUG@` stands for the provider's name, `@PYTHON@` for its interpreter as TOML has it.
"""

from __future__ import annotations

HEAD = """\
slug = "@SLUG@"
title = "@SLUG@: says what it is told"            # one line for `schedq providers list`
mode = "@MODE@"
example = "example.json"

[gpu]
policy = "none"                         # a model on a device: "required", and vram_budget_gb, GiB on each device

[host]
ram_budget_gb = 0.2                     # GiB; `schedq measure @SLUG@` says what it uses

[cpu]
threads = 1

[worker]
"""

RESIDENT = """\
python = @PYTHON@                       # the interpreter that has the model's packages
script = "resident/@SLUG@_resident_worker.py"
start_timeout_s = 900                   # without a sign of life, while it loads
request_timeout_s = 3600                # without a progress line, while it answers
"""

ONESHOT = """\
python = @PYTHON@                       # what {python} stands for
command = ["{python}", "predict.py", "{input}", "{out}", "{params}"]
outputs = ["said.txt", "result.json"]   # each must be there when the command has ended
request_timeout_s = 3600
"""

INPUT = """\

[input]
accept = [".json"]
schema = "input.schema.json"
params = "params.schema.json"

# What a right answer is, from something other than the first answer: the echo of `hello` is `hello`.
[[validation]]
name = "smoke"
input = "example.json"
params = { times = 2 }
expect = { "/said" = "hello hello" }
"""

KIT_WORKER = '''\
"""@SLUG@, resident: loaded once, asked many times. Run by the model's own interpreter, Python 3.8 on."""

from schedq_worker import Refused, serve


def load():
    return {"answered": 0}                  # the model: what takes minutes and gigabytes is done here


def predict(model, request, job):
    """`request` is the input with the parameters over it; `job` knows input_path, out_dir, work_dir, params, name."""
    if not request["say"].strip():
        raise Refused("there is nothing to say: /say holds blanks alone")     # wrong next time too
    said = []
    for done in range(request["times"]):
        job.progress(done, request["times"], "saying")                        # a sign of life
        said.append(request["say"])
    model["answered"] += 1
    (job.out_dir / "said.txt").write_text(" ".join(said) + "\\n", encoding="utf-8")
    return {"said": " ".join(said), "answered": model["answered"]}


serve(load=load, predict=predict)
'''

COMMAND = '''\
"""@SLUG@, oneshot: a process for each job. Exit 0 is success, 3 a refusal, 75 later; the last line says why."""

import json
import pathlib
import sys

source, out, params = (pathlib.Path(word) for word in sys.argv[1:4])
request = json.loads(source.read_text(encoding="utf-8"))
times = json.loads(params.read_text(encoding="utf-8"))["times"]
if not request["say"].strip():
    print("there is nothing to say: /say holds blanks alone")
    sys.exit(3)
said = " ".join([request["say"]] * times)
(out / "said.txt").write_text(said + "\\n", encoding="utf-8")
(out / "result.json").write_text(json.dumps({"said": said}), encoding="utf-8")      # the reply
'''

LEGACY_WORKER = '''\
"""@SLUG@ as a worker of older trees, which knows nothing of schedq: one line of JSON a connection, answered by one.

`{"op": "ping"}`, `{"op": "shutdown"}`, or the request itself. Python 3.8 on, standard library only.
"""

import argparse
import json
import os
import socket


def load():
    return {"answered": 0}                  # the model: what takes minutes and gigabytes is done here


def predict(model, request):
    model["answered"] += 1
    said = " ".join([request["say"]] * request.get("times", 1))
    return {"ok": True, "said": said, "answered": model["answered"]}


def answer(model, request):
    try:
        if request.get("op") in ("ping", "shutdown"):
            return {"ok": True, "pid": os.getpid()}
        if not request["say"].strip():
            return {"ok": False, "reason": "refused", "exit_code": 3, "error": "there is nothing to say"}
        return predict(model, request)
    except Exception as error:
        return {"ok": False, "reason": "error", "error": "{}: {}".format(type(error).__name__, error)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    path = parser.parse_args().socket
    model = load()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)                     # last: who serves is loaded
    listener.listen(8)
    while True:
        peer, _ = listener.accept()
        with peer, peer.makefile("rwb") as stream:
            line = stream.readline()
            if not line.endswith(b"\\n"):
                continue
            request = json.loads(line.decode())
            stream.write(json.dumps(answer(model, request)).encode() + b"\\n")
            stream.flush()
        if request.get("op") == "shutdown":
            os.unlink(path)
            return


main()
'''

INPUT_SCHEMA = """\
{"type": "object", "required": ["say"], "additionalProperties": false,
 "properties": {"say": {"type": "string", "minLength": 1, "description": "what is to be said"}}}
"""

PARAMS_SCHEMA = """\
{"type": "object", "additionalProperties": false,
 "properties": {"times": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1,
                          "description": "how often it is said"}}}
"""

EXAMPLE = '{"say": "hello"}\n'

KINDS = ("resident", "oneshot", "legacy")


def files_of(kind: str, slug: str, python: str) -> dict[str, str]:
    """The files of a provider of that kind, by their path in its folder. `python` is its interpreter as TOML has it."""
    worker = f"resident/{slug}_resident_worker.py"
    code = {"resident": (worker, KIT_WORKER), "oneshot": ("predict.py", COMMAND), "legacy": (worker, LEGACY_WORKER)}
    path, text = code[kind]
    mode = "oneshot" if kind == "oneshot" else "resident"
    how = ONESHOT if kind == "oneshot" else RESIDENT
    made = {
        "provider.toml": (HEAD + how + INPUT).replace("@MODE@", mode), path: text,
        "input.schema.json": INPUT_SCHEMA, "params.schema.json": PARAMS_SCHEMA,
        "example.json": EXAMPLE,
    }  # fmt: skip
    return {name: each.replace("@SLUG@", slug).replace("@PYTHON@", python) for name, each in made.items()}
