"""A script of transactional requests for Apache Kafka and Odradek alike, and its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.transaction_requests import producer
from tests.broker.wire import Client, batch
from tests.support.eventually import eventually_async

ID = "payments"
LONG = "x" * 32_000
NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Script:
    """One run against one broker; `printed` has its responses."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.printed: list[tuple[object, ...]] = []
        self._ids: dict[int, int] = {-1: -1}

    def number(self, producer_id: int) -> int:
        """Producer ids in the order of their appearance: brokers begin with different ones."""
        return self._ids.setdefault(producer_id, len(self._ids))

    async def ask(self, request: Any, version: int, codes: Callable[[Any], list[int]]) -> Any:
        """Repeat the request until the response is not a temporary one."""
        answer = await self._client.ask(request, version)
        while any(ErrorCode(code) in NOT_YET for code in codes(answer)):
            answer = await self._client.ask(request, version)
        name = type(request).__name__.removesuffix("Request")
        self.printed.append((name, version, *(ErrorCode(code).name for code in codes(answer))))
        return answer

    async def init(
        self,
        transactional_id: str | None,
        version: int = 5,
        *,
        timeout_ms: int = 60_000,
        who: tuple[int, int] = (-1, -1),
    ) -> tuple[int, int]:
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=who[0] if version >= 3 else -1,
            producer_epoch=who[1] if version >= 3 else -1,
        )
        answer = await self.ask(request, version, lambda each: [each.error_code])
        self.printed.append((self.number(answer.producer_id), answer.producer_epoch))
        return answer.producer_id, answer.producer_epoch

    async def add(
        self, who: tuple[int, int], *topics: tuple[str, int], version: int = 3, transactional_id: str = ID
    ) -> None:
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[index])
                for name, index in topics
            ],
        )
        await self.ask(request, version, _added)

    async def verify(self, who: tuple[int, int], *topics: tuple[str, int], only: bool, version: int) -> None:
        """A request as brokers send it to each other."""
        entry = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=ID,
            producer_id=who[0],
            producer_epoch=who[1],
            verify_only=only,
            topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[index])
                for name, index in topics
            ],
        )
        await self.ask(m.AddPartitionsToTxnRequest(transactions=[entry]), version, codes_for_brokers)

    async def add_offsets(self, who: tuple[int, int], version: int = 4, *, transactional_id: str = ID) -> None:
        request = m.AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=who[0], producer_epoch=who[1], group_id="g"
        )
        await self.ask(request, version, lambda each: [each.error_code])

    async def end(
        self, who: tuple[int, int], version: int = 4, *, commit: bool = True, transactional_id: str = ID
    ) -> None:
        request = m.EndTxnRequest(
            transactional_id=transactional_id, producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        await self.ask(request, version, lambda each: [each.error_code])

    async def commit_offset(
        self, who: tuple[int, int], version: int = 4, *, metadata: str = "", group: str = "g", partition: int = 0
    ) -> None:
        offset = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=7, committed_metadata=metadata
        )
        topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[offset])
        request = m.TxnOffsetCommitRequest(
            transactional_id=ID, group_id=group, producer_id=who[0], producer_epoch=who[1], topics=[topic]
        )
        await self.ask(request, version, lambda each: [p.error_code for t in each.topics for p in t.partitions])

    async def await_markers(self, transactional_id: str) -> None:
        """EndTxn is answered before the partitions have the markers; a batch in between would still be of the old
        transaction.
        """
        request = m.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        await eventually_async(
            lambda: self._client.ask(request, 0),
            lambda answer: not answer.transaction_states[0].transaction_state.startswith("Prepare"),
        )

    async def describe(self, *ids: str) -> None:
        answer = await self._client.ask(m.DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
        for each in answer.transaction_states:
            self.printed.append(
                (
                    ErrorCode(each.error_code).name,
                    each.transaction_state,
                    each.transaction_timeout_ms,
                    self.number(each.producer_id),
                    each.producer_epoch,
                    sorted((topic.topic, tuple(topic.partitions)) for topic in each.topics),
                )
            )

    async def listed(self, **filters: Any) -> None:
        answer = await self._client.ask(m.ListTransactionsRequest(**filters), 1)
        self.printed.append((ErrorCode(answer.error_code).name, tuple(answer.unknown_state_filters)))
        self.printed.extend(
            sorted(
                (each.transactional_id[:20], self.number(each.producer_id), each.transaction_state)
                for each in answer.transaction_states
            )
        )


def _added(answer: Any) -> list[int]:
    return [
        part.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for part in sorted(topic.results_by_partition, key=lambda each: each.partition_index)
    ]


def codes_for_brokers(answer: Any) -> list[int]:
    """AddPartitionsToTxn with the response that brokers get."""
    if answer.error_code:
        return [answer.error_code]
    return [
        part.partition_error_code
        for entry in answer.results_by_transaction
        for topic in sorted(entry.topic_results, key=lambda each: each.name)
        for part in sorted(topic.results_by_partition, key=lambda each: each.partition_index)
    ]


async def ids(script: Script) -> None:
    """InitProducerId: accepted and refused transactional ids, timeouts, producer ids and epochs."""
    for version in range(6):
        await script.init("", version)
        await script.init("of-version", version)
        for timeout_ms in (0, -1, 900_001, 900_000):
            await script.init("other", version, timeout_ms=timeout_ms)
    await script.init(LONG)
    for version in (3, 4, 5):
        first = await script.init(f"mine-{version}", version)
        second = await script.init(f"mine-{version}", version, who=first)
        await script.init(f"mine-{version}", version, who=first)
        await script.init(f"mine-{version}", version, who=second)
        await script.init(f"mine-{version}", version, who=first)
        await script.init(f"mine-{version}", version, who=(first[0] + 100_000, 0))
        await script.init(f"mine-{version}", version, who=(first[0], -1))
        await script.init(f"mine-{version}", version, who=(-1, 3))
        await script.init(None, version, who=(first[0], -1))
    for version in range(6):
        await script.init(None, version)


async def a_transaction(script: Script) -> None:
    """Every request that describes a transactional id."""
    await script.init(ID)
    who = await script.init(ID)
    over, other = (who[0], who[1] - 1), (who[0] + 100_000, who[1])
    for version in range(5):
        await script.end(who, version)
        await script.end(over, version, commit=False)
        await script.end(other, version)
        await script.end(who, version, transactional_id="unheard-of")
        await script.end(who, version, transactional_id="")
    for version in range(4):
        await script.add(who, ("t", 0), ("absent", 0), ("t", 9), version=version)
        await script.add(over, ("t", 0), version=version)
        await script.add((who[0], who[1] + 1), ("t", 0), version=version)
        await script.add(other, ("t", 0), version=version)
        await script.add(who, ("t", 0), version=version, transactional_id="")
        await script.add(who, ("t", 0), version=version, transactional_id="unheard-of")
    for version in range(5):
        await script.add_offsets(over, version)
        await script.add_offsets(other, version)
        await script.add_offsets(who, version, transactional_id="unheard-of")
        await script.add_offsets(who, version, transactional_id="")
    await script.verify(who, ("t", 0), only=True, version=4)
    await script.verify(who, ("t", 0), only=True, version=5)
    await script.describe(ID, "unheard-of", "")
    await script.add(who, ("t", 0))
    await script.add(who, ("t", 0))
    await script.describe(ID)
    for version in (4, 5):
        await script.verify(who, ("t", 0), ("t", 1), only=True, version=version)
        await script.verify(over, ("t", 0), only=True, version=version)
        await script.verify(other, ("t", 0), only=True, version=version)
    await script.verify(who, ("t", 1), ("absent", 0), only=False, version=5)
    await script.add_offsets(who)
    for version in range(5):
        await script.commit_offset(who, version)
        await script.commit_offset(over, version)
        await script.commit_offset(who, version, metadata="m" * 5000)
        await script.commit_offset(who, version, group="")
        await script.commit_offset(who, version, partition=9)
    await script.listed()
    await script.listed(state_filters=["Ongoing", "Sleeping"])
    await script.listed(producer_id_filters=[who[0]])
    await script.listed(duration_filter=3_600_000)
    await script.end(who, commit=True)
    await script.end(who, commit=True)
    await script.end(who, commit=False)
    await script.describe(ID)
    await script.add(who, ("t", 1))
    successor = await script.init(ID)
    await script.add(who, ("t", 0))
    await script.end(who)
    await script.end(who, 1)
    await script.end(successor)
    await script.describe(ID)
    await script.listed(state_filters=["CompleteAbort", "Empty"])


async def writes(script: Script) -> None:
    """Batches that the leader of their partition has to verify (KIP-890)."""
    who = await script.init("writer")

    async def send(sequence: int, version: int, *, epoch: int = who[1], producer_id: int = who[0]) -> None:
        value = batch(b"value", **{**producer(producer_id, epoch, sequence), "transactional": True})
        data = m.ProduceRequest.PartitionProduceData(index=0, records=value)
        request = m.ProduceRequest(
            transactional_id="writer",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[m.ProduceRequest.TopicProduceData(name="t", partition_data=[data])],
        )
        await script.ask(request, version, lambda each: [each.responses[0].partition_responses[0].error_code])

    for version in (3, 8, 10, 11):
        await send(0, version)
    await script.add(who, ("t", 0), transactional_id="writer")
    await send(0, 11)
    await send(0, 11)
    await send(3, 11)
    await send(1, 3)
    await script.end(who, transactional_id="writer")
    await script.await_markers("writer")
    for version in (10, 11):
        await send(2, version)
        await send(0, version, producer_id=who[0] + 100_000)
    await script.init("writer")
    await send(2, 11)
    await script.end(who, transactional_id="writer")
