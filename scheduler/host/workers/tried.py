"""The keeper of a worker that somebody tries in the foreground: it ends with whoever tries it, and leaves nothing.

Its claim stands in argv as every keeper's does, so that all schedulers of the machine count what it declares. The queue
that it names is none: `try-` and the end of its folder's name. Standard library only and light, like all of a keeper.
"""

from __future__ import annotations

import os

from scheduler.host.workers.keeping import Keeper

QUEUE, FOLDER = "try-", "schedq-try-"
"""How the claim of such a keeper, and its folder, begin."""

DESERTED = "who tried it has gone"


class TriedKeeper(Keeper):
    """As every keeper, but that nobody ever adopts its worker."""

    def emptied(self) -> None:
        """Nobody is connected: who tried it was killed, and the worker goes too."""
        super().emptied()
        if self.state != "parked":
            self.stop(float(self.order.get("stop_grace_s", 10.0)), DESERTED)

    def leave(self) -> None:
        """Where nobody is left who would do it, the folder is taken away with all that is in it."""
        if not self.door.peers and os.path.basename(self.home).startswith(FOLDER):
            self.tried(self.clear)
        super().leave()

    def clear(self) -> None:
        """Remove everything that there was of it."""
        import shutil

        shutil.rmtree(self.home, ignore_errors=True)
