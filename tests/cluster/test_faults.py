"""Faults on real processes under load: every record that was acknowledged with acks=all is there at the end, with
Kafka's read guarantees.

Three brokers, a topic of three partitions in three copies, min.insync.replicas 2, three producers (two idempotent, one
of them with one request at a time), a reader. A campaign runs every fault on a role that a seed gives, and those that
end a session on a leader too, over Odradek's own registry; over Apache ZooKeeper it runs those that end a session, each
on one role. It ends with the verdict of `tests.support.checker` and with every copy of a partition the same, byte for
byte.

    ODRADEK_SEED=7            another order, other roles and other victims
    ODRADEK_SOAK_ROUNDS=10    every fault on every role that often, over both; the registry is gone for a minute
"""

from __future__ import annotations

import random
from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.cluster_process import ClusterProcess
from odradek.protocol.batch import headers
from odradek.pytest_plugin import ClusterFactory
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.checker import Sessions, report
from tests.support.cluster_nemesis import (
    BROKER_FAULTS,
    CONTROLLER,
    LEADER,
    LEADERS_RETURN,
    METADATA_STORE,
    ROLES,
    ClusterNemesis,
    OwnRegistry,
    RegistryHandle,
)
from tests.support.eventually import eventually
from tests.support.nemesis import (
    CUT_REGISTRY,
    ISOLATE,
    KILL,
    PAUSE,
    ROUNDS,
    SEED,
    SESSION_FAULTS,
    Fault,
    in_order,
    torment,
)
from tests.support.workload import CARELESS, DEADLINE_S, Workload

pytestmark = pytest.mark.slow
TOPIC: Final = "orders"
PARTITIONS: Final = 3
REPLICAS: Final = 3
OVER_ZOOKEEPER: Final = (
    Fault(KILL, LEADER),
    Fault(PAUSE, CONTROLLER),
    Fault(ISOLATE, LEADER),
    Fault(CUT_REGISTRY, CONTROLLER),
)
"""Each fault that ends a session, once. The roles differ in requests between brokers, the same over both stores."""


def make_topic(cluster: ClusterProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])[TOPIC].result(DEADLINE_S)
    cluster.await_topic(TOPIC)


def stored(cluster: ClusterProcess, partition: int) -> list[bytes]:
    """The partition's segments, one after the other, on each broker."""
    return [
        b"".join(path.read_bytes() for path in sorted((broker.data_dir / f"{TOPIC}-{partition}").glob("*.log")))
        for broker in cluster.brokers.values()
    ]


def await_same_copies(cluster: ClusterProcess) -> None:
    """Followers are a fetch behind when the leader acknowledges the last write."""
    for partition in range(PARTITIONS):
        eventually(
            lambda partition=partition: [(len(copy), hash(copy)) for copy in stored(cluster, partition)],
            lambda copies: len(set(copies)) == 1,
            f"the copies of {TOPIC}-{partition} are equal (size and hash of each)",
        )
        assert stored(cluster, partition)[0], f"no segment was stored of {TOPIC}-{partition}"


def epochs_in(cluster: ClusterProcess, partition: int) -> str:
    """Where each epoch of a leader and of an idempotent producer begins, on the first broker: the input of a
    verdict.
    """
    begun: dict[tuple[int, ...], str] = {}
    for _, header in headers(stored(cluster, partition)[0]):
        written = (header.leader_epoch, header.producer_id, header.producer_epoch)
        begun.setdefault(written, f"  {header.base_offset}: {written} from sequence {header.base_sequence}")
    return "\n".join([f"partition {partition}, (leader epoch, producer id, its epoch):", *begun.values()])


def sessions_of(cluster: ClusterProcess, partition: int) -> Sessions:
    """The producer of each offset, by the segments of the leader."""
    broker = cluster.brokers[cluster.leader_of(TOPIC, partition)]
    paths = sorted((broker.data_dir / f"{TOPIC}-{partition}").glob("*.log"))
    return {
        offset: (header.producer_id, header.producer_epoch)
        for path in paths
        for _, header in headers(path.read_bytes())
        for offset in range(header.base_offset, header.base_offset + header.last_offset_delta + 1)
    }


