"""Commands that queue for their room: what one asks for, written as the variant of a provider of its own.

Every command is a job of the slug `exec`, and its variant says all that the rules have to know of it: `v28r2n1t4-f3a`
is 28 GiB on one device, 2 GiB of host memory, 4 threads; `x` after them is exclusive; what follows the hyphen says
who keeps it (`f` a call in its own terminal, `d` the scheduler, `l` a process that only holds the room) and tells it
from every other one, so that no two commands share a worker. Standard library only, and nothing slow of it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.model.provider import Provider

EXEC = "exec"
"""The slug of every command. No manifest may have it."""

MARK = "SCHEDQ_RUN"
"""The variable that a call which a schedule repeats is known by, in its environment: `queue_id:run_id`."""

FOREGROUND, DETACHED, LEASE = "f", "d", "l"

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
PATTERN = r"v([0-9.e+-]+)r([0-9.e+-]+)n(\d+)t(\d+)(x?)-([fdl])([0-9a-z]+)"

GRACE_S = 10.0
"""How long a command that was told to stop may take before it is killed."""

AGAIN_S = 30.0
"""How long a command is not tried again whose caller did not start it: it is stopped, or its machine swaps."""


class Shape:
    """What one command asks for. GiB; `vram_gib` is for each of its `gpus` devices, `kind` who keeps it."""

    __slots__ = ("exclusive", "gpus", "kind", "ram_gib", "threads", "token", "vram_gib")

    def __init__(
        self, vram_gib: float, ram_gib: float, gpus: int, threads: int, exclusive: bool, kind: str, token: str
    ) -> None:
        self.vram_gib, self.ram_gib, self.gpus, self.threads = vram_gib, ram_gib, gpus, threads
        self.exclusive, self.kind, self.token = exclusive, kind, token

    def variant(self) -> str:
        """The variant that says all of it."""
        budgets = f"v{_plain(self.vram_gib)}r{_plain(self.ram_gib)}n{self.gpus}t{self.threads}"
        return f"{budgets}{'x' if self.exclusive else ''}-{self.kind}{self.token}"

    def spec(self) -> dict[str, Any]:
        """The same as a catalog's entry has it, for whoever judges `never` by that."""
        return {
            "slug": EXEC, "variant": "", "policy": "required" if self.gpus else "none", "vram_gib": self.vram_gib,
            "ram_gib": self.ram_gib, "count": max(1, self.gpus), "where": "",
        }  # fmt: skip


def token_of(drawn: bytes) -> str:
    """Some random bytes as a few letters and digits."""
    number, found = int.from_bytes(drawn, "big"), ""
    while number:
        number, digit = divmod(number, len(DIGITS))
        found += DIGITS[digit]
    return found or "0"


def shape_of(variant: str) -> Shape | None:
    """What a command's variant says; None if it is none."""
    import re  # 8 ms that the fast paths have no use for

    found = re.fullmatch(PATTERN, variant)
    if found is None:
        return None
    vram, ram, gpus, threads, exclusive, kind, token = found.groups()
    try:
        return Shape(float(vram), float(ram), int(gpus), int(threads), bool(exclusive), kind, token)
    except ValueError:
        return None


def is_kept_by_caller(slug: str, variant: str) -> bool:
    """Whether it is a command whose keeper its caller starts, in its own session and terminal."""
    shape = shape_of(variant) if slug == EXEC else None
    return shape is not None and shape.kind != DETACHED


def is_lease(slug: str, variant: str) -> bool:
    """Whether it is no command at all, but the room of its caller's own process."""
    shape = shape_of(variant) if slug == EXEC else None
    return shape is not None and shape.kind == LEASE


def provider_of(variant: str) -> Provider | None:
    """A command as the rules see it: one worker that serves one request and ends with it. None for another variant.

    It may be silent for as long as it likes, and is tried once unless its job says otherwise.
    """
    from scheduler.model.provider import Provider

    shape = shape_of(variant)
    if shape is None:
        return None
    return Provider(
        EXEC, variant, mode="oneshot", policy="required" if shape.gpus else "none",
        vram_gib=shape.vram_gib, ram_gib=shape.ram_gib, count=max(1, shape.gpus), threads=shape.threads,
        max_workers=1, request_timeout_s=0.0, idle_timeout_s=0.001, stop_grace_s=GRACE_S, max_attempts=1,
        backoff_s=AGAIN_S, load_s=0.0,
    )  # fmt: skip


def called(slug: str, variant: str) -> str:
    """A provider as people call it: `slug`, or `slug:variant`; what a command's variant says, it says elsewhere."""
    return slug if not variant or slug == EXEC else f"{slug}:{variant}"


def line_alone(slug: str, variant: str, measured: bool) -> tuple[str, str]:
    """Whose the reason is of the jobs of a provider that run alone, or that are measured; no provider is called so.

    A reason is kept by (slug, variant), and what keeps such a job keeps no ordinary one.
    """
    return "", f"{'measured' if measured else 'alone'} {slug}:{variant}"


class Offers(dict[tuple[str, str], "Provider"]):
    """Providers by (slug, variant) to which every command belongs that is asked for, whoever asks."""

    def __missing__(self, key: tuple[str, str]) -> Provider:
        found = provider_of(key[1]) if key[0] == EXEC else None
        if found is None:
            raise KeyError(key)
        return found

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        """The provider, or the command of that variant, or `default`."""
        try:
            return self[key]
        except KeyError:
            return default


def _plain(gib: float) -> str:
    return repr(gib).removesuffix(".0")
