"""`odradek broker list`, `configs` and `log-dirs` (Kafka: kafka-broker-api-versions, kafka-configs, kafka-log-dirs)."""

from __future__ import annotations

from typing import Any, Final

import click

from odradek.admin import configs, log_dirs
from odradek.commands.completion import complete_brokers, complete_topics
from odradek.commands.config_output import CONFIG_COLUMNS, config_rows
from odradek.commands.failures import failure_of
from odradek.commands.output import Column, TextTable, byte_size
from odradek.commands.session import CommandSession, connects, usage
from odradek.protocol.client.connection import shown

_LIST: Final = (
    Column("BROKER", "broker"),
    Column("ADDRESS", "address"),
    Column("RACK", "rack"),
    Column("CONTROLLER", "controller"),
)
_DIRS: Final = (
    Column("BROKER", "broker"),
    Column("LOG DIR", "log_dir"),
    Column("REPLICAS", "replica_count"),
    Column("SIZE", "size", shown=byte_size),
    Column("FREE", "usable_bytes", shown=byte_size),
    Column("VOLUME", "total_bytes", shown=byte_size),
    Column("ERROR", "error"),
)
_REPLICAS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("BROKER", "broker"),
    Column("SIZE", "size", shown=byte_size),
    Column("OFFSET LAG", "offset_lag"),
    Column("FUTURE", "is_future"),
    Column("LOG DIR", "log_dir", wide=True),
)


@click.group(name="broker")
def inspections() -> None:
    """Inspect the brokers of a cluster."""


@inspections.command("list")
@connects
def list_brokers(session: CommandSession) -> None:
    """List the brokers of the cluster, with the controller."""
    metadata = session.client.call(lambda: session.client.metadata([]))
    rows = [
        {
            "broker": each.node_id,
            "address": shown((each.host, each.port)),
            "rack": each.rack,
            "controller": each.node_id == metadata.controller_id,
        }
        for each in sorted(metadata.brokers, key=lambda each: each.node_id)
    ]
    session.show(rows, TextTable(_LIST, rows))


@inspections.command("configs")
@click.argument("broker_ids", nargs=-1, type=click.IntRange(0), metavar="[ID]...", shell_complete=complete_brokers)
@click.option("--default", "cluster_default", is_flag=True, help="The dynamic default of all brokers.")
@click.option("--all", "every", is_flag=True, help="Also those with a default value.")
@click.option("--documentation", is_flag=True, help="What each config means, in JSON and YAML.")
@connects
def broker_configs(
    session: CommandSession, broker_ids: tuple[int, ...], cluster_default: bool, every: bool, documentation: bool
) -> None:
    """Show the configs of brokers and where their values come from; without ID those of every broker.

    `odradek config set broker ID KEY=VALUE` changes them.
    """
    if broker_ids and cluster_default:
        usage("--default is for all brokers; ID does not go with it")
    wanted = broker_ids or tuple(session.client.broker_ids())
    names = [configs.CLUSTER_DEFAULT] if cluster_default else [str(each) for each in dict.fromkeys(wanted)]
    targets = [configs.ConfigTarget(configs.ResourceKind.BROKER, name) for name in names]
    results = configs.describe_configs(session.client, targets, synonyms=True, documentation=documentation)
    named = {target.name or "default": result for target, result in results.items()}
    data: list[dict[str, Any]] = []
    for name, entries in session.succeeded(named, "broker").items():
        shown_entries = [entry for entry in entries if every or entry.source != configs.DEFAULT]
        data.append({"broker": name, "configs": config_rows(shown_entries, documentation=documentation)})
    session.show(data, *(TextTable(CONFIG_COLUMNS, each["configs"], f"broker {each['broker']}") for each in data))
    session.end(named)


@inspections.command("log-dirs")
@click.argument("broker_ids", nargs=-1, type=click.IntRange(0), metavar="[ID]...", shell_complete=complete_brokers)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Show the replicas of this topic. Can be given again.",
)
@connects
def show_log_dirs(session: CommandSession, broker_ids: tuple[int, ...], topics: tuple[str, ...]) -> None:
    """Show the log directories of brokers: replicas, their size, and free space."""
    wanted = list(dict.fromkeys(broker_ids)) or session.client.broker_ids()
    results = log_dirs.describe_log_dirs(session.client, wanted, list(dict.fromkeys(topics)) or None)
    errors = {broker_id: each for broker_id, each in results.items() if isinstance(each, Exception)}
    rows = [
        _row(broker_id, each)
        for broker_id, found in results.items()
        if not isinstance(found, Exception)
        for each in found
    ]
    replicas = [
        {**each, "broker": row["broker"], "log_dir": row["log_dir"]} for row in rows for each in row["replicas"]
    ]
    tables = [TextTable(_DIRS, [{**row, "replica_count": len(row["replicas"])} for row in rows])]
    if topics:
        tables.append(TextTable(_REPLICAS, sorted(replicas, key=lambda each: (each["topic"], each["partition"]))))
    session.show(rows, *tables)
    for broker_id, error in errors.items():
        raise failure_of(error, f"broker {broker_id}")


def _row(broker_id: int, each: log_dirs.LogDir) -> dict[str, Any]:
    return {
        "broker": broker_id,
        "log_dir": each.path,
        "error": each.error.code.name if each.error is not None else None,
        "size": sum(replica.size for replica in each.replicas),
        "total_bytes": each.total_bytes,
        "usable_bytes": each.usable_bytes,
        "replicas": [replica._asdict() for replica in each.replicas],
    }
