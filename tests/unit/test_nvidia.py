"""NVIDIA's devices as they are read through the real binding, from a library that tells what a test wrote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nvml as driver
import pytest
from nvml import DRIVER, Card, Stub

from scheduler.host.machine import apart, nvidia, nvml
from scheduler.host.machine.nvidia import Nvidia
from scheduler.model.machine import Device, Tenant

WITHIN_S = 20.0
"""No test waits for this: a machine under load is no driver that hangs."""
INIT = "nvmlInit_v2"


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path)


@pytest.fixture
def reader(stub: Stub) -> Iterator[Callable[..., Nvidia]]:
    made: list[Nvidia] = []

    def read_by(within_s: float = WITHIN_S, env: dict[str, str] | None = None, **more: Any) -> Nvidia:
        made.append(Nvidia(within_s, env={**stub.env(), **(env or {})}, **{"proc": "/nowhere", **more}))
        return made[-1]

    yield read_by
    for each in made:
        each.close()


def only(reader: Callable[..., Nvidia]) -> Device:
    (device,), missing = reader().read()
    assert missing == ""
    return device


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 20.0
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_card_is_told_whole(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(3, used_gib=12.0, compute=[(41, 10.0)], graphics=[(42, 1.5)], display=True)]).write()
    device = only(reader)
    assert device.id == device.seen_as == "GPU-00000003-0000-4000-8000-000000000000"
    assert (device.vendor, device.name, device.slot, device.number) == (
        "NVIDIA", "NVIDIA H100 80GB HBM3", "0000:04:00.0", 0,
    )  # fmt: skip
    assert (device.total.value, device.free.value, device.used.value) == (79.5, 67.5, 12.0)
    assert device.total.source == "NVML GPU-00000003 memory"
    assert device.tenants == (Tenant(41, 10.0), Tenant(42, 1.5, computes=False)) and device.tenants_missing == ""
    assert (device.display, device.integrated, device.partial) == (True, False, False)
    assert device.driver == DRIVER


def test_a_driver_that_does_not_tell_its_version_is_no_failure(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card()]).fail("nvmlSystemGetDriverVersion", 999).write()
    device = only(reader)
    assert device.driver == "" and device.total.value


@pytest.mark.parametrize("count", [0, 1, 2, 8])
def test_every_card_is_read(stub: Stub, reader: Callable[..., Nvidia], count: int) -> None:
    stub.cards([Card(n, used_gib=n) for n in range(count)]).write()
    devices, missing = reader().read()
    assert missing == "" and [d.number for d in devices] == list(range(count))
    assert [d.used.value for d in devices] == [float(n) for n in range(count)]


def test_a_machine_that_changes_is_read_as_it_is_by_one_child(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(used_gib=1.0)]).write()
    reading = reader()
    assert reading.read()[0][0].used.value == 1.0
    pid = reading.child.pid
    stub.cards([Card(used_gib=2.0), Card(1)]).write()
    assert [d.used.value for d in reading.read()[0]] == [2.0, 0.0]
    assert reading.child.pid == pid and stub.inits() == 1


def test_a_driver_without_the_second_form_of_memory_tells_all_of_it(
    tmp_path: Path, reader: Callable[..., Nvidia]
) -> None:
    old = Stub(tmp_path, without=("MEMORY_V2", "PROCESSES_V3")).cards([Card(used_gib=2.0, compute=[(7, 2.0)])]).write()
    (device,), _ = reader(env=old.env()).read()
    assert (device.total.value, device.free.value, device.used.value) == (80.0, 77.5, 2.5)
    assert device.tenants == (Tenant(7, 2.0),) and device.tenants_missing == ""


def test_a_driver_that_knows_another_second_form_tells_the_first(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(used_gib=2.0)]).fail("nvmlDeviceGetMemoryInfo_v2", driver.OTHER_VERSION).write()
    assert only(reader).total.value == 80.0


def test_totals_that_the_driver_does_not_have_are_not_applicable(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(name="NVIDIA GB10", total_gib=None, compute=[(7, 12.0)])]).write()
    device = only(reader)
    for reading in (device.total, device.free, device.used):
        assert reading.value is None and not reading.failed
    assert device.integrated and device.tenants == (Tenant(7, 12.0),)


def test_totals_of_an_integrated_device_that_are_the_machines_are_told_as_they_are(
    stub: Stub, reader: Callable[..., Nvidia]
) -> None:
    stub.cards([Card(name="NVIDIA GB10", total_gib=119.6, reserved_gib=0.0, used_gib=20.0)]).write()
    device = only(reader)
    assert device.integrated and device.total.value == pytest.approx(119.6, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "integrated"),
    [
        ("NVIDIA GB10", True), ("Orin (nvgpu)", True), ("NVIDIA Jetson AGX Thor", True), ("Xavier", True),
        ("NVIDIA Tegra X2", True), ("NVIDIA GB100", False), ("NVIDIA GB200", False), ("NVIDIA GH200 480GB", False),
        ("NVIDIA RTX 4090", False), ("NVIDIA B10", False), ("NVIDIA Thorium", False), ("Author 10", False),
    ],
)  # fmt: skip
def test_an_integrated_device_is_known_by_its_whole_name(name: str, integrated: bool) -> None:
    assert bool(nvml.INTEGRATED.search(name)) == integrated


def test_a_total_of_nothing_is_unreadable_and_of_an_integrated_device_not_applicable(
    stub: Stub, reader: Callable[..., Nvidia]
) -> None:
    empty = {"total_gib": 0.0, "reserved_gib": 0.0}
    stub.cards([Card(0, **empty), Card(1, name="NVIDIA GB10", **empty)]).write()  # type: ignore[arg-type]
    card, integrated = reader().read()[0]
    assert card.total.missing == "GPU-00000000: NVML says that it has no memory at all"
    assert integrated.total.value is None and not integrated.total.failed


def test_more_free_than_there_is_is_unreadable(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(reserved_gib=0.0, used_gib=-10.0)]).write()
    device = only(reader)
    assert device.free.failed and "NVML says 96636764160 B free" in device.free.missing


def test_the_smaller_of_two_looks_at_a_process_counts(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(compute=[(1, 8.0, 9.0), (2, 9.0, 8.0), (3, 5.0, driver.NOT_LISTED), (4, 1.0, -1)])]).write()
    device = only(reader)
    assert device.tenants == (Tenant(1, 8.0), Tenant(2, 8.0), Tenant(3, 0.0), Tenant(4, None))


def test_a_process_in_several_lists_is_one_that_computes_and_holds_the_largest(
    stub: Stub, reader: Callable[..., Nvidia]
) -> None:
    stub.cards([Card(compute=[(1, 3.0), (4, 2.0)], mps=[(2, 4.0)], graphics=[(1, 5.0), (3, 1.0), (4, 1.0)])]).write()
    assert only(reader).tenants == (
        Tenant(1, 5.0), Tenant(2, 4.0), Tenant(3, 1.0, computes=False), Tenant(4, 2.0),
    )  # fmt: skip


def test_a_use_that_is_not_available_is_unknown(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(used_gib=9.0, compute=[(1, driver.NOT_AVAILABLE)])]).write()
    assert only(reader).tenants == (Tenant(1, None),)


def test_a_container_that_sees_no_process_sees_the_use(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(used_gib=30.0)]).write()
    device = only(reader)
    assert device.tenants == () and device.tenants_missing == "" and device.used.value == 30.0


def test_a_list_of_processes_that_is_not_supported_is_unknown_and_graphics_alone_is_none(
    stub: Stub, reader: Callable[..., Nvidia]
) -> None:
    stub.cards([Card()]).fail("nvmlDeviceGetGraphicsRunningProcesses_v3", driver.NOT_SUPPORTED).write()
    assert only(reader).tenants_missing == ""
    stub.cards([Card()]).fail("nvmlDeviceGetComputeRunningProcesses_v3", driver.NOT_SUPPORTED).write()
    assert only(reader).tenants_missing == "GPU-00000000: its driver does not list processes"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (driver.LOST, "NVML says 'GPU is lost': the device no longer answers on its bus: reboot"),
        (driver.UNKNOWN, "NVML says 'Unknown Error'"),
        (driver.TIMEOUT, "NVML says 'Timeout'"),
        (driver.NO_PERMISSION, "NVML says 'Insufficient Permissions': this user must be able to open /dev/nvidia*"),
        (driver.RESET_REQUIRED, "NVML says 'GPU requires restart': nvidia-smi --gpu-reset"),
        (27, "NVML says 'Not Ready'"),
        (4711, "NVML says"),
    ],
)
def test_an_error_of_one_figure_fails_that_figure_and_no_other(
    stub: Stub, reader: Callable[..., Nvidia], code: int, words: str
) -> None:
    stub.cards([Card(0), Card(1)]).fail("nvmlDeviceGetMemoryInfo_v2", code, "0").write()
    (broken, sound), missing = reader().read()
    assert missing == "" and sound.total.value == 79.5
    for reading in (broken.total, broken.free, broken.used):
        assert reading.failed and f"GPU-00000000: asked for its memory, {words}" in reading.missing
    assert broken.tenants_missing == ""
    stub.cards([Card(0)]).fail("nvmlDeviceGetComputeRunningProcesses_v3", code, "0").write()
    device = only(reader)
    assert device.total.value == 79.5
    assert f"GPU-00000000: asked for its processes, {words}" in device.tenants_missing


def test_a_lost_card_stays_listed_by_its_name_and_the_others_are_read(
    stub: Stub, reader: Callable[..., Nvidia]
) -> None:
    stub.cards([Card(0), Card(1), Card(2)]).write()
    reading = reader()
    reading.read()
    stub.cards([Card(0), Card(1), Card(2)]).fail("nvmlDeviceGetHandleByIndex_v2", driver.LOST, "1").write()
    for _ in range(2):
        (first, lost, last), missing = reading.read()
        assert missing == "" and first.total.value == last.total.value == 79.5
        assert lost.id == Card(1).id and lost.slot == "0000:02:00.0" and lost.tenants == ()
        assert "NVIDIA device 1: asked for its handle, NVML says 'GPU is lost'" in lost.total.missing
        assert lost.free.failed and lost.used.failed and lost.tenants_missing
    stub.cards([Card(0), Card(1), Card(2)]).write()
    assert [d.total.value for d in reading.read()[0]] == [79.5, 79.5, 79.5]


def test_a_card_that_was_never_read_is_listed_by_its_number(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(0), Card(1)]).fail("nvmlDeviceGetHandleByIndex_v2", driver.LOST, "0").write()
    lost, sound = reader().read()[0]
    assert lost.id == "nvidia0" and lost.total.failed and lost.tenants_missing and lost.seen_as == ""
    assert sound.id == Card(1).id and sound.total.value == 79.5


@pytest.mark.parametrize(
    ("function", "code", "id_", "why"),
    [
        ("nvmlDeviceGetUUID", driver.UNKNOWN, "0000:01:00.0", "asked for its UUID, NVML says 'Unknown Error'"),
        ("nvmlDeviceGetUUID", driver.NOT_SUPPORTED, "0000:01:00.0", "so no worker could be sent to it"),
        ("nvmlDeviceGetName", driver.UNKNOWN, Card(0).id, "so it is not known if it has memory of its own"),
        ("nvmlDeviceGetName", driver.NOT_SUPPORTED, Card(0).id, "so it is not known if it has memory of its own"),
        ("nvmlDeviceGetMigMode", driver.UNKNOWN, Card(0).id, "so it is not known if it is partitioned"),
    ],
)
def test_a_card_of_which_it_is_not_known_what_it_is_is_unreadable(
    stub: Stub, reader: Callable[..., Nvidia], function: str, code: int, id_: str, why: str
) -> None:
    stub.cards([Card(0), Card(1)]).fail(function, code, "0").write()
    doubtful, sound = reader().read()[0]
    assert doubtful.id == id_ and sound.total.value == 79.5
    assert all(why in reading.missing for reading in (doubtful.total, doubtful.free, doubtful.used))


def test_a_display_that_cannot_be_asked_for_counts_as_one(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card(0, display=None), Card(1)]).fail("nvmlDeviceGetDisplayActive", driver.UNKNOWN, "1").write()
    unsupported, unknown = reader().read()[0]
    assert not unsupported.display and unknown.display and unknown.total.value == 79.5


def partitioned(number: int = 0, **parts: Card) -> Card:
    return Card(number, mig=True, instances={int(key[1:]): part for key, part in parts.items()})


def instance(number: int, gi: int, total_gib: float = 20.0, **more: Any) -> Card:
    uuid = f"MIG-{number:08x}-0000-4000-8000-000000000000"
    return Card(uuid=uuid, name="NVIDIA H100 MIG 2g.20gb", total_gib=total_gib, gi=gi, display=None, **more)


def test_a_partitioned_card_is_its_instances_and_never_itself(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    one = instance(1, gi=1, used_gib=4.0, compute=[(9, 3.0)])
    stub.cards([partitioned(i0=one, i3=instance(2, gi=2, total_gib=40.0)), Card(1)]).write()
    first, second, whole = reader().read()[0]
    assert (first.id, first.seen_as, first.partial) == (one.id, one.id, True)
    assert (first.total.value, first.used.value, first.tenants) == (19.5, 4.0, (Tenant(9, 3.0),))
    assert (second.total.value, second.tenants, second.partial) == (39.5, (), True)
    assert first.slot == second.slot == "0000:01:00.0" and first.number == second.number == 0
    assert first.name == "NVIDIA H100 MIG 2g.20gb" and first.total.source == "NVML MIG-00000001 memory"
    assert whole.id == Card(1).id and not whole.partial


def test_instances_that_share_one_memory_are_one_device(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    one, two = instance(1, gi=5, compute=[(9, 3.0)]), instance(2, gi=5, compute=[(10, 4.0)])
    stub.cards([partitioned(i0=one, i1=two, i2=instance(3, gi=6))]).write()
    reading = reader()
    (shared, other), _ = reading.read()
    assert (shared.id, other.id) == (one.id, instance(3, gi=6).id)
    assert shared.tenants == (Tenant(9, 3.0), Tenant(10, 4.0))
    assert reading.notes == (f"{two.id} is not used: it shares its memory with {one.id}",)


def test_a_partitioned_card_without_instance_is_no_device_and_a_note(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([partitioned()]).write()
    reading = reader()
    assert reading.read() == ((), "")
    assert reading.notes == (
        "GPU-00000000 (NVIDIA H100 80GB HBM3) is partitioned (MIG) and has no instance: create one "
        "(nvidia-smi mig -cgi PROFILE -C), or turn MIG off",
    )


@pytest.mark.parametrize(
    ("function", "who", "ids"),
    [
        ("nvmlDeviceGetMaxMigDeviceCount", "0", [Card(0).id]),
        ("nvmlDeviceGetMigDeviceHandleByIndex", "0.0", [f"{Card(0).id}/0", instance(2, 2).id]),
        ("nvmlDeviceGetUUID", "0.0", [f"{Card(0).id}/0", instance(2, 2).id]),
        ("nvmlDeviceGetGpuInstanceId", "0.0", [instance(1, 1).id, instance(2, 2).id]),
        ("nvmlDeviceGetMemoryInfo_v2", "0.0", [instance(1, 1).id, instance(2, 2).id]),
    ],
)
def test_an_instance_that_errs_is_unreadable_alone(
    stub: Stub, reader: Callable[..., Nvidia], function: str, who: str, ids: list[str]
) -> None:
    stub.cards([partitioned(i0=instance(1, 1), i1=instance(2, 2))]).fail(function, driver.UNKNOWN, who).write()
    devices, missing = reader().read()
    assert missing == "" and sorted(d.id for d in devices) == sorted(ids)
    assert [d.id for d in devices if d.total.failed] == ids[:1]
    assert all("Unknown Error" in d.total.missing for d in devices if d.total.failed)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (driver.DRIVER_NOT_LOADED, "NVML says 'Driver Not Loaded': load it (modprobe nvidia)"),
        (driver.MISMATCH, "mismatch.': the driver was upgraded while the old one still runs: reboot"),
        (driver.NO_PERMISSION, "this user must be able to open /dev/nvidia*"),
        (driver.UNKNOWN, "NVML says 'Unknown Error'"),
    ],
)
def test_a_driver_that_cannot_be_connected_to_is_a_reason_and_is_tried_at_every_read(
    stub: Stub, reader: Callable[..., Nvidia], code: int, why: str
) -> None:
    stub.cards([Card()]).fail(INIT, code).write()
    reading = reader()
    devices, missing = reading.read()
    assert devices == () and why in missing and missing.startswith("the NVIDIA driver: asked for a connection, ")
    stub.cards([Card()]).write()
    assert reading.read()[0][0].total.value == 79.5
    stub.cards([Card()]).fail("nvmlDeviceGetCount_v2", code).write()
    devices, missing = reading.read()
    assert devices == () and missing.startswith("the NVIDIA driver: asked for its number of devices, NVML says")


def test_a_driver_that_hangs_is_given_up_on_and_asked_again_when_it_may_be(
    stub: Stub, reader: Callable[..., Nvidia], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.cards([Card()]).write()
    reading = reader()
    assert reading.read()[0]
    pid = reading.child.pid
    assert pid
    reading.within_s = 0.2
    stub.cards([Card()]).hang("nvmlDeviceGetMemoryInfo_v2").write()
    devices, missing = reading.read()
    assert devices == () and "the NVIDIA driver did not answer in 0.2 s; it is asked again at " in missing
    wait_for(lambda: is_gone(pid))
    stub.cards([Card()]).write()
    assert reading.read() == ((), missing)
    now = apart.monotonic_s() + apart.AGAIN_S
    monkeypatch.setattr(apart, "monotonic_s", lambda: now)
    reading.within_s = WITHIN_S
    assert reading.read()[0][0].total.value == 79.5


def test_a_driver_that_wakes_slowly_is_waited_for_over_several_reads(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card()]).slow(INIT, 0.7).write()
    reading = reader(within_s=0.05)
    devices, missing = reading.read()
    assert devices == () and "has not given its first answer yet, for which it has 30 s" in missing
    reading.within_s = WITHIN_S
    assert reading.read()[0] and stub.inits() == 1


def test_a_driver_that_crashes_takes_only_the_child(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card()]).crash("nvmlDeviceGetName").write()
    devices, missing = reader().read()
    assert devices == () and "ended by signal 11 (SIGSEGV)" in missing


def test_the_child_outlives_the_thread_that_asked_first(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card()]).write()
    reading, pids = reader(), []
    for _ in range(3):
        asking = threading.Thread(target=lambda: pids.append((bool(reading.read()[0]), reading.child.pid)))
        asking.start()
        asking.join(30.0)
    assert pids == [(True, pids[0][1])] * 3


@pytest.mark.parametrize("hangs", [False, True])
def test_the_child_goes_when_its_parent_is_killed(stub: Stub, hangs: bool) -> None:
    stub.cards([Card()]).write()
    script = (
        "import sys\n"
        "from scheduler.host.machine.nvidia import Nvidia\n"
        "reading = Nvidia(60.0)\n"
        "print(len(reading.read()[0]), reading.child.pid, flush=True)\n"
        "sys.stdin.readline()\n"
        "reading.read()\n"
        "sys.stdin.readline()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **stub.env()},
    )  # fmt: skip
    with parent:
        assert parent.stdin and parent.stdout
        found, pid = map(int, parent.stdout.readline().split())
        assert found == 1 and not is_gone(pid)
        if hangs:
            stub.cards([Card()]).hang("nvmlDeviceGetCount_v2").write()
            parent.stdin.write("\n")
            parent.stdin.flush()
            wait_for(lambda: stub.hangs() == 1)
        parent.send_signal(signal.SIGKILL)
        wait_for(lambda: is_gone(pid))


def test_closing_leaves_nothing(stub: Stub, reader: Callable[..., Nvidia]) -> None:
    stub.cards([Card()]).write()
    reading = reader()
    reading.read()
    pid = reading.child.pid
    assert pid
    reading.close()
    assert is_gone(pid)
    assert reading.read() == ((), "the NVIDIA driver is not asked any more: this process is going down")


@pytest.mark.parametrize(
    "row",
    [
        {}, {"total": 1}, {"total": [float("nan"), ""]}, {"total": [-1, ""]}, {"total": ["80", ""]},
        {"total": [True, ""]}, {"tenants": [[1]]}, {"tenants": 5}, {"number": "x"}, None,
    ],
)  # fmt: skip
def test_an_answer_that_is_not_understood_is_a_reason(row: dict[str, Any] | None, monkeypatch: Any) -> None:
    reading = Nvidia()
    rows = [{**nvml.unread("", id="GPU-1"), **row} if row else row]
    if row == {}:
        rows = [{}]
    answer = {"source": "NVML", "missing": "", "notes": [], "devices": rows}
    monkeypatch.setattr(reading.child, "ask", lambda within_s: (answer, ""))
    devices, missing = reading.read()
    assert devices == () and missing.startswith("the NVIDIA driver's answer is not understood: ")


class Broken(Exception):
    """The binding's error."""

    value = driver.LOST


