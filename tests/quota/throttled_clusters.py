"""Two clusters of two brokers, Odradek's and Apache Kafka's 3.9.2, whose replicas are copied under throttles.

Brokers are 1 and 2, each with two log directories, so that a reassignment moves replicas between brokers and between
the directories of one. `growth` is the witness: the bytes a second by which the files of a copy grow.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.wire import Wire, parse_address
from tests.broker.wire import batch, produce_request
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually

BROKERS: Final = (1, 2)
DIRECTORIES: Final = ("one", "two")
BATCH: Final = bytes(batch(bytes(9_900)))
FETCH_BYTES: Final = 5 * len(BATCH)
"""Of one fetch of a follower: a measured time has one of them more or less. It has whole batches: the bytes of the last
one that have no room would count, and would be fetched again.
"""
TIMEOUT_S: Final = 30.0
LATER: Final = 22
"""Seconds by which a measured time may begin and end later: behind any stall of the first one."""
CREATE_TOPICS: Final = 5
PRODUCE: Final = 9
PROPERTIES: Final = {
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "replica.fetch.max.bytes": str(FETCH_BYTES),
    "replica.fetch.response.max.bytes": str(FETCH_BYTES),
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
}
"""The same for both."""


class Throttled(NamedTuple):
    """A cluster. `folder` has a folder for each broker, named by its id, with the log directories."""

    bootstrap: str
    folder: Path

    def _wire(self, broker_id: int | None) -> Wire:
        """A connection to a broker, by default the controller."""
        with Wire(*parse_address(self.bootstrap), TIMEOUT_S) as wire:
            cluster = wire.metadata([])
        wanted = cluster.controller_id if broker_id is None else broker_id
        at = next(each for each in cluster.brokers if each.node_id == wanted)
        return Wire(at.host, at.port, TIMEOUT_S)

    def directory(self, broker_id: int, name: str) -> Path:
        """A log directory of a broker."""
        return self.folder / str(broker_id) / name

    def copied(self, topic: str, broker_id: int, name: str = "*") -> int:
        """The bytes that a broker has of partition 0 of a topic, in all of its directories or this one."""
        files = (self.folder / str(broker_id)).glob(f"{name}/{topic}-0*/*.log")
        return sum(size_of(path) for path in files)

    def directory_of(self, topic: str, broker_id: int) -> str:
        """The name of the directory in which a broker has partition 0 of a topic."""
        return eventually(
            lambda: [name for name in DIRECTORIES if (self.directory(broker_id, name) / f"{topic}-0").exists()],
            lambda found: len(found) == 1,
        )[0]

    def fill(self, topics: dict[str, int], batches: int) -> None:
        """Create topics of one partition, each with its only replica on a broker, and write so many batches to each."""
        request = m.CreateTopicsRequest
        wanted = [
            request.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[request.CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id])],
            )
            for name, broker_id in topics.items()
        ]
        with self._wire(None) as wire:
            answer = wire.ask(request(topics=wanted, timeout_ms=20_000), CREATE_TOPICS)
            assert not any(each.error_code for each in answer.topics), answer
        for topic, broker_id in topics.items():
            with self._wire(broker_id) as wire:
                write = produce_request(topic, BATCH, acks=1)
                eventually(lambda wire=wire, write=write: error_of(wire, write), lambda error: error == 0)
                for _ in range(batches - 1):
                    assert error_of(wire, write) == 0


def error_of(wire: Wire, write: m.ProduceRequest) -> int:
    """The error code of the only partition of a Produce request."""
    return int(wire.ask(write, PRODUCE).responses[0].partition_responses[0].error_code)


def size_of(path: Path) -> int:
    """The size of a file, 0 where it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def growth(read: Callable[[], int], before_s: float, measured_s: int, least: float = 0.0) -> float:
    """The units a second by which `read` grows within `measured_s`, which begin `before_s` after its first ones.

    A machine that stands still for a second makes any throttle show less. So while `measured_s` have less than `least`,
    which is units a second, they begin and end a second later, at most LATER times.
    """
    eventually(read, lambda size: size > 0)
    start_s = time.monotonic()
    readings: deque[tuple[float, int]] = deque(maxlen=measured_s + 1)
    rate = 0.0
    for second in range(measured_s + LATER + 1):
        due_s = start_s + before_s + second
        threading.Event().wait(max(0.0, due_s - time.monotonic()))  # a time is measured: no event ends it
        readings.append((time.monotonic(), read()))
        (first_s, first), (last_s, last) = readings[0], readings[-1]
        if len(readings) > measured_s and (rate := (last - first) / (last_s - first_s)) >= least:
            break
    return rate


@contextmanager
def throttled_clusters(folder: Path) -> Iterator[dict[str, Throttled]]:
    """Both clusters, in one ZooKeeper."""
    folders = {side: folder / side for side in ("odradek", "kafka")}

    def properties(side: str, broker_id: int) -> dict[str, str]:
        directories = ",".join(str(folders[side] / str(broker_id) / name) for name in DIRECTORIES)
        return {**PROPERTIES, "broker.id": str(broker_id), "log.dirs": directories}

    with ExitStack() as stack:
        first = Kafka(folder / "kafka-1", properties("kafka", 1))
        stack.callback(first.close)
        first.start()
        second = Kafka(folder / "kafka-2", properties("kafka", 2), zookeeper=first.zookeeper_connect)
        stack.callback(second.close)
        chroot = {"zookeeper.connect": f"{first.zookeeper_connect}/odradek"}
        ours = [BrokerProcess(folder / f"odradek-{each}", properties("odradek", each) | chroot) for each in BROKERS]
        for broker in ours:
            stack.callback(broker.kill)
        ours[0].start()
        with ThreadPoolExecutor() as threads:
            for started in [threads.submit(each.start) for each in (second, ours[1])]:
                started.result()
        sides = {"odradek": ours[0].bootstrap, "kafka": first.bootstrap}
        for bootstrap in sides.values():
            _await_both(bootstrap)
        yield {side: Throttled(bootstrap, folders[side]) for side, bootstrap in sides.items()}


def _await_both(bootstrap: str) -> None:
    with Wire(*parse_address(bootstrap), TIMEOUT_S) as wire:
        eventually(lambda: len(wire.metadata([]).brokers), lambda count: count == len(BROKERS), timeout_s=TIMEOUT_S)
