"""Iteration order of Java's hash sets of strings, bytes and task ids (java.util.HashMap).

Kafka Streams keeps some names in hash sets, and their order has visible effects: the text of a topology, which store is
flushed first, which task is assigned first. The order is that of java.util.HashMap: by the bucket of the spread hash
code, within a bucket in order of insertion (buckets of eight and more become trees; so many names do not share one
bucket).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from odradek.protocol.java_hash import string_hash
from odradek.streams.records import TaskId

T = TypeVar("T")


def hash_set_order(names: Iterable[str], room: int = 0) -> list[str]:
    """The names in the order of a HashSet of this capacity, after they were added one by one."""
    return _order(dict.fromkeys(names), string_hash, room)


def hash_set_order_of_bytes(keys: Iterable[bytes]) -> list[bytes]:
    """The same for keys of bytes (org.apache.kafka.common.utils.Bytes, whose code is that of its array)."""
    return _order(dict.fromkeys(keys), _code_of_bytes)


def hash_set_order_of_tasks(tasks: Iterable[TaskId], *, copied: bool = False) -> list[TaskId]:
    """The same for task ids (org.apache.kafka.streams.processor.TaskId). `copied`: the set was made of a collection of
    them at once, so its capacity is that of its first size.
    """
    found = dict.fromkeys(tasks)
    return _order(found, _code_of_task, int(len(found) / 0.75) + 1 if copied else 0)


def _code_of_task(task: TaskId) -> int:
    return 31 * (31 * (31 + task.subtopology) + task.partition) & 0xFFFFFFFF  # the topology's name is null: 0


def _code_of_bytes(data: bytes) -> int:
    code = 1
    for byte in data:
        code = (31 * code + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return code


def _order(found: dict[T, None], code_of: Callable[[T], int], room: int = 0) -> list[T]:
    size = 16
    while len(found) > size * 0.75 or size < room:
        size *= 2
    codes = {each: code_of(each) for each in found}
    return sorted(found, key=lambda each: (codes[each] ^ codes[each] >> 16) & (size - 1))
