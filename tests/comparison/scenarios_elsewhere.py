"""Scenarios of requests that reach the wrong broker of a cluster: one that does not coordinate the group or the
transactional id, one that is not the controller; and of control requests with stale epochs.
"""

from __future__ import annotations

from typing import Any

from tests.comparison.scenarios_groups import NOT_YET, joining
from tests.comparison.scenarios_partitions import ABSENT, caught_up, elected, placed
from tests.comparison.scenarios_transactions import first
from tests.comparison.trio import BROKERS, CONTROLLER, ClusterSide

GROUP, TRANSACTION = 0, 1


async def strangers_of(s: ClusterSide, key: str, kind: int) -> list[str]:
    """The brokers that do not coordinate a group or a transactional id, as soon as the coordinator works."""
    found = await s.wait(
        lambda answer: not answer.error_code, "FindCoordinator", 3, at=str(CONTROLLER), key=key, key_type=kind
    )
    coordinator = str(found.node_id)
    if kind == GROUP:
        await s.wait(
            lambda answer: answer.groups[0].error_code not in NOT_YET, "DescribeGroups", 0, at=coordinator, groups=[key]
        )
    else:
        await s.wait(
            lambda answer: answer.transaction_states[0].error_code not in NOT_YET,
            *("DescribeTransactions", 0),
            at=coordinator,
            transactional_ids=[key],
        )
    return [str(each) for each in BROKERS if each != found.node_id]


