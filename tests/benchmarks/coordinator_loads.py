"""Loads on the coordinators: transactions and offset commits by Kafka's own clients, a large group that rebalances.

CoordinatorLoad.java does the first two. The group is made of bare connections, since 200 consumers in Java would take
the whole machine; every member sends JoinGroup and SyncGroup as a consumer of the classic protocol does, all at once,
and the time of a rebalance is from the first JoinGroup sent to the last assignment received.
"""

from __future__ import annotations

import asyncio
import statistics
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from tests.benchmarks.cases import RECORDS_IN_A_TRANSACTION, Case
from tests.benchmarks.perf_tools import JAVA_OPTIONS, TIMEOUT_S, VERSION, Outcome, UnreadableOutputError
from tests.jvm.process import java_command, run_java

CONSUMERS: Final = 8
MEMBERS: Final = 200
JOIN_VERSION: Final = 7
SYNC_VERSION: Final = 5
FIND_VERSION: Final = 3
SUBSCRIPTION_VERSION: Final = 1
_MIB: Final = 1024 * 1024


def transactions(case: Case, bootstrap: str, topic: str, records_in_each: int = RECORDS_IN_A_TRANSACTION) -> Outcome:
    """Write `topic` in transactions, one after the other. Latencies are a transaction's. Raises ToolError."""
    return _run(case, ["transactions", bootstrap, topic], [str(case.record_bytes), str(records_in_each)])


def commits(case: Case, bootstrap: str, topic: str) -> Outcome:
    """Commit offsets for `topic`, synchronously, by several consumers at once. Raises ToolError."""
    return _run(case, ["commits", bootstrap, topic], [str(CONSUMERS)])


def rebalances(case: Case, bootstrap: str, group: str) -> Outcome:
    """Have a group of MEMBERS rebalance until `case.records` members have joined. Latencies are a rebalance's."""
    seconds = asyncio.run(_rebalance(bootstrap, group, -(-case.records // MEMBERS)))
    return summed_up(case, len(seconds) * MEMBERS, sum(seconds), [each * 1000 for each in seconds])


def summed_up(case: Case, count: int, elapsed_s: float, times_ms: Sequence[float]) -> Outcome:
    """The sample for `count` operations in `elapsed_s`."""
    ordered = sorted(times_ms)
    rate = count / elapsed_s
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    return Outcome(count, rate, rate * case.record_bytes / _MIB, statistics.mean(ordered), p50, p99)


def read_load(printed: str, case: Case) -> Outcome:
    """The last line of CoordinatorLoad.java. Raises UnreadableOutputError."""
    try:
        count, elapsed_s, average, p50, p99 = map(float, printed.splitlines()[-1].split())
    except (IndexError, ValueError):
        raise UnreadableOutputError(f"no summary from CoordinatorLoad:\n{printed[-2000:]}") from None
    rate = count / elapsed_s
    return Outcome(int(count), rate, rate * case.record_bytes / _MIB, average, p50, p99)


def _run(case: Case, where: Sequence[str], more: Sequence[str]) -> Outcome:
    program = str(Path(__file__).with_name("CoordinatorLoad.java"))
    command = java_command(VERSION, program, [*where, str(case.records), *more], JAVA_OPTIONS)
    return read_load(run_java(command, timeout_s=TIMEOUT_S).stdout, case)


class Member:
    """A member of the group, on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, group: str) -> None:
        self._reader = reader
        self._writer = writer
        self._group = group
        self._id = ""
        self._number = 0

    @classmethod
    async def connect(cls, bootstrap: str, group: str) -> Member:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)), group)

    async def await_coordinator(self) -> None:
        """Wait until the group has a coordinator; the broker may have to create its topic first."""
        request = m.FindCoordinatorRequest(key=self._group, key_type=0)
        async with asyncio.timeout(TIMEOUT_S):
            while (await self._ask(request, FIND_VERSION)).error_code != ErrorCode.NONE:
                continue

    async def take_part(self, rebalance: int) -> None:
        """Join, assign if this member leads, and get the own assignment; repeat until all MEMBERS are in the group.

        An assignment contains the number of members. The subscription changes with each `rebalance`, so that the first
        member that joins starts the rebalance, and the coordinator cannot answer the others that nothing has changed.
        """
        while True:
            joined = await self._join(_subscription(b"%50d" % rebalance))
            count = b"%50d" % len(joined.members)
            assignments = [
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=each.member_id, assignment=count)
                for each in joined.members
            ]
            request = m.SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
            answer = await self._ask(request, SYNC_VERSION)
            if answer.error_code == ErrorCode.NONE and int(bytes(answer.assignment)) == MEMBERS:
                return
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                raise RuntimeError(f"SyncGroup: {ErrorCode(answer.error_code).name}")

    def close(self) -> None:
        self._writer.close()

    async def _join(self, subscription: bytes) -> m.JoinGroupResponse:
        while True:
            protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)
            request = m.JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self._id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer: m.JoinGroupResponse = await self._ask(request, JOIN_VERSION)
            if answer.error_code == ErrorCode.NONE:
                self._id = answer.member_id
                return answer
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise RuntimeError(f"JoinGroup: {ErrorCode(answer.error_code).name}")
            self._id = answer.member_id

    async def _ask(self, request: Any, version: int) -> Any:
        key = type(request).API_KEY
        self._number += 1
        self._writer.write(frame(request_header(key, version, self._number, "bench"), request.encode(version)))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        data = await self._reader.readexactly(size)
        response = m.response_class(key)
        return response.decode(data, version, 5 if version >= response.FIRST_FLEXIBLE else 4)


def _subscription(user_data: bytes) -> bytes:
    """The metadata of a consumer's JoinGroup. A broker parses it; Kafka never answers where it cannot parse it."""
    subscription = m.ConsumerProtocolSubscription(topics=["subscribed"], user_data=user_data)
    return struct.pack(">h", SUBSCRIPTION_VERSION) + subscription.encode(SUBSCRIPTION_VERSION)


async def _rebalance(bootstrap: str, group: str, times: int) -> list[float]:
    """The seconds that each of this many rebalances took, after the first one, in which the members join."""
    members = [await Member.connect(bootstrap, group) for _ in range(MEMBERS)]
    try:
        await members[0].await_coordinator()
        seconds = []
        async with asyncio.timeout(TIMEOUT_S):
            for number in range(times + 1):
                began = time.perf_counter()
                await asyncio.gather(*(member.take_part(number) for member in members))
                seconds.append(time.perf_counter() - began)
        return seconds[1:]
    finally:
        for member in members:
            member.close()
