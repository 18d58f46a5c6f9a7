"""Scenarios of transactions: producers, their records, and the end of a transaction."""

from __future__ import annotations

from typing import Any

from odradek.protocol.errors import ErrorCode
from tests.comparison.data import batch_of
from tests.comparison.scenarios_configs import BROKER, DELETE, SET, changed, described
from tests.comparison.scenarios_groups import NOT_YET, serves
from tests.comparison.scenarios_logs import make, read, write
from tests.comparison.side import Side

BUSY = {*NOT_YET, ErrorCode.CONCURRENT_TRANSACTIONS}


async def begun(s: Side, name: str, **fields: Any) -> dict[str, int]:
    """A producer with a transactional id."""
    made = await s.until(
        lambda answer: answer.error_code not in BUSY,
        "InitProducerId",
        3,
        transactional_id=name,
        transaction_timeout_ms=60_000,
        **fields,
    )
    return {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}


def first(fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields under the names that AddPartitionsToTxn had until version 3."""
    return {f"v3_and_below_{name}": value for name, value in fields.items()}


async def producers_made(s: Side) -> None:
    """InitProducerId."""
    await s.until(lambda answer: not answer.error_code, "FindCoordinator", 3, key="tx", key_type=1)
    await s.until(
        lambda answer: answer.error_code not in NOT_YET,
        "InitProducerId",
        0,
        transactional_id="tx",
        transaction_timeout_ms=60_000,
    )
    await s.ask("InitProducerId", transactional_id=None, transaction_timeout_ms=0)
    await s.ask("InitProducerId", transactional_id=None, transaction_timeout_ms=-1)
    for timeout in (0, -1, 900_000, 900_001):
        await s.ask("InitProducerId", transactional_id="limits", transaction_timeout_ms=timeout)
    for name in ("", "x" * 32_000):
        await s.ask("InitProducerId", transactional_id=name, transaction_timeout_ms=60_000)
    await s.ask("InitProducerId", transactional_id="tx-{v}", transaction_timeout_ms=60_000)
    for version in s.span("InitProducerId", "3+"):
        me = await begun(s, f"tx-{version}")
        producers: tuple[dict[str, Any], ...] = (
            me,
            me,
            {**me, "producer_epoch": me["producer_epoch"] + 1},
            {**me, "producer_epoch": me["producer_epoch"] + 5},
            {**me, "producer_id": me["producer_id"] + 100_000},
            {"producer_id": -1, "producer_epoch": 3},
            {"producer_id": me["producer_id"], "producer_epoch": -1},
            {"producer_id": -2, "producer_epoch": -2},
        )
        for ids in producers:
            await s.ask(
                "InitProducerId", version, transactional_id=f"tx-{version}", transaction_timeout_ms=60_000, **ids
            )
            await s.ask("InitProducerId", version, transactional_id=None, transaction_timeout_ms=60_000, **ids)


async def transactions(s: Side) -> None:
    """Whole transactions, in every version of each request."""
    await make(s, "deeds", 2)
    await serves(s, "readers")
    for version in s.span("EndTxn", None):
        for committed in (True, False):
            name = f"deed-{version}-{committed}"
            me: dict[str, Any] = {"transactional_id": name, **await begun(s, name)}
            topics = [{"name": "deeds", "partitions": [0, 1]}]
            if version < 4:
                await s.ask("AddPartitionsToTxn", version, **first({**me, "topics": topics}))
            else:
                await s.ask("AddPartitionsToTxn", 3, **first({**me, "topics": topics}))
            producer: dict[str, Any] = {name: me[name] for name in ("producer_id", "producer_epoch")}
            records = batch_of(b"a", base_sequence=0, transactional=True, **producer)
            await write(s, "deeds", records, min(3 + version, 11), transactional_id=name)
            await s.ask("DescribeTransactions", transactional_ids=[name])
            await s.ask("DescribeProducers", topics=[{"name": "deeds", "partition_indexes": [0]}])
            await read(s, "deeds", 11, isolation_level=1)
            await s.ask("AddOffsetsToTxn", version, **me, group_id="readers")
            await s.ask(
                "TxnOffsetCommit",
                version,
                **me,
                group_id="readers",
                topics=[{"name": "deeds", "partitions": [{"partition_index": 0, "committed_offset": version}]}],
            )
            await s.ask("OffsetFetch", 7, group_id="readers", topics=None, require_stable=True)
            await s.ask("EndTxn", version, **me, committed=committed)
            done = "CompleteCommit" if committed else "CompleteAbort"
            await ended(s, name, done)
            await s.ask("EndTxn", version, **me, committed=committed)
            await s.ask("EndTxn", version, **me, committed=not committed)
            await s.ask("OffsetFetch", 7, group_id="readers", topics=None)
            await s.ask("ListOffsets", 5, replica_id=-1, isolation_level=1, topics=_latest("deeds"))
    await read(s, "deeds", "4-12", isolation_level=1)
    await read(s, "deeds", 12, isolation_level=0)
    await s.ask("DescribeProducers", topics=[{"name": "deeds", "partition_indexes": [0, 1]}])


async def ended(s: Side, name: str, state: str) -> None:
    """Wait until all partitions of a transaction have its markers, and the transaction this state."""
    await s.until(
        lambda answer: answer.transaction_states[0].transaction_state == state,
        "DescribeTransactions",
        0,
        transactional_ids=[name],
    )


async def steps(s: Side) -> None:
    """The requests of a producer before, in and after a transaction, and those of the epoch before its own."""
    await make(s, "steps", 2)
    await serves(s, "steppers")
    await begun(s, "steps")
    me: dict[str, Any] = {"transactional_id": "steps", **await begun(s, "steps")}
    over = {**me, "producer_epoch": me["producer_epoch"] - 1}
    other = {**me, "producer_id": me["producer_id"] + 100_000}
    one = [{"name": "steps", "partitions": [0]}]
    both = [{"name": "steps", "partitions": [0, 1]}]
    await s.ask("EndTxn", **me, committed=True)
    for them in (over, other):
        await s.ask("EndTxn", **them, committed=False)
        await s.ask("AddPartitionsToTxn", "0-3", **first({**them, "topics": one}))
        await s.ask("AddOffsetsToTxn", **them, group_id="steppers")

    async def verify() -> None:
        for them in (me, over, other):
            await s.ask("AddPartitionsToTxn", "4+", transactions=[{**them, "topics": both, "verify_only": True}])
        await s.ask("DescribeTransactions", transactional_ids=["steps", "absent", ""])

    await verify()
    for _ in range(2):
        await s.ask("AddPartitionsToTxn", "0-3", **first({**me, "topics": one}))
    await verify()
    for topics in ([*both, {"name": "absent", "partitions": [0]}], both):
        await s.ask("AddPartitionsToTxn", "4+", transactions=[{**me, "topics": topics, "verify_only": False}])
    await verify()
    await s.ask("AddOffsetsToTxn", **me, group_id="steppers")
    # The other way round Kafka drops the pending offsets: it finds them by producer id, also for the past epoch.
    for them, metadata in ((over, ""), (me, "m" * 5000), (me, "")):
        offset = {"partition_index": 0, "committed_offset": 7, "committed_metadata": metadata}
        offsets = [{"name": "steps", "partitions": [offset]}]
        await s.ask("TxnOffsetCommit", **them, group_id="steppers", topics=offsets)
    await s.ask("ListTransactions", producer_id_filters=[me["producer_id"]])
    await s.ask("ListTransactions", state_filters=["Ongoing", "Sleeping"])
    await s.ask("ListTransactions", "1+", duration_filter=3_600_000)
    await s.ask("EndTxn", 3, **me, committed=True)
    await ended(s, "steps", "CompleteCommit")
    for committed in (True, False):
        await s.ask("EndTxn", **me, committed=committed)
    await s.ask("AddPartitionsToTxn", 3, **first({**me, "topics": one}))
    successor: dict[str, Any] = {"transactional_id": "steps", **await begun(s, "steps")}
    await s.ask("AddPartitionsToTxn", "0-3", **first({**me, "topics": one}))
    await s.ask("EndTxn", **me, committed=True)
    await s.ask("EndTxn", **successor, committed=True)
    await s.ask("DescribeTransactions", transactional_ids=["steps"])
    await s.ask("ListTransactions", state_filters=["CompleteAbort", "Empty"])


async def verified(s: Side) -> None:
    """Batches that the leader of their partition verifies (KIP-890), in every version of Produce."""
    await make(s, "verified")
    name = "verified"
    me: dict[str, Any] = await begun(s, name)

    async def send(sequence: int, versions: str | int, **ids: Any) -> None:
        records = batch_of(b"a", base_sequence=sequence, transactional=True, **{**me, **ids})
        await write(s, name, records, versions, transactional_id=name, label=f"sequence {sequence}")

    async def end() -> None:
        await s.ask("EndTxn", 3, transactional_id=name, **me, committed=True)

    await send(0, "3+")
    topics = [{"name": name, "partitions": [0]}]
    await s.ask("AddPartitionsToTxn", 3, **first({"transactional_id": name, **me, "topics": topics}))
    await send(0, "3+")
    await send(3, "3+")
    await send(1, 3)
    await end()
    await ended(s, name, "CompleteCommit")
    await send(2, "3+")
    await send(0, "3+", producer_id=me["producer_id"] + 100_000)
    await begun(s, name)
    await send(2, "3+")
    await end()
    await s.ask("DescribeProducers", topics=[{"name": name, "partition_indexes": [0]}])
    await read(s, name, 12, isolation_level=1)


def _latest(topic: str) -> list[dict[str, Any]]:
    return [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]


async def strangers(s: Side) -> None:
    """Requests that a producer may not send: others' ids and epochs, unknown partitions, no open transaction."""
    await make(s, "guarded", 2)
    await serves(s, "guards")
    me: dict[str, Any] = {"transactional_id": "guard", **await begun(s, "guard")}
    topics = [{"name": "guarded", "partitions": [0]}]
    offsets: list[dict[str, Any]] = [{"name": "guarded", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    fields: dict[str, Any]
    for fields in (
        {"transactional_id": "absent"},
        {"transactional_id": ""},
        {"producer_id": me["producer_id"] + 1},
        {"producer_id": -1},
        {"producer_epoch": me["producer_epoch"] + 1},
        {"producer_epoch": -1},
    ):
        them: dict[str, Any] = {**me, **fields}
        await s.ask("AddPartitionsToTxn", "0-3", **first({**them, "topics": topics}))
        await s.ask("AddOffsetsToTxn", **them, group_id="guards")
        await s.ask("EndTxn", **them, committed=True)
        await s.ask("TxnOffsetCommit", **them, group_id="guards", topics=offsets)
        for verify in (True, False):
            entry = {**them, "topics": topics, "verify_only": verify}
            await s.ask("AddPartitionsToTxn", "4+", transactions=[entry])
        ids: dict[str, Any] = {name: them[name] for name in ("producer_id", "producer_epoch")}
        records = batch_of(b"a", base_sequence=0, transactional=True, **ids)
        await write(s, "guarded", records, 10, transactional_id=them["transactional_id"])
    for wanted in (
        [],
        [{"name": "guarded", "partitions": []}],
        [{"name": "guarded", "partitions": [9]}],
        [{"name": "absent", "partitions": [0]}],
        [{"name": "guarded", "partitions": [0, 7]}, {"name": "absent", "partitions": [0]}],
        [{"name": "guarded", "partitions": [0, 0]}],
        [{"name": "guarded", "partitions": [1]}, {"name": "guarded", "partitions": [0]}],
        [{"name": "__consumer_offsets", "partitions": [0]}],
    ):
        await s.ask("AddPartitionsToTxn", "0-3", **first({**me, "topics": wanted}))
        await s.ask("AddPartitionsToTxn", "4+", transactions=[{**me, "topics": wanted, "verify_only": True}])
    await s.hanging("AddPartitionsToTxn", 4, transactions=[])
    entries = [{**me, "topics": topics, "verify_only": True}, {**me, "transactional_id": "other", "topics": topics}]
    await s.ask("AddPartitionsToTxn", "4+", transactions=entries)
    await s.ask("AddPartitionsToTxn", "4+", transactions=[entries[0], entries[0]])
    await s.ask("AddOffsetsToTxn", **me, group_id="")
    committed: list[dict[str, Any]]
    for committed in (
        [],
        [{"name": "absent", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
        offsets,
        [{"name": "guarded", "partitions": []}],
        [{"name": "guarded", "partitions": offsets[0]["partitions"] * 2}],
        [*offsets, {"name": "guarded", "partitions": [{"partition_index": 1, "committed_offset": 1}]}],
        [*offsets, {"name": "guarded", "partitions": [{"partition_index": 5, "committed_offset": 1}]}],
    ):
        await s.ask("TxnOffsetCommit", **me, group_id="guards", topics=committed)
        await s.ask("TxnOffsetCommit", **me, group_id="", topics=committed)
    for fields in ({"member_id": "m", "generation_id": 1}, {"group_instance_id": "i"}, {"generation_id": 5}):
        await s.ask("TxnOffsetCommit", "3+", **me, group_id="guards", topics=offsets, **fields)
    await s.ask("EndTxn", 3, **me, committed=False)
    later: dict[str, Any] = {"transactional_id": "guard", **await begun(s, "guard")}
    await s.ask("AddPartitionsToTxn", "0-3", **first({**me, "topics": topics}))
    await s.ask("EndTxn", **me, committed=True)
    await s.ask("AddOffsetsToTxn", **me, group_id="guards")
    await s.ask("TxnOffsetCommit", **me, group_id="guards", topics=offsets)
    await s.ask("EndTxn", **later, committed=True)
    await s.ask("ListGroups")


async def markers(s: Side) -> None:
    """WriteTxnMarkers, DescribeTransactions, ListTransactions."""
    await make(s, "marked", 2)
    await write(s, "marked", batch_of(b"a", base_sequence=0, producer_id=4_000_000, producer_epoch=2), 9)

    def marker(topics: Any, **fields: Any) -> dict[str, Any]:
        return {"producer_id": 4_000_000, "producer_epoch": 2, "coordinator_epoch": 0, "topics": topics, **fields}

    here = [{"name": "marked", "partition_indexes": [0]}]
    for wanted in (
        [],
        [marker([])],
        [marker([{"name": "marked", "partition_indexes": []}])],
        [marker([{"name": "absent", "partition_indexes": [0]}])],
        [marker([{"name": "marked", "partition_indexes": [0, 1, 9]}], transaction_result=True)],
        [marker(here), marker([{"name": "marked", "partition_indexes": [1]}], producer_id=4_000_001)],
        [marker([*here, {"name": "marked", "partition_indexes": [1]}])],
        [marker(here), marker([{"name": "marked", "partition_indexes": [1]}])],
        [marker(here, producer_epoch=1)],
        [marker(here, producer_epoch=3)],
        [marker(here, producer_epoch=3, coordinator_epoch=5)],
        [marker(here, producer_epoch=3, coordinator_epoch=4)],
        [marker(here, producer_id=-1)],
        [marker(here, producer_epoch=-1)],
    ):
        await s.ask("WriteTxnMarkers", markers=wanted)
    await make(s, "marked-twice")
    await s.hanging("WriteTxnMarkers", 1, markers=[marker([{"name": "marked-twice", "partition_indexes": [0, 0]}])])
    await s.quietly("DeleteTopics", 5, topic_names=["marked-twice"], timeout_ms=20_000)
    await read(s, "marked", 11)
    await s.ask("DescribeProducers", topics=[{"name": "marked", "partition_indexes": [0, 1]}])
    for ids in ([], ["absent"], [""], ["guard"], ["guard", "absent"], ["guard", "guard"]):
        await s.ask("DescribeTransactions", transactional_ids=ids)
    await s.ask("ListTransactions")
    for states in (
        ["Empty"],
        ["CompleteCommit", "CompleteAbort"],
        ["Nonsense"],
        ["Nonsense", "Ongoing"],
        ["empty"],
        [""],
    ):
        await s.ask("ListTransactions", state_filters=states)
    for producers in ([-1], [123_456], [0, 1]):
        await s.ask("ListTransactions", producer_id_filters=producers)
    for duration in (0, -1, -2, 2**40):
        await s.ask("ListTransactions", "1+", duration_filter=duration)


async def unverified(s: Side) -> None:
    """Batches and markers that are late, repeated, foreign or out of order, where leaders do not ask coordinators."""
    await make(s, "unverified", 2)
    setting = "transaction.partition.verification.enable"
    off, on = ([changed(BROKER, "", [(setting, *change)])] for change in ((SET, "false"), (DELETE, None)))
    await s.ask("IncrementalAlterConfigs", 1, resources=off)
    # Kafka applies the change some time after its response.
    first = batch_of(b"a", producer_id=9_000_000, producer_epoch=0, base_sequence=0, transactional=True)
    probe: dict[str, Any] = {"acks": -1, "timeout_ms": 5_000, "transactional_id": "unverified"}
    probe["topic_data"] = [{"name": "unverified", "partition_data": [{"index": 1, "records": first}]}]
    await s.wait(lambda answer: not answer.responses[0].partition_responses[0].error_code, "Produce", 11, **probe)
    await _marked_and_sent(s)
    await s.ask("IncrementalAlterConfigs", 1, resources=on)
    await s.wait(
        lambda answer: answer.results[0].configs[0].value == "true",
        "DescribeConfigs",
        4,
        resources=described(BROKER, "0", setting),
    )


async def _marked_and_sent(s: Side) -> None:
    async def mark(
        producer_id: int, epoch: int, *partitions: tuple[str, int], commit: bool = True, coordinator: int = 5
    ) -> None:
        topics = [{"name": name, "partition_indexes": [n]} for name, n in partitions or (("unverified", 0),)]
        ids = {"producer_id": producer_id, "producer_epoch": epoch, "coordinator_epoch": coordinator}
        await s.ask("WriteTxnMarkers", 1, markers=[{**ids, "transaction_result": commit, "topics": topics}])

    async def send(producer_id: int, epoch: int, sequence: int, *, transactional: bool = True) -> None:
        ids: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        records = batch_of(b"a", **ids, transactional=transactional)
        await write(s, "unverified", records, 11, transactional_id="unverified", label=f"{ids} {transactional}")

    mine, other = 7_000_000, 8_000_000
    await mark(mine, 3)
    await mark(mine, 2)
    await mark(mine, 3, coordinator=4)
    await mark(mine, 3)
    await mark(mine, 3, ("unverified", 9), ("absent", 0))
    await send(mine, 2, 0)
    await send(mine, 3, 4)
    await send(mine, 3, 0)
    await send(mine, 3, 0)
    await send(mine, 3, 2)
    await send(mine, 3, 1, transactional=False)
    await send(mine, 4, 1)
    await send(mine, 4, 0)
    await mark(mine, 3)
    await mark(mine, 5, commit=False, coordinator=6)
    await send(mine, 4, 1)
    await send(mine, 5, 1)
    await send(mine, 5, 0, transactional=False)
    await send(other, 0, 9)
    await mark(other, 0)
    await s.ask("DescribeProducers", topics=[{"name": "unverified", "partition_indexes": [0, 9]}])
    for level in (0, 1):
        await read(s, "unverified", 12, isolation_level=level)


TRANSACTIONS = (producers_made, transactions, steps, verified, strangers, markers, unverified)
