"""The leader's rules for batches: the same writes to Apache Kafka 3.9.2 and to Odradek, with responses and logs
compared.

Times and their limits, sizes at every level, codecs of the topic, keys, acknowledgements, internal topics. Error
messages are compared only for presence; errors of single records also by their indexes.
"""

from __future__ import annotations

import asyncio
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.protocol import messages as m
from odradek.protocol.batch import LOG_APPEND_TIME, Record, build, read_header, sealed
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from tests.broker.message_sets import THEN_MS, batches_in
from tests.broker.wire import DEADLINE_S, Client, batch, produce_request, running_broker
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually_async

HOUR_MS = 3_600_000
NOW_MS = int(time.time() * 1000)
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "stamped-gzip": {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"},
    "both": {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)},
    "before": {"message.timestamp.before.max.ms": str(HOUR_MS)},
    "after": {"message.timestamp.after.max.ms": str(HOUR_MS)},
    "difference": {"message.timestamp.difference.max.ms": str(HOUR_MS)},
    "older-and-newer": {
        "message.timestamp.difference.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(10 * HOUR_MS),
    },
    "stamped-bounded": {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1"},
    "compacted": {"cleanup.policy": "compact"},
    "compacted-bounded": {"cleanup.policy": "compact", "message.timestamp.after.max.ms": str(HOUR_MS)},
    "small": {"max.message.bytes": "150"},
    "small-plain": {"max.message.bytes": "150", "compression.type": "uncompressed"},
    "segments": {"segment.bytes": "150"},
    "segments-plain": {"segment.bytes": "150", "compression.type": "uncompressed"},
    "two": {"min.insync.replicas": "2"},
    "gzip": {"compression.type": "gzip", "compression.gzip.level": "9"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4", "compression.lz4.level": "12"},
    "zstd": {"compression.type": "zstd", "compression.zstd.level": "-5"},
    "uncompressed": {"compression.type": "uncompressed"},
}
INTERNAL = "__consumer_offsets"


class Case(NamedTuple):
    """One write."""

    topic: str
    records: bytes | bytearray
    acks: int = 1
    version: int = 9
    client_id: str = "somebody"
    first: bytes | bytearray = b""
    """Earlier batches of the same partition."""


def at(*times_ms: int, key: bytes | None = b"k", **options: Any) -> bytearray:
    """A batch of records with these times."""
    return build([Record(n, ms, key, b"v%d" % n) for n, ms in enumerate(times_ms)], **options)


def changed(data: bytes | bytearray, **fields: Any) -> bytes:
    """The batch with other header fields, and a valid checksum."""
    return bytes(sealed(read_header(data)._replace(**fields), memoryview(data)[61:]))


def mine(sequence: int, epoch: int) -> bytearray:
    """One record of an idempotent producer."""
    return at(THEN_MS, producer_id=77, producer_epoch=epoch, base_sequence=sequence)


OLD_MS, YOUNG_MS = NOW_MS - 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS
ZEROS = batch(bytes(400), codec=Codec.GZIP)
CASES: dict[str, Case] = {
    "plain": Case("plain", batch(b"a")),
    "acks 0": Case("plain", batch(b"a"), 0),
    "acks all": Case("plain", batch(b"a"), -1),
    "acks 2": Case("plain", batch(b"a"), 2),
    "acks -2": Case("plain", batch(b"a"), -2),
    "acks 2 to nothing": Case("missing", batch(b"a"), 2),
    "to nothing": Case("missing", batch(b"a")),
    "two in sync, where there is one replica": Case("two", batch(b"a"), -1),
    "one is enough": Case("two", batch(b"a"), 1),
    "offsets of groups": Case(INTERNAL, batch(b"a")),
    "offsets of groups by an admin": Case(INTERNAL, batch(b"", key=b"\0\0"), client_id="nearly__admin_client"),
    "empty": Case("plain", b""),
    "two batches": Case("plain", batch(b"a") + batch(b"b")),
    "cut off": Case("plain", batch(b"a")[:-1]),
    "checksum": Case("plain", batch(b"a")[:-1] + b"\x55"),
    "LogAppendTime of a client": Case("plain", changed(batch(b"a"), attributes=LOG_APPEND_TIME)),
    "LogAppendTime of a client, stamped": Case("stamped", changed(batch(b"a"), attributes=LOG_APPEND_TIME)),
    "LogAppendTime of a client, no time": Case(
        "plain", changed(batch(b"a"), attributes=LOG_APPEND_TIME, max_timestamp=-1)
    ),
    "LogAppendTime of a client, gzip": Case("gzip", changed(batch(b"a", b"b"), attributes=LOG_APPEND_TIME)),
    "wrong max timestamp": Case("plain", changed(at(THEN_MS, THEN_MS + 5), max_timestamp=7)),
    "base timestamp of another record": Case("gzip", changed(at(THEN_MS, THEN_MS + 5), base_timestamp=THEN_MS - 9)),
    "stamped": Case("stamped", batch(b"a", b"b")),
    "stamped and compressed": Case("stamped", batch(b"a", b"b", codec=Codec.ZSTD)),
    "stamped and compressed here": Case("stamped-gzip", batch(b"a", b"b")),
    "stamped whatever its time": Case("stamped-bounded", at(7)),
    "one too large": Case("small", batch(b"a" * 200)),
    "compressed fits": Case("small", ZEROS),
    "decompressed does not": Case("small-plain", ZEROS),
    "larger than a segment": Case("segments", batch(b"a" * 200)),
    "decompressed larger than a segment": Case("segments-plain", ZEROS),
    "null keys": Case("compacted", build([Record(n, THEN_MS, None if n % 2 else b"k", b"v") for n in range(5)])),
    "null keys and times": Case("compacted-bounded", at(YOUNG_MS, NOW_MS, key=None)),
    "null key, then a time": Case(
        "compacted-bounded", build([Record(0, NOW_MS, None, b"v"), Record(1, YOUNG_MS, b"k", b"v")])
    ),
    "null keys compressed": Case("compacted", at(1, 2, key=None, codec=Codec.LZ4)),
    "zstd too early": Case("plain", batch(b"a", codec=Codec.ZSTD), version=6),
    "a control batch": Case("plain", at(THEN_MS, control=True)),
    "no sequence": Case("plain", changed(batch(b"a"), producer_id=5, producer_epoch=0)),
    "base offset": Case("plain", changed(batch(b"a"), base_offset=4)),
    "count": Case("plain", changed(batch(b"a", b"b"), record_count=1)),
    "a sequence left out": Case("plain", mine(2, 0), first=mine(0, 0)),
    "a duplicate": Case("plain", mine(0, 0), first=mine(0, 0)),
    "an old epoch": Case("plain", mine(1, 0), first=mine(0, 1)),
    "a new epoch": Case("plain", mine(5, 1), first=mine(0, 0)),
    "no codec has this number": Case("plain", changed(batch(b"a"), attributes=5)),
}
for topic_name in ("both", "before", "after", "difference", "older-and-newer"):
    for name, records in {
        "old": at(OLD_MS),
        "young": at(YOUNG_MS),
        "now": at(NOW_MS),
        "no time": at(-1),
        "one of three": at(NOW_MS, YOUNG_MS, OLD_MS),
    }.items():
        CASES[f"{topic_name}: {name}"] = Case(topic_name, records)
for topic_name in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
    for codec in Codec:
        records = batch(b"a" * 90, b"", None, codec=codec)  # type: ignore[arg-type]
        CASES[f"{topic_name} from {codec.name.lower()}"] = Case(topic_name, records)
    for version in (3, 8):
        CASES[f"{topic_name} in version {version}"] = Case(topic_name, batch(b"a"), version=version)

INTENDED = {"no codec has this number": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
"""Kafka fails here with an exception that it has no code for; Odradek's error names the cause."""
PARTITIONS = {topic: [name for name, case in CASES.items() if case.topic == topic] for topic in TOPICS}
RECORDED = {name for name, case in CASES.items() if case.topic in TOPICS}


async def run(port: int, stem: str) -> dict[str, Any]:
    """Every case against one broker."""
    client = await Client.connect(port)
    await eventually_async(lambda: client.ask(m.MetadataRequest(topics=[]), 7), lambda answer: answer.brokers)
    # The request creates the topic of group offsets.
    find = m.FindCoordinatorRequest(key="g")
    await eventually_async(lambda: client.ask(find, 1), lambda answer: not answer.error_code)
    for topic, configs in TOPICS.items():
        await client.create_topic(f"{stem}-{topic}", len(PARTITIONS[topic]), configs)
    printed = {}
    for name, case in CASES.items():
        topic = case.topic if case.topic == INTERNAL else f"{stem}-{case.topic}"
        partition = PARTITIONS[case.topic].index(name) if name in RECORDED else 0
        printed[name] = await observe(client, topic, partition, case)
    client.close()
    return printed


async def observe(client: Client, topic: str, partition: int, case: Case) -> list[Any]:
    """The result of one write."""
    if case.topic != "missing":
        async with asyncio.timeout(DEADLINE_S):
            while (await client.fetch(topic, 0, partition=partition, version=11)).error_code:
                pass
    request = produce_request(topic, case.records, partition=partition, acks=case.acks)
    if case.first:
        assert (await client.produce(topic, case.first, partition=partition, version=9)).error_code == 0
    printed: list[Any] = []
    await client.send(request, case.version, client_id=case.client_id)
    if case.acks == 0:
        client.forget()
    else:
        answer = (await client.receive()).responses[0].partition_responses[0]
        stamped = "now" if answer.log_append_time_ms > THEN_MS else answer.log_append_time_ms
        printed = [
            ErrorCode(answer.error_code).name,
            answer.base_offset,
            stamped,
            answer.log_start_offset,
            bool(answer.error_message),
            [(each.batch_index, bool(each.batch_index_error_message)) for each in answer.record_errors],
        ]
    if case.topic in TOPICS:
        stored = await client.fetch(topic, 0, partition=partition, version=11)
        printed.append(batches_in(bytes(stored.records or b""), int(time.time() * 1000)))
    return printed


@pytest.fixture(scope="module")
def transcripts(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of both brokers for every case."""

    async def ours(folder: Path) -> dict[str, Any]:
        async with running_broker(folder) as broker:
            return await run(broker.port, "rules")

    return asyncio.run(ours(tmp_path_factory.mktemp("rules"))), asyncio.run(run(kafka.port, f"rules-{NOW_MS}"))


@pytest.mark.jvm
@pytest.mark.parametrize("name", CASES)
def test_a_write_is_treated_as_by_kafka(transcripts: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    ours, kafkas = transcripts
    if name in INTENDED:
        assert kafkas[name][0] == ErrorCode.UNKNOWN_SERVER_ERROR.name
        assert ours[name][0] == INTENDED[name].name
    else:
        assert ours[name] == kafkas[name]


@pytest.mark.parametrize(
    ("properties", "records", "error"),
    [
        ({"message.max.bytes": "150"}, batch(b"a" * 200), ErrorCode.MESSAGE_TOO_LARGE),
        ({"log.segment.bytes": "150"}, batch(b"a" * 200), ErrorCode.RECORD_LIST_TOO_LARGE),
        ({"log.message.timestamp.before.max.ms": str(HOUR_MS)}, at(OLD_MS), ErrorCode.INVALID_TIMESTAMP),
        ({"log.message.timestamp.after.max.ms": str(HOUR_MS)}, at(YOUNG_MS), ErrorCode.INVALID_TIMESTAMP),
        ({"log.message.timestamp.difference.max.ms": str(HOUR_MS)}, at(OLD_MS), ErrorCode.INVALID_TIMESTAMP),
        ({"log.cleanup.policy": "compact"}, at(NOW_MS, key=None), ErrorCode.INVALID_RECORD),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_the_rules_apply_through_broker_properties_too(
    tmp_path: Path, properties: dict[str, str], records: bytes, error: ErrorCode
) -> None:
    async with running_broker(tmp_path, properties) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        assert (await client.produce("t", records)).error_code == error
        assert bytes((await client.fetch("t", 0)).records or b"") == b""
        client.close()


async def test_stamps_and_codecs_apply_through_broker_properties_too(tmp_path: Path) -> None:
    properties = {"log.message.timestamp.type": "LogAppendTime", "compression.type": "gzip"}
    async with running_broker(tmp_path, properties) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        await client.produce("t", batch(b"a"))
        header = read_header(bytes((await client.fetch("t", 0)).records or b""))
        assert header.codec == Codec.GZIP
        assert header.is_log_append_time
        client.close()


async def test_a_request_over_the_size_limit_closes_the_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"socket.request.max.bytes": "1000"}) as broker:
        client = await Client.connect(broker.port)
        await client.send_bytes(struct.pack(">i", 1001))
        assert await client.is_closed()
        client.close()


@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
)
async def test_a_consumer_without_the_storage_error_looks_for_another_leader(
    tmp_path: Path, version: int, error: ErrorCode
) -> None:
    async with running_broker(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        await client.produce("t", batch(b"a"))
        replica = broker.replicas.get("t", 0)
        assert replica is not None
        replica.machine.go_offline()
        assert (await client.fetch("t", 0, version=version)).error_code == error
        client.close()
