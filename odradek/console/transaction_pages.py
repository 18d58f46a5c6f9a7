"""Transactions: all transactional ids, one of them, and those that hold back consumers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.admin import transactions
from odradek.admin.client import AdminClient
from odradek.admin.transactions import OpenTransaction, TransactionDescription, TransactionListing
from odradek.console.paging import Listing, ListPage, page_of
from odradek.console.sample import ClusterSample
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which a transaction is not over (Kafka: TransactionState)."""
SORTS: Final[Mapping[str, Callable[[TransactionListing], str | int]]] = {
    "id": lambda row: row.transactional_id,
    "state": lambda row: row.state,
    "producer": lambda row: row.producer_id,
    "coordinator": lambda row: row.coordinator,
}


@dataclass(frozen=True, slots=True)
class TransactionsPage:
    """A page of transactional ids, with the descriptions of those whose transaction is open."""

    listed: ListPage[TransactionListing]
    described: Mapping[str, TransactionDescription]
    now_ms: int


def transactions_page(client: AdminClient, listing: Listing, *, only_open: bool = False) -> TransactionsPage:
    """The transactional ids as they are now. Raises what the client raises."""
    found = transactions.list_transactions(client)
    rows = [each for each in found if not only_open or each.state in OPEN]
    page = page_of(rows, listing, lambda row: row.transactional_id, SORTS)
    ids = [each.transactional_id for each in page.rows if each.state in OPEN]
    described = transactions.describe_transactions(client, ids) if ids else {}
    known = {name: each for name, each in described.items() if not isinstance(each, KafkaError)}
    return TransactionsPage(page, known, int(time.time() * 1000))


def transaction_detail(client: AdminClient, transactional_id: str) -> TransactionDescription:
    """One transactional id. Raises KafkaError where it does not exist, and what the client raises."""
    found = transactions.describe_transactions(client, [transactional_id])[transactional_id]
    if isinstance(found, KafkaError):
        raise found
    return found


def hanging_transactions(
    client: AdminClient, sample: ClusterSample
) -> tuple[list[OpenTransaction], dict[TopicPartition, KafkaError]]:
    """The transactions that no coordinator will end, in all partitions with records; and the errors of partitions."""
    places = [place for place, end in sample.ends.items() if end > 0]
    longest_ms = transactions.LONGEST_TIMEOUT_MS + transactions.SAFETY_MS
    return transactions.find_hanging(client, places, now_ms=int(time.time() * 1000), longest_timeout_ms=longest_ms)


def abort_hanging(client: AdminClient, place: TopicPartition, start_offset: int) -> None:
    """Write an abort marker for the transaction that is open from an offset. Raises KafkaError."""
    described = transactions.describe_producers(client, [place])[place]
    if isinstance(described, KafkaError):
        raise described
    found = [each for each in described if each.start_offset == start_offset and start_offset != transactions.NONE]
    if not found:
        text = f"{place[0]}-{place[1]} has no transaction that is open from offset {start_offset}"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
    epoch = max(found[0].coordinator_epoch, 0)  # -1 before the first marker, which brokers reject
    transactions.abort_transaction(client, place, found[0].producer_id, found[0].producer_epoch, epoch)
