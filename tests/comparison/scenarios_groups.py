"""Scenarios of groups: coordinators, members, committed offsets, and deletion."""

from __future__ import annotations

from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.comparison.data import batch_of
from tests.comparison.scenarios_logs import make, write
from tests.comparison.side import Side

NOT_YET = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
SUBSCRIPTION = b"\0\0" + m.ConsumerProtocolSubscription(topics=["t"]).encode(0)
RANGE = [{"name": "range", "metadata": SUBSCRIPTION}]


async def serves(s: Side, group: str) -> None:
    """Wait until the coordinator of a group works."""
    await s.until(lambda answer: answer.error_code not in NOT_YET, "FindCoordinator", 0, key=group)
    await s.until(lambda answer: answer.groups[0].error_code not in NOT_YET, "DescribeGroups", 0, groups=[group])


def joining(group: str, member_id: str = "", **fields: Any) -> dict[str, Any]:
    """The fields of a JoinGroup."""
    return {
        "group_id": group,
        "member_id": member_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": RANGE,
        **fields,
    }


async def coordinators(s: Side) -> None:
    """FindCoordinator, of groups and of transactions."""
    await serves(s, "somebody")
    await s.ask("FindCoordinator", "0-3", key="somebody")
    for kind in (0, 1, 2, 3, -1):
        await s.ask("FindCoordinator", "4+", key_type=kind, coordinator_keys=[])
    for kind in (2, 3, -1):
        await s.ask("FindCoordinator", "1-3", key="x", key_type=kind)
        await s.ask("FindCoordinator", "4+", coordinator_keys=["x", "y"], key_type=kind)
    await s.until(lambda answer: not answer.error_code, "FindCoordinator", 3, key="transactor", key_type=1)
    await s.ask("FindCoordinator", "1-3", key="transactor", key_type=1)
    for kind in (0, 1):
        for keys in (["a"], ["a", "b"], ["a", "a"], [""]):
            await s.ask("FindCoordinator", "4+", key_type=kind, coordinator_keys=keys)
        await s.ask("FindCoordinator", "1-3", key="", key_type=kind)
    await s.ask("FindCoordinator", 0, key="")
    await s.ask("Metadata", 9, topics=[{"name": "__consumer_offsets"}, {"name": "__transaction_state"}])
    for name in ("__consumer_offsets", "__transaction_state"):
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
        await s.ask("CreateTopics", topics=topics, timeout_ms=20_000)
        await s.ask("CreatePartitions", topics=[{"name": name, "count": 1, "assignments": None}], timeout_ms=20_000)
        more = [{"name": name, "count": 60, "assignments": None}]
        await s.ask("CreatePartitions", topics=more, timeout_ms=20_000, validate_only=True)


async def members(s: Side) -> None:
    """One member from join to leave, in every version."""
    low, high = s.versions[11]
    for version in range(low, high + 1):
        group = f"life-{version}"
        await serves(s, group)
        joined = await s.ask("JoinGroup", version, **joining(group))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = await s.ask("JoinGroup", version, **joining(group, joined.member_id))
        me = joined.member_id
        sync = {"group_id": group, "member_id": me, "generation_id": 1}
        beat = min(version, s.versions[12][1])
        syncs = min(version, s.versions[14][1])
        named = {"protocol_type": "consumer", "protocol_name": "range"} if syncs >= 5 else {}
        shares = [{"member_id": me, "assignment": b"mine"}]
        await s.ask("DescribeGroups", groups=[group])
        await s.ask("Heartbeat", beat, **sync)
        await s.ask("SyncGroup", syncs, **{**sync, "generation_id": 2}, assignments=shares, **named)
        await s.ask("SyncGroup", syncs, **{**sync, "member_id": "stranger"}, assignments=shares, **named)
        if syncs >= 5:
            await s.ask("SyncGroup", syncs, **sync, assignments=shares, protocol_type="other", protocol_name="range")
            await s.ask("SyncGroup", syncs, **sync, assignments=shares, protocol_type="consumer", protocol_name="other")
        await s.ask("SyncGroup", syncs, **sync, assignments=shares, **named)
        await s.ask("SyncGroup", syncs, **sync, assignments=[], **named)
        for fields in ({}, {"generation_id": 2}, {"generation_id": 0}, {"member_id": "stranger"}, {"group_id": "none"}):
            await s.ask("Heartbeat", beat, **{**sync, **fields})
        await s.ask("JoinGroup", version, **joining(group, me))
        await s.ask("DescribeGroups", groups=[group])
        await s.ask("SyncGroup", syncs, **{**sync, "generation_id": 2}, assignments=shares, **named)
        await s.ask("DescribeGroups", groups=[group])
        await s.ask("DeleteGroups", groups_names=[group])
        leaves = min(version, s.versions[13][1])
        if leaves < 3:
            await s.ask("LeaveGroup", leaves, group_id=group, member_id="stranger")
            await s.ask("LeaveGroup", leaves, group_id=group, member_id=me)
            await s.ask("LeaveGroup", leaves, group_id=group, member_id=me)
        else:
            await s.ask("LeaveGroup", leaves, group_id=group, members=[{"member_id": "stranger"}])
            await s.ask("LeaveGroup", leaves, group_id=group, members=[{"member_id": me}, {"member_id": me}])
            await s.ask("LeaveGroup", leaves, group_id=group, members=[{"member_id": me}])
        await s.ask("DescribeGroups", groups=[group])
        await s.ask("Heartbeat", beat, **sync)


