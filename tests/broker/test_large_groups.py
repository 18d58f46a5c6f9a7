"""Requests about groups with many members or offsets are answered in turns with the loop, however small they are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis.consumer_group_describe import ConsumerGroupDescribe
from odradek.broker.apis.describe_groups import DescribeGroups
from odradek.broker.apis.join_group import JoinGroup
from odradek.broker.apis.offset_fetch import OffsetFetch
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.runtime.turns import Turns
from odradek.broker.security.auth_helper import AuthHelper
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.stepping_turns import SteppingClock, finished
from tests.machines import consumer_harness
from tests.machines.group_harness import GROUP, Harness

MANY = 600
CONSUMERS = 120
LATEST = {m.DescribeGroupsRequest: 6, m.ConsumerGroupDescribeRequest: 1, m.OffsetFetchRequest: 7}


class InTurns:
    """Handles and answers requests in turns."""

    def __init__(self) -> None:
        self.turns = Turns(SteppingClock(2))
        self.deferred: list[Any] = []

    def handle(self, call: Any, request: Any) -> None:
        self.deferred.append(request)

    async def response(self, handler: Any, request: Any) -> Any:
        """The response of a handler that defers the request."""
        call = SimpleNamespace(version=LATEST[type(request)])
        assert handler.handle(call, request) is None
        assert self.deferred == [request]
        before = self.turns.interruptions
        answer = await finished(self.turns, lambda: handler.handle(call, request))
        assert self.turns.interruptions - before > CONSUMERS / 3
        return answer


@pytest.fixture
def in_turns() -> Iterator[InTurns]:
    made = InTurns()
    yield made
    made.turns.close()


async def test_a_classic_group_is_described_in_turns(in_turns: InTurns) -> None:
    harness = Harness(group_initial_rebalance_delay_ms=10)
    ids, _ = harness.stable(MANY)
    handler = DescribeGroups(harness.groups, AuthHelper(), in_turns.handle)
    answer = await in_turns.response(handler, m.DescribeGroupsRequest(groups=[GROUP]))
    assert {each.member_id for each in answer.groups[0].members} == set(ids)
    few = handler.handle(SimpleNamespace(version=5), m.DescribeGroupsRequest(groups=["other"]))  # type: ignore[arg-type]
    assert few is not None
    assert few.groups[0].members == []


async def test_a_consumer_group_is_described_in_turns(in_turns: InTurns) -> None:
    harness = Harness()
    harness.topics.put("t", 1)
    for index in range(CONSUMERS):
        consumer_harness.join(harness, f"member-{index}", "t")
    handler = ConsumerGroupDescribe(
        harness.groups, MetadataCache("cluster"), AuthHelper(), in_turns.handle, is_offered=True
    )
    answer = await in_turns.response(handler, m.ConsumerGroupDescribeRequest(group_ids=[GROUP]))
    assert len(answer.groups[0].members) == CONSUMERS


async def test_all_offsets_of_a_group_are_answered_in_turns(in_turns: InTurns) -> None:
    harness = Harness()
    harness.commit({("t", index): index for index in range(MANY)})
    handler = OffsetFetch(harness.offsets, MetadataCache("cluster"), AuthHelper(), in_turns.handle)
    answer = await in_turns.response(handler, m.OffsetFetchRequest(group_id=GROUP, topics=None))
    assert [each.committed_offset for each in answer.topics[0].partitions] == list(range(MANY))


async def test_the_response_to_the_leader_of_a_large_group_is_made_in_turns() -> None:
    """Before, the members for the leader were listed and encoded in the event that ended the join phase."""
    harness = Harness()
    replied: list[tuple[Any, Any]] = []
    sent: list[Any] = []
    handler = JoinGroup(harness.groups, AuthHelper(), lambda call, make: replied.append((call, make)))
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")
    calls = [
        SimpleNamespace(version=3, client_id=f"client-{index}", client_host="/h", operation=None, reply=sent.append)
        for index in range(MANY)
    ]
    for call in calls:
        request = m.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        assert handler.handle(call, request) is None  # type: ignore[arg-type]
    harness.time.advance(200_000)
    assert len(sent) == MANY - 1
    assert not any(each.members for each in sent)
    [(leader, make)] = replied
    assert leader is calls[0]
    turns = Turns(SteppingClock(2))
    answer = await finished(turns, make)
    assert turns.interruptions > MANY / 3
    assert answer.leader == answer.member_id
    assert {each.member_id for each in answer.members} == {answer.member_id, *(each.member_id for each in sent)}
    assert {each.metadata for each in answer.members} == {b"meta"}
    turns.close()


def test_a_member_with_more_protocols_than_memory_is_refused_before_they_are_kept() -> None:
    """350,000 protocols held the loop for 30 milliseconds before the group refused them."""
    harness = Harness(odradek_group_max_metadata_bytes=8 * 64 * 10)
    handler = JoinGroup(harness.groups, AuthHelper(), lambda call, make: None)
    call: Any = SimpleNamespace(version=9, client_id="c", client_host="/h", operation=None)
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="", metadata=b"")
    request = m.JoinGroupRequest(group_id=GROUP, session_timeout_ms=10_000, protocols=[protocol] * 11)
    answer = handler.handle(call, request)
    assert answer is not None
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.groups.list_groups() == (ErrorCode.NONE, [])
