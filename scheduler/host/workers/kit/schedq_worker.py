"""The worker's side: a model that is loaded once and asked many times.

    from schedq_worker import serve, Refused, Later

    def load():
        return heavy_model()

    def predict(model, request, job):
        job.progress(1, 10, "relaxing")
        (job.out_dir / "model.cif").write_text(...)
        return {"score": 0.93}

    serve(load=load, predict=predict)

Run as `PYTHON SCRIPT --socket PATH` it stays and answers; as `PYTHON SCRIPT --input FILE --output DIR` it answers
once, into `DIR/result.json`. Standard library only, Python 3.8 and later: it is imported by the model's own
interpreter. stdout is the log's; nothing that a library prints can be taken for an answer.
"""

import argparse
import inspect
import json
import os
import pathlib
import queue
import socket
import sys
import threading
import time
import traceback

from schedq_memory import cap_anew, cap_memory, devices_seen, out_of_memory
from schedq_reply import LINE_LIMIT, amount, encoded

__all__ = ["Job", "Later", "NoAccelerator", "Refused", "serve"]

PROTOCOL = 1
EXIT_REFUSED, EXIT_NO_ACCELERATOR, EXIT_LATER = 3, 5, 75
MESSAGE_MAX = 500


class Refused(Exception):
    """This request (or, out of `load`, this installation) is wrong, and will be wrong next time too. Exit 3."""


class NoAccelerator(Exception):
    """The accelerator that is needed is not there. Exit 5."""


class Later(Exception):
    """Something outside is not ready: a rate limit, a licence, a share. Again after `retry_after_s`. Exit 75."""

    def __init__(self, message="", retry_after_s=60.0):
        super().__init__(message)
        self.retry_after_s = float(retry_after_s)


class Job:
    """One request's surroundings: where its input lies and where its output goes.

    `input_path` is the input's own file under its own name, None if there is none; `out_dir` is fresh for every
    attempt; `work_dir` stays from attempt to attempt; `params` are the parameters with defaults filled in.
    """

    def __init__(self, message, send=None):
        def path(key):
            return pathlib.Path(message[key]) if message.get(key) else None

        self.id, self.attempt = message.get("job"), message.get("attempt")
        self.name = message.get("name") or ""
        self.params = message.get("params") or {}
        self.input_path, self._out_dir, self._work_dir = path("input_path"), path("out_dir"), path("work_dir")
        self._ends_at = None if message.get("deadline_s") is None else time.monotonic() + message["deadline_s"]
        self._send = send

    @property
    def out_dir(self):
        """The attempt's own folder for what it makes; there from the first look on."""
        return _made(self._out_dir)

    @property
    def work_dir(self):
        """The job's own folder for what it can go on from; there from the first look on."""
        return _made(self._work_dir)

    @property
    def deadline_s(self):
        """Seconds that are left, None = no limit was given."""
        return None if self._ends_at is None else self._ends_at - time.monotonic()

    def progress(self, done=None, total=None, message=""):
        """Say how far it is: a sign of life, shown by `status`. May be called as often as is convenient.

        A `done` or `total` that is no finite number is left out.
        """
        if self._send:
            event = {"event": "progress", "done": amount(done), "total": amount(total)}
            self._send(dict(event, message=str(message)[:MESSAGE_MAX]))


def _made(folder):
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def serve(load, predict, versions=None, argv=None):
    """Load the model, then answer requests until told to go. Does not return in the middle of one.

    `load()` (or `load(args)` with the script's own arguments) gives the model; `predict(model, request, job)` gives
    a dict that JSON can hold. `versions` is a dict, or a function of the model that gives one.
    """
    parser = argparse.ArgumentParser(description="a worker of schedq")
    parser.add_argument("--socket", help="stay, and answer on this unix socket")
    parser.add_argument("--input", help="answer once, for this file")
    parser.add_argument("--output", help="the folder that the one answer goes to, as result.json")
    parser.add_argument("--params", help="a JSON file of parameters for the one answer")
    parser.add_argument("--request", help="a JSON file that is asked for, instead of what --input holds")
    options, extra = parser.parse_known_args(argv)
    if bool(options.socket) == bool(options.input and options.output):
        parser.error("give --socket PATH, or --input FILE with --output DIR")
    cap_memory()
    try:
        model = load(extra) if _takes_arguments(load) else load()
    except (Refused, NoAccelerator, Later) as error:
        _leave(error)
    if options.socket:
        _Server(options.socket, model, predict, versions).run()
    else:
        _once(options, model, predict)


def _takes_arguments(function):
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:
        return False
    return False