async def refusals(s: Side) -> None:
    """Requests that the coordinator rejects."""
    await serves(s, "picky")
    fields: dict[str, Any]
    for fields in (
        {"group_id": ""},
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 2**31 - 1},
        {"session_timeout_ms": -1},
        {"protocols": []},
        {"protocol_type": ""},
        {"member_id": "stranger"},
    ):
        await s.ask("JoinGroup", **joining("picky", **fields))
    await s.ask("JoinGroup", "5+", **joining("picky", "stranger", group_instance_id="i"))
    await s.ask("JoinGroup", "8+", **joining("picky", "stranger", reason="because"))
    for group in ("", "absent"):
        ids: dict[str, Any] = {"group_id": group, "generation_id": 1, "member_id": "m"}
        await s.ask("Heartbeat", **ids)
        await s.ask("Heartbeat", "3+", **ids, group_instance_id="i")
        await s.ask("SyncGroup", "0-4", **ids, assignments=[])
        await s.ask("SyncGroup", "5+", **ids, assignments=[])
        await s.ask("SyncGroup", "5+", **ids, assignments=[], protocol_type="consumer", protocol_name="range")
        await s.ask("LeaveGroup", "0-2", group_id=group, member_id="m")
        for leaving in (
            [],
            [{"member_id": "m"}],
            [{"member_id": "", "group_instance_id": "i"}],
            [{"member_id": "m"}, {"member_id": "", "group_instance_id": "i"}, {"member_id": ""}],
        ):
            await s.ask("LeaveGroup", "3+", group_id=group, members=leaving)
        await s.ask("LeaveGroup", "5+", group_id=group, members=[{"member_id": "m", "reason": "because"}])


async def crowds(s: Side) -> None:
    """Two members, static members, other protocols, and rebalances."""
    await serves(s, "crowd")
    first = await s.ask("JoinGroup", 3, **joining("crowd"))
    await s.ask("JoinGroup", 3, **joining("crowd", protocol_type="connect"), at="second")
    await s.ask("JoinGroup", 3, **joining("crowd", protocols=[{"name": "other", "metadata": b""}]), at="second")
    shares = [{"member_id": first.member_id, "assignment": b"all"}]
    await s.ask("SyncGroup", 3, group_id="crowd", member_id=first.member_id, generation_id=1, assignments=shares)
    second = await s.send("JoinGroup", 3, at="second", **joining("crowd"))
    beat = {"group_id": "crowd", "member_id": first.member_id, "generation_id": 1}
    await s.until(lambda answer: answer.error_code, "Heartbeat", 3, **beat)
    await s.ask("DescribeGroups", groups=["crowd"])
    await s.ask("SyncGroup", 3, group_id="crowd", member_id=first.member_id, generation_id=1, assignments=shares)
    more = [{"name": "roundrobin", "metadata": b"rr"}, *RANGE]
    await s.ask("JoinGroup", 3, **joining("crowd", first.member_id, protocols=more))
    other = await s.take(second)
    waiting = await s.send(
        "SyncGroup", 3, at="second", group_id="crowd", member_id=other.member_id, generation_id=2, assignments=[]
    )
    shares.append({"member_id": other.member_id, "assignment": b"some"})
    await s.ask("SyncGroup", 3, group_id="crowd", member_id=first.member_id, generation_id=2, assignments=shares)
    await s.take(waiting)
    await s.ask("DescribeGroups", groups=["crowd"])
    gone = [{"member_id": first.member_id}, {"member_id": other.member_id}]
    await s.ask("LeaveGroup", 3, group_id="crowd", members=gone)
    await s.ask("DescribeGroups", groups=["crowd"])

    await serves(s, "static")
    for version in ("5", "9"):
        fields = joining("static", group_instance_id="one")
        joined = await s.ask("JoinGroup", int(version), **fields)
        ids = {"group_id": "static", "generation_id": joined.generation_id, "member_id": joined.member_id}
        mine = [{"member_id": joined.member_id, "assignment": b"a"}]
        await s.ask("SyncGroup", 4, **ids, group_instance_id="one", assignments=mine)
        again = await s.ask("JoinGroup", int(version), **fields)
        await s.ask("SyncGroup", 4, **ids, group_instance_id="one", assignments=mine)
        await s.ask("Heartbeat", "3+", **ids, group_instance_id="one")
        await s.ask("Heartbeat", "3+", **ids, group_instance_id="two")
        await s.ask("Heartbeat", "3+", **{**ids, "member_id": again.member_id}, group_instance_id="one")
        await s.ask("DescribeGroups", groups=["static"])
        await s.ask("JoinGroup", 9, **{**fields, "member_id": joined.member_id})
        for leaving in (
            [{"member_id": joined.member_id, "group_instance_id": "one"}],
            [{"member_id": "", "group_instance_id": "two"}],
            [{"member_id": "", "group_instance_id": "one"}],
        ):
            await s.ask("LeaveGroup", 5, group_id="static", members=leaving)


