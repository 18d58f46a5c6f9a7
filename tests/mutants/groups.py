"""Mistakes that Kafka once made with groups and their offsets, each a mutant for the simulation to find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.state import consumer_group, consumer_group_reconciliation
from odradek.broker.group.state.classic_requests import ClassicGroupState
from odradek.broker.group.state.consumer_group_members import ConsumerMember
from odradek.broker.group.state.consumer_group_requests import HeartbeatRequest
from odradek.broker.group.state.group import Group
from odradek.broker.group.state.offsets import Offsets
from odradek.broker.runtime.state.effects import Effect, Now
from odradek.protocol.topic_partition import TopicPartition
from tests.mutants.replication import Plant


@contextmanager
def kafka_17507() -> Iterator[None]:
    """A marker is answered although the group has not taken over the offsets of the transaction."""

    def end(offsets: OffsetMetadataManager, partition: int, producer_id: int, commit: bool) -> None:
        return None

    with mock.patch.object(OffsetMetadataManager, "end_transaction", end):
        yield


@contextmanager
def two_owners() -> Iterator[None]:
    """A member is assigned a partition that another has not revoked yet (KIP-848)."""
    real = consumer_group_reconciliation._sort_out

    def sort_out(member: Any, target: Any, owner: Any) -> Any:
        return real(member, target, lambda topic_id, partition: None)

    with mock.patch.object(consumer_group_reconciliation, "_sort_out", sort_out):
        yield


@contextmanager
def kafka_19163() -> Iterator[None]:
    """A group is deleted although a transaction holds offsets for it."""

    def in_use(offsets: Offsets) -> bool:
        return bool(offsets._committed or offsets._staged)

    with mock.patch.object(Offsets, "in_use", property(in_use)):
        yield


@contextmanager
def kafka_13636() -> Iterator[None]:
    """Offsets expire by their age while the group is between two generations, as if it did not use them."""
    real = Group.expire

    def expire(group: Group, now: Now, among: list[TopicPartition] | None = None) -> list[Effect]:
        if group.membership.state in (ClassicGroupState.PREPARING, ClassicGroupState.COMPLETING):
            return group._write_tombstones(
                group.offsets.expire(now.wall_ms, group._settings.offsets_retention_ms, None), now
            )
        return real(group, now, among)

    with mock.patch.object(Group, "expire", expire):
        yield


@contextmanager
def kafka_14639() -> Iterator[None]:
    """The coordinator accepts the owned partitions of a heartbeat with an old epoch (KAFKA-12984 as well)."""
    real = consumer_group._check_epoch

    def check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
        if request.epoch > member.epoch:
            real(member, request)

    with mock.patch.object(consumer_group, "_check_epoch", check_epoch):
        yield


@contextmanager
def tombstone_after_offset() -> Iterator[None]:
    """An offset that precedes a tombstone is not written again when its transaction commits."""

    def before_commit(offsets: OffsetMetadataManager, partition: int, producer_id: int) -> None:
        return None

    with mock.patch.object(OffsetMetadataManager, "before_commit", before_commit):
        yield


GROUP_MUTANTS: dict[str, Plant] = {
    "KAFKA-17507": kafka_17507,
    "KAFKA-19163": kafka_19163,
    "KAFKA-13636": kafka_13636,
    "KAFKA-14639": kafka_14639,
    "two owners": two_owners,
    "tombstone after offset": tombstone_after_offset,
}
