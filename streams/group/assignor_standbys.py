"""Placement of standby tasks. A pure part of the assignor.

Replicas of a task are never in the process of its active task nor two in one process, and in processes with other tags
(rack, zone) as far as there are any (rack.aware.assignment.tags, KIP-708). Their number is num.standby.replicas, or the
number of other processes if that is less. They stay in their processes; then they move, one at a time, from the most
loaded process to the least loaded, while that makes loads (active and standby tasks for each thread) more even. A
caught-up replica moves to a process that has not caught up only within the budget of warm-ups, since the move gives up
its state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from odradek.streams.records import TaskId


@dataclass(slots=True)
class Host:
    """A process: its threads and tags, its assigned tasks, and its state on disk (lag and whether it is a standby, by
    task).
    """

    threads: int
    values: tuple[str, ...]
    load: int = 0
    standbys: set[TaskId] = field(default_factory=set)
    states: dict[TaskId, tuple[bool, int]] = field(default_factory=dict)


class StandbyPlan:
    """The replicas of each task with state, by process."""

    def __init__(self, hosts: Mapping[bytes, Host], active: Mapping[TaskId, bytes]) -> None:
        """`hosts` by the name of the process, with their state; `active` maps each task to the process that runs it."""
        self._hosts = hosts
        self._active = active
        self._tagged = any(host.values for host in hosts.values())
        self.replicas: dict[TaskId, list[bytes]] = {task: [] for task in sorted(active)}
        self._holders: dict[TaskId, list[tuple[bool, int, bytes]]] = {}
        for process in active.values():
            hosts[process].load += 1
        for name, host in hosts.items():
            for task, (standing_by, lag) in host.states.items():
                if active.get(task, name) != name:
                    self._holders.setdefault(task, []).append((not standing_by, lag, name))

    def place(self, replicas: int) -> None:
        """Place `replicas` replicas of each task: first on processes that have one, then on the least loaded ones."""
        if replicas <= 0:
            return
        for task, standbys in self.replicas.items():
            for _, _, name in sorted(self._holders.get(task, ())):
                if len(standbys) < replicas and self._as_far_away_as_any(task, name):
                    self._put(task, name)
        for task, standbys in self.replicas.items():
            while len(standbys) < replicas:
                self._put(task, self._best(task))

    def balance(self, budget: int, acceptable_lag: int, pinned: Collection[tuple[TaskId, bytes]]) -> bool:
        """Make loads even; `pinned` replicas stay. Returns whether the budget prevented moves of caught-up replicas."""
        held_back = False
        while True:
            move = None
            by_load = sorted(self._hosts, key=lambda name: (self._hosts[name].load / self._hosts[name].threads, name))
            for busy in reversed(by_load):
                if not self._evens_out(busy, by_load[0]):
                    break
                found, held = self._way_out(busy, by_load, budget, acceptable_lag, pinned)
                held_back = held_back or held
                if found is not None:
                    move = found
                    break
            if move is None:
                return held_back
            task, idle, cost = move
            budget -= cost
            self._take_away(task, busy)
            self._put(task, idle)

    def _way_out(
        self,
        busy: bytes,
        by_load: Iterable[bytes],
        budget: int,
        acceptable_lag: int,
        pinned: Collection[tuple[TaskId, bytes]],
    ) -> tuple[tuple[TaskId, bytes, int] | None, bool]:
        """A replica that can move, its target, and its cost in the budget; and whether the budget prevented another
        one.
        """
        held_back = False
        host = self._hosts[busy]
        tasks = [task for task in sorted(host.standbys) if (task, busy) not in pinned]
        for idle in by_load:
            if not self._evens_out(busy, idle):
                break
            for task in tasks:
                if idle == self._active[task] or idle in self.replicas[task]:
                    continue
                if self._tagged and self._nearness(task, idle, busy) > self._nearness(task, busy, busy):
                    continue
                ready_here = host.states.get(task, (False, acceptable_lag + 1))[1] <= acceptable_lag
                ready_there = self._hosts[idle].states.get(task, (False, acceptable_lag + 1))[1] <= acceptable_lag
                cost = int(ready_here and not ready_there)
                if cost <= budget:
                    return (task, idle, cost), held_back
                held_back = True
        return None, held_back

    def _evens_out(self, busy: bytes, idle: bytes) -> bool:
        """Whether moving a task makes the sum of load squared by thread smaller; so the loop terminates."""
        there, here = self._hosts[idle], self._hosts[busy]
        return (2 * there.load + 1) * here.threads < (2 * here.load - 1) * there.threads

    def _best(self, task: TaskId) -> bytes:
        taken = {self._active[task], *self.replicas[task]}
        hosts = self._hosts
        if not self._tagged:
            free = ((host.load / host.threads, name) for name, host in hosts.items() if name not in taken)
            return min(free)[1]
        return min(
            (self._nearness(task, name), host.load / host.threads, name)
            for name, host in hosts.items()
            if name not in taken
        )[2]

    def _as_far_away_as_any(self, task: TaskId, name: bytes) -> bool:
        if not self._tagged:
            return True
        taken = {self._active[task], *self.replicas[task]}
        least = min(self._nearness(task, other) for other in self._hosts if other not in taken)
        return self._nearness(task, name) <= least

    def _nearness(self, task: TaskId, name: bytes, without: bytes | None = None) -> int:
        """How many tags the process shares with the other copies of a task, but for the replica in `without`."""
        values = self._hosts[name].values
        near = 0
        for copy in (self._active[task], *self.replicas[task]):
            if copy != without:
                near += sum(map(str.__eq__, values, self._hosts[copy].values))
        return near

    def _put(self, task: TaskId, name: bytes) -> None:
        self.replicas[task].append(name)
        host = self._hosts[name]
        host.standbys.add(task)
        host.load += 1

    def _take_away(self, task: TaskId, name: bytes) -> None:
        self.replicas[task].remove(name)
        host = self._hosts[name]
        host.standbys.remove(task)
        host.load -= 1
