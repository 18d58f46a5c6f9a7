"""One broker in `odradek top`: configs, log directories, request latencies."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from odradek.admin import log_dirs
from odradek.admin.configs import ResourceKind
from odradek.admin.log_dirs import LogDir
from odradek.commands.failures import failure_of
from odradek.commands.output import byte_size
from odradek.console.config_pages import described_configs
from odradek.console.metrics_pages import metrics_pages
from odradek.console.overview import broker_rows
from odradek.console.paging import Listing
from odradek.console.request_metrics import RequestLatency
from odradek.top.cells import WRONG, Cells, PaneRows, number, right, safe, selected
from odradek.top.config_table import config_tables
from odradek.top.context import TopContext
from odradek.top.report_screen import ReportScreen
from odradek.top.reports import Report, ReportTable, facts

DIRECTORIES: Final = ("DIRECTORY", "REPLICAS", "SIZE", "DISK", "FREE", "PROBLEM")
LATENCIES: Final = ("REQUEST", "COUNT", "MEDIAN MS", "99% MS")


def broker_screen(context: TopContext, broker_id: int) -> ReportScreen:
    """The broker, read again every few seconds."""
    return ReportScreen(lambda: broker_report(context, broker_id))


def broker_report(context: TopContext, broker_id: int) -> Report:
    """The broker as it is now. Raises what the client raises."""
    with context.workspace.client() as client:
        found = log_dirs.describe_log_dirs(client, [broker_id])[broker_id]
        configs = described_configs(client, ResourceKind.BROKER, str(broker_id))
    history = context.workspace.history
    rows = [] if history.sample is None else broker_rows(history, history.sample)
    row = next((each for each in rows if each.node.broker_id == broker_id), None)
    pages = metrics_pages(history.metrics, () if history.sample is None else history.sample.brokers)
    metrics = next((each.metrics for each in pages if each.broker_id == broker_id), None)
    about = facts(
        f"broker {broker_id}",
        address="-" if row is None else f"{row.node.host}:{row.node.port}",
        rack="-" if row is None else row.node.rack or "-",
        leaders="-" if row is None else f"{row.leaders:,}",
        replicas="-" if row is None else f"{row.replicas:,}",
        out_of_sync="-" if row is None else f"{row.out_of_sync:,}",
    )
    if isinstance(found, Exception):
        about.append("\n").append_text(safe(failure_of(found).message, WRONG))
    if metrics is None:
        about.append("\nlatencies need the broker's metrics page: --metrics HOST:PORT", "dim")

    def directories(listing: Listing) -> PaneRows:
        return selected(() if isinstance(found, Exception) else found, listing, lambda each: each.path, _directory)

    def latencies(listing: Listing) -> PaneRows:
        items = () if metrics is None else metrics.requests.values()
        columns = {"count": lambda each: each.count, "99%": lambda each: each.p99_ms or 0}
        return selected(items, listing, lambda each: each.request, _latency, columns)

    return Report(
        about,
        (
            *config_tables(configs),
            ReportTable("log directories", DIRECTORIES, directories),
            ReportTable("latencies", LATENCIES, latencies, sorts=("-count", "-99%")),
        ),
    )


def _directory(each: LogDir) -> Cells:
    return (
        safe(each.path),
        number(len(each.replicas)),
        right(byte_size(sum(replica.size for replica in each.replicas))),
        right(byte_size(each.total_bytes)),
        right(byte_size(each.usable_bytes)),
        Text("") if each.error is None else safe(failure_of(each.error).message, WRONG),
    )


def _latency(each: RequestLatency) -> Cells:
    return safe(each.request), number(each.count), number(each.p50_ms), number(each.p99_ms)
