"""Transactions under faults, black box: real processes, real clients, and the verdict of `transactions_checker`.

One broker is killed and paused; then leaders and coordinators of three are killed, paused and cut off, one fault after
the other, in an order that a seed gives. Apache Kafka 3.9.2 goes through the same as the one broker does: it is the
proof that clients and checker ask for no more than Kafka keeps.

    ODRADEK_SEED=7            another order, other operations
    ODRADEK_SOAK_ROUNDS=10    that many times the faults
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.pytest_plugin import BrokerFactory, ClusterFactory
from tests.cluster.transactions_checker import report
from tests.cluster.transactions_nemesis import FAULTS, ROLES, TransactionsNemesis
from tests.cluster.transactions_workload import PATIENCE_S, TransactionsWorkload
from tests.jvm.kafka import running_kafka

SEED: Final = os.environ.get("ODRADEK_SEED", "1")
ROUNDS: Final = int(os.environ.get("ODRADEK_SOAK_ROUNDS", "0"))
TOPICS: Final = ("orders", "bills")
CLIENTS: Final = 3
PAUSED_S: Final = 2.0
QUICK_FAULTS: Final = 4
"""Of three brokers, without ODRADEK_SOAK_ROUNDS."""


def make_topics(bootstrap_servers: str, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, 2, copies) for topic in TOPICS]).values():
        made.result(PATIENCE_S)


def torment(bootstrap_servers: str, faults: Sequence[Callable[[], None]]) -> None:
    """One fault after the other, and clients that go on after each; then the verdict."""
    with TransactionsWorkload(bootstrap_servers, TOPICS, CLIENTS, SEED) as workload:
        workload.await_progress()
        for fault in faults:
            fault()
            workload.await_progress()
        found = workload.finish()
    print(workload.summary(), flush=True)
    assert not found, report(found)


def in_order(faults: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
    chosen = list(faults) * max(1, ROUNDS)
    random.Random(SEED).shuffle(chosen)
    return chosen


def test_one_broker_that_is_killed_and_paused(odradek_broker_factory: BrokerFactory) -> None:
    broker = odradek_broker_factory({"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"})
    make_topics(broker.bootstrap, 1)

    def kill() -> None:
        broker.kill()
        broker.start()

    def pause() -> None:
        broker.pause()
        time.sleep(PAUSED_S)  # this long is the fault; nothing is waited for
        broker.resume()

    torment(broker.bootstrap, in_order([kill, pause, kill, pause, kill]))


@pytest.mark.jvm
def test_apache_kafka_that_is_killed_and_paused(tmp_path: Path) -> None:
    with running_kafka(tmp_path / "kafka") as broker:
        make_topics(broker.bootstrap, 1)

        def kill() -> None:
            broker.kill()
            broker.start()

        def pause() -> None:
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(PAUSED_S / 2)  # its session lasts 2 s
            os.kill(broker.pid, signal.SIGCONT)

        torment(broker.bootstrap, in_order([kill, pause]))


def test_three_brokers_with_faults_on_leaders_and_coordinators(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(
        3,
        {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"},
        min_insync_replicas=2,
    )
    make_topics(cluster.bootstrap_servers, 3)
    nemesis = TransactionsNemesis(cluster, TOPICS, random.Random(SEED))
    faults = in_order(
        [lambda fault=fault, role=role: nemesis.strike(fault, role) for fault in FAULTS for role in ROLES]
    )
    torment(cluster.bootstrap_servers, faults if ROUNDS else faults[:QUICK_FAULTS])
