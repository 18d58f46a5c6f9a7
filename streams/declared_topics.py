"""Declared topics: a topic's name together with the partitions, replicas and configs that it is created with.

    ORDERS = topic("orders", partitions=6, config={"retention.ms": "86400000"})
    builder.stream(ORDERS, Consumed(STRING, JSON))

A declared topic is a text, so it stands wherever the name of a topic does. The runtime reads its name only: names,
`describe()` and all internal topics are those of the same topology without declarations. `odradek streams init` creates
declared topics; Kafka Streams has no counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from odradek.streams.errors import ArgumentError

LARGEST_REPLICATION_FACTOR: Final = 2**15 - 1
_NO_CONFIG: Final[Mapping[str, str]] = MappingProxyType({})


class DeclaredTopic(str):
    """The name of a topic, with its declaration. `topic` makes it."""

    __slots__ = ("config", "partitions", "replication_factor")

    partitions: int | None
    """None is the broker's default, `num.partitions`."""
    replication_factor: int | None
    """None is the broker's default, `default.replication.factor`."""
    config: Mapping[str, str]
    """Configs of the topic, by Kafka's names; all others have the broker's defaults."""

    @property
    def declaration(self) -> tuple[int | None, int | None, Mapping[str, str]]:
        """What two declarations of one topic have to agree on."""
        return self.partitions, self.replication_factor, self.config

    def __reduce__(self) -> tuple[Any, ...]:
        return topic, (str(self), self.partitions, self.replication_factor, dict(self.config))


def topic(
    name: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, object] = _NO_CONFIG,
) -> DeclaredTopic:
    """Declare a topic of the user. Omitted numbers are the broker's defaults.

    Values of `config` are texts, numbers or booleans. Raises ArgumentError for a number that no topic can have; the
    topology checks the name.
    """
    _check(name, "partitions", partitions, 2**31 - 1)
    _check(name, "replication_factor", replication_factor, LARGEST_REPLICATION_FACTOR)
    declared = DeclaredTopic(name)
    declared.partitions = partitions
    declared.replication_factor = replication_factor
    declared.config = MappingProxyType({key: _as_text(value) for key, value in config.items()})
    return declared


def _check(name: str, role: str, number: int | None, most: int) -> None:
    if number is not None and (type(number) is not int or not 1 <= number <= most):
        raise ArgumentError(
            f"topic({name!r}, {role}={number!r}): expected 1 to {most}, or None for the broker's default"
        )


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
