"""AddPartitionsToTxn (key 24), versions 0 to 5: add partitions to transactions, or verify them.

Producers send versions up to 3, with one transaction. Brokers send version 4 and later, with many transactions: the
leader of a partition verifies that the partition is in the transaction of a batch (`verify_only`), or adds it for a
producer of transactions version 2 (KIP-890). Version 2 supports PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE.

If a partition does not exist, the coordinator refuses it and adds nothing: OPERATION_NOT_ATTEMPTED for the others.
Clients must not write to internal topics: TOPIC_AUTHORIZATION_FAILED, with any permissions. A producer has to be
authorized to write to its transactional id and to the topics, a broker for CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.topics import is_internal
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import EPOCH_PER_TRANSACTION
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

KNOWS_FENCED: Final = 2
LAST_OF_CLIENTS: Final = 3
Response = m.AddPartitionsToTxnResponse
Entry = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TopicResult = Response.AddPartitionsToTxnTopicResult
Codes = dict[TopicPartition, ErrorCode]


class AddPartitionsToTxn:
    """Handles AddPartitionsToTxn."""

    KEY = 24
    VERSIONS = (0, 5)

    def __init__(self, transactions: TransactionCoordinator, metadata_cache: MetadataCache, auth: AuthHelper) -> None:
        self._transactions = transactions
        self._metadata_cache = metadata_cache
        self._auth = auth

    def handle(self, call: Call, request: m.AddPartitionsToTxnRequest) -> m.AddPartitionsToTxnResponse | None:
        entries = request.transactions
        if call.version <= LAST_OF_CLIENTS:
            entries = [
                Entry(
                    transactional_id=request.v3_and_below_transactional_id,
                    producer_id=request.v3_and_below_producer_id,
                    producer_epoch=request.v3_and_below_producer_epoch,
                    topics=request.v3_and_below_topics,
                )
            ]
        elif not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            return Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        gathered = _Gathered(call, entries)
        for number, entry in enumerate(entries):
            self._verify_or_add(call, gathered, number, entry)
        return gathered.response()

    def _verify_or_add(self, call: Call, gathered: _Gathered, number: int, entry: Entry) -> None:
        partitions = [(topic.name, index) for topic in entry.topics for index in topic.partitions]
        owner = Owner(entry.producer_id, entry.producer_epoch)
        topics = {name for name, _ in items_of(partitions)}
        if gathered.is_of_a_client:
            resource, transactional_id = ResourceType.TRANSACTIONAL_ID, entry.transactional_id
            if not self._auth.authorize(call, AclOperation.WRITE, resource, transactional_id):
                gathered.put(number, dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
                return
            names = [name for name, _ in items_of(partitions) if not is_internal(name)]
            topics = self._auth.filter_by_authorized(call, AclOperation.WRITE, ResourceType.TOPIC, names)
        refused = {each: code for each in items_of(partitions) if (code := self._refusal(each, topics))}
        if refused:
            gathered.put(
                number, {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in items_of(partitions)}
            )
            return
        if entry.verify_only:
            error, codes = self._transactions.verify(entry.transactional_id, owner, partitions)
            gathered.put(number, codes if not error else dict.fromkeys(partitions, error))
            return
        # The leader sends the request for a producer of version 2; older producers send it themselves.
        version = 0 if gathered.is_of_a_client else EPOCH_PER_TRANSACTION
        self._transactions.add(
            entry.transactional_id,
            owner,
            partitions,
            version,
            lambda outcome: gathered.put(number, dict.fromkeys(partitions, outcome.error)),
        )

    def _refusal(self, partition: TopicPartition, authorized: set[str]) -> ErrorCode:
        """Why a partition cannot be in the transaction; NONE if it can."""
        if partition[0] not in authorized:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        known = self._metadata_cache.leader(*partition)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NONE


class _Gathered:
    """Collects the answers of one request until the last one is complete."""

    __slots__ = ("_answers", "_call", "_deferred", "_entries")

    def __init__(self, call: Call, entries: list[Entry]) -> None:
        self._call = call
        self._entries = entries
        self._answers: dict[int, Codes] = {}
        self._deferred = False

    @property
    def is_of_a_client(self) -> bool:
        """Whether a producer sent the request, not a broker."""
        return self._call.version <= LAST_OF_CLIENTS

    def put(self, number: int, codes: Codes) -> None:
        """Store the answer for one transaction."""
        self._answers[number] = codes
        if self._deferred and len(self._answers) == len(self._entries):
            self._call.reply(self._encode())

    def response(self) -> Response | None:
        """The response if it is complete; otherwise it is sent when it is complete."""
        if len(self._answers) == len(self._entries):
            return self._encode()
        self._deferred = True
        return None

    def _encode(self) -> Response:
        results = [self._results(entry, self._answers[number]) for number, entry in enumerate(self._entries)]
        if self.is_of_a_client:
            return Response(results_by_topic_v3_and_below=results[0])
        return Response(
            results_by_transaction=[
                Response.AddPartitionsToTxnResult(transactional_id=entry.transactional_id, topic_results=topics)
                for entry, topics in zip(self._entries, results, strict=True)
            ]
        )

    def _results(self, entry: Entry, codes: Codes) -> list[TopicResult]:
        """The codes of one transaction by topic; brokers get each topic and each partition once."""
        topics: list[tuple[str, list[int]]] = [(topic.name, topic.partitions) for topic in entry.topics]
        if not self.is_of_a_client:
            merged: dict[str, dict[int, None]] = {}
            for name, index in items_of(codes):
                merged.setdefault(name, {})[index] = None
            topics = [(name, list(indexes)) for name, indexes in merged.items()]
        return [
            TopicResult(
                name=name,
                results_by_partition=[
                    Response.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=self._known(codes[name, index])
                    )
                    for index in items_of(indexes)
                ],
            )
            for name, indexes in items_of(topics)
        ]

    def _known(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.PRODUCER_FENCED and self._call.version < KNOWS_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return code
