"""The configuration of an application: Kafka Streams' properties, one table, and what goes through to the clients.

Names are Kafka's, with their dots; values may be what they mean (numbers, functions, serdes) or their text. Where the
property is a class in Java it is a function or an object here. A property of librdkafka is given with the client it is
for: `consumer.`, `main.consumer.`, `restore.consumer.`, `global.consumer.`, `producer.`, `admin.client.`; `topic.` is
for the topics that the application makes. What all clients need (security.protocol, sasl.*, ssl.*) goes to all of them.

A name that nobody knows is a warning, as it may be meant for a handler of the user's own
(org.apache.kafka.streams.StreamsConfig; exactly once: KIP-129, KIP-447).
"""

from __future__ import annotations

import difflib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.streams.errors import Handlers, StreamsError, log_and_fail
from odradek.streams.serdes import Serde

log = logging.getLogger(__name__)

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE_V2: Final = "exactly_once_v2"
EOS_COMMIT_INTERVAL_MS: Final = 100
PREFIXES: Final = (
    "main.consumer.",
    "restore.consumer.",
    "global.consumer.",
    "consumer.",
    "producer.",
    "admin.client.",
    "topic.",
)
FOR_ALL_CLIENTS: Final = ("security.protocol", "sasl.", "ssl.", "enable.ssl.")
_LARGEST: Final = 2**63 - 1


class ConfigError(StreamsError):
    """A property with a value that cannot be; the message says what would be right."""


Parse = Callable[[str, Any], Any]
"""Of name and value: what is meant. Raises ConfigError."""


class Property(NamedTuple):
    """One row of the table. A default of REQUIRED has to be given."""

    name: str
    default: Any
    parse: Parse
    doc: str


REQUIRED: Final = object()


# ---- what values can be


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str | Path) or not str(value):
        raise ConfigError(f"{name} is {value!r}; a text that is not empty is wanted")
    return str(value)


def _any_text(name: str, value: Any) -> str:
    return str(value)


def _servers(name: str, value: Any) -> str:
    return _text(name, value if isinstance(value, str) else ",".join(map(str, value)))


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ConfigError(f"{name} is {value!r}; true or false is wanted")


