"""The contract of sources and of sinks: no record is lost, and none doubled where exactly once is claimed, whenever the
process ends.

A test gives a function that makes the connector of a process, and one that reads the other system.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.interface import Sink, Source
from tests.streams.connectors.memory import (
    Countdown,
    MemoryBroker,
    log_of,
    run_with_crashes,
    sink_settings,
    sink_worker,
    source_worker,
)

PLACES = (("orders", 0), ("orders", 1), ("clicks", 0))


class Course(NamedTuple):
    """How the processes of one example run."""

    crashes: list[int]
    """The calls after which each process but the last one ends."""
    max_records: int
    commit_s: float
    rebalance_every: int


courses = st.builds(
    Course,
    st.lists(st.integers(1, 60), max_size=4),
    st.integers(1, 5),
    st.integers(1, 12).map(float),
    st.sampled_from([0, 0, 3, 7]),
)
offsets = st.lists(st.integers(0, 40), max_size=12, unique=True).map(sorted)
"""Offsets with gaps, as compacted topics and transactions have them."""
logs = st.fixed_dictionaries(dict.fromkeys(PLACES, offsets))


def check_source(
    make: Callable[[], Source], expected: Mapping[Any, Sequence[bytes]], origin: Callable[[bytes], Any], course: Course
) -> None:
    """Run the source; the topic gets the values of each source partition once, in their order."""
    broker = MemoryBroker(tasks=2)
    total = sum(map(len, expected.values()))
    made: list[Source] = []

    def made_anew() -> Source:
        made.append(make())
        return made[-1]

    run_with_crashes(
        lambda countdown: source_worker(
            broker,
            made_anew(),
            countdown=countdown,
            max_records=course.max_records,
            commit_s=course.commit_s,
            rebalance_every=course.rebalance_every,
        ),
        course.crashes,
        lambda: len(broker.written) >= total,
        lambda: made[-1].close(),
    )
    found: dict[Any, list[bytes]] = defaultdict(list)
    for record in broker.written:
        assert record.value is not None
        found[origin(record.value)].append(record.value)
    assert found == {place: list(values) for place, values in expected.items() if values}


def check_sink(
    make: Callable[[Countdown], Sink],
    stored: Callable[[], Mapping[TopicPartition, Sequence[int]]],
    wanted: Mapping[TopicPartition, Sequence[int]],
    course: Course,
    value: Callable[[int], bytes] = lambda offset: b'{"id": %d}' % offset,
) -> None:
    """Run the sink; the other system gets each offset of each partition, in order: once if the sink stores offsets,
    else at least once.
    """
    broker = MemoryBroker()
    broker.logs = {place: log_of(place, wanted[place], value) for place in wanted}
    ends = {place: found[-1] + 1 for place, found in wanted.items() if found}
    made: list[Sink] = []

    def made_anew(countdown: Countdown) -> Sink:
        made.append(make(countdown))
        return made[-1]

    run_with_crashes(
        lambda countdown: sink_worker(
            broker,
            made_anew(countdown),
            sink_settings(course.max_records, course.commit_s),
            countdown=countdown,
            rebalance_every=course.rebalance_every,
        ),
        course.crashes,
        lambda: all(broker.committed.get(place) == end for place, end in ends.items()),
        lambda: made[-1].close(),
    )
    found = {place: list(each) for place, each in stored().items() if each}
    if not made[-1].stores_offsets:
        found = {place: sorted(set(each)) for place, each in found.items()}
    assert found == {place: list(each) for place, each in wanted.items() if each}