def committed(topic: str = "committed", *partitions: int, **fields: Any) -> list[dict[str, Any]]:
    """The topics of an OffsetCommit."""
    wanted = [
        {"partition_index": n, "committed_offset": 5 + n, "committed_metadata": f"m{n}", **fields} for n in partitions
    ]
    return [{"name": topic, "partitions": wanted}]


async def commits(s: Side) -> None:
    """OffsetCommit and OffsetFetch without members, in every form."""
    await make(s, "committed", 3)
    await serves(s, "commits")
    alone: dict[str, Any] = {"group_id": "commits", "member_id": "", "generation_id_or_member_epoch": -1}
    await s.ask("OffsetCommit", **alone, topics=committed("committed", 0, 1))
    await s.ask("OffsetCommit", "6+", **alone, topics=committed("committed", 2, committed_leader_epoch=3))
    await s.ask("OffsetCommit", "2-4", **alone, retention_time_ms=100_000, topics=committed("committed", 0))
    await s.ask("OffsetCommit", 1, **alone, topics=committed("committed", 0, commit_timestamp=5))
    for topics in (
        [],
        committed("committed"),
        committed("committed", 0, 0),
        committed("committed", 3, -1),
        committed("absent", 0),
        committed("", 0),
        committed("committed", 0, committed_metadata=None),
        committed("committed", 0, committed_metadata=""),
        committed("committed", 0, committed_metadata="x" * 4096),
        committed("committed", 0, committed_metadata="x" * 4097),
        committed("committed", 1, committed_offset=-1),
        committed("committed", 1, committed_offset=-5),
        committed("committed", 0) + committed("absent", 0) + committed("committed", 1),
    ):
        await s.ask("OffsetCommit", **alone, topics=topics)
    fields: dict[str, Any]
    for fields in (
        {"group_id": ""},
        {"member_id": "stranger"},
        {"generation_id_or_member_epoch": 1},
        {"generation_id_or_member_epoch": -2},
        {"generation_id_or_member_epoch": 1, "member_id": "stranger"},
    ):
        await s.ask("OffsetCommit", "1+", **{**alone, **fields}, topics=committed("committed", 0))
    await s.ask("OffsetCommit", "7+", **alone, group_instance_id="i", topics=committed("committed", 0))
    await s.ask("OffsetCommit", "0-5", **{**alone, "group_id": "late-{v}"}, topics=committed("committed", 0))

    for group in ("commits", "absent", ""):
        for topics in (
            [{"name": "committed", "partition_indexes": [0, 1, 2]}],
            [{"name": "committed", "partition_indexes": [2, 0]}],
            [{"name": "committed", "partition_indexes": []}],
            [{"name": "committed", "partition_indexes": [0, 0, 7]}],
            [{"name": "absent", "partition_indexes": [0]}],
            [{"name": "committed", "partition_indexes": [0]}, {"name": "absent", "partition_indexes": [0]}],
            [{"name": "committed", "partition_indexes": [0]}, {"name": "committed", "partition_indexes": [1]}],
            [],
        ):
            await s.ask("OffsetFetch", "0-7", group_id=group, topics=topics)
            await s.ask("OffsetFetch", "8+", groups=[{"group_id": group, "topics": topics}])
        await s.ask("OffsetFetch", "2-7", group_id=group, topics=None)
        await s.ask("OffsetFetch", "8+", groups=[{"group_id": group, "topics": None}])
        await s.ask("OffsetFetch", 7, group_id=group, topics=None, require_stable=True)
        await s.ask("OffsetFetch", "8+", groups=[{"group_id": group, "topics": None}], require_stable=True)
    two = [{"group_id": "commits", "topics": None}, {"group_id": "absent", "topics": None}]
    await s.ask("OffsetFetch", "8+", groups=two)
    await s.ask("OffsetFetch", "8+", groups=[two[0], two[0]])
    await s.hanging("OffsetFetch", 8, groups=[])
    for member in ({"member_id": "m", "member_epoch": 1}, {"member_id": None, "member_epoch": 0}):
        await s.ask("OffsetFetch", 9, groups=[{"group_id": "commits", "topics": None, **member}])

    for topics in (
        [],
        [{"name": "committed", "partitions": []}],
        [{"name": "absent", "partitions": [{"partition_index": 0}]}],
        [{"name": "committed", "partitions": [{"partition_index": 1}, {"partition_index": 9}]}],
        [{"name": "committed", "partitions": [{"partition_index": 1}, {"partition_index": 1}]}],
    ):
        for group in ("commits", "absent", ""):
            await s.ask("OffsetDelete", group_id=group, topics=topics)
    await s.ask("OffsetFetch", 5, group_id="commits", topics=None)


