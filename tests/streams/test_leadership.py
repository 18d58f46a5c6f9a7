"""The end offsets of partitions while their leaders change, with an administrator whose answers a test sets."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from odradek.streams.errors import StreamsError
from odradek.streams.running.leadership import end_offsets

UNKNOWN = -1
"""An administrator's answer, without an error, for a partition that has no leader at this moment."""


class ScriptedAdmin:
    """Answers requests for offsets in order, the last answer for ever; counts requests for metadata."""

    def __init__(self, *answers: int | KafkaError) -> None:
        self._answers = [*answers]
        self.metadata_requests = 0

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        futures = {}
        for place in wanted:
            future = futures[place] = Future[Any]()
            if isinstance(answer, KafkaError):
                future.set_exception(KafkaException(answer))
            else:
                future.set_result(ListOffsetsResultInfo(answer, -1, -1))
        return futures

    def list_topics(self, **_: Any) -> None:
        self.metadata_requests += 1


def ends_from(admin: ScriptedAdmin, timeout_s: float) -> dict[tuple[str, int], int]:
    return end_offsets(cast(AdminClient, admin), {("log", 0)}, timeout_s)


def test_ends_are_requested_until_leaders_are_known() -> None:
    admin = ScriptedAdmin(UNKNOWN, KafkaError(KafkaError._TIMED_OUT), UNKNOWN, 100)
    assert ends_from(admin, 30.0) == {("log", 0): 100}
    assert admin.metadata_requests == 3, "without new metadata the request goes to the same leader again"


def test_ends_that_stay_unknown_are_an_error() -> None:
    with pytest.raises(StreamsError, match=r"the end offsets of log-0 within 0\.2 s"):
        ends_from(ScriptedAdmin(UNKNOWN), 0.2)
