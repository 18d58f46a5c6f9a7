"""Brokers: list, log directories, request latencies, configs."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from odradek.admin import log_dirs
from odradek.admin.configs import ResourceKind
from odradek.commands.failures import failure_of
from odradek.console import config_pages
from odradek.console.metrics_pages import metrics_pages
from odradek.console.overview import broker_rows
from odradek.console.web.views import Redirect, Shown, ViewRequest
from odradek.protocol.errors import KafkaError

_MOST_REQUESTS: Final = 15
"""Kinds of requests whose latencies are shown, of each broker."""


def list_all(request: ViewRequest) -> Shown:
    """The brokers of the latest sample, and what their metrics pages have."""
    history = request.history
    rows = [] if history.sample is None else broker_rows(history, history.sample)
    pages = metrics_pages(history.metrics, () if history.sample is None else history.sample.brokers)
    metrics = [(each, each.busiest(_MOST_REQUESTS)) for each in pages]
    values = {
        "rows": rows,
        "quorum": None if history.sample is None else history.sample.quorum,
        "metrics": metrics,
        "configured": bool(request.settings.metrics),
    }
    return Shown("brokers.html", values)


def show(request: ViewRequest) -> Shown:
    """One broker: log directories and configs."""
    broker, everything = int(request.params["broker"]), "all" in request.query
    with request.client() as client:
        directories = log_dirs.describe_log_dirs(client, [broker])[broker]
        entries = config_pages.described_configs(client, ResourceKind.BROKER, str(broker))
    sample = request.history.sample
    rows = [] if sample is None else broker_rows(request.history, sample)
    values = {
        "broker": broker,
        "row": next((each for each in rows if each.node.broker_id == broker), None),
        "directories": [] if isinstance(directories, Exception) else directories,
        "directories_error": failure_of(directories).message if isinstance(directories, Exception) else "",
        "page": config_pages.configs_page(entries, request.listing(), changed=not everything),
        "everything": everything,
        "sources": config_pages.SOURCES,
    }
    return Shown("broker.html", values)


def edit_config(request: ViewRequest) -> Shown:
    """One config of a broker, with a form where it can be changed."""
    broker, config = request.params["broker"], request.params["config"]
    with request.client() as client:
        entries = config_pages.described_configs(client, ResourceKind.BROKER, str(broker))
    found = [each for each in entries if each.name == config]
    if not found:
        raise KeyError(f"config {config}")
    values = {
        "heading": f"Broker {broker}",
        "back": f"/brokers/{broker}",
        "entry": found[0],
        "sources": config_pages.SOURCES,
        "is_own": found[0].source in config_pages.OWN,
    }
    return Shown("config.html", values)


def change_config(request: ViewRequest) -> Redirect:
    """Set or unset a dynamic config of a broker."""
    broker, config = request.params["broker"], request.params["config"]
    value = None if "unset" in request.form else request.form.get("value", "")
    with request.client() as client:
        try:
            config_pages.change_config(client, ResourceKind.BROKER, str(broker), config, value)
        except KafkaError as error:
            return Redirect(f"/brokers/{broker}/configs/{quote(config)}", failure_of(error).message, error=True)
    done = "unset" if value is None else f"set to {value}"
    return Redirect(f"/brokers/{broker}", f"{config} is {done}.")
