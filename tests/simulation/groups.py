"""Members of a consumer group of KIP-848 in a simulated cluster, and the checks of its offsets (G1).

Members join, heartbeat, revoke the partitions that the coordinator revokes before they acknowledge it, commit offsets
of what they own, leave and come back. At no time do two of them own one partition, and in the end the committed offsets
of the group are those of the owners' acknowledged commits, or of commits without a response.

When a member joins, heartbeats of the others arrive that they had sent two epochs ago or earlier, when they owned
nothing. (With one of the last epoch the protocol itself fails: the heartbeat might be the repetition of one whose
response was lost.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.simulation.clients import BACKOFF_S, Client, Connection, History, LostError
from tests.simulation.network import Network

GROUP: Final = "readers"
TOPIC: Final = "t"
AWAY_S: Final = 0.8
"""The longest time that a member stays away, so that the others own everything for a while."""
FULL: Final = 0.5
"""How often a heartbeat carries every field although nothing changed."""
LEAVES: Final = 0.05
"""How often a member leaves in place of a heartbeat."""
AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
GONE: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})


@dataclass
class GroupHistory:
    """The owner of each partition, and its committed offsets."""

    owners: dict[int, str] = field(default_factory=dict)
    """By partition."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The last offset that was acknowledged, by partition."""
    unknown: dict[int, set[int]] = field(default_factory=dict)
    """Offsets whose commits had no response: whether they were committed is unknown."""
    taken: int = 0
    commits: int = 0
    judged: int = 0
    """How often the group's committed offsets were compared with this."""
    on_join: list[Callable[[str], None]] = field(default_factory=list)
    """Notified of each member that has just joined."""

    def take(self, member: str, partition: int) -> None:
        """A member begins to own a partition."""
        owner = self.owners.setdefault(partition, member)
        assert owner == member, f"G1: {member} is assigned partition {partition}, which {owner} has not revoked"
        self.taken += 1

    def give_up(self, member: str, partition: int) -> None:
        """A member no longer owns a partition."""
        if self.owners.get(partition) == member:
            del self.owners[partition]

    def judge(self, partition: int, offset: int) -> None:
        """Check the offsets that the group has in the end."""
        possible = {self.acknowledged.get(partition, -1)} | self.unknown.get(partition, set())
        assert offset in possible, (
            f"G1: the group has offset {offset} of partition {partition}, it can only be one of {sorted(possible)}"
        )


