"""Scripts about topics, offsets, groups and the cluster: see `admin_scripts`."""

from __future__ import annotations

from typing import Any

from odradek.protocol import messages as m
from tests.broker.admin_scripts import Play, Script, spoken, transcript
from tests.broker.wire import batch
from tests.support.eventually import eventually_async

__all__ = ["SCRIPTS", "transcript"]

ID = b"0123456789abcdef"


def new(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    assigned: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> Any:
    request = m.CreateTopicsRequest
    return request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            request.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assigned or {}).items()
        ],
        configs=[request.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: Any, validate_only: bool = False, timeout_ms: int = 10_000) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


def delete(*names: str) -> m.DeleteTopicsRequest:
    return m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)


def delete_states(*states: tuple[str | None, bytes]) -> m.DeleteTopicsRequest:
    request = m.DeleteTopicsRequest
    return request(
        topics=[request.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states], timeout_ms=10_000
    )


async def coordinator(script: Script, key_type: int = 0) -> None:
    """Retry until there is a coordinator, and with it its topic."""
    client = await script.client()
    find = m.FindCoordinatorRequest(key=script.name, key_type=key_type)
    await eventually_async(lambda: client.ask(find, 3), lambda answer: not answer.error_code)


async def creations(script: Script) -> None:
    """Topics created, refused, and only checked."""
    name = script.name
    for version in range(8):
        await script.ask(create(new(f"{name}-v{version}", 1, 1)), version)
    await script.ask(create(new(f"{name}.a_b", 2, 1)), 7)
    for topics in (
        [new(f"{name}-x")],
        [new(f"{name}-x", 2, -1)],
        [new(f"{name}-x", -1, 1)],
        [new(f"{name}-x", 0, 1)],
        [new(f"{name}-x", -2, 1)],
        [new(f"{name}-x", 1, 0)],
        [new(f"{name}-x", 1, -2)],
        [new(f"{name}-x", 1, 2)],
        [new(f"{name}-x", 0, 2, {}, {"no.such": "1"})],
        [new(f"{name}_a.b", 1, 1)],
        [new(f"{name}.a.b", 0, 1)],
        [new(f"{name}.a_b", 0, 9)],
        [new("", 1, 1)],
        [new(".", 1, 1)],
        [new("..", 0, 1)],
        [new(f"{name} x", 1, 1)],
        [new(f"{name}" + "x" * 250, 1, 1)],
        [new("__cluster_metadata", 1, 1)],
        [new(f"{name}-x", -1, -1, {0: [0]})],
        [new(f"{name}-x", 1, -1, {0: [0]})],
        [new(f"{name}-x", -1, 1, {0: [0]})],
        [new(f"{name}-x", -1, -1, {1: [0]})],
        [new(f"{name}-x", -1, -1, {0: [0], 2: [0]})],
        [new(f"{name}-x", -1, -1, {0: [0], 1: [0]})],
        [new(f"{name}-x", -1, -1, {0: [0], 1: [0, 1]})],
        [new(f"{name}-x", -1, -1, {0: [0, 0]})],
        [new(f"{name}-x", 1, 1, None, {"retention.ms": "1000", "cleanup.policy": "compact"})],
        [new(f"{name}-x", 1, 1, None, {"retention.ms": "soon"})],
        [new(f"{name}-x", 1, 1, None, {"retention.ms": None})],
        [new(f"{name}-x", 1, 1, None, {"no.such.property": "1"})],
        [new(f"{name}-x", 1, 1, None, {"no.such.property": None})],
        [new(f"{name}-x", 1, 1, None, {"": "1"})],
        [new(f"{name}-x", 1, 1, None, {"cleanup.policy": ""})],
        [new(f"{name}-x", 1, 9, None, {"no.such.property": "1"})],
        [new(f"{name}-x", 1, 1), new(f"{name}-x", 1, 1)],
        [new(f"{name}-x", 1, 1), new(f"{name}-x", 1, 1), new(f"{name}-y", 1, 1), new("", 1, 1)],
        [],
    ):
        assigned = any(topic.assignments for topic in topics)
        named = all(topic.num_partitions != -1 and topic.replication_factor != -1 for topic in topics)
        for version in (1, 4, 5, 7) if named or assigned else (4, 5, 7):
            await script.ask(create(*topics, validate_only=True), version)
    for timeout_ms in (0, -1):
        answer = await script.quietly(create(new(f"{name}-t{timeout_ms}", 1, 1), timeout_ms=timeout_ms), 7)
        script.note("created in no time", answer)
    await script.ask(create(new(f"{name}-v0", 1, 1), new(f"{name}-z", 2, 1), new(f"{name}-z2", 1, 3)), 7)
    await script.ask(create(new(f"{name}-as", -1, -1, {1: [0], 0: [0]}, {"segment.bytes": "2097152"})), 7)
    await script.ask(create(new(f"{name}-def")), 5)
    duplicate = new(f"{name}-twice", 1, 1)
    duplicate.configs = [
        m.CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value=value) for value in ("1", "2")
    ]
    await script.ask(create(duplicate), 7)
    await script.ask(create(new(f"{name}-1", 1, 1), new(f"{name}.1", 1, 1), new(f"{name}-1x", 1, 1)), 7)
    await script.ask(create(new(f"{name}_1", 1, 1), new(f"{name}-1y", 1, 1)), 7)
    # Which of two names that collide comes first depends on Kafka's hash table.
    answer = await script.quietly(create(new(f"{name}.2", 1, 1), new(f"{name}_2", 1, 1)), 7)
    script.note("of two names that collide", sorted(topic.error_code for topic in answer.topics))