async def registers(s: Side) -> None:
    """DescribeGroups, ListGroups, DeleteGroups, and offsets of groups with members."""
    await serves(s, "busy")
    # Other scenarios list the group, and its session must not end meanwhile on one side only.
    joined = await s.ask("JoinGroup", 3, **joining("busy", session_timeout_ms=1_200_000))
    me = {"group_id": "busy", "member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    await s.ask("OffsetCommit", "1+", **me, topics=committed("committed", 0))
    mine = [{"member_id": joined.member_id, "assignment": b"a"}]
    await s.ask("SyncGroup", 3, group_id="busy", member_id=joined.member_id, generation_id=1, assignments=mine)
    await s.ask("OffsetCommit", "1+", **me, topics=committed("committed", 0, 1))
    for fields in ({"generation_id_or_member_epoch": 9}, {"generation_id_or_member_epoch": -1}, {"member_id": ""}):
        await s.ask("OffsetCommit", "1+", **{**me, **fields}, topics=committed("committed", 0))
    await s.ask("OffsetCommit", 0, group_id="busy", topics=committed("committed", 0))
    await s.ask("OffsetFetch", 9, groups=[{"group_id": "busy", "member_id": "x", "member_epoch": 4, "topics": None}])
    await s.ask("OffsetDelete", group_id="busy", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}])
    await s.ask("OffsetDelete", group_id="busy", topics=[{"name": "committed", "partitions": [{"partition_index": 0}]}])
    for groups in ([], ["busy"], ["absent"], [""], ["busy", "absent", "commits"], ["busy", "busy"]):
        await s.ask("DescribeGroups", groups=groups)
        await s.ask("DescribeGroups", "3+", groups=groups, include_authorized_operations=True)
    await s.ask("ListGroups")
    for states in (
        ["Stable"],
        ["stable"],
        ["Empty", "Dead"],
        ["EMPTY", "Stable"],
        ["CompletingRebalance"],
        ["Dead"],
        ["unknown"],
        ["Assigning"],
        ["Empty", "Nonsense"],
        ["Nonsense"],
        [""],
        ["PreparingRebalance", "Stable"],
    ):
        await s.ask("ListGroups", "4+", states_filter=states)
    for kinds in (
        ["classic"],
        ["Classic"],
        ["consumer"],
        ["CONSUMER", "classic"],
        ["nonsense"],
        ["classic", "nonsense"],
        [""],
        ["unknown"],
        ["classic", "consumer"],
        ["share"],
    ):
        await s.ask("ListGroups", "5+", types_filter=kinds)
        await s.ask("ListGroups", "5+", types_filter=kinds, states_filter=["Stable"])
    for names in ([], ["absent"], [""], ["busy"], ["late-{v}"], ["late-3", "late-3", "absent"], ["late-4", "late-5"]):
        await s.ask("DeleteGroups", groups_names=names)
    await s.ask("ListGroups")
    await make(s, "passing")
    await s.ask("OffsetCommit", 7, group_id="commits", member_id="", topics=committed("passing", 0))
    await s.ask("DeleteTopics", 5, topic_names=["passing"], timeout_ms=20_000)
    nothing = [{"name": "passing", "partition_indexes": [0]}]
    await s.until(
        lambda answer: answer.topics[0].partitions[0].committed_offset == -1,
        "OffsetFetch",
        5,
        group_id="commits",
        topics=nothing,
    )
    await make(s, "internal")
    await write(s, "__consumer_offsets", batch_of(b"a"))


