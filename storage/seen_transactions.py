"""The transactions that the cleaner meets as it walks along a log (Kafka: CleanedTransactionMetadata).

The data of an aborted transaction can be removed at once. A marker can be removed only when nothing is left of the data
of its transaction; otherwise a reader would take aborted data for committed, or wait for ever for an end. Nothing is
left where a walk over the whole log, from its start, meets the marker and has met no data before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol.batch import Header
from odradek.storage.index import AbortedTransaction
from odradek.storage.markers import EndTransactionMarker


class SeenTransactions:
    """The transactions of one walk. Batches come in the order of their offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are all aborted transactions that reach into the walk, in any order."""
        self._later = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}  # by producer id; begun and not ended yet
        self._with_data: set[int] = set()  # producer ids of transactions with data in the walk

    def _advance(self, offset: int) -> None:
        while self._later and self._later[-1].first_offset <= offset:
            begun = self._later.pop()
            self._aborting.setdefault(begun.producer_id, begun)

    def data(self, header: Header) -> bool:
        """Add a batch of data; returns whether its transaction was aborted, so that the batch can be removed."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborting

    def marker(self, header: Header, marker: EndTransactionMarker | None) -> tuple[bool, AbortedTransaction | None]:
        """Add a control batch; returns whether nothing is left of its transaction, and the entry that the transaction
        index needs as long as something is.

        `marker` is None where compaction has removed the record, or where it does not end a transaction.
        """
        self._advance(header.last_offset)
        if marker is None:
            return header.record_count == 0, None
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if marker.commits:
            return not had_data, None
        begun = self._aborting.pop(header.producer_id, None)
        if begun is None or not had_data:
            return True, None
        return False, begun
