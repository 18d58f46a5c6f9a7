"""Metadata from cached bytes: every response is byte for byte that of a message encoded for it alone.

A history of a cluster is drawn: topics come, change and go, brokers too. After each step requests are sent in any
version, through any listener. Each response is compared with one that is encoded from plain objects, and its errors
with those that the metrics would count in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.apis.metadata import AUTHORIZED_OPERATIONS_UNKNOWN, Metadata
from odradek.broker.controller.auto_topic_creation import AutoCreatedTopic, TopicCreator
from odradek.broker.metadata.cache import (
    NO_LEADER,
    BrokerMetadata,
    ListenerAddress,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from odradek.broker.metadata.topic_responses import MOST_BYTES, OVERHEAD_BYTES, TopicAnswers
from odradek.broker.network.dispatcher import Call
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.security.auth_helper import AuthHelper
from odradek.protocol import messages as m
from odradek.protocol.encoded import EncodedElement
from odradek.protocol.errors import ErrorCode

R = m.MetadataResponse
Wanted = m.MetadataRequest.MetadataRequestTopic
NAMES = ("a", "b", "orders.v1", "__consumer_offsets")
MISSING = ("nobody", "", "..", "not legal")
LISTENERS = ("INSIDE", "OUTSIDE")
NO_ID = bytes(16)
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""What a client may do with a topic where nothing is forbidden: one bit for each number of AclOperation."""
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""The same for the cluster."""

broker_ids = st.integers(0, 3)
id_lists = st.lists(broker_ids, max_size=4, unique=True).map(tuple)
brokers = st.dictionaries(
    broker_ids, st.tuples(st.lists(st.sampled_from(LISTENERS), unique=True), st.none() | st.just("rack"))
)
partitions = st.lists(
    st.tuples(st.integers(-1, 4), st.integers(0, 9), id_lists, id_lists, id_lists), min_size=1, max_size=5
)
bounds = st.sampled_from((0, 500, 1_500, MOST_BYTES))


@dataclass(frozen=True)
class Question:
    """The part of a call that Metadata needs."""

    version: int
    listener: str


def metadata_cache_of(broker_id: int, listeners: list[str], rack: str | None) -> BrokerMetadata:
    return BrokerMetadata(
        broker_id, tuple(ListenerAddress(each, f"{each}-{broker_id}", 9092) for each in listeners), rack
    )


def id_of(name: str, life: int) -> bytes:
    return f"{life}{name:.15}".encode().ljust(16, b"\0")


@st.composite
def steps(draw: st.DrawFn) -> Any:
    """A change of the cluster: the name of the event, and its values."""
    kind = draw(st.sampled_from(("topics", "topics", "same", "gone", "brokers", "controller")))
    if kind == "topics":
        lives = st.tuples(st.integers(0, 1), partitions)
        return kind, draw(st.dictionaries(st.sampled_from(NAMES), lives, min_size=1))
    if kind == "brokers":
        return kind, draw(brokers)
    return kind, draw(broker_ids if kind == "controller" else st.sampled_from(NAMES))


def carry_out(metadata_cache: MetadataCache, step: Any) -> None:
    kind, value = step
    if kind == "topics":
        metadata_cache.put_topics(
            TopicMetadata(
                name,
                id_of(name, life),
                name.startswith("__"),
                tuple(PartitionMetadata(i, *each) for i, each in enumerate(all_)),
            )
            for name, (life, all_) in value.items()
        )
    elif kind == "same":  # a new object with equal content
        metadata_cache.put_topics([TopicMetadata(*each) for each in metadata_cache if each.name == value])
    elif kind == "gone":
        metadata_cache.remove_topic(value)
    elif kind == "brokers":
        metadata_cache.brokers = {broker_id: metadata_cache_of(broker_id, *each) for broker_id, each in value.items()}
    else:
        metadata_cache.controller_id = value


@st.composite
def questions(draw: st.DrawFn) -> tuple[Question, m.MetadataRequest]:
    version = draw(st.integers(*Metadata.VERSIONS))
    by_name = st.sampled_from(NAMES + MISSING).map(lambda name: Wanted(name=name))
    ids = st.tuples(st.sampled_from((*NAMES, "nobody")), st.integers(0, 1)).map(lambda each: id_of(*each))
    by_id = ids.map(lambda each: Wanted(name=None, topic_id=each))
    some = st.lists(by_name | by_id if version >= 12 else by_name, min_size=version == 0, max_size=5)
    request = m.MetadataRequest(
        topics=draw(some | st.none() if version else some | st.just([])),
        include_topic_authorized_operations=version >= 8 and draw(st.booleans()),
        include_cluster_authorized_operations=8 <= version <= 10 and draw(st.booleans()),
    )
    return Question(version, draw(st.sampled_from(LISTENERS))), request


def alike(call: Question, request: m.MetadataRequest) -> Iterator[tuple[Question, m.MetadataRequest]]:
    """A request, those that differ from it in one respect, and the request again."""
    yield call, request
    for listener in LISTENERS:
        yield Question(call.version, listener), request
    for version in (7, 8, 9, 12):
        if not request.topics and not request.include_cluster_authorized_operations:
            yield Question(version, call.listener), m.MetadataRequest(topics=None)
    if call.version >= 8:
        operations = not request.include_topic_authorized_operations
        yield call, m.MetadataRequest(topics=request.topics, include_topic_authorized_operations=operations)
    yield call, request


def plain(metadata_cache: MetadataCache, call: Question, request: m.MetadataRequest) -> m.MetadataResponse:
    """The response as objects, made for this request alone."""
    live = [each for _, each in sorted(metadata_cache.brokers.items()) if each.endpoint(call.listener) is not None]
    if not metadata_cache.brokers and metadata_cache.own is not None:
        live = [metadata_cache.own]
    reachable = [each.broker_id for each in live]
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [described(each, reachable) for each in metadata_cache.topics.values()]
    else:
        topics, seen = [], set()
        for wanted in request.topics:
            name = wanted.name
            if name is None:
                name = next((each.name for each in metadata_cache if each.topic_id == wanted.topic_id), None)
            if name is None:
                found = R.MetadataResponseTopic(
                    name=None, topic_id=wanted.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
            elif name in seen:
                continue
            elif name in metadata_cache.topics:
                found = described(metadata_cache.topics[name], reachable)
            else:
                unknown = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if metadata_cache.is_initialized
                    else ErrorCode.LEADER_NOT_AVAILABLE
                )
                illegal = name in ("", "..", "not legal")
                code = ErrorCode.INVALID_TOPIC_EXCEPTION if illegal else unknown
                found = R.MetadataResponseTopic(name=name, error_code=code, is_internal=name == "__consumer_offsets")
            topics.append(found)
            seen.add(name)
    for topic in topics:
        if request.include_topic_authorized_operations and topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    answer = R(cluster_id=metadata_cache.cluster_id, controller_id=metadata_cache.controller_id, topics=topics)
    for each in live:
        host = f"{call.listener}-{each.broker_id}"
        answer.brokers.append(R.MetadataResponseBroker(node_id=each.broker_id, host=host, port=9092, rack=each.rack))
    asked = request.include_cluster_authorized_operations
    answer.cluster_authorized_operations = CLUSTER_OPERATIONS if asked else AUTHORIZED_OPERATIONS_UNKNOWN
    return answer


def described(topic: TopicMetadata, reachable: list[int]) -> m.MetadataResponse.MetadataResponseTopic:
    answer = R.MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal)
    for each in topic.partitions:
        led = each.leader in reachable
        answer.partitions.append(
            R.MetadataResponsePartition(
                error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=each.index,
                leader_id=each.leader if led else NO_LEADER,
                leader_epoch=each.leader_epoch,
                replica_nodes=list(each.replicas),
                isr_nodes=list(each.isr),
                offline_replicas=list(each.offline),
            )
        )
    return answer


def counted(answer: m.MetadataResponse) -> Counter[int]:
    codes: list[int] = []
    R.errors_reporter()(answer, codes.append)
    return Counter(codes)


def harness(most_bytes: int) -> tuple[MetadataCache, TopicAnswers, Metadata]:
    metadata_cache = MetadataCache("cluster")
    metadata_cache.own = metadata_cache_of(9, list(LISTENERS), None)
    answers = TopicAnswers(metadata_cache, most_bytes)
    none = cast(TopicCreator, None)  # no topic is ever created
    quotas = cast(QuotaManagers, SimpleNamespace(is_active=False))

    def at_once(call: Call, make: Callable[[], R]) -> None:
        call.reply(make())

    return (
        metadata_cache,
        answers,
        Metadata(metadata_cache, none, lambda: False, AutoCreatedTopic, answers, AuthHelper(), quotas, at_once),
    )


@pytest.mark.slow
@given(st.lists(st.tuples(steps(), st.lists(questions(), max_size=4)), max_size=8), bounds)
def test_a_response_is_byte_for_byte_that_of_an_uncached_encoder(history: list[Any], most_bytes: int) -> None:
    metadata_cache, answers, metadata = harness(most_bytes)
    for step, asked in history:
        carry_out(metadata_cache, step)
        for call, request in (one for question in asked for one in alike(*question)):
            found = metadata.handle(cast(Call, call), request)
            assert found is not None
            expected = plain(metadata_cache, call, request)
            assert found.encode(call.version) == expected.encode(call.version)
            assert counted(found) == counted(expected)
            assert answers.size_bytes <= most_bytes
    for name in NAMES:
        metadata_cache.remove_topic(name)
    assert answers.size_bytes == 0


class Elements:
    """Makes elements of one size, and records the topics that it was called for."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, topic: TopicMetadata) -> EncodedElement:
        self.made.append(topic.name)
        return EncodedElement(b"x" * 100)

    def of(self, answers: TopicAnswers, topics: list[TopicMetadata], form: str, circumstances: str = "") -> list[str]:
        """The names of the topics that are encoded for a request."""
        self.made = []
        assert answers.of(topics, form, circumstances, self) == [EncodedElement(b"x" * 100)] * len(topics)
        return self.made


