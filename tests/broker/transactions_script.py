"""Requests of producers of transactions version 2 (KIP-890), and a broker's responses and state after each.

Used by the test that sends one script to Apache Kafka 4.3.0 and to Odradek.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.transaction_requests import codes, markers, producer
from tests.broker.transactions_play import Script, codes_for_brokers
from tests.broker.wire import batch, fetch_request

ID = "orders"
AT_ONCE = 200
"""Requests under way at once, where many are needed."""
WITH_PARTITIONS_ADDED = 12
"""The version of Produce from which on the leader adds partitions."""

Owner = tuple[int, int]
"""Producer id and epoch."""


class NewScript(Script):
    """A run with producers of version 2; `state` describes the result of each step."""

    def note(self, *what: object) -> None:
        self.printed.append(what)

    async def send(
        self,
        who: Owner,
        sequence: int,
        *,
        transactional_id: str | None = ID,
        topic: tuple[str, int] = ("t", 0),
        transactional: bool = True,
        version: int = WITH_PARTITIONS_ADDED,
        count: int = 1,
        acks: int = -1,
    ) -> None:
        """One batch."""
        options = {**producer(*who, sequence), "transactional": transactional}
        data = m.ProduceRequest.PartitionProduceData(index=topic[1], records=batch(*[b"value"] * count, **options))
        request = m.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[m.ProduceRequest.TopicProduceData(name=topic[0], partition_data=[data])],
        )
        answer = await self.ask(request, version, lambda each: [each.responses[0].partition_responses[0].error_code])
        self.note("at", answer.responses[0].partition_responses[0].base_offset)

    async def send_together(self, *batches: tuple[Owner, int, tuple[str, int]], transactional_id: str = ID) -> None:
        """Batches of these owners, with these sequences, to these partitions, in one request."""
        request = m.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000)
        for who, sequence, (name, index) in batches:
            records = batch(b"value", **producer(*who, sequence))
            part = m.ProduceRequest.PartitionProduceData(index=index, records=records)
            request.topic_data.append(m.ProduceRequest.TopicProduceData(name=name, partition_data=[part]))

        def codes(answer: Any) -> list[int]:
            return [topic.partition_responses[0].error_code for topic in by_name(answer)]

        def by_name(answer: Any) -> list[Any]:
            return sorted(answer.responses, key=lambda topic: str(topic.name))

        answer = await self.ask(request, WITH_PARTITIONS_ADDED, codes)
        self.note("at", [topic.partition_responses[0].base_offset for topic in by_name(answer)])

    async def finish(self, who: Owner, *, commit: bool = True, transactional_id: str = ID, version: int = 5) -> Owner:
        """EndTxn; takes the producer id and epoch of the response."""
        request = m.EndTxnRequest(
            transactional_id=transactional_id, producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        answer = await self.ask(request, version, lambda each: [each.error_code])
        self.note("next", self.number(answer.producer_id), answer.producer_epoch)
        if transactional_id not in {"", "unheard-of"}:
            await self.await_markers(transactional_id)
        return (answer.producer_id, answer.producer_epoch) if answer.producer_id >= 0 else who

    async def describe(self, *ids: str) -> None:
        answer = await self._client.ask(m.DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
        for each in answer.transaction_states:
            self.note(
                ErrorCode(each.error_code).name,
                each.transaction_state,
                each.transaction_timeout_ms,
                self.number(each.producer_id),
                each.producer_epoch,
                each.transaction_start_time_ms > 0,
                sorted((topic.topic, sorted(topic.partitions)) for topic in each.topics),
            )

    async def add(self, who: Owner, *topics: tuple[str, int], version: int = 3, transactional_id: str = ID) -> None:
        await super().add(who, *topics, version=version, transactional_id=transactional_id)

    async def init_once(self, transactional_id: str = ID, *, who: Owner = (-1, -1)) -> None:
        """InitProducerId whose first response counts; then the markers are awaited."""
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=who[0],
            producer_epoch=who[1],
        )
        answer = await self._client.ask(request, 5)
        self.note(
            "init once", ErrorCode(answer.error_code).name, self.number(answer.producer_id), answer.producer_epoch
        )
        await self.await_markers(transactional_id)

    async def state(self, *transactional_ids: str) -> None:
        """The state of the coordinator, the leaders and consumers."""
        await self.describe(*(transactional_ids or (ID,)))
        await self.producers()
        for index in (0, 1):
            for level in (0, 1):
                request = fetch_request("t", 0, partition=index, isolation_level=level)
                part = (await self._client.ask(request, 12)).responses[0].partitions[0]
                aborted = [
                    (self.number(each.producer_id), each.first_offset) for each in part.aborted_transactions or ()
                ]
                error = ErrorCode(part.error_code).name
                self.note("read", index, level, error, part.high_watermark, part.last_stable_offset, aborted)

    async def producers(self, topic: str = "t", indexes: tuple[int, ...] = (0, 1)) -> None:
        wanted = m.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(indexes))
        answer = await self._client.ask(m.DescribeProducersRequest(topics=[wanted]), 0)
        for part in sorted(answer.topics[0].partitions, key=lambda each: each.partition_index):
            active = sorted(
                (
                    self.number(each.producer_id),
                    each.producer_epoch,
                    each.last_sequence,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                )
                for each in part.active_producers
            )
            self.note("producers", topic, part.partition_index, ErrorCode(part.error_code).name, active)

    async def commit_in(
        self,
        who: Owner,
        *,
        version: int = 5,
        transactional_id: str = ID,
        partition: int = 0,
        offset: int = 7,
        **fields: Any,
    ) -> None:
        """TxnOffsetCommit."""
        metadata = fields.pop("metadata", "")
        entry = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[entry])
        request = m.TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            producer_id=who[0],
            producer_epoch=who[1],
            topics=[topic],
            **{"group_id": "g", **fields},
        )
        await self.ask(request, version, lambda each: [p.error_code for t in each.topics for p in t.partitions])

    async def offsets(self, group: str = "g") -> None:
        """The group's offsets, for clients that wait for stable offsets and those that do not."""
        for stable in (False, True):
            topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
            wanted = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[topic])
            request = m.OffsetFetchRequest(groups=[wanted], require_stable=stable)
            (answer,) = (await self._client.ask(request, 9)).groups
            found = [
                (each.committed_offset, each.metadata, ErrorCode(each.error_code).name)
                for each in answer.topics[0].partitions
            ]
            self.note("offsets", group, stable, ErrorCode(answer.error_code).name, found)

    async def beat(self, group: str, member: str, epoch: int, *, joins: bool = False) -> int:
        """A heartbeat of the consumer protocol; returns the member's epoch."""
        fields: dict[str, Any] = {}
        if joins:
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        request = m.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)
        answer = await self.ask(request, 1, lambda each: [each.error_code])
        notified: int = answer.member_epoch
        return notified

    async def verify(
        self, who: Owner, *topics: tuple[str, int], only: bool, version: int, transactional_id: str = ID
    ) -> None:
        """AddPartitionsToTxn as brokers send it to each other."""
        wanted = [
            m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in topics
        ]
        entry = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=who[0],
            producer_epoch=who[1],
            verify_only=only,
            topics=wanted,
        )
        await self.ask(m.AddPartitionsToTxnRequest(transactions=[entry]), version, codes_for_brokers)

    async def age(self, transactional_id: str, who: Owner, epoch: int) -> Owner:
        """Initialize the id until its epoch is this one."""
        request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        while who[1] < epoch:
            turn = min(AT_ONCE, epoch - who[1])
            for _ in range(turn):
                await self._client.send(request, 5)
            for _ in range(turn):
                answer = await self._client.receive()
                if not answer.error_code:
                    who = answer.producer_id, answer.producer_epoch
        return who

    async def mark(self, who: Owner, *partitions: tuple[str, int], version: int = 2, **fields: Any) -> None:
        """WriteTxnMarkers, as any client may send it where there is no authorizer."""
        request = markers(*who, *(partitions or (("t", 0),)), **fields)
        self.note("marker", [code.name for code in codes(await self._client.ask(request, version))])

    async def seen(self, version: int, **filters: Any) -> None:
        """ListTransactions."""
        answer = await self._client.ask(m.ListTransactionsRequest(**filters), version)
        self.note("list", version, ErrorCode(answer.error_code).name, tuple(answer.unknown_state_filters))
        for each in sorted(answer.transaction_states, key=lambda each: each.transactional_id):
            self.note(each.transactional_id[:20], self.number(each.producer_id), each.transaction_state)


def before(who: Owner) -> Owner:
    """The producer with the previous epoch."""
    return who[0], who[1] - 1


def after(who: Owner) -> Owner:
    """The producer with the next epoch."""
    return who[0], who[1] + 1


def other(who: Owner) -> Owner:
    """Another producer."""
    return who[0] + 100_000, who[1]
