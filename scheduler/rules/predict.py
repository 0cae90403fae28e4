"""When each provider's waiting jobs are expected to be sent: what `status` and `schedq plan` show."""

from __future__ import annotations

import math
from dataclasses import replace

from scheduler.model.command import EXEC
from scheduler.model.plan import Predict, Snapshot, Waiting, WorkerView
from scheduler.rules.desk import Desk
from scheduler.rules.forecast import Group, Leaving, Rooms, place_in, unfold
from scheduler.rules.order import Key


def predict(snapshot: Snapshot) -> list[Predict]:
    """One forecast for each provider whose jobs wait for room or for their worker, in the order of the line.

    A provider that nothing can start now (paused, broken, not installed, refused by others than ours) has none. One
    that fits by its charges and is refused by a reading all the same is taken to start when all that works now is done:
    until then nobody can tell, and if nothing works, nothing is said. Nor is anything said of what stands behind a load
    or a run that was never seen here, or behind a command: how long that takes is not known.
    """
    desk = Desk(snapshot)
    rooms = desk.rooms()
    leaving = [each if each.known else replace(each, left_s=math.inf) for _, each in desk.running_dry(rooms)]
    groups, refused = [], []
    for waiting in desk.eligible:
        key = (waiting.slug, waiting.variant)
        if key in desk.making:
            group = _group(desk, waiting, rooms)
            leaving.append(Leaving(group.lasts_s, group.places[0] if group.places else ()))
        elif desk.absent(waiting):
            group = _group(desk, waiting, rooms)
            if place_in(rooms.free, group.places) is not None and desk.refused_by_reading(waiting):
                refused.append(group)
            else:
                groups.append(group)
    rank = {key: n for n, key in enumerate(desk.order)}
    groups.sort(key=lambda group: (rank.get(group.key, len(rank)), *group.first))
    head = desk.head
    future = unfold(
        rooms.free,
        leaving,
        groups,
        (head.slug, head.variant) if head is not None and desk.absent(head) else None,
        desk.closes_in_s(head) if head is not None else 0.0,
    )
    starts_s = dict(future.starts_s)
    if leaving:
        starts_s |= dict.fromkeys((group.key for group in refused), max(each.left_s for each in leaving))
    found = []
    for waiting in desk.eligible:
        key = (waiting.slug, waiting.variant)
        workers = desk.present(waiting)
        load_s, run_s = _load_s(desk, key), _run_s(desk, key)
        if workers:
            rests = [_rest_s(desk, worker) for worker in workers]
            found.append(Predict(*key, min(rests), run_s, sum(map(math.isfinite, rests))))
        elif key in desk.started:
            found.append(Predict(*key, load_s + run_s, run_s, 1))
        elif key in desk.making:
            found.append(Predict(*key, load_s, run_s, 1))
        elif key in starts_s:
            found.append(Predict(*key, starts_s[key] + load_s, run_s, 1))
    return [each for each in found if math.isfinite(each.starts_in_s)]


def _load_s(desk: Desk, key: Key) -> float:
    if key[0] == EXEC:
        return 0.0
    return desk.expected.load_s(key) if desk.expected.knows_load(key) else math.inf


def _run_s(desk: Desk, key: Key) -> float:
    return desk.expected.run_s(key) if desk.expected.knows_run(key) else math.inf


def _rest_s(desk: Desk, worker: WorkerView) -> float:
    known = desk.expected.knows_rest(worker, works=worker.id in desk.sent)
    return desk.rest_s(worker) if known else math.inf


def _group(desk: Desk, waiting: Waiting, rooms: Rooms) -> Group:
    """A provider's waiting jobs; what was never seen of them takes without end."""
    group, key = desk.group(waiting, rooms), (waiting.slug, waiting.variant)
    return replace(group, load_s=_load_s(desk, key), work_s=waiting.count * _run_s(desk, key))
