"""Transactions under faults, black box: real processes, real clients, and the verdict of a checker.

One broker is killed and paused, with a slow disk and a clock that jumps; then leaders and coordinators of three are
killed, paused, cut off and moved, one fault after the other, in an order that a seed gives. Apache Kafka 3.9.2 is
killed and paused as the one broker is: the proof that clients and checker demand no more than Kafka guarantees. Kafka
compacts the table in the meantime.

    ODRADEK_SEED=7            another order, other operations
    ODRADEK_SOAK_ROUNDS=10    that many times every fault on every role, some while a disk is slow or a clock wrong
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.pytest_plugin import BrokerFactory, ClusterFactory
from tests.jvm.kafka import running_kafka
from tests.support.disturbance import CLOCK_STEP, SLOW_DISK, disturbable, disturbed
from tests.support.nemesis import KILL, ROUNDS, SEED, SESSION_FAULTS, Fault, Nemesis, in_order, torment
from tests.support.one_broker_nemesis import BROKER, OneBrokerNemesis
from tests.support.transactions.checker import report
from tests.support.transactions.chronicle import TABLE, TOPICS
from tests.support.transactions.nemesis import (
    DISTURBANCES,
    MOVE_LEADER,
    REASSIGN,
    ROLES,
    SHORT_FAULTS,
    TransactionsNemesis,
)
from tests.support.transactions.workload import DEADLINE_S, TransactionsWorkload

pytestmark = pytest.mark.slow
CLIENTS: Final = 3
PROGRESS: Final = 5 if ROUNDS else 3
"""Transactions of each client between two faults."""
PAUSED_S: Final = 2.0
SLOW_MS: Final = 100
STEP_MS: Final = 900_000
TOGETHER_CHANCE: Final = 0.25
TABLE_CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}


def make_topics(bootstrap_servers: str, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(topic, 2, copies, config=TABLE_CONFIG if topic == TABLE else {}) for topic in TOPICS]
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_S)


def campaign(bootstrap_servers: str, nemesis: Nemesis, faults: Sequence[Fault]) -> None:
    """These faults in the order of the seed, clients that go on after each, and the verdict."""
    with TransactionsWorkload(bootstrap_servers, CLIENTS, str(SEED)) as workload:
        chosen = in_order(faults, random.Random(str(SEED)))
        torment(nemesis, chosen, partial(workload.await_progress, PROGRESS))
        found = workload.finish()
    print(workload.summary(), flush=True)
    assert not found, report(found)


def test_one_broker_that_is_killed_and_paused(
    odradek_broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbable(monkeypatch)
    broker = odradek_broker_factory({"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"})
    make_topics(broker.bootstrap, 1)
    nemesis = OneBrokerNemesis(broker, PAUSED_S, broker)
    campaign(broker.bootstrap, nemesis, [*nemesis.faults, Fault(KILL, BROKER)])


@pytest.mark.jvm
def test_apache_kafka_that_is_killed_and_paused(tmp_path: Path) -> None:
    with running_kafka(tmp_path / "kafka", {"log.cleaner.backoff.ms": "200"}) as broker:
        make_topics(broker.bootstrap, 1)
        nemesis = OneBrokerNemesis(broker, PAUSED_S / 2)  # its session lasts 2 s
        campaign(broker.bootstrap, nemesis, nemesis.faults)


def test_three_brokers_with_faults_on_leaders_and_coordinators(
    odradek_cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturbable(monkeypatch)
    cluster = odradek_cluster(
        3,
        {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"},
        min_insync_replicas=2,
    )
    make_topics(cluster.bootstrap_servers, 3)
    nemesis = TransactionsNemesis(cluster, random.Random(str(SEED)))
    campaign(cluster.bootstrap_servers, nemesis, every_fault(nemesis) if ROUNDS else one_of_each())


def one_of_each() -> list[Fault]:
    """A fault of every kind, on a role each."""
    chance = random.Random(str(SEED))
    kinds = (SESSION_FAULTS, (*SHORT_FAULTS, MOVE_LEADER), (REASSIGN,), DISTURBANCES)
    return [Fault(chance.choice(kind), chance.choice(ROLES)) for kind in kinds]


def every_fault(nemesis: Nemesis) -> list[Fault]:
    """Some of them while a disk is slow or a clock wrong."""
    chance = random.Random(str(SEED))
    return [
        each._replace(disturbed=each.kind not in DISTURBANCES and chance.random() < TOGETHER_CHANCE)
        for each in nemesis.faults
    ]


def test_a_slow_disk_and_a_wrong_clock_affect_a_broker(
    odradek_broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured by a client: the duration of a write, and the time that the broker writes into it."""
    disturbable(monkeypatch)
    broker = odradek_broker_factory()
    stamped = NewTopic("stamped", 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([stamped])["stamped"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
    notified: list[int] = []

    def send() -> float:
        began = time.monotonic()
        producer.produce("stamped", b"1", on_delivery=lambda _, message: notified.append(message.timestamp()[1]))
        assert producer.flush(DEADLINE_S) == 0
        return time.monotonic() - began

    send()
    with disturbed(broker, CLOCK_STEP, STEP_MS):
        send()
    assert STEP_MS <= notified[1] - notified[0] < STEP_MS + DEADLINE_S * 1000
    slowed_ms = 5 * SLOW_MS
    with disturbed(broker, SLOW_DISK, slowed_ms):
        assert send() >= slowed_ms / 1000
    assert notified[2] < notified[0] + DEADLINE_S * 1000
