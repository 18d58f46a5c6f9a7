"""The same raw requests to Apache Kafka and to Odradek: markers and transactional batches get the same codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.transaction_requests import UNVERIFIED, codes, markers, producer, write
from tests.broker.wire import Client, batch, running_broker
from tests.jvm.kafka import running_kafka
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.jvm


async def script(port: int) -> list[object]:
    """The responses of a broker to markers and batches that are valid, late, repeated, foreign or out of order."""
    client = await Client.connect(port)
    # Kafka accepts connections before its own metadata lists it.
    await eventually_async(lambda: client.ask(m.MetadataRequest(topics=[]), 9), lambda answer: answer.brokers)
    await client.create_topic("t")
    wanted = m.DescribeProducersRequest(
        topics=[m.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
    )
    # The leader receives the control request for its partition a moment later.
    await eventually_async(lambda: client.ask(wanted, 0), lambda answer: not answer.topics[0].partitions[0].error_code)
    printed: list[object] = []

    async def mark(
        producer_id: int, epoch: int, *partitions: tuple[str, int], commit: bool = True, coordinator: int = 5
    ) -> None:
        request = markers(
            producer_id, epoch, *(partitions or (("t", 0),)), commit=commit, coordinator_epoch=coordinator
        )
        printed.append([code.name for code in codes(await client.ask(request, 1))])

    async def send(producer_id: int, epoch: int, sequence: int, *, transactional: bool = True) -> None:
        options = {**producer(producer_id, epoch, sequence), "transactional": transactional}
        answer = await write(client, batch(b"value", **options), version=11)
        printed.append((ErrorCode(answer.error_code).name, answer.base_offset))

    await mark(7, 3)
    await mark(7, 2)
    await mark(7, 3, coordinator=4)
    await mark(7, 3)
    await mark(7, 3, ("t", 9), ("nothing", 0))
    await send(7, 2, 0)
    await send(7, 3, 4)
    await send(7, 3, 0)
    await send(7, 3, 0)
    await send(7, 3, 2)
    await send(7, 3, 1, transactional=False)
    await send(7, 4, 1)
    await send(7, 4, 0)
    await mark(7, 3)
    await mark(7, 5, commit=False, coordinator=6)
    await send(7, 4, 1)
    await send(7, 5, 1)
    await send(7, 5, 0, transactional=False)
    await send(8, 0, 9)
    await mark(8, 0)
    topic = m.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 9])
    answer = await client.ask(m.DescribeProducersRequest(topics=[topic]), 0)
    for partition in answer.topics[0].partitions:
        printed.append(ErrorCode(partition.error_code).name)
        printed.extend(
            (
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in sorted(partition.active_producers, key=lambda each: each.producer_id)
        )
    for level in (0, 1):
        part = await client.fetch("t", 0, isolation_level=level)
        listed = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
        printed.append((part.high_watermark, part.last_stable_offset, listed))
    client.close()
    return printed


async def test_the_responses_match_those_of_kafka(tmp_path: Path) -> None:
    with running_kafka(tmp_path / "kafka", UNVERIFIED) as kafka:
        theirs = await script(kafka.port)
    async with running_broker(tmp_path / "ours", UNVERIFIED) as broker:
        ours = await script(broker.port)
    assert ours == theirs
