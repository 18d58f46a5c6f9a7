"""The command `odradek`.

The module of a command is imported when the command runs, so that each starts with no more than it needs.
"""

from __future__ import annotations

from typing import Final

import click

from odradek import __version__
from odradek.commands.lazy import LazyGroup

LAZY: Final = {
    "acl": "odradek.commands.acl:acl",
    "broker": "odradek.broker_cli:broker",
    "cluster": "odradek.cluster_cli:cluster",
    "completion": "odradek.commands.completion:completion",
    "config": "odradek.commands.config:config",
    "console": "odradek.commands.console:console",
    "consume": "odradek.commands.consume:consume",
    "dump-log": "odradek.log_cli:dump_log",
    "get-offsets": "odradek.commands.get_offsets:get_offsets",
    "group": "odradek.commands.group:group",
    "health": "odradek.cluster_cli:health",
    "leader": "odradek.commands.leader:leader",
    "produce": "odradek.commands.produce:produce",
    "profile": "odradek.commands.profile:profile",
    "quota": "odradek.commands.quota:quota",
    "reassign": "odradek.commands.reassign:reassign",
    "records": "odradek.commands.records:records",
    "registry": "odradek.cluster_cli:registry",
    "scram": "odradek.scram_cli:scram",
    "stop": "odradek.broker_cli:stop",
    "streams": "odradek.streams_cli:streams",
    "tls": "odradek.tls_cli:tls",
    "token": "odradek.commands.token:token",
    "top": "odradek.commands.top:top",
    "topic": "odradek.commands.topic:topic",
    "transaction": "odradek.commands.transaction:transaction",
    "user": "odradek.commands.user:user",
}
"""The commands of other modules: module:attribute."""


@click.group(cls=LazyGroup, lazy=LAZY, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="odradek %(version)s")
def main() -> None:
    """A Kafka-compatible broker, and commands for Kafka clusters."""
    from odradek.standard_streams import open_missing_streams

    open_missing_streams()