async def new_groups(s: Side) -> None:
    """The APIs of the consumer protocol, which is not enabled on this broker."""
    beat: dict[str, Any] = {"group_id": "new", "member_id": "", "member_epoch": 0, "rebalance_timeout_ms": 5000}
    fields: dict[str, Any]
    for fields in ({}, {"group_id": ""}, {"subscribed_topic_names": ["a"], "topic_partitions": []}):
        await s.ask("ConsumerGroupHeartbeat", **{**beat, **fields})
    for groups in ([], ["absent"], [""], ["commits"], ["busy", "busy"]):
        await s.ask("ConsumerGroupDescribe", group_ids=groups)
        await s.ask("ConsumerGroupDescribe", group_ids=groups, include_authorized_operations=True)


async def seconds(s: Side) -> None:
    """A second member joins, syncs before the leader, and leaves; commits of either at every step."""
    await serves(s, "seconds")
    first = (await s.ask("JoinGroup", 9, **joining("seconds"))).member_id
    joined = await s.ask("JoinGroup", 9, **joining("seconds", first))
    me: dict[str, Any] = {"group_id": "seconds", "member_id": first, "generation_id": joined.generation_id}
    typed = {"protocol_type": "consumer", "protocol_name": "range"}
    await s.ask("SyncGroup", 5, **me, **typed, assignments=[{"member_id": first, "assignment": b"all"}])

    async def commit(member_id: str, generation: int, **fields: Any) -> None:
        ids: dict[str, Any] = {
            "group_id": "seconds",
            "member_id": member_id,
            "generation_id_or_member_epoch": generation,
        }
        await s.ask("OffsetCommit", 9, **ids, **fields, topics=committed("committed", 0, 1))

    await s.ask("JoinGroup", 9, **joining("seconds", "stranger"))
    for member_id, generation in (("", -1), ("stranger", me["generation_id"]), (first, me["generation_id"] + 1)):
        await commit(member_id, generation)
    await commit(first, me["generation_id"], group_instance_id="stranger")

    second = (await s.ask("JoinGroup", 9, at="second", **joining("seconds"))).member_id
    waiting = await s.send("JoinGroup", 9, at="second", **joining("seconds", second))
    await s.wait(
        lambda answer: answer.groups[0].group_state == "PreparingRebalance", "DescribeGroups", 5, groups=["seconds"]
    )
    await s.ask("Heartbeat", 4, **me)
    await commit(first, me["generation_id"])
    await s.ask("SyncGroup", 5, **me, **typed, assignments=[])
    me["generation_id"] = (await s.ask("JoinGroup", 9, **joining("seconds", first))).generation_id
    await s.take(waiting)
    await commit(first, me["generation_id"])
    await s.ask("Heartbeat", 4, **me)
    await s.ask("JoinGroup", 9, at="third", **joining("seconds", second))
    other = {**me, "member_id": second}
    waiting = await s.send("SyncGroup", 5, at="second", **other, **typed, assignments=[])
    shares = [{"member_id": member, "assignment": b"part"} for member in (first, second)]
    await s.ask("SyncGroup", 5, **me, **typed, assignments=shares)
    await s.take(waiting)
    await s.ask("DescribeGroups", 5, groups=["seconds"], include_authorized_operations=True)
    await s.ask("JoinGroup", 9, at="third", **joining("seconds", second))
    await s.ask("LeaveGroup", 5, group_id="seconds", members=[{"member_id": second}])
    await s.ask("Heartbeat", 4, **me)
    await s.ask("Heartbeat", 4, **other)
    await s.ask("JoinGroup", 9, **joining("seconds", first))
    await s.ask("LeaveGroup", 5, group_id="seconds", members=[{"member_id": first}])
    await s.ask("DeleteGroups", 2, groups_names=["seconds"])


