"""Joins over several partitions and instances: matching rows are joined on any instance, also after tasks
have moved.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import STRING
from odradek.streams.topology import Topology
from tests.streams import counting
from tests.support.eventually import eventually

TOPICS = {"left": 4, "right": 2, "other": 4, "clicks": 3, "foreign": 2, "both": 2, "enriched": 2}
DEADLINE_S = 60.0


@pytest.fixture
def broker(streams_broker: BrokerProcess) -> BrokerProcess:
    counting.make_topics(streams_broker.bootstrap, TOPICS)
    return streams_broker


def foreign_key(value: str) -> str | None:
    key = value.partition("|")[0]
    return None if key == "none" else key


def text(left: Any, right: Any) -> str:
    return f"{left}+{right}"


def joins() -> Topology:
    """A foreign-key join of tables of 4 and 2 partitions, one by equal keys, and one of a stream whose keys change."""
    builder = StreamsBuilder()
    left, right, other = (builder.table(topic) for topic in ("left", "right", "other"))
    left.left_join(right, text, foreign_key=foreign_key).to_stream().to("foreign")
    left.outer_join(other, text).to_stream().to("both")
    clicks = builder.stream("clicks").select_key(lambda key, value: value.partition("|")[0])
    clicks.left_join(left, lambda click, row: click if row is None else f"{click} seen").to("enriched")
    return builder.build()


def latest(bootstrap: str, topic: str) -> dict[str, str]:
    """The table that a topic is the changelog of."""
    found = {key.decode(): value for key, value in counting.read_all(bootstrap, topic) if key is not None}
    return {key: value.decode() for key, value in found.items() if value is not None}


class Tables:
    """The input, and the expected output."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._drawn = random.Random(seed)
        java_like = {"partitioner": "murmur2_random"}  # the partitioner that the subscriptions use
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **java_like})
        self.rows: dict[str, dict[str, str]] = {"left": {}, "right": {}, "other": {}}
        self.clicks = 0

    def change(self, count: int) -> None:
        """Change rows at random, and click."""
        drawn = self._drawn
        for number in range(count):
            topic = drawn.choice(["left", "left", "right", "other"])
            key = f"{'r' if topic == 'right' else 'k'}{drawn.randrange(6 if topic == 'right' else 25)}"
            value = f"{drawn.choice(['r0', 'r1', 'r2', 'r5', 'r9', 'none'])}|{number}"
            if drawn.random() < 0.2:
                self.rows[topic].pop(key, None)
                self._producer.produce(topic, None, key.encode())
            else:
                self.rows[topic][key] = value
                self._producer.produce(topic, value.encode(), key.encode())
            self._producer.produce("clicks", f"k{drawn.randrange(40)}|{number}".encode(), b"any")
            self.clicks += 1
        assert self._producer.flush(DEADLINE_S) == 0

    def check(self) -> None:
        """Await that all joins equal a batch result."""
        left, right, other = self.rows["left"], self.rows["right"], self.rows["other"]
        by_foreign_key = {key: text(value, right.get(foreign_key(value) or "")) for key, value in left.items()}
        eventually(lambda: latest(self._bootstrap, "foreign"), lambda found: found == by_foreign_key)
        by_key = {key: text(left.get(key), other.get(key)) for key in {*left, *other}}
        eventually(lambda: latest(self._bootstrap, "both"), lambda found: found == by_key)
        eventually(lambda: len(counting.read_all(self._bootstrap, "enriched")), lambda count: count == self.clicks)


@pytest.mark.slow
def test_joins_of_two_instances(broker: BrokerProcess, tmp_path: Path) -> None:
    def start(name: str) -> KafkaStreams:
        settings = {
            **counting.QUICK,
            "session.timeout.ms": 30_000,
            "internal.leave.group.on.close": True,
            "application.id": "joins",
            "bootstrap.servers": broker.bootstrap,
            "state.dir": str(tmp_path / name),
            "num.stream.threads": 2,
            "default.key.serde": STRING,
            "default.value.serde": STRING,
        }
        streams = KafkaStreams(joins(), settings)
        streams.start()
        streams.wait_until(State.RUNNING, DEADLINE_S)
        return streams

    tables = Tables(broker.bootstrap, 5)
    first = start("first")
    try:
        tables.change(300)
        second = start("second")
        try:
            tables.change(300)
            tables.check()
            assert first.close(DEADLINE_S, leave_group=True)
            tables.change(300)
            tables.check()
        finally:
            second.close(DEADLINE_S, leave_group=True)
    finally:
        first.close(DEADLINE_S, leave_group=True)
