"""The leader's treatment of each field of a batch's header: the same batches to Apache Kafka 3.9.2 and to Odradek,
acks=1.

Where Kafka accepts a batch, so does Odradek, and the same bytes are in the log; where Kafka refuses one, so does
Odradek, with the same code. Where Kafka returns UNKNOWN_SERVER_ERROR, because it has no rule for the case, Odradek's
error names the invalid field.

ODRADEK_DRAWN=2000 draws so many batches in place of 240, and a third of it for each topic with other settings.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from odradek.protocol import messages as m
from odradek.protocol.batch import HEADER_SIZE, LOG_APPEND_TIME, read_header
from odradek.protocol.compression import decompress
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, produce_request, running_broker
from tests.jvm.kafka import Kafka
from tests.storage.header_fields import Case, drawn, of_producer, single_fields
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PARTITIONS = 8
"""Each topic has its share of the cases, one after the other."""
DRAWN: Final = int(os.environ.get("ODRADEK_DRAWN", "240"))
SINGLES: Final = 300
"""Single fields where a topic's setting, and not the field, is the subject."""
NAMED = {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
KEEPS = {"retention.ms": "-1"}
TOPICS: dict[str, dict[str, str]] = {
    "as-it-comes": {},
    "in-a-transaction": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
}


class Seen(NamedTuple):
    """The result of one batch: the code, whether there is a message, the errors of records, and the stored bytes."""

    code: ErrorCode
    message: bool
    record_errors: int
    stored: Any


def cases(topic: str) -> list[Case]:
    """The batches for a topic: all single fields where no other setting matters, and some of them elsewhere."""
    chance = random.Random(topic)
    singles = list(single_fields())
    if topic == "as-it-comes":
        chosen = [*singles, *drawn(chance, DRAWN)]
    elif topic == "in-a-transaction":  # with a producer id the coordinator decides
        own = [case for case in (*singles, *drawn(chance, DRAWN)) if read_header(case.data).producer_id < 0]
        chosen = chance.sample(own, min(SINGLES + DRAWN // 3, len(own)))
    else:
        chosen = [*chance.sample(singles, SINGLES), *drawn(chance, DRAWN // 3)]
    return [case._replace(data=of_producer(case.data, 1000 + number)) for number, case in enumerate(chosen)]


async def send(port: int, topic: str, partition: int, data: bytes) -> Seen:
    """Produce one batch over a connection of its own, and read back the stored batch."""
    client = await Client.connect(port)
    request = produce_request(topic, data, partition=partition, acks=1)
    if topic == "in-a-transaction":
        request.transactional_id = "somebody"
    answer = (await client.ask(request, 9)).responses[0].partition_responses[0]
    stored: Any = None
    if not answer.error_code:
        part = await client.fetch(topic, answer.base_offset, partition=partition, partition_max_bytes=1)
        assert part.error_code == 0
        stored = comparable(topic, bytes(part.records or b""))
    client.close()
    return Seen(ErrorCode(answer.error_code), bool(answer.error_message), len(answer.record_errors), stored)


def comparable(topic: str, stored: bytes) -> Any:
    """A batch without the fields that may differ between two brokers: offset, epoch, the clock, the compressed size."""
    header = read_header(stored)
    records = stored[HEADER_SIZE:]
    if topic in ("gzip", "uncompressed"):
        records = bytes(decompress(header.codec, records, 1 << 20))
        header = header._replace(batch_length=0, crc=0)
    if topic == "stamped":
        assert header.attributes & LOG_APPEND_TIME
        header = header._replace(max_timestamp=0, crc=0)
    return header._replace(base_offset=0, leader_epoch=0), records


async def run(port: int) -> dict[tuple[str, int], Seen]:
    """Every case against one broker."""
    client = await Client.connect(port)
    await eventually_async(lambda: client.ask(m.MetadataRequest(topics=[]), 9), lambda answer: answer.brokers)
    seen = {}
    for topic, configs in TOPICS.items():
        await client.create_topic(topic, PARTITIONS, {**KEEPS, **configs})
        for partition in range(PARTITIONS):
            await eventually_async(
                lambda topic=topic, partition=partition: client.fetch(topic, 0, partition=partition),
                lambda answer: not answer.error_code,
            )
        row = cases(topic)

        async def share(partition: int, topic: str = topic, row: list[Case] = row) -> None:
            for number in range(partition, len(row), PARTITIONS):
                seen[topic, number] = await send(port, topic, partition, row[number].data)

        await asyncio.gather(*map(share, range(PARTITIONS)))
    client.close()
    return seen


def differences(ours: dict[tuple[str, int], Seen], kafkas: dict[tuple[str, int], Seen]) -> Iterator[str]:
    for topic in TOPICS:
        for number, case in enumerate(cases(topic)):
            our, kafka = ours[topic, number], kafkas[topic, number]
            if kafka.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                same = our.code in NAMED
            else:
                same = our == kafka
            if not same:
                yield f"{topic}: {case.text}\n    ours  {our}\n    kafka {kafka}"


async def test_a_leader_treats_every_field_as_kafka_does(kafka: Kafka, tmp_path: Path) -> None:
    kafkas = await run(kafka.port)
    async with running_broker(tmp_path) as broker:
        ours = await run(broker.port)
    found = list(differences(ours, kafkas))
    assert not found, f"{len(found)} of {len(kafkas)} differ\n" + "\n".join(found[:40])
    codes = {seen.code for seen in kafkas.values()}
    assert {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP} <= codes
    for topic in TOPICS:
        assert sum(seen.code is ErrorCode.NONE for (each, _), seen in kafkas.items() if each == topic) > 50
