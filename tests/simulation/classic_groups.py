"""Members of a group of the classic protocol in a simulated cluster, and the check of its offsets (G1).

The members are static (KIP-345), so that a lost answer leaves no orphaned member behind, and never leave: the group has
members from its first commit on, and subscribes to the topic. Its offsets therefore never expire, although each commit
asks for the shortest retention there is (OffsetCommit 4), also while the group is between two generations
(KAFKA-13636).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.simulation.clients import BACKOFF_S, Client, LostError
from tests.simulation.groups import TOPIC, GroupHistory

GROUP: Final = "classics"
SESSION_MS: Final = 600_000
RETENTION_MS: Final = 300
CHANGES: Final = 0.06
"""How often a member has other metadata, so that the group rebalances."""
ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
NO_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
REJOIN: Final = NO_MEMBER | {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class ClassicMember(Client):
    """A consumer; the member to which the leader assigns the one partition commits its offsets."""

    async def run(self, history: GroupHistory) -> None:
        self._group = history
        self._coordinator: tuple[str, int] | None = None
        self._member_id = ""
        self._generation = -1
        self._changes = 0
        self._owns = False
        while not self.stopped:
            if self._generation < 0:
                await self._join()
            else:
                await self._beat()
                if self._owns and self._generation >= 0:
                    await self._commit()
                if self.random.random() < CHANGES:
                    self._changes += 1
                    self._generation = -1
            await asyncio.sleep(0.05 + self.random.random() * 0.1)

    async def _ask(self, request: Any, version: int) -> Any:
        """The coordinator's response, None where there is none."""
        if self._coordinator is None:
            find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
            try:
                found = (await self.connection.ask(self.anybody(), find, 4)).coordinators[0]
            except LostError:
                return None
            if found.error_code:
                return None
            self._coordinator = (found.host, found.port)
        try:
            return await self.connection.ask(self._coordinator, request, version)
        except LostError:
            self._coordinator = None
            return None

    def _refused(self, answer: Any, error_code: int) -> bool:
        """Whether the request failed; drops the coordinator, the member id or the generation that the error
        invalidates.
        """
        code = ErrorCode(error_code) if answer is not None else ErrorCode.REQUEST_TIMED_OUT
        if code is ErrorCode.NONE:
            return False
        assert code in ELSEWHERE | REJOIN, f"G1: {self.owner.name} of the group {GROUP}: {code.name}"
        if code in ELSEWHERE:
            self._coordinator = None
        if code in NO_MEMBER:
            self._member_id = ""
        if code in REJOIN:
            self._generation = -1
        return True

    async def _join(self) -> None:
        subscription = m.ConsumerProtocolSubscription(topics=[TOPIC], user_data=f"{self._changes}".encode())
        data = b"\0\0" + subscription.encode(0)
        join = m.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._member_id,
            group_instance_id=self.owner.name,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=data)],
        )
        answer = await self._ask(join, 5)
        if self._refused(answer, answer.error_code if answer is not None else 0):
            return
        self._member_id, generation = answer.member_id, answer.generation_id
        shares = []
        for place, each in enumerate(sorted(answer.members, key=lambda each: each.group_instance_id or "")):
            share = m.SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=each.member_id, assignment=b"\1" if place == generation % len(answer.members) else b"\0"
            )
            shares.append(share)
        sync = m.SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=self._member_id,
            group_instance_id=self.owner.name,
            assignments=shares,
        )
        answer = await self._ask(sync, 3)
        if self._refused(answer, answer.error_code if answer is not None else 0):
            return
        self._generation, self._owns = generation, bytes(answer.assignment) == b"\1"
        self._group.taken += self._owns

    async def _beat(self) -> None:
        request = m.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.owner.name,
        )
        answer = await self._ask(request, 3)
        self._refused(answer, answer.error_code if answer is not None else 0)

    async def _commit(self) -> None:
        self._group.commits += 1
        offset = self._group.commits
        entry = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = m.OffsetCommitRequest(
            group_id=GROUP,
            member_id=self._member_id,
            generation_id_or_member_epoch=self._generation,
            retention_time_ms=RETENTION_MS,
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[entry])],
        )
        unknown = self._group.unknown.setdefault(0, set())
        unknown.add(offset)
        answer = await self._ask(request, 4)
        code = answer.topics[0].partitions[0].error_code if answer is not None else 0
        if self._refused(answer, code):
            if code in REJOIN:
                unknown.discard(offset)
            return
        unknown.discard(offset)
        self._group.acknowledged[0] = max(offset, self._group.acknowledged.get(0, -1))

    async def finish(self) -> None:
        """Compare the offsets that the group has in the end with the responses that its members received."""
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        request = m.OffsetFetchRequest(groups=[group], require_stable=True)
        while True:
            answer = await self._ask(request, 8)
            found = answer.groups[0] if answer is not None else None
            if found is not None and not found.error_code and not found.topics[0].partitions[0].error_code:
                break
            self._coordinator = None
            await asyncio.sleep(BACKOFF_S)
        self._group.judge(0, found.topics[0].partitions[0].committed_offset)
        self._group.judged += 1
