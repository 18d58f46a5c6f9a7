"""The assignors of the consumer protocol: valid, balanced, sticky, and equal to Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.group.state.consumer_assignors import (
    ASSIGNORS,
    Assignment,
    MemberSpec,
    assign_range,
    assign_uniform,
)
from tests.machines import kafka_assigns
from tests.machines.assignor_questions import random_groups, specs
from tests.machines.kafka_assigns import text, topic_id


def sizes(assigned: Mapping[str, Assignment]) -> list[int]:
    return [sum(map(len, each.values())) for each in assigned.values()]


def assert_valid(
    members: Mapping[str, MemberSpec], counts: Mapping[bytes, int], assigned: dict[str, Assignment]
) -> None:
    """Every partition of a subscribed topic has one owner, which subscribes to it."""
    assert set(assigned) == set(members)
    given_out = [
        (topic, index) for each in assigned.values() for topic, indexes in each.items() for index in sorted(indexes)
    ]
    wanted = {topic for spec in members.values() for topic in spec.topics}
    assert sorted(given_out) == sorted((topic, index) for topic in wanted for index in range(counts[topic]))
    assert all(topic in members[member_id].topics for member_id, each in assigned.items() for topic in each)
    assert all(indexes for each in assigned.values() for indexes in each.values())


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
    counts = {topic_id(number): draw(st.integers(1, 9)) for number in range(1, draw(st.integers(1, 5)) + 1)}
    some = st.lists(st.sampled_from(sorted(counts)), unique=True).map(lambda topics: tuple(sorted(topics)))
    shared = draw(some)
    members = {
        f"m{place}": MemberSpec(
            f"i{place}" if draw(st.booleans()) else None,
            shared if alike else draw(st.one_of(some, st.just(shared))),
            {},
        )
        for place in range(draw(st.integers(1, 7)))
    }
    return members, counts


@pytest.mark.parametrize("name", ASSIGNORS)
@given(first=groups(), data=st.data())
def test_every_partition_has_one_owner_that_subscribes_to_it(
    name: str, first: tuple[dict[str, MemberSpec], dict[bytes, int]], data: st.DataObject
) -> None:
    assign = ASSIGNORS[name]
    members, counts = first
    before = assign(members, counts)
    assert_valid(members, counts, before)
    # Some members leave, some change their subscription, some join, and topics grow.
    changed = specs(members, before)
    for member_id in data.draw(st.lists(st.sampled_from(sorted(changed)), unique=True)):
        del changed[member_id]
    some = st.lists(st.sampled_from(sorted(counts)), unique=True).map(lambda topics: tuple(sorted(topics)))
    for member_id in sorted(changed):
        if data.draw(st.booleans()):
            changed[member_id] = changed[member_id]._replace(topics=data.draw(some))
    changed["new"] = MemberSpec(None, data.draw(some), {})
    counts = {topic: count + data.draw(st.integers(0, 3)) for topic, count in counts.items()}
    assert_valid(changed, counts, assign(changed, counts))


@given(groups(alike=True), st.integers(0, 6))
def test_uniform_is_even_and_moves_no_more_than_it_must(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]], leaver: int
) -> None:
    members, counts = group
    before = assign_uniform(members, counts)
    assert max(sizes(before)) - min(sizes(before)) <= 1
    again = assign_uniform(specs(members, before), counts)
    assert again == before, "nothing has changed, so nothing moves"
    if len(members) == 1:
        return
    gone = list(members)[leaver % len(members)]
    left = {member_id: spec for member_id, spec in specs(members, before).items() if member_id != gone}
    after = assign_uniform(left, counts)
    assert max(sizes(after)) - min(sizes(after)) <= 1
    for member_id in left:
        kept = sum(
            len(before[member_id][topic] & after[member_id].get(topic, frozenset())) for topic in before[member_id]
        )
        assert kept == min(sum(map(len, before[member_id].values())), sum(map(len, after[member_id].values())))


@given(groups())
def test_uniform_is_even_between_members_that_could_swap(group: tuple[dict[str, MemberSpec], dict[bytes, int]]) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    size = dict(zip(members, sizes(assigned), strict=True))
    for rich, owned in assigned.items():
        for poor, spec in members.items():
            if any(topic in spec.topics for topic in owned):
                assert size[rich] - size[poor] <= 1, "one partition could have moved"


@given(groups())
def test_range_assigns_runs_of_neighboring_partitions_of_nearly_equal_length(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, counts = group
    assigned = assign_range(members, counts)
    for topic in counts:
        shares = [assigned[each].get(topic, frozenset()) for each, spec in members.items() if topic in spec.topics]
        assert all(share == frozenset(range(min(share), max(share) + 1)) for share in shares if share)
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1


def test_range_assigns_the_same_run_of_topics_with_equal_subscribers() -> None:
    topics = (topic_id(1), topic_id(2))
    members = {member_id: MemberSpec(None, topics, {}) for member_id in ("a", "b", "c")}
    assigned = assign_range(members, dict.fromkeys(topics, 7))
    assert all(each[topics[0]] == each[topics[1]] for each in assigned.values())


def test_uneven_subscriptions_are_balanced() -> None:
    counts = {topic_id(1): 6, topic_id(2): 3}
    both = (topic_id(1), topic_id(2))
    members = {
        "a": MemberSpec(None, both, {topic_id(1): frozenset(range(6)), topic_id(2): frozenset(range(3))}),
        "b": MemberSpec(None, (topic_id(1),), {}),
        "c": MemberSpec(None, both, {}),
    }
    assert sorted(sizes(assign_uniform(members, counts))) == [3, 3, 3]


@pytest.mark.jvm
def test_kafka_assigns_the_same() -> None:
    questions = random_groups(848)
    answers = kafka_assigns.ask(questions)
    assert len(answers) == len(questions)
    for question, theirs in zip(questions, answers, strict=True):
        ours = ASSIGNORS[question.assignor](question.members, question.counts)
        assert {member_id: text(each) for member_id, each in ours.items()} == theirs, question.line()