def test_a_lost_device_renews_the_connection_and_not_at_every_read() -> None:
    calls: list[str] = []

    def lose(index: int) -> None:
        raise Broken

    def note(name: str) -> Callable[[], None]:
        return lambda: calls.append(name)

    codes = {f"NVML_ERROR_{name}": -n for n, name in enumerate((*nvml.ADVICE, *nvml.RENEWING))}
    binding = SimpleNamespace(
        **{**codes, "NVML_ERROR_GPU_IS_LOST": driver.LOST, "NVML_ERROR_NOT_SUPPORTED": 3},
        NVML_ERROR_ARGUMENT_VERSION_MISMATCH=25,
        NVMLError=Broken, nvmlInit=note("init"), nvmlShutdown=note("end"), nvmlSystemGetDriverVersion=lambda: "580",
        nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=lose,
    )  # fmt: skip
    now_s = [0.0]
    library = nvml.Library(binding, lambda: now_s[0])
    for _ in range(3):
        library.rows()
        now_s[0] += nvml.RENEW_S / 2
    assert calls == ["init", "end", "init"]


@pytest.mark.parametrize(
    ("bus_id", "slot"),
    [("00000000:01:00.0", "0000:01:00.0"), ("0000000A:C1:00.0", "000a:c1:00.0"), ("00012345:01:00.0", "12345:01:00.0"),
     ("0000:65:00.0", "0000:65:00.0"), ("", "")],
)  # fmt: skip
def test_a_pci_address_is_written_as_the_kernel_writes_it(bus_id: str, slot: str) -> None:
    assert nvml.slot(bus_id) == slot


