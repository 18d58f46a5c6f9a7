"""Scenarios of partitions in a cluster: every API about a partition, at its leader, its follower and a broker without a
replica, before and after the leader changes.
"""

from __future__ import annotations

from typing import Any

from tests.comparison.data import THEN_MS, batch_of, message_set
from tests.comparison.trio import BROKERS, ClusterSide

ABSENT = "absent"
STRANGE_ID = b"0123456789abcdef"
FORMATS = {"0-1": message_set(b"a", magic=0), "2-2": message_set(b"a", magic=1), "3+": batch_of(b"a")}
"""The records of a Produce by version: message sets of magic 0 and 1, then batches."""


class Moved:
    """A partition and its state in the scenario. Partition 0 is the one under test."""

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.epoch = 0
        self.leader = 1
        self.producer_id = 5_000_000
        self.written = 0

    def epochs(self) -> list[int]:
        return [-1, self.epoch - 1, self.epoch, self.epoch + 1]


async def placed(s: ClusterSide, name: str, *assignment: list[int]) -> Moved:
    """A topic with these replicas, which all brokers have in their metadata."""
    assignments = [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(assignment)]
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    made = await s.ask("CreateTopics", 7, topics=[topic], timeout_ms=20_000)
    moved = Moved(name, made.topics[0].topic_id)
    moved.epoch = await s.agreed(name, {n: (ids[0], set(ids)) for n, ids in enumerate(assignment)})
    return moved


async def write(s: ClusterSide, at: int, moved: Moved, versions: str | int = 9, **fields: Any) -> Any:
    """Produce one batch to partition 0."""
    records = fields.pop("records", batch_of(b"a"))
    data = [{"name": moved.name, "partition_data": [{"index": 0, "records": records}]}]
    asked = {"acks": -1, "timeout_ms": 10_000, "topic_data": data, **fields}
    return await s.ask("Produce", versions, at=str(at), **asked)


async def caught_up(s: ClusterSide, moved: Moved, *followers: int) -> None:
    """Wait until these followers have all records, and a high watermark that covers them."""
    answer = await write(s, moved.leader, moved)
    end = answer.responses[0].partition_responses[0].base_offset + 1
    wanted = {"partition": 0, "fetch_offset": end, "partition_max_bytes": 1}
    for broker_id in followers:
        await s.wait(
            lambda answer: answer.responses[0].partitions[0].high_watermark == end,
            *("Fetch", 11),
            at=str(broker_id),
            topics=[{"topic": moved.name, "partitions": [wanted]}],
        )
    moved.written = end


async def elected(s: ClusterSide, name: str) -> Moved:
    """A topic whose partition 0 has been led by broker 1 and is led by broker 2 now."""
    moved = await placed(s, name, [1, 2], [2, 3])
    await caught_up(s, moved, 2)
    partitions = [{"partition_index": 0, "replicas": [2, 1]}]
    topics = [{"name": name, "partitions": partitions}]
    await s.ask("AlterPartitionReassignments", 0, at="1", topics=topics, timeout_ms=20_000)
    under_way = {"topics": [{"name": name, "partition_indexes": [0]}]}
    await s.wait(lambda answer: not answer.topics, "ListPartitionReassignments", 0, at="1", **under_way)
    wanted = [{"topic": name, "partitions": [0, 1, 7]}, {"topic": ABSENT, "partitions": [0]}]
    await s.ask("ElectLeaders", 2, at="1", topic_partitions=wanted, timeout_ms=20_000)
    moved.leader = 2
    moved.epoch = await s.agreed(name, {0: (2, {1, 2}), 1: (2, {2, 3})})
    return moved


# ---- one API at one broker


