"""The stock command-line tools by the names of their scripts, over the releases in which their classes moved.

    run_tool("3.9.2", "kafka-topics", ["--bootstrap-server", bootstrap, "--list"])

runs a tool to its end; `start_tool` starts one that follows, such as a console consumer of a group.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, Result, ToolError, failure_report, java_command
from tests.jvm.tool_host import HOSTS

VERSIONS = ("2.8.2", "3.9.2", "4.3.0")

# KAFKA-14525 moved the tools from Scala, release by release. Each row: the class in 2.8.2, in 3.9.2, in 4.3.0.
_TOOLS = "org.apache.kafka.tools"
_CLASSES: dict[str, tuple[str, str, str]] = {
    "kafka-console-producer": (
        "kafka.tools.ConsoleProducer",
        "kafka.tools.ConsoleProducer",
        f"{_TOOLS}.ConsoleProducer",
    ),
    "kafka-console-consumer": (
        "kafka.tools.ConsoleConsumer",
        f"{_TOOLS}.consumer.ConsoleConsumer",
        f"{_TOOLS}.consumer.ConsoleConsumer",
    ),
    "kafka-topics": ("kafka.admin.TopicCommand", f"{_TOOLS}.TopicCommand", f"{_TOOLS}.TopicCommand"),
    "kafka-broker-api-versions": (
        "kafka.admin.BrokerApiVersionsCommand",
        "kafka.admin.BrokerApiVersionsCommand",
        f"{_TOOLS}.BrokerApiVersionsCommand",
    ),
    "kafka-consumer-groups": (
        "kafka.admin.ConsumerGroupCommand",
        f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
        f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    ),
    "kafka-get-offsets": ("kafka.tools.GetOffsetShell", f"{_TOOLS}.GetOffsetShell", f"{_TOOLS}.GetOffsetShell"),
    "kafka-configs": ("kafka.admin.ConfigCommand",) * 3,
    "kafka-reassign-partitions": (
        "kafka.admin.ReassignPartitionsCommand",
        f"{_TOOLS}.reassign.ReassignPartitionsCommand",
        f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    ),
    "kafka-leader-election": (
        "kafka.admin.LeaderElectionCommand",
        f"{_TOOLS}.LeaderElectionCommand",
        f"{_TOOLS}.LeaderElectionCommand",
    ),
    "kafka-log-dirs": ("kafka.admin.LogDirsCommand", f"{_TOOLS}.LogDirsCommand", f"{_TOOLS}.LogDirsCommand"),
    # Since 3.0 (KIP-664).
    "kafka-transactions": (f"{_TOOLS}.TransactionsCommand",) * 3,
    "kafka-metadata-quorum": (f"{_TOOLS}.MetadataQuorumCommand",) * 3,
    # Gone in 4.0 (KIP-1041).
    "kafka-replica-verification": (
        "kafka.tools.ReplicaVerificationTool",
        f"{_TOOLS}.ReplicaVerificationTool",
        f"{_TOOLS}.ReplicaVerificationTool",
    ),
    "kafka-delete-records": (
        "kafka.admin.DeleteRecordsCommand",
        f"{_TOOLS}.DeleteRecordsCommand",
        f"{_TOOLS}.DeleteRecordsCommand",
    ),
    "kafka-cluster": ("kafka.tools.ClusterTool", f"{_TOOLS}.ClusterTool", f"{_TOOLS}.ClusterTool"),
    "kafka-features": ("kafka.admin.FeatureCommand", f"{_TOOLS}.FeatureCommand", f"{_TOOLS}.FeatureCommand"),
    # Since 4.0 (KIP-1043).
    "kafka-groups": (f"{_TOOLS}.GroupsCommand",) * 3,
    "kafka-acls": ("kafka.admin.AclCommand", "kafka.admin.AclCommand", f"{_TOOLS}.AclCommand"),
    "kafka-delegation-tokens": (
        "kafka.admin.DelegationTokenCommand",
        f"{_TOOLS}.DelegationTokenCommand",
        f"{_TOOLS}.DelegationTokenCommand",
    ),
    "kafka-streams-application-reset": (
        "kafka.tools.StreamsResetter",
        f"{_TOOLS}.StreamsResetter",
        f"{_TOOLS}.StreamsResetter",
    ),
    "kafka-producer-perf-test": (f"{_TOOLS}.ProducerPerformance",) * 3,
    "kafka-consumer-perf-test": (
        "kafka.tools.ConsumerPerformance",
        f"{_TOOLS}.ConsumerPerformance",
        f"{_TOOLS}.ConsumerPerformance",
    ),
    "kafka-verifiable-producer": (f"{_TOOLS}.VerifiableProducer",) * 3,
    "kafka-verifiable-consumer": (f"{_TOOLS}.VerifiableConsumer",) * 3,
    "kafka-e2e-latency": ("kafka.tools.EndToEndLatency", f"{_TOOLS}.EndToEndLatency", f"{_TOOLS}.EndToEndLatency"),
    # Gone in 4.0.
    "kafka-mirror-maker": ("kafka.tools.MirrorMaker",) * 3,
    "zookeeper-shell": ("org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",) * 3,
    "kafka-dump-log": ("kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments", f"{_TOOLS}.DumpLogSegments"),
}


def main_class(version: str, tool: str) -> str:
    """The class behind a tool: its script's name without .sh, or a class name, which is returned as it is."""
    return _CLASSES[tool][VERSIONS.index(version)] if tool in _CLASSES else tool


def tool_command(
    version: str, tool: str, arguments: Sequence[str], options: Sequence[str] = (*QUICK_START, *QUIET)
) -> list[str]:
    """The whole command line of a tool; `options` are Java's."""
    return java_command(version, main_class(version, tool), arguments, options)


def run_tool(
    version: str,
    tool: str,
    arguments: Sequence[str],
    *,
    stdin: str | Path = "",
    stdout: Path | None = None,
    timeout_s: float = 60,
    check: bool = True,
) -> Result:
    """Runs a stock tool to its end, in a JVM that stays (`tool_host`).

    `stdin` is text, or a file to read. `stdout` may name a file to fill; `Result.stdout` is then empty.

    Raises ToolError when it is not done after `timeout_s`, and with `check` also when its exit status is not 0.
    """
    result = HOSTS.run(version, main_class(version, tool), arguments, stdin, stdout, timeout_s)
    if check and result.status != 0:
        what = f"exit status {result.status}"
        raise ToolError(failure_report([tool, *arguments], what, result.stdout.encode(), result.stderr.encode()))
    return result


def start_tool(
    version: str, tool: str, arguments: Sequence[str], changed: threading.Condition | None = None
) -> BackgroundProcess:
    """Starts a stock tool that runs until it is stopped; a context that kills it at the end."""
    return BackgroundProcess(tool_command(version, tool, arguments), changed)