SMI = """#!/bin/sh
case "$1" in
  --query-gpu=*) cat {folder}/cards; exit $(cat {folder}/cards.exit);;
  --query-compute-apps=*) cat {folder}/apps; exit $(cat {folder}/apps.exit);;
esac
exit 99
"""
CARD = "0, GPU-00000001-aa, NVIDIA L4, 00000000:01:00.0, 23034, 20000, 2570, Disabled, [N/A], 580.82.07\n"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Nvidia]]:
    """A machine where NVIDIA's binding is not installed, and nvidia-smi prints what a test wrote."""
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a nvidia-smi of its own")
    monkeypatch.setattr(nvidia, "_binding_folder", lambda: "")
    made: list[Nvidia] = []

    def printing(cards: str, apps: str = "", code: int = 0, apps_code: int = 0, script: str = SMI) -> Nvidia:
        for name, text in (("cards", cards), ("apps", apps), ("cards.exit", code), ("apps.exit", apps_code)):
            (tmp_path / name).write_text(str(text))
        program = tmp_path / "nvidia-smi"
        program.write_text(script.format(folder=tmp_path))
        program.chmod(0o755)
        made.append(Nvidia(WITHIN_S, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}))
        return made[-1]

    yield printing
    for each in made:
        each.close()


@pytest.mark.host_pids
def test_nvidia_smi_is_asked_where_the_binding_is_missing(smi: Callable[..., Nvidia]) -> None:
    (device,), missing = smi(CARD, "GPU-00000001-aa, 77, 1024\nGPU-00000001-aa, 78, [N/A]\n").read()
    assert missing == "" and device.id == device.seen_as == "GPU-00000001-aa"
    assert (device.name, device.slot, device.number) == ("NVIDIA L4", "0000:01:00.0", 0)
    assert device.driver == "580.82.07"
    assert device.total.value == 22570 / 1024 and device.total.source.startswith("nvidia-smi ")
    assert (device.free.value, device.used.value) == (20000 / 1024, 2570 / 1024)
    assert device.tenants == (Tenant(77, 1.0), Tenant(78, None)) and device.tenants_missing == ""


