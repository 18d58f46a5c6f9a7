"""Exactly once with real clients: consume, transform, produce, with the offsets in the transaction, over kills.

5,000 records are copied by one process after the other while it and the broker are killed at steps that a seed draws.
A read_committed reader of the copy then finds each record once, in its partition, in order.

    ODRADEK_SEED=7            other steps
    ODRADEK_SOAK_ROUNDS=10    that many times five kills and 10,000 records
"""

from __future__ import annotations

import random
from typing import Final

import pytest

from odradek.pytest_plugin import BrokerFactory
from tests.compatibility.brokers import Broker, create_topic
from tests.compatibility.copier import COPY
from tests.compatibility.exactly_once import (
    STEP_TIMEOUT_S,
    Copying,
    Victim,
    copier_command,
    read_committed,
    torment,
    write_lines,
)
from tests.jvm.process import BackgroundProcess
from tests.support.nemesis import ROUNDS, SEED

pytestmark = pytest.mark.slow

PARTITIONS: Final = 3
ONE_ROUND: Final[list[Victim]] = ["copier", "copier", "copier", "broker", "broker"]
VICTIMS: Final[list[Victim]] = ONE_ROUND * ROUNDS or ["copier", "copier", "broker"]
RECORDS: Final = 10_000 * ROUNDS or 5_000
FENCED_MS: Final = 10_000
"""The longest wait of a copier that is to be fenced."""
LONGEST: Final = 40
"""Steps between two kills; a transaction of at most 100 records has four."""

KINDS: Final = [
    "confluent",
    "aiokafka",
    "kafka-python",
    pytest.param("3.9.2/classic", marks=pytest.mark.jvm),
    pytest.param("4.3.0/classic", marks=pytest.mark.jvm),
]
SILENCE_S: Final = {"confluent": 5, "confluent-consumer": 5, "kafka-python": 5}
SHORT_SESSIONS: Final = {
    "group.consumer.min.session.timeout.ms": "1500",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
NEW_KINDS: Final = ["confluent-consumer", pytest.param("4.3.0/consumer", marks=pytest.mark.jvm)]


def copy_over_kills(broker: Broker, topic: str, group: str, kind: str) -> None:
    source, target = f"{topic}-from", f"{topic}-to"
    create_topic(broker, source, PARTITIONS)
    create_topic(broker, target, PARTITIONS)
    written = write_lines(broker, source, PARTITIONS, RECORDS)
    chance = random.Random(f"{SEED} {kind}")
    victims = chance.sample(VICTIMS, len(VICTIMS))
    copying = Copying(copier_command(kind, broker.bootstrap, group, source, target), SILENCE_S.get(kind, 40))
    try:
        torment(broker, copying, victims, chance, LONGEST)
        found = read_committed(broker, target, PARTITIONS, RECORDS, copying)
    finally:
        copying.close()
    print(f"{kind}: copiers ended with {copying.endings}", flush=True)
    assert found == [[COPY + line for line in lines] for lines in written]


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_is_copied_once_over_kills(broker: Broker, topic: str, group: str, kind: str) -> None:
    copy_over_kills(broker, topic, group, kind)


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_each_record_is_copied_once_over_kills_by_the_consumer_protocol(
    request: pytest.FixtureRequest, odradek_broker_factory: BrokerFactory, topic: str, group: str, kind: str
) -> None:
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("Apache Kafka 3.9.2 with ZooKeeper has no consumer protocol (KIP-848)")
    # The broker sets how long a copier that was killed keeps its partitions.
    copy_over_kills(odradek_broker_factory(SHORT_SESSIONS), topic, group, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_copier_fences_the_first(broker: Broker, topic: str, group: str, kind: str) -> None:
    source, target = f"{topic}-from", f"{topic}-to"
    create_topic(broker, source)
    create_topic(broker, target)
    command = copier_command(kind, broker.bootstrap, group, source, target)
    with BackgroundProcess(
        copier_command(kind, broker.bootstrap, group, source, target, max_block_ms=FENCED_MS)
    ) as first:
        written = write_lines(broker, source, 1, 1000)
        first.stdout.wait_for("committed", STEP_TIMEOUT_S)
        with BackgroundProcess(command) as second:
            second.stdout.wait_for("ready", STEP_TIMEOUT_S)
            written[0] += write_lines(broker, source, 1, 1000)[0]
            (found,) = read_committed(broker, target, 1, len(written[0]))
            # Java's client that is fenced while AddOffsetsToTxn waits for its turn lets it wait for max.block.ms: its
            # sender does nothing more, and never completes the request (with Apache Kafka, too).
            first.stdout.wait_for("fatal", STEP_TIMEOUT_S)
            assert second.running
    assert found == [COPY + line for line in written[0]]
