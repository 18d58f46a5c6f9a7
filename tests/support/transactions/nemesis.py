"""Faults on the brokers that matter to transactions: leaders of data, and of both coordinators' topics.

A fault that ends a session holds until the others have gone on without the broker; each ends when every broker is
registered and in sync again. Replicas that move leave the partition and come back in another order: the log of one is
deleted and created anew while clients go on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Final

from odradek.cluster_process import ClusterProcess
from tests.support.broker_faults import BrokerFaults
from tests.support.disturbance import CLOCK_STEP, SLOW_DISK, disturbed
from tests.support.nemesis import BOUNCE, CUT, CUT_ONE_WAY, SESSION_FAULTS, Fault, last
from tests.support.partition_moves import Place, elect_preferred, reassign
from tests.support.transactions.chronicle import KEYS, place_of

COORDINATOR_PARTITIONS: Final = 4
LEADER, TRANSACTIONS, GROUPS, CONTROLLER = "leader", "transaction coordinator", "group coordinator", "controller"
REASSIGN, MOVE_LEADER, SLOW, STEP = "reassign", "move leader", "slow disk", "clock step"
CUT_S: Final = 4.0
DISTURBED_S: Final = 1.0
DISK_DELAYS_MS: Final = (20, 100, 400)
CLOCK_STEPS_MS: Final = (-900_000, -10_000, 10_000, 900_000)
"""Past the timeout of a transaction, and short of the age at which records and offsets are deleted."""
ROLES: Final = (LEADER, TRANSACTIONS, GROUPS, CONTROLLER)
SHORT_FAULTS: Final = (BOUNCE, CUT, CUT_ONE_WAY)
MOVES: Final = (REASSIGN, MOVE_LEADER)
DISTURBANCES: Final = (SLOW, STEP)
FAULTS: Final = (*SESSION_FAULTS, *SHORT_FAULTS, *MOVES, *DISTURBANCES)
STATE: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"
DATA: Final = tuple(place_of(key) for key in range(KEYS))


class TransactionsNemesis:
    """Faults on a cluster of three with copies of everything everywhere; its disks and clocks can be changed."""

    def __init__(self, cluster: ClusterProcess, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._all = set(cluster.brokers)
        self._broker_faults = BrokerFaults(cluster, self._await_without)

    @property
    def faults(self) -> Sequence[Fault]:
        """Every kind on each role."""
        return [Fault(kind, role) for kind, role in product(FAULTS, ROLES)]

    def strike(self, fault: Fault) -> None:
        """Cause it on a broker in a role, or on partitions that such a broker leads.

        A disturbance beside another fault is a disk that is just fast enough for its broker to stay in sync, as that
        fault's end demands, or a wrong clock.
        """
        if not fault.disturbed:
            self._strike(fault)
            return
        disturbed_id = self._chance.choice(sorted(self._all))
        disturbance, by_ms = self._draw(self._chance.choice(DISTURBANCES))
        by_ms = DISK_DELAYS_MS[0] if disturbance == SLOW_DISK else by_ms
        print(f"{disturbance} by {by_ms} ms at broker {disturbed_id}, and", flush=True)
        with disturbed(self._cluster.brokers[disturbed_id], disturbance, by_ms):
            self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        if fault.kind in MOVES:
            places = self._partitions_of(fault.target)
            print(f"{fault}: {', '.join(f'{topic}-{number}' for topic, number in places)}", flush=True)
            if fault.kind == REASSIGN:
                self._reassign(places)
            else:
                self._move_leaders(places)
        else:
            victim = self._find(fault.target)
            print(f"{fault}: broker {victim}", flush=True)
            if fault.kind in DISTURBANCES:
                self._disturb(victim, fault.kind)
            elif fault.kind in (CUT, CUT_ONE_WAY):
                self._cut(victim, one_way=fault.kind == CUT_ONE_WAY)
            else:
                self._broker_faults.strike(fault.kind, victim)
        self._await_health()

    # ---- faults on a broker

    def _cut(self, victim: int, *, one_way: bool) -> None:
        """Cut off from its peers, for longer than a follower may lag. No session ends, so no leader changes.

        Where the broker leads a coordinator's partition no client can commit, so that there may be no write to wait
        for.
        """
        self._broker_faults.cut_peers(victim, one_way=one_way)
        last(CUT_S)
        self._cluster.heal()

    def _disturb(self, victim: int, fault: str) -> None:
        """The clock goes back at the end, which is a step the other way."""
        disturbance, by_ms = self._draw(fault)
        print(f"by {by_ms} ms", flush=True)
        with disturbed(self._cluster.brokers[victim], disturbance, by_ms):
            last(DISTURBED_S)

    def _draw(self, fault: str) -> tuple[str, int]:
        if fault == SLOW:
            return SLOW_DISK, self._chance.choice(DISK_DELAYS_MS)
        return CLOCK_STEP, self._chance.choice(CLOCK_STEPS_MS)

    # ---- faults on partitions

    def _reassign(self, places: Sequence[Place]) -> None:
        """One replica is removed, with its log; then it is added again, and the order is another."""
        two = {place: self._chance.sample(sorted(self._all), 2) for place in places}
        reassign(self._cluster, two)
        for place, replicas in two.items():
            self._cluster.await_isr(*place, replicas)
        three = {place: self._chance.sample(sorted(self._all), 3) for place in places}
        reassign(self._cluster, three)
        for place, replicas in three.items():
            self._cluster.await_isr(*place, replicas)

    def _move_leaders(self, places: Sequence[Place]) -> None:
        """Move leadership to a broker that does not lead now."""
        wanted: dict[Place, list[int]] = {}
        for place in places:
            leader = self._cluster.leader_of(*place)
            wanted[place] = [*self._chance.sample(sorted(self._all - {leader}), 2), leader]
        reassign(self._cluster, wanted)
        elect_preferred(self._cluster, wanted)

    # ---- helpers

    def _await_health(self) -> None:
        self._cluster.await_brokers(self._all)
        for topic, partition in self._everything():
            self._cluster.await_isr(topic, partition, self._all)

    def _await_without(self, victim: int) -> None:
        for topic, partition in self._everything():
            self._cluster.await_isr(topic, partition, self._all - {victim})

    def _everything(self) -> list[Place]:
        return [*DATA, *_coordinating(STATE), *_coordinating(OFFSETS)]

    def _partitions_of(self, role: str) -> list[Place]:
        """One partition of the kind that such a broker leads; all of them, for the controller."""
        if role == CONTROLLER:
            return self._everything()
        return [self._chance.choice(_led_by(role))]

    def _find(self, role: str) -> int:
        if role == CONTROLLER:
            return self._cluster.controller()
        return self._cluster.leader_of(*self._chance.choice(_led_by(role)))


def _coordinating(topic: str) -> list[Place]:
    return [(topic, each) for each in range(COORDINATOR_PARTITIONS)]


def _led_by(role: str) -> Sequence[Place]:
    return {LEADER: DATA, TRANSACTIONS: _coordinating(STATE), GROUPS: _coordinating(OFFSETS)}[role]