def test_what_nvidia_smi_does_not_have_is_not_applicable_and_other_words_fail(smi: Callable[..., Nvidia]) -> None:
    (device,), _ = smi(
        "0, GPU-1, NVIDIA GB10, 0000000F:01:00.0, [N/A], [Not Supported], [Unknown Error], [N/A], [N/A], [N/A]\n"
    ).read()
    assert device.integrated and not device.total.failed and not device.free.failed
    assert device.total.value is device.free.value is None
    assert device.used.missing == "GPU-1: nvidia-smi says '[Unknown Error]' for its used memory"
    assert device.slot == "000f:01:00.0"


@pytest.mark.host_pids
def test_an_exit_status_of_nvidia_smi_is_no_empty_machine(smi: Callable[..., Nvidia]) -> None:
    devices, missing = smi("NVIDIA-SMI has failed because it couldn't talk to the driver.\n", code=9).read()
    assert devices == ()
    assert "nvidia-ml-py cannot be imported" in missing
    assert "nvidia-smi failed with exit status 9 and said: NVIDIA-SMI has failed because" in missing
    (device,), missing = smi(CARD, "No permission\n", apps_code=4).read()
    assert missing == "" and device.total.value
    assert device.tenants_missing == "nvidia-smi failed with exit status 4 and said: No permission"


