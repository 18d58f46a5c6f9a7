"""How long no client can write after a leader's death, measured by clients that write one record after the other with
acks=all.

Two clients write at once. The plain client requests the leader from the brokers a hundred times a second, so that its
gap depends on the brokers alone. The other is librdkafka, which requests metadata once a second while the leader it has
is down: that gap is the one of an application, and too coarse to distinguish two clusters.

The leader is a broker that is not the controller. Most of the gap is its ZooKeeper session, which ends
zookeeper.session.timeout.ms after its last request, and it sends one every third of that. So the kills of the rounds
are spread over such a third, or chance would decide; and the part after the session's end is reported by itself.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from kazoo.client import KazooClient

from odradek.protocol.errors import ErrorCode
from tests.benchmarks.clusters import IDS, SESSION_TIMEOUT_MS, TIMEOUT_S, Cluster
from tests.broker.wire import Client, batch

ROUNDS_SPREAD = 3
_RECORD = b"x" * 100
_PAUSE_S = 0.005  # between two records: the machine is to be idle when the leader dies
_ASK_AGAIN_S = 0.01
_LEAST_GAP_S = 0.1  # longer than the write of a record takes, shorter than a session
_RECORDS_AFTER = 20
_LIBRDKAFKA = {
    "acks": "all",
    "linger.ms": 0,
    "message.timeout.ms": round(TIMEOUT_S * 1000),
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 2,
}


class Outage(NamedTuple):
    """Seconds between the last acknowledgement before a leader's death and the first after.

    `gap_s` is the plain client's, `after_session_s` the part of it after the end of the session; `client_gap_s` is
    librdkafka's.
    """

    gap_s: float
    after_session_s: float
    client_gap_s: float


def kill_after_s(seconds: float, number: int) -> float:
    """When to kill in round `number` (from 1): `seconds` and a share of the time between two ZooKeeper pings."""
    return seconds + (number - 1) % ROUNDS_SPREAD / ROUNDS_SPREAD * SESSION_TIMEOUT_MS / 1000 / 3


def measure(cluster: Cluster, topic: str, before_s: float) -> Outage:
    """Write to a new topic for `before_s`, kill its leader, write on. On return the cluster is whole again.

    Raises TimeoutError, and RuntimeError if a record is given up.
    """
    controller = cluster.controller()
    leader, *followers = sorted(IDS, key=lambda broker_id: broker_id == controller)
    cluster.create(topic, [[leader, *followers]])
    cluster.await_in_sync(topic, 1)
    zookeeper = KazooClient(cluster.zookeeper_connect)
    zookeeper.start(timeout=TIMEOUT_S)
    stop = threading.Event()
    plain, librdkafka = _PlainWriter(cluster, topic, stop), _LibrdkafkaWriter(cluster, topic, stop)
    try:
        end = _SessionEnd(zookeeper, leader)
        with ThreadPoolExecutor(2) as pool:
            writing = [pool.submit(plain.run), pool.submit(librdkafka.run)]
            try:
                time.sleep(before_s)
                killed_s = time.monotonic()
                cluster.nodes[leader].kill()
                ended_s = end.await_it()
                _await_writes([plain.acknowledged, librdkafka.acknowledged], ended_s, writing)
            finally:
                stop.set()
            for each in writing:
                each.result(TIMEOUT_S)
    finally:
        zookeeper.stop()
        zookeeper.close()
    cluster.restart(leader)
    cluster.await_in_sync(topic, 1)
    before, after = longest_gap(plain.acknowledged, killed_s)
    client_before, client_after = longest_gap(librdkafka.acknowledged, killed_s)
    return Outage(after - before, after - ended_s, client_after - client_before)


def longest_gap(acknowledged: Sequence[float], killed_s: float) -> tuple[float, float]:
    """The ends of the longest time without an acknowledgement from the last one before the kill on.

    Raises RuntimeError if no gap is long enough.
    """
    first = max(0, bisect.bisect(acknowledged, killed_s) - 1)
    before, after = max(itertools.pairwise(acknowledged[first:]), key=lambda pair: pair[1] - pair[0])
    if after - before < _LEAST_GAP_S:
        raise RuntimeError(f"no gap longer than {after - before:.3f} s: the broker that was killed was not the leader")
    return before, after


class _SessionEnd:
    """When the registration of a broker is deleted, on time.monotonic()."""

    def __init__(self, zookeeper: KazooClient, broker_id: int) -> None:
        self._ended = threading.Event()
        self._at_s = 0.0
        zookeeper.exists(f"/brokers/ids/{broker_id}", watch=lambda event: self._note())

    def await_it(self) -> float:
        if not self._ended.wait(TIMEOUT_S):
            raise TimeoutError("the session of the killed broker does not end")
        return self._at_s

    def _note(self) -> None:
        self._at_s = time.monotonic()
        self._ended.set()


class _PlainWriter:
    """One connection to the leader; when it fails or is refused, the client requests the leader from all brokers."""

    def __init__(self, cluster: Cluster, topic: str, stop: threading.Event) -> None:
        self.acknowledged: list[float] = []
        self._cluster = cluster
        self._topic = topic
        self._stop = stop

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        while not self._stop.is_set():
            for broker_id in self._cluster.leaders_named(self._topic):
                try:
                    await self._write_to(broker_id)
                except (OSError, EOFError):
                    continue  # it is dead, or starting
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _write_to(self, broker_id: int) -> None:
        """Write until stopped or refused. Raises OSError and EOFError when the connection is lost."""
        client = await Client.connect(int(self._cluster.nodes[broker_id].bootstrap.rpartition(":")[2]))
        try:
            while not self._stop.is_set():
                answer = await client.produce(self._topic, batch(_RECORD), version=8)
                if answer.error_code != ErrorCode.NONE:
                    return
                self.acknowledged.append(time.monotonic())
                await asyncio.sleep(_PAUSE_S)
        finally:
            client.close()


class _LibrdkafkaWriter:
    """confluent-kafka's producer, which retries by itself."""

    def __init__(self, cluster: Cluster, topic: str, stop: threading.Event) -> None:
        self.acknowledged: list[float] = []
        self._failures: list[KafkaError] = []
        self._cluster = cluster
        self._topic = topic
        self._stop = stop

    def run(self) -> None:
        """Raises RuntimeError when a record is given up."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, **_LIBRDKAFKA})
        while not self._stop.is_set():
            written = len(self.acknowledged)
            producer.produce(self._topic, _RECORD, partition=0, on_delivery=self._delivered)
            while len(self.acknowledged) == written:
                producer.poll(1.0)
                if self._failures:
                    raise RuntimeError(f"record {written} was not acknowledged: {self._failures[0].str()}")
            time.sleep(_PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(time.monotonic())
        else:
            self._failures.append(error)


def _await_writes(histories: Sequence[list[float]], since_s: float, writing: Sequence[Future[None]]) -> None:
    """Wait until every writer has written again for a while. Raises TimeoutError, and the error that ended a writer."""
    deadline = time.monotonic() + TIMEOUT_S
    while any(len(each) < _RECORDS_AFTER or each[-_RECORDS_AFTER] <= since_s for each in histories):
        for each in writing:
            if each.done():
                each.result()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no client could write for {TIMEOUT_S:g} s after the leader's session had ended")
        time.sleep(_PAUSE_S)
