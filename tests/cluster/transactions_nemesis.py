"""Faults on the brokers that matter to transactions: leaders of data, and of both coordinators' topics.

A fault that ends a session holds until the others have gone on without the broker; each ends when every broker is
registered and in sync again. Replicas that move leave the partition and come back in another order: the log of one is
deleted and created anew while clients go on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from odradek.cluster_process import REGISTRY, ClusterProcess
from tests.cluster.nemesis import BOUNCE, CUT, CUT_ONE_WAY, CUT_REGISTRY, ISOLATE, KILL, PAUSE
from tests.cluster.transactions_chronicle import KEYS, place_of
from tests.cluster.transactions_disturbance import CLOCK_STEP, SLOW_DISK, disturbed
from tests.cluster.transactions_moves import Place, elect_preferred, reassign

COORDINATOR_PARTITIONS: Final = 4
LEADER, TRANSACTIONS, GROUPS, CONTROLLER = "leader", "transaction coordinator", "group coordinator", "controller"
REASSIGN, MOVE_LEADER, SLOW, STEP = "reassign", "move leader", "slow disk", "clock step"
CUT_S: Final = 4.0
DISTURBED_S: Final = 1.0
DISK_DELAYS_MS: Final = (20, 100, 400)
CLOCK_STEPS_MS: Final = (-900_000, -10_000, 10_000, 900_000)
"""Past the timeout of a transaction, and short of the age at which records and offsets are deleted."""
ROLES: Final = (LEADER, TRANSACTIONS, GROUPS, CONTROLLER)
SESSION_FAULTS: Final = (KILL, PAUSE, ISOLATE, CUT_REGISTRY)
SHORT_FAULTS: Final = (BOUNCE, CUT, CUT_ONE_WAY)
MOVES: Final = (REASSIGN, MOVE_LEADER)
DISTURBANCES: Final = (SLOW, STEP)
FAULTS: Final = (*SESSION_FAULTS, *SHORT_FAULTS, *MOVES, *DISTURBANCES)
STATE: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"
DATA: Final = tuple(place_of(key) for key in range(KEYS))

Strike: TypeAlias = Callable[[int], None]


class TransactionsNemesis:
    """Faults on a cluster of three with copies of everything everywhere; its disks and clocks can be changed."""

    def __init__(self, cluster: ClusterProcess, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._all = set(cluster.brokers)

    def strike(self, fault: str, role: str) -> None:
        """One of FAULTS on a broker in one of ROLES, or on partitions that such a broker leads."""
        if fault in MOVES:
            places = self._partitions_of(role)
            print(f"{fault} {role}: {', '.join(f'{topic}-{number}' for topic, number in places)}", flush=True)
            if fault == REASSIGN:
                self._reassign(places)
            else:
                self._move_leaders(places)
        else:
            victim = self._find(role)
            print(f"{fault} {role}: broker {victim}", flush=True)
            self._strikes()[fault](victim)
        self._await_health()

    def strike_two(self, fault: str, role: str) -> None:
        """One of FAULTS but DISTURBANCES, while a broker, maybe the same, has a slow disk or a wrong clock.

        The disk is just fast enough for its broker to stay in sync, as the other fault's end demands.
        """
        disturbed_id = self._chance.choice(sorted(self._all))
        disturbance, by_ms = self._draw(self._chance.choice(DISTURBANCES))
        by_ms = DISK_DELAYS_MS[0] if disturbance == SLOW_DISK else by_ms
        print(f"{disturbance} by {by_ms} ms at broker {disturbed_id}, and", flush=True)
        with disturbed(self._cluster.brokers[disturbed_id], disturbance, by_ms):
            self.strike(fault, role)

    def _strikes(self) -> Mapping[str, Strike]:
        return {
            KILL: self._kill,
            BOUNCE: self._bounce,
            PAUSE: self._pause,
            ISOLATE: lambda each: self._until_gone(each, self._cluster.isolate),
            CUT_REGISTRY: lambda each: self._until_gone(each, lambda broker: self._cluster.cut(broker, REGISTRY)),
            CUT: lambda each: self._cut(each, one_way=False),
            CUT_ONE_WAY: lambda each: self._cut(each, one_way=True),
            SLOW: lambda each: self._disturb(each, SLOW),
            STEP: lambda each: self._disturb(each, STEP),
        }

    # ---- faults on a broker

    def _kill(self, victim: int) -> None:
        self._cluster.kill(victim)
        self._await_without(victim)
        self._cluster.restart(victim)

    def _bounce(self, victim: int) -> None:
        """The broker is back before its session has expired."""
        self._cluster.kill(victim)
        self._cluster.restart(victim)

    def _pause(self, victim: int) -> None:
        self._cluster.pause(victim)
        self._await_without(victim)
        self._cluster.resume(victim)

    def _until_gone(self, victim: int, cut: Callable[[int], None]) -> None:
        """Longer than its session lasts; clients still reach it, and it still acts as leader."""
        cut(victim)
        self._await_without(victim)
        self._cluster.heal()

    def _cut(self, victim: int, *, one_way: bool) -> None:
        """Cut off from its peers, for longer than a follower may lag. No session ends, so no leader changes.

        Where the broker leads a coordinator's partition no client can commit, so that there may be no write to wait
        for.
        """
        for peer in self._all - {victim}:
            self._cluster.cut(victim, peer, one_way=one_way)
        time.sleep(CUT_S)  # the length of the fault; no condition is awaited
        self._cluster.heal()

    def _disturb(self, victim: int, fault: str) -> None:
        """The clock goes back at the end, which is a step the other way."""
        disturbance, by_ms = self._draw(fault)
        print(f"by {by_ms} ms", flush=True)
        with disturbed(self._cluster.brokers[victim], disturbance, by_ms):
            time.sleep(DISTURBED_S)  # the length of the fault; no condition is awaited

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
