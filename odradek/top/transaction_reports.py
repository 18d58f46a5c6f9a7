"""Transactions in `odradek top`: all transactional ids, the open ones, those that hang, and one of them."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from rich.text import Text

from odradek.admin.transactions import OpenTransaction, TransactionListing
from odradek.console.paging import Listing
from odradek.console.record_view import time_text
from odradek.console.transaction_pages import (
    OPEN,
    SORTS,
    TransactionsPage,
    hanging_transactions,
    transaction_detail,
    transactions_page,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.top.cells import WRONG, Cells, PaneRows, duration, number, right, safe, selected, shown
from odradek.top.context import TopContext
from odradek.top.message_screen import MessageScreen
from odradek.top.report_screen import ReportScreen
from odradek.top.reports import Report, ReportTable, facts

COLUMNS: Final = ("TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR", "PARTITIONS", "OPEN FOR")
HANGING: Final = ("PARTITION", "PRODUCER", "EPOCH", "START OFFSET", "LAST RECORD")


def transactions_screen(context: TopContext) -> ReportScreen:
    """All transactional ids, and those that hold back consumers."""
    return ReportScreen(lambda: transactions_report(context))


def transactions_report(context: TopContext) -> Report:
    """The tables read when they are shown."""

    def listed(listing: Listing, *, only_open: bool) -> PaneRows:
        with context.workspace.client() as client:
            found = transactions_page(client, listing, only_open=only_open)
        return shown(found.listed, lambda each: each.transactional_id, partial(_transaction, found))

    def hanging(listing: Listing) -> PaneRows:
        sample = context.workspace.history.sample
        if sample is None:
            return selected((), listing, _place, _hanging)
        with context.workspace.client() as client:
            found, errors = hanging_transactions(client, sample)
        if errors:
            raise next(iter(errors.values()))
        return selected(sorted(found), listing, _place, _hanging)

    def opened(key: str) -> ReportScreen:
        return ReportScreen(lambda: transaction_report(context, key))

    about = facts("transactions").append(
        "   those that hang are older than any timeout, and no coordinator ends them", "dim"
    )
    return Report(
        about,
        (
            ReportTable("all", COLUMNS, partial(listed, only_open=False), opened, tuple(SORTS)),
            ReportTable("open", COLUMNS, partial(listed, only_open=True), opened, tuple(SORTS)),
            ReportTable("hanging", HANGING, hanging, is_costly=True),
        ),
    )


def transaction_report(context: TopContext, transactional_id: str) -> Report:
    """One transactional id. Raises what the client raises."""
    with context.workspace.client() as client:
        detail = transaction_detail(client, transactional_id)
    about = facts(
        f"transactional id {detail.transactional_id}",
        state=detail.state,
        producer=f"{detail.producer_id}/{detail.producer_epoch}",
        coordinator=detail.coordinator,
        timeout=duration(detail.timeout_ms / 1000),
        started=time_text(detail.start_ms) or "-",
    )

    def partitions(listing: Listing) -> PaneRows:
        return selected(detail.partitions, listing, _name, lambda each: (safe(each[0]), number(each[1])))

    def messages(key: str) -> MessageScreen:
        topic, _, partition = key.rpartition("-")
        return MessageScreen(context, topic, int(partition))

    return Report(about, (ReportTable("partitions", ("TOPIC", "PARTITION"), partitions, messages),))


def _transaction(found: TransactionsPage, row: TransactionListing) -> Cells:
    each = found.described.get(row.transactional_id)
    return (
        safe(row.transactional_id),
        safe(row.state, "yellow" if row.state in OPEN else ""),
        number(row.producer_id),
        number(row.coordinator),
        Text("") if each is None else number(len(each.partitions)),
        Text("") if each is None or each.start_ms < 0 else right(duration((found.now_ms - each.start_ms) / 1000)),
    )


def _hanging(each: OpenTransaction) -> Cells:
    producer = each.producer
    age_s = time.time() - producer.last_timestamp_ms / 1000
    return (
        safe(_place(each), WRONG),
        number(producer.producer_id),
        number(producer.producer_epoch),
        number(producer.start_offset),
        right(f"{duration(age_s)} ago"),
    )


def _place(each: OpenTransaction) -> str:
    return f"{each.topic}-{each.partition}"


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
