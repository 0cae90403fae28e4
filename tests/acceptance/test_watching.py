"""Watching a queue that works: progress of a running job on a live page, in `wait`, and what a batch came to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from driven import Queue
from terminals import Terminal

WORKER = """
import os, time
from schedq_worker import serve

def predict(model, request, job):
    for n in range(4):
        job.progress(n, 4, "relaxing step %d" % n)
        while not os.path.exists(request["gates"] + str(n)):
            time.sleep(0.01)
    return {"said": request["say"]}

serve(load=dict, predict=predict)
"""


@pytest.fixture
def terminal(queue: Queue) -> Iterator[Callable[..., Terminal]]:
    begun: list[Terminal] = []

    def on(*words: str, columns: int = 80, rows: int = 40) -> Terminal:
        env = {**queue.env, "TERM": "xterm"}
        env.pop("COLUMNS", None)
        begun.append(Terminal(queue.command(*words), columns, rows, env=env, cwd=queue.folder))
        return begun[-1]

    yield on
    for each in begun:
        each.close()


def test_a_batch_is_watched_from_its_first_step_to_its_end(queue: Queue, terminal: Callable[..., Terminal]) -> None:
    (queue.provider() / "echo_worker.py").write_text(WORKER)
    assert queue("up").code == 0
    gates = str(queue.folder / "gate")
    done = queue(
        "submit", "echo", queue.input("a.json", gates=gates), queue.input("b.json", gates=gates), "--batch", "n"
    )
    assert done.code == 0
    watch, batch = terminal("status", "--watch", "--every", "100ms"), terminal("status", "--batch", "n", "--watch")
    wait = terminal("wait", "--batch", "n")
    watch.until(lambda screen: re.search(r"a +\d+s +\[-+\] +0%", screen) and "0/4" in screen)
    for n in range(3):
        open(gates + str(n), "w").close()
    watch.until(lambda screen: "] " in screen and " 75%" in screen and "relaxing step 3" in screen)
    batch.until(lambda screen: "batch n: 2 jobs, 2 to come" in screen and "75%" in screen)
    assert "waiting for" in batch.read() and "these" not in batch.read()
    wait.until(lambda screen: "0/2" in screen)
    open(gates + "3", "w").close()
    watch.until(lambda screen: "2 succeeded; schedq status" in screen and "running (" not in screen)
    batch.until(lambda screen: "batch n: 2 jobs, 2 succeeded, ended" in screen)
    for each in (watch, batch):
        each.type(b"q")
        assert each.ended() == 0 and not each.modes["alternate"]
    assert wait.ended() == 0 and "2 of 2 jobs succeeded; waited" in wait.read()
    told = json.loads(queue("status", "--batch", "n", "--json").out)["batch"]
    assert (told["jobs"], told["open"], told["succeeded"], told["ends_in_s"]) == (2, 0, 2, None)
    assert [job["name"] for job in queue("history", "--batch", "n", "--json").json["jobs"]] == ["b", "a"]
