"""Where standby tasks go. Part of the assignor, and pure as it is.

Replicas of a task are never in the process of its active task nor two in one, and in processes with other tags (rack,
zone) as far as there are any (rack.aware.assignment.tags, KIP-708). As many are placed as are wanted and as there are
other processes. They stay where they are; then they move, one at a time, from the busiest process to the idlest, while
that makes loads (active and standby tasks for each thread) more even. A replica that has caught up moves to a process
that has not only within the budget of warm-ups, since its state is given up for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from odradek.streams.records import TaskId


@dataclass(slots=True)
class Host:
    """A process: what it can do, what it is given, and what it has on disk (lag and whether it stands by, by task)."""

    threads: int
    values: tuple[str, ...]
    load: int = 0
    standbys: set[TaskId] = field(default_factory=set)
    states: dict[TaskId, tuple[bool, int]] = field(default_factory=dict)


class StandbyPlan:
    """The replicas of each task with state, by process."""

    def __init__(self, hosts: Mapping[bytes, Host], active: Mapping[TaskId, bytes]) -> None:
        """`hosts` by the name of the process, with what they have; `active` says who runs each task."""
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
        """Give each task that many replicas: first where they are, then wherever there is least to do."""
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
        """Make loads even; what is `pinned` stays. Returns whether more caught-up replicas should move than may."""
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
        """A replica that can go, where to, and what it takes of the budget; and whether one was held back for it."""
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
        """Whether a task that moves makes the sum of load squared by thread smaller; so this comes to an end."""
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
