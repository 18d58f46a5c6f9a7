"""`odradek top`: a cluster on a terminal, as it changes."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

import click

from odradek.commands.cluster_options import data_dir_option, metrics_option, record_schemas
from odradek.commands.failures import failures
from odradek.commands.schema_options import registry_option
from odradek.commands.session import (
    ConnectionOptions,
    connection_options,
    fail,
    is_overridden_by_profile,
    open_client,
    resolved,
)

TIMEOUT_S: Final = 5.0
"""For each request: a pane with old numbers is better than one that waits."""


@click.command()
@connection_options
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two samples; longer where the cluster is large.",
)
@data_dir_option
@metrics_option
@registry_option
def top(
    bootstrap_server: str | None,
    profile: str | None,
    command_config: Path | None,
    interval_s: float,
    data_dirs: tuple[Path, ...],
    metrics: tuple[str, ...],
    schema_registry: str | None,
) -> None:
    """Watch a cluster on a terminal: the views of `odradek console`.

    Topics with partitions, configs and records, groups with their lag, brokers, transactions, ACLs and users, logs on
    disk, and a timeline of elections and rebalances. It only reads.

    Keys: 1 to 9 for the views, / to search, s to sort, Enter to open, ? for all keys, q to quit.
    """
    try:
        from odradek.top.app import ClusterTop
    except ImportError as error:
        fail(f"odradek top needs the package textual: the extra `top` ({error})")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("odradek top needs a terminal; odradek cluster status and odradek group lag print to a file")
    from odradek.console.log_inspector import LogInspector
    from odradek.console.workspace import ClusterWorkspace
    from odradek.metrics_source import MetricsSource
    from odradek.top.context import TopContext

    if is_overridden_by_profile():
        bootstrap_server = None
    options = ConnectionOptions(bootstrap_server, profile, command_config, TIMEOUT_S)
    with failures(), open_client(options) as client:
        client.broker_ids()  # ends the command where no broker answers
    bootstrap, properties = resolved(options)
    with contextlib.ExitStack() as opened:
        schemas = record_schemas(properties, schema_registry)
        if schemas is not None:
            opened.callback(schemas.close)
        workspace = ClusterWorkspace(
            bootstrap,
            properties,
            interval_s=interval_s,
            metrics=tuple(MetricsSource(each) for each in metrics),
            schemas=schemas,
            client_id="odradek-top",
        )
        opened.callback(workspace.close)
        ClusterTop(TopContext(workspace, LogInspector(data_dirs))).run()
