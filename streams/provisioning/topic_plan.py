"""Plan of an application's topics: what to create, what exists, and what differs from its declaration.

A plan changes nothing and needs no broker: it compares a topology with a snapshot of the cluster's topics. Existing
topics stay as they are unless a change is allowed, and no topic ever gets fewer partitions. Partition counts are those
that the topics will have, so problems of co-partitioning are found before any topic is created.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.streams.config import StreamsConfig
from odradek.streams.declared_topics import DeclaredTopic
from odradek.streams.errors import MissingSourceTopicError, TopologyError
from odradek.streams.running.internal_topics import wanted_topics
from odradek.streams.running.topic_groups import Plan, plan
from odradek.streams.topology import SinkNode, SourceNode, Topology


class TopicAction(enum.Enum):
    """What happens to a topic; the value is its text in the table."""

    CREATE = "create"
    EXISTS = "exists"
    CHANGE = "change"
    DIFFERS = "differs"
    """It exists with other settings, and stays as it is."""
    MISSING = "missing"
    """It is not declared and does not exist."""
    APPLICATION = "at the start"
    """An internal topic that the application creates when it starts."""


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic of the cluster."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """A snapshot of the cluster: its topics by name, and its defaults, None where no broker returns them."""

    topics: Mapping[str, ExistingTopic]
    default_partitions: int | None = None
    default_replication_factor: int | None = None


@dataclass(frozen=True, slots=True)
class AllowedChanges:
    """Changes of existing topics that the user allows."""

    partitions: bool = False
    config: bool = False


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One row of the plan."""

    name: str
    use: str
    """input, output, both, declared, dead letters; repartition or changelog for an internal topic."""
    action: TopicAction
    partitions: int | None
    """Those that the topic will have; None where that is not known."""
    replication_factor: int | None
    """None is the broker's default."""
    config: Mapping[str, str] = field(default_factory=dict)
    """The configs to set: of a new topic, or the changed ones."""
    notes: tuple[str, ...] = ()
    """How the topic differs from its declaration, and what to do."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topics of the user and those of the application."""

    topics: tuple[PlannedTopic, ...]
    internal: tuple[PlannedTopic, ...]
    problems: tuple[str, ...]
    """Why the application could not run with these topics: nothing is created while there is one."""

    def of(self, action: TopicAction) -> list[PlannedTopic]:
        """The topics of the user with this action."""
        return [each for each in self.topics if each.action is action]

    @property
    def differences(self) -> list[str]:
        """What stays different from the declarations."""
        return [f"{each.name} {note}" for each in self.topics for note in each.notes]


def plan_topics(
    topology: Topology, config: StreamsConfig, cluster: ClusterTopics, allowed: AllowedChanges | None = None
) -> TopicPlan:
    """Compare the topics of an application with those of the cluster. Raises nothing: problems are in the plan."""
    changes = allowed or AllowedChanges()
    uses = topic_uses(topology)
    letters: str | None = config["errors.dead.letter.queue.topic.name"]
    if letters:
        uses[letters] = "dead letters"
    rows = tuple(
        _planned(name, use, topology.declared_topics.get(name), cluster, changes) for name, use in uses.items()
    )
    problems = [
        f"the partitions of {row.name} are unknown: no broker returns its num.partitions; declare them"
        for row in rows
        if row.action is TopicAction.CREATE and row.partitions is None
    ]
    counts = {name: each.partitions for name, each in cluster.topics.items()}
    counts |= {row.name: row.partitions for row in rows if row.partitions is not None}
    if problems:
        return TopicPlan(rows, (), tuple(problems))
    try:
        tasks = plan(topology, config["application.id"], counts)
    except MissingSourceTopicError:
        return TopicPlan(rows, (), ())  # the row of the topic states what to do
    except TopologyError as error:
        return TopicPlan(rows, (), tuple(str(error).splitlines()))
    internal = tuple(_internal(topology, tasks, config, cluster))
    return TopicPlan(rows, internal, tuple(note for row in internal for note in row.notes))


def topic_uses(topology: Topology) -> dict[str, str]:
    """The topics of the user that a topology names or declares, in its order, and their use."""
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for node in topology.nodes.values():
        if isinstance(node, SourceNode):
            inputs.update(dict.fromkeys(node.topics))
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            outputs[node.topic] = None
    return {
        name: "both" if name in inputs and name in outputs else "input" if name in inputs else use
        for use, names in (("input", inputs), ("output", outputs), ("declared", topology.declared_topics))
        for name in names
        if name not in topology.internal_topics and not (use == "declared" and (name in inputs or name in outputs))
    }