async def deletions(script: Script) -> None:
    """Topics deleted, by name and by id."""
    name = script.name
    made = await script.quietly(create(*(new(f"{name}-{number}", 1, 1) for number in range(12))), 7)
    ids = {topic.name: topic.topic_id for topic in made.topics}
    for version in range(6):
        await script.ask(delete(f"{name}-{version}", f"{name}-absent"), version)
    await script.ask(delete(), 5)
    await script.ask(delete("", "a b"), 5)
    await script.ask(delete(f"{name}-6", f"{name}-6", f"{name}-7"), 5)
    await script.ask(delete_states((f"{name}-6", bytes(16))), 6)
    await script.ask(delete_states((None, ids[f"{name}-8"]), (None, ID)), 6)
    await script.ask(delete_states((f"{name}-9", ids[f"{name}-9"])), 6)
    await script.ask(delete_states((f"{name}-9", ids[f"{name}-9"]), (f"{name}-9", bytes(16))), 6)
    await script.ask(delete_states((f"{name}-9", bytes(16)), (f"{name}-9", bytes(16))), 6)
    await script.ask(delete_states((None, ids[f"{name}-10"]), (None, ids[f"{name}-10"])), 6)
    await script.ask(delete_states((None, bytes(16))), 6)
    await script.ask(delete_states((None, bytes(16)), (None, bytes(16))), 6)
    await script.ask(delete_states((f"{name}-absent", bytes(16)), (f"{name}-11", bytes(16))), 6)
    await script.ask(delete_states(), 6)
    await script.ask(delete("__cluster_metadata"), 5)


