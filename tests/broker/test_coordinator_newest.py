"""Versions of the group APIs that Kafka 3.9 does not have yet: topic ids for names, and groups that are not found."""

from __future__ import annotations

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client
from tests.support.eventually import eventually_async

GROUP = "g"
UNKNOWN_ID = b"\x01" * 16


@pytest.fixture
async def coordinator(client: Client) -> Client:
    """A client of a broker that coordinates groups."""
    request = m.FindCoordinatorRequest(coordinator_keys=[GROUP])
    await eventually_async(lambda: client.ask(request, 6), lambda answer: not answer.coordinators[0].error_code)
    return client


def committing(topic_id: bytes, *indexes: int) -> m.OffsetCommitRequest:
    request = m.OffsetCommitRequest
    partitions = [request.OffsetCommitRequestPartition(partition_index=i, committed_offset=5) for i in indexes]
    topics = [request.OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)]
    return request(group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)


def fetching(*topic_ids: bytes, everything: bool = False) -> m.OffsetFetchRequest:
    request = m.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in topic_ids]
    return request(groups=[request.OffsetFetchRequestGroup(group_id=GROUP, topics=None if everything else topics)])


async def test_offsets_by_topic_id(coordinator: Client) -> None:
    topic_id = (await coordinator.create_topic("t")).topic_id
    (topic,) = (await coordinator.ask(committing(topic_id, 0, 1), 10)).topics
    assert topic.topic_id == topic_id
    codes = [each.error_code for each in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (topic,) = (await coordinator.ask(committing(UNKNOWN_ID, 0), 10)).topics
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (group,) = (await coordinator.ask(fetching(topic_id, UNKNOWN_ID), 10)).groups
    found = {each.topic_id: each.partitions[0] for each in group.topics}
    assert found[topic_id].committed_offset == 5
    assert (found[UNKNOWN_ID].committed_offset, found[UNKNOWN_ID].error_code) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    (group,) = (await coordinator.ask(fetching(everything=True), 10)).groups
    assert [each.topic_id for each in group.topics] == [topic_id]


async def test_a_group_that_is_not_there_is_not_found(coordinator: Client) -> None:
    request = m.DescribeGroupsRequest(groups=["no-such-group"])
    (group,) = (await coordinator.ask(request, 6)).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message == "Group no-such-group not found."
    assert group.group_state == "Dead"


async def test_the_oldest_commits_join_the_others(coordinator: Client) -> None:
    await coordinator.create_topic("t")
    request = m.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [request.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    answer = await coordinator.ask(request(group_id=GROUP, topics=topics), 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    for version, missing in ((0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, ErrorCode.NONE)):
        answer = await coordinator.ask(m.OffsetFetchRequest(group_id=GROUP, topics=wanted), version)
        found = [(each.committed_offset, each.error_code) for each in answer.topics[0].partitions]
        assert found == [(7, ErrorCode.NONE), (-1, missing)]
