"""A provider as the rules see it: figures only, one per (slug, variant)."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.command import called


@dataclass(frozen=True)
class Learned:
    """The most that runs of one size were seen to use of each part, GiB; `runs` were measured, 0 = too few to count."""

    device_gib: float = 0.0
    host_gib: float = 0.0
    runs: int = 0


NOTHING = Learned()


@dataclass(frozen=True)
class Provider:
    """What starting and running one (slug, variant) costs, and how patient to be with it.

    Budgets are GiB, measured; `vram_gib` None = undeclared. Times are seconds; `idle_timeout_s` 0 = never retire.
    `max_workers` 0 = as many as the machine has devices for (rules.placement.most_workers).
    `environment` is the hash of the environment that it runs in, "" for one that we did not build. `load_s` and `run_s`
    are learned means, None while unknown; `served` is how many requests it answered so far.
    """

    slug: str
    variant: str = ""
    revision: str = ""
    environment: str = ""
    mode: str = "resident"
    policy: str = "none"
    vram_gib: float | None = 0.0
    ram_gib: float = 0.0
    count: int = 1
    threads: int = 1
    max_workers: int = 1
    start_timeout_s: float = 900.0
    request_timeout_s: float = 3600.0
    idle_timeout_s: float = 600.0
    stop_grace_s: float = 30.0
    later_for_s: float = 43200.0
    max_attempts: int = 2
    retry_outcomes: tuple[str, ...] = ("crashed", "no_reply", "lost")
    backoff_s: float = 10.0
    installed: bool = True
    not_installed_text: str = ""
    load_s: float | None = None
    run_s: float | None = None
    served: int = 0

    @property
    def name(self) -> str:
        """`slug`, or `slug:variant`."""
        return called(self.slug, self.variant)
