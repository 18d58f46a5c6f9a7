"""Errors for Java's method names: the message gives the name of the method here, or the successor of a deprecated one.

A class of the public API derives from JavaNames for the attributes of its objects, and has the metaclass JavaNamed for
those of the class itself. Neither costs anything where the attribute exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

SUCCESSORS: Final[Mapping[str, Mapping[str, str]]] = {
    "KStream": {
        "branch": "split",
        "transform": "process",
        "flat_transform": "process",
        "transform_values": "process_values",
        "flat_transform_values": "process_values",
    },
    "KafkaStreams": {
        "all_metadata": "metadata_for_all_streams_clients",
        "all_metadata_for_store": "streams_metadata_for_store",
        "local_threads_metadata": "metadata_for_local_threads",
    },
    "KeyQueryMetadata": {
        "get_active_host": "active_host",
        "get_standby_hosts": "standby_hosts",
        "get_partition": "partition",
    },
    "TimeWindows": {"of": "of_size_with_no_grace", "grace": "of_size_and_grace"},
    "JoinWindows": {"of": "of_time_difference_with_no_grace", "grace": "of_time_difference_and_grace"},
    "SessionWindows": {"with": "of_inactivity_gap_with_no_grace", "grace": "of_inactivity_gap_and_grace"},
    "SlidingWindows": {"with_time_difference_and_grace": "of_time_difference_and_grace"},
}
"""Deprecated methods of Kafka Streams 3.9.2 by class, and the methods that replace them."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


def hint(owner: type, name: str) -> str:
    """The message of the AttributeError for `name`."""
    snake = _HUMP.sub(r"_\1", name).lower()
    message = f"{owner.__name__!r} has no attribute {name!r}"
    successor = SUCCESSORS.get(owner.__name__, {}).get(snake)
    if successor is not None:
        return f"{message}, which is deprecated in Kafka Streams; use {successor}"
    for here in (snake, snake.removeprefix("get_")):
        if here != name and hasattr(owner, here):
            return f"{message}; its name in Python is {here}"
    return message


class JavaNames:
    """The base of a class whose methods have names in Java."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(hint(type(self), name), name=name, obj=self)


class JavaNamed(type):
    """The metaclass of a class whose class methods have names in Java."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise AttributeError(hint(cls, name), name=name, obj=cls)
