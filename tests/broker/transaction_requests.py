"""Requests and batches of transactional producers, and the markers of their coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import DEADLINE_S, Client, produce_request

UNVERIFIED = {"transaction.partition.verification.enable": "false"}


def producer(producer_id: int, epoch: int = 0, sequence: int = 0) -> dict[str, Any]:
    """The fields that make a batch one of this producer's transaction."""
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "base_sequence": sequence,
        "transactional": True,
    }


async def write(client: Client, data: bytearray, *, version: int = 11) -> m.ProduceResponse.PartitionProduceResponse:
    """Produce in a transaction."""
    request = produce_request("t", data)
    request.transactional_id = "id"
    answer = await client.ask(request, version)
    result: m.ProduceResponse.PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return result


def markers(
    producer_id: int,
    epoch: int,
    *partitions: tuple[str, int],
    commit: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> m.WriteTxnMarkersRequest:
    """A request with one marker."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return m.WriteTxnMarkersRequest(
        markers=[
            m.WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                topics=[
                    m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
            )
        ]
    )


def codes(response: m.WriteTxnMarkersResponse) -> list[ErrorCode]:
    return [
        ErrorCode(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


async def coordinated(client: Client, key: str, key_type: int = 0) -> None:
    """Return when the coordinator of a group or transactional id serves it."""
    async with asyncio.timeout(DEADLINE_S):
        while (await client.ask(m.FindCoordinatorRequest(key=key, key_type=key_type), 3)).error_code:
            pass
