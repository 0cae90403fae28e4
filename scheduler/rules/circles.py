"""Circles in who waits for whom. Standard library only: imported by the fast paths, if rows name one another."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def circles(edges: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Each circle of those that wait for one another, once, beginning and ending with the same. `edges`: child to
    parents."""
    found, done = [], set()  # type: list[list[int]], set[int]
    for start in edges:
        path: list[int] = []
        places: dict[int, int] = {}
        stack = [(start, iter(edges.get(start, ())))] if start not in done else []
        if stack:
            path, places = [start], {start: 0}
        while stack:
            node, parents = stack[-1]
            parent = next(parents, None)
            if parent is None:
                stack.pop()
                path.pop()
                places.pop(node)
                done.add(node)
            elif parent in places:
                found.append([*path[places[parent] :], parent])
            elif parent not in done:
                stack.append((parent, iter(edges.get(parent, ()))))
                places[parent] = len(path)
                path.append(parent)
    return found


def parents_first(ids: Sequence[int], edges: Mapping[int, Sequence[int]]) -> list[int]:
    """These in their order, but each behind those of them that it waits for. A circle is cut where it is met."""
    done: dict[int, None] = {}
    among = set(ids)
    for start in ids:
        stack, met = [start], {start}
        while stack:
            ahead = next((each for each in edges.get(stack[-1], ()) if each in among - met and each not in done), None)
            if ahead is None:
                done[stack.pop()] = None
            else:
                met.add(ahead)
                stack.append(ahead)
    return list(done)
