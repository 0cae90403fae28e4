"""A stop that was asked for, carried to its end: by the keeper's obedience, or by signals when it does not obey."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

from scheduler.clock import monotonic_s
from scheduler.host.workers import tree
from scheduler.host.workers.orders import Stored
from scheduler.host.workers.protocol import TOLD, claim_of
from scheduler.host.workers.records import clear, recorded_exit, worker_words
from scheduler.model.host import UNKNOWN, Gone

if TYPE_CHECKING:
    from scheduler.host.workers.ward import Ward

SLACK_S = 10.0
"""How long a keeper may be silent after a stop's grace before it is killed. One that runs sends its first KILL at the
end of the grace and speaks or leaves within a second or two of it; the rest is for a machine that swaps."""

ORPHANS_GRACE_S = 1.0
"""TERM, TERM, then KILL for what a keeper that is gone left behind."""


class Parting:
    """One ward's end. After `ask` it comes, whatever the keeper does; `bury` is for a keeper that is gone."""

    def __init__(self, ward: Ward) -> None:
        self.ward, self.asked, self.sent, self.foreign = ward, False, False, False
        self.why, self.due, self.word_at, self.number = "", 0.0, 0.0, 0

    def ask(self, grace_s: float, why: str) -> None:
        """Stop the whole tree; asked again, the earlier end counts."""
        due = monotonic_s() + grace_s
        self.due = min(self.due, due) if self.asked else due
        self.asked, self.sent, self.why = True, False, self.why or why
        self.number += 1
        number = self.number
        self.ward.after(grace_s + SLACK_S, lambda: self._watch(number))
        self.tell()

    def tell(self) -> None:
        """Say it to the keeper, once per connection that can be spoken on; one of another protocol gets signals."""
        if not self.asked or self.sent:
            return
        if self.foreign:
            self.sent = True
            tree.signal_all(self._members(), signal.SIGTERM, signal.SIGCONT)
            self.ward.after(max(0.0, self.due - monotonic_s()), self._end)
        elif self.ward.connection.spoke:
            self.sent = True
            self.ward.connection.order(op="stop", grace_s=max(0.0, self.due - monotonic_s()), why=self.why)

    def _watch(self, number: int) -> None:
        """The grace and the slack are over: without a word since, the keeper is ended too."""
        if self.ward.closed or number != self.number:
            return
        left_s = max(self.due, self.word_at) + SLACK_S - monotonic_s()
        self.ward.after(left_s if left_s > 0 else 1.0, lambda: self._watch(number))
        if left_s <= 0:
            self._end()

    def _end(self) -> None:
        """KILL to everyone below the keeper, everyone marked, and the keeper, which is known by its claim."""
        if self.ward.closed:
            return
        keeper = self.keeper()
        if keeper:
            tree.signal_all([*self._members(), keeper], signal.SIGKILL)
        elif not tree.is_held(self.ward.folder):
            self.ward.keeper_ended()

    def _members(self) -> list[tree.Stat]:
        keeper, ward = self.keeper(), self.ward
        found = tree.members(ward.roster.queue_id, ward.id, *(tree.leader_of(ward.folder) or (None, 0.0)))
        return (tree.below(keeper.pid) if keeper else []) + found

    def keeper(self) -> tree.Stat | None:
        """This worker's keeper, if it lives."""
        ward = self.ward
        stat = tree.stat_of(ward.pid) if ward.pid else None
        if stat and stat.state not in "ZX":
            claim = claim_of(tree.argv_of(ward.pid)) or {}
            if ward.child or (claim.get("queue"), claim.get("worker")) == (ward.roster.queue_id, str(ward.id)):
                return stat
        return tree.keeper_of(ward.folder)

    def bury(self, tries: int) -> None:
        """End whoever is left of the tree before anybody hears of it; what goes wrong in that is tried again."""
        try:
            self._end_rest(tries)
        except Exception:
            self.ward.after(1.0, lambda: self.bury(tries + 1))
            raise

    def _begun(self, exit_code: int | None) -> tuple[int, int] | None:
        """Which attempt may have been in work when everything ended: a keeper that ended in order has stored the end of
        each that it began.
        """
        ward = self.ward
        if ward.rebooted:
            return UNKNOWN
        if ward.errand is None:
            return ward.silent
        if exit_code is not None and not os.path.exists(ward.errand[2]):
            return None
        return ward.errand[:2]

    def _end_rest(self, tries: int) -> None:
        ward, roster = self.ward, self.ward.roster
        left = tree.members(roster.queue_id, ward.id, *(tree.leader_of(ward.folder) or (None, 0.0)))
        if left:
            tree.signal_all(left, signal.SIGTERM if tries * 0.1 < ORPHANS_GRACE_S else signal.SIGKILL)
            ward.after(0.1 if tries < 50 else 1.0, lambda: self.bury(tries + 1))
            return
        clear(ward.folder, ward.control, ward.socket_path)
        code, why = recorded_exit(ward.folder)
        gone = Gone(ward.id, code, worker_words(ward.log), ward.why or why, self._begun(code), why == TOLD)
        if ward.errand and os.path.exists(ward.errand[2]):
            roster.emit(Stored(ward.id, *ward.errand, exit_code=code))
        ward.errand = None
        roster.forget(ward)
        roster.emit(gone)


def readable(sock: socket.socket) -> bool:
    """Whether something is there to be read."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
