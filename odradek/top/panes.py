"""The panes of `odradek top` as rows of cells, of the console's data: topics, partitions, groups, brokers, timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from odradek.admin.controllers import KRAFT, NO_CONTROLLER
from odradek.admin.quorum import MetadataQuorum
from odradek.admin.topics import NO_LEADER, PartitionInfo
from odradek.commands.output import byte_size
from odradek.console.group_pages import groups_page
from odradek.console.history import ClusterHistory
from odradek.console.overview import BrokerRow, ClusterOverview, broker_rows
from odradek.console.paging import page_of
from odradek.console.sample import GroupSample
from odradek.console.timeline import ClusterChange
from odradek.console.topic_pages import TopicRow, topics_page
from odradek.top.cells import WRONG, Cells, PaneRows, clock, listing_of, number, problems, right, safe, shown


@dataclass(frozen=True, slots=True)
class Pane:
    """A table: its titles, the orders that it has, and what makes its rows of a history, a search and an order."""

    name: str
    columns: tuple[str, ...]
    sorts: tuple[str, ...]
    rows: Callable[[ClusterHistory, str, str], PaneRows]


def _topics(history: ClusterHistory, search: str, sort: str) -> PaneRows:
    return shown(topics_page(history, listing_of(search, sort), internal=True), lambda row: row.name, _topic)


def _topic(row: TopicRow) -> Cells:
    return (
        safe(row.name),
        number(row.partitions),
        number(row.replication_factor),
        problems(row.under_replicated),
        problems(row.offline),
        number(row.records),
        number(row.records_per_s),
        right(byte_size(row.size_bytes)),
    )


def problem_of(part: PartitionInfo) -> str:
    """What is wrong with a partition, by the names of the console; nothing where all is well."""
    if part.leader == NO_LEADER:
        return "offline"
    if len(part.isr) < len(part.replicas):
        return "under-replicated"
    return "not-preferred" if part.replicas and part.leader != part.replicas[0] else ""


_PARTITION_SORTS: Final[Mapping[str, Callable[[PartitionInfo], Any]]] = {
    "partition": lambda part: (part.topic, part.partition),
    "problem": lambda part: ("offline", "under-replicated", "not-preferred", "").index(problem_of(part)),
    "leader": lambda part: part.leader,
}


def _partitions(history: ClusterHistory, search: str, sort: str) -> PaneRows:
    sample = history.sample
    ends = {} if sample is None else sample.ends

    def cells(part: PartitionInfo) -> Cells:
        problem = problem_of(part)
        style = WRONG if problem in ("offline", "under-replicated") else ""
        return (
            safe(_name(part)),
            right("none", WRONG) if part.leader == NO_LEADER else number(part.leader),
            number(part.leader_epoch),
            Text(",".join(map(str, part.replicas))),
            Text(",".join(map(str, part.isr)), style),
            number(ends.get((part.topic, part.partition))),
            Text(problem, style),
        )

    page = page_of(
        () if sample is None else sample.partitions,
        listing_of(search, sort),
        lambda part: f"{_name(part)} {problem_of(part)}",
        _PARTITION_SORTS,
    )
    return shown(page, _name, cells)


def _name(part: PartitionInfo) -> str:
    return f"{part.topic}-{part.partition}"


def _groups(history: ClusterHistory, search: str, sort: str) -> PaneRows:
    return shown(groups_page(history, listing_of(search, sort)), lambda row: row.group_id, _group)


def _group(row: GroupSample) -> Cells:
    return (
        safe(row.group_id),
        safe(row.state),
        safe(row.type or "-"),
        number(row.members),
        number(row.partitions),
        number(row.lag, WRONG if row.lag and not row.members else ""),
        number(row.coordinator),
    )


def _brokers(history: ClusterHistory, search: str, sort: str) -> PaneRows:
    sample = history.sample
    found = [] if sample is None else broker_rows(history, sample)
    page = page_of(found, listing_of(search, sort), lambda row: f"{row.node.broker_id} {row.node.host}", {})
    return shown(page, lambda row: str(row.node.broker_id), _broker)


def _broker(row: BrokerRow) -> Cells:
    return (
        number(row.node.broker_id),
        safe(f"{row.node.host}:{row.node.port}" if row.is_alive else "-"),
        safe(row.node.rack or "-"),
        Text("controller") if row.is_controller else Text("running") if row.is_alive else Text("down", WRONG),
        number(row.leaders),
        number(row.replicas),
        problems(row.out_of_sync),
        right(byte_size(row.disk_bytes)),
    )


def _timeline(history: ClusterHistory, search: str, sort: str) -> PaneRows:
    everything = history.timeline.newest()
    page = page_of(everything, listing_of(search), lambda row: f"{row.kind.value} {row.subject} {row.text}", {})
    rows: dict[str, Cells] = {}
    for each in page.rows:
        rows.setdefault(_key(each), _event(each))
    return PaneRows(rows, page.matching, page.total)


def _key(change: ClusterChange) -> str:
    return f"{change.time_s} {change.kind.name} {change.subject} {change.text}"


def _event(change: ClusterChange) -> Cells:
    style = WRONG if change.is_problem else ""
    return Text(clock(change.time_s)), Text(change.kind.value), safe(change.subject), safe(change.text, style)


PANES: Final = (
    Pane(
        "topics",
        ("TOPIC", "PARTITIONS", "REPLICAS", "UNDER-REPLICATED", "OFFLINE", "END OFFSETS", "RECORDS/S", "SIZE"),
        ("name", "-rate", "-records", "-size", "-under-replicated"),
        _topics,
    ),
    Pane(
        "partitions",
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "END OFFSET", "PROBLEM"),
        ("partition", "problem", "leader"),
        _partitions,
    ),
    Pane(
        "groups",
        ("GROUP", "STATE", "TYPE", "MEMBERS", "PARTITIONS", "LAG", "COORDINATOR"),
        ("group", "-lag", "-members", "state"),
        _groups,
    ),
    Pane(
        "brokers",
        ("BROKER", "ADDRESS", "RACK", "STATE", "LEADERS", "REPLICAS", "OUT OF SYNC", "SIZE"),
        ("broker",),
        _brokers,
    ),
    Pane("timeline", ("TIME", "EVENT", "ABOUT", "WHAT HAPPENED"), ("newest",), _timeline),
)
"""The panes beside the overview, in the order of their keys."""


CONTROLLERS: Final = {NO_CONTROLLER: "none", KRAFT: "in a quorum"}
"""Where no broker is the controller; with KRaft that is as it has to be."""


def quorum_text(quorum: MetadataQuorum) -> str:
    """The quorum of controllers in a line: leader, epoch, and how far the others are behind."""
    leader = "no leader" if quorum.leader_id < 0 else f"{quorum.leader_id} leads"
    behind = [
        f"{each.replica_id} ({quorum.role_of(each)}) {'?' if each.lag is None else f'{each.lag:,}'}"
        for each in (*quorum.voters, *quorum.observers)
        if each.replica_id != quorum.leader_id
    ]
    return ", ".join([leader, f"epoch {quorum.leader_epoch}", *(f"lag of {each}" for each in behind)])


def summary(overview: ClusterOverview) -> Text:
    """The numbers of the overview."""
    found = Text()
    rate = "-" if overview.records_per_s is None else f"{overview.records_per_s:,.1f}"
    down, controller = sum(not each.is_alive for each in overview.brokers), overview.controller_id
    quorum = [overview.quorum] if overview.quorum is not None else []
    for name, value, wrong in (
        ("brokers", f"{len(overview.brokers) - down} of {len(overview.brokers)}", down > 0),
        ("controller", CONTROLLERS.get(controller, str(controller)), controller == NO_CONTROLLER),
        *(("quorum", quorum_text(each), each.leader_id < 0) for each in quorum),
        ("topics", f"{overview.topics:,}", False),
        ("partitions", f"{overview.partitions:,}", False),
        ("under-replicated", f"{overview.under_replicated:,}", overview.under_replicated > 0),
        ("offline", f"{overview.offline:,}", overview.offline > 0),
        ("groups", f"{overview.groups:,}", False),
        ("lag", f"{overview.lag:,}", False),
        ("records/s", rate, False),
    ):
        found.append(f"{name:>18}  ", "dim")
        found.append(f"{value}\n", WRONG if wrong else "bold")
    for each in overview.busiest:
        found.append(f"{'written to':>18}  ", "dim")
        found.append_text(safe(f"{each.topic}  {each.records_per_s:,.1f} records/s"))
        found.append("\n")
    return found
