"""Task assignor: which thread runs which task and which processes hold standbys (Kafka: HighAvailabilityTaskAssignor).

It is pure: no I/O, the same output for the same input. The model is Kafka's HighAvailabilityTaskAssignor (KIP-441) with
the stickiness of its StickyTaskAssignor. Four steps:

1. Active tasks with state go to processes: state is in a process's directory, and its threads share it. Each process
   gets its share, for each thread the floor or the ceiling of tasks/threads; an owner keeps a task unless the task
   exceeds its share. No assignment with these shares moves fewer tasks: each owner keeps min(what it has, its share),
   and the ceilings go first to owners that keep one more task for it. A task without an owner, or that has to move,
   goes to the process whose state is least behind.
2. Standby tasks: num.standby.replicas of them, or as many as there are other processes. A replica stays in its process;
   new ones go to processes whose tags (rack, zone) differ from those of the task's other copies, then to the least
   loaded processes; finally replicas move from the most loaded to the least loaded process.
3. Where step 1 assigns a task to a process that is behind while another is not, the other process runs it for now, and
   the first gets it as a warm-up standby (at most max.warmup.replicas at once). Then `probing` is true: the leader
   assigns again after probing.rebalance.interval.ms. A process that is restoring a task counts with its current
   position, so a rebalance during a restoration does not move the task, unless another process has caught up already,
   or is ahead by more than acceptable.recovery.lag.
4. The tasks of a process go to its threads, and tasks without state fill up (`assignor_threads.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.streams.group.assignor_shares import Bin, share_out
from odradek.streams.group.assignor_standbys import Host, StandbyPlan
from odradek.streams.group.assignor_threads import Thread, active_to_threads, standbys_to_threads
from odradek.streams.records import TaskId


@dataclass(frozen=True, slots=True)
class AssignmentConfig:
    """num.standby.replicas, acceptable.recovery.lag (records), max.warmup.replicas, rack.aware.assignment.tags."""

    num_standby_replicas: int = 0
    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    rack_aware_assignment_tags: tuple[str, ...] = ()


class Placement(NamedTuple):
    """The assignment, by thread. `probing`: it is not final; the leader assigns again after the probing interval."""

    active: dict[str, list[TaskId]]
    standby: dict[str, list[TaskId]]
    probing: bool


@dataclass(slots=True)
class Process:
    """A process with all its threads."""

    name: bytes
    threads: list[str]
    tags: Mapping[str, str]
    lags: dict[TaskId, int]
    active: set[TaskId]
    standby: set[TaskId]


def assign(
    stateful: Mapping[TaskId, int],
    stateless: Collection[TaskId],
    threads: Mapping[str, Thread],
    config: AssignmentConfig,
) -> Placement:
    """Assign every task.

    `stateful` has the size of each task's state, in records of its changelogs (the lag of a process without state),
    `stateless` the tasks without. `threads` are the members by name. Raises ValueError when there is none.
    """
    if not threads:
        raise ValueError("there is no thread to assign tasks to")
    processes = _processes(threads, stateful)
    wanted = _place_active(stateful, processes, config)
    plan = StandbyPlan(_hosts(processes, config), wanted)
    plan.place(min(config.num_standby_replicas, len(processes) - 1))
    better = _better_for_now(wanted, stateful, processes, config)
    warm_ups = sum(1 for task, holder in better.items() if holder not in plan.replicas[task])
    left = max(0, config.max_warmup_replicas - warm_ups)
    held_back = plan.balance(left, config.acceptable_recovery_lag, better.items())
    _let_them_run(wanted, better, plan.replicas, config.max_warmup_replicas)
    members = {name: process.threads for name, process in processes.items()}
    active = active_to_threads(wanted, stateless, threads, members)
    standby = standbys_to_threads(plan.replicas, threads, members)
    return Placement(active, standby, probing=bool(better) or held_back)


def _processes(threads: Mapping[str, Thread], stateful: Mapping[TaskId, int]) -> dict[bytes, Process]:
    found: dict[bytes, Process] = {}
    for name in sorted(threads):
        thread = threads[name]
        process = found.get(thread.process)
        if process is None:
            process = found[thread.process] = Process(thread.process, [], thread.tags, {}, set(), set())
        process.threads.append(name)
        process.active.update(thread.active & stateful.keys())
        process.standby.update(thread.standby & stateful.keys())
        for task, lag in thread.lags.items():
            if task in stateful:
                process.lags[task] = min(lag, process.lags.get(task, lag))
    return dict(sorted(found.items()))


def _hosts(processes: Mapping[bytes, Process], config: AssignmentConfig) -> dict[bytes, Host]:
    return {
        name: Host(
            len(process.threads),
            tuple(process.tags.get(tag, "") for tag in config.rack_aware_assignment_tags),
            states={task: (task in process.standby, lag) for task, lag in process.lags.items()},
        )
        for name, process in processes.items()
    }


def _place_active(
    stateful: Mapping[TaskId, int], processes: Mapping[bytes, Process], config: AssignmentConfig
) -> dict[TaskId, bytes]:
    """Step 1: the process that should run each task with state."""
    least, extras = divmod(len(stateful), sum(len(process.threads) for process in processes.values()))
    bins = {
        name: Bin(base=least * len(process.threads), room=len(process.threads)) for name, process in processes.items()
    }
    ranks: dict[TaskId, list[tuple[tuple[int, int, int], bytes]]] = {}
    owners: dict[TaskId, tuple[int, bytes]] = {}
    acceptable = config.acceptable_recovery_lag
    for name, process in processes.items():
        for task, lag in process.lags.items():
            standing_by = 0 if task in process.standby else 1
            ranks.setdefault(task, []).append(((0 if lag <= acceptable else lag, standing_by, lag), name))
        for task in process.active:
            claim = (process.lags.get(task, stateful[task]), name)
            owners[task] = min(
                claim, owners.get(task, claim)
            )  # two processes claim it after a split: the one with the smaller lag wins
    return share_out(
        sorted(stateful),
        {task: name for task, (_, name) in owners.items()},
        bins,
        extras,
        ranks,
        {task: lag for task, (lag, _) in owners.items()},
    )


def _better_for_now(
    wanted: Mapping[TaskId, bytes],
    stateful: Mapping[TaskId, int],
    processes: Mapping[bytes, Process],
    config: AssignmentConfig,
) -> dict[TaskId, bytes]:
    """The processes that should run a task for now, where its assigned process is behind."""
    acceptable = config.acceptable_recovery_lag
    holders: dict[TaskId, tuple[int, bool, bytes]] = {}
    for name, process in processes.items():
        for task, lag in process.lags.items():
            candidate = (lag, task not in process.active, name)
            holders[task] = min(candidate, holders.get(task, candidate))
    better: dict[TaskId, bytes] = {}
    for task in sorted(holders):
        best, _, holder = holders[task]
        lag = processes[wanted[task]].lags.get(task, stateful[task])
        if lag > acceptable and best < lag and (best <= acceptable or best + acceptable < lag):
            better[task] = holder
    return better


def _let_them_run(
    wanted: dict[TaskId, bytes], better: Mapping[TaskId, bytes], replicas: Mapping[TaskId, list[bytes]], warm_ups: int
) -> None:
    """Step 3: let caught-up processes run tasks for now. Changes `wanted` and `replicas`."""
    for task, holder in better.items():
        behind, wanted[task] = wanted[task], holder
        if holder in replicas[task]:
            replicas[task].remove(holder)
            replicas[task].append(behind)
        elif warm_ups > 0:
            warm_ups -= 1
            replicas[task].append(behind)
