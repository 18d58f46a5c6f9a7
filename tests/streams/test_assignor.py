"""The assignor: properties of every assignment, over histories of clusters that hypothesis draws."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.group.assignor import AssignmentConfig, Placement, assign
from odradek.streams.group.assignor_standbys import Host, StandbyPlan
from odradek.streams.group.assignor_threads import Thread
from odradek.streams.records import TaskId

SIZE = 1_000_000
"""Records in the changelog of a task: far more than acceptable.recovery.lag."""


@dataclass
class Cluster:
    """Processes with their directories: the tasks and the state of each, through any number of rebalances."""

    stateful: dict[TaskId, int]
    stateless: list[TaskId]
    config: AssignmentConfig
    threads: dict[str, Thread] = field(default_factory=dict)
    disks: dict[bytes, dict[TaskId, int]] = field(default_factory=dict)
    last: Placement | None = None

    def start(self, process: bytes, threads: int, tags: dict[str, str] | None = None) -> None:
        self.disks.setdefault(process, {})
        for number in range(threads):
            self.threads[f"{process.decode()}-{number}"] = Thread(process, tags=tags or {})

    def stop(self, process: bytes, *, wipe: bool = False) -> None:
        self.threads = {name: thread for name, thread in self.threads.items() if thread.process != process}
        if wipe:
            self.disks[process] = {}

    def rebalance(self) -> Placement:
        members = {
            name: replace(thread, lags=dict(self.disks[thread.process])) for name, thread in self.threads.items()
        }
        placement = assign(self.stateful, self.stateless, members, self.config)
        again = assign(
            dict(reversed(self.stateful.items())), self.stateless[::-1], dict(reversed(members.items())), self.config
        )
        assert again == placement
        self.check(placement)
        for name, thread in self.threads.items():
            self.threads[name] = replace(
                thread, active=frozenset(placement.active[name]), standby=frozenset(placement.standby[name])
            )
        self.last = placement
        return placement

    def restore(self, share: float = 1.0) -> None:
        """The restoration of running and standby tasks proceeds; to the end of the changelog by default."""
        for thread in self.threads.values():
            disk = self.disks[thread.process]
            for task in (thread.active | thread.standby) & self.stateful.keys():
                disk[task] = int(disk.get(task, self.stateful[task]) * (1 - share))

    def settle(self) -> Placement:
        """Probing rebalances until none is needed."""
        for _ in range(3 * len(self.stateful) * (1 + self.config.num_standby_replicas) + 3):
            placement = self.rebalance()
            if not placement.probing:
                return placement
            self.restore()
        raise AssertionError("probing rebalances do not end")

    def process_of(self, by_thread: dict[str, list[TaskId]]) -> dict[TaskId, list[bytes]]:
        found: dict[TaskId, list[bytes]] = {}
        for name, tasks in by_thread.items():
            for task in tasks:
                found.setdefault(task, []).append(self.threads[name].process)
        return found

    def check(self, placement: Placement) -> None:
        """The properties of every placement."""
        everything = {*self.stateful, *self.stateless}
        running = Counter(task for tasks in placement.active.values() for task in tasks)
        assert running == Counter(everything), "every task runs exactly once"
        assert placement.active.keys() == placement.standby.keys() == self.threads.keys()
        active = self.process_of(placement.active)
        standby = self.process_of(placement.standby)
        assert standby.keys() <= self.stateful.keys()
        others = len({thread.process for thread in self.threads.values()}) - 1
        wanted = min(self.config.num_standby_replicas, others)
        warm_ups = 0
        for task in self.stateful:
            copies = [*active[task], *standby.get(task, [])]
            assert len(set(copies)) == len(copies), "one copy a process"
            assert wanted <= len(copies) - 1 <= wanted + 1
            warm_ups += len(copies) - 1 - wanted
        assert warm_ups <= self.config.max_warmup_replicas
        assert warm_ups == 0 or placement.probing
        if not placement.probing:
            loads = [len(tasks) for tasks in placement.active.values()]
            assert max(loads) - min(loads) <= 1
            state = [len(self.stateful.keys() & tasks) for tasks in placement.active.values()]
            assert max(state) - min(state) <= 1

    def necessary_moves(self) -> int:
        """The least number of tasks with state that must change their process so that every thread has its share.

        Each process gets `least` for each thread and some of the extras, at most one for each thread; the result
        depends only on how many of its own each process can keep, over every way to distribute the extras.
        """
        sizes = Counter(thread.process for thread in self.threads.values())
        least, extras = divmod(len(self.stateful), len(self.threads))
        kept = {0: 0}  # extras distributed so far -> the most that is kept
        for process, size in sizes.items():
            own = len({t for n, t in self._owned() if n == process})
            best: dict[int, int] = {}
            for used, count in kept.items():
                for more in range(min(size, extras - used) + 1):
                    value = count + min(own, least * size + more)
                    best[used + more] = max(best.get(used + more, -1), value)
            kept = best
        owned = {task for _, task in self._owned()}
        return len(owned) - kept[extras]

    def _owned(self) -> list[tuple[bytes, TaskId]]:
        return [(t.process, task) for t in self.threads.values() for task in t.active if task in self.stateful]


def tasks(subtopology: int, count: int) -> list[TaskId]:
    return [TaskId(subtopology, partition) for partition in range(count)]


def cluster_of(
    stateful: int, stateless: int = 0, standbys: int = 0, *, processes: int = 0, threads: int = 1, warm_ups: int = 2
) -> Cluster:
    config = AssignmentConfig(num_standby_replicas=standbys, max_warmup_replicas=warm_ups)
    made = Cluster(dict.fromkeys(tasks(0, stateful), SIZE), tasks(1, stateless), config)
    for number in range(processes):
        made.start(b"p%d" % number, threads)
    return made


def moved(before: Placement, after: Placement, cluster: Cluster) -> int:
    was = {task: name.rpartition("-")[0] for name, own in before.active.items() for task in own}
    now = {task: name.rpartition("-")[0] for name, own in after.active.items() for task in own}
    return sum(1 for task in cluster.stateful if was[task] != now[task])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("stop"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("restore"), st.sampled_from([0.3, 0.999, 1.0]), st.just(0)),
    ),
    max_size=8,
)


@settings(max_examples=150)
@given(
    stateful=st.integers(0, 14),
    stateless=st.integers(0, 9),
    standbys=st.integers(0, 2),
    warm_ups=st.integers(1, 3),
    racks=st.booleans(),
    steps=STEPS,
)
def test_any_history_keeps_every_rule(
    stateful: int, stateless: int, standbys: int, warm_ups: int, racks: bool, steps: list[tuple[str, float, int]]
) -> None:
    cluster = cluster_of(stateful, stateless, standbys, processes=1, threads=2, warm_ups=warm_ups)
    if racks:
        cluster.config = replace(cluster.config, rack_aware_assignment_tags=("rack",))
    cluster.rebalance()
    for what, which, how in steps:
        name = b"p%d" % int(which)
        running = {thread.process for thread in cluster.threads.values()}
        if what == "start" and name not in running:
            cluster.start(name, how, {"rack": str(int(which) % 2)})
        elif what == "stop" and name in running and len(running) > 1:
            cluster.stop(name, wipe=bool(how))
        elif what == "restore":
            cluster.restore(which)
        cluster.rebalance()
    placement = cluster.settle()
    cluster.restore()
    assert cluster.rebalance() == placement, "no task moves without a change"


@settings(max_examples=100)
@given(
    stateful=st.integers(1, 30),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    gone=st.integers(0, 4),
    come=st.lists(st.integers(1, 3), max_size=3),
)
def test_no_more_moves_than_necessary(stateful: int, sizes: list[int], gone: int, come: list[int]) -> None:
    """With all state everywhere, every task can move as the shares require: the moves are the bound."""
    cluster = cluster_of(stateful)
    for number, size in enumerate(sizes):
        cluster.start(b"p%d" % number, size)
    cluster.settle()
    cluster.restore()
    for number in range(min(gone, len(sizes) - 1)):
        cluster.stop(b"p%d" % number)
    for number, size in enumerate(come):
        cluster.start(b"q%d" % number, size)
    for disk in cluster.disks.values():
        disk.update(dict.fromkeys(cluster.stateful, 0))
    owner = {task: process for process, task in cluster._owned()}
    bound = cluster.necessary_moves()
    after = cluster.process_of(cluster.rebalance().active)
    assert sum(1 for task, process in owner.items() if after[task] != [process]) == bound


def test_a_new_member_gets_its_share_and_no_other_task_moves() -> None:
    cluster = cluster_of(12, processes=3)
    first = cluster.settle()
    for disk in cluster.disks.values():
        disk.update(dict.fromkeys(cluster.stateful, 0))
    cluster.start(b"p3", 1)
    cluster.disks[b"p3"] = dict.fromkeys(cluster.stateful, 0)
    second = cluster.rebalance()
    assert moved(first, second, cluster) == 3
    assert len(second.active["p3-0"]) == 3


def test_the_standby_of_a_member_that_leaves_takes_over() -> None:
    cluster = cluster_of(9, standbys=1, processes=3)
    first = cluster.settle()
    cluster.restore()
    standby_of = {task: name for name, own in first.standby.items() for task in own}
    cluster.stop(b"p0")
    second = cluster.rebalance()
    heirs = [task for task in first.active["p0-0"] if task in second.active[standby_of[task]]]
    assert len(heirs) >= 2, "those that fit into the share"
    assert moved_from_the_living(first, second) == 0


def moved_from_the_living(before: Placement, after: Placement) -> int:
    return sum(
        1
        for name, own in before.active.items()
        if name in after.active
        for task in own
        if task not in after.active[name]
    )


def test_a_member_without_state_warms_up_before_it_takes_over() -> None:
    cluster = cluster_of(4, processes=1)
    cluster.settle()
    cluster.restore()
    cluster.start(b"p1", 1)
    second = cluster.rebalance()
    assert second.probing
    assert len(second.active["p0-0"]) == 4
    warming = second.standby["p1-0"]
    assert len(warming) == 2
    third = cluster.rebalance()
    assert third.standby["p1-0"] == warming, "warm-up tasks continue"
    assert third.probing
    cluster.restore()
    fourth = cluster.rebalance()
    assert not fourth.probing
    assert fourth.active["p1-0"] == warming


def test_a_rebalance_in_the_middle_of_a_restoration_leaves_tasks_where_they_are() -> None:
    cluster = cluster_of(6, processes=2)
    first = cluster.rebalance()
    cluster.restore(0.5)
    assert cluster.rebalance() == first
    cluster.start(b"p2", 1)
    second = cluster.rebalance()
    assert second.probing, "the new one has no state, the others are half way"
    assert {name: own for name, own in second.active.items() if name != "p2-0"} == first.active
    cluster.stop(b"p2")
    assert cluster.rebalance().active == first.active


def test_tasks_that_no_process_has_restored_move_at_once() -> None:
    cluster = cluster_of(6, processes=1)
    cluster.rebalance()
    cluster.restore(0.001)  # it has just begun
    cluster.start(b"p1", 1)
    placement = cluster.rebalance()
    assert not placement.probing
    assert len(placement.active["p1-0"]) == 3


def test_unrestored_tasks_move_first() -> None:
    cluster = cluster_of(4, processes=1)
    cluster.rebalance()
    cluster.disks[b"p0"] = {TaskId(0, 2): 0, TaskId(0, 3): 0, TaskId(0, 0): SIZE - 1, TaskId(0, 1): SIZE - 1}
    cluster.start(b"p1", 1)
    placement = cluster.rebalance()
    assert not placement.probing
    assert placement.active["p1-0"] == [TaskId(0, 0), TaskId(0, 1)]


def test_standbys_that_have_caught_up_stay_or_move_two_at_a_time() -> None:
    cluster = cluster_of(12, standbys=1, processes=4)
    before = cluster.process_of(cluster.settle().standby)
    cluster.restore()
    cluster.start(b"a new one that sorts first", 1)
    placement = cluster.rebalance()
    copies = cluster.process_of(placement.standby), cluster.process_of(placement.active)
    given_up = [task for task, (host,) in before.items() if host not in copies[0].get(task, []) + copies[1][task]]
    assert placement.probing
    assert len(given_up) <= cluster.config.max_warmup_replicas
    cluster.restore()
    loads = Counter(host for hosts in cluster.process_of(cluster.settle().standby).values() for host in hosts)
    assert max(loads.values()) - min(loads.values()) <= 1


def test_a_standby_moves_to_another_rack_as_soon_as_there_is_one() -> None:
    config = AssignmentConfig(num_standby_replicas=1, rack_aware_assignment_tags=("rack",))
    cluster = Cluster(dict.fromkeys(tasks(0, 4), SIZE), [], config)
    cluster.start(b"p0", 1, {"rack": "here"})
    cluster.start(b"p1", 1, {"rack": "here"})
    cluster.settle()
    cluster.restore()
    cluster.start(b"p2", 1, {"rack": "there"})
    active, standby = cluster.rebalance()[:2]
    assert len(active["p0-0"]) == len(active["p1-0"]) == 2
    assert standby["p2-0"] == sorted(active["p0-0"] + active["p1-0"])


def test_a_temporarily_running_standby_is_not_moved() -> None:
    first, second = TaskId(0, 0), TaskId(0, 1)
    hosts = {b"a": Host(1, ()), b"b": Host(1, ()), b"c": Host(1, (), states={first: (True, 0), second: (True, 0)})}
    for pinned, there in ([], 1), ([(first, b"c")], 1), ([(first, b"c"), (second, b"c")], 2):
        plan = StandbyPlan(
            {name: replace(host, standbys=set()) for name, host in hosts.items()}, {first: b"a", second: b"a"}
        )
        plan.place(1)
        assert plan.replicas == {first: [b"c"], second: [b"c"]}
        assert not plan.balance(5, 100, pinned)
        assert sum(replicas == [b"c"] for replicas in plan.replicas.values()) == there
        assert all(plan.replicas[task] == [name] for task, name in pinned)


def test_state_on_disk_brings_tasks_back_after_all_have_stopped() -> None:
    cluster = cluster_of(10, processes=2)
    before = cluster.settle()
    cluster.restore()
    cluster.stop(b"p0")
    cluster.stop(b"p1")
    cluster.start(b"p1", 1)
    cluster.start(b"p0", 1)
    assert cluster.rebalance().active == before.active


def test_replicas_are_on_other_racks_while_there_are_any() -> None:
    config = AssignmentConfig(num_standby_replicas=1, rack_aware_assignment_tags=("rack",))
    cluster = Cluster(dict.fromkeys(tasks(0, 12), SIZE), [], config)
    for number in range(4):
        cluster.start(b"p%d" % number, 1, {"rack": f"r{number % 2}"})
    placement = cluster.settle()
    rack = {name: thread.tags["rack"] for name, thread in cluster.threads.items()}
    at = {task: rack[name] for name, own in placement.active.items() for task in own}
    pairs = [(at[task], rack[name]) for name, own in placement.standby.items() for task in own]
    assert len(pairs) == 12
    assert all(active != standby for active, standby in pairs)
    assert {name: len(own) for name, own in placement.standby.items()} == dict.fromkeys(cluster.threads, 3)


def test_two_tags_are_better_than_one() -> None:
    config = AssignmentConfig(num_standby_replicas=1, rack_aware_assignment_tags=("cluster", "zone"))
    cluster = Cluster(dict.fromkeys(tasks(0, 4), SIZE), [], config)
    for number, (k8s, zone) in enumerate([("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]):
        cluster.start(b"p%d" % number, 1, {"cluster": k8s, "zone": zone})
    placement = cluster.settle()
    opposite = {"p0-0": "p3-0", "p1-0": "p2-0", "p2-0": "p1-0", "p3-0": "p0-0"}
    for name, own in placement.active.items():
        assert placement.standby[opposite[name]] == own


def test_a_process_with_more_threads_gets_more_tasks() -> None:
    cluster = cluster_of(12, stateless=4)
    cluster.start(b"big", 3)
    cluster.start(b"small", 1)
    placement = cluster.settle()
    assert all(len(own) == 4 for own in placement.active.values())


def test_sub_topologies_are_spread() -> None:
    cluster = Cluster(dict.fromkeys(tasks(0, 4) + tasks(1, 4), SIZE), [], AssignmentConfig())
    for number in range(4):
        cluster.start(b"p%d" % number, 1)
    for own in cluster.settle().active.values():
        assert [task.subtopology for task in own] == [0, 1]


def test_a_thousand_tasks_on_a_hundred_threads() -> None:
    config = AssignmentConfig(num_standby_replicas=1, rack_aware_assignment_tags=("rack",))
    stateful = {TaskId(sub, part): SIZE for sub in range(8) for part in range(100)}
    cluster = Cluster(stateful, tasks(9, 200), config)
    for number in range(50):
        cluster.start(b"p%02d" % number, 2, {"rack": f"r{number % 3}"})

    def timed() -> float:
        threads = {n: replace(t, lags=dict(cluster.disks[t.process])) for n, t in cluster.threads.items()}
        start = time.process_time()
        assign(cluster.stateful, cluster.stateless, threads, config)
        return time.process_time() - start

    took = [timed()]
    cluster.rebalance()
    cluster.restore()
    for number in range(5):
        cluster.stop(b"p%02d" % number)
    took.append(timed())
    cluster.rebalance()
    assert max(took) < 1
