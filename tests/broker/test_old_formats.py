"""Message sets of magic 0 and 1: the same requests to Apache Kafka 3.9.2 and to Odradek, with their responses compared.

Each case writes one set into a partition of its own. The responses, the stored batches, and the results of fetches of
old and new versions must agree; a batch without codec byte for byte, one with a codec record for record.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.protocol import messages as m
from odradek.protocol.batch import CODEC_MASK, Record, build
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from tests.broker.message_sets import (
    APPEND_TIME,
    RECENT_MS,
    THEN_MS,
    batches_in,
    damaged,
    framed,
    message,
    messages_in,
    wrapper,
)
from tests.broker.wire import DEADLINE_S, Client, batch, produce_request, running_broker
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.jvm

OLD_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
NOW_MS = int(time.time() * 1000)
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "gzipped": {"compression.type": "gzip"},
    "lz4": {"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"},
    "zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "small": {"max.message.bytes": "200"},
    "bounded": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
    "segments": {"segment.bytes": "400"},
    "refusing": {"message.downconversion.enable": "false"},
}


class Case(NamedTuple):
    """One write, and its topic."""

    topic: str
    records: bytes | bytearray | None
    version: int = 2
    then: tuple[bytearray, ...] = ()
    """Batches that new clients write after it."""


def inner(magic: int, count: int = 3, first: int = 0) -> bytes:
    """The set inside a wrapper, with offsets from `first` on."""
    return b"".join(
        message(b"value-%d" % n * 5, b"k%d" % n, magic=magic, offset=first + n, at_ms=THEN_MS + 5 - n)
        for n in range(count)
    )


def short(magic: int, size: int) -> bytes:
    """A message whose fields do not fit its size, with a valid checksum."""
    return framed(bytes((magic, 0)) + bytes(size - 6))


THREE = b"".join(message(b"v%d" % n, b"k", offset=n, at_ms=THEN_MS + n) for n in range(3))
CASES: dict[str, Case] = {
    "magic 1": Case("plain", THREE),
    "magic 1 by version 0": Case("plain", THREE, 0),
    "magic 0": Case("plain", message(magic=0) + message(b"", b"", magic=0), 1),
    "magic 0 by version 2": Case("plain", message(magic=0)),
    "nulls": Case("plain", message(None, None) + message(None) + message(b"x", None)),
    "times that fall": Case("plain", message(at_ms=THEN_MS) + message(at_ms=THEN_MS - 9) + message(at_ms=-1)),
    "no time": Case("plain", message(at_ms=-1)),
    "offsets of any kind": Case("plain", message(offset=77) + message(offset=5)),
    "a message has LogAppendTime": Case("plain", message(attributes=APPEND_TIME)),
    "a message has LogAppendTime and no time": Case("plain", message(attributes=APPEND_TIME, at_ms=-1)),
    "cut off": Case("plain", THREE[:-3]),
    "only a part": Case("plain", THREE[:20]),
    "a few bytes": Case("plain", b"\0\0\0"),
    "nothing": Case("plain", b""),
    "wrong checksum": Case("plain", damaged(THREE, len(THREE) - 1)),
    "too short": Case("plain", struct.pack(">qi", 0, 13) + bytes(20)),
    "negative length": Case("plain", struct.pack(">qi", 0, -1) + bytes(20)),
    "magic 3": Case("plain", framed(b"\x03" + bytes(30))),
    "two magics": Case("plain", message(magic=1) + message(magic=0)),
    "a batch": Case("plain", batch(b"a", b"b")),
    "messages in version 3": Case("plain", THREE, 3),
    "mixed with a wrapper": Case("plain", message() + wrapper(inner(1), Codec.GZIP)),
    "two wrappers": Case("plain", wrapper(inner(1), Codec.GZIP) * 2),
    "trailing bytes in a message": Case("plain", framed(message(b"v", b"k")[16:] + b"more")),
    "wrapper with offset 0": Case("plain", wrapper(inner(1), Codec.GZIP, offset=0)),
    "wrapper with its last offset": Case("plain", wrapper(inner(1), Codec.GZIP, offset=2)),
    "wrapper with a high offset": Case("plain", wrapper(inner(1), Codec.GZIP, offset=90)),
    "wrapper with a low offset": Case("plain", wrapper(inner(1), Codec.GZIP, offset=1)),
    "absolute offsets inside": Case("plain", wrapper(inner(1, first=40), Codec.GZIP, offset=42)),
    "inner offsets that do not count": Case("plain", wrapper(message() * 3, Codec.GZIP, offset=2)),
    "wrapper has LogAppendTime": Case("plain", wrapper(inner(1), Codec.GZIP, attributes=APPEND_TIME)),
    "wrapper has LogAppendTime, no time": Case(
        "plain", wrapper(inner(1), Codec.GZIP, attributes=APPEND_TIME, at_ms=-1)
    ),
    "wrapper in a wrapper": Case("plain", wrapper(wrapper(inner(1), Codec.GZIP), Codec.GZIP)),
    "wrapper of another magic": Case("plain", wrapper(inner(0), Codec.GZIP)),
    "old wrapper of another magic": Case("plain", wrapper(inner(1), Codec.GZIP, magic=0)),
    "empty wrapper": Case("plain", wrapper(b"", Codec.GZIP)),
    "wrapper of nothing": Case("plain", message(None, None, attributes=Codec.GZIP)),
    "wrapper with a key": Case("plain", message(wrapper(inner(1), 1)[34:], b"key", attributes=Codec.GZIP)),
    "inner message cut off": Case("plain", wrapper(inner(1)[:-4], Codec.GZIP, offset=1)),
    "inner checksum wrong": Case("plain", wrapper(damaged(inner(1), 40), Codec.GZIP)),
    "inner message too short": Case("plain", wrapper(struct.pack(">qi", 0, 3) + bytes(30), Codec.GZIP)),
    "inner wrong magic": Case("plain", wrapper(inner(1) + message(magic=0, offset=3), Codec.GZIP)),
    "lz4 with the right checksum in magic 0": Case("plain", wrapper(inner(0), Codec.LZ4, magic=0, fault=False), 1),
    "zstd": Case("plain", wrapper(inner(1), Codec.ZSTD)),
    "stamped magic 0": Case("stamped", message(magic=0) * 2),
    "stamped magic 1": Case("stamped", THREE),
    "stamped wrapper": Case("stamped", wrapper(inner(1), Codec.SNAPPY)),
    "stamped, has LogAppendTime": Case("stamped", message(attributes=APPEND_TIME)),
    "compacted without a key": Case("compacted", message() + message(key=None)),
    "compacted wrapper without keys": Case("compacted", wrapper(message(key=None) * 2, Codec.GZIP)),
    "gzip from nothing": Case("gzipped", THREE),
    "gzip from gzip": Case("gzipped", wrapper(inner(1), Codec.GZIP, offset=2)),
    "gzip from old lz4": Case("gzipped", wrapper(inner(0), Codec.LZ4, magic=0)),
    "gzip from a batch": Case("gzipped", batch(b"a" * 50, b"b", codec=Codec.LZ4), 7),
    "lz4 from nothing": Case("lz4", message(magic=0)),
    "lz4 from a batch": Case("lz4", batch(b"a" * 50, b"b"), 7),
    "zstd from gzip": Case("zstd", wrapper(inner(1), Codec.GZIP)),
    "nothing from snappy": Case("uncompressed", wrapper(inner(1), Codec.SNAPPY)),
    "nothing from a batch": Case("uncompressed", batch(b"a" * 50, codec=Codec.ZSTD), 7),
    "small set of large size": Case("small", message(b"v" * 60) * 3),
    "one message too large": Case("small", message() + message(b"v" * 200)),
    "wrapper too large": Case("small", wrapper(bytes(range(256)), Codec.SNAPPY)),
    "too old": Case("bounded", message(at_ms=NOW_MS - 7_200_000)),
    "too new": Case("bounded", message(at_ms=NOW_MS + 7_200_000)),
    "just right": Case("bounded", message(at_ms=-1) + message(magic=1, at_ms=-1)),
    "one of a wrapper too old": Case("bounded", wrapper(message(at_ms=-1) + message(offset=1), Codec.GZIP)),
    "larger than a segment": Case("segments", message(b"v" * 150) * 4),
    "no conversion down": Case("refusing", THREE),
    "a zstd batch": Case("plain", batch(b"a", codec=Codec.ZSTD), 7),
    "a zstd batch behind another": Case("plain", batch(b"a" * 200), 7, (batch(b"b", codec=Codec.ZSTD), batch(b"c"))),
    "batches side by side": Case("plain", THREE, 2, (batch(b"a", b"b"), batch(b"c" * 99), batch(b"d", b"e"))),
    "compressed side by side": Case(
        "plain", wrapper(inner(1), Codec.GZIP), 2, (batch(b"a", b"b", codec=Codec.LZ4), batch(b"c", codec=Codec.GZIP))
    ),
    "headers": Case("plain", build([Record(0, THEN_MS, b"k", b"v", [("h", b"x" * 50)])]), 7),
    "several batches' worth": Case("plain", b"".join(message(b"%d" % n * 40) for n in range(400))),
}
for magic in (0, 1):
    for codec in OLD_CODECS:
        CASES[f"{codec.name.lower()} around magic {magic}"] = Case(
            "plain", wrapper(inner(magic), codec, magic=magic, offset=2), magic + 1
        )

READS = ((0, 0, 1 << 20), (2, 0, 1 << 20), (3, 1, 1 << 20), (2, 0, 60), (3, 0, 60), (3, 0, 200), (1, 4, 1 << 20))
PARTITIONS = {topic: [name for name, case in CASES.items() if case.topic == topic] for topic in TOPICS}


async def run(port: int, stem: str) -> dict[str, list[Any]]:
    """Every case against one broker: the responses, the stored batches, the records read."""
    client = await Client.connect(port)
    await eventually_async(lambda: client.ask(m.MetadataRequest(topics=[]), 7), lambda answer: answer.brokers)
    for topic, configs in TOPICS.items():
        await client.create_topic(f"{stem}-{topic}", len(PARTITIONS[topic]), configs)
    printed = {}
    for name, case in CASES.items():
        topic, partition = f"{stem}-{case.topic}", PARTITIONS[case.topic].index(name)
        await led(client, topic, partition)
        printed[name] = await observe(client, topic, partition, case)
    printed["errors of reads"] = await bad_reads(client, f"{stem}-segments", f"{stem}-missing")
    printed["a transaction"] = await transaction(client, f"{stem}-transaction")
    client.close()
    return printed


async def bad_reads(client: Client, topic: str, missing: str) -> list[Any]:
    """The responses to fetches of all versions that find nothing, or request offsets or partitions that do not
    exist.
    """
    printed = []
    for version in (0, 2, 3, 4, 7, 9, 10, 11, 12):
        for name, partition, offset in ((topic, 0, 0), (topic, 0, 9), (topic, 77, 0), (missing, 0, 0)):
            for isolation in (0, 1) if version >= 4 else (0,):
                read = await client.fetch(name, offset, partition=partition, version=version, isolation_level=isolation)
                read.records = None if read.records is None else bytes(read.records)
                printed.append((version, name == missing, partition, offset, isolation, repr(read)))
    return printed


async def transaction(client: Client, topic: str) -> list[Any]:
    """The result of reading two records and the marker behind them."""
    await client.create_topic(topic)
    await led(client, topic, 0)
    await client.ask(m.FindCoordinatorRequest(key=topic, key_type=1), 1)
    begin = m.InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=60_000)
    async with asyncio.timeout(DEADLINE_S):
        while (answer := await client.ask(begin, 1)).error_code:
            pass
    ids = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    wanted = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
    added = m.AddPartitionsToTxnRequest(v3_and_below_transactional_id=topic, v3_and_below_topics=[wanted])
    added.v3_and_below_producer_id, added.v3_and_below_producer_epoch = ids.values()
    await client.ask(added, 1)
    request = produce_request(topic, batch(b"a", b"b", base_sequence=0, transactional=True, **ids))
    request.transactional_id = topic
    await client.ask(request, 7)
    await client.ask(m.EndTxnRequest(transactional_id=topic, committed=True, **ids), 1)
    async with asyncio.timeout(DEADLINE_S):
        while (await client.fetch(topic, 0, version=11)).last_stable_offset < 3:
            pass
    return await read_back(
        client, topic, 0, [(version, offset, 1 << 20) for version in range(4) for offset in range(4)]
    )


async def led(client: Client, topic: str, partition: int) -> None:
    """Wait until the broker leads the partition."""
    async with asyncio.timeout(DEADLINE_S):
        while (await client.fetch(topic, 0, partition=partition, version=11)).error_code:
            pass


async def observe(client: Client, topic: str, partition: int, case: Case) -> list[Any]:
    """The result of one write."""
    request = produce_request(topic, case.records or b"", partition=partition, acks=1)
    answer = (await client.ask(request, case.version)).responses[0].partition_responses[0]
    time_ms = "now" if answer.log_append_time_ms > THEN_MS else answer.log_append_time_ms
    printed: list[Any] = [ErrorCode(answer.error_code).name, answer.base_offset, time_ms]
    for more in case.then:
        assert (await client.produce(topic, more, partition=partition, version=7)).error_code == 0
    stored = await client.fetch(topic, 0, partition=partition, version=11)
    printed.append(batches_in(bytes(stored.records or b""), int(time.time() * 1000)))
    if answer.error_code or case.topic == "stamped":
        return printed
    printed.extend(await read_back(client, topic, partition, READS))
    return printed


async def read_back(client: Client, topic: str, partition: int, reads: Iterable[tuple[int, int, int]]) -> list[Any]:
    """The results of fetches of (version, offset, size) in a partition."""
    printed: list[Any] = []
    for version, offset, size in reads:
        read = await client.fetch(topic, offset, partition=partition, version=version, partition_max_bytes=size)
        data = bytes(read.records or b"")
        compressed = any(each[0] != "cut" and each[1] & CODEC_MASK for each in messages_in(data))
        shown = tolerant(data) if compressed or "-gzipped" in topic or "-lz4" in topic else data.hex()
        printed.append((version, ErrorCode(read.error_code).name, read.high_watermark, shown))
    return printed


def tolerant(data: bytes) -> list[Any]:
    """The fields that are compared where compressors and clocks differ: all but cut-off messages and recent times."""
    return recent([each for each in messages_in(data) if each[0] != "cut"])


def recent(value: Any) -> Any:
    """With a word in place of the time of this run."""
    if isinstance(value, list | tuple):
        return type(value)(recent(each) for each in value)
    # NOW_MS is the time when this module was imported, which may be long ago by now.
    of_now = isinstance(value, int) and NOW_MS - RECENT_MS < value < time.time() * 1000 + RECENT_MS
    return "now" if of_now else value


@pytest.fixture(scope="module")
def transcripts(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of both brokers for every case."""

    async def ours(folder: Path) -> dict[str, Any]:
        async with running_broker(folder) as broker:
            return await run(broker.port, "old")

    return asyncio.run(ours(tmp_path_factory.mktemp("old"))), asyncio.run(run(kafka.port, f"old-{NOW_MS}"))


@pytest.mark.parametrize("name", [*CASES, "a transaction", "errors of reads"])
def test_a_message_set_is_treated_as_by_kafka(transcripts: tuple[dict[str, Any], dict[str, Any]], name: str) -> None:
    ours, kafkas = transcripts
    assert ours[name] == kafkas[name]
