"""One topic in `odradek top`: partitions, configs with source and documentation, the groups that consume it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from rich.text import Text
from textual.binding import BindingType

from odradek.admin.configs import ResourceKind
from odradek.admin.topics import NO_LEADER
from odradek.commands.output import byte_size
from odradek.console.config_pages import described_configs
from odradek.console.group_pages import groups_of_topic
from odradek.console.paging import Listing
from odradek.console.sample import GroupSample
from odradek.console.topic_pages import PartitionDetail, topic_detail
from odradek.top.cells import WRONG, Cells, PaneRows, number, right, safe, selected
from odradek.top.config_table import config_tables
from odradek.top.context import TopContext
from odradek.top.group_report import group_screen
from odradek.top.log_reports import log_screen
from odradek.top.message_screen import MessageScreen
from odradek.top.report_screen import ReportScreen
from odradek.top.reports import Report, ReportTable, facts

PARTITIONS: Final = "partitions"
GROUPS: Final = ("GROUP", "STATE", "MEMBERS", "LAG HERE")
COLUMNS: Final = (
    "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE", "START OFFSET", "END OFFSET", "SIZE", "PROBLEM",
)  # fmt: skip


class TopicScreen(ReportScreen):
    """A topic, with keys for its records and its log on disk."""

    BINDINGS: ClassVar[list[BindingType]] = [("m", "messages", "Messages"), ("l", "log", "Log")]

    def __init__(self, context: TopContext, topic: str) -> None:
        """The topic need not exist."""
        super().__init__(partial(topic_report, context, topic))
        self._cluster = context
        self._topic = topic

    def action_messages(self) -> None:
        """The records of all partitions."""
        self.app.push_screen(MessageScreen(self._cluster, self._topic))

    def action_log(self) -> None:
        """The log of the partition at the cursor, as it is on disk."""
        chosen = self.chosen
        number = chosen[1] if chosen is not None and chosen[0] == PARTITIONS else "0"
        self.app.push_screen(log_screen(self._cluster, f"{self._topic}-{number}"))


def topic_report(context: TopContext, topic: str) -> Report:
    """The topic as it is now. Raises what the client raises."""
    with context.workspace.client() as client:
        detail = topic_detail(client, topic)
        configs = described_configs(client, ResourceKind.TOPIC, topic)
    rate = context.workspace.history.rate_of(topic)
    about = facts(
        f"topic {topic}",
        partitions=f"{len(detail.partitions):,}",
        replicas=detail.replication_factor,
        offsets=f"{detail.records:,}",
        records_per_s="-" if rate is None else f"{rate:,.1f}",
        size=byte_size(detail.size_bytes),
        id=detail.topic_id or "-",
    )

    def partitions(listing: Listing) -> PaneRows:
        columns = {
            "problem": lambda each: each.problem or "~",
            "end": lambda each: each.end_offset or 0,
            "size": lambda each: each.size_bytes or 0,
        }
        return selected(detail.partitions, listing, lambda each: str(each.partition), _cells, columns)

    table = ReportTable(
        PARTITIONS,
        COLUMNS,
        partitions,
        lambda key: MessageScreen(context, topic, int(key)),
        ("partition", "problem", "-end", "-size"),
    )

    def groups(listing: Listing) -> PaneRows:
        found = groups_of_topic(context.workspace.history, topic)
        return selected(found, listing, lambda each: each[0].group_id, _group)

    consumers = ReportTable("groups", GROUPS, groups, partial(group_screen, context))
    rates = context.workspace.history.rates_of(topic)
    return Report(about, (table, consumers, *config_tables(configs)), () if rates is None else tuple(rates.values()))


def _cells(each: PartitionDetail) -> Cells:
    style = WRONG if each.problem else ""
    return (
        number(each.partition),
        right("none", WRONG) if each.leader == NO_LEADER else number(each.leader),
        number(each.leader_epoch),
        Text(",".join(map(str, each.replicas))),
        Text(",".join(map(str, each.isr)), style),
        Text(",".join(map(str, each.offline_replicas)), WRONG),
        number(each.start_offset),
        number(each.end_offset),
        right(byte_size(each.size_bytes)),
        Text(each.problem, style),
    )


def _group(found: tuple[GroupSample, int | None]) -> Cells:
    group, lag = found
    return safe(group.group_id), safe(group.state), number(group.members), number(lag)
