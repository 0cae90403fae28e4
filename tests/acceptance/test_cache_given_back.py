"""A machine full of file cache: free memory closes the gate, the cache is given back, and the next worker starts.

The cache is real and so is what the kernel says of it; only the reserve is chosen so that the cache alone decides.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driven import Queue, eventually

FILE_MIB, SHORT_GIB = 1280, 0.6


def free_gib() -> float:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemFree"].split()[0]) / (1 << 20)


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    """A file that is all in the cache."""
    path = tmp_path / "weights.bin"
    words = ("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={FILE_MIB}", "conv=fsync", "status=none")
    subprocess.run(words, check=True)
    subprocess.run(["cat", str(path)], check=True, stdout=subprocess.DEVNULL)
    yield path
    path.unlink()


def story(queue: Queue, job: str, event: str) -> list[str]:
    return [each["text"] for each in queue.show(job)["story"] if each["event"] == event]


def test_a_file_that_a_manifest_names_is_given_back_beside_a_busy_worker(queue: Queue, large: Path) -> None:
    queue.provider("busy", ram=0.1)
    queue.provider("next", ram=0.1, more=f'[[files]]\npath = "{large}"')
    let_go = queue.folder / "let-go"
    reserve = free_gib() - 0.2 + SHORT_GIB
    queue.env["SCHEDQ_RESERVE_HOST_GIB"] = str(reserve)
    queue("up", SCHEDQ_RECLAIM="off")
    queue("submit", "busy", queue.input("long.json", wait_for=str(let_go)))
    eventually(lambda: queue.show("1")["state"] == "running", within_s=60, what="the busy worker")
    job = queue("submit", "next", queue.input("short.json")).out.strip()
    waits = eventually(lambda: queue.show(job)["reason"], what="its reason")
    assert isinstance(waits, dict) and waits["ruling"] == "no_room_now", waits
    assert "free memory alone counts, not what the cache would give back" in waits["text"]
    queue("restart", SCHEDQ_RECLAIM="auto")
    eventually(lambda: queue.show(job)["state"] == "succeeded", within_s=60, what="the next worker")
    assert queue.show("1")["state"] == "running"
    assert "of the file cache are being turned into free memory of host" in story(queue, job, "reclaim")[0]
    [told] = story(queue, job, "reclaimed")
    assert "(files: " in told and "helper" not in told
    page = " ".join(queue("status").out.split())
    assert "reclaim, " in page and "GiB that host lacked" in page, page
    let_go.touch()


def test_a_foreign_file_is_given_back_by_the_operators_command_while_nobody_is_busy(queue: Queue, large: Path) -> None:
    folder = queue.provider("model", ram=0.1)
    manifest = (folder / "provider.toml").read_text()
    (folder / "provider.toml").write_text(
        manifest.replace('policy = "none"', 'policy = "required"\nvram_budget_gb = 0.1')
    )
    code = f"import os; fd = os.open('{large}', os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)"
    queue.env |= {
        "SCHEDQ_UNIFIED": "true", "SCHEDQ_RESERVE_UNIFIED_GIB": str(free_gib() - 0.2 + SHORT_GIB),
        "SCHEDQ_RECLAIM_COMMAND": f'{sys.executable} -c "{code}"',
    }  # fmt: skip
    queue("up")
    job = queue("submit", "model", queue.input()).out.strip()
    eventually(lambda: queue.show(job)["state"] == "succeeded", within_s=60, what="the worker")
    [told] = story(queue, job, "reclaimed")
    assert "reclaim_command: " in told and "exit 0" in told
    waited = [each for each in queue("why", job, "--json").json["decisions"] if "file cache" in each["text"]]
    assert waited and "takes what is free of unified for all that there is" in json.dumps(waited)
    assert os.path.getsize(large) == FILE_MIB << 20
