"""Distributes the tasks of each process over its threads. A pure part of the assignors.

Every thread is within one task of every other thread of its process, with as few moves as these shares allow.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.streams.group.assignor_shares import Bin, share_out
from odradek.streams.records import TaskId


@dataclass(frozen=True, slots=True)
class Thread:
    """A stream thread before the assignment.

    `lags`: how many records its process is behind, for each task whose state it has: 0 for a task that it runs. Threads
    of one process may each report a part, and the least lag counts.
    """

    process: bytes
    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def threads_by_process(threads: Mapping[str, Thread]) -> dict[bytes, list[str]]:
    """The threads of each process, both sorted."""
    found: dict[bytes, list[str]] = {}
    for name in sorted(threads):
        found.setdefault(threads[name].process, []).append(name)
    return dict(sorted(found.items()))


def place_on_threads(
    active: Mapping[bytes, Collection[TaskId]],
    standby: Mapping[bytes, Collection[TaskId]],
    stateful: Container[TaskId],
    threads: Mapping[str, Thread],
) -> tuple[dict[str, list[TaskId]], dict[str, list[TaskId]]]:
    """The active and the standby tasks of each thread, from those of each process. Every process has a thread."""
    running: dict[str, list[TaskId]] = {}
    members = threads_by_process(threads)
    for process, own in members.items():
        tasks = active.get(process, ())
        owners = {task: process for task in tasks if task in stateful}
        stateless = [task for task in tasks if task not in stateful]
        running.update(active_to_threads(owners, stateless, threads, {process: own}))
    replicas: dict[TaskId, list[bytes]] = {}
    for process, tasks in standby.items():
        for task in tasks:
            replicas.setdefault(task, []).append(process)
    return running, standbys_to_threads(replicas, threads, members)


def active_to_threads(
    owners: Mapping[TaskId, bytes],
    stateless: Collection[TaskId],
    threads: Mapping[str, Thread],
    members: Mapping[bytes, Sequence[str]],
) -> dict[str, list[TaskId]]:
    """The active tasks of each thread of `members`, which are the threads of each process, sorted.

    `owners` are the processes of the tasks with state; the others go to any thread.
    """
    before = {task: name for name in sorted(threads, reverse=True) for task in threads[name].active}
    active: dict[str, list[TaskId]] = {name: [] for name in sorted(name for own in members.values() for name in own)}
    of_process: dict[bytes, list[TaskId]] = {name: [] for name in members}
    for task in sorted(owners):
        of_process[owners[task]].append(task)
    for name, own in members.items():
        least, extras = divmod(len(of_process[name]), len(own))
        bins = {thread: Bin(base=least, room=1) for thread in own}
        for task, thread in share_out(of_process[name], before, bins, extras).items():
            active[thread].append(task)
    level = _level([len(tasks) for tasks in active.values()], len(stateless))
    bins = {name: Bin(base=max(0, level - len(tasks)), room=int(len(tasks) <= level)) for name, tasks in active.items()}
    extras = len(stateless) - sum(share.base for share in bins.values())
    for task, thread in share_out(sorted(stateless), before, bins, extras).items():
        active[thread].append(task)
    return {name: sorted(tasks) for name, tasks in active.items()}


def _level(loads: Collection[int], count: int) -> int:
    """The level to which `count` tasks fill the threads with the least loads evenly."""
    low, high = min(loads), min(loads) + count
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(0, middle - load) for load in loads) <= count:
            low = middle
        else:
            high = middle - 1
    return low


def standbys_to_threads(
    replicas: Mapping[TaskId, Iterable[bytes]],
    threads: Mapping[str, Thread],
    members: Mapping[bytes, Sequence[str]],
) -> dict[str, list[TaskId]]:
    """The standby tasks of each thread: on the thread that had them, else evenly."""
    before: dict[tuple[TaskId, bytes], str] = {}
    for name in sorted(threads, reverse=True):
        for task in threads[name].standby | threads[name].active:
            before[task, threads[name].process] = name
    of_process: dict[bytes, list[TaskId]] = {name: [] for name in members}
    for task in sorted(replicas):
        for process in replicas[task]:
            of_process[process].append(task)
    standby: dict[str, list[TaskId]] = {name: [] for name in sorted(threads)}
    for process, tasks in of_process.items():
        least, extras = divmod(len(tasks), len(members[process]))
        owners = {task: before[task, process] for task in tasks if (task, process) in before}
        bins = {name: Bin(base=least, room=1) for name in members[process]}
        for task, thread in share_out(tasks, owners, bins, extras).items():
            standby[thread].append(task)
    return {name: sorted(tasks) for name, tasks in standby.items()}
