"""A process that has a lease for itself: what it uses is its keeper's charge, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import pool
from made_proc import Table, charged, device, only

from scheduler.model.machine import Tenant

HOST = (pool("host"),)


@pytest.fixture
def there(tmp_path: Path) -> Table:
    return Table(tmp_path)


def claim(*more: str) -> tuple[str, ...]:
    return ("worker=7", "slug=exec", "variant=v0r2n0t1-la", "queue=Q", "mode=oneshot", "charge=host:2.0", *more)


def test_the_process_that_has_a_lease_is_its_keepers_holding_with_what_it_started(there: Table) -> None:
    there.run(10, "/usr/bin/python3", "fit.py", rss_mib=1024, pss_mib=1024)
    there.run(11, "/usr/bin/python3", "helper.py", parent=10, rss_mib=256, pss_mib=256)
    there.keeper(20, *claim("kind=l", "caller=3", "group=10"), parent=10)
    holding = only(there.read(HOST))
    assert (holding.worker_id, holding.name) == (7, "exec")
    assert charged(holding) == [("host", 2.0, 1.25, "host")]


def test_the_caller_of_a_command_is_no_holder_whatever_it_uses(there: Table) -> None:
    there.run(10, "/bin/bash", rss_mib=1024)
    there.keeper(20, *claim("kind=f", "caller=3", "group=10"), parent=10)
    there.run(21, "/usr/bin/python3", "train.py", parent=20, rss_mib=512)
    assert charged(only(there.read(HOST))) == [("host", 2.0, 0.5, "host")]


def test_a_process_that_takes_its_lease_inside_of_a_command_uses_nothing_of_that_commands_charge(there: Table) -> None:
    there.keeper(5, "worker=6", "slug=exec", "variant=v0r4n0t1-fa", "queue=Q", "mode=oneshot", "charge=host:4.0")
    there.run(9, "/bin/sh", parent=5, rss_mib=128)
    there.run(10, "/usr/bin/python3", "fit.py", parent=9, rss_mib=1024)
    there.keeper(20, *claim("kind=l", "caller=3", "group=10"), parent=10)
    command, lease = there.read(HOST)
    assert charged(command) == [("host", 4.0, 0.125, "host")] and charged(lease) == [("host", 2.0, 1.0, "host")]


def test_what_a_process_uses_counts_once_where_it_has_two_leases(there: Table) -> None:
    there.run(10, "/usr/bin/python3", "fit.py", rss_mib=1024)
    there.keeper(20, *claim("kind=l", "caller=3", "group=10"), parent=10)
    there.keeper(21, "worker=8", *claim("kind=l", "caller=4", "group=10")[1:], parent=10)
    first, second = there.read(HOST)
    assert charged(first) == [("host", 2.0, 1.0, "host")] and charged(second) == [("host", 2.0, 0.0, "host")]


def test_a_leased_process_on_a_device_is_no_stranger_there(there: Table) -> None:
    there.run(10, "/usr/bin/python3", "fit.py", rss_mib=1024)
    words = [word.replace("charge=host:2.0", "charge=device:a:28.0") for word in claim("kind=l", "caller=3")]
    there.keeper(20, *words, "device=device:a", parent=10)
    card = device("a", Tenant(10, 20.0))
    holding = only(there.read([*HOST, pool("device:a")], devices=[card]))
    assert ("device:a", 28.0, 20.0, "device") in charged(holding)
