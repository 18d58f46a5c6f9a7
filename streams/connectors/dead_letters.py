"""Dead letters of a sink, with the headers of Kafka Connect (KIP-298; Kafka: DeadLetterQueueReporter)."""

from __future__ import annotations

import enum
import traceback
from typing import Final

from odradek.streams.connectors.interface import SinkRecord
from odradek.streams.errors import DeadLetter

PREFIX: Final = "__connect.errors."


class ErrorStage(enum.Enum):
    """Where a record failed (Kafka: org.apache.kafka.connect.runtime.errors.Stage)."""

    KEY_CONVERTER = enum.auto()
    VALUE_CONVERTER = enum.auto()
    TASK_PUT = enum.auto()


def dead_letter(
    record: SinkRecord,
    error: Exception,
    stage: ErrorStage,
    topic: str,
    connector: str,
    *,
    executed: str,
    with_headers: bool = True,
) -> DeadLetter:
    """The record as it was read, for `topic`. `record` has bytes; `executed` is the name of the class that failed."""
    headers = list(record.headers or [])
    if with_headers:
        kind = type(error)
        about = {
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "connector.name": connector,
            "task.id": "0",  # a process is one task
            "stage": stage.name,
            "class.name": executed,
            "exception.class.name": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
            "exception.message": str(error),
            "exception.stacktrace": "".join(traceback.format_exception(error)),
        }
        headers += [(PREFIX + name, text.encode()) for name, text in about.items()]
    return DeadLetter(topic, record.key, record.value, record.timestamp, headers)
