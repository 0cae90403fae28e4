"""Two schedulers with different databases and one small device: what is let go never exceeds it, whoever looks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import racing
from racing import CAPACITY_GIB, NOBODY, RESERVE_GIB, raced

ROUNDS = 8


def test_two_schedulers_of_one_user_never_let_go_more_than_the_device_has(tmp_path: Path) -> None:
    seen = raced(tmp_path, ROUNDS)
    assert seen.over == [] and 0 < seen.most_gib <= CAPACITY_GIB - RESERVE_GIB, seen
    assert len(seen.let_go) == 2 * ROUNDS, "every round let both go, one after the other"


def test_two_schedulers_of_two_users_never_let_go_more_than_the_device_has(open_folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("a scheduler of another user is started by root alone")
    if not racing.python_for(NOBODY):
        pytest.skip("there is no interpreter with schedq that another user may run")
    seen = raced(open_folder, ROUNDS, uids=(None, NOBODY))
    assert seen.over == [] and 0 < seen.most_gib <= CAPACITY_GIB - RESERVE_GIB, seen
    assert len(seen.let_go) == 2 * ROUNDS, "every round let both go, one after the other"


def test_the_observer_sees_it_where_nothing_is_decided_again_once_claims_can_be_seen(tmp_path: Path) -> None:
    seen = raced(tmp_path, 60, launch=racing.UNCHECKED)
    assert seen.over, seen
