"""Configuration of an application: one table of Kafka Streams' properties, and what passes through to the clients.

Names are Kafka's, with their dots; values may be objects (numbers, functions, serdes) or their text. Where the property
is a class in Java it is a function or an object here. A property of librdkafka has the prefix of its client:
`consumer.`, `main.consumer.`, `restore.consumer.`, `global.consumer.`, `producer.`, `admin.client.`; `topic.` is for
the topics that the application creates. Properties that all clients need (security.protocol, sasl.*, ssl.*, oauth_cb)
go to all of them.

An unknown name causes a warning only, as it may belong to a handler of the user
(org.apache.kafka.streams.StreamsConfig; exactly once: KIP-129, KIP-447).
"""

from __future__ import annotations

import difflib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.streams.assignment.application_state import BALANCE_SUBTOPOLOGY, MIN_TRAFFIC, NONE
from odradek.streams.assignment.high_availability import HighAvailabilityTaskAssignor
from odradek.streams.assignment.sticky import StickyTaskAssignor
from odradek.streams.assignment.task_assignor import TaskAssignor
from odradek.streams.errors import (
    HANDLER_FORMS,
    Handler,
    Handlers,
    StreamsError,
    TopologyError,
    log_and_continue,
    log_and_fail,
    three_arguments,
)
from odradek.streams.functions import Forms, arity, imported, problem_of
from odradek.streams.processor_wrapper import ProcessorWrapper
from odradek.streams.serdes import Serde
from odradek.streams.stores.rocksdb_config import problem_of_setter
from odradek.streams.stores.suppliers import DslStoreSuppliers, InMemoryDslStoreSuppliers, RocksDBDslStoreSuppliers
from odradek.streams.topology import check_topic_name

log = logging.getLogger(__name__)

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE_V2: Final = "exactly_once_v2"
LIBRDKAFKA: Final = "librdkafka"
ODRADEK: Final = "odradek"
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
FOR_ALL_CLIENTS: Final = ("security.protocol", "sasl.", "ssl.", "enable.ssl.", "oauth_cb")
LEAST_ROCKSDB_BYTES: Final = 16 * 1024 * 1024
"""The least rocksdb.memory.max.bytes: below it, every few writes would be a flush."""
_LARGEST: Final = 2**63 - 1
_LARGEST_INT: Final = 2**31 - 1


class StreamsConfigError(StreamsError):
    """A property with an invalid value; the message states what is allowed."""


Parse = Callable[[str, Any], Any]
"""Parses a value, given name and value. Raises StreamsConfigError."""


class Property(NamedTuple):
    """One row of the table. A property with the default REQUIRED has to be given."""

    name: str
    default: Any
    parse: Parse
    doc: str


REQUIRED: Final = object()


# ---- types of values


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str | Path) or not str(value):
        raise StreamsConfigError(f"{name} is {value!r}; expected a text that is not empty")
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
    raise StreamsConfigError(f"{name} is {value!r}; expected true or false")


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
            raise StreamsConfigError(f"{name} is {value!r}; expected a whole number") from None
        if not (least is None or least <= number) or number > most:
            bounds = f"at least {least}" if least is not None and most == _LARGEST else f"from {least} to {most}"
            raise StreamsConfigError(f"{name} is {number}; expected a number {bounds}")
        return number

    return parse


def _memory(name: str, value: Any) -> int:
    number: int = _number(0)(name, value)
    if 0 < number < LEAST_ROCKSDB_BYTES:
        raise StreamsConfigError(f"{name} is {number}; expected 0 or a number of at least {LEAST_ROCKSDB_BYTES}")
    return number


def _one_of(*allowed: str) -> Parse:
    def parse(name: str, value: Any) -> str:
        if value not in allowed:
            raise StreamsConfigError(f"{name} is {value!r}; expected one of {', '.join(allowed)}")
        return str(value)

    return parse


def _guarantee(name: str, value: Any) -> str:
    if value in ("exactly_once", "exactly_once_beta"):
        raise StreamsConfigError(f"{name} is {value!r}, which was removed; expected {EXACTLY_ONCE_V2}")
    return str(_one_of(AT_LEAST_ONCE, EXACTLY_ONCE_V2)(name, value))


