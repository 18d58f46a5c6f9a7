"""The tables of properties against Kafka's own, which its classes print as HTML for the documentation."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from html import unescape
from pathlib import Path

import pytest

from odradek.broker.config.definitions import BROKER_PROPERTIES, FALLBACKS
from odradek.broker.config.dynamic import DYNAMIC_ONLY
from odradek.broker.config.ignored import beginnings, documentation, named, without_effect
from odradek.broker.config.rules import REFUSED
from odradek.broker.config.topic_definitions import BROKER_DEFAULTS, TOPIC_PROPERTIES
from odradek.broker.config.types import ConfigKey, Type, Update, show_value
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.transaction.state.settings import TransactionSettings
from odradek.storage.config import LogConfig
from tests import configuration
from tests.jvm.jars import classpath
from tests.jvm.java import find_java

# Kafka documents these in prose where the table has a range.
IN_PROSE = {"remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size"}
# Kafka checks these in KRaft only, which Odradek refuses as a whole, or has no effective check.
UNCHECKED = {"controller.quorum.voters", "controller.quorum.bootstrap.servers", "authorizer.class.name"}


def documented(class_name: str) -> dict[str, dict[str, str]]:
    """Property -> the rows of its table (Type, Default, Valid Values …) as the Kafka class prints them."""
    jars = os.pathsep.join(map(str, classpath("3.9.2")))
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", jars, class_name]
    html = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    properties = {}
    for section in html.split("<h4>")[1:]:
        name = re.search(r'<a id="([^"]+)"', section)
        assert name is not None
        rows = re.findall(r"<th>([^<]+):</th><td>(.*?)</td>", section, re.DOTALL)
        properties[name[1]] = {title: unescape(text) for title, text in rows}
    return properties


def rows_of(table: Mapping[str, ConfigKey], theirs: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Odradek's rows, in the words of the documentation, but not in its friendly units (`1 day`)."""
    ours = {}
    for name, row in table.items():
        default = show_value(row.default)
        printed = "null" if default is None else default or '""'
        allowed = "" if row.allowed is None else str(row.allowed)
        documented = theirs.get(name, {})
        if documented.get("Default", "").startswith(f"{printed} ("):
            printed = documented["Default"]
        if name in IN_PROSE | UNCHECKED:
            allowed = documented["Valid Values"]
        ours[name] = {"Type": row.type.name.lower(), "Default": printed, "Valid Values": allowed}
    return ours


@pytest.mark.jvm
def test_broker_properties_are_those_of_kafka() -> None:
    theirs = documented("kafka.server.KafkaConfig")
    shown = {name: row for name, row in BROKER_PROPERTIES.items() if not row.internal}
    ours = rows_of(shown, theirs)
    for name, row in ours.items():
        row["Update Mode"] = shown[name].update.value
    assert len(theirs) > 300
    # Kafka 3.9 offers the consumer protocol with KRaft only; Odradek offers it here, as Kafka 4.x does.
    assert ours["group.coordinator.rebalance.protocols"]["Default"] == "classic,consumer"
    ours["group.coordinator.rebalance.protocols"]["Default"] = "classic"
    # Kafka has no limit; in Odradek a client cannot fill the memory of a coordinator with members.
    for limited in ("group.max.size", "group.consumer.max.size"):
        assert ours[limited]["Default"] == "5000"
        ours[limited]["Default"] = str(2**31 - 1)
    assert ours == {name: {title: row[title] for title in ours["broker.id"]} for name, row in theirs.items()}


@pytest.mark.jvm
def test_topic_properties_are_those_of_kafka() -> None:
    theirs = documented("org.apache.kafka.storage.internals.log.LogConfig")
    ours = rows_of(TOPIC_PROPERTIES, theirs)
    for name, row in ours.items():
        row["Server Default Property"] = BROKER_DEFAULTS.get(name, "null")
    assert len(theirs) > 30
    assert ours == {name: {title: row[title] for title in ours["segment.ms"]} for name, row in theirs.items()}


