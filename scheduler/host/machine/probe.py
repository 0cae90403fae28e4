"""A reading that may hang: asked on a thread of its own, waited for until a deadline, then a failed reading."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

WITHIN_S = 2.0


class Probe(Generic[T]):
    """One source that is read again and again. While it hangs it is not asked a second time, and fails at once.

    `answer` is the last ask's value, `missing` says why there is none.
    """

    def __init__(self, name: str, within_s: float = WITHIN_S) -> None:
        self.name, self.within_s = name, within_s
        self.missing = ""
        self._running: threading.Thread | None = None

    def ask(self, read: Callable[[], T]) -> T | None:
        """What `read` answers within the deadline; None, with `missing` set, if it hangs or raises."""
        if self._running is not None and self._running.is_alive():
            self.missing = f"{self.name} did not answer in {self.within_s:g} s and still hangs"
            return None
        box: list[T] = []
        failed: list[str] = []

        def attempt() -> None:
            try:
                box.append(read())
            except Exception as error:  # a broken source is a failed reading, never the end of the scheduler
                failed.append(f"{self.name}: {type(error).__name__}: {error}")

        self._running = threading.Thread(target=attempt, name=f"schedq-probe-{self.name}", daemon=True)
        self._running.start()
        self._running.join(self.within_s)
        if box:
            self.missing = ""
            return box[0]
        self.missing = failed[0] if failed else f"{self.name} did not answer in {self.within_s:g} s"
        return None
