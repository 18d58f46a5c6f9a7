"""Groups for the assignors of the consumer protocol."""

from __future__ import annotations

import random
from collections.abc import Mapping

from odradek.broker.group.state.consumer_assignors import ASSIGNORS, Assignment, MemberSpec
from tests.machines.kafka_assigns import Question, topic_id


def specs(members: Mapping[str, MemberSpec], assigned: Mapping[str, Assignment]) -> dict[str, MemberSpec]:
    """The members, owning the partitions assigned to them."""
    return {member_id: spec._replace(owned=assigned[member_id]) for member_id, spec in members.items()}


def random_groups(seed: int) -> list[Question]:
    """Fresh groups, and the assignments after members join, leave and change their subscriptions."""
    source = random.Random(seed)
    questions = []
    for _ in range(150):
        counts = {topic_id(number): source.randint(1, 12) for number in range(1, source.randint(2, 6))}
        alike = source.random() < 0.5
        shared = tuple(sorted(source.sample(sorted(counts), source.randint(1, len(counts)))))
        members: dict[str, MemberSpec] = {}
        for place in range(source.randint(1, 8)):
            topics = tuple(sorted(source.sample(sorted(counts), source.randint(1, len(counts)))))
            instance = f"i{source.randint(0, 99)}-{place}" if source.random() < 0.3 else None
            members[f"m{place}"] = MemberSpec(instance, shared if alike else topics, {})
        for name, assign in ASSIGNORS.items():
            questions.append(Question(name, members, counts))
            later = specs(members, assign(members, counts))
            for member_id in source.sample(sorted(later), source.randint(0, len(later) - 1)):
                del later[member_id]
            later[f"n{source.randint(0, 9)}"] = MemberSpec(None, shared, {})
            questions.append(Question(name, later, counts))
    return questions
