"""Writes and reads over the wire: accepted and refused writes with their error codes, and the results of fetches."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build, headers, records
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, batch, fetch_request, produce_request, running_broker


def values(data: m.FetchResponse.PartitionData) -> list[bytes | None]:
    read = bytes(data.records or b"")
    return [record.value for position, _ in headers(read) for record in records(read, position)]


async def test_acknowledgements(client: Client) -> None:
    await client.create_topic("t")
    for offset, acks in enumerate((1, -1)):
        written = await client.produce("t", batch(b"v"), acks=acks)
        assert (written.error_code, written.base_offset, written.log_start_offset) == (0, offset, 0)
    refused = await client.produce("t", batch(b"v"), acks=2)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert (await client.fetch("t", 0)).high_watermark == 2


async def test_acks_0_has_no_response_and_a_refusal_closes_the_connection(client: Client) -> None:
    await client.create_topic("t")
    await client.send(produce_request("t", batch(b"v"), acks=0), 12)
    client._owed.clear()
    assert (await client.fetch("t", 0, max_wait_ms=10_000)).high_watermark == 1  # the next response is the fetch's
    await client.send(produce_request("absent", batch(b"v"), acks=0), 12)
    assert await client.is_closed()


async def test_invalid_requests_are_refused(client: Client) -> None:
    await client.create_topic("t")
    await client.create_topic("compacted", configs={"cleanup.policy": "compact"})
    await client.create_topic("small", configs={"max.message.bytes": "200"})
    await client.create_topic("timely", configs={"message.timestamp.before.max.ms": "1000"})
    broken = batch(b"value")
    broken[-1] ^= 1
    for topic, data, code in (
        ("absent", batch(b"v"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", broken, ErrorCode.CORRUPT_MESSAGE),
        ("t", b"", ErrorCode.INVALID_RECORD),
        ("t", batch(b"v")[:-1], ErrorCode.INVALID_RECORD),
        ("t", batch(b"v") + batch(b"v"), ErrorCode.INVALID_RECORD),
        ("t", batch(b"v", control=True), ErrorCode.INVALID_RECORD),
        ("small", batch(bytes(200)), ErrorCode.MESSAGE_TOO_LARGE),
        ("timely", batch(b"v"), ErrorCode.INVALID_TIMESTAMP),
    ):
        refused = await client.produce(topic, data)
        assert (ErrorCode(refused.error_code), refused.base_offset) == (code, -1), (topic, refused)
    refused = await client.produce("t", batch(b"v"), partition=7)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    keyless = build([Record(0, 1, b"k", b"v", []), Record(1, 1, None, b"v", [])])
    refused = await client.produce("compacted", keyless)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1]
    for topic in ("t", "compacted", "small", "timely"):
        assert (await client.fetch(topic, 0)).high_watermark == 0


async def test_one_partition_may_fail_beside_another(client: Client) -> None:
    await client.create_topic("t", partitions=2)
    request = produce_request("t", batch(b"good"))
    broken = batch(b"bad")
    broken[-1] ^= 1
    request.topic_data[0].partition_data.append(m.ProduceRequest.PartitionProduceData(index=1, records=broken))
    answer = await client.ask(request, 12)
    codes = [partition.error_code for partition in answer.responses[0].partition_responses]
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE]


async def test_a_retry_is_answered_with_the_first_offset_and_a_gap_is_refused(client: Client) -> None:
    await client.create_topic("t")
    ids = await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    producer = {"producer_id": ids.producer_id, "producer_epoch": 0}
    await client.produce("t", batch(b"other"))
    first = await client.produce("t", batch(b"a", b"b", base_sequence=0, **producer))
    again = await client.produce("t", batch(b"a", b"b", base_sequence=0, **producer))
    assert (first.base_offset, again.base_offset, again.error_code) == (1, 1, 0)
    gap = await client.produce("t", batch(b"d", base_sequence=3, **producer))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.produce("t", batch(b"c", base_sequence=2, **producer))).base_offset == 3
    assert values(await client.fetch("t", 0)) == [b"other", b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", Codec)
async def test_every_codec_is_stored_as_received(client: Client, codec: Codec) -> None:
    await client.create_topic("t")
    sent = batch(*(b"value %d" % n for n in range(50)), codec=codec)
    assert (await client.produce("t", sent)).error_code == 0
    read = await client.fetch("t", 0)
    assert bytes(read.records)[21:] == bytes(sent)[21:]
    assert len(values(read)) == 50


async def test_a_topic_may_set_its_own_codec_and_clock(client: Client) -> None:
    await client.create_topic("t", configs={"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
    written = await client.produce("t", batch(b"a", b"b", codec=Codec.GZIP))
    assert written.log_append_time_ms > 1_750_000_000_000
    ((_, header),) = headers(bytes((await client.fetch("t", 0)).records))
    assert (header.codec, header.is_log_append_time, header.max_timestamp) == (
        Codec.ZSTD,
        True,
        written.log_append_time_ms,
    )


async def test_min_insync_replicas_never_exceeds_the_number_of_replicas(client: Client) -> None:
    """As in Apache Kafka 3.9.2 (Partition.effectiveMinIsr); the tests of clusters cover the rest."""
    await client.create_topic("t", configs={"min.insync.replicas": "2"})
    assert (await client.produce("t", batch(b"v"), acks=-1)).error_code == 0


async def test_topic_ids_in_place_of_names(client: Client) -> None:
    topic = await client.create_topic("t")
    request = produce_request("", batch(b"v"))
    request.topic_data[0].topic_id = topic.topic_id
    answer = await client.ask(request, 13)
    assert answer.responses[0].topic_id == topic.topic_id
    assert answer.responses[0].partition_responses[0].error_code == 0
    request.topic_data[0].topic_id = bytes(range(16))
    answer = await client.ask(request, 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    wanted = fetch_request("", 0)
    wanted.topics[0].topic_id = topic.topic_id
    answer = await client.ask(wanted, 13)
    assert values(answer.responses[0].partitions[0]) == [b"v"]
    wanted.topics[0].topic_id = bytes(range(16))
    answer = await client.ask(wanted, 13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# ---- reading


async def test_a_long_poll_ends_with_enough_bytes_or_at_its_timeout(broker: Broker, client: Client) -> None:
    await client.create_topic("t")
    empty = await client.fetch("t", 0, max_wait_ms=20)
    assert (empty.error_code, bytes(empty.records), empty.high_watermark) == (0, b"", 0)
    writer = await Client.connect(broker.port)
    size = len(batch(bytes(100)))
    await client.send(fetch_request("t", 0, max_wait_ms=15_000, min_bytes=3 * size), 12)
    waiting = asyncio.ensure_future(client.receive())
    for _ in range(2):
        await writer.produce("t", batch(bytes(100)))
    assert not waiting.done()
    await writer.produce("t", batch(bytes(100)))
    assert len(values((await waiting).responses[0].partitions[0])) == 3
    writer.close()


async def test_a_fetch_returns_at_least_one_batch_and_no_more_than_requested(client: Client) -> None:
    await client.create_topic("t")
    for n in range(5):
        await client.produce("t", batch(bytes([n]) * 1000))
    size = len(batch(bytes(1000)))
    whole = await client.fetch("t", 0, partition_max_bytes=10)
    assert len(whole.records) == size
    some = await client.fetch("t", 1, partition_max_bytes=2 * size)
    assert values(some) == [bytes([1]) * 1000, bytes([2]) * 1000]
    bounded = await client.fetch("t", 0, max_bytes=3 * size)
    assert len(bounded.records) <= 3 * size


async def test_offsets_out_of_range_are_refused(client: Client) -> None:
    await client.create_topic("t")
    await client.produce("t", batch(b"v"))
    for offset in (-1, 2, 10**12):
        assert (await client.fetch("t", offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    at_end = await client.fetch("t", 1)
    assert (at_end.error_code, bytes(at_end.records)) == (0, b"")
    assert (await client.fetch("absent", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_segments_are_read_as_one_log(client: Client) -> None:
    await client.create_topic("t", configs={"segment.bytes": "2000"})
    sent = [b"%05d" % n + bytes(300) for n in range(40)]
    for value in sent:
        assert (await client.produce("t", batch(value))).error_code == 0
    got: list[bytes | None] = []
    while len(got) < len(sent):
        part = values(await client.fetch("t", len(got), isolation_level=len(got) % 2))
        assert part
        got += part
    assert got == sent


async def test_a_leader_epoch_that_is_not_the_current_one(client: Client) -> None:
    await client.create_topic("t")
    for epoch, code in ((0, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request = fetch_request("t", 0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert (await client.ask(request, 12)).responses[0].partitions[0].error_code == code


# ---- sessions


async def test_a_session_returns_only_changes(client: Client) -> None:
    await client.create_topic("t", partitions=2)
    first = fetch_request("t", 0, session_epoch=0)
    first.topics[0].partitions.append(
        m.FetchRequest.FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    )
    answer = await client.ask(first, 12)
    session_id = answer.session_id
    assert session_id != 0
    assert len(answer.responses[0].partitions) == 2

    nothing = m.FetchRequest(session_id=session_id, session_epoch=1, min_bytes=0, max_wait_ms=0)
    assert (await client.ask(nothing, 12)).responses == []
    await client.produce("t", batch(b"new"), partition=1)
    nothing.session_epoch = 2
    answer = await client.ask(nothing, 12)
    assert [(p.partition_index, values(p)) for p in answer.responses[0].partitions] == [(1, [b"new"])]

    nothing.session_epoch = 3
    nothing.forgotten_topics_data = [m.FetchRequest.ForgottenTopic(topic="t", partitions=[1])]
    assert (await client.ask(nothing, 12)).responses == []
    nothing.session_epoch, nothing.forgotten_topics_data = 9, []
    assert (await client.ask(nothing, 12)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    nothing.session_id = session_id + 1
    assert (await client.ask(nothing, 12)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_sessions_are_bounded(tmp_path: Path) -> None:
    slots = {"max.incremental.fetch.session.cache.slots": "1"}
    async with running_broker(tmp_path / "data", slots) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        first = await client.ask(fetch_request("t", 0, session_epoch=0), 12)
        second = await client.ask(fetch_request("t", 0, session_epoch=0), 12)
        assert first.session_id != 0
        assert second.session_id == 0  # the cache is full of one session that is no smaller and not stale
        assert second.responses[0].partitions[0].error_code == 0
        client.close()


# ---- offsets by time


async def test_offsets_by_time_and_the_special_times(client: Client) -> None:
    await client.create_topic("t")
    times = [100, 300, 200]
    for time in times:
        await client.produce("t", build([Record(0, time, None, b"v", [])]))

    async def ask(timestamp: int, version: int = 11) -> tuple[int, int, int]:
        wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])
        answer = await client.ask(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), version)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset, found.timestamp

    assert await ask(-2) == (0, 0, -1)
    assert await ask(-1) == (0, 3, -1)
    assert await ask(-3) == (0, 1, 300)
    assert await ask(-4) == (0, 0, -1)
    assert await ask(-5) == (0, -1, -1)
    assert await ask(0) == (0, 0, 100)
    assert await ask(101) == (0, 1, 300)
    assert await ask(301) == (0, -1, -1)
    assert (await ask(-3, 6))[0] == ErrorCode.UNSUPPORTED_VERSION
    assert (await ask(-99))[0] == ErrorCode.UNSUPPORTED_VERSION