async def replaced_members(s: Side) -> None:
    """A static member whose successor has its place: every request of the first, then of the second."""
    group = {"group_id": "replaced"}
    static = {"group_instance_id": "one"}
    await serves(s, "replaced")
    for version in (5, 9):
        await s.ask("JoinGroup", version, **joining("replaced", **static, protocol_type="connect"))
        await s.ask("JoinGroup", version, **joining("replaced", **static))
        await s.ask("LeaveGroup", 5, **group, members=[{"member_id": "", **static}])
        old = await s.ask("JoinGroup", version, **joining("replaced", **static))
        typed = {"protocol_type": "consumer", "protocol_name": "range"}
        first: dict[str, Any] = {**group, "member_id": old.member_id, "generation_id": old.generation_id}
        shares = [{"member_id": old.member_id, "assignment": b"1"}]
        await s.ask("SyncGroup", 5, **first, **static, **typed, assignments=shares)
        new = await s.ask("JoinGroup", version, **joining("replaced", **static))
        second: dict[str, Any] = {**group, "member_id": new.member_id, "generation_id": new.generation_id}
        await s.ask("Heartbeat", 4, **first, **static)
        await s.ask("JoinGroup", version, **joining("replaced", old.member_id, **static))
        await s.ask("SyncGroup", 5, **first, **static, **typed, assignments=[])
        ids = {**group, "member_id": old.member_id, "generation_id_or_member_epoch": old.generation_id}
        await s.ask("OffsetCommit", 9, **ids, **static, topics=committed("committed", 0))
        await s.ask("LeaveGroup", 5, **group, members=[{"member_id": old.member_id, **static}])
        await s.ask("SyncGroup", 5, **second, **static, **typed, assignments=[])
        await s.ask("Heartbeat", 4, **second, **static)
        await s.ask("Heartbeat", 4, **second)
        await s.ask("DescribeGroups", 5, groups=["replaced"])
        leaving = [{"member_id": "", **static}, {"member_id": "", "group_instance_id": "two"}]
        await s.ask("LeaveGroup", 5, **group, members=leaving)


async def forgotten(s: Side) -> None:
    """OffsetDelete: topics that are subscribed, that are not any more, and in a group that is no consumer group."""
    group = {"group_id": "forgotten"}
    here = [{"name": "committed", "partitions": [{"partition_index": 0}]}]
    await serves(s, "forgotten")
    await s.ask("OffsetDelete", **group, topics=here)
    alone: dict[str, Any] = {**group, "member_id": "", "generation_id_or_member_epoch": -1}
    await s.ask("OffsetCommit", 9, **alone, topics=committed("committed", 0, 1))
    await s.ask("OffsetDelete", **group, topics=[*here, {**here[0], "name": "absent"}])
    await s.ask("OffsetFetch", 7, **group, topics=[{"name": "committed", "partition_indexes": [0, 1, 7]}])
    subscription = b"\0\0" + m.ConsumerProtocolSubscription(topics=["committed"]).encode(0)
    protocols = [{"name": "range", "metadata": subscription}]
    joined = await s.ask("JoinGroup", 3, **joining("forgotten", protocols=protocols))
    me = {**group, "member_id": joined.member_id}
    await s.ask("SyncGroup", 3, **me, generation_id=joined.generation_id, assignments=[])
    ids: dict[str, Any] = {**me, "generation_id_or_member_epoch": joined.generation_id}
    await s.ask("OffsetCommit", 9, **ids, topics=committed("committed", 0, 1))
    await s.ask("OffsetDelete", **group, topics=here)
    await s.ask("LeaveGroup", 5, **group, members=[{"member_id": joined.member_id}])
    await s.ask("DescribeGroups", groups=["forgotten", "absent"])
    await s.ask("ListGroups")
    joined = await s.ask("JoinGroup", 3, **joining("forgotten", protocol_type="connect"))
    await s.ask("OffsetDelete", **group, topics=here)
    await s.ask("LeaveGroup", 5, **group, members=[{"member_id": joined.member_id}])
    await s.ask("DeleteGroups", 2, groups_names=["forgotten", "absent"])


GROUPS = (
    coordinators,
    members,
    refusals,
    crowds,
    commits,
    registers,
    seconds,
    replaced_members,
    forgotten,
    new_groups,
)
