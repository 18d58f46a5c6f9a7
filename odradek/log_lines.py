"""Log format on stderr: one line for each entry, as text or as JSON.

An entry's own fields (`extra={"topic": …}`) follow the message as name=value, or are members of the JSON object, which
also contains the broker id once it is set. Times are UTC with milliseconds, so that the logs of several brokers can be
merged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Final

from odradek.standard_streams import GONE, discard

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

LOGGERS: Final = ("odradek", "kafka.authorizer.logger")
"""The package's own log and the audit log, which has the name of Kafka's."""

_OWN_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}


class StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes log entries to standard error; stops after its reader has closed it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif error.errno in GONE:
            discard(2)


def log_to_stderr(level: str, layout: str) -> None:
    """Send the package's log and the audit log to stderr: `level` is one of LEVELS, `layout` one of FORMATS."""
    handler = StderrHandler(sys.stderr)
    handler.setFormatter(JsonLines() if layout == "json" else TextLines())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False


def say_broker(broker_id: int) -> None:
    """Add the broker id to every later JSON entry, as `broker`."""
    for handler in logging.getLogger("odradek").handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.broker_id = broker_id


def say_process(number: int) -> None:
    """Add the number of this process in its application to every later JSON entry, as `process`."""
    for handler in logging.getLogger("odradek").handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.process = number


class TextLines(logging.Formatter):
    """2026-01-31T10:00:00.123Z INFO odradek.broker: message name=value"""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_quoted(str(value))}" for name, value in _fields(record).items())
        # A line is an entry: bytes from a client must not begin a new one.
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{_timestamp(record)} {record.levelname} {record.name}: {message}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One JSON object: time, level, logger, broker or process, message, the entry's own fields, and the traceback as
    `error`.
    """

    broker_id: int | None = None
    process: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            **({} if self.broker_id is None else {"broker": self.broker_id}),
            **({} if self.process is None else {"process": self.process}),
            "message": record.getMessage(),
        }
        if isinstance(record.args, Mapping):  # the values of a message with named places, as in the audit log
            entry.update(record.args)
        entry.update(_fields(record))
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN_FIELDS}


def _timestamp(record: logging.LogRecord) -> str:
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{second}.{int(record.msecs):03d}Z"


def _quoted(text: str) -> str:
    plain = bool(text) and text.isprintable() and not any(sign in text for sign in ' "=')
    return text if plain else json.dumps(text)