@pytest.mark.parametrize("printed", ["Field is not valid\n", "0, GPU-1\n", CARD + "trailing words\n"])
def test_what_is_no_table_of_nvidia_smi_is_a_reason(smi: Callable[..., Nvidia], printed: str) -> None:
    devices, missing = smi(printed).read()
    assert devices == () and "nvidia-smi printed what is no row of 10 values" in missing


def test_a_partitioned_card_needs_the_library(smi: Callable[..., Nvidia]) -> None:
    (device,), _ = smi(CARD.replace("[N/A]", "Enabled")).read()
    assert device.total.failed and "is partitioned (MIG), and only NVML tells its instances" in device.total.missing


def test_nvidia_smi_that_hangs_is_a_reason(smi: Callable[..., Nvidia]) -> None:
    reading = smi(CARD, script="#!/bin/sh\nexec sleep 600\n")
    reading.within_s = 1.0
    wait_for(lambda: "nvidia-smi did not answer in time" in reading.read()[1])


def test_nvidia_smi_goes_with_the_child_that_runs_it(smi: Callable[..., Nvidia], tmp_path: Path) -> None:
    reading = smi(CARD, script="#!/bin/sh\necho $$ > {folder}/pid\nexec sleep 600\n")
    asking = threading.Thread(target=reading.read)
    asking.start()
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
    reading.close()
    asking.join(10.0)
    wait_for(lambda: is_gone(int((tmp_path / "pid").read_text())))


