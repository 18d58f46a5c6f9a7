"""Transactions and producers: list, describe, find hanging ones, abort (Kafka: Admin.listTransactions,
describeTransactions, describeProducers, abortTransaction; TransactionsCommand; KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from odradek.admin.client import TRANSACTION, AdminClient, check, outcome
from odradek.admin.offsets import ask_leaders, by_topic
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

NONE: Final = -1
LONGEST_TIMEOUT_MS: Final = 15 * 60 * 1000
"""The default of transaction.max.timeout.ms."""
SAFETY_MS: Final = 5 * 60 * 1000
"""What find-hanging adds to it."""
_OVER: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""The states of a transaction in which its partitions have no open batch of it."""
_WITH_DURATION: Final = 1
"""The first version of ListTransactions with a filter by age (KIP-994)."""


class TransactionListing(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id; the start is -1 before its first transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class ProducerDescription(NamedTuple):
    """A producer that a partition remembers; the start offset is -1 without an open transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int


class OpenTransaction(NamedTuple):
    """A transaction that a partition waits for."""

    topic: str
    partition: int
    producer: ProducerDescription


def list_transactions(
    client: AdminClient, states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration_ms: int = NONE
) -> list[TransactionListing]:
    """The transactional ids of every coordinator. Raises KafkaError, also for a state that does not exist."""

    def attempt() -> list[TransactionListing]:
        requests = {}
        for broker_id in client.broker_ids():
            request = m.ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))
            if duration_ms != NONE and client.version_at(broker_id, m.ListTransactionsRequest) < _WITH_DURATION:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"broker {broker_id} cannot filter by duration")
            request.duration_filter = duration_ms
            requests[broker_id] = request
        found = []
        for broker_id, answer in client.brokers(requests).items():
            if isinstance(answer, Exception):
                raise answer
            check(answer.error_code)
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} does not have the state {unknown}")
            found += [
                TransactionListing(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]
        return sorted(found)

    return client.call(attempt)


def describe_transactions(
    client: AdminClient, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | KafkaError]:
    """The transactional ids; TRANSACTIONAL_ID_NOT_FOUND for one that does not exist."""

    def attempt(pending: list[str]) -> dict[str, TransactionDescription | KafkaError]:
        results: dict[str, TransactionDescription | KafkaError] = {}
        groups: dict[int, list[str]] = {}
        for name, coordinator in client.coordinators(TRANSACTION, pending).items():
            if isinstance(coordinator, KafkaError):
                results[name] = coordinator
            else:
                groups.setdefault(coordinator, []).append(name)
        for broker_id, names in groups.items():
            answer = client.broker(broker_id, m.DescribeTransactionsRequest(transactional_ids=names))
            for each in answer.transaction_states:
                results[each.transactional_id] = outcome(_description(each, broker_id), each.error_code)
        return results

    return client.each(transactional_ids, attempt)


def describe_producers(
    client: AdminClient, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ProducerDescription] | KafkaError]:
    """The producers of partitions, from their leaders or from one replica."""
    requested = m.DescribeProducersRequest

    def request(group: list[TopicPartition]) -> m.DescribeProducersRequest:
        topics = [
            requested.TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(group).items()
        ]
        return requested(topics=topics)

    def results(answer: m.DescribeProducersResponse) -> dict[TopicPartition, list[ProducerDescription] | KafkaError]:
        return {
            (topic.name, each.partition_index): outcome(
                [_producer(state) for state in each.active_producers], each.error_code, each.error_message
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    if broker_id is None:
        return ask_leaders(client, partitions, request, results)
    places = list(partitions)
    return results(client.call(lambda: client.broker(broker_id, request(places))))


def find_hanging(
    client: AdminClient, partitions: Sequence[TopicPartition], *, now_ms: int, longest_timeout_ms: int
) -> tuple[list[OpenTransaction], dict[TopicPartition, KafkaError]]:
    """The transactions that no coordinator will end, and the errors of partitions (Kafka: FindHangingTransactions).

    A transaction that is older than any timeout hangs, unless the coordinator of its producer has its partition in a
    transaction that is not over.
    """
    described = describe_producers(client, partitions)
    errors = {place: each for place, each in described.items() if isinstance(each, KafkaError)}
    candidates = [
        OpenTransaction(*place, producer)
        for place, found in described.items()
        if not isinstance(found, KafkaError)
        for producer in found
        if producer.start_offset != NONE and now_ms - producer.last_timestamp_ms >= longest_timeout_ms
    ]
    if not candidates:
        return [], errors
    ids = {each.producer.producer_id for each in candidates}
    names = [each.transactional_id for each in list_transactions(client, producer_ids=sorted(ids))]
    open_now: set[tuple[int, TopicPartition]] = set()
    for description in describe_transactions(client, names).values():
        if isinstance(description, TransactionDescription) and description.state not in _OVER:
            open_now.update((description.producer_id, place) for place in description.partitions)
    hanging = [each for each in candidates if (each.producer.producer_id, (each.topic, each.partition)) not in open_now]
    return hanging, errors


def abort_transaction(
    client: AdminClient, place: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker into a partition, on behalf of no coordinator. Raises KafkaError."""
    requested = m.WriteTxnMarkersRequest

    def request(group: list[TopicPartition]) -> m.WriteTxnMarkersRequest:
        topics = [
            requested.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(group).items()
        ]
        marker = requested.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=topics,
            coordinator_epoch=coordinator_epoch,
        )
        return requested(markers=[marker])

    def results(answer: m.WriteTxnMarkersResponse) -> dict[TopicPartition, bool | KafkaError]:
        return {
            (topic.name, each.partition_index): outcome(True, each.error_code)
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        }

    result = ask_leaders(client, [place], request, results)[place]
    if isinstance(result, KafkaError):
        raise result


def _description(each: m.DescribeTransactionsResponse.TransactionState, broker_id: int) -> TransactionDescription:
    return TransactionDescription(
        each.transactional_id,
        broker_id,
        each.producer_id,
        each.producer_epoch,
        each.transaction_state,
        each.transaction_timeout_ms,
        each.transaction_start_time_ms,
        tuple(sorted((topic.topic, number) for topic in each.topics for number in topic.partitions)),
    )


def _producer(state: Any) -> ProducerDescription:
    return ProducerDescription(
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.current_txn_start_offset,
    )
