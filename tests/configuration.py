"""`python -m tests configuration`: writes docs/configuration.md from the tables of properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.dynamic import DYNAMIC_ONLY
from odradek.broker.config.ignored import documentation
from odradek.broker.config.rules import REFUSED
from odradek.broker.config.topic_definitions import BROKER_DEFAULTS, TOPIC_PROPERTIES
from odradek.broker.config.types import ConfigKey, show_value

PAGE: Final = Path(__file__).parents[1] / "docs" / "configuration.md"

INTENDED: Final = {
    "group.coordinator.rebalance.protocols": "Odradek offers the consumer protocol, as Kafka 4 does; Kafka 3.9 with "
    "ZooKeeper has only the classic one.",
    "group.max.size": "5000, where Kafka has no limit: a client could fill the memory of the coordinator with members, "
    "and a larger group holds up its other clients.",
    "group.consumer.max.size": "5000, for the same reason.",
}
"""Properties whose row differs from Kafka 3.9.2's, with reasons."""

_HEAD: Final = """\
# Configuration

This page is made from the tables in `broker/config/definitions.py` and `broker/config/topic_definitions.py` by
`python -m tests configuration`. A test compares name, type, default and whether a property is dynamic with the
descriptions that Apache Kafka 3.9.2 returns.

A broker reads a `server.properties` as Kafka's does, with `--override key=value` and the variables of Kafka's container
image on top. It reads and checks every property of Kafka 3.9. The tables list the properties without effect, with the
reason; at its start the broker logs a warning that names those that are set. The warning also names a property that
Kafka does not have, with the nearest known name.

`port`, `host.name`, `advertised.port` and `advertised.host.name` were removed in Kafka 3.0, which ignores them and
listens on port 9092 of all interfaces. Odradek does not start when one of them would have decided its address; the
message names the `listeners` or `advertised.listeners` to set. When these two are set as well, Odradek ignores the old
names with a warning, as Kafka 2 did. A misspelt `listeners` ends the start as well.

## Which value is effective

1. set at run time for this broker: `kafka-configs --entity-type brokers --entity-name 0 --alter --add-config …`
2. set at run time for all brokers: `kafka-configs --entity-type brokers --entity-default --alter …`
3. `server.properties`, and `--override`
4. the default

A topic's own properties come before all of these. `kafka-configs --describe --all` shows the effective value, its
source and the values that it overrides. A change at run time is effective on the broker that received the request when
it answers, and on the others moments later. It stays when the broker restarts.

In the column Dynamic, `cluster-wide` can be set for all brokers and for one, `per-broker` for one, and `read-only` only
in the file. One change can at most double or halve a number of threads. Changes of `listeners`, `advertised.listeners`
and `listener.security.protocol.map` add and remove listeners; an existing listener keeps its socket and its security
protocol. Secrets are not stored in the metadata store, and so cannot be set at run time.

A listener may have `max.connections` and `max.connection.creation.rate` of its own, as in
`listener.name.outside.max.connections=1000`, its name in lower case; in the file, or at run time for one broker or all.
The broker's limit applies as well, and is the only one for a listener without a limit of its own. The broker reads
`listener.name.outside.num.network.threads`, which is as without effect as `num.network.threads`. DescribeConfigs
returns these properties as read-only, as Kafka's does.

Levels of loggers are set with `kafka-configs --entity-type broker-loggers --entity-name 0`, until the broker stops;
`root` stands for all loggers that have no level of their own. Groups and client metrics have no configuration, as in
Kafka 3.9 with ZooKeeper.

`create.topic.policy.class.name` and `alter.config.policy.class.name` name entry points of installed Python packages, in
the group `odradek.policies`; `broker/config/policies.py` describes their interface. When a policy is not installed, the
broker does not start.
"""


def page() -> str:
    """The whole page."""
    parts = [
        _HEAD,
        "## Differences from Kafka 3.9.2\n",
        *(f"- `{name}`: {why}" for name, why in INTENDED.items()),
        "- The documentation of the properties is not Kafka's text.",
        "- Kafka does not have the properties that begin with `odradek.`; DescribeConfigs returns them where they are "
        "set.",
        "- Sizes of socket buffers and the number of recovery processes apply where they are set. Their defaults are "
        "those of the system and the number of cores.\n",
        "## The broker\n",
        f"{len(BROKER_PROPERTIES)} properties, {_working(BROKER_PROPERTIES)} of them with an effect.\n",
        _table(BROKER_PROPERTIES.values(), {}),
        "\nAt run time only:\n",
        _table(DYNAMIC_ONLY.values(), {}),
        "\n## Topics\n",
        f"{len(TOPIC_PROPERTIES)} properties, {_working(TOPIC_PROPERTIES)} of them with an effect. All can change at "
        "any time. Where a topic does not set one, the broker's property in the column Otherwise gives it.\n",
        _table(TOPIC_PROPERTIES.values(), BROKER_DEFAULTS),
    ]
    return "\n".join(parts)


def _working(table: Mapping[str, ConfigKey]) -> int:
    return sum(row.effect for row in table.values())


def _table(rows: Iterable[ConfigKey], broker_defaults: Mapping[str, str]) -> str:
    titles = [
        "Name",
        "Type",
        "Default",
        "Allowed",
        "Otherwise" if broker_defaults else "Dynamic",
        "Effect",
        "What it is",
    ]
    lines = [_line(titles), _line(["---"] * len(titles))]
    for row in rows:
        default = show_value(row.default)
        where = row.update.value if not broker_defaults else _code(broker_defaults.get(row.name, ""))
        lines.append(
            _line(
                [
                    _code(row.name),
                    row.type.name.lower(),
                    "none" if default is None else _code(default) if default else "empty",
                    "" if row.allowed is None else _shorter(str(row.allowed)),
                    where,
                    _effect(row),
                    documentation(row),
                ]
            )
        )
    return "\n".join(lines)


def _effect(row: ConfigKey) -> str:
    if row.effect:
        return "yes"
    return "refused" if row.name in REFUSED else "none"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _shorter(allowed: str) -> str:
    """The versions of Kafka are many."""
    items = allowed.strip("[]").split(", ")
    return allowed if len(items) < 12 else f"[{items[0]}, … {items[-1]}]"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
    return 0
