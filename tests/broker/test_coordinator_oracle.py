"""Comparison with Kafka: a script of group requests goes to Apache Kafka 3.9.2 and to Odradek; the responses must
agree.

The responses are compared field by field, in every version that Kafka 3.9 supports. Member ids are random, so each is
replaced by its number in the order of appearance; where Kafka's order is that of a hash table, both are sorted.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, running_broker
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.jvm

MEMBER_ID = re.compile(r"(?:test|one|two)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOT_YET = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
META = (("range", b"\0\0" + m.ConsumerProtocolSubscription(topics=["t"]).encode(0)),)


class Script:
    """One run of a script against one broker: connections, ids, and the transcript of the responses."""

    def __init__(self, port: int, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self.transcript: list[str] = []
        self._port = port
        self._clients: dict[str, Client] = {}
        self._ids: dict[str, str] = {}

    async def client(self, name: str = "main") -> Client:
        """A connection of that name; a request that waits delays only its own."""
        if name not in self._clients:
            self._clients[name] = await Client.connect(self._port)
        return self._clients[name]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    async def begin(self) -> None:
        """A topic of two partitions, and a coordinator that serves."""
        client = await self.client()
        await client.create_topic(self.topic, 2)
        find = m.FindCoordinatorRequest(key=self.group)
        describe = m.DescribeGroupsRequest(groups=[self.group])
        await eventually_async(lambda: client.ask(find, 0), lambda answer: answer.error_code not in NOT_YET)
        await eventually_async(
            lambda: client.ask(describe, 0), lambda answer: answer.groups[0].error_code not in NOT_YET
        )

    def note(self, what: str, answer: Any) -> Any:
        """Record a response."""
        self._sort(answer)
        self.transcript.append(
            self._plain(f"{what}: {answer!r}").replace(self.topic, "TOPIC").replace(self.group, "GROUP")
        )
        return answer

    def _sort(self, part: Any) -> None:
        for name in ("members", "topics", "groups", "partitions", "results"):
            items = getattr(part, name, None) or []
            for item in items:
                self._sort(item)
            items.sort(key=lambda item: self._plain(repr(item)))

    def _plain(self, text: str) -> str:
        def number(match: re.Match[str]) -> str:
            return self._ids.setdefault(match[0], f"member-{len(self._ids) + 1}")

        return MEMBER_ID.sub(number, text)

    async def ask(self, request: Any, version: int, name: str = "main") -> Any:
        """Send, wait, record."""
        answer = await (await self.client(name)).ask(request, version)
        return self.note(f"{type(request).__name__} v{version}", answer)

    def joining(self, member_id: str = "", instance: str | None = None, **fields: Any) -> m.JoinGroupRequest:
        protocols = fields.pop("protocols", META)
        given = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000, "protocol_type": "consumer", **fields}
        return m.JoinGroupRequest(
            group_id=given.pop("group_id", self.group),
            member_id=member_id,
            group_instance_id=instance,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=data) for n, data in protocols],
            **given,
        )

    def syncing(self, member_id: str, generation: int, to: dict[str, bytes], **fields: Any) -> m.SyncGroupRequest:
        return m.SyncGroupRequest(
            group_id=self.group,
            member_id=member_id,
            generation_id=generation,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=who, assignment=what)
                for who, what in to.items()
            ],
            **{"protocol_type": "consumer", "protocol_name": "range", **fields},
        )

    def beating(self, member_id: str, generation: int, instance: str | None = None) -> m.HeartbeatRequest:
        return m.HeartbeatRequest(
            group_id=self.group, member_id=member_id, generation_id=generation, group_instance_id=instance
        )

    def leaving(self, *members: tuple[str, str | None], group: str | None = None) -> m.LeaveGroupRequest:
        identities = [
            m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in members
        ]
        return m.LeaveGroupRequest(group_id=self.group if group is None else group, members=identities)

    def committing(
        self,
        member_id: str = "",
        generation: int = -1,
        *,
        topic: str | None = None,
        metadata: str | None = "note",
        **fields: Any,
    ) -> m.OffsetCommitRequest:
        request = m.OffsetCommitRequest
        partitions = [
            request.OffsetCommitRequestPartition(
                partition_index=i, committed_offset=10 + i, committed_metadata=metadata
            )
            for i in (0, 1)
        ]
        given = {"group_id": self.group, **fields}
        return request(
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[request.OffsetCommitRequestTopic(name=topic or self.topic, partitions=partitions)],
            **given,
        )

    def fetching(self, group: str | None = None) -> m.OffsetFetchRequest:
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0, 1, 7])
        return m.OffsetFetchRequest(group_id=self.group if group is None else group, topics=[topic])

    def fetching_groups(self, *groups: str, everything: bool = False) -> m.OffsetFetchRequest:
        request = m.OffsetFetchRequest
        topics = [request.OffsetFetchRequestTopics(name=self.topic, partition_indexes=[1])]
        return request(
            groups=[
                request.OffsetFetchRequestGroup(group_id=each, topics=None if everything else topics) for each in groups
            ]
        )

    async def one_member(self, version: int = 9) -> tuple[str, int]:
        """A stable group of one member."""
        member_id = (await self.ask(self.joining(), version)).member_id
        joined = await self.ask(self.joining(member_id), version)
        await self.ask(self.syncing(member_id, joined.generation_id, {member_id: b"all"}), 5)
        return member_id, joined.generation_id


async def every_version(script: Script) -> None:
    """The life of a group of one, repeated in each version."""
    for version in range(10):
        joined = await script.ask(script.joining(), version)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = await script.ask(script.joining(joined.member_id), version)
        member_id, generation = joined.member_id, joined.generation_id
        await script.ask(script.syncing(member_id, generation, {member_id: b"mine"}), min(version, 5))
        await script.ask(script.beating(member_id, generation), min(version, 4))
        await script.ask(m.DescribeGroupsRequest(groups=[script.group]), min(version, 5))
        if version:
            await script.ask(script.committing(member_id, generation), version)
            if version < 8:
                await script.ask(script.fetching(), version)
            else:
                await script.ask(script.fetching_groups(script.group, "never-seen"), version)
                await script.ask(script.fetching_groups(script.group, everything=True), version)
        left = (
            script.leaving((member_id, None))
            if version >= 3
            else m.LeaveGroupRequest(group_id=script.group, member_id=member_id)
        )
        await script.ask(left, min(version, 5))
        listed = await (await script.client()).ask(m.ListGroupsRequest(), min(version, 5))
        listed.groups = [each for each in listed.groups if each.group_id == script.group]
        script.note("ListGroups", listed)
        await script.ask(m.DescribeGroupsRequest(groups=[script.group, "no-such-group"]), min(version, 5))
    for version in range(3):
        await script.ask(m.DeleteGroupsRequest(groups_names=[script.group, "no-such-group"]), version)


async def refusals(script: Script) -> None:
    """Invalid requests, and their errors."""
    for fields in (
        {"group_id": ""},
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 2_000_000_000},
        {"protocol_type": ""},
        {"protocols": ()},
        {"member_id": "ghost"},
    ):
        await script.ask(script.joining(**fields), 9)
        await script.ask(script.joining(**fields), 0)
    await script.ask(script.syncing("ghost", 1, {}), 5)
    await script.ask(script.syncing("ghost", 1, {}, protocol_type=None), 5)
    await script.ask(script.beating("ghost", 1), 4)
    await script.ask(script.leaving(("ghost", None), ("", "nobody"), ("", None)), 5)
    await script.ask(script.leaving(("ghost", None), group=""), 5)
    await script.ask(script.committing("ghost", 4), 9)
    await script.ask(script.committing(topic="no-such-topic"), 9)
    await script.ask(script.committing(metadata="x" * 4097), 9)
    await script.ask(script.committing(metadata=None), 9)
    await script.ask(script.fetching(), 7)
    await script.ask(script.committing(group_id=""), 9)
    await script.ask(script.fetching(group=""), 7)
    member_id, generation = await script.one_member()
    await script.ask(script.joining(protocol_type="connect"), 9)
    await script.ask(script.joining(protocols=(("other", b""),)), 9)
    await script.ask(script.joining("ghost"), 9)
    await script.ask(script.syncing(member_id, generation + 1, {}), 5)
    await script.ask(script.syncing(member_id, generation, {}, protocol_name="other"), 5)
    await script.ask(script.syncing(member_id, generation, {}, protocol_type="other"), 5)
    await script.ask(script.beating(member_id, generation + 1), 4)
    await script.ask(script.committing(), 9)
    await script.ask(script.committing(member_id), 9)
    await script.ask(script.committing(member_id, generation + 1), 9)
    await script.ask(script.committing("ghost", generation), 9)
    await script.ask(script.committing(member_id, generation, group_instance_id="nobody"), 9)
    await script.ask(m.DeleteGroupsRequest(groups_names=[script.group]), 2)
    answer = await (await script.client()).ask(m.FindCoordinatorRequest(key_type=2, coordinator_keys=["x"]), 5)
    for coordinator in answer.coordinators:
        coordinator.error_message = None  # Kafka returns none; a text does no harm
    script.note("FindCoordinator", answer)


async def two_members(script: Script) -> None:
    """A second member comes, waits, syncs before the leader, and goes."""
    first, generation = await script.one_member(9)
    second = (await script.ask(script.joining(), 9, "second")).member_id
    waiting = await script.client("second")
    await waiting.send(script.joining(second), 9)
    main, describe = await script.client(), m.DescribeGroupsRequest(groups=[script.group])
    await eventually_async(
        lambda: main.ask(describe, 5), lambda answer: answer.groups[0].group_state == "PreparingRebalance"
    )
    await script.ask(script.beating(first, generation), 4)
    await script.ask(script.committing(first, generation), 9)
    await script.ask(script.syncing(first, generation, {}), 5)
    joined = await script.ask(script.joining(first), 9)
    script.note("second joined", await waiting.receive())
    generation = joined.generation_id
    await script.ask(script.committing(first, generation), 9)
    await script.ask(script.beating(first, generation), 4)
    await script.ask(script.joining(second), 9, "third")
    await waiting.send(script.syncing(second, generation, {}), 5)
    await script.ask(script.syncing(first, generation, {first: b"1", second: b"2"}), 5)
    script.note("second synced", await waiting.receive())
    await script.ask(m.DescribeGroupsRequest(groups=[script.group], include_authorized_operations=True), 5)
    await script.ask(script.joining(second), 9, "third")
    await script.ask(script.leaving((second, None)), 5)
    await script.ask(script.beating(first, generation), 4)
    await script.ask(script.beating(second, generation), 4)
    await script.ask(script.joining(first), 9)


async def static_members(script: Script) -> None:
    """Members with instance ids come back, are fenced, and are removed by an administrator."""
    for version in (5, 9):
        await script.ask(script.joining(instance="one", protocol_type="connect"), version)
        first = await script.ask(script.joining(instance="one"), version)
        if first.error_code:
            await script.ask(script.leaving(("", "one")), 5)
            first = await script.ask(script.joining(instance="one"), version)
        await script.ask(
            script.syncing(first.member_id, first.generation_id, {first.member_id: b"1"}, group_instance_id="one"), 5
        )
        back = await script.ask(script.joining(instance="one"), version)
        await script.ask(script.beating(first.member_id, first.generation_id, "one"), 4)
        await script.ask(script.joining(first.member_id, instance="one"), version)
        await script.ask(script.syncing(first.member_id, first.generation_id, {}, group_instance_id="one"), 5)
        await script.ask(script.committing(first.member_id, first.generation_id, group_instance_id="one"), 9)
        await script.ask(script.leaving((first.member_id, "one")), 5)
        await script.ask(script.syncing(back.member_id, back.generation_id, {}, group_instance_id="one"), 5)
        await script.ask(script.beating(back.member_id, back.generation_id, "one"), 4)
        await script.ask(script.beating(back.member_id, back.generation_id), 4)
        await script.ask(m.DescribeGroupsRequest(groups=[script.group]), 5)
        await script.ask(script.leaving(("", "one"), ("", "two")), 5)


async def deleted_offsets(script: Script) -> None:
    """Offsets of topics that are consumed, that are not, and that are not there."""
    request = m.OffsetDeleteRequest

    def deleting(*topics: str) -> m.OffsetDeleteRequest:
        partitions = [request.OffsetDeleteRequestPartition(partition_index=0)]
        return request(
            group_id=script.group,
            topics=[request.OffsetDeleteRequestTopic(name=topic, partitions=partitions) for topic in topics],
        )

    await script.ask(deleting(script.topic), 0)
    await script.ask(script.committing(), 9)
    await script.ask(deleting(script.topic, "no-such-topic"), 0)
    await script.ask(script.fetching(), 7)
    consumed = (("range", b"\0\0" + m.ConsumerProtocolSubscription(topics=[script.topic]).encode(0)),)
    joined = await script.ask(script.joining(protocols=consumed), 3)
    member_id = joined.member_id
    await script.ask(script.syncing(member_id, joined.generation_id, {}), 5)
    await script.ask(deleting(script.topic), 0)
    await script.ask(script.leaving((member_id, None)), 5)
    await script.ask(script.joining(protocol_type="connect"), 3)
    await script.ask(deleting(script.topic), 0)


async def transcript(play: Callable[[Script], Awaitable[None]], port: int, name: str) -> list[str]:
    """The responses of a broker to a script."""
    script = Script(port, f"topic-{name}", f"group-{name}")
    try:
        await script.begin()
        await play(script)
    finally:
        script.close()
    return script.transcript


@pytest.mark.parametrize("play", [every_version, refusals, two_members, static_members, deleted_offsets])
async def test_odradek_answers_as_kafka_does(
    play: Callable[[Script], Awaitable[None]], kafka: Kafka, tmp_path: Path
) -> None:
    name = uuid.uuid4().hex
    async with running_broker(tmp_path / "data") as broker:
        ours = await transcript(play, broker.port, name)
    theirs = await transcript(play, kafka.port, name)
    assert ours == theirs
