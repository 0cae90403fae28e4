"""A reply as one line of JSON, or the error that names what JSON cannot hold. Part of the kit: Python 3.8 and later."""

import json
import os

LINE_LIMIT = 64 << 20


def encoded(reply):
    """The reply as one line of JSON, or the error that stands for one that JSON cannot hold."""
    try:
        line = json.dumps(reply, allow_nan=False, default=_plain).encode()
        if len(line) > LINE_LIMIT:
            line = _shorter(reply, line)
    except (TypeError, ValueError, RecursionError) as error:
        answer = reply["result"] if set(reply) == {"ok", "result"} else reply
        try:
            where, what = _fault(answer, "")
        except RecursionError:
            where, what = "it", "nested too deep"
        text = "the reply cannot be written as JSON: {} is {}".format(where, what) if what else str(error)
        return encoded({"ok": False, "reason": "error", "error": text})
    if len(line) > LINE_LIMIT:
        text = "the reply has {} bytes and may have {}; write files to job.out_dir".format(len(line), LINE_LIMIT)
        return encoded({"ok": False, "reason": "error", "error": text})
    return line


def amount(value):
    """What a progress line can hold of it: a finite number, also out of numpy and torch; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    if number - number != 0.0:
        return None
    return value if type(value) is int else number


def _shorter(reply, line):
    """The same in UTF-8, without blanks; half a character can only be escaped."""
    try:
        return json.dumps(reply, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()
    except UnicodeEncodeError:
        return line


def _plain(value):
    """numpy and torch scalars and arrays, paths."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)


def _fault(value, pointer):
    """The JSON pointer of the first thing that JSON cannot hold, and what it is; "" if nothing was found."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        for key, part in value.items():
            inner = "{}/{}".format(pointer, str(key).replace("~", "~0").replace("/", "~1"))
            if not isinstance(key, (str, int, float, bool, type(None))):
                return inner, "a key of type " + type(key).__name__
            where, what = _fault(part, inner)
            if what:
                return where, what
        return pointer, ""
    if isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            where, what = _fault(part, "{}/{}".format(pointer, number))
            if what:
                return where, what
        return pointer, ""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return pointer, repr(value)
    if value is None or isinstance(value, (str, int, float, bool, os.PathLike)):
        return pointer, ""
    return pointer, "of type " + type(value).__name__
