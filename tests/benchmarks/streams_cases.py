"""The cases of stream applications: Odradek's beside Java's Kafka Streams, quixstreams and faust-streaming.

All read the same records from a topic of one partition with one thread, and write to a topic whose records get their
timestamps from the broker (LogAppendTime). The two other libraries in Python get the first of these records only, which
keeps a round short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.benchmarks.picking import pick_from
from tests.benchmarks.streams_topologies import Kind

OURS: Final = "odradek"
OWN: Final = "own"
"""Odradek's application with `client.implementation=odradek`: its own clients in place of librdkafka."""
JAVA: Final = "java"
OTHERS: Final = ("quix", "faust")
NAMES: Final = (OURS, OWN, JAVA, *OTHERS)
OTHERS_SHARE: Final = {"quix": 0.1, "faust": 0.02}
"""Which part of the records the other libraries in Python get, so that a round is short."""
LEAST_RECORDS: Final = 1_000
DEFAULT_CACHE_BYTES: Final = 10 * 1024 * 1024
TIMES: Final = {JAVA: 2.0, "quix": 10.0, "faust": 10.0}
"""The goal: how many times another library's records a CPU second Odradek's application processes."""


@dataclass(frozen=True, slots=True)
class StreamsCase:
    """One application and its records. `goal` is how many records a second Odradek's application has to process.

    `restores` has the store restored from a changelog of this many records, in place of all else.
    """

    name: str
    title: str
    kind: Kind
    records: int
    value_bytes: int = 84  # about 100 with the key and the overhead of a batch
    exactly_once: bool = False
    cache_bytes: int = DEFAULT_CACHE_BYTES
    goal: int | None = None
    restores: bool = False

    def scaled(self, factor: float) -> StreamsCase:
        """The same with `factor` times the records, within reason."""
        return replace(self, records=max(LEAST_RECORDS, round(self.records * factor)))

    def records_for(self, contestant: str) -> int:
        """How many of the records this contestant gets."""
        return max(LEAST_RECORDS, round(self.records * OTHERS_SHARE.get(contestant, 1.0)))

    @property
    def contestants(self) -> tuple[str, ...]:
        """The contestants: a library takes no part in a case in which it is not comparable."""
        if self.restores or self.kind == "stores" or self.cache_bytes != DEFAULT_CACHE_BYTES:
            return (OURS, OWN, JAVA)
        return NAMES

    @property
    def amount(self) -> str:
        """The size in words."""
        if self.restores:
            return f"{self.records:,} records of a changelog"
        return f"{self.records:,} records of {self.value_bytes} B"


_STATELESS: Final = StreamsCase("streams-stateless", "filter, map_values, map", "stateless", 600_000, goal=150_000)
_WORDCOUNT: Final = StreamsCase("streams-wordcount", "count by key, changelog", "wordcount", 500_000, goal=60_000)
_WINDOWED: Final = StreamsCase("streams-windowed", "count in windows of 1 minute", "tumbling", 300_000)
_HOPPING: Final = StreamsCase("streams-hopping", "count in 3 windows of 1 minute", "hopping", 150_000)
_JOIN: Final = StreamsCase("streams-join", "stream joined with a table", "join", 400_000)


def _once(case: StreamsCase) -> StreamsCase:
    return replace(case, name=f"{case.name}-eos", title=f"{case.title}, exactly once", exactly_once=True, goal=None)


def _large(case: StreamsCase) -> StreamsCase:
    return replace(
        case, name=f"{case.name}-1k", title=f"{case.title}, 1 KB", value_bytes=1_000, records=150_000, goal=None
    )


STREAMS_CASES: Final[tuple[StreamsCase, ...]] = (
    _STATELESS,
    _WORDCOUNT,
    _WINDOWED,
    _JOIN,
    StreamsCase("streams-stores", "100 stores on disk in 64 MiB", "stores", 3_000, value_bytes=500),
    StreamsCase("streams-restore", "restore a store on disk", "wordcount", 1_000_000, restores=True),
    _once(_STATELESS),
    _once(_WORDCOUNT),
    _once(_WINDOWED),
    _once(_JOIN),
    replace(
        _WORDCOUNT,
        name="streams-wordcount-uncached",
        title="count by key, each told and logged",
        cache_bytes=0,
        goal=None,
    ),
    _HOPPING,
    _large(_STATELESS),
    _large(_WORDCOUNT),
    _large(_JOIN),
)
"""In the order of their importance: the last ones are skipped when the time is up."""


def pick(names: Sequence[str]) -> tuple[list[StreamsCase], list[str]]:
    """The cases of these names, all if there are none, and the names that are not of a case here."""
    return pick_from(STREAMS_CASES, names)
