"""What is done in the world once its marks in the queue are committed, and what becomes of one that goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

log = logging.getLogger("schedq")


@dataclass(frozen=True)
class Deed:
    """What is done in the world for one worker once its marks are committed. `ends`: it has to be, however late."""

    worker_id: int
    do: Callable[[], None]
    ends: bool = False


def shows(charge: Callable[[int, dict[str, float]], None], lowered: Mapping[int, dict[str, float]]) -> list[Deed]:
    """The deeds that show to everybody what workers are charged whose charge was taken back; GiB by pool."""
    return [Deed(worker_id, partial(charge, worker_id, charges)) for worker_id, charges in lowered.items()]


def tried(what: str, act: Callable[[], None]) -> str:
    """Do it, whatever comes of it: "", or what went wrong, in words that are also logged."""
    try:
        act()
    except Exception as error:
        log.exception("%s could not be given", what)
        return f"{type(error).__name__}: {error}"
    return ""
