"""kafka-configs of three releases: topics, one broker, all brokers, loggers; rejected values, and the error
messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pytest

from tests.compatibility.brokers import Broker, create_topic
from tests.jvm.tools import VERSIONS, run_tool
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ONE: Final = ("--entity-type", "brokers", "--entity-name", "0")
EVERY: Final = ("--entity-type", "brokers", "--entity-default")
Configs = Callable[..., str]


@pytest.fixture
def configs(broker: Broker) -> Configs:
    """Runs kafka-configs and returns its output, errors too."""

    def run(*arguments: str, version: str = "3.9.2") -> str:
        command = ["--bootstrap-server", broker.bootstrap, *arguments]
        result = run_tool(version, "kafka-configs", command, check=False)
        return result.stdout + result.stderr

    return run


def shown(look: Callable[[], str], name: str, wanted: str | None) -> None:
    """Wait until a property is described like this, or not at all: a change takes a moment to become effective."""

    def is_wanted(text: str) -> bool:
        found = re.search(rf"^\s+{re.escape(name)}=(.*)$", text, re.MULTILINE)
        return (found and found[1]) == wanted

    eventually(look, is_wanted)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_properties_of_a_topic(broker: Broker, topic: str, configs: Configs, version: str) -> None:
    create_topic(broker, topic, config={"segment.bytes": "1000000", "retention.ms": "7"})
    whom = ("--entity-type", "topics", "--entity-name", topic)

    def look() -> str:
        return configs(*whom, "--describe", version=version)

    change = ["--add-config", "cleanup.policy=[compact,delete]", "--delete-config", "retention.ms"]
    assert f"Completed updating config for topic {topic}." in configs(*whom, "--alter", *change, version=version)
    shown(
        look,
        "cleanup.policy",
        "compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
    )
    text = look()
    assert "segment.bytes=1000000 sensitive=false" in text
    assert "retention.ms" not in text


def test_brokers_topics_and_loggers(broker: Broker, topic: str, configs: Configs) -> None:
    the_layers_of_a_broker(configs)
    what_is_refused(broker, topic, configs)
    the_levels_of_loggers(configs)


def the_layers_of_a_broker(configs: Configs) -> None:
    """The nearest value has precedence. The values set are deleted again."""

    def look() -> str:
        return configs(*ONE, "--describe", "--all")

    def change(whom: tuple[str, ...], *how: str) -> None:
        assert "Completed updating" in configs(*whom, "--alter", *how)

    default = "DEFAULT_CONFIG:message.max.bytes=1048588"
    for_all = f"DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=7000, {default}"
    own = f"DYNAMIC_BROKER_CONFIG:message.max.bytes=9000, {for_all}"
    change(EVERY, "--add-config", "message.max.bytes=7000")
    shown(look, "message.max.bytes", f"7000 sensitive=false synonyms={{{for_all}}}")
    change(ONE, "--add-config", "message.max.bytes=9000")
    shown(look, "message.max.bytes", f"9000 sensitive=false synonyms={{{own}}}")
    assert "message.max.bytes=7000" in configs(*EVERY, "--describe")
    change(EVERY, "--delete-config", "message.max.bytes")
    change(ONE, "--delete-config", "message.max.bytes")
    shown(look, "message.max.bytes", f"1048588 sensitive=false synonyms={{{default}}}")
    text = look()
    assert "All configs for broker 0 are:" in text
    assert len(re.findall(r"^\s+[\w.]+=.* sensitive=(?:true|false) synonyms=\{.*\}$", text, re.MULTILINE)) > 300
    for name in ("ssl.keystore.password", "sasl.jaas.config", "password.encoder.secret"):
        shown(lambda: text, name, "null sensitive=true synonyms={}")


def what_is_refused(broker: Broker, topic: str, configs: Configs) -> None:
    """Values, names, and changes at run time, each with the error message that an administrator reads."""
    create_topic(broker, topic)
    here, missing = (("--entity-type", "topics", "--entity-name", name) for name in (topic, f"{topic}-missing"))
    for whom, wanted, error, words in (
        (here, "retention.ms=soon", "InvalidConfiguration", "Not a number of type LONG"),
        (here, "no.such.property=1", "InvalidConfiguration", "Unknown topic config name: no.such.property"),
        (missing, "retention.ms=1", "UnknownTopicOrPartition", ""),
        (ONE, "broker.rack=r", "InvalidRequest", "Cannot update these configs dynamically"),
        (EVERY, "listeners=PLAINTEXT://:5", "InvalidRequest", "Cannot update these configs at default cluster level"),
        (ONE, "num.io.threads=17", "InvalidRequest", "should not be greater than double the current value"),
        (ONE, "ssl.keystore.location=x", "InvalidRequest", "using the listener prefix"),
    ):
        printed = configs(*whom, "--alter", "--add-config", wanted)
        assert f"{error}Exception" in printed
        assert words in printed


def the_levels_of_loggers(configs: Configs) -> None:
    """Here Kafka finds the root only, because of its logging library."""
    whom = ("--entity-type", "broker-loggers", "--entity-name", "0")
    (before,) = re.findall(r"^\s+root=(\w+) ", configs(*whom, "--describe"), re.MULTILINE)
    for level in ("ERROR", before):
        printed = configs(*whom, "--alter", "--add-config", f"root={level}")
        assert "Completed updating config for broker-logger 0." in printed
        shown(lambda: configs(*whom, "--describe"), "root", f"{level} sensitive=false synonyms={{}}")
    assert "InvalidConfigurationException" in configs(*whom, "--alter", "--add-config", "root=LOUD")
    assert "Invalid broker logger(s)" in configs(*whom, "--alter", "--add-config", "no.such.logger=INFO")
