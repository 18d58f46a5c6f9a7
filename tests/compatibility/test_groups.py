"""A group of three consumers, while members join, leave and die: no record missed, none read twice after a clean leave.

The members are real clients in processes of their own. A test derives the owners of partitions from the records that
members read: it sends rounds of one record to each partition, waits until all of a round has been read, and compares
the readers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compatibility.brokers import Broker, create_topic
from tests.compatibility.group_members import PARTITIONS, Group

JAVA = [pytest.mark.jvm, pytest.mark.slow]
TRIOS = [
    pytest.param(("confluent", "confluent", "confluent"), id="confluent"),
    pytest.param(("aiokafka", "aiokafka", "aiokafka"), id="aiokafka"),
    pytest.param(("2.8.2", "3.9.2", "4.3.0"), id="java", marks=JAVA),
    pytest.param(("confluent", "3.9.2", "aiokafka"), id="mixed", marks=JAVA),
]


@pytest.fixture
def consumers(broker: Broker, topic: str, group: str) -> Iterator[Group]:
    create_topic(broker, topic, PARTITIONS)
    running = Group(broker, group, topic)
    yield running
    running.close()


@pytest.mark.slow
@pytest.mark.parametrize("kinds", TRIOS)
def test_members_join_leave_and_die(consumers: Group, kinds: tuple[str, str, str]) -> None:
    first, second, third = kinds
    consumers.join("first", first)
    consumers.settle_on("first")
    consumers.join("second", second)
    consumers.settle_on("first", "second")
    consumers.join("third", third)
    consumers.settle_on("first", "second", "third")

    consumers.leave("second")
    consumers.settle_on("first", "third")
    assert consumers.repeated() == []

    consumers.die("third")
    consumers.settle_on("first")
    # Records that the dead one had read and not yet committed are read again; no others are.
    assert set(consumers.repeated()) <= consumers.reads_of("third")

    before = set(consumers.repeated())
    consumers.leave("first")
    consumers.join("heir", first)
    consumers.settle_on("heir")
    assert set(consumers.repeated()) == before
    consumers.assert_nothing_missed()
