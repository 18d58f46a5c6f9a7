"""Faults on one broker of a cluster: its process, its links to other brokers, its link to the metadata store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.cluster_process import REGISTRY, ClusterProcess
from tests.support.nemesis import BOUNCE, CUT_REGISTRY, ISOLATE, KILL, PAUSE


class BrokerFaults:
    """A fault that ends the broker's session holds until the other brokers have gone on without it."""

    def __init__(self, cluster: ClusterProcess, await_without: Callable[[int], None]) -> None:
        self._cluster = cluster
        self._await_without = await_without
        self._strikes: Mapping[str, Callable[[int], None]] = {
            KILL: self._kill,
            BOUNCE: self._bounce,
            PAUSE: self._pause,
            ISOLATE: self._isolate,
            CUT_REGISTRY: self._cut_registry,
        }

    def strike(self, kind: str, victim: int) -> None:
        """KILL, BOUNCE, PAUSE, ISOLATE or CUT_REGISTRY."""
        self._strikes[kind](victim)

    def cut_peers(self, victim: int, *, one_way: bool) -> None:
        """Cut the links to all other brokers, until the cluster is healed. Sessions live, so no leader changes."""
        for peer in set(self._cluster.brokers) - {victim}:
            self._cluster.cut(victim, peer, one_way=one_way)

    def _kill(self, victim: int) -> None:
        self._cluster.kill(victim)
        self._await_without(victim)
        self._cluster.restart(victim)

    def _bounce(self, victim: int) -> None:
        """The broker is back before its session has expired."""
        self._cluster.kill(victim)
        self._cluster.restart(victim)

    def _pause(self, victim: int) -> None:
        """Longer than its session lasts."""
        self._cluster.pause(victim)
        self._await_without(victim)
        self._cluster.resume(victim)

    def _isolate(self, victim: int) -> None:
        """Longer than its session lasts; clients still reach it, and it still acts as leader."""
        self._cluster.isolate(victim)
        self._await_without(victim)
        self._cluster.heal()

    def _cut_registry(self, victim: int) -> None:
        """Longer than its session lasts; other brokers and clients reach it all the time."""
        self._cluster.cut(victim, REGISTRY)
        self._await_without(victim)
        self._cluster.heal()
