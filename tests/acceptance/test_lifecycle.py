"""Schedulers that are stopped or killed: taken over by who needs one, told from strangers, swept up after."""

from __future__ import annotations

import os
import signal

from driven import Queue, eventually


def test_run_takes_over_a_scheduler_that_is_stopped(queue: Queue) -> None:
    queue.provider()
    queue("up")
    old = queue.scheduler_pid()
    os.kill(old, signal.SIGSTOP)
    done = queue("run", "echo", queue.input(say="hi"), timeout=60)
    assert done.code == 0 and done.json["said"] == "hi", done
    assert str(old) in done.err
    assert queue.scheduler_pid() != old


def test_down_after_a_killed_scheduler_leaves_no_socket_and_no_log_of_the_database(queue: Queue) -> None:
    queue("up")
    os.kill(queue.scheduler_pid(), signal.SIGKILL)
    eventually(lambda: not queue.status()["scheduler"]["running"], what="the lock is free")
    assert queue("down").code == 0
    assert list((queue.home / "run").iterdir()) == []
    assert not [path for path in queue.home.iterdir() if path.name.startswith("queue.db-")]
