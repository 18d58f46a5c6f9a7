"""A member of a group in a process of its own, so that a test can end it as a crash does.

    python group_member.py BOOTSTRAP GROUP TOPIC [INSTANCE]

It prints a line for each assignment, and rejoins whenever it has to. It ends with SIGKILL only.
"""

from __future__ import annotations

import sys

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.group.group_protocol import MemberSubscription
from odradek.streams.group.membership import Assigned, GroupMember, MembershipConfig, RebalanceNeeded

PARTITIONS = 4


def deal(topic: str, members: dict[str, MemberSubscription]) -> dict[str, tuple[list[TopicPartition], bytes]]:
    """The partitions in turn, to members in the order of their user data."""
    names = sorted(members, key=lambda name: (members[name].userdata, name))
    return {
        name: (
            [(topic, part) for part in range(PARTITIONS) if part % len(names) == number],
            b"to " + members[name].userdata,
        )
        for number, name in enumerate(names)
    }


def main(bootstrap: str, group: str, topic: str, instance: str | None = None) -> None:
    config = MembershipConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance,
        session_timeout_ms=1_500,
        heartbeat_interval_ms=100,
    )
    member = GroupMember(config, lambda: ([topic], b"process"), lambda members: deal(topic, members))
    member.rejoin()
    while True:
        event = member.poll(1.0)
        if isinstance(event, RebalanceNeeded):
            member.rejoin()
        elif isinstance(event, Assigned):
            print(event.generation, *(part for _, part in event.partitions), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
