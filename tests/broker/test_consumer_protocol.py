"""The consumer protocol over the wire: every version of ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client
from tests.support.eventually import eventually_async

GROUP = "g"
Beat = m.ConsumerGroupHeartbeatRequest


@pytest.fixture
async def coordinator(client: Client) -> Client:
    """A client of a broker that coordinates groups and has a topic of four partitions."""
    request = m.FindCoordinatorRequest(coordinator_keys=[GROUP])
    await eventually_async(lambda: client.ask(request, 6), lambda answer: not answer.coordinators[0].error_code)
    topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=4, replication_factor=1)
    created = await client.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert created.topics[0].error_code == ErrorCode.NONE
    return client


def joining(member_id: str, **fields: Any) -> Beat:
    given = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
    return Beat(group_id=GROUP, member_id=member_id, member_epoch=0, **given)


async def describe(client: Client, version: int) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    request = m.ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)
    (group,) = (await client.ask(request, version)).groups
    found: m.ConsumerGroupDescribeResponse.DescribedGroup = group
    return found


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_stays_and_leaves(coordinator: Client, version: int) -> None:
    joined = await coordinator.ask(joining("" if version == 0 else "m1"), version)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (ErrorCode.NONE, 1, 5000)
    assert joined.member_id
    assert [each.partitions for each in joined.assignment.topic_partitions] == [[0, 1, 2, 3]]
    stays = Beat(group_id=GROUP, member_id=joined.member_id, member_epoch=1)
    answer = await coordinator.ask(stays, version)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, None)
    group = await describe(coordinator, version)
    assert (group.error_code, group.group_state, group.assignor_name) == (ErrorCode.NONE, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    assert group.authorized_operations != -(2**31)
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == (joined.member_id, 1, "test")
    assert member.subscribed_topic_names == ["t"]
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert member.target_assignment == member.assignment
    assert member.member_type == (1 if version else -1)
    left = await coordinator.ask(Beat(group_id=GROUP, member_id=joined.member_id, member_epoch=-1), version)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    assert (await describe(coordinator, version)).group_state == "Empty"


async def test_members_choose_their_id_from_version_1_on(coordinator: Client) -> None:
    assert (await coordinator.ask(joining(""), 1)).error_code == ErrorCode.INVALID_REQUEST
    assert (await coordinator.ask(joining(""), 0)).error_code == ErrorCode.NONE


async def test_a_subscription_by_expression(coordinator: Client) -> None:
    bad = await coordinator.ask(joining("m", subscribed_topic_names=None, subscribed_topic_regex="["), 1)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert bad.error_message
    good = await coordinator.ask(joining("m", subscribed_topic_names=None, subscribed_topic_regex="[tu]"), 1)
    assert len(good.assignment.topic_partitions) == 1
    assert (await describe(coordinator, 1)).members[0].subscribed_topic_regex == "[tu]"


async def test_the_older_apis_describe_the_group(coordinator: Client) -> None:
    await coordinator.ask(joining("m"), 1)
    (listed,) = (await coordinator.ask(m.ListGroupsRequest(types_filter=["Consumer"]), 5)).groups
    assert (listed.group_id, listed.group_type, listed.group_state) == (GROUP, "consumer", "Stable")
    assert (await coordinator.ask(m.ListGroupsRequest(types_filter=["classic"]), 5)).groups == []
    (old,) = (await coordinator.ask(m.DescribeGroupsRequest(groups=[GROUP]), 5)).groups
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    (new,) = (await coordinator.ask(m.DescribeGroupsRequest(groups=[GROUP]), 6)).groups
    assert new.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (gone,) = (await coordinator.ask(m.DeleteGroupsRequest(groups_names=[GROUP]), 2)).results
    assert gone.error_code == ErrorCode.NON_EMPTY_GROUP
    missing = m.ConsumerGroupDescribeRequest(group_ids=["none"])
    assert (await coordinator.ask(missing, 1)).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_members(coordinator: Client) -> None:
    await coordinator.ask(joining("m"), 1)

    async def commit(epoch: int, version: int) -> int:
        request = m.OffsetCommitRequest
        partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topics = [request.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        sent = request(group_id=GROUP, member_id="m", generation_id_or_member_epoch=epoch, topics=topics)
        code: int = (await coordinator.ask(sent, version)).topics[0].partitions[0].error_code
        return code

    async def fetch(member_id: str | None, epoch: int) -> tuple[int, list[int]]:
        request = m.OffsetFetchRequest
        topics = [request.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = request.OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=topics)
        (answer,) = (await coordinator.ask(request(groups=[group]), 9)).groups
        return answer.error_code, [each.partitions[0].committed_offset for each in answer.topics]

    assert await commit(1, 9) == ErrorCode.NONE
    assert await commit(0, 9) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(1, 8) == ErrorCode.UNSUPPORTED_VERSION
    assert await fetch("m", 1) == (ErrorCode.NONE, [7])
    assert await fetch(None, -1) == (ErrorCode.NONE, [7])
    assert await fetch("m", 5) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert await fetch("x", 1) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


async def test_ids_of_any_size_are_accepted_or_refused(coordinator: Client) -> None:
    long = "x" * 30_000
    assert (await coordinator.ask(joining(long), 1)).error_code == ErrorCode.NONE
    names = [f"{number}-{'y' * 200}" for number in range(6_000)]
    assert (await coordinator.ask(joining("big", subscribed_topic_names=names), 1)).error_code == (
        ErrorCode.UNKNOWN_SERVER_ERROR
    ), "a record that the log refuses"
    refused = await coordinator.ask(Beat(group_id=GROUP, member_id=long, member_epoch=1), 1)
    assert refused.error_code == ErrorCode.NONE, "and the group continues without it"
