"""Committed offsets of a group: commits them as a member and fetches them (Kafka: ConsumerCoordinator).

The rules are those of Kafka's ConsumerCoordinator: retriable errors are retried with growing backoff until
default.api.timeout.ms is over; an error that fences or removes the member is raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.client.connection import code_of
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.group.connection import CoordinatorLink
from odradek.streams.group.group_protocol import CommitFailed, CommitFailure, MembershipConfig, MembershipError, refusal

BY_NAME: Final = 9
"""OffsetCommit contains topic names up to this version, and has their ids from the next on."""
ONE_GROUP: Final = 7
"""OffsetFetch contains a single group up to this version."""
MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""Errors after which the member has to find the coordinator again."""
_KINDS: Final = {
    ErrorCode.FENCED_INSTANCE_ID: CommitFailure.FENCED,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailure.MIGRATED,
    ErrorCode.ILLEGAL_GENERATION: CommitFailure.MIGRATED,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitFailure.REBALANCING,
}


class Committed(NamedTuple):
    """A committed offset: the offset of the next record, its metadata, the leader epoch or -1."""

    offset: int
    metadata: str
    leader_epoch: int


UNKNOWN_TOPIC_S: Final = 0.2
"""How long a commit waits for a coordinator that does not have a topic; the thread checks meanwhile if it exists."""


class CommittingMember(NamedTuple):
    """The committing member: its generation and member id, or -1 and empty for a commit without membership."""

    generation: int
    member_id: str


Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]
"""What to commit: offset, leader epoch (None: unknown), metadata."""


def backoffs(config: MembershipConfig) -> Iterator[float]:
    """Backoffs in seconds between retries, from retry.backoff.ms on, doubled up to retry.backoff.max.ms."""
    pause = config.retry_backoff_ms
    while True:
        yield pause / 1000
        pause = min(pause * 2, config.retry_backoff_max_ms)


def commit(link: CoordinatorLink, config: MembershipConfig, who: CommittingMember, offsets: Offsets) -> None:
    """Commit `offsets`; returns when the coordinator has stored them. Raises CommitFailed, VersionsApartError."""
    topics: dict[str, list[m.OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, epoch, metadata) in offsets.items():
        topics.setdefault(topic, []).append(
            m.OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                committed_metadata=metadata,
            )
        )
    request = m.OffsetCommitRequest(
        group_id=config.group_id,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=config.group_instance_id,
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )

    began = time.monotonic()

    def attempt() -> tuple[ErrorCode, str] | None:
        answer: m.OffsetCommitResponse = link.ask(request, highest=BY_NAME)
        refused = [
            (code_of(part.error_code), f"{topic.name}-{part.partition_index}")
            for topic in answer.topics
            for part in topic.partitions
            if part.error_code
        ]
        for code, where in refused:
            if not code.retriable and code is not ErrorCode.REQUEST_TIMED_OUT:
                raise CommitFailed(_KINDS.get(code, CommitFailure.REFUSED), code, f"{config.group_id}, {where}")
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and time.monotonic() - began > UNKNOWN_TOPIC_S:
                raise CommitFailed(CommitFailure.UNKNOWN_TOPIC, code, f"{config.group_id}, {where}")
        return refused[0] if refused else None

    last = _patiently(link, config, attempt)
    if last is not None:
        raise CommitFailed(CommitFailure.TIMED_OUT, last[0], f"{config.group_id}, {last[1]}")


def fetch(
    link: CoordinatorLink, config: MembershipConfig, partitions: Iterable[TopicPartition], require_stable: bool
) -> dict[TopicPartition, Committed]:
    """The committed offsets of those partitions that have one.

    With `require_stable` it waits while an open transaction may change them (KIP-447). Raises MembershipError when the
    member is not authorized, or no coordinator answers in time.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    found: dict[TopicPartition, Committed] = {}
    if not topics:
        return found
    request = m.OffsetFetchRequest(
        group_id=config.group_id,
        topics=[
            m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in topics.items()
        ],
        require_stable=require_stable,
    )

    def attempt() -> tuple[ErrorCode, str] | None:
        found.clear()
        answer: m.OffsetFetchResponse = link.ask(request, highest=ONE_GROUP)
        codes = {answer.error_code: config.group_id}
        for topic in answer.topics:
            for part in topic.partitions:
                codes.setdefault(part.error_code, f"{topic.name}-{part.partition_index}")
                if part.committed_offset >= 0:
                    where = (topic.name, part.partition_index)
                    found[where] = Committed(part.committed_offset, part.metadata or "", part.committed_leader_epoch)
        refused = [(code_of(number), where) for number, where in codes.items() if number]
        for code, _ in refused:
            if not code.retriable:
                raise refusal(code, config)
        return refused[0] if refused else None

    last = _patiently(link, config, attempt)
    if last is not None:
        raise MembershipError(
            last[0], f"the committed offsets of {config.group_id} could not be read ({last[0].name}): {last[1]}"
        )
    return found


def _patiently(
    link: CoordinatorLink, config: MembershipConfig, attempt: Callable[[], tuple[ErrorCode, str] | None]
) -> tuple[ErrorCode, str] | None:
    """Retry until `attempt` returns no error, or the time is over: then returns its last error."""
    deadline = time.monotonic() + config.default_api_timeout_ms / 1000
    for pause in backoffs(config):
        try:
            last = attempt()
            if last is None:
                return None
        except KafkaError as error:
            if not error.code.retriable:
                raise refusal(error.code, config) from error
            last = error.code, error.message
        except (OSError, ProtocolError) as error:
            last = ErrorCode.NETWORK_EXCEPTION, str(error)
        if last[0] in MOVED:
            link.forget()
        if link.ended or time.monotonic() + pause > deadline:
            return last
        time.sleep(pause)  # blocks only the calling thread
    raise AssertionError("backoffs never end")
