"""Distributes tasks over bins of given sizes, with as few moves as the sizes allow. A pure part of the assignor.

A bin takes its base, and up to `room` more out of a common pool of extras; this expresses "each thread gets the floor
or the ceiling" for processes with any number of threads. Every owner keeps min(what it has, what it may take), and the
extras go first to owners that keep one more task for each: no way to fill these bins moves fewer tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from odradek.streams.records import TaskId

Name = TypeVar("Name", str, bytes)


class Bin(NamedTuple):
    """The base of a bin, and the most extras that it takes."""

    base: int
    room: int


Rank = tuple[int, int, int]
"""The rank of a bin for a task; the least is the best."""
Ranks = Mapping[TaskId, Sequence[tuple[Rank, Name]]]
"""Bins with a good rank for a task. All others are worse, and equal to each other."""


def share_out(
    tasks: Sequence[TaskId],
    owners: Mapping[TaskId, Name],
    bins: Mapping[Name, Bin],
    extras: int,
    ranks: Ranks[Name] | None = None,
    costs: Mapping[TaskId, int] | None = None,
) -> dict[TaskId, Name]:
    """Put each of `tasks` (sorted) into a bin. The bases and the extras together are as many as the tasks.

    `owners` are the present owners of tasks. `costs` is the owner's remaining work for a task: where some have to move,
    those with the highest cost move first.
    """
    filling = _Filling(tasks, owners, bins, extras)
    filling.move_to_good_places(ranks or {})
    filling.spread(costs or {})
    return {task: name for name, kept in filling.owned.items() for task in kept}


class _Filling(Generic[Name]):
    """The bins while they are filled."""

    def __init__(
        self, tasks: Sequence[TaskId], owners: Mapping[TaskId, Name], bins: Mapping[Name, Bin], extras: int
    ) -> None:
        self.owned: dict[Name, list[TaskId]] = {name: [] for name in sorted(bins)}
        self._owners: Mapping[TaskId, Name] = owners
        self._homeless: list[TaskId] = []
        for task in tasks:
            owner = owners.get(task)
            if owner is not None and owner in self.owned:
                self.owned[owner].append(task)
            else:
                self._homeless.append(task)
        self._most: dict[Name, int] = {name: sum(bins[name]) for name in self.owned}
        self._limits: dict[Name, int] = {}
        self._surplus: dict[Name, int] = {}
        for name, kept in self.owned.items():
            base, room = bins[name]
            more = max(0, min(len(kept) - base, room, extras))
            self._limits[name] = base + more
            extras -= more
            if len(kept) > base + more:
                self._surplus[name] = len(kept) - base - more
        self._extras = extras

    def move_to_good_places(self, ranks: Ranks[Name]) -> None:
        """Move tasks that have no bin, or may have to leave theirs, to the best bins while there is room."""
        waiting = set(self._homeless)
        leaving: dict[TaskId, Name] = {task: name for name in self._surplus for task in self.owned[name]}
        # A bin with a surplus is full, so no task moves into its own bin.
        moves = sorted((rank, task, name) for task in (*self._homeless, *leaving) for rank, name in ranks.get(task, ()))
        for _, task, name in moves:
            if not self._open(name):
                continue
            if task in waiting:
                waiting.remove(task)
            elif self._surplus.get(leaving.get(task, name), 0) > 0:
                owner = leaving.pop(task)
                self._surplus[owner] -= 1
                self.owned[owner].remove(task)
            else:
                continue
            self._put(name, task)
        self._homeless = sorted(waiting)

    def spread(self, costs: Mapping[TaskId, int]) -> None:
        """Move surplus tasks to the emptiest bins: up to the limits, then the extras."""
        for name, count in self._surplus.items():
            # Partitions before sub-topologies, so that the moved tasks belong to all sub-topologies.
            kept = [task for task in self.owned[name] if self._owners.get(task) == name]
            for task in sorted(kept, key=lambda task: (-costs.get(task, 0), task[1], task[0]))[:count]:
                self.owned[name].remove(task)
                self._homeless.append(task)
        waiting = sorted(self._homeless, reverse=True)
        for room in (self._free, self._open):
            heap = [(self._fullness(name), name) for name in self.owned if room(name)]
            heapq.heapify(heap)
            while heap and waiting:
                _, name = heapq.heappop(heap)
                self._put(name, waiting.pop())
                if room(name):
                    heapq.heappush(heap, (self._fullness(name), name))

    def _free(self, name: Name) -> bool:
        return len(self.owned[name]) < self._limits[name]

    def _open(self, name: Name) -> bool:
        return self._free(name) or (self._extras > 0 and len(self.owned[name]) < self._most[name])

    def _put(self, name: Name, task: TaskId) -> None:
        if not self._free(name):
            self._limits[name] += 1
            self._extras -= 1
        self.owned[name].append(task)

    def _fullness(self, name: Name) -> float:
        return len(self.owned[name]) / max(1, self._most[name])
