"""Regular expressions of a group of the consumer protocol over very many topics are looked up apart from requests.

Work is counted in calls of Python functions, which do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from odradek.broker.coordinator import event_processor
from odradek.broker.group.state import consumer_group_expressions
from tests.machines.consumer_harness import Client, facts, membership, reloaded, settle
from tests.machines.stepwise import Stepwise, large
from tests.support.call_counter import CallCounter

TOPICS = 700
ONES = "t1[0-9]*"
MOST_CALLS = 1200
"""Less than a millisecond."""


def topics_of(client: Client) -> set[str]:
    return {name for name, _ in client.owned}


def with_prefix(prefix: str) -> set[str]:
    return {f"t{number}" for number in range(TOPICS) if f"t{number}".startswith(prefix)}


def work(harness: Stepwise) -> None:
    while harness.works:
        harness.step()


@pytest.fixture
def harness() -> Stepwise:
    return large(TOPICS)


def test_a_member_receives_the_topics_that_match_with_a_later_heartbeat(harness: Stepwise) -> None:
    client = Client(harness, "a", expression=ONES)
    result = client.beat()
    assert result is not None
    assert not result.error
    assert topics_of(client) == set()
    assert membership(harness).group_members.resolved == {}
    work(harness)
    client.beat()
    assert topics_of(client) == with_prefix("t1")
    assert facts(membership(harness).group_members) == facts(reloaded(harness))


def test_the_result_is_that_of_a_lookup_with_the_request(harness: Stepwise, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = large(TOPICS)
    expressions = [ONES, "t[23].*", "none", "t.*9"]
    for each, limit in ((harness, consumer_group_expressions.AT_ONCE), (at_once, TOPICS * len(expressions))):
        monkeypatch.setattr(consumer_group_expressions, "AT_ONCE", limit)
        clients = [Client(each, f"m{number}", expression=found) for number, found in enumerate(expressions)]
        for client in clients:
            client.beat()
        work(each)
        settle(each, *clients)
        work(each)
        settle(each, *clients)
    apart, together = membership(harness).group_members, membership(at_once).group_members
    assert {each: found.topics for each, found in apart.resolved.items()} == {
        each: found.topics for each, found in together.resolved.items()
    }
    assert {each: set(found) for each, found in apart.targets.items()} == {
        each: set(found) for each, found in together.targets.items()
    }


def test_topics_that_are_created_meanwhile_are_found_by_the_next_lookup(harness: Stepwise) -> None:
    client = Client(harness, "a", expression="t1|new")
    client.beat()
    harness.topics.put("new", 1)
    work(harness)
    client.beat()
    assert topics_of(client) == {"t1"}
    work(harness)
    client.beat()
    assert topics_of(client) == {"t1", "new"}


def test_an_expression_to_which_no_member_subscribes_any_more_is_not_written(harness: Stepwise) -> None:
    stays, leaves = Client(harness, "a", expression="t1"), Client(harness, "b", expression=ONES)
    stays.beat()
    work(harness)
    stays.beat()
    leaves.beat()
    leaves.leave()
    work(harness)
    assert set(membership(harness).group_members.resolved) == {"t1"}
    stays.beat()
    assert topics_of(stays) == {"t1"}


def test_a_failover_ends_a_lookup_and_the_next_heartbeat_begins_another(harness: Stepwise) -> None:
    client = Client(harness, "a", expression=ONES)
    client.beat()
    harness.fail_over()
    work(harness)
    assert membership(harness).group_members.resolved == {}
    client.beat()
    work(harness)
    client.beat()
    assert topics_of(client) == with_prefix("t1")


def test_no_event_of_many_expressions_takes_long(harness: Stepwise, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new topic has every expression looked up, by one heartbeat: seconds, with thousands of topics."""
    counter = CallCounter()

    def counted(items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            counter.step()
            yield item

    clients = [Client(harness, f"m{number}", expression=f"t{number}") for number in range(20)]
    for client in clients:
        client.beat()
    work(harness)
    harness.topics.put("new", 1)
    monkeypatch.setattr(event_processor, "items_of", counted)
    with counter.counting():
        clients[0].beat()
        counter.step()
        work(harness)
    assert counter.most < MOST_CALLS
    assert len(membership(harness).group_members.resolved) == len(clients)
