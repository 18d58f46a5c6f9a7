"""The example snapshot_topic: state in memory and snapshots in Kafka, over kills, and without any state on disk."""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.streams import JSON, STRING
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.examples import snapshot_topic
from odradek.streams.examples.running import Written
from odradek.streams.examples.snapshot import Snapshot
from tests.streams import counting
from tests.streams.running_example import TIMEOUT_S, Running, write
from tests.support.eventually import eventually

SEED: Final = int(os.environ.get("ODRADEK_SEED", "1"))
KILLS: Final = int(os.environ.get("ODRADEK_KILLS", "3"))
BROKER: Final = {**counting.BROKER, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
CHANGELOG: Final = "snapshot-topic-sensors-changelog"
SENSORS: Final = [f"sensor-{number}" for number in range(5)]
EACH: Final = 150
"""Readings that are written before a kill and after the last one."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("snapshots"), BROKER) as running:
        yield running


def test_a_snapshot_is_written_for_each_commit_and_restored() -> None:
    with TopologyTestDriver(snapshot_topic.topology(), {"application.id": snapshot_topic.APPLICATION}) as driver:
        readings = driver.create_input_topic(snapshot_topic.READINGS, STRING, JSON)
        changelog = driver.create_output_topic(CHANGELOG, STRING, JSON)
        for value in (1.0, 3.0):
            readings.pipe_input("sensor", value)
        first, last = changelog.read_key_values_to_list()
    assert first[0] == last[0] == "0_0"
    assert last[1] == {"positions": {"snapshot-topic-readings-0": 1}, "sensors": {"sensor": [2, 1.0, 3.0, 4.0]}}
    store = snapshot_topic.TopicSnapshotStoreBuilder().build()
    store.restore([(b"0_0", json.dumps(each[1]).encode(), 0, None) for each in (first, last)])
    assert store.state.sensors["sensor"].summary() == {"count": 2, "least": 1.0, "most": 3.0, "mean": 2.0}
    store.restore([(b"0_0", None, 0, None)])
    assert store.state == Snapshot()


@pytest.mark.slow
def test_every_reading_counts_once_over_kills_and_on_machines_without_state(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """Two instances; one is killed while it works, and another takes its place, with an empty directory of its own.

    Readers of committed records see every count of each sensor once, so no reading was lost or counted twice.
    """
    draw = random.Random(SEED)
    given: dict[str, list[float]] = defaultdict(list)

    def work() -> None:
        """Some readings more."""
        values = [(draw.choice(SENSORS), round(draw.gauss(20, 1), 2)) for _ in range(EACH)]
        for sensor, value in values:
            given[sensor].append(value)
        write(
            broker,
            [Written(snapshot_topic.READINGS, sensor.encode(), json.dumps(value).encode()) for sensor, value in values],
        )

    instances = [instance(broker, tmp_path / "first"), instance(broker, tmp_path / "second")]
    try:
        for each in instances:
            each.says("RUNNING")
        for kill in range(KILLS):
            before = summarized(broker)
            work()
            # Somewhere in the middle of these, some of which are committed then.
            eventually(lambda: summarized(broker), lambda now, least=before: now > least)
            instances.pop(draw.randrange(len(instances))).process.kill()
            instances.append(instance(broker, tmp_path / f"after-{kill}"))
        for each in instances:
            each.says("RUNNING")
        work()
        total = sum(map(len, given.values()))
        eventually(lambda: summarized(broker), lambda count: count >= total)
        assert any("recovered" in line for each in instances for line in each.process.stdout.lines())
        for each in instances:
            each.end()
    finally:
        for each in instances:
            each.process.kill()
    check_summaries(broker, given)
    check_snapshots(broker)


def instance(broker: BrokerProcess, folder: Path) -> Running:
    properties = ("commit.interval.ms=100", "producer.transaction.timeout.ms=2000", "num.standby.replicas=1")
    options = [part for each in properties for part in ("--property", each)]
    return Running(broker, folder, "snapshot_topic", "--rate", "0", "--partitions", "2", *options)


def summarized(broker: BrokerProcess) -> int:
    """How many summaries are committed."""
    return len(counting.read_all(broker.bootstrap, snapshot_topic.SUMMARIES))


def check_summaries(broker: BrokerProcess, given: Mapping[str, Sequence[float]]) -> None:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key, value in counting.read_all(broker.bootstrap, snapshot_topic.SUMMARIES):
        assert key is not None
        assert value is not None
        found[key.decode()].append(json.loads(value))
    assert {sensor: [each["count"] for each in summaries] for sensor, summaries in found.items()} == {
        sensor: list(range(1, len(values) + 1)) for sensor, values in given.items()
    }
    for sensor, values in given.items():
        last = found[sensor][-1]
        assert (last["least"], last["most"]) == (min(values), max(values))
        assert last["mean"] == pytest.approx(sum(values) / len(values), abs=1e-4)


def check_snapshots(broker: BrokerProcess) -> None:
    """The latest snapshots are those of the offsets that the group has committed."""
    positions: dict[str, int] = {}
    for _, value in counting.read_all(broker.bootstrap, CHANGELOG):
        assert value is not None
        positions.update(json.loads(value)["positions"])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = ConsumerGroupTopicPartitions(snapshot_topic.APPLICATION)
    (answer,) = admin.list_consumer_group_offsets([asked]).values()
    committed = answer.result(TIMEOUT_S).topic_partitions
    assert {f"{each.topic}-{each.partition}": each.offset - 1 for each in committed} == positions
    assert len(positions) == 2
