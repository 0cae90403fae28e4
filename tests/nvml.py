"""A stand-in for the NVIDIA driver: the library libnvidia-ml.so.1, compiled here, that tells what a test wrote.

`Stub(folder).cards([Card(...)]).write()` makes a machine, `.env()` what a child process needs to see it; a later
`write` changes the machine under whoever watches it.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIBRARY = "libnvidia-ml.so.1"
SOURCE = Path(__file__).with_name("nvml_stub.c")
GIB = 1 << 30
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, TIMEOUT, LOST, RESET_REQUIRED, MISMATCH, OTHER_VERSION, UNKNOWN = (
    3, 4, 9, 10, 15, 16, 18, 25, 999,
)  # fmt: skip
NOT_AVAILABLE, NOT_LISTED = -1, -2
DRIVER = "580.82.07"


@dataclass(frozen=True)
class Card:
    """One device, or one instance of a partitioned one. GiB; `total_gib` None = the driver has no such figure.

    Processes are (pid, GiB) or (pid, GiB, GiB at every second look); NOT_AVAILABLE and NOT_LISTED are no GiB.
    """

    number: int = 0
    name: str = "NVIDIA H100 80GB HBM3"
    total_gib: float | None = 80.0
    reserved_gib: float = 0.5
    used_gib: float = 0.0
    compute: Sequence[tuple[float, ...]] = ()
    mps: Sequence[tuple[float, ...]] = ()
    graphics: Sequence[tuple[float, ...]] = ()
    display: bool | None = False
    mig: bool | None = None
    gi: int = 0
    instances: dict[int, Card] = field(default_factory=dict)
    uuid: str = ""

    @property
    def id(self) -> str:
        """Its UUID; made from its number where none was given."""
        return self.uuid or f"GPU-{self.number:08x}-0000-4000-8000-000000000000"

    def lines(self, who: str) -> list[str]:
        """What the library reads of it."""
        said = {"uuid": self.id, "name": self.name, "gi": str(self.gi)}
        if "." not in who:
            said["pci"] = f"00000000:{self.number + 1:02X}:00.0"
        if self.display is not None:
            said["display"] = str(int(self.display))
        if self.mig is not None:
            said["mig"] = str(int(self.mig))
        if self.total_gib is not None:
            total, kept, used = (int(gib * GIB) for gib in (self.total_gib, self.reserved_gib, self.used_gib))
            said["memory"] = f"{total} {kept} {total - kept - used} {used}"
        lines = [f"{who} {key} {value}" for key, value in said.items()]
        for kind in ("compute", "mps", "graphics"):
            for pid, *used_gib in getattr(self, kind):
                used = " ".join(str(int(gib) if gib < 0 else int(gib * GIB)) for gib in used_gib)
                lines.append(f"{who} {kind} {int(pid)} {used}")
        return lines + [line for number, part in self.instances.items() for line in part.lines(f"{who}.{number}")]


class Stub:
    """One such machine, described in a file of `folder`. `without`: functions that an older driver lacks."""

    def __init__(self, folder: Path, without: tuple[str, ...] = ()) -> None:
        self.path = folder / "nvml"
        self.library = folder / LIBRARY
        self.library.unlink(missing_ok=True)
        self.library.symlink_to(_library(without))
        self._cards: list[Card] = []
        self._rules: list[str] = []

    def cards(self, cards: Sequence[Card]) -> Stub:
        """These devices, and no rule of before."""
        self._cards, self._rules = list(cards), []
        return self

    def fail(self, function: str, code: int, who: str = "*") -> Stub:
        """From the next `write` on that function answers with an error; `who`: a card `0`, an instance `0.1`."""
        self._rules.append(f"{who} fail {function} {code}")
        return self

    def hang(self, function: str, who: str = "*") -> Stub:
        """It never comes back."""
        self._rules.append(f"{who} hang {function}")
        return self

    def crash(self, function: str, who: str = "*") -> Stub:
        """It ends its process by a signal."""
        self._rules.append(f"{who} crash {function}")
        return self

    def slow(self, function: str, for_s: float, who: str = "*") -> Stub:
        """It takes its time."""
        self._rules.append(f"{who} slow {function} {int(for_s * 1000)}")
        return self

    def write(self) -> Stub:
        """Make it so, at once and whole, for everyone who has the library loaded."""
        lines = [f"* count {len(self._cards)}", f"* driver {DRIVER}", *self._rules]
        lines += [line for index, card in enumerate(self._cards) for line in card.lines(str(index))]
        beside = self.path.with_suffix(".next")
        beside.write_text("".join(f"{line}\n" for line in lines))
        os.replace(beside, self.path)
        return self

    def inits(self) -> int:
        """How often somebody connected to it."""
        return self._noted("inits")

    def hangs(self) -> int:
        """How many have asked it and never come back."""
        return self._noted("hangs")

    def _noted(self, what: str) -> int:
        kept = Path(f"{self.path}.{what}")
        return len(kept.read_text().splitlines()) if kept.exists() else 0

    def env(self) -> dict[str, str]:
        """What a process needs in its environment to see this machine."""
        return {"LD_LIBRARY_PATH": str(self.library.parent)}


@functools.cache
def _library(without: tuple[str, ...]) -> Path:
    """Compiled once a run; skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("gcc is not installed: the NVIDIA driver's stand-in cannot be built")
    folder = tempfile.mkdtemp(prefix="schedq-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Path(folder) / LIBRARY
    flags = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    done = subprocess.run(
        [compiler, *flags, *(f"-DNO_{name}" for name in without), "-o", str(made), str(SOURCE), "-ldl"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made
