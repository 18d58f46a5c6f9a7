"""Log levels at run time: resources of type BROKER_LOGGER (KIP-412; Kafka: Log4jController).

The loggers are those of Python's logging below "odradek", by their names, and the audit log of the authorizer, which
has Kafka's name; "root" is "odradek" itself, from which those below it inherit their level until they get their own.
The levels have the names that Kafka's clients use; they last until the broker stops.
"""

from __future__ import annotations

import logging
from typing import Final

from odradek.broker.config.types import ConfigEntry, Source, Type
from odradek.protocol.errors import ErrorCode, KafkaError

ROOT: Final = "root"
TOP: Final = "odradek"
AUDIT: Final = "kafka.authorizer.logger"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}


def describe_loggers() -> list[ConfigEntry]:
    """Each logger with its effective level, the root first, as DescribeConfigs returns them."""
    # A name without a logger of its own, which is a parent of others, has a placeholder.
    found = {name: each for name, each in logging.root.manager.loggerDict.items() if isinstance(each, logging.Logger)}
    loggers = {ROOT: logging.getLogger(TOP)}
    loggers.update({name: found[name] for name in sorted(found) if _is_own(name)})
    return [
        ConfigEntry(
            name,
            _shown(each.getEffectiveLevel()),
            Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            sensitive=False,
            read_only=False,
            type=Type.UNKNOWN,
            documentation="",
            synonyms=(),
        )
        for name, each in loggers.items()
    ]


def check_level(name: str, level: str) -> None:
    """Validate a level for a logger. Raises KafkaError with INVALID_CONFIG."""
    _find(name)
    if level not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level}, which is no level; there are {', '.join(LEVELS)}",
        )


def check_reset(name: str) -> None:
    """Validate the removal of a logger's level. Raises KafkaError: INVALID_CONFIG, INVALID_REQUEST."""
    if name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    _find(name)


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger, or inherit it with None. The caller has validated the arguments."""
    _find(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _find(name: str) -> logging.Logger:
    if name == ROOT:
        return logging.getLogger(TOP)
    found = logging.root.manager.loggerDict.get(name)
    if not _is_own(name) or not isinstance(found, logging.Logger):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    return found


def _is_own(name: str) -> bool:
    return name == AUDIT or name.startswith(f"{TOP}.")


def _shown(level: int) -> str:
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")
