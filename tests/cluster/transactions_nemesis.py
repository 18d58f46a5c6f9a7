"""Faults on the brokers that matter to transactions: leaders of data, and of both coordinators' topics.

A fault that ends a session holds until the others have gone on without the broker; each ends when every broker is known
and in sync again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from odradek.cluster_process import REGISTRY, ClusterProcess
from tests.cluster.nemesis import BOUNCE, CUT, CUT_ONE_WAY, CUT_REGISTRY, ISOLATE, KILL, PAUSE

COORDINATOR_PARTITIONS: Final = 4
LEADER, TRANSACTIONS, GROUPS, CONTROLLER = "leader", "transaction coordinator", "group coordinator", "controller"
CUT_S: Final = 4.0
ROLES: Final = (LEADER, TRANSACTIONS, GROUPS, CONTROLLER)
FAULTS: Final = (KILL, PAUSE, ISOLATE, CUT_REGISTRY, BOUNCE, CUT, CUT_ONE_WAY)


class TransactionsNemesis:
    """What befalls a cluster of three on which `topics` have two partitions each, with copies everywhere."""

    def __init__(self, cluster: ClusterProcess, topics: Sequence[str], chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._all = set(cluster.brokers)
        self._data = [(topic, partition) for topic in topics for partition in range(2)]

    def strike(self, fault: str, role: str) -> None:
        """One of FAULTS on a broker in one of ROLES."""
        victim = self._find(role)
        print(f"{fault} {role}: broker {victim}", flush=True)
        strikes: dict[str, Callable[[int], None]] = {
            KILL: self._kill,
            BOUNCE: self._bounce,
            PAUSE: self._pause,
            ISOLATE: lambda each: self._until_gone(each, self._cluster.isolate),
            CUT_REGISTRY: lambda each: self._until_gone(each, lambda broker: self._cluster.cut(broker, REGISTRY)),
            CUT: lambda each: self._cut(each, one_way=False),
            CUT_ONE_WAY: lambda each: self._cut(each, one_way=True),
        }
        strikes[fault](victim)
        self._cluster.await_brokers(self._all)
        for topic, partition in self._everything():
            self._cluster.await_isr(topic, partition, self._all)

    def _kill(self, victim: int) -> None:
        self._cluster.kill(victim)
        self._await_without(victim)
        self._cluster.restart(victim)

    def _bounce(self, victim: int) -> None:
        """It is back before its session has expired."""
        self._cluster.kill(victim)
        self._cluster.restart(victim)

    def _pause(self, victim: int) -> None:
        self._cluster.pause(victim)
        self._await_without(victim)
        self._cluster.resume(victim)

    def _until_gone(self, victim: int, cut: Callable[[int], None]) -> None:
        """Longer than its session lasts; clients still reach it, and it takes itself for what it was."""
        cut(victim)
        self._await_without(victim)
        self._cluster.heal()

    def _cut(self, victim: int, *, one_way: bool) -> None:
        """From its peers, for longer than a follower may lag. No session ends, so no leader changes.

        Where the broker leads a coordinator's partition nobody can commit, so that there may be no write to wait for.
        """
        for peer in self._all - {victim}:
            self._cluster.cut(victim, peer, one_way=one_way)
        time.sleep(CUT_S)  # this long is the fault; nothing is waited for
        self._cluster.heal()

    def _await_without(self, victim: int) -> None:
        for topic, partition in self._everything():
            self._cluster.await_isr(topic, partition, self._all - {victim})

    def _everything(self) -> list[tuple[str, int]]:
        coordinators = [(topic, each) for topic in (STATE, OFFSETS) for each in range(COORDINATOR_PARTITIONS)]
        return [*self._data, *coordinators]

    def _find(self, role: str) -> int:
        if role == CONTROLLER:
            return self._cluster.controller()
        coordinators = [(STATE if role == TRANSACTIONS else OFFSETS, each) for each in range(COORDINATOR_PARTITIONS)]
        return self._cluster.leader_of(*self._chance.choice(self._data if role == LEADER else coordinators))


STATE: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"
