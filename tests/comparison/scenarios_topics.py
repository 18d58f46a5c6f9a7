"""Scenarios of topics: created, grown, described, moved and deleted."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import ErrorCode
from tests.comparison.scenarios_logs import make
from tests.comparison.side import Side

NO_ID = bytes(16)
STRANGE_ID = b"0123456789abcdef"


def topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> dict[str, Any]:
    """A topic of a CreateTopics."""
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **fields}


def assigned(*replicas: list[int]) -> list[dict[str, Any]]:
    """Partitions with their replicas."""
    return [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(replicas)]


async def creations(s: Side) -> None:
    """CreateTopics: valid and invalid names and properties of a topic."""
    make_all: dict[str, Any] = {"timeout_ms": 20_000}
    await s.ask("CreateTopics", topics=[topic("made-{v}", 2)], **make_all)
    await s.ask("CreateTopics", topics=[topic("made-{v}", 2)], **make_all)
    await s.ask("CreateTopics", "1+", topics=[topic("tried-{v}", 2)], validate_only=True, **make_all)
    await s.ask("CreateTopics", topics=[], **make_all)
    for partitions in (0, -1, -2):
        await s.ask("CreateTopics", topics=[topic(f"partitions{partitions}-{{v}}", partitions)], **make_all)
    for replicas in (0, -1, -2, 2, 32767):
        await s.ask("CreateTopics", topics=[topic(f"replicas{replicas}-{{v}}", 1, replicas)], **make_all)
    for number, assignments in enumerate(
        (
            assigned([0]),
            assigned([0], [0]),
            assigned([0, 0]),
            assigned([0], [0, 1]),
            [{"partition_index": 1, "broker_ids": [0]}],
            [{"partition_index": -1, "broker_ids": [0]}],
            [{"partition_index": 0, "broker_ids": [0]}, {"partition_index": 0, "broker_ids": [0]}],
            [{"partition_index": 0, "broker_ids": [0]}, {"partition_index": 2, "broker_ids": [0]}],
        )
    ):
        await s.ask(
            "CreateTopics", topics=[topic(f"assigned{number}-{{v}}", -1, -1, assignments=assignments)], **make_all
        )
    await s.ask("CreateTopics", topics=[topic("both-{v}", 1, -1, assignments=assigned([0]))], **make_all)
    await s.ask("CreateTopics", topics=[topic("both-{v}", -1, 1, assignments=assigned([0]))], **make_all)
    await s.ask("CreateTopics", topics=[topic("defaults-{v}", -1, -1)], **make_all)
    backwards = [{"partition_index": n, "broker_ids": [0]} for n in (1, 0)]
    large = [{"name": "segment.bytes", "value": "2097152"}]
    await s.ask("CreateTopics", topics=[topic("back-{v}", -1, -1, assignments=backwards, configs=large)], **make_all)
    for name in ("", ".", "..", "a b", "a/b", "ü", "x" * 249, "x" * 250, "__cluster_metadata"):
        await s.ask("CreateTopics", "0-7", topics=[topic(name)], **make_all)
        await s.ask("CreateTopics", 7, topics=[topic(name)], validate_only=True, **make_all)
    await s.ask("CreateTopics", 7, topics=[topic("colli.ding")], **make_all)
    await s.ask("CreateTopics", topics=[topic("colli_ding")], **make_all)
    strange = [{"name": "no.such", "value": "1"}]
    for several_faults in (
        topic("colli.ding", 0, 9),
        topic("colli_ding", 0),
        topic("..", 0),
        topic("faulty", 0, 2, configs=strange),
        topic("faulty", 1, 9, configs=strange),
    ):
        await s.ask("CreateTopics", topics=[several_faults], **make_all)
    pair = [topic("colli.sion"), topic("colli_sion")]
    answer = await s.quietly("CreateTopics", 7, topics=pair, **make_all)
    # Which of two names that collide comes first depends on Kafka's hash table.
    s.note("CreateTopics", 7, "two names that collide", sorted(each.error_code for each in answer.topics))
    await s.quietly("DeleteTopics", 5, topic_names=["colli.sion", "colli_sion"], timeout_ms=20_000)
    await _gone(s, "colli.sion")
    await _gone(s, "colli_sion")
    await s.ask("CreateTopics", topics=[topic("colli_ding"), topic("beside-{v}"), topic("wide-{v}", 1, 3)], **make_all)
    await s.ask("CreateTopics", topics=[topic("twin-{v}"), topic("twin-{v}")], **make_all)
    await s.ask("CreateTopics", topics=[topic("twin-{v}"), topic("twin-{v}", 2), topic("single-{v}")], **make_all)
    await s.ask("CreateTopics", topics=[topic("good-{v}"), topic("bad {v}"), topic("made-{v}")], **make_all)
    overrides: tuple[list[tuple[str, str | None]], ...] = (
        [("retention.ms", "1000")],
        [("retention.ms", None)],
        [("retention.ms", "soon")],
        [("retention.ms", "-5")],
        [("no.such", "1")],
        [("no.such", None)],
        [("cleanup.policy", "")],
        [("", "1")],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [("cleanup.policy", "compact,delete"), ("min.insync.replicas", "5")],
        [("cleanup.policy", "shred")],
        [("min.insync.replicas", "0")],
        [("compression.type", "zstd"), ("compression.zstd.level", "99")],
        [("message.format.version", "0.10.0")],
        [("remote.storage.enable", "true")],
        [("leader.replication.throttled.replicas", "0:0,1:0")],
        [("leader.replication.throttled.replicas", "x")],
        [("segment.bytes", "1")],
        [("message.timestamp.type", "Neither")],
        [("max.compaction.lag.ms", "5"), ("min.compaction.lag.ms", "10")],
    )
    for number, configs in enumerate(overrides):
        wanted = topic(f"configured{number}-{{v}}", configs=[{"name": k, "value": v} for k, v in configs])
        await s.ask("CreateTopics", topics=[wanted], **make_all)
    for timeout in (0, -1):
        await s.ask("CreateTopics", topics=[topic(f"late{timeout}-{{v}}", 0)], timeout_ms=timeout)
    for offline in ([1], [0, 1]):
        wanted = topic("on-no-broker", -1, -1, assignments=assigned(offline))
        await s.ask("CreateTopics", 7, topics=[wanted], timeout_ms=500)
        await s.quietly("DeleteTopics", 5, topic_names=["on-no-broker"], timeout_ms=500)
        await _gone(s, "on-no-broker")


async def _gone(s: Side, name: str) -> None:
    """Wait until a topic is gone."""
    wanted: dict[str, Any] = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    await s.wait(lambda answer: answer.topics[0].error_code, "Metadata", 9, **wanted)


async def deletions(s: Side) -> None:
    """DeleteTopics by name and by id."""
    low, high = s.versions[20]
    for version in range(low, high + 1):
        for n in range(3):
            await make(s, f"doomed{n}-{version}")
    late: dict[str, Any] = {"timeout_ms": 20_000}
    await s.ask("DeleteTopics", "0-5", topic_names=["doomed0-{v}"], **late)
    await s.ask("DeleteTopics", "0-5", topic_names=["doomed0-{v}"], **late)
    for names in ([], ["absent"], [""], ["a b"], ["doomed1-{v}", "absent", "doomed2-{v}"], ["absent", "absent"]):
        await s.ask("DeleteTopics", "0-5", topic_names=names, **late)
    topic_id = await make(s, "doomed-by-id")
    await s.ask("DeleteTopics", 6, topics=[{"name": "doomed0-6"}], **late)
    by_id: dict[str, Any] = {"topics": [{"name": None, "topic_id": topic_id}], **late}
    await s.ask("DeleteTopics", 6, **by_id)
    await s.until(
        lambda answer: answer.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID, "DeleteTopics", 6, **by_id
    )
    await s.ask("DeleteTopics", "1-5", topic_names=["__cluster_metadata"], **late)
    await make(s, "doomed-by-name")
    await s.ask("DeleteTopics", 5, topic_names=["doomed-by-name", "absent", "absent", "", "a b"], **late)
    ids = [{"name": None, "topic_id": await make(s, f"doomed-by-id-{n}")} for n in range(2)]
    unknown, none = {"name": None, "topic_id": STRANGE_ID}, {"name": None, "topic_id": NO_ID}
    for wanted in ([ids[0], unknown], [ids[1], ids[1]], [none, none]):
        await s.ask("DeleteTopics", 6, topics=wanted, **late)
    for n, with_id in enumerate((True, False)):
        doomed: dict[str, Any] = {"topic_id": await make(s, f"doomed-thrice-{n}")} if with_id else {}
        name = {"name": f"doomed-thrice-{n}"}
        await s.ask("DeleteTopics", 6, topics=[{**name, **doomed}, name], **late)
    other = await make(s, "doomed-twice")
    for topics in (
        [],
        [{"name": "absent"}],
        [{"name": ""}],
        [{"name": None, "topic_id": STRANGE_ID}],
        [{"name": None, "topic_id": NO_ID}],
        [{"name": "doomed-twice", "topic_id": other}],
        [{"name": "doomed-twice"}, {"name": None, "topic_id": other}],
        [{"name": "doomed1-6"}, {"name": "doomed1-6"}, {"name": "doomed2-6"}],
    ):
        await s.ask("DeleteTopics", 6, topics=topics, **late)
    await s.ask("DeleteTopics", "0-5", topic_names=["absent"], timeout_ms=-1)
    await s.ask("Metadata", 12, topics=[{"name": "doomed-twice"}], allow_auto_topic_creation=False)


async def growth(s: Side) -> None:
    """CreatePartitions."""
    await make(s, "growing")

    def to(count: int, name: str = "growing", assignments: Any = None) -> dict[str, Any]:
        return {"name": name, "count": count, "assignments": assignments}

    def on(*brokers: list[int]) -> list[dict[str, Any]]:
        return [{"broker_ids": ids} for ids in brokers]

    for topics in (
        [],
        [to(1)],
        [to(0)],
        [to(-1)],
        [to(2, "absent")],
        [to(2, "")],
        [to(9), to(9)],
        [to(9), to(10)],
        [to(9, assignments=[])],
        [to(9, assignments=on([0]))],
        [to(9, assignments=on([1]))],
        [to(2, "growing", on([0], [0]))],
        [to(1, "growing", on([0]))],
        [to(3, "growing", on([7], [8]))],
        [to(3, "growing", on([0], [0, 0]))],
        [to(3, "growing", on([0], [0, 1]))],
        [to(2, "growing", on([-1]))],
        [to(3, "growing", on([0]))],
        [to(2, "a b")],
        [to(2, "absent", on([0]))],
        [to(1), to(2, "absent"), to(2, "absent")],
        [to(1, assignments=[])],
        [to(9, "absent"), to(1)],
    ):
        for validate in (False, True):
            await s.ask("CreatePartitions", topics=topics, timeout_ms=20_000, validate_only=validate)
    for version in s.span("CreatePartitions", None):
        count = 2 + 3 * version
        many = on(*([[0]] * 2))
        requests: tuple[dict[str, Any], ...] = (
            {"topics": [to(count, assignments=on([0, 1]))]},
            {"topics": [to(count, assignments=on([0, 0]))]},
            {"topics": [to(count, assignments=on([]))]},
            {"topics": [to(count, assignments=on([5]))]},
            {"topics": [to(count)], "validate_only": True},
            {"topics": [to(count)]},
            {"topics": [to(count + 1, assignments=on([0]))]},
            {"topics": [to(count + 2, assignments=many)]},
            {"topics": [to(count + 2)], "timeout_ms": 0},
        )
        for fields in requests:
            await s.ask("CreatePartitions", version, **{"timeout_ms": 20_000, **fields})
    await s.until(lambda answer: len(answer.topics[0].partitions) == 13, "Metadata", 9, topics=[{"name": "growing"}])
    await s.ask("CreatePartitions", topics=[to(60, "__consumer_offsets")], timeout_ms=20_000, validate_only=True)


async def metadata(s: Side) -> None:
    """Metadata in every form of request."""
    topic_id = await make(s, "described", 2)
    await make(s, "described-too")
    named = [{"name": "described"}]
    await s.ask("Metadata", topics=named)
    await s.ask("Metadata", topics=[{"name": "described-too"}, *named])
    await s.ask("Metadata", topics=[*named, *named])
    await s.ask("Metadata", "1+", topics=[])
    await s.ask("Metadata", 0, topics=[])
    await s.ask("Metadata", "1+", topics=None)
    for name in ("absent", "", "a b", "x" * 250, "."):
        await s.ask("Metadata", "4+", topics=[{"name": name}], allow_auto_topic_creation=False)
    await s.ask("Metadata", "4+", topics=[{"name": "absent"}, *named], allow_auto_topic_creation=False)
    for name in ("", "a b", "x" * 250, "."):
        await s.ask("Metadata", topics=[{"name": name}])
    await s.ask("Metadata", topics=[{"name": ""}, {"name": "a b"}, {"name": ".."}])
    await s.ask("Metadata", "8-10", topics=named, include_cluster_authorized_operations=True)
    await s.ask("Metadata", "8-10", topics=[], include_cluster_authorized_operations=True)
    await s.ask("Metadata", "8+", topics=named, include_topic_authorized_operations=True)
    absent: dict[str, Any] = {"topics": [{"name": "absent"}], "allow_auto_topic_creation": False}
    await s.ask("Metadata", "8+", include_topic_authorized_operations=True, **absent)
    by_id = {"name": None, "topic_id": topic_id}
    for topics in (
        [by_id],
        [{"name": "described", "topic_id": topic_id}],
        [{"name": "another", "topic_id": topic_id}],
        [{"name": None, "topic_id": STRANGE_ID}],
        [{"name": None, "topic_id": NO_ID}],
        [by_id, by_id],
        [by_id, *named],
        [by_id, {"name": None, "topic_id": STRANGE_ID}],
    ):
        await s.ask("Metadata", "10+", topics=topics, allow_auto_topic_creation=False)
    await s.ask("Metadata", "0-9", topics=named)
    await s.ask("DescribeCluster")
    await s.ask("DescribeCluster", include_cluster_authorized_operations=True)
    for kind in (0, 2, 3, -1):
        await s.ask("DescribeCluster", "1+", endpoint_type=kind)
        await s.ask("DescribeCluster", "1+", endpoint_type=kind, include_cluster_authorized_operations=True)


async def appearance(s: Side) -> None:
    """Topics that a Metadata request creates (auto.create.topics.enable)."""
    await s.ask("Metadata", topics=[{"name": "appeared-{v}"}])
    for version in s.span("Metadata", None):
        await s.until(
            lambda answer: not answer.topics[0].error_code,
            "Metadata",
            version,
            topics=[{"name": f"appeared-{version}"}],
        )
    await s.ask("Metadata", topics=[{"name": "appeared-late-{v}"}, {"name": "appeared-0"}])
    await s.ask("Metadata", topics=[{"name": "colli_ding"}])


async def elections(s: Side) -> None:
    """ElectLeaders, and the reassignments."""
    await make(s, "elected", 2)

    def of(*partitions: int, name: str = "elected") -> list[dict[str, Any]]:
        return [{"topic": name, "partitions": list(partitions)}]

    for wanted in (of(0, 1), of(0), of(), [], of(5, -1), of(0, name="absent"), of(0) + of(1), of(0, 0), of(0, name="")):
        await s.ask("ElectLeaders", 0, topic_partitions=wanted, timeout_ms=10_000)
        for kind in (0, 1):
            await s.ask("ElectLeaders", "1+", election_type=kind, topic_partitions=wanted, timeout_ms=10_000)
    for kind in (2, -1):
        await s.ask("ElectLeaders", "1+", election_type=kind, topic_partitions=of(0), timeout_ms=10_000)
    await s.ask("ElectLeaders", topic_partitions=of(0), timeout_ms=-1)
    for kind in (0, 1):
        await s.ask("ElectLeaders", "1+", election_type=kind, topic_partitions=None, timeout_ms=10_000)

    def move(replicas: Any, index: int = 0, name: str = "elected") -> dict[str, Any]:
        return {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}

    for topics in (
        [],
        [move([0])],
        [move(None)],
        [move([])],
        [move([0, 0])],
        [move([1])],
        [move([0, 1])],
        [move([-1])],
        [move([0, -1])],
        [move([0], 7)],
        [move([0], -1)],
        [move([0], name="absent")],
        [move(None, name="absent")],
        [move([0], name="")],
        [{"name": "elected", "partitions": []}],
        [move([0]), move([0])],
        [move([1], 1), move([3]), move(None, name="absent")],
        [move([0]), move([1], 1)],
    ):
        await s.ask("AlterPartitionReassignments", 0, topics=topics, timeout_ms=10_000)
    listed: list[dict[str, Any]] | None
    for listed in (
        None,
        [],
        [{"name": "elected", "partition_indexes": [0, 1]}],
        [{"name": "elected", "partition_indexes": []}],
        [{"name": "absent", "partition_indexes": [0]}],
        [{"name": "elected", "partition_indexes": [9]}],
        [{"name": "elected", "partition_indexes": [0, 0]}, {"name": "elected", "partition_indexes": [1]}],
    ):
        await s.ask("ListPartitionReassignments", topics=listed, timeout_ms=10_000)


TOPICS = (creations, deletions, growth, metadata, appearance, elections)