def _serde(name: str, value: Any) -> Serde[Any]:
    try:
        found = imported(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, Serde):
        raise StreamsConfigError(
            f"{name} is {value!r}; expected a serde such as odradek.streams.serdes.STRING, or its dotted name"
        )
    return found


def _suppliers(name: str, value: Any) -> DslStoreSuppliers:
    """The suppliers, their class, or the dotted name of the class; Java's names of its own, too."""
    java = value.rpartition("$")[2] if isinstance(value, str) else ""
    own = {each.__name__: each for each in (RocksDBDslStoreSuppliers, InMemoryDslStoreSuppliers)}
    made: DslStoreSuppliers = _made(DslStoreSuppliers)(name, own.get(java, value))
    return made


def _assignor(name: str, value: Any) -> TaskAssignor:
    """An assignor, its class, or the dotted name of either; Java's names of its own, too."""
    java = value.rpartition(".")[2] if isinstance(value, str) and value.startswith("org.apache.kafka.") else ""
    own = {each.__name__: each for each in (HighAvailabilityTaskAssignor, StickyTaskAssignor)}
    made: TaskAssignor = _made(TaskAssignor)(name, own.get(java, value))
    return made


def _made(kind: type) -> Parse:
    """An object of a class, the class of the object, or the dotted name of either."""

    def parse(name: str, value: Any) -> Any:
        found = _imported(name, value) if isinstance(value, str) else value
        if isinstance(found, type) and issubclass(found, kind):
            found = found()
        if not isinstance(found, kind):
            raise StreamsConfigError(f"{name} is {value!r}; expected a {kind.__name__} or its dotted name")
        return found

    return parse


def _topic(name: str, value: Any) -> str:
    try:
        check_topic_name(value, name)
    except TopologyError as error:
        raise StreamsConfigError(str(error)) from None
    return str(value)


def _function(name: str, value: Any) -> Callable[..., Any]:
    found = _imported(name, value) if isinstance(value, str) else value
    if not callable(found):
        raise StreamsConfigError(f"{name} is {value!r}; expected a function, or its dotted name")
    return found  # type: ignore[no-any-return]


JAVA_HANDLERS: Final = {
    "LogAndContinueExceptionHandler": log_and_continue,
    "LogAndFailExceptionHandler": log_and_fail,
    "LogAndContinueProcessingExceptionHandler": log_and_continue,
    "LogAndFailProcessingExceptionHandler": log_and_fail,
    "DefaultProductionExceptionHandler": log_and_fail,
}
"""The classes of org.apache.kafka.streams.errors, whose names may be given in place of functions."""


def _handler(forms: Forms) -> Parse:
    """A handler of exceptions, or its dotted name: "package.module.function"."""

    def parse(name: str, value: Any) -> Handler:
        found = _imported(name, value) if isinstance(value, str) else value
        made = found() if isinstance(found, type) else found
        problem = problem_of(made, forms)
        if problem is not None:
            raise StreamsConfigError(f"{name} {problem}")
        return three_arguments(made, arity(made, len(forms[0])))

    return parse


def _imported(name: str, text: str) -> Any:
    if text.startswith("org.apache.kafka.streams.errors."):
        java = text.rpartition(".")[2]
        if java in JAVA_HANDLERS:
            return JAVA_HANDLERS[java]
        raise StreamsConfigError(
            f"{name} is {text!r}; expected a function, its dotted name, or one of {sorted(JAVA_HANDLERS)}"
        )
    try:
        return imported(text)
    except ValueError as error:
        raise StreamsConfigError(f"{name} is {error}") from error


def _config_setter(name: str, value: Any) -> Any:
    found = _imported(name, value) if isinstance(value, str) else value
    problem = problem_of_setter(found)
    if problem is not None:
        raise StreamsConfigError(f"{name} {problem}")
    return found


def _endpoint(name: str, value: Any) -> str:
    text = str(value)
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdigit() and 0 < int(port) < 65536):
        raise StreamsConfigError(f"{name} is {value!r}; expected host:port")
    return text


def _tags(name: str, value: Any) -> tuple[str, ...]:
    tags = _names(name, value)
    if len(tags) > 5:
        raise StreamsConfigError(f"{name} has {len(tags)} tags; at most five are allowed")
    return tags


