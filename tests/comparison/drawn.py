"""Scenarios drawn by hypothesis over a small world: three topics, two groups, their records, offsets and properties,
and producers that count.

A drawn request is an API, a version and fields, as in a scenario; `@` before a name makes it the example's own, so that
examples do not share state although the brokers keep it, and shrinking works. Effects that follow Kafka's response
(deletion, properties that spread) are awaited, not compared.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from hypothesis import strategies as st

from odradek.protocol.batch import Codec
from odradek.protocol.errors import ErrorCode
from tests.comparison.data import THEN_MS, batch_of
from tests.comparison.side import Side

TOPICS = ("@red", "@green", "@blue")
GROUPS = ("@first", "@second")
DEADLINE_MS = 20_000

_numbers = itertools.count(1)


class Drawn(NamedTuple):
    """One request of a drawn scenario."""

    api: str
    version: int
    fields: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.api} v{self.version} {self.fields}"


# ---- strategies

topic = st.sampled_from(TOPICS)
group = st.sampled_from(GROUPS)
partition = st.sampled_from((0, 0, 0, 1, 1, 2, 3, -1))
offset = st.sampled_from((0, 1, 2, 3, 5, 8, -1, -2, 100))
few = st.integers(0, 2)


def _asked(api: str, low: int, high: int, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Drawn]:
    return st.builds(Drawn, st.just(api), st.integers(low, high), st.fixed_dictionaries(fields))


def _some(inner: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[list[Any]]:
    """One or more, with distinct names."""
    about = lambda each: each.get("name", each.get("topic")) if isinstance(each, dict) else repr(each)  # noqa: E731
    return st.lists(inner, min_size=1, max_size=most, unique_by=about)


def _dict(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


deadline = st.just(DEADLINE_MS)
records = st.builds(
    lambda count, codec: batch_of(*[b"v%d" % n for n in range(count)], codec=codec),
    st.integers(1, 3),
    st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4)),
)
numbered = st.builds(
    lambda producer, epoch, sequence, count: batch_of(
        *[b"n%d" % n for n in range(count)], producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    ),
    st.sampled_from((5_000_000, 5_000_000, 5_000_001)),
    st.sampled_from((0, 0, 0, 1)),
    st.sampled_from((0, 0, 1, 1, 2, 3)),
    st.integers(1, 2),
)
"""Batches of idempotent producers, in sequence or not."""
creation = _asked(
    "CreateTopics",
    0,
    7,
    topics=_some(_dict(name=topic, num_partitions=st.integers(0, 3), replication_factor=st.just(1)), 1),
    timeout_ms=deadline,
)
deletion = _asked("DeleteTopics", 0, 5, topic_names=_some(topic, 1), timeout_ms=deadline)
growth = _asked(
    "CreatePartitions",
    0,
    3,
    topics=_some(_dict(name=topic, count=st.integers(0, 4), assignments=st.none()), 1),
    timeout_ms=deadline,
    validate_only=st.booleans(),
)
writing = _asked(
    "Produce",
    3,
    11,
    acks=st.sampled_from((1, -1)),
    timeout_ms=deadline,
    topic_data=_some(_dict(name=topic, partition_data=_some(_dict(index=partition, records=records), 1))),
)
writing_in_order = _asked(
    "Produce",
    3,
    11,
    acks=st.just(-1),
    timeout_ms=deadline,
    topic_data=_some(
        _dict(name=st.just(TOPICS[0]), partition_data=_some(_dict(index=st.just(0), records=numbered), 1))
    ),
)
telling_writers = _asked(
    "DescribeProducers", 0, 0, topics=_some(_dict(name=topic, partition_indexes=_some(partition, 1)), 1)
)
reading = _asked(
    "Fetch",
    4,
    12,
    max_wait_ms=st.just(0),
    min_bytes=few,
    max_bytes=st.sampled_from((1, 100, 1 << 20)),
    isolation_level=st.integers(0, 1),
    topics=_some(
        _dict(
            topic=topic,
            partitions=_some(
                _dict(partition=partition, fetch_offset=offset, partition_max_bytes=st.sampled_from((1, 80, 1 << 20))),
                1,
            ),
        ),
        1,
    ),
)
looking = _asked(
    "ListOffsets",
    1,
    9,
    replica_id=st.just(-1),
    topics=_some(
        _dict(
            name=topic,
            partitions=_some(
                _dict(partition_index=partition, timestamp=st.sampled_from((-1, -2, -3, -4, 0, THEN_MS, THEN_MS + 2))),
                1,
            ),
        ),
        1,
    ),
)
epochs = _asked(
    "OffsetForLeaderEpoch",
    0,
    4,
    topics=_some(_dict(topic=topic, partitions=_some(_dict(partition=partition, leader_epoch=few), 1)), 1),
)
cutting = _asked(
    "DeleteRecords",
    0,
    2,
    topics=_some(_dict(name=topic, partitions=_some(_dict(partition_index=partition, offset=offset), 1)), 1),
    timeout_ms=deadline,
)
committing = _asked(
    "OffsetCommit",
    2,
    9,
    group_id=group,
    topics=_some(
        _dict(
            name=topic,
            partitions=_some(
                _dict(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=st.sampled_from(("", "m", None)),
                ),
                1,
            ),
        ),
        1,
    ),
)
recalling = _asked(
    "OffsetFetch",
    2,
    7,
    group_id=group,
    topics=st.none() | _some(_dict(name=topic, partition_indexes=_some(partition, 1))),
)
forgetting = _asked(
    "OffsetDelete",
    0,
    0,
    group_id=group,
    topics=_some(_dict(name=topic, partitions=_some(_dict(partition_index=partition), 1)), 1),
)
changing = _asked(
    "IncrementalAlterConfigs",
    0,
    1,
    resources=_some(
        _dict(
            resource_type=st.just(2),
            resource_name=topic,
            configs=_some(
                _dict(
                    name=st.sampled_from(("retention.ms", "cleanup.policy", "delete.retention.ms", "no.such")),
                    config_operation=st.integers(0, 3),
                    value=st.sampled_from(("-1", "90000000000", "compact", "delete", "x")),
                ),
                2,
            ),
        ),
        1,
    ),
    validate_only=st.booleans(),
)
replacing = _asked(
    "AlterConfigs",
    0,
    2,
    resources=_some(
        _dict(
            resource_type=st.just(2),
            resource_name=topic,
            configs=st.lists(_dict(name=st.just("retention.ms"), value=st.sampled_from(("-1", "x"))), max_size=1),
        ),
        1,
    ),
    validate_only=st.booleans(),
)
describing = _asked(
    "DescribeConfigs",
    1,
    4,
    resources=_some(
        _dict(
            resource_type=st.just(2),
            resource_name=topic,
            configuration_keys=st.just(["retention.ms", "cleanup.policy", "delete.retention.ms"]),
        ),
        1,
    ),
    include_synonyms=st.booleans(),
)
finding = _asked("Metadata", 4, 12, topics=_some(_dict(name=topic)), allow_auto_topic_creation=st.just(False))
listing = _asked("ListGroups", 0, 5)
portraying = _asked("DescribeGroups", 0, 5, groups=_some(group))
dissolving = _asked("DeleteGroups", 0, 2, groups_names=_some(group, 1))

request = st.one_of(
    *(creation, creation, writing, writing, writing, reading, reading, looking, committing, committing, recalling),
    *(deletion, growth, epochs, cutting, forgetting, changing, replacing, describing, finding, listing, portraying),
    *(dissolving, writing_in_order, writing_in_order, telling_writers),
)
scenario = st.lists(request, min_size=3, max_size=25).map(lambda drawn: [*_beginning(), *drawn])


def _beginning() -> list[Drawn]:
    """Two of the topics are there from the start."""
    made = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in TOPICS[:2]]
    return [Drawn("CreateTopics", 5, {"topics": made, "timeout_ms": DEADLINE_MS})]


# ---- how a scenario runs


def fresh() -> str:
    """A prefix for the names of one example."""
    return f"drawn{next(_numbers)}-"


def named(value: Any, prefix: str) -> Any:
    """The same fields with the names of one example."""
    if isinstance(value, str):
        return value.replace("@", prefix)
    if isinstance(value, list):
        return [named(each, prefix) for each in value]
    if isinstance(value, dict):
        return {name: named(each, prefix) for name, each in value.items()}
    return value


async def tell(side: Side, drawn: list[Drawn], prefix: str) -> None:
    """Send a drawn scenario to one side, and delete afterwards what it created."""
    try:
        for each in drawn:
            answer = await side.quietly(each.api, each.version, **named(each.fields, prefix))
            if each.api == "ListGroups" and not isinstance(answer, str):
                answer.groups = [known for known in answer.groups if known.group_id.startswith(prefix)]
            side.note(each.api, each.version, str(each.fields), answer)
            if each.api == "DeleteTopics":
                for name in each.fields["topic_names"]:
                    await _gone(side, named(name, prefix), prefix)
    finally:
        topics, groups = named(list(TOPICS), prefix), named(list(GROUPS), prefix)
        await side.quietly("DeleteTopics", 5, topic_names=topics, timeout_ms=DEADLINE_MS)
        await side.quietly("DeleteGroups", 2, groups_names=groups)


async def _gone(side: Side, topic: str, prefix: str) -> None:
    """Wait until a deleted topic is gone: its name and the offsets that groups have committed of it."""
    again = {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": DEADLINE_MS}
    await side.wait(
        lambda answer: answer.topics[0].error_code != ErrorCode.TOPIC_ALREADY_EXISTS,
        "CreateTopics",
        5,
        **again,
        validate_only=True,
    )
    for name in named(list(GROUPS), prefix):
        await side.wait(
            lambda answer: all(each.name != topic for each in answer.topics),
            "OffsetFetch",
            5,
            group_id=name,
            topics=None,
        )
