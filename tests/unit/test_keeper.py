"""A keeper's own parts: light, plain, bounded."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.host.workers import lean, words
from scheduler.host.workers.spawn import KEEPER

ROOT = Path(KEEPER).parents[3]


def interpreters() -> list[str]:
    """Every Python that could run a keeper here, this one first."""
    found = {sys.executable: sys.version_info[:2]}
    for path in glob.glob("/usr/bin/python3.1?") + glob.glob(os.path.expanduser("~/.pyenv/versions/3.1*/bin/python3")):
        done = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
        version = tuple(int(word) for word in done.stdout.split())
        if version >= (3, 11) and version not in found.values():
            found[path] = version[:2]
    return list(found)


INTERPRETERS = interpreters()
VALUES = [{"a": [1.5, None, "b"], "é\n": True}, [], "x", 7, {"n": {"m": [{}]}}, -1e300]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_its_json_is_everybodys_json(value: object) -> None:
    assert json.loads(lean.dumps(value)) == value
    assert lean.loads(json.dumps(value, indent=2).encode()) == value
    assert b"\n" not in lean.dumps(value)


@pytest.mark.parametrize("text", [b"", b"{", b"{} {}", b"nope", b"\xff", b'{"a": }', b"[1,]"])
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        lean.loads(text)


BROKEN = [b"{bad", b"{", b'"a', b"[1 2]", b"{1:2}", b'{"a":1,}', b'"\\x"', b"[1,]", b"nul", b"\xff", b"9" * 5000]


@pytest.mark.parametrize("python", INTERPRETERS, ids=lambda path: path.split("/")[-3] if "versions" in path else path)
def test_what_is_no_json_is_a_value_error_in_a_keeper_under_every_interpreter(python: str) -> None:
    """A keeper has no `json` loaded, as this process has: its scanner fails otherwise then."""
    code = (
        f"import sys\nsys.dont_write_bytecode = True\nsys.path.append({str(ROOT)!r})\n"
        "from scheduler.host.workers import lean\nfaults = []\n"
        f"for text in {BROKEN}:\n"
        "    try:\n        faults.append((text, lean.loads(text)))\n    except ValueError:\n        pass\n"
        "    except BaseException as error:\n        faults.append((text, error))\n"
        "print(faults, lean.fault(b'{\"a\": 1,\\n 2}'))"
    )
    done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("[] ") and "line 2 column 2" in done.stdout, done


def test_what_is_nested_too_deep_is_a_value_error_both_ways() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        lean.loads(b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}")
    nest: list[object] = []
    for _ in range(5000):
        nest = [nest]
    with pytest.raises(ValueError, match="nested too deep"):
        lean.dumps(nest)


def test_a_callback_that_fails_is_told_and_the_loop_goes_on_and_a_timer_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lean, "AGAIN_S", 0.01)
    told: list[bytes] = []
    loop, ours, rounds = lean.Loop(lambda error: told.append(lean.brief(error))), os.pipe(), iter([0, 0, 1])
    loop.watch(ours[0], lambda _: os.read(ours[0], 1) and 1 / 0)
    loop.after("timer", 0.0, lambda: 1 / next(rounds))
    os.write(ours[1], b"xyz")
    while loop.pending("timer") or len(told) < 5:
        loop.turn()
    assert len(told) == 5
    assert told[0].startswith(b"ZeroDivisionError: division by zero (test_keeper.py:")
    for fd in ours:
        os.close(fd)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("a\ud800b\x1b[31m\nc", "a?b [31m c"), ("é" * 600, "é" * 500), (7, "7"), (["x"], ""), (None, ""), ("\0", ""),
    ],
)  # fmt: skip
def test_a_message_is_printable_text_of_bounded_length(said: object, text: str) -> None:
    assert words.plain_text(said) == text


@pytest.mark.parametrize("said", [float("nan"), float("inf"), 10**400, True, "7", None, [1]], ids=repr)
def test_what_is_no_finite_number_is_none(said: object) -> None:
    assert words.finite(said) is None
    assert (words.finite(3), words.finite(0.5)) == (3, 0.5)


def test_a_log_and_its_predecessor_stay_within_the_limit_and_keep_the_end(tmp_path: Path) -> None:
    log = lean.Log(str(tmp_path / "log"), 1000)
    for number in range(1000):
        log.write(b"line %d\n" % number)
    log.close()
    kept = (tmp_path / "log.1").read_bytes() + (tmp_path / "log").read_bytes()
    assert 500 <= len(kept) <= 1000
    assert kept.endswith(b"line 999\n")


def test_a_log_on_a_full_disk_loses_lines_and_nothing_else() -> None:
    log = lean.Log("/dev/full", 1000)
    log.write(b"lost")
    log.close()


def test_a_log_that_cannot_be_opened_anew_writes_to_no_number_that_is_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = lean.Log(str(tmp_path / "log"), 200), tmp_path / "other"
    log.write(b"x" * 100)
    right = os.open
    with monkeypatch.context() as patched:
        patched.setattr(lean.os, "open", lambda *_: (_ for _ in ()).throw(OSError("planted")))
        log.write(b"lost")
    fd = right(other, os.O_WRONLY | os.O_CREAT)
    log.write(b"and again")
    os.close(fd)
    log.close()
    assert other.read_bytes() == b""
    assert (tmp_path / "log").read_bytes() == b"and again"


def test_timers_move_when_they_are_set_again() -> None:
    loop, seen = lean.Loop(), []  # type: lean.Loop, list[str]
    loop.after("one", 0.0, lambda: seen.append("first"))
    loop.after("one", 0.02, lambda: seen.append("second"))
    loop.after("two", 0.01, lambda: seen.append("two"))
    loop.after("end", 0.05, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        while True:
            loop.turn()
    assert seen == ["two", "second"]


def test_a_keeper_loads_nothing_heavy() -> None:
    code = (
        f"import sys; sys.path.append({str(Path(KEEPER).parents[3])!r})\n"
        "import scheduler.host.workers.keeping\nprint(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "scheduler.host.workers.keeping" in loaded
    assert not loaded & {"socket", "signal", "json", "ctypes", "enum", "re", "collections", "typing", "dataclasses"}


def test_a_keeper_without_a_claim_says_so() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", KEEPER, "hello"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "not a claim" in done.stderr
