"""The servers of the small requests: one broker, one of the newest Kafka, or the leader in a cluster of three.

Kafka with ZooKeeper has no consumer protocol, so for that one the rival is Kafka 4.3.0 with KRaft.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Protocol

from tests.benchmarks import usage
from tests.benchmarks.clusters import IDS, Cluster
from tests.benchmarks.contestants import PROPERTIES, Broker, Contestant, contestant
from tests.benchmarks.log_cases import ends_of
from tests.jvm.kafka import STOCK_JVM
from tests.jvm.kraft import KRaft

Servers = Literal["single", "newest", "three"]
LED_TIMEOUT_S: Final = 60.0
LEADER, *FOLLOWERS = IDS
AT_ONCE: Final = {"log.initial.task.delay.ms": "1000"}
"""Kafka deletes no files in the first 30 s otherwise."""
_POLL_S: Final = 0.02


class Server(Protocol):
    """A broker or a cluster."""

    name: str

    @property
    def bootstrap(self) -> str:
        """The address of the broker that gets the requests."""
        ...

    def start(self) -> None: ...
    def close(self) -> None: ...
    def make_topic(self, topic: str) -> None:
        """Create a topic with one partition; returns when it has a leader and all replicas."""
        ...

    def drop_topic(self, topic: str) -> None: ...
    def cpu_seconds(self) -> Mapping[str, float]:
        """The CPU seconds so far, by the key of a measure."""
        ...


class One:
    """One broker."""

    def __init__(self, broker: Contestant) -> None:
        self.name = broker.name
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def start(self) -> None:
        self._broker.start()

    def close(self) -> None:
        self._broker.close()

    def make_topic(self, topic: str) -> None:
        """Raises TimeoutError where it has no leader within LED_TIMEOUT_S."""
        self._broker.make_topic(topic, 1)
        deadline = time.monotonic() + LED_TIMEOUT_S
        while not ends_of(self.bootstrap, topic, 1):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has no leader within {LED_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)

    def drop_topic(self, topic: str) -> None:
        self._broker.drop_topic(topic)

    def cpu_seconds(self) -> Mapping[str, float]:
        return {"cpu_us": usage.cpu_seconds(self._broker.pid)}


class Three:
    """Three brokers, of which the same one leads every topic."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = cluster.name
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self._cluster.nodes[LEADER].bootstrap

    def start(self) -> None:
        self._cluster.start()

    def close(self) -> None:
        self._cluster.close()

    def make_topic(self, topic: str) -> None:
        self._cluster.create(topic, [[LEADER, *FOLLOWERS]])
        self._cluster.await_in_sync(topic, 1)

    def drop_topic(self, topic: str) -> None:
        self._cluster.drop(topic)

    def cpu_seconds(self) -> Mapping[str, float]:
        nodes = self._cluster.nodes
        return {
            "cpu_us": usage.cpu_seconds(nodes[LEADER].pid),
            "followers_cpu_us": sum(usage.cpu_seconds(nodes[each].pid) for each in FOLLOWERS),
        }


def make(kind: Servers, name: str, folder: Path) -> Server:
    """Those of a contestant, not started. Raises ValueError for a name that is no contestant."""
    if kind == "three":
        return Three(Cluster(name, folder / "cluster"))
    if kind == "newest" and name == "kafka":
        return One(Broker(name, KRaft(folder / "broker", {**PROPERTIES, **AT_ONCE}, STOCK_JVM)))
    return One(contestant(name, folder))
