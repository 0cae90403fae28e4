"""Memory that ran out is told apart from any other failure, in whatever disguise it comes."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import machine

from scheduler.config import Paths, settings
from scheduler.host.machine.oom import RECENT_S, WORDS, Kills
from scheduler.host.watching import Watching
from scheduler.host.workers.environment import KIT
from scheduler.model import exhaustion
from scheduler.model.host import Gone, HostEvent, Replied
from scheduler.model.outcome import Outcome
from scheduler.rules.deaths import death

DISGUISES = [
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB (GPU 0; 79.35 GiB total capacity)",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "MemoryError",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape (100000, 100000)",
    "  what():  std::bad_alloc",
    "OSError: [Errno 12] Cannot allocate memory",
    "| WARNING: ran out of memory, skipping batch",
    WORDS,
]


@pytest.mark.parametrize("text", DISGUISES)
def test_every_disguise_is_seen(text: str) -> None:
    assert exhaustion.ran_out(text)
    assert death("", 1, text, told=False).kind == "over_budget"


@pytest.mark.parametrize("text", ["", "ValueError: no residues", "Segmentation fault", "memory usage: 3 GiB", "boom"])
def test_nothing_else_is_taken_for_it(text: str) -> None:
    assert not exhaustion.ran_out(text)
    assert death("", 1, text, told=False).kind == "crashed"


def test_the_kit_knows_the_same_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(KIT)
    import schedq_memory

    assert schedq_memory.SIGNS == exhaustion.SIGNS


class Kernel:
    """A count of kills that a test raises, and the events that came through."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "vmstat"
        self.count(7)
        self.said: list[HostEvent] = []
        self.now_s = 1000.0
        self.kills = Kills(self.said.append, str(self.file), lambda: self.now_s)

    def count(self, kills: int | None) -> None:
        self.file.write_text("pgfault 3\n" + ("" if kills is None else f"oom_kill {kills}\n"))


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_a_worker_that_the_kernel_killed_for_memory_is_over_its_budget(kernel: Kernel) -> None:
    kernel.count(8)
    kernel.kills.tell(Gone(1, -signal.SIGKILL, "loading"))
    kernel.kills.tell(Gone(2, -signal.SIGKILL, ""))
    texts = [event.text for event in kernel.said if isinstance(event, Gone)]
    assert all("oom-kill" in text for text in texts) and "loading" in texts[0]
    assert death("", -9, texts[1], told=False).kind == "over_budget"


def test_a_command_that_the_kernel_killed_for_memory_is_over_its_budget(kernel: Kernel) -> None:
    kernel.count(8)
    kernel.kills.tell(Replied(1, 1, 1, Outcome("crashed", "killed by SIGKILL", -9)))
    kernel.kills.tell(Replied(1, 2, 1, Outcome("error", "exit code 137", 137)))
    kernel.kills.tell(Replied(1, 3, 1, Outcome("error", "no such chain", 1)))
    assert [event.outcome.kind for event in kernel.said if isinstance(event, Replied)] == ["over_budget"] * 2 + [
        "error"
    ]


@pytest.mark.parametrize("gone", [Gone(1, -9, "x", "cancelled"), Gone(1, -11, "x"), Gone(1, 1, "x"), Gone(1, None, "")])
def test_a_death_of_another_kind_is_told_as_it_is(kernel: Kernel, gone: Gone) -> None:
    kernel.count(8)
    kernel.kills.tell(gone)
    assert kernel.said == [gone]


def test_somebody_elses_sigkill_is_no_want_of_memory(kernel: Kernel) -> None:
    kernel.kills.tell(Gone(1, -9, "x"))
    kernel.count(None)
    kernel.kills.tell(Gone(2, -9, "x"))
    assert [event.text for event in kernel.said if isinstance(event, Gone)] == ["x", "x"]


def died(kernel: Kernel) -> str:
    """What is said of a worker that somebody has just killed."""
    kernel.kills.tell(Gone(1, -signal.SIGKILL, "x"))
    gone = kernel.said[-1]
    assert isinstance(gone, Gone)
    return gone.text


def test_a_kill_of_hours_ago_says_nothing_of_a_worker_that_was_killed_by_hand(kernel: Kernel) -> None:
    kernel.now_s += 7200.0
    kernel.count(8)
    assert died(kernel) == "x"


def test_a_kill_that_was_seen_while_a_worker_ran_counts_for_a_few_seconds(kernel: Kernel) -> None:
    kernel.now_s += 7200.0
    kernel.kills.look()
    kernel.count(8)
    kernel.now_s += 1.0
    kernel.kills.look()
    kernel.now_s += RECENT_S - 1.0
    assert died(kernel) != "x"
    for _ in range(3):
        kernel.now_s += 1.0
        kernel.kills.look()
    assert died(kernel) == "x"


def test_a_count_that_could_not_be_read_once_is_no_new_beginning(kernel: Kernel) -> None:
    kernel.count(None)
    kernel.kills.look()
    kernel.count(8)
    assert died(kernel) != "x"


def test_the_guard_looks_for_kills_whenever_it_looks_at_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Kills] = []
    here, served = SimpleNamespace(latest=machine, refresh=None), SimpleNamespace(files=None)
    watching = Watching(Paths(str(tmp_path)), settings(), "q", here, None, None, served)  # type: ignore[arg-type]
    try:
        monkeypatch.setattr(watching.kills, "look", lambda: looked.append(watching.kills))
        watching.guard.step()
        watching.guard.step()
        assert len(looked) == 1
        watching.guard._look_at_s = 0.0
        watching.guard.step()
        assert len(looked) == 2
    finally:
        watching.close()


class Cuda:
    """What of torch's device module a cap touches."""

    def __init__(self) -> None:
        self.fractions: list[float] = []

    def _lazy_call(self, act: Any) -> None:
        act()

    def device_count(self) -> int:
        return 1

    def get_device_properties(self, number: int) -> Any:
        return type("Properties", (), {"total_memory": 80 << 30})()

    def set_per_process_memory_fraction(self, fraction: float, number: int) -> None:
        self.fractions.append(fraction)


def test_the_allocators_cap_is_raised_and_lowered_with_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(KIT)
    import sys
    import types

    import schedq_memory

    torch = types.ModuleType("torch")
    torch.cuda = Cuda()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    monkeypatch.setenv("SCHEDQ_CHARGE_DEVICE_GIB", "20.5")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".5")
    schedq_memory.cap_memory()
    for charge in (40.5, 40.5, 30.5, None, 40.5):
        schedq_memory.cap_anew(charge)
    assert torch.cuda.fractions == [20 / 80, 40 / 80, 30 / 80, 40 / 80]  # type: ignore[attr-defined]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.9")
    schedq_memory.cap_anew(60.5)
    assert len(torch.cuda.fractions) == 4, "a manifest's own setting stands"  # type: ignore[attr-defined]


def test_torch_that_comes_after_a_charge_was_lowered_is_capped_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(KIT)
    import sys

    import schedq_memory

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    monkeypatch.setenv("SCHEDQ_CHARGE_DEVICE_GIB", "40.5")
    schedq_memory.cap_memory()
    schedq_memory.cap_anew(20.5)
    assert [each.limit_gib for each in sys.meta_path if isinstance(each, schedq_memory._WhenTorchComes)] == [20.0]
