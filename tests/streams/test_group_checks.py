"""What a thread finds out about its group and its topics without waiting: deleted topics, members it waits for, and the
reasons of the leader.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from odradek.streams.errors import MissingSourceTopicError, StreamsError
from odradek.streams.group.subscription_info import (
    ASSIGNMENT_ERROR,
    INCOMPLETE_SOURCE_TOPIC_METADATA,
    AssignmentInfo,
)
from odradek.streams.running.join_watch import FIRST_S, JoinWatch
from odradek.streams.running.source_topics import AGAIN_S, ANSWER_S, ANSWERS, PAUSE_S, SourceTopicCheck
from odradek.streams.running.subscription import check_assignment


class ScriptedAdmin:
    """Collects requests; the test answers them."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Future[Any]]] = []

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.requests.append({name: Future() for name in topics.topic_names})
        return self.requests[-1]

    def describe_consumer_groups(self, groups: list[str], **_: Any) -> dict[str, Future[Any]]:
        self.requests.append({name: Future() for name in groups})
        return self.requests[-1]

    @property
    def topics(self) -> list[str]:
        """The topics of the last request."""
        return list(self.requests[-1])

    def answer(self, **errors: int | None) -> None:
        """Answer the last request: None is a topic that exists."""
        for name, future in self.requests[-1].items():
            code = errors[name]
            if code is None:
                future.set_result(object())
            else:
                future.set_exception(KafkaException(KafkaError(code)))


@pytest.fixture
def admin() -> ScriptedAdmin:
    return ScriptedAdmin()


def check_of(admin: Any) -> SourceTopicCheck:
    return SourceTopicCheck(admin)


def test_a_topic_is_missing_after_several_answers_without_it(admin: ScriptedAdmin) -> None:
    check, now = check_of(admin), 100.0
    for number in range(ANSWERS):
        assert check.due(now)
        assert check.poll(now, {"a", "b"} if number == 0 else set()) == []
        assert len(admin.requests) == number + 1
        assert check.poll(now + ANSWER_S, set()) == []  # no answer yet
        admin.answer(**{topic: None if topic == "a" else KafkaError.UNKNOWN_TOPIC_OR_PART for topic in admin.topics})
        assert check.poll(now + 2 * ANSWER_S, set()) == (["b"] if number == ANSWERS - 1 else [])
        assert not check.due(now + 2 * ANSWER_S)
        now += 2 * ANSWER_S + AGAIN_S
    assert not check.due(now)
    assert check.due(now + PAUSE_S)


def test_a_topic_that_a_started_broker_does_not_have_yet_is_not_missing(admin: ScriptedAdmin) -> None:
    check = check_of(admin)
    for number in range(2 * ANSWERS):
        assert check.poll(float(number), {"a"}) == []
        admin.answer(a=KafkaError.UNKNOWN_TOPIC_OR_PART if number % ANSWERS else None)
        assert check.poll(number + 0.5, {"a"}) == []


def test_a_check_sends_nothing_while_it_waits_or_where_all_topics_return_records(admin: ScriptedAdmin) -> None:
    check = check_of(admin)
    assert check.poll(0.0, set()) == []
    assert not admin.requests
    assert not check.due(PAUSE_S / 2)
    for now in (1.0, 2.0, 3.0):
        assert check.poll(now, {"a"}) == []
    assert len(admin.requests) == 1
    admin.answer(a=KafkaError._TIMED_OUT)
    for now in (4.0, 5.0):
        assert check.poll(now, {"a"}) == []
    assert len(admin.requests) == 2


def test_the_log_has_the_members_for_which_a_thread_waits(admin: Any, caplog: pytest.LogCaptureFixture) -> None:
    watch = JoinWatch(admin, "thread-1", "app", 45.0)
    with caplog.at_level(logging.INFO, "odradek.streams.running.join_watch"):
        watch.poll(10.0, "")
        watch.poll(10.0 + FIRST_S - 0.1, "own")
        assert not admin.requests
        watch.poll(10.0 + FIRST_S, "own")
        members = [
            SimpleNamespace(member_id=name, client_id=f"client-{name}", host="/127.0.0.1") for name in ("own", "former")
        ]
        found = SimpleNamespace(members=members, state=SimpleNamespace(name="PREPARING_REBALANCING"))
        admin.requests[-1]["app"].set_result(found)
        watch.poll(10.1 + FIRST_S, "own")
        watch.end()
        watch.poll(90.0, "own")
    assert len(admin.requests) == 1
    (record,) = caplog.records
    text = record.getMessage()
    assert "waited_s=3 " in text
    assert "members=client-former@/127.0.0.1 (former)" in text
    assert "sessions_end=" in text


def test_a_first_start_is_no_warning(admin: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The coordinator waits for other first members for group.initial.rebalance.delay.ms, as long as the log does."""
    watch = JoinWatch(admin, "thread-1", "app", 45.0)
    with caplog.at_level(logging.INFO, "odradek.streams.running.join_watch"):
        watch.poll(10.0, "own")
        watch.poll(10.0 + FIRST_S, "own")
        found = SimpleNamespace(
            members=[SimpleNamespace(member_id="own", client_id="own", host="/127.0.0.1")],
            state=SimpleNamespace(name="PREPARING_REBALANCING"),
        )
        admin.requests[-1]["app"].set_result(found)
        watch.poll(10.1 + FIRST_S, "own")
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "without other members" in record.getMessage()


def test_the_log_has_the_reason_where_no_coordinator_answers(admin: Any, caplog: pytest.LogCaptureFixture) -> None:
    watch = JoinWatch(admin, "thread-1", "app", 45.0)
    watch.poll(10.0, "")
    watch.poll(20.0, "")
    admin.requests[-1]["app"].set_exception(KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)))
    watch.poll(20.1, "")
    assert "waiting for the group coordinator" in caplog.text
    assert "COORDINATOR_NOT_AVAILABLE" in caplog.text


def test_the_reasons_of_the_leader_reach_every_member() -> None:
    for error, kind in ((INCOMPLETE_SOURCE_TOPIC_METADATA, MissingSourceTopicError), (ASSIGNMENT_ERROR, StreamsError)):
        sent = AssignmentInfo(error=error, reason="Topics not co-partitioned: [a,b]").encode()
        with pytest.raises(kind, match="Topics not co-partitioned"):
            check_assignment(AssignmentInfo.decode(sent))
        older = AssignmentInfo(error=error).encode()  # as a leader of an earlier release sends it
        with pytest.raises(kind, match="the log of the leader's instance"):
            check_assignment(AssignmentInfo.decode(older))


def test_the_check_takes_an_admin_client() -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    check = SourceTopicCheck(admin)
    assert check.poll(0.0, {"a"}) == []  # the request is one that the client accepts
    assert check.poll(1.0, {"a"}) == []
