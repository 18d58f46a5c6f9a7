"""Broker configuration: Kafka's property names, defaults, layers and error messages (Kafka: KafkaConfig).

`BrokerConfig.load` reads a server.properties and the overrides of the command line. A property gets its value from the
first of four layers that has it: dynamic for this broker, dynamic for all brokers, the file, the default (KIP-226). For
a dynamic change, `with_dynamic` creates and validates a new configuration; `adopt` copies its values into the object
that all components share and read when they need a value.

`definitions` lists the properties, `rules` the rules for several of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Final, cast

from odradek.broker.config.definitions import BROKER_PROPERTIES, FALLBACKS, HOUR, MINUTE
from odradek.broker.config.dynamic import DYNAMIC_ONLY, base_name, only_dynamic
from odradek.broker.config.ignored import documentation
from odradek.broker.config.listeners import address_of, parse_listeners, parse_pairs, parse_protocol_map
from odradek.broker.config.properties import parse_properties
from odradek.broker.config.removed import REPLACED_BY
from odradek.broker.config.rules import check_rules
from odradek.broker.config.types import (
    ConfigEntry,
    ConfigError,
    Source,
    Synonym,
    Type,
    Update,
    read_value,
    show_value,
)
from odradek.broker.registry.znodes import Endpoint

Layer = tuple[Source, Mapping[str, str]]

_PREFIX: Final = "listener.name."
_OF_AUTHORIZERS: Final = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Properties that Kafka's authorizers read; KafkaConfig does not define them."""
_OF_TOKENS: Final = frozenset(
    {
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        "org.apache.kafka.sasl.oauthbearer.allowed.files",
        "odradek.sasl.oauthbearer.allow.unsecured.tokens",
    }
)
"""Properties of OAUTHBEARER; the first two are system properties in Kafka."""
_DEFAULTS: Final = {name: row.default for name, row in BROKER_PROPERTIES.items()}
_UNIT_MS: Final = {".hours": HOUR, ".minutes": MINUTE, ".ms": 1}


