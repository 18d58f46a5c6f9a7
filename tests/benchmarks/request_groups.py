"""Small requests of the members of groups: heartbeats, commits, and rebalances of many members."""

from __future__ import annotations

import selectors
import socket
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header, response_header
from odradek.wire import parse_address
from tests.benchmarks.crowd_loads import TIMEOUT_S
from tests.benchmarks.request_loads import Prepared, ask_ready, prepared

SESSION_TIMEOUT_MS: Final = 600_000
JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
GROUP: Final = 0
"""The type of a coordinator's key."""


def find_coordinator(bootstrap: str, topic: str, number: int) -> Prepared:
    """The coordinator of one group."""
    group = f"{topic}-{number}"
    ask_ready(bootstrap, m.FindCoordinatorRequest(key=group), 3)
    return prepared(m.FindCoordinatorRequest(coordinator_keys=[group]), 4)


def heartbeat(bootstrap: str, topic: str, number: int) -> Prepared:
    """A heartbeat of the only member of a classic group."""
    group = f"{topic}-{number}"
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        protocol_type="consumer",
        protocols=[protocol],
    )
    find_coordinator(bootstrap, topic, number)
    joined = ask_ready(bootstrap, join, 3)
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
    generation = joined.generation_id
    sync = m.SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=joined.member_id, assignments=[assignment]
    )
    ask_ready(bootstrap, sync, 2)
    beat = m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=joined.member_id)
    return prepared(beat, 4)


def offset_commit(bootstrap: str, topic: str, number: int) -> Prepared:
    """The offset of one partition, of a group without members."""
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = m.OffsetCommitRequest(group_id=f"{topic}-{number}", generation_id_or_member_epoch=-1, topics=topics)
    find_coordinator(bootstrap, topic, number)
    ask_ready(bootstrap, request, 7, lambda answer: answer.topics[0].partitions[0].error_code)
    return prepared(request, 8)


def consumer_group_heartbeat(bootstrap: str, topic: str, number: int) -> Prepared:
    """A heartbeat of the only member of a group with the consumer protocol, which has its one partition."""
    group, member = f"{topic}-{number}", str(uuid.uuid4())
    find_coordinator(bootstrap, topic, number)
    join = m.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    joined = ask_ready(bootstrap, join, 1)
    owned = [
        m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
        for each in joined.assignment.topic_partitions
    ]
    if [each.partitions for each in owned] != [[0]]:
        raise RuntimeError(f"the member was assigned {joined.assignment}, and not one partition")
    has = m.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=joined.member_epoch, topic_partitions=owned
    )
    ask_ready(bootstrap, has, 1)
    beat = m.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=joined.member_epoch)
    return prepared(beat, 1)


def subscription(topic: str, user_data: bytes) -> bytes:
    """The metadata of a consumer of one topic (Kafka: ConsumerProtocolSubscription, version 0)."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(user_data)) + user_data


class Rebalances:
    """A group with the classic protocol whose members all join again, and again; each has a connection."""

    def __init__(self, bootstrap: str, topic: str, members: int) -> None:
        """Connect, and join for the first time. Raises RuntimeError for an error."""
        self._topic = topic
        self._group = f"{topic}-0"
        self._generation = self._joins = 0
        find_coordinator(bootstrap, topic, 0)
        with ExitStack() as stack:
            self._connections: list[_Connection] = []
            for _ in range(members):
                self._connections.append(_Connection(bootstrap))
                stack.callback(self._connections[-1].socket.close)
            self._members = [""] * members
            self._leader = ""
            self._gather()
            self._stack = stack.pop_all()

    def run(self, count: int) -> Mapping[str, float]:
        """Send `count` requests or some more; returns how many a second were answered. Closes the connections."""
        with self._stack:
            began, sent = time.perf_counter(), 0
            while sent < count:
                self._rebalance()
                sent += 2 * len(self._members)
            return {"requests": sent, "requests_per_s": sent / (time.perf_counter() - began)}

    def _gather(self) -> None:
        """Let the members join until one generation has all: a broker begins it with those who are there."""
        held: dict[int, Any] = {}
        """Members whose answer is of a generation whose leader's answer is still due."""
        with selectors.DefaultSelector() as selector:
            for at, connection in enumerate(self._connections):
                selector.register(connection.socket, selectors.EVENT_READ, at)
                connection.send(self._join(at), JOIN_VERSION)
            while True:
                for key, _ in selector.select(TIMEOUT_S):
                    answer = self._connections[key.data].receive(m.JoinGroupResponse, JOIN_VERSION)
                    self._members[key.data] = answer.member_id
                    if answer.error_code:  # the answer has the id with which it has to join
                        self._connections[key.data].send(self._join(key.data), JOIN_VERSION)
                    else:
                        held[key.data] = answer
                for answer in [each for each in held.values() if each.leader == each.member_id]:
                    together = [at for at, each in held.items() if each.generation_id == answer.generation_id]
                    if len(together) < len(answer.members):
                        continue  # the others' answers follow
                    if len(together) == len(self._members):
                        self._synchronize([held[at] for at in range(len(held))])
                        return
                    self._joins += 1
                    for at in together:
                        del held[at]
                        self._connections[at].send(self._join(at), JOIN_VERSION)

    def _rebalance(self) -> None:
        """One rebalance of all."""
        self._joins += 1
        joins = [self._join(at) for at in range(len(self._members))]
        self._synchronize(self._ask(joins, JOIN_VERSION))

    def _join(self, at: int) -> Any:
        """A member has other metadata than before: a broker answers one without a change at once."""
        metadata = subscription(self._topic, self._joins.to_bytes(4, "big"))
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
        return m.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self._members[at],
            protocol_type="consumer",
            protocols=[protocol],
        )

    def _synchronize(self, joined: Sequence[Any]) -> None:
        """Send the members' SyncGroup requests; the leader's comes last, so that no member is late."""
        (self._generation,) = {answer.generation_id for answer in joined}
        (self._leader,) = {answer.leader for answer in joined}
        order = sorted(range(len(joined)), key=lambda at: self._members[at] == self._leader)
        self._ask([self._sync(self._members[at]) for at in order], SYNC_VERSION, order)

    def _sync(self, member_id: str) -> Any:
        shares = self._members if member_id == self._leader else ()
        return m.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=member_id,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=b"one partition")
                for each in shares
            ],
        )

    def _ask(self, requests: Sequence[Any], version: int, order: Sequence[int] | None = None) -> list[Any]:
        """Send a request on each connection, in this order, and then read the answers."""
        connections = [self._connections[at] for at in order or range(len(requests))]
        for connection, request in zip(connections, requests, strict=True):
            connection.send(request, version)
        return [
            connection.receive(m.response_class(request.API_KEY), version)
            for connection, request in zip(connections, requests, strict=True)
        ]


class _Connection:
    """The connection of a member."""

    def __init__(self, bootstrap: str) -> None:
        self.socket = socket.create_connection(parse_address(bootstrap), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Any, version: int) -> None:
        self.socket.sendall(frame(request_header(request.API_KEY, version, 1, "bench"), request.encode(version)))

    def receive(self, response: type[Any], version: int) -> Any:
        """The next answer. Raises RuntimeError for an error other than MEMBER_ID_REQUIRED."""
        data = self._read(int.from_bytes(self._read(4), "big"))
        answer = response.decode(data, version, len(response_header(response.API_KEY, version, 0)))
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            raise RuntimeError(f"{response.__name__}: {ErrorCode(answer.error_code).name}")
        return answer

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed a connection")
            data += more
        return data