def _leave(error):
    """End with the code that the exception stands for; the last line of the log says what and why."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, Later):
        code, text = EXIT_LATER, "later: {} (retry_after_s={:g})".format(text, error.retry_after_s)
    else:
        code = EXIT_REFUSED if isinstance(error, Refused) else EXIT_NO_ACCELERATOR
        text = "{}: {}".format("refused" if code == EXIT_REFUSED else "no accelerator", text)
    _last_words(text)
    sys.exit(code)


def _last_words(text):
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


# One answer


def attempt(model, predict, request, job):
    """Call `predict`: the reply, and the exit code that the worker leaves with afterwards (None = it stays).

    An answer stands whole under `result`, so that no key of it can be taken for one of the protocol's.
    """
    try:
        result = predict(model, request, job)
    except Refused as error:
        return {"ok": False, "reason": "refused", "error": str(error)}, None
    except Later as error:
        return {"ok": False, "reason": "later", "error": str(error), "retry_after_s": error.retry_after_s}, None
    except NoAccelerator as error:
        return {"ok": False, "reason": "no_accelerator", "error": str(error), "exit_code": EXIT_NO_ACCELERATOR}, None
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        said = "" if isinstance(error.code, int) or error.code is None else ": {}".format(error.code)
        text = "predict ended the process with exit code {}{}".format(code, said)
        return {"ok": False, "reason": "worker_exiting", "error": text, "exit_code": code, "exiting": True}, code
    except BaseException as error:
        text = "{}: {}".format(type(error).__name__, error)
        if out_of_memory(error):
            return {"ok": False, "reason": "over_budget", "error": text, "exiting": True}, 1
        told = traceback.format_exc()
        sys.stderr.write(told)
        reply = {"ok": False, "reason": "error", "error": text, "traceback": told[-16384:]}
        if isinstance(error, Exception):
            return reply, None
        return dict(reply, exiting=True), 130
    if result is not None and not isinstance(result, dict):
        text = "predict returned {}, not a dict".format(type(result).__name__)
        return {"ok": False, "reason": "error", "error": text}, None
    return {"ok": True, "result": result or {}}, None


def _once(options, model, predict):
    output = os.path.abspath(options.output)
    job = Job({"input_path": os.path.abspath(options.input), "out_dir": output, "work_dir": output})
    job.name = job.input_path.stem
    if options.params:
        job.params = json.loads(pathlib.Path(options.params).read_text(encoding="utf-8"))
    try:
        request = json.loads(pathlib.Path(options.request or job.input_path).read_text(encoding="utf-8"))
    except ValueError:
        request = None
    request = dict(request, **job.params) if isinstance(request, dict) else dict(job.params)
    reply, code = attempt(model, predict, request, job)
    reply = json.loads(encoded(reply).decode())
    path = str(job.out_dir / "result.json")
    with open(path + ".tmp", "wb") as file:
        file.write(encoded(reply["result"] if reply["ok"] else reply))
    os.replace(path + ".tmp", path)
    if reply["ok"]:
        return
    reason = reply.get("reason")
    if reason == "later":
        _leave(Later(reply["error"], reply["retry_after_s"]))
    if reason in ("refused", "no_accelerator"):
        _leave((Refused if reason == "refused" else NoAccelerator)(reply["error"]))
    _last_words(reply["error"])
    sys.exit(1 if code is None else code)


# Many answers


class _Server:
    """The socket's side runs in threads, `predict` in the main one: CUDA and signals like it there."""

    def __init__(self, path, model, predict, versions):
        self.path, self.model, self.predict = path, model, predict
        self.versions = dict(_loaded(), **dict((versions(model) if callable(versions) else versions) or {}))
        self.work, self.lock, self.busy, self.leaving = queue.Queue(), threading.Lock(), None, False

    def run(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path + ".t")
        os.chmod(self.path + ".t", 0o600)
        listener.listen(16)
        os.rename(self.path + ".t", self.path)
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        while True:
            item = self.work.get()
            if item is None:
                break
            code = self.answer(*item)
            if code is not None:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)  # memory must come back now, whatever threads and handlers are left

    def accept(self, listener):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.hear, args=(connection,), daemon=True).start()

    def hear(self, connection):
        """One request from one connection; a line that is cut off is none."""
        with connection.makefile("rb") as file:
            line = file.readline(LINE_LIMIT + 1)
        if not line.endswith(b"\n"):
            connection.close()
            return
        try:
            message = json.loads(line.decode())
            op = message["op"]
        except (ValueError, KeyError, TypeError) as error:
            self.say(connection, {"ok": False, "reason": "error", "error": "not a request: {!r}".format(error)})
            return
        if op == "predict":
            with self.lock:
                refused = "leaving" if self.leaving else "busy" if self.busy else ""
                if not refused:
                    self.busy = {"job": message.get("job"), "attempt": message.get("attempt")}
            if refused:
                self.say(connection, {"ok": False, "reason": refused, "error": "the worker is " + refused})
            else:
                self.work.put((connection, message))
        elif op == "ping":
            about = {"ok": True, "protocol": PROTOCOL, "pid": os.getpid(), "busy": self.busy, "says_taken": True}
            self.say(connection, dict(about, versions=dict(self.versions, **_named()), device=devices_seen()))
        elif op == "shutdown":
            with self.lock:
                self.leaving = True
            self.say(connection, {"ok": True})
            self.work.put(None)
        else:
            self.say(connection, {"ok": False, "reason": "error", "error": "no op {!r}".format(op)})

    def say(self, connection, reply):
        try:
            connection.sendall(encoded(reply) + b"\n")
        except OSError:
            pass
        connection.close()

    def answer(self, connection, message):
        sending = threading.Lock()

        def send(event):
            try:
                with sending:
                    connection.sendall(encoded(event) + b"\n")
            except OSError:
                pass

        job = Job(message, send)
        cap_anew(message.get("charge_device_gib"))
        send({"event": "taken"})
        reply, code = attempt(self.model, self.predict, message.get("request") or {}, job)
        job._send = None
        line = encoded(reply)
        with sending, self.lock:
            self.busy = None
            self.leaving = self.leaving or code is not None
        try:
            connection.sendall(line + b"\n")
        except OSError:
            pass
        connection.close()
        if code is not None:
            _last_words("leaving: " + str(reply.get("error")))
        return code


def _loaded():
    """Versions of the interpreter and of the frameworks that `load` imported."""
    found = {"python": "{}.{}.{}".format(*sys.version_info[:3])}
    for name in ("torch", "jax", "jaxlib", "tensorflow", "numpy", "onnxruntime"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    return found


def _named():
    """What the framework calls the device, if it was set up by now; asking must not set it up."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return {"device": str(cuda.get_device_name(0))} if cuda is not None and cuda.is_initialized() else {}
    except Exception:
        return {}
