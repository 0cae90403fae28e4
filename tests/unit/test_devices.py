"""Which devices a worker sees, and whether what it says agrees."""

from __future__ import annotations

import pytest
from builders import card, pool

from scheduler.host.workers.devices import CUDA, HIP, ROCR, contradiction, visible


def test_without_a_device_every_vendors_are_hidden() -> None:
    assert visible([]) == {CUDA: "-1", ROCR: "-1", HIP: "-1"}


def test_nvidias_are_shown_by_uuid_and_no_other_vendors() -> None:
    assert visible([card("GPU-1"), card("GPU-2")]) == {CUDA: "GPU-1,GPU-2", ROCR: "-1", HIP: "-1"}
    assert visible([card("MIG-7", partial=True)])[CUDA] == "MIG-7"


def test_amds_are_shown_by_uuid_and_counted_anew_among_those() -> None:
    shown = visible([card("GPU-a1", vendor="AMD"), card("GPU-b2", vendor="AMD")])
    assert shown == {CUDA: "-1", ROCR: "GPU-a1,GPU-b2", HIP: "0,1"}


def test_an_integrated_one_without_a_name_is_the_first() -> None:
    assert visible([pool("unified")])[CUDA] == "0"


@pytest.mark.parametrize("said", ["", "GPU-1", "gpu-1", "1"])
def test_a_worker_that_sees_what_it_was_given_or_does_not_say_is_believed(said: str) -> None:
    assert contradiction([card("GPU-1")], said) == ""


def test_the_order_in_which_it_says_them_does_not_matter() -> None:
    assert contradiction([card("GPU-1"), card("GPU-2")], "GPU-2,GPU-1") == ""


@pytest.mark.parametrize("said", ["GPU-2", "0", "GPU-1,GPU-2"])
def test_a_worker_that_sees_something_else_contradicts(said: str) -> None:
    wrong = contradiction([card("GPU-1")], said)
    assert "it was given GPU-1 and sees" in wrong and CUDA in wrong


def test_one_of_two_is_not_both() -> None:
    assert "GPU-1 and GPU-2 and sees GPU-1:" in contradiction([card("GPU-1"), card("GPU-2")], "GPU-1")


def test_where_no_name_was_given_none_can_be_wrong() -> None:
    assert contradiction([pool("unified")], "GPU-9") == ""


def test_a_worker_that_was_given_none_and_sees_one_contradicts() -> None:
    assert "it was given no device and sees GPU-1" in contradiction([], "GPU-1")