class BrokerConfig:
    """The validated settings of one broker. `config["log.segment.bytes"]` is the typed value of a property.

    Attributes have settings that depend on several properties or on more than a type: `listeners`, `log_dirs`,
    `retention_ms` and so on. A name that no property has raises KeyError.
    """

    __slots__ = ("_layers", "_of_listeners", "_values", "advertised_listeners", "inter_broker_listener", "listeners")

    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...]  # a host may be empty and a port 0 until the listener is bound
    inter_broker_listener: str

    def __init__(
        self,
        static: Mapping[str, str],
        cluster_default: Mapping[str, str] | None = None,
        per_broker: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ConfigError for an invalid value and for values that conflict; unknown names are kept."""
        self._layers: tuple[Layer, ...] = (
            (Source.DYNAMIC_BROKER_CONFIG, per_broker or {}),
            (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster_default or {}),
            (Source.STATIC_BROKER_CONFIG, _with_both_ids(static)),
        )
        self._values = dict(_DEFAULTS)
        for _, layer in reversed(self._layers):
            for name, text in layer.items():
                if row := BROKER_PROPERTIES.get(name):
                    self._values[name] = read_value(row, text)
        self._read_listeners()
        self._of_listeners = self._read_own_values()
        check_rules(self)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None, overrides: Iterable[str] = ()) -> BrokerConfig:
        """The configuration of the file at `path`, if any, with `overrides`, each `key=value`.

        Raises ConfigError as the constructor does, and OSError when the file cannot be read.
        """
        static = parse_properties(Path(path).read_bytes()) if path is not None else {}
        for override in overrides:
            name, equals, value = override.partition("=")
            if not equals or not name.strip():
                raise ConfigError(f"--override {override}: expected key=value")
            static[name.strip()] = value
        return cls(static)

    def with_dynamic(self, cluster_default: Mapping[str, str], per_broker: Mapping[str, str]) -> BrokerConfig:
        """This configuration with other dynamic layers; their read-only properties are ignored."""
        static = self._layers[-1][1]
        changed = BrokerConfig(static, only_dynamic(cluster_default), only_dynamic(per_broker))
        return changed.with_broker_id(self.broker_id)

    def with_broker_id(self, broker_id: int) -> BrokerConfig:
        """This configuration for a broker whose id was read or generated at its start.

        A generated id is above `reserved.broker.max.id`, so the rule for configured ones does not apply to it.
        """
        numbered = copy(self)
        numbered._values = {**self._values, "broker.id": broker_id, "node.id": broker_id}
        return numbered

    def adopt(self, other: BrokerConfig) -> None:
        """Copy the values of `other`, which `with_dynamic` of this configuration has created."""
        self._layers, self._values, self._of_listeners = other._layers, other._values, other._of_listeners
        self.listeners, self.advertised_listeners = other.listeners, other.advertised_listeners

    @property
    def static(self) -> Mapping[str, str]:
        """The properties of the file and the command line, as text."""
        return self._layers[-1][1]

    def __getitem__(self, name: str) -> Any:
        """The value of property `name`, in the Python type that `types.Value` has for its Kafka type."""
        return self._values[name]

    def of_listener(self, listener: str, name: str, mechanism: str | None = None) -> Any:
        """The value of property `name` for one listener, and for one of its SASL mechanisms (KIP-103, KIP-226).

        The most exact name that is set counts: `listener.name.LISTENER.MECHANISM.NAME`, `listener.name.LISTENER.NAME`,
        `NAME`.
        """
        if mechanism is not None and (own := _prefixed(listener, name, mechanism)) in self._of_listeners:
            return self._of_listeners[own]
        own = _prefixed(listener, name)
        return self._of_listeners[own] if own in self._of_listeners else self._values[name]

    def only_of_listener(self, listener: str, name: str, mechanism: str | None = None) -> Any:
        """The value that is set with the prefix of the listener, and of the mechanism if one is given; else None."""
        return self._of_listeners.get(_prefixed(listener, name, mechanism))

    def is_set(self, name: str) -> bool:
        """Whether the file, the command line or a dynamic layer contains the property."""
        return any(name in layer for _, layer in self._layers)

    def number_if_set(self, name: str) -> int | None:
        """The value of a numeric property that is set explicitly, None if it has its default."""
        return int(self[name]) if self.is_set(name) else None

    def dynamic_only(self, name: str) -> int | None:
        """The value of a property that only a dynamic layer can have (`dynamic.DYNAMIC_ONLY`), None if it is not set.

        An invalid value, which only a tool that writes to the metadata store itself can set, counts as not set.
        """
        for _, layer in self._layers[:-1]:
            if name in layer:
                try:
                    return cast("int", read_value(DYNAMIC_ONLY[name], layer[name]))
                except ConfigError:
                    return None
        return None

    # Settings that depend on several properties

    @property
    def broker_id(self) -> int:
        """The configured id; for -1, the id comes from the data directory or from the metadata store."""
        return int(self["broker.id"])

    @property
    def control_listener(self) -> str:
        """The listener for requests of the controller and to it (KIP-291)."""
        named = self["control.plane.listener.name"]
        return self.inter_broker_listener if named is None else str(named).upper()

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The data directories, at least one."""
        text = self["log.dir"] if self["log.dirs"] is None else self["log.dirs"]
        return tuple(Path(item) for item in map(str.strip, text.split(",")) if item)

    @property
    def roll_ms(self) -> int:
        """Age in milliseconds at which a segment is rolled, from log.roll.ms or log.roll.hours."""
        return self._duration_ms("log.roll.ms")

    @property
    def roll_jitter_ms(self) -> int:
        """Largest random part of `roll_ms`, in milliseconds, from log.roll.jitter.ms or log.roll.jitter.hours."""
        return self._duration_ms("log.roll.jitter.ms")

    @property
    def retention_ms(self) -> int:
        """Age in milliseconds at which a segment is deleted, or -1, from log.retention.ms, .minutes or .hours."""
        return max(-1, self._duration_ms("log.retention.ms"))

    @property
    def flush_ms(self) -> int:
        """Longest time without an fsync in ms, from log.flush.interval.ms or log.flush.scheduler.interval.ms."""
        return self._duration_ms("log.flush.interval.ms")

    @property
    def connections_per_address(self) -> dict[str, int]:
        """Limits on connections from single hosts, from max.connections.per.ip.overrides. Raises ConfigError."""
        name = "max.connections.per.ip.overrides"
        limits = parse_pairs(name, self[name])
        found = {}
        for host, limit in limits.items():
            if not limit.isascii() or not limit.isdigit():
                raise ConfigError(f"Invalid value {limit} for configuration {name}: {host} needs a whole number")
            found[address_of(name, host)] = int(limit)
        return found

    def _duration_ms(self, name: str) -> int:
        for member in FALLBACKS[name]:
            if (value := self[member]) is not None:
                return int(value) * _UNIT_MS[member[member.rindex(".") :]]
        raise KeyError(name)  # each family ends in a property that has a default

    def _read_listeners(self) -> None:
        protocols = parse_protocol_map(self["listener.security.protocol.map"])
        self.listeners = parse_listeners("listeners", self["listeners"], protocols)
        self.advertised_listeners = self.listeners
        if (advertised := self["advertised.listeners"]) is not None:
            self.advertised_listeners = parse_listeners("advertised.listeners", advertised, protocols)
        named = self["inter.broker.listener.name"]
        if named is None:
            self.inter_broker_listener = self["security.inter.broker.protocol"]
            return
        if self.is_set("security.inter.broker.protocol"):
            raise ConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
            )
        self.inter_broker_listener = named.upper()
        if self.inter_broker_listener not in protocols:
            raise ConfigError(
                f"Listener with name {self.inter_broker_listener} defined in inter.broker.listener.name not found in "
                "listener.security.protocol.map."
            )

    def _read_own_values(self) -> dict[str, Any]:
        """The properties with the prefix of a listener that exists, in their types. Raises ConfigError.

        As in Kafka, those of other listeners are ignored, and so is a prefix that is not in lower case.
        """
        prefixes = tuple(f"{_PREFIX}{each.listener.lower()}." for each in self.listeners)
        return {
            name: read_value(row, text)
            for _, layer in reversed(self._layers)
            for name, text in layer.items()
            if name.startswith(prefixes) and (row := BROKER_PROPERTIES.get(base_name(name)))
        }

    # Descriptions

    def unknown(self, cutoff: float = 0.6) -> dict[str, str | None]:
        """Properties of the file or the command line that Kafka does not have -> the most similar one that it has.

        `cutoff` is the lowest similarity of the names, from 0 to 1.
        """
        names = [name for name in self.static if not _is_known(name) and name not in REPLACED_BY]
        return {name: _nearest(name, cutoff) for name in names}

    def replaced(self) -> dict[str, str]:
        """Properties of the file or the command line that Kafka has removed -> the property that replaces each."""
        return {name: REPLACED_BY[name] for name in self.static if name in REPLACED_BY}

    def without_effect(self) -> list[str]:
        """Properties with another value than their default that have no effect in Odradek."""
        return sorted(
            name
            for name in self._layers[-1][1]
            if (row := BROKER_PROPERTIES.get(name)) and not row.effect and self._values[name] != row.default
        )

    def describe_broker(self) -> list[ConfigEntry]:
        """Every property as DescribeConfigs returns it for this broker (Kafka's `ConfigHelper`)."""
        names = dict.fromkeys(name for _, layer in self._layers for name in layer)
        names.update(dict.fromkeys(name for name, row in BROKER_PROPERTIES.items() if not row.internal))
        return [self._describe(name, self.synonyms(name)) for name in names]

    def describe_cluster_default(self) -> list[ConfigEntry]:
        """The dynamic properties of all brokers, as DescribeConfigs returns them for a broker without a name."""
        source, layer = self._layers[1]
        described = []
        for name, text in layer.items():
            synonyms = tuple(synonym for synonym in self.synonyms(name) if synonym.source is source)
            entry = self._describe(name, synonyms)
            row = BROKER_PROPERTIES.get(name)
            value = None if entry.sensitive else text if row is None else show_value(read_value(row, text))
            described.append(entry._replace(value=value))
        return described

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """The sources that could give property `name` its value, the effective one first.

        As in Kafka, the list starts at the first source with that exact name: a file that sets log.retention.hours is
        not a source of log.retention.ms, although it has an effect on it.
        """
        base = base_name(name)
        row = BROKER_PROPERTIES.get(base) or DYNAMIC_ONLY.get(base)
        hidden = row is None or row.sensitive
        family = FALLBACKS.get(name, (name,) if base == name else (name, base))
        places = [
            Synonym(member, None if hidden else layer[member], source)
            for source, layer in self._layers
            for member in family
            if member in layer
        ]
        places += [
            Synonym(member, show_value(_DEFAULTS[member]), Source.DEFAULT_CONFIG)
            for member in family
            if _DEFAULTS.get(member) is not None
        ]
        start = next((index for index, place in enumerate(places) if place.name == name), len(places))
        return tuple(places[start:])

    def _describe(self, name: str, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
        source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
        row = BROKER_PROPERTIES.get(name)
        if row is not None:
            value = None if row.sensitive else show_value(self._values[name])
            read_only = row.update is Update.READ_ONLY
            return ConfigEntry(name, value, source, row.sensitive, read_only, row.type, documentation(row), synonyms)
        # Kafka returns the text of a listener's own property and of a limit of replication, and marks them read-only
        # although they are not.
        base = BROKER_PROPERTIES.get(base_name(name)) or DYNAMIC_ONLY.get(name)
        if base is None:
            return ConfigEntry(name, None, source, True, True, Type.UNKNOWN, None, synonyms)
        value = None if base.sensitive or not synonyms else synonyms[0].value
        return ConfigEntry(name, value, source, base.sensitive, True, base.type, None, synonyms)


def _prefixed(listener: str, name: str, mechanism: str | None = None) -> str:
    levels = (listener, name) if mechanism is None else (listener, mechanism.lower(), name)
    return _PREFIX + ".".join((levels[0].lower(), *levels[1:]))


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """`broker.id` and `node.id` are synonyms of each other (`KafkaConfig.populateSynonyms`)."""
    both = dict(static)
    if "broker.id" in both:
        both.setdefault("node.id", both["broker.id"])
    elif "node.id" in both:
        both["broker.id"] = both["node.id"]
    return both


def _is_known(name: str) -> bool:
    # Properties of a listener and of plug-ins have any name; Kafka reads them by these prefixes.
    prefixes = (_PREFIX, "config.providers", "rsm.config.", "rlmm.config.")
    return name in BROKER_PROPERTIES or name in _OF_AUTHORIZERS | _OF_TOKENS or name.startswith(prefixes)


def _nearest(name: str, cutoff: float) -> str | None:
    """The most similar property; for a topic property, the broker property with its default."""
    from difflib import get_close_matches  # slow imports, needed only after a mistake

    from odradek.broker.config.topic_definitions import BROKER_DEFAULTS

    if name in BROKER_DEFAULTS:
        return BROKER_DEFAULTS[name]
    return next(iter(get_close_matches(name, BROKER_PROPERTIES, n=1, cutoff=cutoff)), None)