_OPTIMIZATIONS: Final = ("reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join")


def _optimization(name: str, value: Any) -> str:
    parts = _names(name, value)
    if parts in (("all",), ("none",)) or (parts and all(part in _OPTIMIZATIONS for part in parts)):
        return ",".join(parts)
    raise StreamsConfigError(f"{name} is {value!r}; expected all, none, or some of {', '.join(_OPTIMIZATIONS)}")


def _row(name: str, default: Any, parse: Parse, doc: str) -> Property:
    return Property(name, default, parse, doc)


TABLE: Final[tuple[Property, ...]] = (
    _row(
        "application.id",
        REQUIRED,
        _text,
        "The name of the application in its cluster: of its group, its topics, its state.",
    ),
    _row("bootstrap.servers", REQUIRED, _servers, "host:port of the bootstrap brokers; a text or a list."),
    _row("acceptable.recovery.lag", 10_000, _number(0), "The largest lag in records that counts as caught up."),
    _row("application.server", "", _endpoint, "host:port at which this instance answers queries."),
    _row("buffered.records.per.partition", 1_000, _number(1), "Buffered records at which a partition pauses."),
    _row("client.id", "", _any_text, "The prefix of client names; application.id and the process id by default."),
    _row(
        "client.implementation",
        LIBRDKAFKA,
        _one_of(LIBRDKAFKA, ODRADEK),
        f"What reads and writes records: {LIBRDKAFKA}, or clients of {ODRADEK}'s own.",
    ),
    _row("client.rack", None, _any_text, "The rack of this instance: reads go to nearby replicas."),
    _row("commit.interval.ms", 30_000, _number(0), "How often to commit; 100 with exactly_once_v2."),
    _row("connections.max.idle.ms", None, _number(0), "When clients close idle connections; librdkafka's default."),
    _row(
        "default.deserialization.exception.handler",
        log_and_fail,
        _handler(HANDLER_FORMS),
        "Decides about unreadable records: a function of (context, record, error), or its dotted name.",
    ),
    _row("default.dsl.store", "rocksDB", _one_of("rocksDB", "in_memory"), "The default store type of the DSL."),
    _row("default.key.serde", None, _serde, "For keys without an explicit serde."),
    _row(
        "default.production.exception.handler",
        log_and_fail,
        _handler(HANDLER_FORMS[:1]),
        "Decides about records that cannot be sent.",
    ),
    _row("default.timestamp.extractor", None, _function, "Returns a record's timestamp; by default its own."),
    _row("default.value.serde", None, _serde, "For values without an explicit serde."),
    _row(
        "dsl.store.suppliers.class",
        None,
        _suppliers,
        "The stores of the DSL: DslStoreSuppliers or their dotted name; before default.dsl.store.",
    ),
    _row("errors.dead.letter.queue.topic.name", None, _topic, "Where log_and_fail and log_and_continue write records."),
    _row(
        "gc.young.objects",
        10_000,
        _number(0),
        "New objects after which Python searches for reference cycles; 0: as the program has it.",
    ),
    _row("group.instance.id", None, _text, "A static member id: the instance may be away for session.timeout.ms."),
    _row(
        "internal.leave.group.on.close",
        True,
        _flag,
        "Whether a closing thread that has no group.instance.id leaves its group; false as Java's.",
    ),
    _row("log.summary.interval.ms", 120_000, _number(), "How often to log a summary; below 0: never."),
    _row("max.task.idle.ms", 0, _number(), "How long a task waits for a partition that has no records; -1: never."),
    _row("max.warmup.replicas", 2, _number(1), "Warm-up replicas that may be restored at once."),
    _row("metadata.max.age.ms", 300_000, _number(0), "How often to check for new topics and partitions."),
    _row("metrics.num.samples", 2, _number(1), "Samples from which the user's sensors compute averages and rates."),
    _row("metrics.recording.level", "INFO", _one_of("INFO", "DEBUG", "TRACE"), "Which metrics are recorded."),
    _row("metrics.sample.window.ms", 30_000, _number(0), "How long such a sample lasts."),
    _row("num.standby.replicas", 0, _number(0), "Copies of state on other instances."),
    _row("num.stream.threads", 1, _number(1), "Threads that process records."),
    _row("poll.ms", 100, _number(0), "How long to wait for records when there are none, in ms."),
    _row("probing.rebalance.interval.ms", 600_000, _number(60_000), "How often to check for caught-up warm-ups."),
    _row(
        "processing.exception.handler",
        log_and_fail,
        _handler(HANDLER_FORMS),
        "Decides about records that a node cannot process.",
    ),
    _row("processing.guarantee", AT_LEAST_ONCE, _guarantee, f"{AT_LEAST_ONCE} or {EXACTLY_ONCE_V2}."),
    _row(
        "processor.wrapper.class",
        None,
        _made(ProcessorWrapper),
        "Wraps the processors of the Processor API: a ProcessorWrapper or its dotted name.",
    ),
    _row(
        "rack.aware.assignment.non_overlap_cost",
        None,
        _number(0, _LARGEST_INT),
        "What it costs that a task moves; each assignor has a default.",
    ),
    _row(
        "rack.aware.assignment.strategy",
        NONE,
        _one_of(NONE, MIN_TRAFFIC, BALANCE_SUBTOPOLOGY),
        "Whether tasks move to the racks of their partitions.",
    ),
    _row("rack.aware.assignment.tags", (), _tags, "client.tag.* by which standbys are spread; at most five."),
    _row(
        "rack.aware.assignment.traffic_cost",
        None,
        _number(0, _LARGEST_INT),
        "What a partition in another rack costs; each assignor has a default.",
    ),
    _row("receive.buffer.bytes", None, _number(-1), "The receive buffer of sockets; -1: the system's."),
    _row("reconnect.backoff.max.ms", None, _number(0), "The longest pause before a client connects again; 1000."),
    _row("reconnect.backoff.ms", None, _number(0), "The first pause before a client connects again."),
    _row("repartition.purge.interval.ms", 30_000, _number(0), "How often processed records are purged."),
    _row("replication.factor", -1, _number(-1, 32_767), "Replicas of internal topics; -1: the broker's default."),
    _row(
        "rocksdb.config.setter",
        None,
        _config_setter,
        "Changes the options of stores: a function, or a class with set_config and close, or its dotted name.",
    ),
    _row("rocksdb.memory.max.bytes", 0, _memory, "One bound for all RocksDB stores of the process; 0: none."),
    _row("send.buffer.bytes", None, _number(-1), "The send buffer of sockets; -1: the system's."),
    _row("state.cleanup.delay.ms", 600_000, _number(), "When state of tasks that moved elsewhere is deleted."),
    _row("state.dir", str(Path(tempfile.gettempdir()) / "kafka-streams"), _text, "Where state is kept."),
    _row("statestore.cache.max.bytes", 10 * 1024 * 1024, _number(0), "The record cache of all threads together."),
    _row(
        "task.assignor.class",
        None,
        _assignor,
        "Assigns the tasks to instances: a TaskAssignor or its dotted name.",
    ),
    _row("task.timeout.ms", 300_000, _number(0), "How long a task may make no progress before an error."),
    _row("topology.optimization", "none", _optimization, "What StreamsBuilder may rearrange."),
    _row("upgrade.from", None, _any_text, "An older release with running instances, such as 3.4."),
    _row("windowstore.changelog.additional.retention.ms", 86_400_000, _number(), "Beyond a window store's retention."),
    _row("session.timeout.ms", 45_000, _number(1), "When a thread without heartbeats loses its tasks."),
    _row("heartbeat.interval.ms", 3_000, _number(1), "How often a thread sends a heartbeat."),
    _row("max.poll.interval.ms", 300_000, _number(1), "The longest time between two polls of a thread."),
    _row("max.poll.records", 1_000, _number(1, 1_000_000), "The most records of one poll."),
    _row("request.timeout.ms", 40_000, _number(1), "How long to wait for a response."),
    _row("default.api.timeout.ms", 60_000, _number(1), "How long to retry."),
    _row("retry.backoff.ms", 100, _number(1), "The first pause between retries."),
    _row("retry.backoff.max.ms", 1_000, _number(1), "The longest pause between retries."),
    _row(
        "auto.offset.reset", "earliest", _one_of("earliest", "latest", "none"), "The start without a committed offset."
    ),
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
"""Properties of a consumer in Java that this runtime implements; they may have a consumer's prefix."""
_ELSEWHERE: Final = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.processing.exception.handler": "processing.exception.handler",
    "deserialization.exception.handler": "default.deserialization.exception.handler",
    "production.exception.handler": "default.production.exception.handler",
}
"""Names that were removed, or belong to another release, and their replacements."""