@pytest.mark.parametrize("table", [BROKER_PROPERTIES, TOPIC_PROPERTIES], ids=["broker", "topic"])
def test_every_row_keeps_its_own_rule(table: dict[str, ConfigKey]) -> None:
    python_types: dict[Type, type] = {
        Type.BOOLEAN: bool,
        Type.INT: int,
        Type.SHORT: int,
        Type.LONG: int,
        Type.DOUBLE: float,
        Type.LIST: tuple,
    }
    for name, row in table.items():
        assert row.name == name
        assert row.default is None or type(row.default) is python_types.get(row.type, str), name
        assert row.default is None or row.allowed is None or row.allowed.complaint(row.default) is None, name
        assert row.doc.endswith("."), name


def test_every_default_of_a_topic_has_a_broker_property_of_its_type() -> None:
    for topic_name, broker_name in BROKER_DEFAULTS.items():
        assert TOPIC_PROPERTIES[topic_name].type is BROKER_PROPERTIES[broker_name].type


def test_every_family_ends_in_a_property_with_a_default() -> None:
    assert {family[-1] for family in FALLBACKS.values()} == {
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.retention.hours",
        "log.flush.scheduler.interval.ms",
    }
    assert all(BROKER_PROPERTIES[family[-1]].default is not None for family in FALLBACKS.values())


def test_update_modes_have_the_words_of_the_documentation() -> None:
    assert [mode.value for mode in Update] == ["read-only", "per-broker", "cluster-wide"]


# ---- properties with and without effect


SOURCES = ("broker", "protocol", "storage", "odradek")
ABOUT_PROPERTIES = {
    *(f"broker/config/{name}.py" for name in ("definitions", "topic_definitions", "rules", "ignored", "dynamic")),
    # Properties of clients, some of which have the same names.
    "odradek/client_configs.py",
    "odradek/admin/properties.py",
}


@cache
def read_somewhere() -> frozenset[str]:
    """The names that the code reads: as a string, or as the fields of a class that is filled from the properties."""
    root = Path(__file__).parents[2]
    texts = {
        node.value
        for folder in SOURCES
        for file in (root / folder).rglob("*.py")
        if file.relative_to(root).as_posix() not in ABOUT_PROPERTIES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    fields = {
        name.replace("_", ".")
        for kind in (GroupSettings, TransactionSettings, LogConfig)
        for name in kind.__dataclass_fields__
    }
    return frozenset(texts | fields)


def works_by_another(name: str) -> bool:
    """Whether a broker's property is the default of a topic's that is read, or replaces one in another unit."""
    topics = {default for topic, default in BROKER_DEFAULTS.items() if topic in read_somewhere()}
    return name in topics or any(other in read_somewhere() | topics for other in FALLBACKS.get(name, ()))


@pytest.mark.slow
@pytest.mark.parametrize("table", [BROKER_PROPERTIES, TOPIC_PROPERTIES], ids=["broker", "topic"])
def test_exactly_the_properties_with_an_effect_are_read(table: dict[str, ConfigKey]) -> None:
    used = {name for name in table if name in read_somewhere() or works_by_another(name)}
    documented = {name for name, row in table.items() if row.effect}
    # Whether a broker may be without an id is a rule, and no other code reads it.
    assert documented - used <= {"broker.id.generation.enable"}
    # Properties that are refused are read for that check; so are a topic's tiered storage properties.
    tiers = {name for name in table if name.startswith(("remote.log.", "remote.storage."))}
    assert used - documented <= set(REFUSED) | tiers


def test_every_property_without_effect_has_a_reason() -> None:
    rows = [*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values(), *DYNAMIC_ONLY.values()]
    for row in rows:
        assert (without_effect(row) is None) is row.effect
        assert documentation(row).startswith(row.doc)
        assert documentation(row).endswith(".")
    idle = [row.name for row in rows if not row.effect]
    assert set(named()) <= set(idle), "a reason for a property that has an effect, or does not exist"
    alone = [name for name in idle if name not in named()]
    assert [start for start in beginnings() if not any(name.startswith(start) for name in alone)] == []
    assert set(REFUSED) <= set(idle)


def test_the_page_is_up_to_date() -> None:
    written = configuration.PAGE.read_text(encoding="utf-8")
    assert written == configuration.page(), "python -m tests configuration"
    for row in (*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values()):
        assert f"| `{row.name}` |" in written
