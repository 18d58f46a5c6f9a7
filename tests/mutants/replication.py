"""Mistakes that Kafka once made in replication, each a mutant for the simulation to find.

Each mutant patches the real code while it is active; no production path contains it. The name is the KIP or the issue
in which the mistake was found or fixed; VERIFICATION has the minimal trace of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from odradek.broker.controller.state.partition_state_machine import PartitionStateMachine
from odradek.broker.controller.state.steps import Steps, Write
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Check
from odradek.broker.replication import follower_replica as follower_module
from odradek.broker.replication.follower_replica import FollowerReplica
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.replication.state.follower import FetchPosition
from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine, PendingIsr
from odradek.protocol.errors import ErrorCode

Plant = Callable[[], AbstractContextManager[None]]


def _without_epoch(follower: FollowerReplica, leader_epoch: int) -> FetchPosition:
    log = follower.replica.log
    return FetchPosition(log.end_offset, -1, leader_epoch, log.start_offset)


@contextmanager
def kip_101_loss() -> Iterator[None]:
    """A follower truncates its log to its own high watermark, which may lag behind acknowledged records."""
    real = Replica.follow

    def follow(replica: Replica, state: LeaderAndIsr) -> None:
        real(replica, state)
        FollowerReplica(replica, replica._clock).truncate_to(replica.machine.high_watermark)

    with (
        mock.patch.object(Replica, "follow", follow),
        mock.patch.object(FollowerReplica, "fetch_position", _without_epoch),
    ):
        yield


@contextmanager
def kip_101_divergence() -> Iterator[None]:
    """A follower fetches on from its end, without regard to the leader's log below."""
    with mock.patch.object(FollowerReplica, "fetch_position", _without_epoch):
        yield


@contextmanager
def kip_279() -> Iterator[None]:
    """A follower takes the leader's end of an epoch for its own."""

    def leaders_end(leader_epoch: int, leader_end: int, epochs: Any, log_end: int, fallback: int) -> int:
        return min(leader_end if leader_end >= 0 else fallback, log_end)

    with mock.patch.object(follower_module, "truncation_offset", leaders_end):
        yield


@contextmanager
def kip_320() -> Iterator[None]:
    """A follower looks up once where its log diverges, and fetches without an epoch from then on (KAFKA-7395)."""
    settled: dict[tuple[int, int], None] = {}
    real = FollowerReplica.replicate

    def position(follower: FollowerReplica, leader_epoch: int) -> FetchPosition:
        replica, log = follower.replica, follower.replica.log
        known = (id(replica), replica.machine.leader_epoch) in settled
        return FetchPosition(log.end_offset, -1 if known else log.epochs.latest, -1, log.start_offset)

    def replicate(follower: FollowerReplica, asked: FetchPosition, *answer: Any) -> None:
        replica = follower.replica
        settled[id(replica), replica.machine.leader_epoch] = None
        real(follower, asked._replace(leader_epoch=replica.machine.leader_epoch), *answer)

    with (
        mock.patch.object(FollowerReplica, "fetch_position", position),
        mock.patch.object(FollowerReplica, "replicate", replicate),
    ):
        yield


@contextmanager
def kafka_7128() -> Iterator[None]:
    """A follower joins the ISR at the high watermark of a new leader, which may lag behind what is committed."""
    real = PartitionMachine.propose_expansion

    def propose(machine: PartitionMachine, replica_id: int) -> PendingIsr | None:
        remote = machine.remotes.get(replica_id)
        if remote is None or machine.pending is not None or replica_id in machine.isr:
            return real(machine, replica_id)
        if remote.end_offset < machine.high_watermark:
            return None
        return machine._propose(machine.isr | {replica_id})

    with mock.patch.object(PartitionMachine, "propose_expansion", propose):
        yield


@contextmanager
def async_isr() -> Iterator[None]:
    """The high watermark is taken from the old ISR while the controller may already have a larger one (KAFKA-12686)."""
    real_propose, real_advance = PartitionMachine._propose, PartitionMachine._advance

    def propose(machine: PartitionMachine, isr: frozenset[int]) -> PendingIsr:
        change = real_propose(machine, isr)
        machine.maximal_isr = machine.isr
        return change

    def advance(machine: PartitionMachine, now_ms: int) -> bool:
        lag, machine.max_lag_ms = machine.max_lag_ms, -1  # a replica that is about to join is not waited for either
        try:
            return real_advance(machine, now_ms)
        finally:
            machine.max_lag_ms = lag

    with (
        mock.patch.object(PartitionMachine, "_propose", propose),
        mock.patch.object(PartitionMachine, "_advance", advance),
    ):
        yield


@contextmanager
def kip_380() -> Iterator[None]:
    """A broker applies a control request that was meant for the process before this one."""
    real = ReplicaManager._refusal

    def refusal(replica_manager: ReplicaManager, order: Any) -> ErrorCode:
        order.broker_epoch = -1
        return real(replica_manager, order)

    real_init = ReplicaManager.__init__

    def init(replica_manager: ReplicaManager, parts: Any) -> None:
        real_init(replica_manager, parts)
        replica_manager._registered.set()

    with mock.patch.object(ReplicaManager, "_refusal", refusal), mock.patch.object(ReplicaManager, "__init__", init):
        yield


@contextmanager
def kafka_6082() -> Iterator[None]:
    """A controller that was replaced wakes up and writes to the registry."""
    always_true = Check(znodes.BROKER_IDS)

    def write(partitions: PartitionStateMachine, operations: Any) -> Steps[Any]:
        # The shell takes the first result for that of the check of the epoch.
        results = yield Write((always_true, *operations))
        return results

    with mock.patch.object(PartitionStateMachine, "write", write):
        yield


@contextmanager
def late_fsync() -> Iterator[None]:
    """At the end of an fsync the leader ignores followers that have fetched past it meanwhile.

    The write waits for the next one; a mistake of this broker, not of Kafka's.
    """
    real = PartitionMachine.appended

    def appended(machine: PartitionMachine, local_end: int, now_ms: int = 0, *, flushed: bool = False) -> bool:
        return real(machine, local_end, now_ms)

    with mock.patch.object(PartitionMachine, "appended", appended):
        yield


MUTANTS: dict[str, Plant] = {
    "KIP-101 loss": kip_101_loss,
    "KIP-101 divergence": kip_101_divergence,
    "KIP-279": kip_279,
    "KIP-320": kip_320,
    "KAFKA-7128": kafka_7128,
    "AsyncIsr": async_isr,
    "KIP-380": kip_380,
    "KAFKA-6082": kafka_6082,
}

NEED_MOVES = frozenset({"KIP-279"})
"""Found where leaders change often: two brokers lead one after the other, and neither has the records of the other."""
