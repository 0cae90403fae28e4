"""Host memory as the kernel accounts it."""

from __future__ import annotations

from pathlib import Path

from scheduler.host.machine.meminfo import meminfo, pressure, stalled


def test_kilobytes_become_gib_with_their_source(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  125829120 kB\nMemFree: 5242880 kB\nMemAvailable: 63333990 kB\n")
    found = meminfo(str(tmp_path))
    assert (found["MemTotal"].value, found["MemFree"].value) == (120.0, 5.0)
    assert found["MemFree"].source == f"{tmp_path}/meminfo MemFree"


def test_a_field_that_is_not_there_or_is_no_number_is_a_failed_reading(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 125829120 kB\nMemFree: many kB\n")
    found = meminfo(str(tmp_path))
    assert found["MemTotal"].value == 120.0
    assert found["MemFree"].failed and found["MemAvailable"].failed


def test_a_machine_without_the_file_is_unread_and_not_empty(tmp_path: Path) -> None:
    assert all(reading.failed and "meminfo" in reading.missing for reading in meminfo(str(tmp_path)).values())


def test_pressure_is_two_readings_and_is_told_when_there_is_some(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    file = tmp_path / "pressure" / "memory"
    file.write_text("some avg10=0.99 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    some, full = pressure(str(tmp_path))
    assert (some.value, full.value, stalled(some, full)) == (0.99, 0.0, "")
    file.write_text(
        "some avg10=37.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=12.25 avg60=0.00 avg300=0.00 total=9\n"
    )
    told = stalled(*pressure(str(tmp_path)))
    assert "37.5 %" in told and "12.25 %" in told


def test_pressure_that_the_kernel_does_not_count_is_not_applicable_and_what_is_not_understood_failed(
    tmp_path: Path,
) -> None:
    none = pressure(str(tmp_path))
    assert not any(each.failed for each in none) and stalled(*none) == ""
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "memory").write_text("some of it\n")
    assert all(each.failed for each in pressure(str(tmp_path)))


def test_this_machine_is_readable() -> None:
    found = meminfo()
    total, available = found["MemTotal"].value, found["MemAvailable"].value
    assert total is not None and available is not None and 0 < available <= total