def _planned(
    name: str, use: str, declared: DeclaredTopic | None, cluster: ClusterTopics, allowed: AllowedChanges
) -> PlannedTopic:
    existing = cluster.topics.get(name)
    if existing is None and declared is None:
        note = f"does not exist and is not declared: pass topic({name!r}, partitions=…) where its name is, or create it"
        return PlannedTopic(name, use, TopicAction.MISSING, None, None, notes=(note,))
    if existing is None:
        assert declared is not None
        partitions = declared.partitions or cluster.default_partitions
        replicas = declared.replication_factor or cluster.default_replication_factor
        return PlannedTopic(name, use, TopicAction.CREATE, partitions, replicas, declared.config)
    if declared is None:
        return PlannedTopic(name, use, TopicAction.EXISTS, existing.partitions, existing.replication_factor)
    partitions, notes = _partitions(declared, existing, allowed)
    other = {key: value for key, value in declared.config.items() if not _equal(existing.config.get(key), value)}
    if not allowed.config:
        notes += [
            f"has {key}={existing.config.get(key, '(unknown)')}, declared {value}: --alter-configs sets it"
            for key, value in other.items()
        ]
        other = {}
    if declared.replication_factor not in (None, existing.replication_factor):
        notes.append(
            f"has {existing.replication_factor} replicas, declared {declared.replication_factor}: a reassignment of "
            "its partitions (kafka-reassign-partitions) changes that"
        )
    changed = bool(other) or partitions != existing.partitions
    action = TopicAction.CHANGE if changed else TopicAction.DIFFERS if notes else TopicAction.EXISTS
    return PlannedTopic(name, use, action, partitions, existing.replication_factor, other, tuple(notes))


def _partitions(declared: DeclaredTopic, existing: ExistingTopic, allowed: AllowedChanges) -> tuple[int, list[str]]:
    """The partitions that an existing topic will have, and how that differs from the declaration."""
    count = existing.partitions
    if declared.partitions is None or declared.partitions == count:
        return count, []
    if declared.partitions < count:
        note = (
            f"has {count} partitions, declared {declared.partitions}: a topic cannot lose partitions; declare {count}"
        )
        return count, [note]
    if allowed.partitions:
        return declared.partitions, []
    note = (
        f"has {count} partitions, declared {declared.partitions}: --add-partitions adds them. Keys then move to other "
        "partitions, away from the state of running applications: stop these, and reset them afterwards"
    )
    return count, [note]


def _equal(one: str | None, other: str) -> bool:
    """Whether two values of a config are the same; lists may have spaces."""
    return one is not None and one.replace(" ", "") == other.replace(" ", "")


def _internal(topology: Topology, tasks: Plan, config: StreamsConfig, cluster: ClusterTopics) -> Iterator[PlannedTopic]:
    """The topics that the application creates when it starts, and those of them that exist."""
    factor: int | None = config["replication.factor"]
    for name, wanted in wanted_topics(topology, tasks, config).items():
        use = "changelog" if name in tasks.changelogs else "repartition"
        existing = cluster.topics.get(name)
        if existing is None:
            replicas = cluster.default_replication_factor if factor == -1 else factor
            yield PlannedTopic(name, use, TopicAction.APPLICATION, wanted.partitions, replicas, wanted.config)
        elif existing.partitions == wanted.partitions:
            yield PlannedTopic(name, use, TopicAction.EXISTS, wanted.partitions, existing.replication_factor)
        else:
            note = (
                f"internal topic {name} has {existing.partitions} partitions, and the application needs "
                f"{wanted.partitions}: reset the application (odradek streams reset)"
            )
            yield PlannedTopic(
                name, use, TopicAction.DIFFERS, existing.partitions, existing.replication_factor, notes=(note,)
            )


def changes_of(rows: Sequence[PlannedTopic]) -> str:
    """A count of the planned changes: "create 2 topics, change 1 topic"; empty where there is none."""
    parts = []
    for action in (TopicAction.CREATE, TopicAction.CHANGE):
        count = sum(row.action is action for row in rows)
        if count:
            parts.append(f"{action.value} {count} topic{'s' if count > 1 else ''}")
    return ", ".join(parts)