async def writes(s: ClusterSide, at: int, moved: Moved) -> None:
    """Produce, with all acks."""
    for versions, records in FORMATS.items():
        for acks in (1, -1, 2):
            await write(s, at, moved, versions, acks=acks, records=records)
    for acks in (1, -1):
        for data in (
            [{"index": 0, "records": batch_of(b"a")}, {"index": 7, "records": batch_of(b"a")}],
            [{"index": 0, "records": b"nonsense"}],
            [{"index": -1, "records": batch_of(b"a")}],
        ):
            topics = [{"name": moved.name, "partition_data": data}, {"name": ABSENT, "partition_data": data}]
            await s.ask("Produce", "9+", at=str(at), acks=acks, timeout_ms=10_000, topic_data=topics)
    transactional = batch_of(b"a", producer_id=moved.producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    await write(s, at, moved, "3+", records=transactional)
    if at != moved.leader:
        await write(s, at, moved, "3+", records=transactional, transactional_id="tx")
    await write(
        s, at, moved, "9+", records=batch_of(b"a", producer_id=6_000_000 + at, producer_epoch=0, base_sequence=5)
    )
    for versions, records in FORMATS.items():
        data = [{"name": moved.name, "partition_data": [{"index": 0, "records": records}]}]
        await s.unanswered("Produce", versions, at=f"{at} silent", acks=0, timeout_ms=0, topic_data=data)


async def reads(s: ClusterSide, at: int, moved: Moved) -> None:
    """Fetch, as a consumer and as a follower."""

    async def read(versions: str, index: int = 0, replica: int | None = None, **fields: Any) -> None:
        names = ("fetch_offset", "current_leader_epoch", "last_fetched_epoch")
        of_partition = {name: fields.pop(name) for name in names if name in fields}
        wanted = {"partition": index, "fetch_offset": moved.written, "partition_max_bytes": 200, **of_partition}
        for version in s.span("Fetch", versions):
            topic = {"topic_id": moved.topic_id} if version >= 13 else {"topic": moved.name}
            follower: dict[str, Any] = {}
            if replica is not None and version >= 15:
                follower = {"replica_state": {"replica_id": replica, "replica_epoch": -1}}
            elif replica is not None:
                follower = {"replica_id": replica}
            topics = [{**topic, "partitions": [wanted]}]
            await s.ask("Fetch", version, at=str(at), max_wait_ms=0, topics=topics, **follower, **fields)

    await read("0+")
    for fields in ({"fetch_offset": 0}, {"fetch_offset": 10**6}, {"fetch_offset": -1}, {"index": 7}):
        await read("10+", **fields)
        await read("12-13", isolation_level=1, **fields)
    for epoch in moved.epochs():
        await read("9+", current_leader_epoch=epoch)
        await read("12+", current_leader_epoch=epoch, last_fetched_epoch=epoch)
        for replica in (2, 3):
            if replica != at:
                await read("11-15", replica=replica, current_leader_epoch=epoch)
                await read("17+", replica=replica, current_leader_epoch=epoch)
    for replica in (*BROKERS, -2):
        for versions in ("2-4", "11-15", "17+"):
            await read(versions, replica=replica)
    await read("11+", rack_id="somewhere")
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 200}
    of_both = [{"topic_id": each, "partitions": [wanted]} for each in (moved.topic_id, STRANGE_ID)]
    await s.ask("Fetch", "13+", at=str(at), max_wait_ms=0, topics=of_both)
    of_both = [{"topic": each, "partitions": [wanted]} for each in (moved.name, ABSENT)]
    await s.ask("Fetch", "0-12", at=str(at), max_wait_ms=0, topics=of_both)


async def offsets(s: ClusterSide, at: int, moved: Moved) -> None:
    """ListOffsets and OffsetForLeaderEpoch."""

    def listed(timestamp: int, index: int = 0, name: str = moved.name, **fields: Any) -> list[dict[str, Any]]:
        return [{"name": name, "partitions": [{"partition_index": index, "timestamp": timestamp, **fields}]}]

    for timestamp in (-1, -2, -3, -4, -5, THEN_MS, THEN_MS * 2):
        for replica in (-1, -2, 2):
            versions = "1+" if replica == -1 else "7+"
            await s.ask("ListOffsets", versions, at=str(at), replica_id=replica, topics=listed(timestamp))
        await s.ask("ListOffsets", 0, at=str(at), replica_id=-1, topics=listed(timestamp, max_num_offsets=3))
        await s.ask("ListOffsets", "8+", at=str(at), replica_id=-1, isolation_level=1, topics=listed(timestamp))
    for epoch in moved.epochs():
        for replica in (-1, -2, 2):
            topics = listed(-1, current_leader_epoch=epoch)
            await s.ask("ListOffsets", "4-6" if replica == -1 else "9+", at=str(at), replica_id=replica, topics=topics)
    await s.ask("ListOffsets", at=str(at), replica_id=-1, topics=listed(-1, 7) + listed(-1, name=ABSENT))

    def ends(epoch: int, index: int = 0, name: str = moved.name, **fields: int) -> list[dict[str, Any]]:
        return [{"topic": name, "partitions": [{"partition": index, "leader_epoch": epoch, **fields}]}]

    for epoch in moved.epochs():
        await s.ask("OffsetForLeaderEpoch", at=str(at), topics=ends(epoch))
        for replica in (-1, -2, 2):
            topics = ends(0, current_leader_epoch=epoch)
            await s.ask("OffsetForLeaderEpoch", "3+", at=str(at), replica_id=replica, topics=topics)
    await s.ask("OffsetForLeaderEpoch", at=str(at), topics=ends(0, 7) + ends(0, name=ABSENT))


