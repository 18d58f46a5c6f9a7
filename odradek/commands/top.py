"""`odradek top`: a cluster on a terminal, as it changes."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Final

import click

from odradek.commands.failures import failures
from odradek.commands.session import ConnectionOptions, connection_options, fail, is_overridden_by_profile, open_client

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
def top(bootstrap_server: str | None, profile: str | None, command_config: Path | None, interval_s: float) -> None:
    """Watch topics, partitions, groups with their lag, brokers, and a timeline of elections and rebalances.

    It only reads. Keys: 1 to 6 for the panes, / to search, s to sort, Enter to open, p to pause, q to quit.
    """
    try:
        from odradek.top.app import ClusterTop
    except ImportError as error:
        fail(f"odradek top needs the package textual: the extra `top` ({error})")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("odradek top needs a terminal; odradek cluster status and odradek group lag print to a file")
    from odradek.console.group_pages import GroupDetail, group_detail
    from odradek.console.sampler import ClusterSampler

    if is_overridden_by_profile():
        bootstrap_server = None
    connect = functools.partial(open_client, ConnectionOptions(bootstrap_server, profile, command_config, TIMEOUT_S))

    def read_group(group_id: str) -> GroupDetail:
        with connect() as client:
            return group_detail(client, group_id)

    with failures(), connect() as client:
        client.broker_ids()  # ends the command where no broker answers
    with ClusterSampler(connect, interval_s=interval_s) as sampler:
        ClusterTop(sampler.history, read_group).run()