def topic_of(name: str) -> TopicMetadata:
    return TopicMetadata(name, id_of(name, 0), False, (PartitionMetadata(0, 0, 0, (0,), (0,)),))


ONE = 100 + OVERHEAD_BYTES


def test_a_topic_is_encoded_once_for_each_form_until_it_changes() -> None:
    metadata_cache = MetadataCache("cluster")
    answers, elements = TopicAnswers(metadata_cache), Elements()
    metadata_cache.put_topics([topic_of("a"), topic_of("b")])
    assert elements.of(answers, list(metadata_cache), "v1") == ["a", "b"]
    assert elements.of(answers, list(metadata_cache), "v1") == []
    assert elements.of(answers, list(metadata_cache), "v2") == ["a", "b"]
    assert answers.size_bytes == 4 * ONE
    metadata_cache.put_topics([topic_of("b")])
    assert answers.size_bytes == 2 * ONE
    assert elements.of(answers, list(metadata_cache), "v1") == ["b"]
    assert elements.of(answers, [metadata_cache.topics["a"]], "v2") == []
    assert elements.of(answers, list(metadata_cache), "v1", "a broker less") == ["a", "b"]
    metadata_cache.remove_topic("a")
    assert answers.size_bytes == ONE


def test_bytes_are_valid_only_for_the_metadata_that_they_were_made_of() -> None:
    answers, elements = TopicAnswers(MetadataCache("nobody tells of changes")), Elements()
    one, other = topic_of("a"), topic_of("a")
    assert one == other
    assert elements.of(answers, [one], "v1") == ["a"]
    assert elements.of(answers, [other], "v1") == ["a"]
    assert elements.of(answers, [other], "v1") == []
    assert answers.size_bytes == ONE


@pytest.mark.parametrize("room", [2, 3])
def test_the_least_recently_used_form_is_evicted(room: int) -> None:
    metadata_cache = MetadataCache("cluster")
    answers, elements = TopicAnswers(metadata_cache, room * ONE), Elements()
    a, b = topic_of("a"), topic_of("b")
    for form in ("v1", "v2", "v1"):
        elements.of(answers, [a], form)
    assert answers.size_bytes == 2 * ONE
    elements.of(answers, [a, b], "v1")
    assert elements.of(answers, [a, b], "v1") == []
    assert elements.of(answers, [a], "v2") == (["a"] if room == 2 else [])


def test_the_rest_of_a_form_that_is_too_large_is_encoded_anew() -> None:
    answers, elements = TopicAnswers(MetadataCache("cluster"), 2 * ONE), Elements()
    topics = [topic_of(name) for name in "abc"]
    assert elements.of(answers, topics, "v1") == ["a", "b", "c"]
    assert elements.of(answers, topics, "v1") == ["c"]
    assert answers.size_bytes == 2 * ONE
