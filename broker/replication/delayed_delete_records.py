"""Delayed deletion of records: waits until every live replica has advanced its log start offset (Kafka:
DelayedDeleteRecords).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.replication.partition import Replica
from odradek.broker.runtime.purgatory import DelayedOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

INVALID_LOW_WATERMARK: Final = -1
Result = m.DeleteRecordsResponse.DeleteRecordsPartitionResult
Waiting = dict[Replica, tuple[int, Result]]
"""The leader of each partition without an outcome, with the offset that every live replica has to reach."""


class DelayedDeleteRecords(DelayedOperation[Replica]):
    """The partitions of one request whose low watermark is below the requested offset."""

    __slots__ = ("_call", "_response", "_runs", "_waiting")

    def __init__(
        self, call: Call, response: m.DeleteRecordsResponse, waiting: Waiting, runs: Callable[[int], bool]
    ) -> None:
        """`runs` is true for the ids of live brokers. The response is sent when every partition has an outcome; after
        the timeout it is REQUEST_TIMED_OUT.
        """
        super().__init__()
        self._call = call
        self._response = response
        self._waiting = waiting
        self._runs = runs
        call.operation = self

    def try_complete(self, replica: Replica) -> None:
        entry = self._waiting.get(replica)
        if entry is None or not self._is_settled(replica, *entry):
            return
        del self._waiting[replica]
        if self._waiting:
            self.unwatch(replica)
        else:
            self.force_complete()

    def _is_settled(self, replica: Replica, offset: int, result: Result) -> bool:
        try:
            replica.machine.check_leader()
        except KafkaError as error:
            result.error_code, result.low_watermark = error.code, INVALID_LOW_WATERMARK
            return True
        low_watermark = replica.low_watermark(self._runs)
        if low_watermark < offset:
            return False
        result.low_watermark = low_watermark
        return True

    def on_complete(self) -> None:
        for _, result in self._waiting.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._call.operation = None
        self._call.reply(self._response)
