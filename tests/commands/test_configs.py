"""`odradek config`, `topic configs` and `broker`: their answers equal those of kafka-configs and kafka-log-dirs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.commands.running import Running

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

LINE = re.compile(r"  (?P<name>[\w.]+)=(?P<value>.*) sensitive=(?P<sensitive>\w+) synonyms=\{(?P<synonyms>.*)\}")
SYNONYM = re.compile(r"(\w+):([\w.]+)=(.*?)(?=, [A-Z_]+:|$)")


def stock_configs(side: Running, *arguments: str) -> dict[str, tuple[str | None, str, list[tuple[str, str]]]]:
    """What kafka-configs --describe prints: value, sensitive, and sources with names of synonyms."""
    found = {}
    for line in side.stock("kafka-configs", "--describe", *arguments).splitlines():
        match = LINE.fullmatch(line)
        if match:
            value = None if match["value"] == "null" else match["value"]
            synonyms = [(source, name) for source, name, _ in SYNONYM.findall(match["synonyms"])]
            found[match["name"]] = (value, match["sensitive"], synonyms)
    return found


def ours(rows: list[dict[str, Any]]) -> dict[str, tuple[str | None, str, list[tuple[str, str]]]]:
    return {
        each["name"]: (
            each["value"],
            str(each["sensitive"]).lower(),
            [(synonym["source"], synonym["name"]) for synonym in each["synonyms"]],
        )
        for each in rows
    }


def test_configs_of_a_topic(side: Running, name: str) -> None:
    side.done("topic", "create", name)
    side.done("config", "set", "topic", name, "retention.ms=3600000", "cleanup.policy=compact")
    side.done("config", "set", "topic", name, "cleanup.policy+=delete", "segment.bytes=1048576")
    side.done("config", "unset", "topic", name, "segment.bytes")
    every = stock_configs(side, "--entity-type", "topics", "--entity-name", name, "--all")
    assert ours(side.data("config", "get", "topic", name, "--all")) == every
    assert every["cleanup.policy"][0] == "compact,delete"
    (topic,) = side.data("topic", "configs", name)
    changed = stock_configs(side, "--entity-type", "topics", "--entity-name", name)
    assert {
        key: value for key, value in ours(topic["configs"]).items() if value[2][0][0] == "DYNAMIC_TOPIC_CONFIG"
    } == changed
    (entry,) = side.data("config", "get", "topic", name, "max.message.bytes", "--documentation")
    assert (entry["type"], entry["source"]) == ("INT", "DEFAULT_CONFIG")
    assert "record batch" in entry["documentation"]

    side.done("config", "set", "topic", name, "retention.ms=1", "--dry-run")
    assert ours(side.data("config", "get", "topic", name, "--all")) == every
    assert side.failure("config", "set", "topic", name, "retention.ms=soon")[0] == 1
    assert side.failure("config", "set", "topic", f"{name}-none", "retention.ms=1")[0] == 3
    status, text = side.failure("config", "get", "topic", name, "no.such.config")
    assert (status, text) == (3, f"odradek: topic {name}: there is no config no.such.config\n")
    side.done("topic", "delete", name, "--yes")


def test_configs_of_brokers(side: Running) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    side.done("config", "set", "broker", "0", "log.cleaner.threads=2")
    side.done("config", "set", "broker", "default", "log.retention.ms=777600000")
    every = stock_configs(side, *broker, "--all")
    assert ours(side.data("broker", "configs", "0", "--all")[0]["configs"]) == every
    assert ours(side.data("config", "get", "broker", "0", "log.cleaner.threads", "log.retention.ms")) == {
        key: every[key] for key in ("log.cleaner.threads", "log.retention.ms")
    }
    (default,) = side.data("broker", "configs", "--default")
    assert ours(default["configs"]) == stock_configs(side, "--entity-type", "brokers", "--entity-default")
    side.done("config", "unset", "broker", "default", "log.retention.ms")
    side.done("config", "unset", "broker", "0", "log.cleaner.threads")
    assert stock_configs(side, *broker) == {}

    every = stock_configs(side, "--entity-type", "broker-loggers", "--entity-name", "0")
    levels = side.data("config", "get", "broker-logger", "0", "--all")
    assert {each["name"]: each["value"] for each in levels} == {key: value for key, (value, *_) in every.items()}
    for logger in [each for each in every if each != "root"][:1]:  # the Kafka of the tests has only the root
        side.done("config", "set", "broker-logger", "0", f"{logger}=DEBUG")
        (level,) = side.data("config", "get", "broker-logger", "0", logger)
        assert level["value"] == "DEBUG"
        side.done("config", "unset", "broker-logger", "0", logger)
    status, text = side.failure("config", "get", "broker", "9")
    assert (status, text) == (3, "odradek: broker 9 is not in the cluster; it has 0 (BROKER_NOT_AVAILABLE)\n")


def test_brokers_and_their_log_directories(side: Running, name: str) -> None:
    (broker,) = side.data("broker", "list")
    assert (broker["broker"], broker["address"], broker["controller"]) == (0, side.bootstrap, True)
    side.done("topic", "create", name, "-p", "2")
    side.produce(name, map(str, range(50)))
    found = side.data("broker", "log-dirs", "--topic", name)
    text = side.stock("kafka-log-dirs", "--describe", "--topic-list", name)
    (stock,) = json.loads(text[text.index("{") :])["brokers"]
    assert [
        {
            "logDir": each["log_dir"],
            "error": each["error"],
            "partitions": {
                f"{part['topic']}-{part['partition']}": (part["size"], part["offset_lag"], part["is_future"])
                for part in each["replicas"]
            },
        }
        for each in found
    ] == [
        {
            **each,
            "partitions": {
                part["partition"]: (part["size"], part["offsetLag"], part["isFuture"]) for part in each["partitions"]
            },
        }
        for each in stock["logDirs"]
    ]
    assert found[0]["usable_bytes"] > 0
    side.done("topic", "delete", name, "--yes")
