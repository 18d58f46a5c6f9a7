"""Comparison with Kafka: a script of consumer-protocol requests goes to Apache Kafka 4.3.0 and to Odradek.

The responses must agree: codes, epochs, assignments, and the state of the group after each step. Topic ids are random,
so names replace them. Kafka 4.3 begins a group with epoch 2, those before it and Odradek with 1; epochs are counted
from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, running_broker
from tests.jvm.kraft import running_kraft
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

GROUP = "g"
# Kafka 4.3 delays assignments by default to make fewer of them; here it makes each at once.
KRAFT = {
    "group.coordinator.append.linger.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}
NOT_YET = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
Beat = m.ConsumerGroupHeartbeatRequest


class Script:
    """One run of the script against one broker, and the transcript of the responses."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: dict[bytes, str] = {}
        self._lead: int | None = None
        self.transcript: list[str] = []

    def _theirs(self, epoch: int) -> int:
        """An epoch of the script in this broker's count."""
        return epoch + (self._lead or 0) if epoch > 0 else epoch

    def _ours(self, epoch: int) -> int:
        """An epoch of this broker in the script's count."""
        return epoch - (self._lead or 0) if epoch > 0 else epoch

    async def begin(self) -> None:
        find = m.FindCoordinatorRequest(coordinator_keys=[GROUP])
        await eventually_async(
            lambda: self._client.ask(find, 6), lambda answer: answer.coordinators[0].error_code not in NOT_YET
        )
        describe = m.ConsumerGroupDescribeRequest(group_ids=[GROUP])
        await eventually_async(
            lambda: self._client.ask(describe, 1), lambda answer: answer.groups[0].error_code not in NOT_YET
        )
        for name, partitions in (("t", 4), ("u", 3)):
            created = await self._client.create_topic(name, partitions)
            self._names[created.topic_id] = name

    async def beat(self, what: str, member: str, epoch: int, version: int = 1, **fields: Any) -> None:
        """A heartbeat; `owned` are names of topics with partitions."""
        owned: dict[str, list[int]] | None = fields.pop("owned", None)
        topics = None
        if owned is not None:
            ids = {name: topic_id for topic_id, name in self._names.items()}
            topics = [Beat.TopicPartitions(topic_id=ids[name], partitions=parts) for name, parts in owned.items()]
        group = fields.pop("group_id", GROUP)
        request = Beat(
            group_id=group, member_id=member, member_epoch=self._theirs(epoch), topic_partitions=topics, **fields
        )
        answer = await self._client.ask(request, version)
        if self._lead is None and answer.member_epoch > 0:
            self._lead = answer.member_epoch - 1
        given = None
        if answer.assignment is not None:
            given = sorted(
                (self._names[each.topic_id], sorted(each.partitions)) for each in answer.assignment.topic_partitions
            )
        self._note(
            what,
            ErrorCode(answer.error_code).name,
            self._ours(answer.member_epoch),
            answer.heartbeat_interval_ms,
            given,
        )
        await self.describe()

    async def join(self, what: str, member: str, *names: str, **fields: Any) -> None:
        given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(names), "owned": {}}
        await self.beat(what, member, 0, **{**given, **fields})

    async def describe(self) -> None:
        (group,) = (await self._client.ask(m.ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)).groups
        members = sorted(
            (
                each.member_id,
                each.instance_id,
                self._ours(each.member_epoch),
                each.member_type,
                sorted(each.subscribed_topic_names),
                _dependencies(each.assignment),
                _dependencies(each.target_assignment),
            )
            for each in group.members
        )
        epochs = (self._ours(group.group_epoch), self._ours(group.assignment_epoch))
        self._note("  group", ErrorCode(group.error_code).name, group.group_state, epochs, group.assignor_name, members)

    async def commit(self, what: str, member: str, epoch: int, version: int = 9) -> None:
        request = m.OffsetCommitRequest
        partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        topic = request.OffsetCommitRequestTopic(name="t", partitions=[partition])
        sent = request(
            group_id=GROUP, member_id=member, generation_id_or_member_epoch=self._theirs(epoch), topics=[topic]
        )
        answer = await self._client.ask(sent, version)
        self._note(what, ErrorCode(answer.topics[0].partitions[0].error_code).name)

    async def fetch(self, what: str, member: str | None, epoch: int) -> None:
        request = m.OffsetFetchRequest
        topics = [request.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = request.OffsetFetchRequestGroup(
            group_id=GROUP, member_id=member, member_epoch=self._theirs(epoch), topics=topics
        )
        (answer,) = (await self._client.ask(request(groups=[group]), 9)).groups
        found = [each.partitions[0].committed_offset for each in answer.topics]
        self._note(what, ErrorCode(answer.error_code).name, found)

    async def administer(self) -> None:
        (old,) = (await self._client.ask(m.DescribeGroupsRequest(groups=[GROUP]), 5)).groups
        (new,) = (await self._client.ask(m.DescribeGroupsRequest(groups=[GROUP]), 6)).groups
        listed = (await self._client.ask(m.ListGroupsRequest(types_filter=["consumer"]), 5)).groups
        (gone,) = (await self._client.ask(m.DeleteGroupsRequest(groups_names=[GROUP]), 2)).results
        self._note("describe", old.error_code, old.group_state, new.error_code)
        self._note("list", [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed])
        self._note("delete", ErrorCode(gone.error_code).name)

    async def classic_join(self, what: str, member: str, owned: list[int], **fields: Any) -> None:
        """JoinGroup of a cooperative consumer of `t` that owns these partitions of it."""
        metadata = b"\0\1" + m.ConsumerProtocolSubscription(
            topics=["t"],
            owned_partitions=[m.ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=owned)],
        ).encode(1)
        protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)]
        given: dict[str, Any] = {"protocol_type": "consumer", "protocols": protocols, **fields}
        request = m.JoinGroupRequest(
            group_id=GROUP, member_id=member, session_timeout_ms=30_000, rebalance_timeout_ms=60_000, **given
        )
        answer = await self._client.ask(request, 9)
        code, generation = ErrorCode(answer.error_code).name, self._ours(answer.generation_id)
        self._note(what, code, generation, answer.protocol_type, answer.protocol_name, answer.leader, answer.members)
        await self.describe()

    async def classic_sync(self, what: str, member: str, generation: int) -> None:
        request = m.SyncGroupRequest(
            group_id=GROUP,
            member_id=member,
            generation_id=self._theirs(generation),
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
        )
        answer = await self._client.ask(request, 5)
        given = None
        if answer.assignment:
            found = m.ConsumerProtocolAssignment.decode(answer.assignment, 1, 2).assigned_partitions
            given = [(each.topic, sorted(each.partitions)) for each in found]
        self._note(what, ErrorCode(answer.error_code).name, answer.protocol_type, answer.protocol_name, given)

    async def classic_beat(self, what: str, member: str, generation: int) -> None:
        request = m.HeartbeatRequest(group_id=GROUP, member_id=member, generation_id=self._theirs(generation))
        self._note(what, ErrorCode((await self._client.ask(request, 4)).error_code).name)

    async def classic_leave(self, what: str, member: str) -> None:
        leaver = m.LeaveGroupRequest.MemberIdentity(member_id=member)
        answer = await self._client.ask(m.LeaveGroupRequest(group_id=GROUP, members=[leaver]), 5)
        self._note(what, answer.error_code, [ErrorCode(each.error_code).name for each in answer.members])
        await self.describe()

    async def classic_describe(self) -> None:
        (group,) = (await self._client.ask(m.DescribeGroupsRequest(groups=[GROUP]), 5)).groups
        self._note("classic", group.group_state, group.protocol_type, sorted(each.member_id for each in group.members))

    def _note(self, *what: Any) -> None:
        self.transcript.append(" ".join(map(str, what)))