class GroupMember(Client):
    """A consumer."""

    def __init__(
        self, network: Network, random: Random, history: History, bootstrap: list[tuple[str, int]], name: str
    ) -> None:
        """The name that the member uses as a client."""
        super().__init__(network, random, history, bootstrap, name)
        self._stray = Connection(network, self.owner)
        self._strays: list[m.ConsumerGroupHeartbeatRequest] = []
        self._previous_epoch = 0

    async def run(self, history: GroupHistory) -> None:
        self._group = history
        history.on_join.append(self._someone_joins)
        self._coordinator: tuple[str, int] | None = None
        self._lives = 0
        self._begin()
        while not self.stopped:
            if self.random.random() < LEAVES and self._epoch > 0:
                await self._leave()
            else:
                await self._heartbeat()
            if self._owned and self.random.random() < 0.5:
                await self._commit(self.random.choice(sorted(self._owned)))
            await asyncio.sleep(0.05 + self.random.random() * 0.1)

    def _begin(self) -> None:
        self._lives += 1
        self._member = f"{self.owner.name}-{self._lives}"
        self._topic_id = bytes(16)
        self._drop()

    def _drop(self) -> None:
        for partition in sorted(getattr(self, "_owned", ())):
            self._group.give_up(self._member, partition)
        self._owned: set[int] = set()
        self._epoch = 0
        self._tells = True
        self._strays.clear()

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
            self._tells = True  # the coordinator may have received it, or not: send every field once more
            return None

    async def _heartbeat(self) -> None:
        joins = self._epoch == 0
        self._tells = self._tells or self.random.random() < FULL
        owned = [
            m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._topic_id, partitions=sorted(self._owned))
        ]
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member,
            member_epoch=self._epoch,
            rebalance_timeout_ms=20_000 if joins or self._tells else -1,
            subscribed_topic_names=[TOPIC] if joins or self._tells else None,
            topic_partitions=(owned if self._owned else []) if joins or self._tells else None,
        )
        self._tells = False
        answer = await self._ask(request, 1)
        if answer is None:
            self._tells = True
            return
        code = ErrorCode(answer.error_code)
        if code in AGAIN:
            self._coordinator = None
            self._tells = True
        elif code in GONE:
            self._drop()
        else:
            assert code is ErrorCode.NONE, f"a heartbeat of {self._member} in epoch {self._epoch}: {code.name}"
            if answer.member_epoch != self._epoch:
                self._previous_epoch, self._epoch = self._epoch, answer.member_epoch
            if answer.assignment is not None:
                self._take(answer.assignment)
            if not joins and request.topic_partitions == []:
                self._strays.append(request)
            if joins:
                for notified in self._group.on_join:
                    notified(self._member)

    def _someone_joins(self, member: str) -> None:
        old = [each for each in self._strays if each.member_epoch < self._previous_epoch]
        if old and member != self._member and self._coordinator is not None:
            asyncio.get_running_loop().create_task(self._send_stray(old[-1], self._coordinator))

    async def _send_stray(self, request: m.ConsumerGroupHeartbeatRequest, coordinator: tuple[str, int]) -> None:
        with contextlib.suppress(LostError):
            await self._stray.ask(coordinator, request, 1)

    def _take(self, assignment: Any) -> None:
        target: set[int] = set()
        for topic in assignment.topic_partitions:
            self._topic_id = topic.topic_id
            target |= set(topic.partitions)
        for partition in sorted(self._owned - target):
            self._group.give_up(self._member, partition)
        for partition in sorted(target - self._owned):
            self._group.take(self._member, partition)
        if target != self._owned:
            self._owned = target
            self._tells = True

    async def _leave(self) -> None:
        member, self._epoch = self._member, -1
        for partition in sorted(self._owned):
            self._group.give_up(member, partition)
        self._owned = set()
        while not self.stopped:
            request = m.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=-1)
            answer = await self._ask(request, 1)
            code = ErrorCode(answer.error_code) if answer is not None else ErrorCode.REQUEST_TIMED_OUT
            if code not in AGAIN:
                break
            self._coordinator = None
            await asyncio.sleep(BACKOFF_S)
        await asyncio.sleep(self.random.random() * AWAY_S)
        self._begin()

    async def _commit(self, partition: int) -> None:
        self._group.commits += 1
        offset = self._group.commits
        entry = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = m.OffsetCommitRequest(
            group_id=GROUP,
            member_id=self._member,
            generation_id_or_member_epoch=self._epoch,
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[entry])],
        )
        unknown = self._group.unknown.setdefault(partition, set())
        unknown.add(offset)
        answer = await self._ask(request, 9)
        if answer is None:
            return
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            unknown.discard(offset)
            self._group.acknowledged[partition] = max(offset, self._group.acknowledged.get(partition, -1))
        elif code in GONE:
            unknown.discard(offset)
        else:
            assert code in AGAIN, f"a commit of {self._member} in epoch {self._epoch}: {code.name}"
            self._coordinator = None

    async def fetch_offsets(self, partitions: list[int], done: Callable[[dict[int, int]], None]) -> None:
        """Fetch the group's committed offsets."""
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        request = m.OffsetFetchRequest(groups=[group], require_stable=True)
        while True:
            answer = await self._ask(request, 8)
            found = answer.groups[0] if answer is not None else None
            if found is not None and not found.error_code:
                break
            self._coordinator = None
            await asyncio.sleep(BACKOFF_S)
        done({each.partition_index: each.committed_offset for each in found.topics[0].partitions})
