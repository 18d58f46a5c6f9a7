"""Down-conversion: message sets of magic 0 and 1 in place of batches, for old clients (KIP-31, KIP-32; Kafka:
LazyDownConversionRecords).

A response with little data is converted on the event loop, a larger one in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.replication.conversions import down_convert
from odradek.broker.replication.fetch_reader import PartitionData, Result
from odradek.broker.replication.partition import Worker
from odradek.broker.replication.state.fetch_session import FetchPartition
from odradek.broker.runtime.usage import Usage, charged
from odradek.protocol.errors import KafkaError

log = logging.getLogger(__name__)

TIMESTAMPS_FROM: Final = 2
AT_ONCE_BYTES: Final = 1 << 10
"""The limit for a conversion on the event loop, in bytes of the log: a KiB decompresses to a MiB at most."""


class DownConversion:
    """The records of one response that have to be converted."""

    __slots__ = ("_refuse", "_results", "_version")

    def __init__(
        self,
        results: list[Result],
        version: int,
        refuse: Callable[[int, FetchPartition, PartitionData, KafkaError], None],
    ) -> None:
        """`refuse` turns the data of a partition into an error, in a version of Fetch."""
        self._results = [result for result in results if result[2]]
        self._version = version
        self._refuse = refuse

    @property
    def _magic(self) -> int:
        return 0 if self._version < TIMESTAMPS_FROM else 1

    @property
    def is_small(self) -> bool:
        """Whether the conversion takes little time."""
        return sum(size for _, _, size in self._results) <= AT_ONCE_BYTES

    def convert(self) -> list[bytes | KafkaError]:
        """Read and convert the records of each partition; in any thread."""
        return [down_convert(data.records, self._magic, wanted.fetch_offset) for wanted, data, _ in self._results]

    def put(self, outcomes: list[bytes | KafkaError]) -> None:
        """Put the converted records, or the errors, into the response."""
        for (wanted, data, _), outcome in zip(self._results, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                self._refuse(self._version, wanted, data, outcome)
            else:
                data.records = outcome

    def run(self, worker: Worker, usage: Usage | None, done: Callable[[], None], failed: Callable[[], None]) -> None:
        """Convert in a thread, whose time counts in `usage`; then call `done`, or `failed` after an unexpected
        exception.
        """
        outcomes: list[bytes | KafkaError] = []

        def ended(error: BaseException | None) -> None:
            if error is not None:
                log.error("cannot down-convert fetch response version=%d error=%r", self._version, error)
                failed()
            else:
                self.put(outcomes)
                done()

        worker.run(charged(lambda: outcomes.extend(self.convert()), usage), ended)