async def growth(script: Script) -> None:
    """CreatePartitions."""
    name = script.name
    request = m.CreatePartitionsRequest
    await script.quietly(create(new(name, 2, 1)), 7)

    def requested(count: int, assigned: list[list[int]] | None = None, topic: str = name) -> Any:
        assignments = None
        if assigned is not None:
            assignments = [request.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
        return request.CreatePartitionsTopic(name=topic, count=count, assignments=assignments)

    for attempts in (
        [requested(1)],
        [requested(2)],
        [requested(0)],
        [requested(-1)],
        [requested(3)],
        [requested(2**31 - 1)],
        [requested(3, [])],
        [requested(3, [[0]])],
        [requested(3, [[0], [0]])],
        [requested(4, [[0], [0]])],
        [requested(3, [[7]])],
        [requested(3, [[0, 0]])],
        [requested(3, [[0, 1]])],
        [requested(3, [[]])],
        [requested(3, [[-1]])],
        [requested(4, [[0], [0, 1]])],
        [requested(2, [])],
        [requested(2, [[0]])],
        [requested(1, [[0]])],
        [requested(3, topic=f"{name}-absent")],
        [requested(3, topic="a b")],
        [requested(3), requested(4)],
        [requested(3), requested(3, topic=f"{name}-absent"), requested(3, topic=f"{name}-absent")],
        [],
    ):
        if [each.count for each in attempts] != [2**31 - 1]:
            await script.ask(request(topics=attempts, timeout_ms=10_000, validate_only=True))
    for version in range(4):
        await script.ask(request(topics=[requested(3 + version)], timeout_ms=10_000), version)
    await script.ask(request(topics=[requested(8, [[0], [0]])], timeout_ms=10_000), 3)
    await script.ask(request(topics=[requested(9)], timeout_ms=0), 3)


async def times(script: Script) -> None:
    """ListOffsets and OffsetForLeaderEpoch."""
    name = script.name
    request = m.ListOffsetsRequest
    await script.quietly(create(new(name, 2, 1)), 7)
    client = await script.client()
    for _ in range(2):
        assert (await client.produce(name, batch(b"a", b"b", b"c"), version=9)).error_code == 0
    deletion = m.DeleteRecordsRequest
    for offset in (2, -1, -2, 7, 1):
        partitions = [deletion.DeleteRecordsPartition(partition_index=number, offset=offset) for number in (1, 5)]
        await script.ask(
            deletion(topics=[deletion.DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=9_000)
        )
    ones = [deletion.DeleteRecordsPartition(partition_index=0, offset=1)]
    await coordinator(script)
    for topic in (name, f"{name}-absent", "", "__consumer_offsets"):
        await script.ask(deletion(topics=[deletion.DeleteRecordsTopic(name=topic, partitions=ones)], timeout_ms=9_000))

    def asked(time: int, epoch: int | None = None, topic: str = name, partition: int = 0, **options: Any) -> Any:
        wanted = request.ListOffsetsPartition(partition_index=partition, timestamp=time)
        if epoch is not None:
            wanted.current_leader_epoch = epoch
        return request(
            replica_id=options.pop("replica_id", -1),
            topics=[request.ListOffsetsTopic(name=topic, partitions=[wanted])],
            **options,
        )

    for time in (-1, -2, -3, -4, -5, -6, -7, -100, 0, 1_700_000_000_000, 1_700_000_000_001, 1_800_000_000_000):
        await script.ask(asked(time))
        await script.ask(asked(time, partition=1))
        for isolation in (1, 2):
            await script.ask(asked(time, isolation_level=isolation), 2, 9)
        for replica in (-2, -3, 0, 5):
            await script.ask(asked(time, replica_id=replica), 1, 9)
        await script.ask(asked(time, topic=f"{name}-absent"), 1, 9)
        await script.ask(asked(time, partition=9), 1, 9)
        await script.ask(asked(time, partition=-1), 1, 9)
        for epoch in (0, 1, 7, -1, -5):
            await script.ask(asked(time, epoch), 4, 9)
    for count in (0, 1, 2, 10, -1):
        for time in (-1, -2, 1_700_000_000_001, 1_900_000_000_000, -3):
            wanted = asked(time)
            wanted.topics[0].partitions[0].max_num_offsets = count
            await script.ask(wanted, 0)
    twice = asked(-1)
    twice.topics[0].partitions.append(request.ListOffsetsPartition(partition_index=0, timestamp=-2))
    await script.ask(twice)
    split = asked(-1)
    split.topics.append(asked(-2).topics[0])
    split.topics.append(asked(-2, partition=1).topics[0])
    await script.ask(split)
    await script.ask(request(replica_id=-1, topics=[]))
    await script.ask(request(replica_id=-1, topics=[request.ListOffsetsTopic(name=name, partitions=[])]))

    epochs = m.OffsetForLeaderEpochRequest
    for wanted_epoch in (0, 1, -1, -2, 2**31 - 1):
        for current in (None, 0, 1, -1):
            for topic, partition in ((name, 0), (name, 1), (name, 9), (f"{name}-absent", 0)):
                part = epochs.OffsetForLeaderPartition(partition=partition, leader_epoch=wanted_epoch)
                if current is not None:
                    part.current_leader_epoch = current
                each = epochs(topics=[epochs.OffsetForLeaderTopic(topic=topic, partitions=[part])])
                await script.ask(each, *(range(2, 5) if current is not None else (0, 1, 2, 3, 4)))
                each.replica_id = 5
                await script.ask(each, *(range(3, 5) if current is not None else (3, 4)))


async def cluster(script: Script) -> None:
    """Metadata and DescribeCluster."""
    name = script.name
    made = await script.quietly(create(new(name, 2, 1)), 7)
    topic_id = made.topics[0].topic_id
    request = m.MetadataRequest
    wanted = request.MetadataRequestTopic

    async def ask(what: Any, *versions: int) -> None:
        for version in versions or spoken(request):
            answer = await script.quietly(what, version)
            if answer is None:
                script.note(f"Metadata v{version} {what!r}", "the connection is ended")
                continue
            answer.brokers = [(each.node_id, each.host, each.rack) for each in answer.brokers]
            answer.cluster_id = bool(answer.cluster_id)
            answer.topics = [topic for topic in answer.topics if not topic.name or not topic.name.startswith("__")]
            if what.topics is None or (version == 0 and not what.topics):
                answer.topics = [topic for topic in answer.topics if topic.name == name]
            script.note(f"Metadata v{version} {what!r}", answer)

    await ask(request(topics=[]))
    await ask(request(topics=None), *range(1, 13))
    settings: tuple[dict[str, Any], ...] = ({}, {"allow_auto_topic_creation": False})
    for options in settings:
        versions = range(4, 13) if options else range(13)
        await ask(request(topics=[wanted(name=name)], **options), *versions)
        await ask(request(topics=[wanted(name=name), wanted(name=name)], **options), *versions)
        await ask(request(topics=[wanted(name=""), wanted(name="a b"), wanted(name="..")], **options), *versions)
    await ask(
        request(topics=[wanted(name=f"{name}-absent"), wanted(name=name)], allow_auto_topic_creation=False),
        *range(4, 13),
    )
    await ask(request(topics=[wanted(name=None, topic_id=topic_id)]), 10, 11, 12)
    await ask(request(topics=[wanted(name=name, topic_id=topic_id)]), 10, 11, 12)
    await ask(request(topics=[wanted(name=f"{name}-other", topic_id=topic_id)]), 10, 12)
    await ask(request(topics=[wanted(name=None, topic_id=ID)]), 10, 11, 12)
    await ask(request(topics=[wanted(name=None, topic_id=ID), wanted(name=None, topic_id=topic_id)]), 12)
    await ask(request(topics=[wanted(name=None, topic_id=bytes(16))]), 10, 11, 12)
    await ask(request(topics=[wanted(name=name), wanted(name=None, topic_id=topic_id)]), 12)
    await ask(request(topics=[wanted(name=name, topic_id=ID)]), 10, 12)
    for cluster_too in (False, True):
        options = {"include_topic_authorized_operations": True}
        if cluster_too:
            options["include_cluster_authorized_operations"] = True
        for topics in ([wanted(name=name)], [], [wanted(name=f"{name}-absent")], None):
            what = request(topics=topics, allow_auto_topic_creation=False, **options)
            await ask(what, *((8, 9, 10) if cluster_too else range(8, 13)))

    describe = m.DescribeClusterRequest
    versions_of: tuple[tuple[m.DescribeClusterRequest, tuple[int, ...]], ...] = (
        (describe(), (0, 1)),
        (describe(include_cluster_authorized_operations=True), (0, 1)),
        (describe(endpoint_type=2), (1,)),
        (describe(endpoint_type=2, include_cluster_authorized_operations=True), (1,)),
        (describe(endpoint_type=0), (1,)),
        (describe(endpoint_type=9), (1,)),
    )
    for described, numbers in versions_of:
        for version in numbers:
            answer = await script.quietly(described, version)
            answer.brokers = [(each.broker_id, each.host, each.rack) for each in answer.brokers]
            answer.cluster_id = bool(answer.cluster_id)
            script.note(f"DescribeCluster v{version} {described!r}", answer)


async def groups(script: Script) -> None:
    """List, describe and delete groups; their offsets; the producers of partitions."""
    name = script.name
    await script.quietly(create(new(name, 2, 1)), 7)
    await coordinator(script)
    client = await script.client()

    def commit(group: str, *partitions: int) -> m.OffsetCommitRequest:
        request = m.OffsetCommitRequest
        parts = [
            request.OffsetCommitRequestPartition(partition_index=number, committed_offset=5, committed_metadata="")
            for number in partitions
        ]
        topic = request.OffsetCommitRequestTopic(name=name, partitions=parts)
        return request(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])

    await eventually_async(
        lambda: client.ask(commit(name, 0, 1), 8), lambda answer: not answer.topics[0].partitions[0].error_code
    )
    await script.quietly(commit(f"{name}-2", 0), 8)
    join = m.JoinGroupRequest(
        group_id=f"{name}-live",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    joined = await script.quietly(join, 3)
    assert joined.error_code == 0, joined

    async def listed(version: int, **filters: Any) -> None:
        answer = await script.quietly(m.ListGroupsRequest(**filters), version)
        answer.groups = [group for group in answer.groups if group.group_id.startswith(name)]
        script.note(f"ListGroups v{version} {filters}", answer)

    for version in range(6):
        await listed(version)
    for states in (
        ["Empty"],
        ["empty"],
        ["EMPTY", "Stable"],
        ["CompletingRebalance"],
        ["Nothing"],
        [""],
        ["Dead"],
        ["unknown"],
        ["Assigning"],
        ["Empty", "Nothing"],
    ):
        await listed(4, states_filter=states)
        await listed(5, states_filter=states)
    for types in (
        ["classic"],
        ["Classic"],
        ["consumer"],
        ["CONSUMER", "classic"],
        ["share"],
        ["nothing"],
        [""],
        ["unknown"],
        ["classic", "nothing"],
    ):
        await listed(5, types_filter=types)
        await listed(5, types_filter=types, states_filter=["Empty"])
    for group in ([name], [f"{name}-live"], [f"{name}-absent"], [""], [name, name], [name, f"{name}-absent"], []):
        for version in range(6):
            answer = await script.quietly(m.DescribeGroupsRequest(groups=group), version)
            for each in answer.groups:
                each.members = [(member.client_id, member.member_metadata) for member in each.members]
            script.note(f"DescribeGroups v{version} {group}", answer)
    answer = await script.quietly(m.DescribeGroupsRequest(groups=[name], include_authorized_operations=True), 5)
    script.note("DescribeGroups, operations", answer)
    absent = m.DescribeGroupsRequest(groups=[f"{name}-absent", ""], include_authorized_operations=True)
    script.note("DescribeGroups, operations", await script.quietly(absent, 5))

    gone = m.OffsetDeleteRequest

    def offsets(group: str, *partitions: tuple[str, int]) -> m.OffsetDeleteRequest:
        return gone(
            group_id=group,
            topics=[
                gone.OffsetDeleteRequestTopic(
                    name=topic, partitions=[gone.OffsetDeleteRequestPartition(partition_index=number)]
                )
                for topic, number in partitions
            ],
        )

    await script.ask(offsets(f"{name}-absent", (name, 0)))
    await script.ask(offsets("", (name, 0)))
    await script.ask(offsets(name, (name, 0), (name, 9), (f"{name}-absent", 0), (name, 1)))
    await script.ask(offsets(name, (name, 0)))
    await script.ask(offsets(name))
    await script.ask(offsets(f"{name}-live", (name, 0)))
    await script.ask(offsets(f"{name}-2", (name, 0)))
    for version, which in ((0, [f"{name}-2"]), (1, [name, name, f"{name}-live", "", f"{name}-absent"]), (2, [])):
        await script.ask(m.DeleteGroupsRequest(groups_names=which), version)
    await script.ask(m.DescribeGroupsRequest(groups=[name]), 5)

    producers = m.DescribeProducersRequest
    await script.ask(
        producers(
            topics=[
                producers.TopicRequest(name=name, partition_indexes=[0, 1, 9, -1, 0]),
                producers.TopicRequest(name=f"{name}-absent", partition_indexes=[0]),
                producers.TopicRequest(name="", partition_indexes=[0]),
                producers.TopicRequest(name="a b", partition_indexes=[0]),
                producers.TopicRequest(name=name, partition_indexes=[]),
            ]
        )
    )
    await script.ask(producers(topics=[]))


async def internal(script: Script) -> None:
    """The broker's internal topics, and the requests that they allow."""
    for key_type in (0, 1):
        await coordinator(script, key_type)
    for topic in ("__consumer_offsets", "__transaction_state"):
        answer = await script.quietly(create(new(topic, 1, 1)), 7)
        script.note("create", answer)
        growing = m.CreatePartitionsRequest
        requested = growing.CreatePartitionsTopic(name=topic, count=1)
        script.note("fewer", await script.quietly(growing(topics=[requested], timeout_ms=9_000), 3))
        requested.count = 60
        script.note("more", await script.quietly(growing(topics=[requested], timeout_ms=9_000, validate_only=True), 3))


SCRIPTS: tuple[Play, ...] = (creations, deletions, growth, times, cluster, groups, internal)
