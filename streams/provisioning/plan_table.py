"""The plan of an application's topics as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.streams.provisioning.topic_plan import PlannedTopic, TopicPlan
from odradek.streams.text_table import text_table

_HEADINGS: Final = ("TOPIC", "USE", "ACTION", "PARTITIONS", "REPLICAS", "CONFIG")
_LEFT: Final = frozenset({"TOPIC", "USE", "ACTION", "CONFIG"})


def render_plan(found: TopicPlan) -> str:
    """The tables of the plan, and below them what differs and what is wrong."""
    parts = [_table(found.topics)]
    if found.internal:
        parts.append(f"Internal topics of the application:\n{_table(found.internal)}")
    parts += [_list("Differences from the declarations:", found.differences)] if found.differences else []
    parts += [_list("Problems:", found.problems)] if found.problems else []
    return "\n\n".join(parts)


def _list(title: str, items: Sequence[str]) -> str:
    return "\n".join([title, *(f"  - {item}" for item in items)])


def _table(rows: Sequence[PlannedTopic]) -> str:
    return text_table(_HEADINGS, [_cells(row) for row in rows], _LEFT)


def _cells(row: PlannedTopic) -> list[str]:
    return [
        row.name,
        row.use,
        row.action.value,
        "-" if row.partitions is None else str(row.partitions),
        "default" if row.replication_factor is None else str(row.replication_factor),
        " ".join(f"{name}={value}" for name, value in row.config.items()),
    ]