def conclude(cluster: ClusterProcess, workload: Workload) -> None:
    """The verdict, once all faults have ended."""
    final = workload.finish()
    print(f"{workload.history.acknowledged()} acknowledged; other answers: {dict(workload.errors)}", flush=True)
    sessions = [sessions_of(cluster, partition) for partition in range(PARTITIONS)]
    assert all(set(log) <= set(written) for log, written in zip(final, sessions, strict=True))
    anomalies = workload.history.anomalies(final, sessions)
    assert not anomalies, "\n".join([report(anomalies), *map(partial(epochs_in, cluster), range(PARTITIONS))])
    await_same_copies(cluster)


def campaign(cluster: ClusterProcess, registry: RegistryHandle, faults: Container[Fault]) -> None:
    """These faults and those of the registry, in the order of the seed, and the verdict; a soak runs every fault on
    every role.
    """
    chance = random.Random(SEED)
    with Workload(cluster.bootstrap_servers, TOPIC, PARTITIONS) as workload:
        nemesis = ClusterNemesis(cluster, registry, workload, TOPIC, chance)
        chosen = [each for each in nemesis.faults if ROUNDS or each.target == METADATA_STORE or each in faults]
        torment(nemesis, in_order(chosen, chance), workload.await_progress)
        conclude(cluster, workload)


def on_drawn_roles() -> set[Fault]:
    """Every fault on one role, and those that end a session on a leader."""
    chance = random.Random(SEED)
    drawn = {Fault(kind, chance.choice(ROLES)) for kind in BROKER_FAULTS}
    return drawn | {Fault(kind, LEADER) for kind in SESSION_FAULTS}


@pytest.mark.parametrize("fault", [KILL, CUT_REGISTRY])
def test_a_dead_leader_loses_no_acknowledged_record(odradek_cluster: ClusterFactory, fault: str) -> None:
    cluster = odradek_cluster(3, LEADERS_RETURN, min_insync_replicas=2)
    make_topic(cluster)
    with Workload(cluster.bootstrap_servers, TOPIC, PARTITIONS) as workload:
        nemesis = ClusterNemesis(cluster, OwnRegistry(cluster), workload, TOPIC, random.Random(SEED))
        torment(nemesis, [Fault(fault, LEADER)], workload.await_progress)
        conclude(cluster, workload)


def test_the_checker_finds_the_records_that_acks_1_loses(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(3, LEADERS_RETURN, min_insync_replicas=2)
    make_topic(cluster)
    with Workload(cluster.bootstrap_servers, TOPIC, PARTITIONS, CARELESS) as workload:
        nemesis = ClusterNemesis(cluster, OwnRegistry(cluster), workload, TOPIC, random.Random(SEED))
        torment(nemesis, [Fault(ISOLATE, LEADER)], workload.await_progress)
        final = workload.finish()
    assert {each.kind for each in workload.history.anomalies(final)} >= {"lost-write"}
    await_same_copies(cluster)


@pytest.mark.slow
def test_no_record_is_lost_over_odradeks_registry(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(3, LEADERS_RETURN, min_insync_replicas=2)
    make_topic(cluster)
    campaign(cluster, OwnRegistry(cluster), on_drawn_roles())


@pytest.mark.slow
@pytest.mark.jvm
def test_no_record_is_lost_over_apache_zookeeper(odradek_cluster: ClusterFactory, tmp_path: Path) -> None:
    zookeeper = ZooKeeperServer(tmp_path, tmp_path / "zookeeper")
    zookeeper.start()
    try:
        cluster = odradek_cluster(3, LEADERS_RETURN, min_insync_replicas=2, zookeeper=zookeeper.connect)
        make_topic(cluster)
        campaign(cluster, zookeeper, OVER_ZOOKEEPER)
    finally:
        zookeeper.stop()
