"""A keeper's charge in argv is what it is charged now, as every other process reads it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.host.machine.declared import amount
from scheduler.host.workers.protocol import CLAIM, claim_of
from scheduler.host.workers.published import ROOM, word_of

CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from scheduler.host.workers.published import publish
for line in sys.stdin:
    print(json.dumps(publish(json.loads(line))), flush=True)
"""
ROOT = str(Path(__file__).resolve().parents[2])


class Process:
    """A process whose argv claims, and that is told what to claim now."""

    def __init__(self, *words: str) -> None:
        argv = [sys.executable, "-c", CODE, ROOT, CLAIM, "worker=4", *words, "/folder of it"]
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def told(self, charges: str) -> str:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(charges + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()

    def claim(self) -> dict[str, str]:
        argv = Path(f"/proc/{self.child.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        claim = claim_of(argv)
        assert claim is not None and claim["folder"] == "/folder of it" and claim["worker"] == "4"
        return {word.rpartition(":")[0]: word.rpartition(":")[2] for word in claim["charge"].split()}


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process(word_of("host", 0.1), word_of("device:GPU-1", 28.0))
    yield made
    made.child.stdin.close()  # type: ignore[union-attr]
    made.child.wait()
    made.child.stdout.close()  # type: ignore[union-attr]


def test_a_charge_is_raised_and_lowered_where_everybody_reads_it(process: Process) -> None:
    assert process.told('{"host": 31.400000000000002, "device:GPU-1": 60.5}') == "[]"
    assert process.claim() == {"host": "31.400000000000002", "device:GPU-1": "60.5"}
    assert process.told('{"host": 0.1}') == "[]"
    assert process.claim() == {"host": "0.1", "device:GPU-1": "60.5"}


def test_a_pool_that_is_not_claimed_is_said_and_nothing_else_changes(process: Process) -> None:
    assert "no charge on device:GPU-2" in process.told('{"device:GPU-2": 1.0}')
    assert process.claim() == {"host": "0.1", "device:GPU-1": "28.0"}


def test_a_claim_without_room_keeps_what_it_said() -> None:
    made = Process("charge=host:6")
    assert "no room for a charge of 6.25 GiB" in made.told('{"host": 6.25}')
    assert made.claim() == {"host": "6"}
    made.child.communicate()


@given(st.floats(0.0, 2.0**30))
def test_a_word_of_a_charge_says_it_exactly(gib: float) -> None:
    word = word_of("host", gib)
    assert word.startswith("charge=host:") and len(word) >= len("charge=host:") + ROOM
    assert amount(word.rpartition(":")[2].split()[0]) == gib
