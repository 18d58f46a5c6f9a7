"""Faults on the processes and links of a cluster, one at a time, each until its effect shows and until its end shows.

A fault holds until the registry shows its effect, and until clients have written and read each partition that must
still be writable then; it ends with every broker registered, every replica in sync, the first leaders back, and clients
served everywhere. So no fault is vacuous, and availability is asserted along with safety.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Final, Protocol

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from odradek.broker.registry import znodes
from odradek.cluster_process import REGISTRY, ClusterProcess
from tests.support.broker_faults import BrokerFaults
from tests.support.eventually import eventually
from tests.support.nemesis import BOUNCE, CUT, CUT_ONE_WAY, KILL, PAUSE, ROUNDS, SESSION_FAULTS, Fault
from tests.support.workload import Workload

LEADER, FOLLOWER, CONTROLLER = "leader", "follower", "controller"
ROLES: Final = (LEADER, FOLLOWER, CONTROLLER)
METADATA_STORE: Final = "registry"
BROKER_FAULTS: Final = (*SESSION_FAULTS, BOUNCE, CUT, CUT_ONE_WAY)
REGISTRY_FAULTS: Final = (KILL, BOUNCE, PAUSE)
GONE_S: Final = 60.0 if ROUNDS else 10.0
"""How long the metadata store is away; a session lasts 3 seconds."""
LEADERS_RETURN: Final = {"leader.imbalance.check.interval.seconds": "1"}
"""A property of a cluster for a nemesis: the preferred leaders lead again as soon as that is possible."""


class RegistryHandle(Protocol):
    """Operations on the registry, Odradek's or Apache ZooKeeper."""

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class OwnRegistry:
    """The registry of a cluster that has its own."""

    def __init__(self, cluster: ClusterProcess) -> None:
        self._cluster = cluster

    def kill(self) -> None:
        self._cluster.kill(REGISTRY)

    def start(self) -> None:
        self._cluster.restart(REGISTRY)

    def pause(self) -> None:
        self._cluster.pause(REGISTRY)

    def resume(self) -> None:
        self._cluster.resume(REGISTRY)


