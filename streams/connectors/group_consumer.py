"""Group consumer: a consumer in a group, whose rebalances call functions (Kafka: ConsumerRebalanceListener).

Rebalances are eager: a member gives up all partitions before it gets the new ones. The client calls back within its own
`poll`; an exception of a callback is kept and raised by `check`, which every poll is followed by.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from odradek.streams.connectors.errors import ConnectError

log = logging.getLogger(__name__)

_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_LASTING: Final = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._FATAL,  # such an error has no flag: KafkaError.fatal() is false
    }
)
"""Errors that do not pass by themselves."""


class GroupConsumer:
    """One membership. Only the thread that made it calls its methods."""

    def __init__(
        self,
        consumer: Consumer,
        topics: Collection[str],
        *,
        assigned: Callable[[list[Position]], None],
        revoked: Callable[[bool], None],
    ) -> None:
        """`assigned` has to assign the partitions to the consumer. `revoked` is called with whether they are lost:
        other members may own them already.
        """
        self.consumer = consumer
        self._assigned = assigned
        self._revoked = revoked
        self._closing = False
        self._failure: Exception | None = None
        consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._call(lambda: assigned(partitions)),
            on_revoke=lambda *_: self._call(lambda: revoked(False)),
            on_lost=lambda *_: self._call(lambda: revoked(True)),
        )

    def check(self, messages: Sequence[Message], *, topics_exist: bool) -> list[Message]:
        """The records among what a poll has returned. Raises the exception of a callback, and ConnectError for an
        error that does not pass; a missing topic is one of these if `topics_exist`.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.fatal() or error.code() in _LASTING or (topics_exist and error.code() in _MISSING):
                raise ConnectError(f"the consumer of the group failed: {error.str()} ({error.name()})")
            else:
                log.warning("error of the consumer of the group error=%s", error.str())
        return records

    def close(self) -> None:
        """Leave the group and close the consumer, without calling back."""
        self._closing = True
        with contextlib.suppress(KafkaException, RuntimeError):
            self.consumer.close()

    def _call(self, function: Callable[[], None]) -> None:
        if self._closing or self._failure is not None:
            return
        try:
            function()
        except Exception as error:
            self._failure = error
