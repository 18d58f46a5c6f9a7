"""Source topics that were deleted: found within two seconds by requests for the metadata of silent topics.

Java's consumer shows the group's leader a changed metadata snapshot. librdkafka reports nothing to an application that
assigns partitions itself, so each thread requests the metadata of those of its topics that have returned no record for
a second. A broker that has just started may not have the topics yet, so a topic counts as missing after several answers
in a row. The thread then requests a rebalance, in which the leader sends the error to every instance.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""Between two requests."""
AGAIN_S: Final = 0.2
"""Between two requests for a topic that is missing in the answer."""
ANSWER_S: Final = 0.05
"""Between two looks at a request."""
ANSWERS: Final = 3
"""How many answers in a row have to lack a topic."""
_TIMEOUT_S: Final = 10.0
_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


class SourceTopicCheck:
    """The check of one thread, which never waits for an answer."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._next = 0.0
        self._pending: dict[str, Future[Any]] = {}
        self._lacking: dict[str, int] = {}
        """How many answers in a row lacked a topic."""

    def due(self, now_s: float) -> bool:
        """Whether to call `poll`; cheap."""
        return now_s >= self._next

    def poll(self, now_s: float, silent: Iterable[str]) -> list[str]:
        """Evaluate the answers to the last request, or send one for `silent`. Returns missing topics."""
        if not self._pending:
            wanted = sorted({*silent, *self._lacking})
            if wanted:
                self._pending = self._admin.describe_topics(TopicCollection(wanted), request_timeout=_TIMEOUT_S)
            self._next = now_s + (ANSWER_S if wanted else PAUSE_S)
            return []
        if not all(future.done() for future in self._pending.values()):
            self._next = now_s + ANSWER_S
            return []
        missing = self._evaluate()
        self._next = now_s + (AGAIN_S if self._lacking else PAUSE_S)
        return missing

    def _evaluate(self) -> list[str]:
        lacking = {}
        for topic, future in self._pending.items():
            error = future.exception()
            if isinstance(error, KafkaException) and error.args[0].code() in _UNKNOWN:
                lacking[topic] = self._lacking.get(topic, 0) + 1
            elif error is not None and topic in self._lacking:
                lacking[topic] = self._lacking[topic]
        self._pending, self._lacking = {}, lacking
        missing = sorted(topic for topic, count in lacking.items() if count >= ANSWERS)
        if missing:
            log.warning("source topics do not exist any more topics=%s", ",".join(missing))
            self._lacking = {}
        return missing
