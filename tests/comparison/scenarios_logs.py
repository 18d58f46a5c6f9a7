"""Scenarios of logs: write, read, look up offsets, delete records, and describe the disk."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from odradek.protocol.batch import Codec
from tests.comparison.data import (
    THEN_MS,
    batch_of,
    control,
    message,
    message_set,
    patched,
    resealed,
    with_headers,
    wrapped,
)
from tests.comparison.side import Side

HUGE = b"x" * 1_100_000


async def make(s: Side, name: str, partitions: int = 1, **configs: str) -> bytes:
    """A topic with one replica; its id."""
    made = await s.ask(
        "CreateTopics",
        7,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
            }
        ],
        timeout_ms=20_000,
    )
    topic_id: bytes = made.topics[0].topic_id
    return topic_id


async def write(
    s: Side, topic: str, records: bytes | None, versions: str | int | None = 9, *, index: int = 0, **fields: Any
) -> Any:
    """Produce one batch."""
    data = [{"name": topic, "partition_data": [{"index": index, "records": records}]}]
    return await s.ask("Produce", versions, **{"acks": -1, "timeout_ms": 5_000, "topic_data": data, **fields})


async def read(s: Side, topic: str, versions: str | int | None = "4-12", **fields: Any) -> Any:
    """Fetch one partition. Fields of the partition come with those of the request."""
    names = ("partition", "fetch_offset", "current_leader_epoch", "last_fetched_epoch", "log_start_offset")
    of_partition = {name: fields.pop(name) for name in names if name in fields}
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, **of_partition}
    topics = [{"topic": topic, "partitions": [wanted]}]
    return await s.ask("Fetch", versions, **{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields})


# ---- Produce


async def writes(s: Side) -> None:
    """Produce in every version, with several numbers of topics and partitions, and to partitions that do not exist."""
    await make(s, "writes", 2)
    for acks in (1, -1, 2, -2, 32767):
        await write(s, "writes", batch_of(b"a", b"b"), "3+", acks=acks)
    await write(s, "writes", batch_of(b"a", b"b"), "3+", timeout_ms=-1)
    await s.ask("Produce", "3+", acks=1, timeout_ms=1000, topic_data=[])
    await s.ask("Produce", "3+", acks=1, timeout_ms=1000, topic_data=[{"name": "writes", "partition_data": []}])
    for name, index in (("writes", 2), ("writes", -1), ("absent", 0), ("", 0), ("a b", 0)):
        await write(s, name, batch_of(b"a"), "3+", index=index)
    await write(s, "writes", b"", "3+")
    nothing = [{"name": "writes", "partition_data": [{"index": 0, "records": None}]}]
    await s.hanging("Produce", 9, acks=-1, timeout_ms=1000, topic_data=nothing)
    several = [{"index": n, "records": batch_of(b"a")} for n in (1, 0, 5)]
    one = {"name": "writes", "partition_data": several}
    await s.ask("Produce", "3+", acks=1, timeout_ms=1000, topic_data=[one, {**one, "name": "absent"}])
    await read(s, "writes")
    await read(s, "writes", partition=1)


async def batches(s: Side) -> None:
    """Batches of every kind, valid and invalid."""
    await make(s, "batches")
    await make(s, "append-time", message_timestamp_type="LogAppendTime")
    await make(s, "compacted", cleanup_policy="compact")
    await make(s, "small", max_message_bytes="200")
    plain = batch_of(b"a", b"b")
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        await write(s, "batches", batch_of(b"a" * 100, b"b" * 100, codec=codec), "3+")
    for topic in ("batches", "append-time", "compacted"):
        await write(s, topic, with_headers(), 9)
        await write(s, topic, batch_of(b"a", key=None), 9)
        await write(s, topic, batch_of(b"a", b"b", codec=Codec.GZIP), 9)
        await write(s, topic, batch_of(None, b""), 9)
        await read(s, topic, 12)
    for records in (batch_of(b"x" * 200), batch_of(b"x" * 400, codec=Codec.GZIP), batch_of(HUGE)):
        await write(s, "small", records, "8-9")
        await write(s, "batches", records, "8-9")
    broken = {
        "two batches": plain + plain,
        "cut": plain[:-3],
        "a piece": plain[:30],
        "few bytes": plain[:5],
        "bad checksum": patched(plain, 17, b"\0\0\0\0"),
        "magic 3": patched(plain, 16, b"\3"),
        "magic -1": patched(plain, 16, b"\xff"),
        "magic 1 in a batch": patched(plain, 16, b"\1"),
        "a base offset": patched(plain, 0, struct.pack(">q", 7)),
        "a leader epoch": patched(plain, 12, struct.pack(">i", 7)),
        "control": control(),
        "no records": resealed(plain[:61], 8, struct.pack(">i", 49)),
        "count 0": resealed(plain, 57, struct.pack(">i", 0)),
        "count 3": resealed(plain, 57, struct.pack(">i", 3)),
        "count 1": resealed(plain, 57, struct.pack(">i", 1)),
        "count -1": resealed(plain, 57, struct.pack(">i", -1)),
        "last delta 5": resealed(plain, 23, struct.pack(">i", 5)),
        "last delta 0": resealed(plain, 23, struct.pack(">i", 0)),
        "codec 5": resealed(plain, 21, struct.pack(">h", 5)),
        "codec 7": resealed(plain, 21, struct.pack(">h", 7)),
        "gzip that is none": resealed(plain, 21, struct.pack(">h", 1)),
        "lz4 that is none": resealed(plain, 21, struct.pack(">h", 3)),
        "stamped": resealed(plain, 21, struct.pack(">h", 8)),
        "delete horizon": resealed(plain, 21, struct.pack(">h", 0x40)),
        "unused attributes": resealed(plain, 21, struct.pack(">h", 0x80)),
        "length 0": patched(plain, 8, struct.pack(">i", 0)),
        "length -1": patched(plain, 8, struct.pack(">i", -1)),
        "length beyond": patched(plain, 8, struct.pack(">i", 1000)),
        "a message set": message_set(b"a"),
    }
    for version in (3, 7, 8, 11):
        for label, records in broken.items():
            await write(s, "batches", records, version, label=f"records: {label}")
    for at_ms in (-1, -2, 0, THEN_MS * 10):
        await write(s, "batches", batch_of(b"a", at_ms=at_ms), 9)
    await read(s, "batches", 12)


async def implementations(s: Side) -> None:
    """A partition twice in one request, in a topic that no later scenario reads."""
    await make(s, "twice", 2)
    one = {"index": 0, "records": batch_of(b"a")}
    for data in (
        [{"name": "twice", "partition_data": [one, one]}],
        [{"name": "twice", "partition_data": [one]}, {"name": "twice", "partition_data": [one]}],
        [{"name": "twice", "partition_data": [one]}, {"name": "twice", "partition_data": [{**one, "index": 1}]}],
    ):
        await s.ask("Produce", "3+", acks=1, timeout_ms=1000, topic_data=data)
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    for topics in (
        [{"topic": "twice", "partitions": [wanted, wanted]}],
        [{"topic": "twice", "partitions": [wanted]}, {"topic": "twice", "partitions": [wanted]}],
    ):
        await s.ask("Fetch", "4-12", max_wait_ms=0, topics=topics)
    await s.quietly("DeleteTopics", 5, topic_names=["twice"], timeout_ms=20_000)


async def sequences(s: Side) -> None:
    """The batches that an idempotent producer may write."""
    await make(s, "sequences")
    made = await s.until(
        lambda answer: not answer.error_code, "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0
    )
    producer = made.producer_id

    async def go(epoch: int, sequence: int, *values: bytes, version: int = 9, **options: Any) -> None:
        records = batch_of(
            *(values or (b"a",)),
            **{"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence, **options},
        )
        await write(s, "sequences", records, version, label=f"epoch {epoch}, sequence {sequence} {values} {options}")

    await go(0, 0)
    await go(0, 1, b"b", b"c")
    await go(0, 1, b"b", b"c")
    await go(0, 0)
    await go(0, 5)
    await go(0, 2)
    await go(0, 3)
    await go(1, 5)
    await go(1, 0)
    await go(0, 4)
    await go(1, 1, version=3)
    await go(0, 4, version=3)
    await go(1, -1)
    await go(-1, 0)
    await go(1, 2, producer_id=-1)
    await go(0, 3, producer_id=producer + 500)
    await go(0, 2**31 - 1, producer_id=producer + 501)
    await go(0, 0, producer_id=producer + 502)
    await go(0, 0, transactional=True)
    await go(1, 2, transactional=True, version=11)
    for n in range(6):
        await go(1, 2 + n)
    await go(1, 2)
    await go(1, 3)
    await s.ask("DescribeProducers", topics=[{"name": "sequences", "partition_indexes": [0]}])
    await read(s, "sequences", 12)


async def silence(s: Side) -> None:
    """acks=0: the broker sends no response, and closes the connection on an error."""
    await make(s, "silence")

    def data(name: str, records: bytes | None, index: int = 0) -> list[dict[str, Any]]:
        return [{"name": name, "partition_data": [{"index": index, "records": records}]}]

    for topic_data in (
        data("silence", batch_of(b"a")),
        data("silence", batch_of(b"a"), 3),
        data("absent", batch_of(b"a")),
        data("silence", b"nonsense"),
        data("silence", batch_of(HUGE)),
        [],
    ):
        await s.unanswered("Produce", "3+", acks=0, timeout_ms=0, topic_data=topic_data)
    await read(s, "silence", 12)


async def old_formats(s: Side) -> None:
    """Message sets of magic 0 and 1, in the versions that have them."""
    await make(s, "old")
    await make(s, "old-stamped", message_timestamp_type="LogAppendTime")
    for topic in ("old", "old-stamped"):
        for records in (
            message_set(b"a", magic=0),
            message_set(b"a", b"b", magic=1),
            message_set(b"a", None, magic=1),
            wrapped(b"a", b"b", magic=0),
            wrapped(b"a", b"b", magic=1),
            patched(message(b"a"), 12, b"\0\0\0\0"),
            message(b"a")[:-2],
            message(b"a") + message(b"b", magic=0),
            batch_of(b"a"),
            b"",
        ):
            await write(s, topic, records, "0-3", acks=1)
        await read(s, topic, "0-4")
        await read(s, topic, "0-4", fetch_offset=4)
    await s.unanswered(
        "Produce",
        "0-2",
        acks=0,
        timeout_ms=0,
        topic_data=[{"name": "old", "partition_data": [{"index": 0, "records": message_set(b"a", magic=0)}]}],
    )
    await make(s, "new")
    await write(s, "new", with_headers(), 9)
    await write(s, "new", batch_of(b"a", b"b", codec=Codec.GZIP), 9)
    await read(s, "new", "0-4")
    await make(s, "kept", message_downconversion_enable="false")
    await write(s, "kept", batch_of(b"a"), 9)
    await read(s, "kept", "0-4")


# ---- Fetch


async def reads(s: Side) -> None:
    """Fetch in every version: ends, limits, epochs, isolation."""
    topic_id = await make(s, "reads", 2)
    for n in range(3):
        await write(s, "reads", batch_of(b"a%d" % n, b"b" * 50), 9)
    for offset in (0, 1, 3, 5, 6, 7, -1, 2**62):
        await read(s, "reads", fetch_offset=offset)
    for name, partition in (("reads", 1), ("reads", 2), ("reads", -1), ("absent", 0), ("", 0)):
        await read(s, name, partition=partition)
    for fields in (
        {"max_bytes": 0},
        {"max_bytes": 1},
        {"max_bytes": 150},
        {"max_bytes": -1},
        {"min_bytes": 0},
        {"min_bytes": -1},
        {"min_bytes": 1000},
        {"isolation_level": 1},
        {"isolation_level": 2},
        {"isolation_level": -1},
        {"max_wait_ms": -1},
        {"replica_id": -2},
        {"replica_id": -3},
    ):
        await read(s, "reads", "4-12", **fields)
    for limit in (0, 1, 100, 150, -1):
        wanted = {"partition": 0, "fetch_offset": 2, "partition_max_bytes": limit}
        await read(s, "reads", topics=[{"topic": "reads", "partitions": [wanted, {**wanted, "partition": 1}]}])
    for epoch in (0, 1, -1, -2):
        await read(s, "reads", "9-12", current_leader_epoch=epoch)
    for epoch in (0, 1, -1, 5):
        await read(s, "reads", 12, last_fetched_epoch=epoch, fetch_offset=6)
        await read(s, "reads", 12, last_fetched_epoch=epoch, fetch_offset=20)
    await read(s, "reads", 12, cluster_id="another")
    await read(s, "reads", "11-12", rack_id="r1")
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    for topics in (
        [],
        [{"topic": "reads", "partitions": []}],
        [{"topic": "reads", "partitions": [wanted]}, {"topic": "reads", "partitions": [{**wanted, "partition": 1}]}],
        [{"topic": "reads", "partitions": [wanted]}, {"topic": "absent", "partitions": [wanted]}],
    ):
        await read(s, "reads", topics=topics)
    by_id = [{"topic_id": topic_id, "partitions": [wanted, {**wanted, "partition": 9}]}]
    await read(s, "", "13+", topics=by_id)
    await read(s, "", "13+", topics=[{"topic_id": bytes(16), "partitions": [wanted]}, *by_id])
    await read(s, "", "13+", topics=[{"topic_id": b"0123456789abcdef", "partitions": [wanted]}])
    await read(s, "", "15+", topics=by_id, replica_state={"replica_id": -1, "replica_epoch": -1})


async def replica_reads(s: Side) -> None:
    """Fetches of unknown followers."""
    topic_id = await make(s, "replica-reads")
    await write(s, "replica-reads", batch_of(b"a"), 9)
    for replica in (1, 0, 1000):
        await read(s, "replica-reads", "4-12", replica_id=replica)
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    for replica in (1, 0):
        for epoch in (-1, 5):
            await s.ask(
                "Fetch",
                "15+",
                replica_state={"replica_id": replica, "replica_epoch": epoch},
                max_wait_ms=0,
                topics=[{"topic_id": topic_id, "partitions": [wanted]}],
            )


async def sessions(s: Side) -> None:
    """Incremental fetches: the state of a session."""
    topic_id = await make(s, "sessions", 3)
    for index in (0, 1):
        await write(s, "sessions", batch_of(b"a"), 9, index=index)

    def wanted(*partitions: int, offset: int = 0) -> list[dict[str, Any]]:
        return [{"partition": n, "fetch_offset": offset, "partition_max_bytes": 1000} for n in partitions]

    def named(version: int, partitions: Iterable[Any]) -> list[dict[str, Any]]:
        topic = {"topic": "sessions"} if version < 13 else {"topic_id": topic_id}
        return [{**topic, "partitions": list(partitions)}]

    for version in s.span("Fetch", "7+"):

        async def go(
            session: int, epoch: int, topics: Any, forgotten: Any = (), version: int = version, min_bytes: int = 0
        ) -> Any:
            return await s.ask(
                "Fetch",
                version,
                max_wait_ms=0,
                min_bytes=min_bytes,
                session_id=session,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=list(forgotten),
            )

        opened = await go(0, 0, named(version, wanted(0, 1, 2)))
        session = opened.session_id
        await go(session, 1, [])
        await go(session, 2, named(version, wanted(1, offset=1)))
        await write(s, "sessions", batch_of(b"b"), 9, index=1)
        await go(session, 3, [])
        await go(session, 4, named(version, wanted(0, offset=9)))
        await go(session, 5, [], named(version, [0, 2]))
        await go(session, 6, [], named(version, [0, 2]))
        await go(session, 9, [])
        await go(session, 7, named(version, wanted(0)), named(version, [0]))
        await go(session + 1, 8, [])
        await go(session, -1, named(version, wanted(0)))
        await go(session, 8, [])
        await go(0, 1, [])
        await go(0, -1, named(version, wanted(0)))
        await go(0, 0, [])
        await go(0, -2, [])


# ---- offsets


async def offsets(s: Side) -> None:
    """ListOffsets with every special timestamp, and between them."""
    await make(s, "offsets", 2)
    for n in (3, 1, 2):
        await write(s, "offsets", batch_of(b"a", b"b", at_ms=THEN_MS + 1000 * n), 9)

    def topics(timestamp: int, *partitions: int, name: str = "offsets", **fields: Any) -> list[dict[str, Any]]:
        wanted = [{"partition_index": n, "timestamp": timestamp, **fields} for n in partitions]
        return [{"name": name, "partitions": wanted}]

    times = (-1, -2, -3, -4, -5, -6, -7, -100, 0, THEN_MS, THEN_MS + 1001, THEN_MS + 2001, THEN_MS + 3001, THEN_MS * 2)
    for timestamp in times:
        await s.ask("ListOffsets", replica_id=-1, topics=topics(timestamp, 0, 1))
        await s.ask("ListOffsets", "2+", replica_id=-1, isolation_level=1, topics=topics(timestamp, 0))
        await s.ask("ListOffsets", 0, replica_id=-1, topics=topics(timestamp, 0, max_num_offsets=5))
    for number in (0, -1, 1, 2, 10):
        for timestamp in (-1, -2, -3, THEN_MS + 1, THEN_MS * 2):
            await s.ask("ListOffsets", 0, replica_id=-1, topics=topics(timestamp, 0, max_num_offsets=number))
    for epoch in (0, 1, 7, -1, -5):
        for timestamp in (-1, -2, -3, -4, THEN_MS):
            await s.ask("ListOffsets", "4+", replica_id=-1, topics=topics(timestamp, 0, current_leader_epoch=epoch))
    for replica in (-2, -3, 0, 7):
        await s.ask("ListOffsets", replica_id=replica, topics=topics(-1, 0))
        await s.ask("ListOffsets", replica_id=replica, topics=topics(THEN_MS, 0))
    for level in (2, -1):
        await s.ask("ListOffsets", "2+", replica_id=-1, isolation_level=level, topics=topics(-1, 0))
    for wanted in (
        [],
        topics(-1),
        topics(-1, 0, 0),
        topics(-1, 2, -1),
        topics(-1, 0, name="absent"),
        topics(-1, 0, name=""),
        topics(-1, 0) + topics(-2, 0),
        topics(-1, 1) + topics(-1, 0, name="absent") + topics(-2, 0),
    ):
        await s.ask("ListOffsets", replica_id=-1, topics=wanted)


async def epochs(s: Side) -> None:
    """OffsetForLeaderEpoch."""
    await make(s, "epochs", 2)
    await write(s, "epochs", batch_of(b"a", b"b"), 9)

    def topics(epoch: int, *partitions: int, name: str = "epochs", **fields: int) -> list[dict[str, Any]]:
        wanted = [{"partition": n, "leader_epoch": epoch, **fields} for n in partitions]
        return [{"topic": name, "partitions": wanted}]

    for epoch in (0, 1, -1, -2, 100, 2**31 - 1):
        await s.ask("OffsetForLeaderEpoch", topics=topics(epoch, 0, 1))
        await s.ask("OffsetForLeaderEpoch", "3+", replica_id=-1, topics=topics(epoch, 0))
    for current in (0, 1, -1, -2):
        await s.ask("OffsetForLeaderEpoch", "2+", topics=topics(0, 0, 9, current_leader_epoch=current))
        await s.ask("OffsetForLeaderEpoch", "2+", topics=topics(0, 0, name="absent", current_leader_epoch=current))
    for replica in (-2, 0, 5):
        await s.ask("OffsetForLeaderEpoch", "3+", replica_id=replica, topics=topics(0, 0))
    for wanted in (
        [],
        topics(0),
        topics(0, 0, 0),
        topics(0, 5, -1),
        topics(0, 0, name="absent"),
        topics(0, 0, name=""),
        topics(0, 0) + topics(0, 1),
        topics(0, 1) + topics(0, 0, name="absent"),
    ):
        await s.ask("OffsetForLeaderEpoch", topics=wanted)


async def cuts(s: Side) -> None:
    """DeleteRecords, and the remaining records."""
    await make(s, "cuts", 2)
    await make(s, "compacted-cuts", cleanup_policy="compact")
    for topic in ("cuts", "compacted-cuts"):
        await write(s, topic, batch_of(b"a", b"b", b"c", b"d"), 9)

    def topics(offset: int, *partitions: int, name: str = "cuts") -> list[dict[str, Any]]:
        return [{"name": name, "partitions": [{"partition_index": n, "offset": offset} for n in partitions]}]

    for offset in (0, 1, 0, 2, 9, -2, 3, -1, -1):
        await s.ask("DeleteRecords", timeout_ms=5000, topics=topics(offset, 0))
    await write(s, "cuts", batch_of(b"e"), 9)
    for wanted in (
        [],
        topics(0),
        topics(0, 1),
        topics(-1, 1, 0),
        topics(0, 0, 0),
        topics(0, 7, -1),
        topics(0, 0, name="absent"),
        topics(0, 0, name=""),
        topics(1, 0, name="compacted-cuts"),
        topics(-1, 0, name="compacted-cuts"),
        topics(0, 0) + topics(0, 1),
        topics(-1, 0, name="__consumer_offsets"),
    ):
        await s.ask("DeleteRecords", timeout_ms=5000, topics=wanted)
    await s.ask("DeleteRecords", timeout_ms=-1, topics=topics(0, 0))
    await s.ask("DeleteRecords", timeout_ms=0, topics=topics(0, 1))
    for offset in (0, 3, 4, 5, 6):
        await read(s, "cuts", "4-12", fetch_offset=offset)
    for timestamp in (-1, -2, -3, -4, 0):
        wanted = [
            {"name": "cuts", "partitions": [{"partition_index": 0, "timestamp": timestamp, "max_num_offsets": 5}]}
        ]
        await s.ask("ListOffsets", 0, replica_id=-1, topics=wanted)
        wanted = [{"name": "cuts", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
        await s.ask("ListOffsets", "1+", replica_id=-1, topics=wanted)


async def producers(s: Side) -> None:
    """DescribeProducers: the producers of a partition."""
    await make(s, "producers", 2)
    for producer in (600, 601):
        records = batch_of(b"a", producer_id=producer, producer_epoch=3, base_sequence=0)
        await write(s, "producers", records, 9)
    for topics in (
        [],
        [{"name": "producers", "partition_indexes": [0, 1]}],
        [{"name": "producers", "partition_indexes": []}],
        [{"name": "producers", "partition_indexes": [0, 0]}],
        [{"name": "producers", "partition_indexes": [5, -1]}],
        [{"name": "a b", "partition_indexes": [0]}],
        [{"name": "absent", "partition_indexes": [0]}],
        [{"name": "", "partition_indexes": [0]}],
        [{"name": "producers", "partition_indexes": [0]}, {"name": "producers", "partition_indexes": [1]}],
        [{"name": "absent", "partition_indexes": [0]}, {"name": "producers", "partition_indexes": [1]}],
    ):
        await s.ask("DescribeProducers", topics=topics)


async def disks(s: Side) -> None:
    """DescribeLogDirs and AlterReplicaLogDirs."""
    await make(s, "disks", 2)
    await write(s, "disks", batch_of(b"a", b"b"), 9)
    one = {"topic": "disks", "partitions": [0]}
    for topics in (
        [],
        [one],
        [{"topic": "disks", "partitions": []}],
        [{"topic": "disks", "partitions": [0, 1, 2, -1, 0]}],
        [{"topic": "absent", "partitions": [0]}],
        [{"topic": "", "partitions": [0]}],
        [one, one],
    ):
        await s.ask("DescribeLogDirs", topics=topics)
    for version in s.span("DescribeLogDirs", None):
        found = await s.quietly("DescribeLogDirs", version, topics=None)
        found.results[0].topics = [each for each in found.results[0].topics if each.name == "disks"]
        s.note("DescribeLogDirs", version, "all topics", found)
    own = found.results[0].log_dir
    for path in (own, "/absent", "relative", ""):
        for topics in (
            [],
            [{"name": "disks", "partitions": [0, 1]}],
            [{"name": "disks", "partitions": []}],
            [{"name": "disks", "partitions": [9]}, {"name": "absent", "partitions": [0]}],
            [{"name": "disks", "partitions": [0, 0]}],
            [{"name": "disks", "partitions": [0]}, {"name": "disks", "partitions": [1]}],
            [{"name": "", "partitions": [0]}],
        ):
            await s.ask("AlterReplicaLogDirs", dirs=[{"path": path, "topics": topics}])
    await s.ask("AlterReplicaLogDirs", dirs=[])
    both = [{"path": path, "topics": [{"name": "disks", "partitions": [0]}]} for path in (own, "/absent")]
    await s.ask("AlterReplicaLogDirs", dirs=both)


LOGS = (
    writes,
    batches,
    implementations,
    sequences,
    silence,
    old_formats,
    reads,
    replica_reads,
    sessions,
    offsets,
    epochs,
    cuts,
    producers,
    disks,
)
