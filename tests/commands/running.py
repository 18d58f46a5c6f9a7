"""Runs our commands and the stock tools on one broker, and reads what the stock tools print as facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result
from confluent_kafka import Producer

from odradek.cli import main
from tests.jvm.tools import run_tool

STOCK: Final = "3.9.2"
TIMEOUT_S: Final = 60
Acl = tuple[str, ...]
_FIELD: Final = re.compile(r"(\w+): ?([^\t]*)")
_PATTERN: Final = re.compile(r"ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\)")
_ENTRY: Final = re.compile(r"\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)")


class Running:
    """A broker with our commands and the stock tools."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """One of our commands to its end, with any exit code."""
        return CliRunner().invoke(main, [*arguments, "--bootstrap-server", self.bootstrap], input=stdin)

    def done(self, *arguments: str, stdin: str = "") -> str:
        """The output of a command that succeeds."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def data(self, *arguments: str, stdin: str = "") -> Any:
        """The data that a command prints as JSON."""
        return json.loads(self.done(*arguments, "--output", "json", stdin=stdin))

    def failure(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """The exit code of a command that fails, and its line on standard error."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code != 0, result.output
        return result.exit_code, result.stderr

    def stock(self, tool: str, *arguments: str, check: bool = True) -> str:
        """The output of a stock tool."""
        where = ("--bootstrap-server", self.bootstrap)
        return run_tool(STOCK, tool, [*where, *arguments], check=check).stdout

    def produce(self, topic: str, values: Iterable[str], partition: int = 0, **options: Any) -> None:
        """Write records to a partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value.encode(), partition=partition, **options)
        assert producer.flush(TIMEOUT_S) == 0


class SecuredRunning(Running):
    """A broker whose commands and tools log in as a user."""

    def __init__(self, bootstrap: str, properties: Path) -> None:
        super().__init__(bootstrap)
        self.properties = properties

    def run(self, *arguments: str, stdin: str = "") -> Result:
        return super().run(*arguments, "--command-config", str(self.properties), stdin=stdin)

    def stock(self, tool: str, *arguments: str, check: bool = True) -> str:
        where = ["--bootstrap-server", self.bootstrap, "--command-config", str(self.properties)]
        return run_tool(STOCK, tool, [*where, *arguments], check=check).stdout


def described_topics(text: str) -> dict[str, dict[str, Any]]:
    """The topics that kafka-topics --describe prints, in the form of our JSON, without what it does not print."""
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line.strip()))
        if "PartitionCount" in fields:
            pairs = (each.partition("=") for each in _split_configs(fields["Configs"]))
            found[fields["Topic"]] = {
                "topic_id": fields["TopicId"],
                "partition_count": int(fields["PartitionCount"]),
                "replication_factor": int(fields["ReplicationFactor"]),
                "configs": {key: value for key, _, value in pairs},
                "partitions": [],
            }
        elif "Partition" in fields:
            found.setdefault(fields["Topic"], {"partitions": []})["partitions"].append(
                {
                    "partition": int(fields["Partition"]),
                    "leader": None if fields["Leader"] == "none" else int(fields["Leader"]),
                    "replicas": _numbers(fields["Replicas"]),
                    "isr": _numbers(fields["Isr"]),
                }
            )
    return found


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of a table of kafka-consumer-groups: the titles in its first line, and words without blanks."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(number for number, words in enumerate(lines) if words[0] in ("GROUP", "TOPIC", "TransactionalId"))
    return [dict(zip(lines[start], words, strict=False)) for words in lines[start + 1 :]]


def planned_offsets(text: str) -> dict[int, int]:
    """The new offset of each partition that kafka-consumer-groups --reset-offsets prints, all in one line."""
    words = text.split()
    words = words[words.index("NEW-OFFSET") + 1 :]
    return {int(partition): int(offset) for partition, offset in zip(words[2::4], words[3::4], strict=True)}


def stock_acls(side: Running, *arguments: str) -> set[Acl]:
    """What kafka-acls --list prints."""
    found: set[Acl] = set()
    pattern: Acl = ()
    for line in side.stock("kafka-acls", "--list", *arguments).splitlines():
        if match := _PATTERN.search(line):
            pattern = match.groups()
        elif match := _ENTRY.search(line):
            found.add((*pattern, *match.groups()))
    return found


def _split_configs(text: str) -> list[str]:
    """`a=b,c=d,e`: the values of a list have commas, too."""
    parts: list[str] = []
    for part in text.split(","):
        if "=" in part or not parts:
            parts.append(part)
        else:
            parts[-1] += f",{part}"
    return [part for part in parts if part]


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each.strip()]