async def groups(s: ClusterSide) -> None:
    """A broker's responses about a group that another broker coordinates. Which broker that is differs."""
    await placed(s, "grouped", [1, 2])
    for at in await strangers_of(s, "elsewhere", GROUP):
        group: dict[str, Any] = {"at": at, "label": "to another broker", "group_id": "elsewhere"}
        member = {**group, "generation_id": 1, "member_id": "m"}
        commit = [{"name": "grouped", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        await s.ask("JoinGroup", **{**joining("elsewhere"), **group})
        await s.ask("SyncGroup", **member)
        await s.ask("Heartbeat", **member)
        await s.ask("LeaveGroup", "0-2", **group, member_id="m")
        await s.ask("LeaveGroup", "3+", **group, members=[{"member_id": "m"}])
        await s.ask("OffsetCommit", "1+", **group, topics=commit)
        await s.ask("OffsetCommit", "1+", **group, topics=[{**commit[0], "name": ABSENT}])
        wanted = [{"name": "grouped", "partition_indexes": [0]}]
        await s.ask("OffsetFetch", "1-7", **group, topics=wanted)
        await s.ask("OffsetFetch", "2-7", **group, topics=None)
        both = [{"group_id": "elsewhere", "topics": wanted}, {"group_id": "elsewhere", "topics": None}]
        for of_group in both:
            await s.ask("OffsetFetch", "8+", at=at, label="to another broker", groups=[of_group])
        await s.ask("OffsetDelete", **group, topics=[{"name": "grouped", "partitions": [{"partition_index": 0}]}])
        named = {"at": at, "label": "to another broker"}
        await s.ask("DescribeGroups", **named, groups=["elsewhere"])
        await s.ask("DeleteGroups", **named, groups_names=["elsewhere"])
        await s.ask("TxnOffsetCommit", **group, transactional_id="tx", producer_id=1, producer_epoch=0, topics=commit)
        await s.ask("ListGroups", **named)
        await s.ask("ConsumerGroupHeartbeat", **group, member_id="m", member_epoch=0)
        await s.ask("ConsumerGroupDescribe", **named, group_ids=["elsewhere"])


async def transactions(s: ClusterSide) -> None:
    """A broker's responses about a transactional id that another broker coordinates."""
    await placed(s, "transacted", [1, 2])
    topics = [{"name": "transacted", "partitions": [0]}]
    for at in await strangers_of(s, "tx-elsewhere", TRANSACTION):
        named: dict[str, Any] = {"at": at, "label": "to another broker"}
        me: dict[str, Any] = {"transactional_id": "tx-elsewhere", "producer_id": 1, "producer_epoch": 0}
        await s.ask("InitProducerId", **named, transactional_id="tx-elsewhere", transaction_timeout_ms=60_000)
        await s.ask("AddPartitionsToTxn", "0-3", **named, **first({**me, "topics": topics}))
        for verify in (True, False):
            await s.ask(
                "AddPartitionsToTxn", "4+", **named, transactions=[{**me, "topics": topics, "verify_only": verify}]
            )
        absent = [{"name": ABSENT, "partitions": [0]}]
        await s.ask("AddPartitionsToTxn", "0-3", **named, **first({**me, "topics": absent}))
        await s.ask("AddOffsetsToTxn", **named, **me, group_id="elsewhere")
        for committed in (True, False):
            await s.ask("EndTxn", **named, **me, committed=committed)
        await s.ask("DescribeTransactions", **named, transactional_ids=["tx-elsewhere"])
        await s.ask("ListTransactions", **named)


async def controllers(s: ClusterSide) -> None:
    """Requests for the controller, sent to another broker; and requests for any broker."""
    await placed(s, "ruled", [1, 2])
    topic = {"name": "never", "num_partitions": 1, "replication_factor": 1}
    for at in ("2", "3"):
        for timeout in (10_000, 0):
            await s.ask("CreateTopics", at=at, topics=[topic], timeout_ms=timeout)
            await s.ask("DeleteTopics", "0-5", at=at, topic_names=["ruled", ABSENT], timeout_ms=timeout)
            await s.ask("DeleteTopics", 6, at=at, topics=[{"name": "ruled"}, {"name": ABSENT}], timeout_ms=timeout)
        await s.ask("CreateTopics", "1+", at=at, topics=[topic], timeout_ms=10_000, validate_only=True)
        more = [{"name": "ruled", "count": 2, "assignments": None}, {"name": ABSENT, "count": 2, "assignments": None}]
        await s.ask("CreatePartitions", at=at, topics=more, timeout_ms=10_000)
        for wanted in ([{"topic": "ruled", "partitions": [0]}], [], None):
            await s.ask("ElectLeaders", at=at, topic_partitions=wanted, timeout_ms=10_000)
        moved = [{"name": "ruled", "partitions": [{"partition_index": 0, "replicas": [2, 3]}]}]
        await s.ask("AlterPartitionReassignments", at=at, topics=moved, timeout_ms=10_000)
        await s.ask("AlterPartitionReassignments", at=at, topics=[], timeout_ms=10_000)
        await s.ask("ListPartitionReassignments", at=at, topics=None)
        await s.ask("AlterPartition", at=at, broker_id=2, broker_epoch=0)
        await s.ask("AllocateProducerIds", at=at, broker_id=2, broker_epoch=0)
        await s.ask("ControlledShutdown", at=at, broker_id=2)
        update = [{"feature": "metadata.version", "max_version_level": 7}]
        await s.ask("UpdateFeatures", at=at, timeout_ms=5_000, feature_updates=update)
        entry = {
            "entity": [{"entity_type": "user", "entity_name": "u"}],
            "ops": [{"key": "producer_byte_rate", "value": 1e6}],
        }
        await s.ask("AlterClientQuotas", at=at, entries=[entry], validate_only=True)
        await s.ask("AlterUserScramCredentials", at=at, deletions=[{"name": "nobody", "mechanism": 1}])
        for name in ("1", "2", "9"):
            config = {"name": "log.cleaner.threads", "value": "1"}
            resource = {"resource_type": 4, "resource_name": name, "configs": [{**config, "config_operation": 0}]}
            await s.ask("IncrementalAlterConfigs", at=at, resources=[resource], validate_only=True)
            await s.ask("AlterConfigs", at=at, resources=[{**resource, "configs": [config]}], validate_only=True)
            described = [{"resource_type": 4, "resource_name": name, "configuration_keys": ["broker.id"]}]
            await s.ask("DescribeConfigs", at=at, resources=described)
        await s.ask("DescribeCluster", at=at)
        await s.ask("Metadata", "1+", at=at, topics=[])
    ruled: dict[str, Any] = {"topics": [{"name": "ruled"}], "allow_auto_topic_creation": False}
    await s.ask("Metadata", 12, at="3", **ruled)


async def control_requests(s: ClusterSide) -> None:
    """LeaderAndIsr, StopReplica and UpdateMetadata with stale epochs, to every broker."""
    moved = await elected(s, "controlled")
    await caught_up(s, moved, 1)
    past = {"controller_id": CONTROLLER, "controller_epoch": 0}
    now = {"controller_id": CONTROLLER, "controller_epoch": 1}
    for at in ("1", "2", "3"):
        state = {
            "partition_index": 0,
            "controller_epoch": 1,
            "leader": 2,
            "leader_epoch": moved.epoch,
            "isr": [1, 2],
            "replicas": [2, 1],
            "partition_epoch": 0,
        }

        def ordered(state: dict[str, Any], topic_id: bytes) -> list[dict[str, Any]]:
            return [{"topic_name": "controlled", "topic_id": topic_id, "partition_states": [state]}]

        older = {**state, "leader_epoch": moved.epoch - 1}
        for each in (state, older):
            await s.ask("LeaderAndIsr", "2-4", at=at, **past, topic_states=ordered(each, bytes(16)))
            await s.ask("LeaderAndIsr", "2-4", at=at, **now, topic_states=ordered(each, bytes(16)))
            await s.ask("LeaderAndIsr", "5+", at=at, **past, topic_states=ordered(each, moved.topic_id))
            await s.ask("LeaderAndIsr", "5+", at=at, **now, topic_states=ordered(each, moved.topic_id))
            await s.ask("LeaderAndIsr", "2+", at=at, **now, broker_epoch=0, topic_states=ordered(each, bytes(16)))
            if at != "3":
                await s.ask("LeaderAndIsr", "5+", at=at, **now, topic_states=ordered(each, b"0123456789abcdef"))
        stop = {"partition_index": 0, "leader_epoch": moved.epoch - 1, "delete_partition": True}
        for delete in (True, False):
            stops = [{"topic_name": "controlled", "partition_states": [{**stop, "delete_partition": delete}]}]
            for fields in (past, now, {**now, "broker_epoch": 0}):
                await s.ask("StopReplica", "3+", at=at, **fields, topic_states=stops)
        await s.ask("UpdateMetadata", at=at, **past)
        await s.ask("UpdateMetadata", "5+", at=at, **now, broker_epoch=0)
    await caught_up(s, moved, 1)


ELSEWHERE = (groups, transactions, controllers, control_requests)
