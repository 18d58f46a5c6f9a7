"""`odradek leader elect`: elect preferred leaders, or any replica (Kafka: kafka-leader-election)."""

from __future__ import annotations

from typing import Final

import click

from odradek.admin import elections
from odradek.commands.completion import complete_topics
from odradek.commands.get_offsets import partitions_of
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, usage, yes_option

_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("RESULT", "result"),
)


@click.group()
def leader() -> None:
    """Elect leaders of partitions."""


@leader.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC[:PARTITION,...]]...", shell_complete=complete_topics)
@click.option("--all", "every", is_flag=True, help="Every partition of the cluster.")
@click.option("--unclean", is_flag=True, help="Elect any replica where no in-sync one is available. Records are lost.")
@yes_option
@connects
def elect(session: CommandSession, topics: tuple[str, ...], every: bool, unclean: bool, yes: bool) -> None:
    """Make the first replica of each partition its leader, if it is in sync.

    With --unclean a partition without a leader gets one that may lack acknowledged records.
    """
    if bool(topics) == every:
        usage("which partitions: TOPIC or --all is required")
    client = session.client
    places = None if every else partitions_of(client, topics)
    if unclean:
        which = "every partition" if places is None else ", ".join(f"{topic}-{number}" for topic, number in places)
        session.confirm([f"elect leaders of {which}, which may lack acknowledged records"], yes=yes)
    results = elections.elect_leaders(client, places, elections.UNCLEAN if unclean else elections.PREFERRED)
    found = session.succeeded(results, "partition")
    rows = [
        {"topic": topic, "partition": number, "result": "new leader" if elected else "unchanged"}
        for (topic, number), elected in sorted(found.items())
    ]
    session.show(rows, TextTable(_COLUMNS, rows))
    session.end(results)
