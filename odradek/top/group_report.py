"""One group in `odradek top`: how far it is behind in each partition and over time, and its members."""

from __future__ import annotations

from functools import partial
from typing import Final

from odradek.admin.groups import MemberDescription
from odradek.admin.lag import PartitionLag
from odradek.console.group_pages import GroupDetail, group_detail
from odradek.console.paging import Listing
from odradek.top.cells import Cells, PaneRows, number, safe, selected
from odradek.top.context import TopContext
from odradek.top.message_screen import MessageScreen
from odradek.top.report_screen import ReportScreen
from odradek.top.reports import Report, ReportTable, facts

PARTITIONS: Final = ("TOPIC", "PARTITION", "OFFSET", "LOG END", "LAG", "CLIENT", "HOST", "MEMBER")
MEMBERS: Final = ("CLIENT", "HOST", "MEMBER", "INSTANCE", "ASSIGNED")


def group_screen(context: TopContext, group_id: str) -> ReportScreen:
    """The group, read again every few seconds."""
    return ReportScreen(lambda: group_report(context, group_id))


def group_report(context: TopContext, group_id: str) -> Report:
    """The group as it is now, with the lag that the samples have. Raises what the client raises."""
    with context.workspace.client() as client:
        detail = group_detail(client, group_id)
    group, lags = detail.group, context.workspace.history.lags_of(group_id)
    about = facts(
        f"group {group.group_id}",
        state=group.state,
        members=len(group.members),
        lag=f"{detail.lag:,}",
        protocol=group.type,
        assignor=group.assignor or "-",
        coordinator=group.coordinator,
    )

    def partitions(listing: Listing) -> PaneRows:
        columns = {"lag": lambda each: each.lag or 0, "partition": lambda each: (each.topic, each.partition)}
        return selected(detail.partitions, listing, _place, _lag, columns)

    def members(listing: Listing) -> PaneRows:
        return selected(group.members, listing, lambda each: each.member_id, _member)

    tables = (
        ReportTable("partitions", PARTITIONS, partitions, partial(_messages, context, detail), ("-lag", "partition")),
        ReportTable("members", MEMBERS, members),
    )
    return Report(about, tables, () if lags is None else tuple(lags.values()))


def _messages(context: TopContext, detail: GroupDetail, key: str) -> MessageScreen | None:
    """The records from the committed offset on."""
    for each in detail.partitions:
        if _place(each) == key:
            start = ("newest", 0) if each.committed_offset is None else ("offset", each.committed_offset)
            return MessageScreen(context, each.topic, each.partition, *start)
    return None


def _place(each: PartitionLag) -> str:
    return f"{each.topic}-{each.partition}"


def _lag(each: PartitionLag) -> Cells:
    member = each.member
    return (
        safe(each.topic),
        number(each.partition),
        number(each.committed_offset),
        number(each.log_end_offset),
        number(each.lag),
        safe(member.client_id if member else "-"),
        safe(member.host if member else "-"),
        safe(member.member_id if member else "-"),
    )


def _member(each: MemberDescription) -> Cells:
    assigned = "; ".join(f"{topic} {','.join(map(str, numbers))}" for topic, numbers in each.assignment.items())
    texts = (each.client_id, each.host, each.member_id, each.instance_id or "-", assigned or "-")
    return tuple(safe(text) for text in texts)
