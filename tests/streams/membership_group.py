"""Members of one group in a test's process, and helpers that wait for their states."""

from __future__ import annotations

import time
import uuid
from typing import Any

from odradek.streams.group.membership import Assigned, GroupMember, MembershipConfig, RebalanceNeeded
from tests.streams.group_member import deal
from tests.support.eventually import eventually

DEADLINE_S = 30.0
TOPIC = "membership"


class Group:
    """Members of one group in this process, with their events."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"group-{uuid.uuid4().hex[:10]}"
        self.members: list[GroupMember] = []
        self.userdata: dict[int, bytes] = {}

    def config(self, **other: Any) -> MembershipConfig:
        times = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 50, "max_poll_interval_ms": 20_000}
        return MembershipConfig(bootstrap_servers=self.bootstrap, group_id=self.name, **(times | other))

    def member(self, userdata: bytes = b"", **other: Any) -> GroupMember:
        """One more, named in order; it has sent its JoinGroup."""
        number = len(self.members)
        self.userdata[number] = userdata or b"member %d" % number
        made = GroupMember(
            self.config(**other), lambda: ([TOPIC], self.userdata[number]), lambda members: deal(TOPIC, members)
        )
        self.members.append(made)
        made.rejoin()
        return made

    def settle(self, *members: GroupMember) -> list[Assigned]:
        """Poll until each of them has been assigned something in one and the same generation."""
        found: dict[GroupMember, Assigned] = {}

        def all_are_in() -> bool:
            for member in members:
                event = member.poll(0.01)
                if isinstance(event, RebalanceNeeded):
                    found.pop(member, None)
                    member.rejoin()
                elif event is not None:
                    found[member] = event
            return len(found) == len(members) and len({event.generation for event in found.values()}) == 1

        eventually(all_are_in)
        return [found[member] for member in members]

    def close(self) -> None:
        for member in self.members:
            member.close()


def notified(member: GroupMember, *others: GroupMember) -> RebalanceNeeded:
    """The rebalance that a member is notified of, while others poll as they have to."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for other in others:
            assert other.poll() is None
        event = member.poll(0.02)
        if event is not None:
            assert isinstance(event, RebalanceNeeded)
            return event
    raise AssertionError("no rebalance")


def numbers(event: Assigned) -> list[int]:
    assert {topic for topic, _ in event.partitions} <= {TOPIC}
    return [part for _, part in event.partitions]