async def deeds(s: ClusterSide, at: int, moved: Moved) -> None:
    """DeleteRecords, WriteTxnMarkers, DescribeProducers."""

    def cut(offset: int, index: int = 0, name: str = moved.name) -> list[dict[str, Any]]:
        return [{"name": name, "partitions": [{"partition_index": index, "offset": offset}]}]

    for offset in (0, 1, -1 if at != moved.leader else 2, 10**6, -2):
        await s.ask("DeleteRecords", at=str(at), timeout_ms=10_000, topics=cut(offset))
    await s.ask("DeleteRecords", at=str(at), timeout_ms=10_000, topics=cut(0, 7) + cut(0, name=ABSENT))
    for topic, index in ((moved.name, 0), (moved.name, 7), (ABSENT, 0)):
        marker = {
            "producer_id": moved.producer_id,
            "producer_epoch": 0,
            "coordinator_epoch": 0,
            "topics": [{"name": topic, "partition_indexes": [index]}],
        }
        await s.ask("WriteTxnMarkers", at=str(at), markers=[marker])
    for topics in (
        [{"name": moved.name, "partition_indexes": [0, 7]}],
        [{"name": ABSENT, "partition_indexes": [0]}, {"name": moved.name, "partition_indexes": [0]}],
    ):
        await s.ask("DescribeProducers", at=str(at), topics=topics)


async def disks(s: ClusterSide, at: int, moved: Moved) -> None:
    """DescribeLogDirs and AlterReplicaLogDirs."""
    one = {"topic": moved.name, "partitions": [0, 7]}
    found = await s.ask("DescribeLogDirs", at=str(at), topics=[one, {"topic": ABSENT, "partitions": [0]}])
    for path in (found.results[0].log_dir, "/absent"):
        topics = [{"name": moved.name, "partitions": [0, 7]}, {"name": ABSENT, "partitions": [0]}]
        await s.ask("AlterReplicaLogDirs", at=str(at), dirs=[{"path": path, "topics": topics}], label=f"{topics}")


PARTITION_APIS = (writes, reads, offsets, deeds, disks)


async def everywhere(s: ClusterSide, moved: Moved, *followers: int) -> None:
    """Every API about a partition, sent to every broker."""
    for apis in PARTITION_APIS:
        await caught_up(s, moved, *followers)
        for at in BROKERS:
            await apis(s, at, moved)


# ---- scenarios


async def at_first(s: ClusterSide) -> None:
    """Leader 1, follower 2; broker 3 has no replica."""
    moved = await placed(s, "at-first", [1, 2])
    await everywhere(s, moved, 2)


async def after_an_election(s: ClusterSide) -> None:
    """The leader is another replica, by an election of the preferred one."""
    moved = await elected(s, "elected")
    await caught_up(s, moved, 1)
    for at in BROKERS:
        await reads(s, at, moved)
        await offsets(s, at, moved)


async def after_a_move(s: ClusterSide) -> None:
    """The leader is a broker that had no replica, and the first leader has none any more."""
    moved = await placed(s, "moved", [1, 2])
    await caught_up(s, moved, 2)
    topics = [{"name": moved.name, "partitions": [{"partition_index": 0, "replicas": [3, 2]}]}]
    await s.ask("AlterPartitionReassignments", 0, at="1", topics=topics, timeout_ms=20_000)
    moved.leader = 3
    moved.epoch = await s.agreed(moved.name, {0: (3, {2, 3})})
    described = {"topics": [{"topic": moved.name, "partitions": [0]}]}
    await s.wait(lambda answer: not answer.results[0].topics, "DescribeLogDirs", 1, at="1", **described)
    await everywhere(s, moved, 2)


async def after_the_end(s: ClusterSide) -> None:
    """The topic is deleted: no broker has it, and the broker that got the deletion returns it no more."""
    moved = await placed(s, "deleted", [2, 3])
    await s.ask("DeleteTopics", 6, at="1", topics=[{"name": moved.name}], timeout_ms=20_000)
    known = {"topics": [{"name": moved.name}], "allow_auto_topic_creation": False}
    await s.ask("Metadata", "4+", at="1", **known)
    for at in BROKERS:
        await s.wait(lambda answer: answer.topics[0].error_code, "Metadata", 9, at=str(at), **known)
        described = {"topics": [{"topic": moved.name, "partitions": [0]}]}
        await s.wait(lambda answer: not answer.results[0].topics, "DescribeLogDirs", 1, at=str(at), **described)
    await offsets(s, 1, moved)
    await reads(s, 2, moved)
    await deeds(s, 3, moved)
    await disks(s, 3, moved)


PARTITIONS = (at_first, after_an_election, after_a_move, after_the_end)