def _dependencies(assignment: m.ConsumerGroupDescribeResponse.Assignment) -> list[tuple[str, list[int]]]:
    return sorted((each.topic_name, sorted(each.partitions)) for each in assignment.topic_partitions)


async def play(client: Client) -> list[str]:
    """The script."""
    script = Script(client)
    await script.begin()
    await refusals(script)
    await sharing(script)
    await static_members(script)
    await both_protocols(script)
    return script.transcript


async def refusals(script: Script) -> None:
    full: dict[str, Any] = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "owned": {}}
    await script.beat("no group id", "m", 0, group_id="", **full)
    await script.beat("no member id", "", 0, **full)
    await script.beat("no such epoch", "m", -3)
    await script.beat("static leave without instance", "m", -2)
    await script.beat("empty instance", "m", 0, instance_id="", **full)
    await script.beat("empty rack", "m", 0, rack_id="", **full)
    await script.beat("no timeout", "m", 0, **{**full, "rebalance_timeout_ms": -1})
    await script.beat("no owned partitions", "m", 0, rebalance_timeout_ms=1, subscribed_topic_names=["t"])
    await script.beat("owns something", "m", 0, **{**full, "owned": {"t": [0]}})
    await script.beat("subscribes to nothing", "m", 0, rebalance_timeout_ms=1, owned={})
    await script.beat("an assignor of its own", "m", 0, server_assignor="mine", **full)
    await script.beat("a bad expression", "m", 0, subscribed_topic_regex="(", **full)
    await script.beat("no such group", "m", 1)
    await script.beat("no such group to leave", "m", -1)