def _names(name: str, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    return tuple(part.strip() for part in parts if part.strip())


def _number(least: int | None = None, most: int = _LARGEST) -> Parse:
    def parse(name: str, value: Any) -> int:
        try:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            number = int(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{name} is {value!r}; a whole number is wanted") from None
        if not (least is None or least <= number) or number > most:
            bounds = f"at least {least}" if least is not None and most == _LARGEST else f"from {least} to {most}"
            raise ConfigError(f"{name} is {number}; a number {bounds} is wanted")
        return number

    return parse


def _one_of(*allowed: str) -> Parse:
    def parse(name: str, value: Any) -> str:
        if value not in allowed:
            raise ConfigError(f"{name} is {value!r}; one of {', '.join(allowed)} is wanted")
        return str(value)

    return parse


def _guarantee(name: str, value: Any) -> str:
    if value in ("exactly_once", "exactly_once_beta"):
        raise ConfigError(f"{name} is {value!r}, which is no more; {EXACTLY_ONCE_V2} is wanted")
    return str(_one_of(AT_LEAST_ONCE, EXACTLY_ONCE_V2)(name, value))


def _serde(name: str, value: Any) -> Serde[Any]:
    if not isinstance(value, Serde):
        raise ConfigError(f"{name} is {value!r}; a serde is wanted, as odradek.streams.serdes.STRING is one")
    return value


def _function(name: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise ConfigError(f"{name} is {value!r}; a function is wanted")
    return value  # type: ignore[no-any-return]


def _endpoint(name: str, value: Any) -> str:
    text = str(value)
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{name} is {value!r}; host:port is wanted")
    return text


def _tags(name: str, value: Any) -> tuple[str, ...]:
    tags = _names(name, value)
    if len(tags) > 5:
        raise ConfigError(f"{name} has {len(tags)} tags; five at most are possible")
    return tags


_OPTIMIZATIONS: Final = ("reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join")


def _optimization(name: str, value: Any) -> str:
    parts = _names(name, value)
    if parts in (("all",), ("none",)) or (parts and all(part in _OPTIMIZATIONS for part in parts)):
        return ",".join(parts)
    raise ConfigError(f"{name} is {value!r}; all, none, or some of {', '.join(_OPTIMIZATIONS)} are wanted")


def _row(name: str, default: Any, parse: Parse, doc: str) -> Property:
    return Property(name, default, parse, doc)


TABLE: Final[tuple[Property, ...]] = (
    _row("application.id", REQUIRED, _text, "Names the application in its cluster: its group, its topics, its state."),
    _row("bootstrap.servers", REQUIRED, _servers, "host:port of brokers to ask first; a text or a list."),
    _row("acceptable.recovery.lag", 10_000, _number(0), "How many records behind still counts as caught up."),
    _row("application.server", "", _endpoint, "host:port where this instance answers queries of others."),
    _row("buffered.records.per.partition", 1_000, _number(1), "Records that wait for one partition; then it pauses."),
    _row("client.id", "", _any_text, "How the clients' names begin; application.id and the process's id by default."),
    _row("client.rack", None, _any_text, "Where this instance is: reads go to replicas nearby."),
    _row("commit.interval.ms", 30_000, _number(0), "How often to commit; 100 with exactly_once_v2."),
    _row("default.deserialization.exception.handler", log_and_fail, _function, "Asked about unreadable records."),
    _row("default.dsl.store", "rocksDB", _one_of("rocksDB", "in_memory"), "Where the DSL keeps its state."),
    _row("default.key.serde", None, _serde, "For keys that no serde was named for."),
    _row("default.production.exception.handler", log_and_fail, _function, "Asked about records that cannot be sent."),
    _row("default.timestamp.extractor", None, _function, "Tells a record's time; its own, if there is none."),
    _row("default.value.serde", None, _serde, "For values that no serde was named for."),
    _row("group.instance.id", None, _text, "A lasting name of this instance: it may be away for session.timeout.ms."),
    _row("internal.leave.group.on.close", False, _flag, "Whether a thread that closes gives its tasks away at once."),
    _row("log.summary.interval.ms", 120_000, _number(), "How often to say on the log what was done; below 0: never."),
    _row("max.task.idle.ms", 0, _number(), "How long a task waits for a partition that has no records; -1: never."),
    _row("max.warmup.replicas", 2, _number(1), "Copies of state that may be built at once before tasks move to them."),
    _row("metadata.max.age.ms", 300_000, _number(0), "How often to look for new topics and partitions."),
    _row("metrics.recording.level", "INFO", _one_of("INFO", "DEBUG", "TRACE"), "Which metrics are kept."),
    _row("num.standby.replicas", 0, _number(0), "Copies of state on other instances."),
    _row("num.stream.threads", 1, _number(1), "Threads that process records."),
    _row("poll.ms", 100, _number(0), "How long to wait for records when there are none, in ms."),
    _row("probing.rebalance.interval.ms", 600_000, _number(60_000), "How often to look whether copies are ready."),
    _row("processing.exception.handler", log_and_fail, _function, "Asked about records that a node chokes on."),
    _row("processing.guarantee", AT_LEAST_ONCE, _guarantee, f"{AT_LEAST_ONCE} or {EXACTLY_ONCE_V2}."),
    _row("rack.aware.assignment.tags", (), _tags, "client.tag.* by which copies are spread; five at most."),
    _row("repartition.purge.interval.ms", 30_000, _number(0), "How often read repartition topics are cut."),
    _row("replication.factor", -1, _number(-1, 32_767), "Replicas of the topics that are made; -1: the broker's."),
    _row("rocksdb.config.setter", None, _function, "Called with a store's name and its RocksDB options."),
    _row("state.cleanup.delay.ms", 600_000, _number(), "When state that nobody uses here any more is deleted."),
    _row("state.dir", str(Path(tempfile.gettempdir()) / "kafka-streams"), _text, "Where state is kept."),
    _row("statestore.cache.max.bytes", 10 * 1024 * 1024, _number(0), "The record cache of all threads together."),
    _row("task.timeout.ms", 300_000, _number(0), "How long a task may make no way before that is an error."),
    _row("topology.optimization", "none", _optimization, "What StreamsBuilder may rearrange."),
    _row("upgrade.from", None, _any_text, "An older release whose instances still run beside this one, as 3.4."),
    _row("windowstore.changelog.additional.retention.ms", 86_400_000, _number(), "Beyond a window store's retention."),
    _row("session.timeout.ms", 45_000, _number(1), "When a silent thread loses its tasks."),
    _row("heartbeat.interval.ms", 3_000, _number(1), "How often a thread tells the coordinator that it lives."),
    _row("max.poll.interval.ms", 300_000, _number(1), "How long a thread may work on records without asking for more."),
    _row("max.poll.records", 1_000, _number(1, 1_000_000), "Records that are taken from the client at once."),
    _row("request.timeout.ms", 40_000, _number(1), "How long to wait for an answer."),
    _row("default.api.timeout.ms", 60_000, _number(1), "How long to try again."),
    _row("retry.backoff.ms", 100, _number(1), "The first pause between tries."),
    _row("retry.backoff.max.ms", 1_000, _number(1), "The longest pause between tries."),
    _row("auto.offset.reset", "earliest", _one_of("earliest", "latest", "none"), "Where to begin without an offset."),
)
PROPERTIES: Final[Mapping[str, Property]] = {row.name: row for row in TABLE}

_OF_CONSUMERS: Final = (
    "group.instance.id",
    "client.rack",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "auto.offset.reset",
)
"""Properties of a consumer in Java that this runtime sees to; they may have a consumer's prefix."""
_ELSEWHERE: Final = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.processing.exception.handler": "processing.exception.handler",
    "deserialization.exception.handler": "default.deserialization.exception.handler",
    "production.exception.handler": "default.production.exception.handler",
}
"""Names that are no more, or of another release, and those that stand for them."""


class StreamsConfig(Mapping[str, Any]):
    """All properties of an application: those of the table always, and what was given beyond them."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Raises ConfigError; of everything that is wrong, it says the first."""
        if isinstance(given, StreamsConfig):
            given = given.given
        self.given: dict[str, Any] = dict(given)
        named = {_ELSEWHERE.get(name, name): value for name, value in self.given.items()}
        for name in _OF_CONSUMERS:
            for prefix in ("consumer.", "main.consumer."):  # the narrower one wins
                if named.get(prefix + name) is not None:
                    named[name] = named.pop(prefix + name)
        self._values: dict[str, Any] = {}
        for row in TABLE:
            value = named.pop(row.name, None)
            if value is None and row.default is REQUIRED:
                raise ConfigError(f"{row.name} is missing; it has no default value")
            self._values[row.name] = row.default if value is None else row.parse(row.name, value)
        if self.exactly_once and self.given.get("commit.interval.ms") is None:
            self._values["commit.interval.ms"] = EOS_COMMIT_INTERVAL_MS
        self._rest = named
        self._check()

    def __getitem__(self, name: str) -> Any:
        found = self._values.get(name)
        return found if name in self._values else self._rest[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._values, **self._rest})

    def __len__(self) -> int:
        return len({**self._values, **self._rest})

    @property
    def exactly_once(self) -> bool:
        """Whether processing.guarantee is exactly_once_v2."""
        return bool(self._values["processing.guarantee"] == EXACTLY_ONCE_V2)

    @property
    def handlers(self) -> Handlers:
        """The three exception handlers."""
        return Handlers(
            self._values["default.deserialization.exception.handler"],
            self._values["processing.exception.handler"],
            self._values["default.production.exception.handler"],
        )

    def prefixed(self, *prefixes: str) -> dict[str, Any]:
        """What was given with these prefixes, without them; the later prefix wins."""
        found: dict[str, Any] = {}
        for prefix in prefixes:
            found.update((name[len(prefix) :], value) for name, value in self._rest.items() if name.startswith(prefix))
        return found

    @property
    def client_tags(self) -> dict[str, str]:
        """What was given as client.tag.* (KIP-708)."""
        return {name: str(value) for name, value in self.prefixed("client.tag.").items()}

    @property
    def for_all_clients(self) -> dict[str, Any]:
        """Properties of librdkafka that were given for every client: how to be let in."""
        return {name: value for name, value in self._rest.items() if name.startswith(FOR_ALL_CLIENTS)}

    def _check(self) -> None:
        values = self._values
        if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            raise ConfigError(
                f"heartbeat.interval.ms ({values['heartbeat.interval.ms']}) has to be below session.timeout.ms "
                f"({values['session.timeout.ms']})"
            )
        if self.exactly_once:
            limit = int(self.prefixed("producer.").get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
            if values["commit.interval.ms"] >= limit:
                raise ConfigError(
                    f"commit.interval.ms ({values['commit.interval.ms']}) has to be below "
                    f"producer.transaction.timeout.ms ({limit}): a transaction lasts from one commit to the next"
                )
        if values["topology.optimization"] != "none":
            log.warning("topology.optimization=%s changes nothing here", values["topology.optimization"])
        missing = [tag for tag in values["rack.aware.assignment.tags"] if tag not in self.client_tags]
        if missing:
            raise ConfigError(f"rack.aware.assignment.tags names {missing[0]}, but there is no client.tag.{missing[0]}")
        for name in self._rest:
            if not name.startswith((*PREFIXES, *FOR_ALL_CLIENTS, "client.tag.", "__")):  # Kafka's internal ones
                self._warn(name)

    def _warn(self, name: str) -> None:
        near = difflib.get_close_matches(name, PROPERTIES, 1)
        log.warning("the property %s is not known here%s", name, f"; is {near[0]} meant?" if near else "")


TRANSACTION_TIMEOUT_MS: Final = 10_000
"""Kafka Streams' own default: what a dead instance holds open is aborted after it."""


def forced(name: str, given: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with what has to be so; says so where something else was asked for. `name` is the client's prefix."""
    for key, value in wanted.items():
        if key in given and str(given[key]).lower() != str(value).lower():
            log.warning("%s%s=%s is not possible here; it stays %s", name, key, given[key], value)
    return {**given, **wanted}


def as_text(rows: Sequence[Property] = TABLE) -> str:
    """The table in words, a line a property."""
    return "\n".join(
        f"{row.name} ({'required' if row.default is REQUIRED else _shown(row.default)}): {row.doc}" for row in rows
    )


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value)