def test_where_there_is_neither_library_nor_nvidia_smi_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a nvidia-smi of its own")
    monkeypatch.setattr(nvidia, "_binding_folder", lambda: "")
    reading = Nvidia(WITHIN_S, env={"PATH": str(tmp_path)})
    devices, missing = reading.read()
    reading.close()
    assert (
        devices == () and "nvidia-ml-py cannot be imported" in missing and "nvidia-smi is not there either" in missing
    )


def test_an_nvidia_smi_that_hangs_is_ended_with_all_that_it_started_and_left_alone_for_a_while(
    smi: Callable[..., Nvidia], tmp_path: Path
) -> None:
    script = "#!/bin/sh\nsleep 600 &\necho $$ $! >> {folder}/pids\nwait\n"
    reading = smi(CARD, script=script)
    reading.within_s = 2.0
    wait_for(lambda: "nvidia-smi did not answer in time; it is asked again at" in reading.read()[1])
    asked = (tmp_path / "pids").read_text().split()
    assert "nvidia-smi did not answer in time; it is asked again at" in reading.read()[1]
    assert (tmp_path / "pids").read_text().split() == asked
    wait_for(lambda: all(is_gone(int(pid)) for pid in asked))


def test_in_a_container_with_pids_of_its_own_nobody_is_told_by_the_machines_pids(stub: Stub, tmp_path: Path) -> None:
    stub.cards([Card(0, used_gib=40.0, compute=[(os.getpid(), 40.0)])]).write()
    (tmp_path / "proc" / "self" / "ns").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    reading = Nvidia(WITHIN_S, env=stub.env(), proc=str(tmp_path / "proc"))
    try:
        wait_for(lambda: bool(reading.read()[0]))
        (device,), missing = reading.read()
        assert missing == "" and device.tenants == () and "container with pids of its own" in device.tenants_missing
        assert device.used.value == 40.0
    finally:
        reading.close()