async def sharing(script: Script) -> None:
    await script.join("a joins", "a", "t")
    await script.beat("a stays", "a", 1)
    await script.beat("a is ahead", "a", 2)
    await script.commit("a commits", "a", 1)
    await script.commit("a commits ahead", "a", 2)
    await script.commit("a commits in an old version", "a", 1, 8)
    await script.commit("a stranger commits", "x", 1)
    await script.commit("a commit without a member", "", -1)
    await script.fetch("a fetches", "a", 1)
    await script.fetch("a fetches ahead", "a", 2)
    await script.fetch("a stranger fetches", "x", 1)
    await script.fetch("an administrator fetches", None, -1)
    await script.join("b joins", "b", "t")
    await script.beat("b waits", "b", 2, owned={})
    await script.beat("a receives the revocation", "a", 1, owned={"t": [0, 1, 2, 3]})
    await script.beat("a keeps its partitions", "a", 1, owned={"t": [0, 1, 2, 3]})
    await script.beat("a sends no owned partitions", "a", 1)
    await script.beat("a revokes", "a", 1, owned={"t": [0, 1]})
    await script.beat("b is assigned", "b", 2, owned={})
    await script.commit("a commits as before", "a", 1)
    await script.commit("b commits a partition of another", "b", 1)
    await script.beat("a lost the response", "a", 1, owned={"t": [0, 1]})
    await script.beat("a lost it and sends no owned partitions", "a", 1)
    await script.beat("b changes its subscription", "b", 2, subscribed_topic_names=["u"], owned={"t": [2, 3]})
    await script.beat("b revokes", "b", 2, owned={})
    await script.beat("a gets the rest", "a", 2, owned={"t": [0, 1]})
    await script.beat("a requests ranges", "a", 3, server_assignor="range", owned={"t": [0, 1, 2, 3]})
    await script.beat("b leaves", "b", -1)
    await script.beat("a beats", "a", 3, owned={"t": [0, 1, 2, 3]})
    await script.administer()
    await script.beat("a leaves", "a", -1)
    await script.beat("a is unknown", "a", 4)


async def static_members(script: Script) -> None:
    await script.join("s joins", "s", "t", instance_id="i")
    await script.join("another of its name", "s2", "t", instance_id="i")
    await script.beat("a foreign instance", "s2", 1, instance_id="i")
    await script.beat("no such instance", "s", 1, instance_id="j")
    await script.beat("s leaves for a while", "s", -2, instance_id="i")
    await script.join("s is back", "s2", "t", instance_id="i")
    await script.beat("its former self", "s", -1, instance_id="i")
    await script.beat("s leaves", "s2", -1, instance_id="i")
    await script.administer()


async def both_protocols(script: Script) -> None:
    await script.join("a joins", "a", "t")
    await script.classic_join("something else joins", "c", [], protocol_type="connect")
    await script.classic_join("c joins", "c", [])
    await script.classic_sync("c syncs", "c", 2)
    await script.classic_sync("c is ahead", "c", 3)
    await script.classic_sync("a syncs", "a", 2)
    await script.classic_beat("c beats", "c", 2)
    await script.classic_beat("c is behind", "c", 1)
    await script.classic_beat("a beats", "a", 1)
    await script.beat("a receives the revocation", "a", 1, owned={"t": [0, 1, 2, 3]})
    await script.beat("a revokes", "a", 1, owned={"t": [0, 1]})
    await script.classic_beat("c may have more", "c", 2)
    await script.classic_join("c joins again", "c", [])
    await script.classic_sync("c is assigned", "c", 2)
    await script.classic_beat("c is stable", "c", 2)
    await script.commit("c commits", "c", 2, 8)
    await script.commit("c commits in the wrong generation", "c", 3, 8)
    await script.join("b joins", "b", "t")
    await script.classic_sync("c should join", "c", 2)
    await script.classic_beat("c is notified", "c", 2)
    await script.beat("b leaves", "b", -1)
    await script.classic_join("c joins once more", "c", [2, 3])
    await script.classic_leave("a stranger leaves", "x")
    await script.beat("a beats again", "a", 2, owned={"t": [0, 1]})
    await script.beat("a leaves", "a", -1)
    await script.classic_describe()
    await script.classic_beat("c is asked to join", "c", 4)
    await script.classic_leave("c leaves", "c")
    await script.classic_describe()
    await script.join("a is back", "a", "t")
    await script.classic_leave("an administrator removes a", "a")
    await script.classic_describe()


async def test_odradek_answers_as_kafka_does(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as ours:
        client = await Client.connect(ours.port)
        mine = await play(client)
        client.close()
    async with running_kraft(tmp_path / "kafka", KRAFT) as port:
        client = await Client.connect(port)
        theirs = await play(client)
        client.close()
    assert mine == theirs, "\n" + "\n".join(
        f"ours:  {a}\nkafka: {b}" for a, b in zip(mine, theirs, strict=False) if a != b
    )
