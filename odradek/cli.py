"""The command `odradek`.

The module of a command is imported when the command runs, so that each starts with no more than it needs; the list of
all commands needs none of them.
"""

from __future__ import annotations

from typing import Final

import click

from odradek import __version__
from odradek.commands.lazy import Late, LazyGroup

LAZY: Final = {
    "acl": Late("odradek.commands.acl:acl", "List, add and remove ACLs."),
    "broker": Late("odradek.broker_cli:broker", "Serve until SIGTERM, SIGHUP or Ctrl-C."),
    "cluster": Late("odradek.cluster_cli:cluster", "Run a cluster on this machine, or show the status of any cluster."),
    "completion": Late("odradek.commands.completion:completion", "Print the completion script of a shell."),
    "config": Late("odradek.commands.config:config", "Get, set and unset configs."),
    "console": Late("odradek.commands.console:console", "Serve web pages for a cluster, until Ctrl-C."),
    "consume": Late(
        "odradek.commands.consume:consume",
        "Print records, and wait for new ones until Ctrl-C, --count or --exit.",
    ),
    "dump-log": Late(
        "odradek.log_cli:dump_log",
        "Print files of a log as kafka-dump-log does: .log, .index, .timeindex, .snapshot, .txnindex.",
    ),
    "get-offsets": Late(
        "odradek.commands.get_offsets:get_offsets",
        "Show the earliest and the latest offset of partitions, or with --time the first offset at or after a time.",
    ),
    "group": Late(
        "odradek.commands.group:group",
        "List, describe, reset and delete consumer groups, and show their lag.",
    ),
    "health": Late(
        "odradek.cluster_cli:health",
        "End with status 0 if the broker at HOST:PORT serves and has a controller, else with 1.",
    ),
    "leader": Late("odradek.commands.leader:leader", "Elect leaders of partitions."),
    "produce": Late(
        "odradek.commands.produce:produce",
        "Write a record for each line of FILE or of standard input, and wait until the brokers have all of them.",
    ),
    "profile": Late("odradek.commands.profile:profile", "Keep connections to clusters under short names."),
    "quota": Late("odradek.commands.quota:quota", "List, set and unset quotas of users, client ids and addresses."),
    "reassign": Late("odradek.commands.reassign:reassign", "Move partitions to other brokers."),
    "records": Late("odradek.commands.records:records", "Delete records."),
    "registry": Late(
        "odradek.cluster_cli:registry",
        "Serve the cluster's state over ZooKeeper's protocol, for brokers of one machine.",
    ),
    "scram": Late("odradek.scram_cli:scram", "Users of SASL/SCRAM, before the first start of a broker."),
    "stop": Late("odradek.broker_cli:stop", "Stop a broker that was started with --daemon, and wait for its end."),
    "streams": Late("odradek.streams_cli:streams", "Applications of the streams runtime."),
    "tls": Late("odradek.tls_cli:tls", "Certificates for TLS."),
    "token": Late("odradek.commands.token:token", "List, create, renew and expire delegation tokens."),
    "top": Late("odradek.commands.top:top", "Watch a cluster on a terminal: the views of `odradek console`."),
    "topic": Late("odradek.commands.topic:topic", "List, describe, create, alter and delete topics."),
    "transaction": Late(
        "odradek.commands.transaction:transaction",
        "List, describe and abort transactions, and find those that no coordinator will end.",
    ),
    "user": Late("odradek.commands.user:user", "List, set and delete users of SASL/SCRAM."),
}
"""The commands of other modules."""


@click.group(cls=LazyGroup, lazy=LAZY, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="odradek %(version)s")
def main() -> None:
    """A Kafka-compatible broker, and commands for Kafka clusters."""
    from odradek.standard_streams import open_missing_streams

    open_missing_streams()
