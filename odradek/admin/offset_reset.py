"""New offsets for a group without members: the plan of a reset (Kafka: ConsumerGroupCommand.resetOffsets, KIP-122)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.admin import offsets
from odradek.admin.client import AdminClient
from odradek.admin.group_offsets import CommittedOffset
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition


class Bounds(NamedTuple):
    """The first offset of a partition, and the one after its last record."""

    start: int
    end: int

    def clip(self, offset: int) -> int:
        """The nearest offset that the log has."""
        return min(max(offset, self.start), self.end)


class OffsetChange(NamedTuple):
    """A partition's committed offset, None without one, and the one that it gets."""

    topic: str
    partition: int
    current: int | None
    new: int


Target = Callable[[TopicPartition, Bounds, int | None], int]
"""The new offset of a partition from its bounds and its committed offset. Raises KafkaError."""


def to_earliest(place: TopicPartition, bounds: Bounds, current: int | None) -> int:
    """The first record."""
    return bounds.start


def to_latest(place: TopicPartition, bounds: Bounds, current: int | None) -> int:
    """The end: only records that are written later."""
    return bounds.end


def to_current(place: TopicPartition, bounds: Bounds, current: int | None) -> int:
    """The committed offset; the end where there is none."""
    return bounds.end if current is None else current


def to_offset(offset: int) -> Target:
    """The same offset in every partition, or the nearest that the log has."""
    return lambda place, bounds, current: bounds.clip(offset)


def shift_by(number: int) -> Target:
    """So many records after the committed offset; before it, for a negative number."""

    def shifted(place: TopicPartition, bounds: Bounds, current: int | None) -> int:
        if current is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the group has no committed offset to shift")
        return bounds.clip(current + number)

    return shifted


def to_offsets(wanted: Mapping[TopicPartition, int]) -> Target:
    """An offset for each partition, or the nearest that the log has."""
    return lambda place, bounds, current: bounds.clip(wanted[place])


def to_found(found: Mapping[TopicPartition, int | KafkaError]) -> Target:
    """The offset that was found for each partition (`offsets_at`), or its error."""

    def offset_of(place: TopicPartition, bounds: Bounds, current: int | None) -> int:
        offset = found[place]
        if isinstance(offset, KafkaError):
            raise offset
        return offset

    return offset_of


def plan_reset(
    client: AdminClient,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    target: Target,
) -> dict[TopicPartition, OffsetChange | KafkaError]:
    """The new offset of each partition."""
    results: dict[TopicPartition, OffsetChange | KafkaError] = {}
    places = sorted(set(partitions))
    starts = offsets.list_offsets(client, dict.fromkeys(places, offsets.EARLIEST))
    ends = offsets.list_offsets(client, dict.fromkeys(places, offsets.LATEST))
    for place in places:
        start, end, known = starts[place], ends[place], committed.get(place)
        if isinstance(start, KafkaError) or isinstance(end, KafkaError):
            results[place] = start if isinstance(start, KafkaError) else _error(end)
            continue
        current = None if known is None else known.offset
        try:
            new = target(place, Bounds(start.offset, end.offset), current)
        except KafkaError as error:
            results[place] = error
        else:
            results[place] = OffsetChange(*place, current, new)
    return results


def offsets_at(
    client: AdminClient, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int | KafkaError]:
    """The first offset at or after a time in each partition; the end where no record is as late."""
    places = sorted(set(partitions))
    found = offsets.list_offsets(client, dict.fromkeys(places, timestamp_ms))
    late = [
        place for place, each in found.items() if not isinstance(each, KafkaError) and each.offset == offsets.NO_OFFSET
    ]
    found |= offsets.list_offsets(client, dict.fromkeys(late, offsets.LATEST)) if late else {}
    return {place: each if isinstance(each, KafkaError) else each.offset for place, each in found.items()}


def _error(result: object) -> KafkaError:
    assert isinstance(result, KafkaError)
    return result