class StreamsConfig(Mapping[str, Any]):
    """All properties of an application: those of the table always, and all others that were given."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Raises StreamsConfigError for the first invalid property."""
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
                raise StreamsConfigError(f"{row.name} is missing; it has no default value")
            self._values[row.name] = row.default if value is None else row.parse(row.name, value)
        if isinstance(named.get("oauth_cb"), str):
            named["oauth_cb"] = _imported("oauth_cb", named["oauth_cb"])
        if self.exactly_once and self.given.get("commit.interval.ms") is None:
            self._values["commit.interval.ms"] = EOS_COMMIT_INTERVAL_MS
        self._rest = named
        self._check()
        for name in ("dsl.store.suppliers.class", "processor.wrapper.class", "task.assignor.class"):
            if self._values[name] is not None:
                self._values[name].configure(self)

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
            self._values["errors.dead.letter.queue.topic.name"],
        )

    def prefixed(self, *prefixes: str) -> dict[str, Any]:
        """The properties given with these prefixes, without the prefix; the later prefix wins."""
        found: dict[str, Any] = {}
        for prefix in prefixes:
            found.update((name[len(prefix) :], value) for name, value in self._rest.items() if name.startswith(prefix))
        return found

    @property
    def transaction_timeout_ms(self) -> int:
        """producer.transaction.timeout.ms"""
        return int(self.prefixed("producer.").get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))

    @property
    def client_tags(self) -> dict[str, str]:
        """The properties given as client.tag.* (KIP-708)."""
        return {name: str(value) for name, value in self.prefixed("client.tag.").items()}

    @property
    def for_all_clients(self) -> dict[str, Any]:
        """Properties of librdkafka that were given for every client: authentication and encryption."""
        return {name: value for name, value in self._rest.items() if name.startswith(FOR_ALL_CLIENTS)}

    def _check(self) -> None:
        values = self._values
        if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            raise StreamsConfigError(
                f"heartbeat.interval.ms ({values['heartbeat.interval.ms']}) has to be below session.timeout.ms "
                f"({values['session.timeout.ms']})"
            )
        if self.exactly_once:
            limit = self.transaction_timeout_ms
            if values["commit.interval.ms"] >= limit:
                raise StreamsConfigError(
                    f"commit.interval.ms ({values['commit.interval.ms']}) has to be below "
                    f"producer.transaction.timeout.ms ({limit}): a transaction lasts from one commit to the next"
                )
        if values["topology.optimization"] != "none":
            log.warning("property without effect topology_optimization=%s", values["topology.optimization"])
        missing = [tag for tag in values["rack.aware.assignment.tags"] if tag not in self.client_tags]
        if missing:
            raise StreamsConfigError(
                f"rack.aware.assignment.tags contains {missing[0]}, but there is no client.tag.{missing[0]}"
            )
        for name in self._rest:
            if not name.startswith((*PREFIXES, *FOR_ALL_CLIENTS, "client.tag.", "__")):  # Kafka's internal ones
                self._warn(name)

    def _warn(self, name: str) -> None:
        near = difflib.get_close_matches(name, PROPERTIES, 1)
        log.warning("unknown property name=%s closest=%s", name, near[0] if near else None)


TRANSACTION_TIMEOUT_MS: Final = 10_000
"""Kafka Streams' own default: the coordinator aborts the transaction of a dead instance after it."""


def forced(name: str, given: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with the required values of `wanted`; logs a warning for each other value. `name` is the client's
    prefix.
    """
    for key, value in wanted.items():
        if key in given and str(given[key]).lower() != str(value).lower():
            log.warning("ignoring property name=%s%s value=%s required=%s", name, key, given[key], value)
    return {**given, **wanted}


def as_text(rows: Sequence[Property] = TABLE) -> str:
    """The table as text, one line for each property."""
    return "\n".join(
        f"{row.name} ({'required' if row.default is REQUIRED else _shown(row.default)}): {row.doc}" for row in rows
    )


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value)
