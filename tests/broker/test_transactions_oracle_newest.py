"""The same raw requests to Apache Kafka 4.3.0 and to Odradek: transactions of version 2 (KIP-890) get the same
responses.

Kafka 3.9 does not support version 2, so its oracle is a KRaft broker. Producers leave it to the leader to add
partitions, every transaction has an epoch of its own, and EndTxn returns the next one. After each step the script reads
the state of the coordinator and of the leaders of the partitions. A request that Kafka answers with
CONCURRENT_TRANSACTIONS while markers are under way is repeated until the response is another one.

Left out are the cases where Odradek does not follow 4.3.0. A TxnOffsetCommit with a generation to a group that does not
exist gets UNKNOWN_MEMBER_ID as from 3.9 (4.3: ILLEGAL_GENERATION). An epoch too low for a producer id whose epochs are
used up is fenced by InitProducerId, and one of -1 by WriteTxnMarkers (4.3: UNKNOWN_SERVER_ERROR). A batch that the
coordinator refused does not hinder those of the producer whose epoch is right (4.3: OUT_OF_ORDER_SEQUENCE_NUMBER). In a
request with batches of several producers the leader writes those that continue an open transaction (4.3 refuses them
all).
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.transaction.state.records import LAST_EPOCH, Status
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.transactions_play import a_transaction, ids, writes
from tests.broker.transactions_script import ID, NewScript, Owner, after, before, other
from tests.broker.wire import Client, running_broker
from tests.jvm.kraft import VERSION, running_kraft
from tests.jvm.tools import run_tool
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PROPERTIES = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    # The batches are of 2023: retention would delete them once a broker has run for half a minute.
    "log.retention.ms": "-1",
}
# Kafka 4.3 delays appends and assignments by default to make fewer of them; here it makes each at once. While its log
# is filled the broker may be too busy to send heartbeats to its controller.
KRAFT = {
    "group.coordinator.append.linger.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "broker.session.timeout.ms": "60000",
}
NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
LONG = "y" * 32_000


async def a_batch_begins(script: NewScript) -> Owner:
    """The first batch adds its partition; refused batches before and after it."""
    await script.init(ID)
    who = await script.init(ID)
    await script.state()
    for wrong in (before(who), after(who), other(who), (who[0], -1)):
        await script.send(wrong, 0)
        await script.describe(ID)
    for wrong_id in ("unheard-of", "", LONG, None):
        await script.send(who, 0, transactional_id=wrong_id)
    await script.send(who, 3)
    await script.state()
    who = await script.finish(who, commit=False)
    await script.state()
    await script.send(who, 0)
    await script.state()
    await script.send(who, 0)
    await script.send(who, 1)
    await script.send(who, 5)
    await script.send(who, 2, transactional=False)
    for wrong in (before(who), after(who), other(who)):
        await script.send(wrong, 2)
    await script.send(who, 2, transactional_id="unheard-of")
    await script.send(who, 3, transactional_id=LONG)
    await script.send(who, 0, topic=("absent", 0))
    await script.send(who, 0, topic=("t", 9))
    await script.state()
    await script.send(who, 0, topic=("t", 1), version=11)
    await script.send(who, 0, topic=("t", 1), count=3)
    await script.send(who, 3, topic=("t", 1), version=11)
    await script.state()
    return who


async def coordinators_are_asked(script: NewScript, who: Owner) -> None:
    """AddPartitionsToTxn as leaders send it, while a transaction runs."""
    for version in (4, 5):
        await script.verify(who, ("t", 0), ("t", 1), ("absent", 0), only=True, version=version)
        for wrong in (before(who), after(who), other(who)):
            await script.verify(wrong, ("t", 0), only=True, version=version)
            await script.verify(wrong, ("t", 0), only=False, version=version)
        for wrong_id in ("", "unheard-of", LONG):
            await script.verify(who, ("t", 0), only=True, version=version, transactional_id=wrong_id)
            await script.verify(who, ("t", 0), only=False, version=version, transactional_id=wrong_id)
        await script.verify(who, ("t", 0), only=False, version=version)
        await script.verify(who, ("t", 0), ("t", 9), ("absent", 0), only=False, version=version)
        await script.describe(ID)
    for version in (1, 2):
        await script.seen(version)
        await script.seen(version, state_filters=["Ongoing", "Sleeping", "PrepareEpochFence", "Dead"])
        await script.seen(version, producer_id_filters=[who[0], -7])
        await script.seen(version, duration_filter=3_600_000)
        await script.seen(version, duration_filter=0, state_filters=["Ongoing"])
    for pattern in ("ord.*", "ord", "", "(", "(?i)ORDERS", "[a-z]{6}", "orders$|x"):
        await script.seen(2, transactional_id_pattern=pattern)
    await script.describe(ID, "unheard-of", "", LONG)
    await script.producers("t", (0, 9))
    await script.producers("absent", (0,))


async def several_at_once(script: NewScript) -> None:
    """Batches to several partitions, and of several producers, in one request."""
    who, stranger = await script.init(ID), await script.init("stranger")
    await script.send_together((who, 0, ("t", 0)), (stranger, 0, ("u", 1)))
    await script.send_together((who, 0, ("u", 0)), (stranger, 0, ("t", 1)))
    await script.describe(ID, "stranger")
    await script.send_together((who, 0, ("t", 0)), (who, 0, ("absent", 0)), (who, 0, ("u", 1)))
    await script.state()
    await script.send_together((who, 1, ("t", 0)), (who, 0, ("u", 0)), transactional_id="unheard-of")
    await script.send_together((who, 1, ("t", 0)), (who, 0, ("u", 0)))
    await script.send(who, 2, acks=1)
    await script.send(who, 0, topic=("t", 1), acks=1)
    await script.state(ID, "stranger")
    await script.producers("u")
    for each, transactional_id in ((who, ID), (stranger, "stranger")):
        await script.finish(each, transactional_id=transactional_id, commit=False)
    await script.state(ID, "stranger")
    await script.producers("u")


async def it_ends(script: NewScript, who: Owner) -> None:
    """EndTxn once, again, late, and where there is nothing to end."""
    for wrong in (before(who), after(who), other(who), (who[0], -1)):
        await script.finish(wrong)
        await script.finish(wrong, commit=False)
    for wrong_id in ("", "unheard-of"):
        await script.finish(who, transactional_id=wrong_id)
    follower = await script.finish(who)
    await script.state()
    await script.finish(who)
    await script.finish(who, commit=False)
    await script.finish(follower)
    await script.finish(before(who))
    await script.finish(after(follower), commit=False)
    await script.state()
    for sequence in (2, 0):
        await script.send(who, sequence)
    await script.state()
    aborted = await script.finish(follower, commit=False)
    await script.state()
    await script.finish(follower, commit=False)
    await script.finish(follower)
    await script.send(aborted, 0)
    await script.send(aborted, 0, topic=("t", 1))
    last = await script.finish(aborted, commit=False)
    await script.state()
    await script.finish(aborted, commit=False)
    await script.finish(aborted)
    for sequence in (1, 0):
        await script.send(aborted, sequence)
    await script.send(last, 1)
    await script.finish(last, commit=False)
    await script.state()


async def somebody_else_takes_over(script: NewScript) -> None:
    """InitProducerId in the middle of a transaction, and the producers that may continue afterwards."""
    who = await script.init(ID)
    await script.send(who, 0)
    await script.init_once()
    await script.state()
    for commit in (True, False):
        await script.finish(who, commit=commit)
        await script.finish(who, commit=commit, version=4)
        await script.finish(before(who), commit=commit)
    await script.send(who, 1)
    await script.add(who, ("t", 0))
    taken = await script.init(ID)
    await script.state()
    for version in (4, 5):
        await script.finish(who, version=version)
        await script.finish(who, version=version, commit=False)
    await script.init(ID, who=who)
    await script.init(ID, who=other(taken))
    await script.send(taken, 0)
    done = await script.finish(taken)
    await script.init(ID, who=taken)
    await script.init(ID, who=done)
    await script.describe(ID)


async def the_same_goes_on(script: NewScript) -> None:
    """InitProducerId with the id and epoch that the producer has, in the middle of its transaction (KIP-360)."""
    for version in (4, 5):
        who = await script.init(ID)
        if version == 5:
            await script.send(who, 0)
        else:
            await script.add(who, ("t", 0))
        await script.init_once(who=after(who))
        await script.describe(ID)
        who = await script.init(ID)
        if version == 5:
            await script.send(who, 0)
        else:
            await script.add(who, ("t", 0))
        await script.init_once(who=who)
        await script.state()
        await script.init_once(who=who)
        await script.state()
        await script.init_once(who=who)
        await script.describe(ID)


async def versions_mixed(script: NewScript) -> None:
    """A client that is upgraded in the middle of a transaction, or downgraded."""
    who = await script.init(ID)
    await script.add(who, ("t", 0))
    await script.send(who, 0)
    await script.describe(ID)
    who = await script.finish(who)
    await script.state()
    await script.send(who, 0)
    await script.finish(who, version=4)
    await script.state()
    await script.add(who, ("t", 1))
    await script.send(who, 0, topic=("t", 1), version=11)
    await script.finish(who, version=4, commit=False)
    await script.state()
    await script.finish(who)
    await script.finish(who, commit=False)
    await script.finish(after(who), commit=False)
    await script.describe(ID)


async def offsets(script: NewScript) -> None:
    """TxnOffsetCommit to groups of every kind."""
    who = await script.init(ID)
    for wrong in (before(who), after(who), other(who)):
        await script.commit_in(wrong)
    for wrong_id in ("", "unheard-of", LONG):
        await script.commit_in(who, transactional_id=wrong_id)
    for group in ("", LONG):
        await script.commit_in(who, group_id=group)
    await script.describe(ID)
    await script.commit_in(who, metadata="m" * 4096)
    await script.commit_in(who, metadata="m" * 4097, partition=1)
    await script.commit_in(who, partition=9)
    await script.commit_in(who, generation_id=3)
    members: tuple[dict[str, Any], ...] = ({"member_id": "x"}, {"group_instance_id": "i"}, {})
    for fields in members:
        await script.commit_in(who, generation_id=-1, group_id=f"new {len(fields)} {[*fields]}", **fields)
    await script.commit_in(who, generation_id=-1, member_id="x")
    await script.commit_in(who, generation_id=-1, group_instance_id="i")
    await script.commit_in(who, offset=-5, partition=1)
    await script.describe(ID)
    await script.producers("__consumer_offsets", (0,))
    await script.offsets()
    for version in range(5):
        await script.commit_in(who, version=version, offset=8)
    who = await script.finish(who)
    await script.offsets()
    await script.producers("__consumer_offsets", (0,))
    await script.commit_in(before(who))
    await script.commit_in(who, offset=99)
    await script.offsets()
    who = await script.finish(who, commit=False)
    await script.offsets()
    for version in range(5):
        await script.commit_in(who, version=version, offset=8)
    await consumer_group_offsets(script, who)


async def consumer_group_offsets(script: NewScript, who: Owner) -> None:
    """TxnOffsetCommit to a group of the consumer protocol (KIP-848): the member epoch has to be the right one."""
    group = "c"
    first = await script.beat(group, "a", 0, joins=True)
    for version in (3, 4, 5):
        for member, epoch in (
            ("a", first),
            ("a", first + 1),
            ("a", first - 1),
            ("a", -1),
            ("a", 0),
            ("x", first),
            ("x", -1),
            ("", first),
            ("", -1),
        ):
            fields: dict[str, Any] = {"group_id": group, "generation_id": epoch, "member_id": member}
            await script.commit_in(who, version=version, offset=20 + epoch - first, **fields)
    await script.commit_in(who, version=2, group_id=group)
    await script.commit_in(who, group_id=group, generation_id=first, member_id="a", group_instance_id="i")
    await script.commit_in(who, group_id=group, generation_id=first, member_id="a", metadata="m" * 4097)
    await script.beat(group, "b", 0, joins=True)
    notified = await script.beat(group, "a", first)
    script.note("sent", notified - first)
    await script.commit_in(who, group_id=group, generation_id=first, member_id="a", offset=30)
    await script.commit_in(who, group_id=group, generation_id=notified, member_id="a", offset=31)
    await script.offsets(group)
    await script.describe(ID)
    who = await script.finish(who)
    await script.offsets(group)
    await script.beat(group, "b", -1)
    await script.beat(group, "a", -1)
    await script.commit_in(who, group_id=group, generation_id=notified, member_id="a", offset=40)
    await script.commit_in(who, group_id=group, offset=41)
    await script.finish(who)
    await script.offsets(group)


async def marked_by_others(script: NewScript) -> None:
    """WriteTxnMarkers, which a client may send while there is no authorizer."""
    await script.init("marked")
    who = await script.init("marked")
    await script.send(who, 0, transactional_id="marked")
    for version in (1, 2):
        for transaction_version in (0, 1, 2):
            if version < 2 and transaction_version:
                continue
            fields: dict[str, Any] = {"version": version, "transaction_version": transaction_version}
            await script.mark(before(who), **fields)
            await script.mark(who, **fields, commit=False)
            await script.state("marked")
            await script.mark(who, **fields)
            await script.mark(who, ("t", 9), ("absent", 0), **fields)
            await script.send(who, 1, transactional_id="marked")
            await script.send(who, 0, transactional_id="marked")
            await script.mark(after(who), **fields, commit=False)
            await script.mark(after(who), **fields, coordinator_epoch=-1)
            await script.state("marked")
            await script.send(who, 2, transactional_id="marked")
            who = await script.init("marked")
            await script.await_markers("marked")
            await script.send(who, 0, transactional_id="marked")
    await script.finish(who, transactional_id="marked")
    await script.state("marked")


async def from_begin_to_end(script: NewScript) -> None:
    """One transaction, whose owner goes from part to part."""
    who = await a_batch_begins(script)
    await coordinators_are_asked(script, who)
    await it_ends(script, who)


async def epochs_run_out(script: NewScript) -> None:
    """The end of a transaction gives another producer id when the epochs of the old one are used up."""
    who = await script.init("worn")
    who = await script.age("worn", who, LAST_EPOCH - 2)
    for _ in range(3):
        await script.send(who, 0, transactional_id="worn")
        was, who = who, await script.finish(who, transactional_id="worn")
        await script.state("worn")
        for commit in (True, False):
            await script.finish(was, commit=commit, transactional_id="worn")
            await script.finish(before(was), commit=commit, transactional_id="worn")
        await script.finish(after(was), transactional_id="worn")
        await script.send(was, 1, transactional_id="worn")
    await script.send(who, 0, transactional_id="worn")
    await script.finish(who, transactional_id="worn")
    await script.state("worn")


PARTS: tuple[Callable[[NewScript], Awaitable[None]], ...] = (
    ids,
    a_transaction,
    writes,
    from_begin_to_end,
    several_at_once,
    versions_mixed,
    offsets,
    marked_by_others,
    somebody_else_takes_over,
    the_same_goes_on,
    epochs_run_out,
)


async def run(port: int) -> list[tuple[object, ...]]:
    """The script against one broker."""
    client = await Client.connect(port)
    # Kafka accepts connections before its own metadata lists it.
    await eventually_async(lambda: client.ask(m.MetadataRequest(topics=[]), 9), lambda answer: answer.brokers)
    for topic in ("t", "u"):
        await client.create_topic(topic, 2)
    script = NewScript(client)
    for kind, key in ((1, ID), (0, "g")):
        find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        await eventually_async(
            lambda find=find: client.ask(find, 4), lambda answer: answer.coordinators[0].error_code not in NOT_YET
        )
    for part in PARTS:
        script.note(part.__name__)
        await part(script)
    client.close()
    return script.printed


def state_log(folder: Path) -> list[tuple[object, ...]]:
    """The output of kafka-dump-log for the partition of `__transaction_state` that ID belongs to.

    Two differences are left out. Where the cluster supports version 2 Kafka writes every value in version 1, Odradek
    only those of producers that use it; and Kafka repeats the producer id as the previous one.
    """
    partition = partition_for(ID, int(PROPERTIES["transaction.state.log.num.partitions"]))
    (file,) = (folder / f"__transaction_state-{partition}").glob("*.log")
    arguments = ["--files", str(file), "--transaction-log-decoder"]
    printed = run_tool(VERSION, "kafka-dump-log", arguments).stdout
    numbers: dict[int, int] = {-1: -1}
    found: list[tuple[object, ...]] = []
    for key, value in re.findall(r"key: (.*) payload: (.*)$", printed, re.MULTILINE):
        data = json.loads(value)["data"]
        partitions = data["transactionPartitions"]
        found.append(
            (
                json.loads(key)["data"]["transactionalId"],
                Status(data["transactionStatus"]).name,
                *(numbers.setdefault(data.get(name, -1), len(numbers)) for name in ("producerId", "nextProducerId")),
                data["producerEpoch"],
                data["transactionTimeoutMs"],
                data["transactionStartTimestampMs"] > 0,
                partitions and sorted((each["topic"], sorted(each["partitionIds"])) for each in partitions),
            )
        )
    return found


async def test_the_responses_match_those_of_kafka(tmp_path: Path) -> None:
    async with running_kraft(tmp_path / "kafka", {**PROPERTIES, **KRAFT}) as port:
        theirs = await run(port)
    async with running_broker(tmp_path / "ours", PROPERTIES) as broker:
        ours = await run(broker.port)
    assert ours == theirs
    assert len(ours) > 900
    ours, theirs = state_log(tmp_path / "ours"), state_log(tmp_path / "kafka" / "logs")
    assert ours == theirs
    assert len({status for _, status, *_ in ours}) == 6
