"""A plain OffsetCommit request has the same response, and gives the group the same entries, as any other."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis.offset_commit import OffsetCommit
from odradek.broker.group.state.offsets import CommitRequest
from odradek.broker.security.auth_helper import AuthHelper
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

CODES = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NOT_COORDINATOR)
Topic = m.OffsetCommitRequest.OffsetCommitRequestTopic
Partition = m.OffsetCommitRequest.OffsetCommitRequestPartition


class Group:
    """Stores at once, or answers with codes: at once, or when the test calls `waiting`."""

    def __init__(self, outcome: str, codes: list[ErrorCode]) -> None:
        self.requests: list[CommitRequest] = []
        self.waiting: Callable[[], None] | None = None
        self._outcome = outcome
        self._codes = codes

    def commit_at_once(self, _group_id: str, request: CommitRequest) -> bool:
        self.requests.append(request)
        return self._outcome == "stored"

    def commit(self, _group_id: str, request: CommitRequest, answer: Callable[[list[ErrorCode]], None]) -> None:
        self.requests.append(request)
        codes = [self._codes[number % len(self._codes)] for number in range(len(request.entries))]
        if self._outcome == "late":
            self.waiting = lambda: answer(codes)
        else:
            answer(codes)


def random_request(rng: random.Random) -> m.OffsetCommitRequest:
    """Most requests have one topic that exists; some name a partition or a topic twice, or one that does not exist."""
    topics = [
        Topic(
            name=rng.choice(("t", "t", "t", "u", "absent")),
            partitions=[
                Partition(
                    partition_index=rng.choice((0, 1, 2, 2, 3, -1)) if rng.random() < 0.3 else number,
                    committed_offset=rng.randint(0, 9),
                    committed_leader_epoch=rng.randint(-1, 2),
                    committed_metadata=rng.choice((None, "", "m")),
                    commit_timestamp=-1 if rng.random() < 0.9 else 5,
                )
                for number in range(rng.randint(0, 3))
            ],
        )
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2)))
    ]
    return m.OffsetCommitRequest(
        group_id="g",
        member_id=rng.choice(("", "member")),
        generation_id_or_member_epoch=rng.randint(-1, 3),
        retention_time_ms=-1 if rng.random() < 0.9 else 7,
        topics=topics,
    )


def outcome_of(request: m.OffsetCommitRequest, version: int, outcome: str, codes: list[ErrorCode]) -> tuple[Any, ...]:
    group, replies = Group(outcome, codes), list[Any]()
    cache = SimpleNamespace(topics={name: SimpleNamespace(partitions=range(3)) for name in "tu"}, name_of=lambda _: "t")
    call: Any = SimpleNamespace(version=version, reply=replies.append, connection=SimpleNamespace(is_closed=False))
    handler = OffsetCommit(group, cache, SimpleNamespace(now_ms=lambda: 99), AuthHelper())  # type: ignore[arg-type]
    response = handler.handle(call, request)
    if group.waiting is not None:
        assert response is None
        group.waiting()
        (response,) = replies
    assert response is not None
    return response, group.requests


def test_both_paths_have_the_same_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, plain = random.Random(24), 0
    way = OffsetCommit._plain_commit
    for _ in range(600):
        request, version = random_request(rng), rng.choice((2, 8, 8, 9, 10))
        outcome, codes = rng.choice(("stored", "answered", "late")), [rng.choice(CODES) for _ in range(3)]
        found = outcome_of(request, version, outcome, codes)
        with monkeypatch.context() as patched:
            patched.setattr(OffsetCommit, "_plain_commit", lambda *_: None)
            assert found == outcome_of(request, version, outcome, codes), request
        seen = SimpleNamespace(version=version)
        handler = OffsetCommit(
            Group("stored", []),  # type: ignore[arg-type]
            SimpleNamespace(topics={name: SimpleNamespace(partitions=range(3)) for name in "tu"}),  # type: ignore[arg-type]
            SimpleNamespace(now_ms=lambda: 99),
            AuthHelper(),
        )
        plain += way(handler, seen, request) is not None  # type: ignore[arg-type]
    assert 100 < plain < 500
