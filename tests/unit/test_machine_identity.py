"""Which machine this is."""

from __future__ import annotations

import os
import subprocess
import sys

from scheduler.host.machine.identity import identity, started
from scheduler.host.workers import tree
from scheduler.store import identity as stored


def test_the_machine_has_the_same_id_here_as_in_a_queues_rows() -> None:
    assert identity().host_id == stored.host_id()
    assert identity().boot_id == tree.boot_id()


def test_a_process_is_known_by_its_start_and_one_that_is_gone_has_none() -> None:
    stat = tree.stat_of(os.getpid())
    assert stat is not None and started(os.getpid()) == stat.started > 0
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert started(child.pid) == 0.0
