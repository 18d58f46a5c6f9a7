"""`odradek top`: a cluster on a terminal, as it changes."""

from __future__ import annotations

import sys

import click

from odradek.commands.session import CommandSession, connects, fail

TIMEOUT_S = 5.0


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two samples; longer where the cluster is large.",
)
@connects(timeout_s=TIMEOUT_S, formats=("text",))
def top(session: CommandSession, interval_s: float) -> None:
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

    def read_group(group_id: str) -> GroupDetail:
        with session.new_client() as client:
            return group_detail(client, group_id)

    session.client.broker_ids()  # ends the command where no broker answers
    with ClusterSampler(session.new_client, interval_s=interval_s) as sampler:
        ClusterTop(sampler.history, read_group).run()
