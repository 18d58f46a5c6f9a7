"""Names of the directories of logs (Kafka: LocalLog's logDirName, logDeleteDirName, parseTopicPartitionName)."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
_LOG_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_FUTURE_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})\.[^.]+-future")
_LONGEST_NAME: Final = 255


def log_name(partition: TopicPartition) -> str:
    """The name of the directory of a partition's log."""
    return f"{partition[0]}-{partition[1]}"


def future_name(partition: TopicPartition, random: Random) -> str:
    """A new name for the directory of a future log."""
    return f"{log_name(partition)}.{random.getrandbits(128):032x}{FUTURE_SUFFIX}"


def delete_name(partition: TopicPartition, random: Random) -> str:
    """A new name for the directory of a deleted log. It holds less of a topic whose name is too long."""
    topic, number = partition
    rest = f"-{number}.{random.getrandbits(128):032x}{DELETE_SUFFIX}"
    return topic[: _LONGEST_NAME - len(rest)] + rest


def is_future(path: str) -> bool:
    """Whether this is the directory of a future log."""
    return path.endswith(FUTURE_SUFFIX)


def parse_name(directory: str, name: str) -> TopicPartition:
    """The partition of a log, or of a future log, in `directory`. Raises KafkaError INVALID_CONFIG."""
    match = (_FUTURE_NAME if is_future(name) else _LOG_NAME).fullmatch(name)
    if match is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{directory}/{name} is not named TOPIC-PARTITION; a data directory holds logs and nothing else",
        )
    return match[1], int(match[2])
