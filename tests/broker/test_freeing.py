"""Large messages are freed in parts, between which the event loop serves others."""

from __future__ import annotations

import gc
from typing import Any

from odradek.broker.runtime.freeing import AT_ONCE, freeing
from odradek.protocol import messages as m

Partition = m.ListOffsetsRequest.ListOffsetsPartition
Topic = m.ListOffsetsRequest.ListOffsetsTopic


def partitions() -> int:
    """How many of these structures exist."""
    return sum(type(each) is Partition for each in gc.get_objects())


def message(topics: int, each: int) -> list[Any]:
    return [
        m.ListOffsetsRequest(
            topics=[
                Topic(name=f"t{number}", partitions=[Partition(partition_index=index) for index in range(each)])
                for number in range(topics)
            ]
        )
    ]


def test_a_part_frees_a_limited_number() -> None:
    gc.collect()
    before = partitions()
    messages = message(3, 5 * AT_ONCE // 2)
    most, left = 0, partitions()
    for _ in freeing(messages):
        now = partitions()
        most, left = max(most, left - now), now
    assert (messages, left) == ([], before)
    assert AT_ONCE // 2 <= most <= AT_ONCE


def test_what_others_keep_stays() -> None:
    (request,) = messages = message(2, 3)
    first, second = request.topics[0], request.topics[1].partitions
    del request
    list(freeing(messages))
    assert [each.partition_index for each in first.partitions] == [0, 1, 2]
    assert [each.partition_index for each in second] == [0, 1, 2]
    whole = message(1, 3)[0]
    list(freeing([whole]))
    assert len(whole.topics[0].partitions) == 3