class ClusterNemesis:
    """Faults on `cluster` while `workload` runs on all partitions of `topic`, which all brokers have."""

    def __init__(
        self, cluster: ClusterProcess, registry: RegistryHandle, workload: Workload, topic: str, chance: random.Random
    ) -> None:
        self._cluster = cluster
        self._registry = registry
        self._workload = workload
        self._topic = topic
        self._chance = chance
        self._all = set(cluster.brokers)
        self._broker_faults = BrokerFaults(cluster, self._await_without)
        self._preferred = [cluster.leader_of(topic, partition) for partition in self._partitions]

    @property
    def _partitions(self) -> range:
        return self._workload.history.partitions

    @property
    def faults(self) -> Sequence[Fault]:
        """Every kind on each role, and those of the metadata store."""
        brokers = [Fault(kind, role) for kind, role in product(BROKER_FAULTS, ROLES)]
        return [*brokers, *(Fault(kind, METADATA_STORE) for kind in REGISTRY_FAULTS)]

    def strike(self, fault: Fault) -> None:
        """Cause it, and return when every broker is in sync and every leader is back."""
        if fault.target == METADATA_STORE:
            print(f"{fault} for {GONE_S:g} s", flush=True)
            self._strike_registry(fault.kind, GONE_S)
        else:
            victim = self._find(fault.target)
            print(f"{fault}: broker {victim}", flush=True)
            if fault.kind in (CUT, CUT_ONE_WAY):
                self._cut(victim, one_way=fault.kind == CUT_ONE_WAY)
            else:
                self._broker_faults.strike(fault.kind, victim)
        self._recover()

    def _strike_registry(self, fault: str, gone_s: float) -> None:
        """Requests that change no metadata are served for as long as the registry is gone."""
        printed = {number: len(broker.output) for number, broker in self._cluster.brokers.items()}
        if fault == PAUSE:
            self._registry.pause()
            self._workload.progress_for(gone_s)
            self._registry.resume()
        else:
            self._registry.kill()
            if fault == KILL:
                self._workload.progress_for(gone_s)
            self._registry.start()
        brokers = self._cluster.brokers
        eventually(
            lambda: all(_has_session(broker.output[printed[number] :]) for number, broker in brokers.items()),
            describe="every broker has a session",
        )

    def _cut(self, victim: int, *, one_way: bool) -> None:
        """Cut off from its peers. Their sessions live, so no leader changes; leaders that reach the controller shrink
        the ISR.

        A controller that is cut off leaves only its own partitions to be shrunk, down to itself.
        """
        led = [each for each in self._partitions if self._cluster.leader_of(self._topic, each) == victim]
        others = [each for each in self._partitions if each not in led]
        controls = self._cluster.controller() == victim
        self._broker_faults.cut_peers(victim, one_way=one_way)
        for partition in led if controls else others:
            self._cluster.await_isr(self._topic, partition, {victim} if controls else self._all - {victim})
        if not controls:
            self._workload.await_progress(others)
        self._cluster.heal()

    # ---- helpers

    def _await_without(self, victim: int) -> None:
        """The others go on, with a controller, leaders and clients of their own."""
        for partition in self._partitions:
            self._cluster.await_isr(self._topic, partition, self._all - {victim})
        assert self._cluster.controller() != victim
        self._workload.await_progress()

    def _recover(self) -> None:
        self._cluster.await_brokers(self._all)
        eventually(self._registrations_are_applied, describe="the controller has applied every registration")
        for partition in self._partitions:
            self._cluster.await_isr(self._topic, partition, self._all)
        self._await_preferred_leaders()
        self._workload.await_progress()

    def _registrations_are_applied(self) -> bool:
        """A broker that registers again leaves the ISR, or leads in a new epoch: the states are younger than the
        registrations.

        Before that the ISR may be whole in the registry, and about to shrink.
        """
        client = self._cluster.registry_watcher.client()
        paths = [znodes.partition_state_path(self._topic, each) for each in self._partitions]
        try:
            registered = max(client.get(znodes.broker_path(each))[1].czxid for each in self._all)
            return all(client.get(path)[1].mzxid > registered for path in paths)
        except (KazooException, KazooTimeoutError):
            return False  # the test's own session is not back, or a registration was just deleted

    def _await_preferred_leaders(self) -> None:
        """The controller moves each partition back to its preferred leader (LEADERS_RETURN)."""
        for partition, preferred in enumerate(self._preferred):
            leader = self._cluster.leader_of(self._topic, partition)
            while leader != preferred:
                leader = self._cluster.await_leader(self._topic, partition, other_than=leader)

    def _find(self, role: str) -> int:
        """A broker in this role; a leader or follower that is not the controller too, if there is one."""
        controller = self._cluster.controller()
        if role == CONTROLLER:
            return controller
        leaders = [self._cluster.leader_of(self._topic, partition) for partition in self._partitions]
        partition = self._choose([each for each in self._partitions if leaders[each] != controller], self._partitions)
        if role == LEADER:
            return leaders[partition]
        followers = self._all - {leaders[partition]}
        return self._choose(sorted(followers - {controller}), sorted(followers))

    def _choose(self, first: Sequence[int], otherwise: Sequence[int]) -> int:
        return self._chance.choice(first or otherwise)


def _has_session(printed: str) -> bool:
    """Whether a broker that logged the loss of the registry has since logged that it is connected again.

    Until then the registry's contents are of the time before: sessions may still expire.
    """
    lost = printed.rfind("metadata store session changed state=suspended")
    found = max(
        printed.rfind("metadata store session changed state=connected"), printed.rfind("broker registered broker=")
    )
    return 0 <= lost < found
