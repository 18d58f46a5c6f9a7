"""The command `odradek streams init`: creates the declared topics of an application, after it has shown the plan.

Exit status: 0 where all topics are as declared, or with --dry-run could be; 1 where the cluster cannot be reached or
rejects a change, and where the user declines; 2 where the application or an option cannot be used; 3 where topics still
differ from their declarations, or the application could not run with them.

Modules that the command needs are imported when it runs: every command of `odradek` imports this one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from odradek.streams_application import UNUSABLE, application_options, fail, load_application, read_properties

DIFFERS: Final = 3
_UNNAMED: Final = "<application.id>"


@click.command()
@application_options
@click.option(
    "--bootstrap-server",
    "--bootstrap-servers",
    "servers",
    metavar="HOST:PORT,…",
    help="The bootstrap brokers, by default those of the properties, else localhost:9092.",
)
@click.option("--application-id", metavar="ID", help="The application.id, where the properties do not have it.")
@click.option("--add-partitions", is_flag=True, help="Add partitions to existing topics that have too few.")
@click.option("--alter-configs", is_flag=True, help="Set declared configs of existing topics that have other values.")
@click.option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Create the topics without a question.")
def init(
    application: str,
    properties: Path | None,
    overrides: tuple[str, ...],
    app_dir: Path,
    servers: str | None,
    application_id: str | None,
    add_partitions: bool,
    alter_configs: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Create the topics of a stream application as it declares them, with topic("orders", partitions=6).

    MODULE:TOPOLOGY is a Topology, a StreamsBuilder, or a function that returns one. The command prints the plan first:
    topics to create, topics that exist, and those that differ from their declaration, which stay as they are unless
    --add-partitions or --alter-configs is given. No topic is deleted or loses partitions. Internal topics are shown;
    the application creates them when it starts.
    """
    given = read_properties(properties, overrides)
    given["bootstrap.servers"] = servers or given.get("bootstrap.servers", "localhost:9092")
    given["application.id"] = application_id or given.get("application.id", _UNNAMED)
    topology = load_application(application, app_dir)

    from odradek.streams.config import StreamsConfig
    from odradek.streams.errors import StreamsError
    from odradek.streams.provisioning.plan_table import render_plan
    from odradek.streams.provisioning.topic_admin import TopicAdmin
    from odradek.streams.provisioning.topic_plan import AllowedChanges, changes_of, plan_topics

    try:
        config = StreamsConfig(given)
        admin = TopicAdmin(config)
    except StreamsError as error:
        fail(str(error), UNUSABLE)
    try:
        cluster = admin.read(topology.declared_topics)
        found = plan_topics(topology, config, cluster, AllowedChanges(add_partitions, alter_configs))
        click.echo(render_plan(found))
        problems = [*found.problems, *admin.rejected(found.topics)]
        for problem in problems[len(found.problems) :]:
            click.echo(f"\n{problem}")
        if problems:
            click.echo("\nNothing is created before these problems are solved.")
            sys.exit(DIFFERS)
        changes = changes_of(found.topics)
        if changes and not dry_run:
            if not yes:
                click.confirm(f"\n{changes.capitalize()} at {given['bootstrap.servers']}?", abort=True)
            for line in admin.apply(found.topics):
                click.echo(line)
    except StreamsError as error:
        fail(str(error))
    sys.exit(DIFFERS if found.differences else 0)
