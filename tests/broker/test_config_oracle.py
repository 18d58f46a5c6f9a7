"""Comparison with Kafka: requests about configurations go to Apache Kafka 3.9.2 and to Odradek; the responses must
agree.

Both brokers have the same server.properties except for addresses and folders. The responses are compared field by field
in every version. Error messages and the documentation of properties are compared only for presence, and entries are
sorted, because Kafka's order is that of a hash table.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.properties import parse_properties
from odradek.broker.config.topic_definitions import TOPIC_PROPERTIES
from odradek.broker.config.types import ConfigKey, Type, Update, show_value
from odradek.ports import free_port
from odradek.protocol import messages as m
from tests import configuration
from tests.broker.admin_requests import alter, describe, replace_configs
from tests.broker.cluster_admin_script import Script
from tests.broker.wire import Client, running_broker
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.jvm

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NOWHERE: Final = 7
DEFAULT_CONFIG: Final = 5
SETTLED_S: Final = 2.0
OF_LISTENERS: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
WRONG: Final = ("0", "-1", "soon", "", "2147483648", " 7 ")
Request = m.DescribeConfigsRequest

INTENDED: Final = {
    "advertised.listeners": "each broker has its own address",
    "listeners": "each broker has its own address",
    "log.dirs": "each broker has its own folders",
    "zookeeper.connect": "a single broker of Odradek needs no ZooKeeper",
    **configuration.INTENDED,
}
"""Broker properties that the two describe differently, and the reasons."""


def described(
    *resources: tuple[int, str, list[str] | None], synonyms: bool = True, documentation: bool = False
) -> m.DescribeConfigsRequest:
    """The properties of these resources, all of them where None is listed."""
    return Request(
        resources=[
            Request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name, keys in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


class Patient(Script):
    """A script that repeats a request until the response is that of the other broker, because Kafka applies a change
    some time after its response, or until a timeout: then the responses differ.
    """

    def __init__(self, client: Client, topic: str, expected: list[str]) -> None:
        super().__init__(client, topic)
        self._expected = expected

    async def see(self, what: str, request: m.DescribeConfigsRequest, version: int) -> None:
        """Describe, and record the last response."""
        number = len(self.transcript)

        async def look() -> str:
            del self.transcript[number:]
            answer = await self.quietly(request, version)
            _without_what_is_intended(answer)
            self.note(what, answer)
            return self.transcript[-1]

        wanted = self._expected[number : number + 1]
        with contextlib.suppress(AssertionError):  # the comparison of the transcripts shows the difference
            await eventually_async(look, lambda seen: not wanted or seen == wanted[0], timeout_s=SETTLED_S)


def _without_what_is_intended(answer: m.DescribeConfigsResponse) -> None:
    for result in answer.results:
        result.configs = [each for each in result.configs if each.name not in INTENDED]
        for each in result.configs:
            each.documentation = each.documentation and "said"


async def see(script: Patient, request: m.DescribeConfigsRequest, *versions: int) -> None:
    """Describe in each of these versions, or in all; fields that an older version does not have are left out there."""
    for version in versions or range(5):
        asked = Request(
            resources=request.resources,
            include_synonyms=request.include_synonyms and version >= 1,
            include_documentation=request.include_documentation and version >= 3,
        )
        what = [(each.resource_name, each.configuration_keys) for each in request.resources]
        await script.see(f"DescribeConfigs v{version} {what}", asked, version)


# ---- scripts


async def resources(script: Patient) -> None:
    """Resource types that exist elsewhere, or nowhere; groups and client metrics are for KRaft."""
    for kind in (0, 1, 3, 5, CLIENT_METRICS, GROUP, 64, 127, -1):
        for name in ("", "x", "0"):
            await see(script, describe(kind, name))
            for changes in ([("interval.ms", SET, "1000")], [], [("interval.ms", SET, None)]):
                await script.ask(alter((kind, name, changes)), 1)
                await script.ask(alter((kind, name, changes), validate_only=True), 1)
                await script.ask(replace_configs((kind, name, [(key, value) for key, _, value in changes])), 2)


async def broker_names(script: Patient) -> None:
    """Broker resources: this broker, another one, none or all."""
    for name in ("0", "1", "x", "-1", "00", "+0", " 0", "0 ", "0x0", "9999999999999", ""):
        for kind in (BROKER, LOGGER):
            await see(script, describe(kind, name, "log.cleaner.threads", "no.such"), 0, 1, 4)
            await script.ask(alter((kind, name, [])), 1)
            await script.ask(replace_configs((kind, name, [])), 2)
            await script.ask(alter((kind, name, [("no.such", SET, "1")]), validate_only=True), 1)
    for name in ("", ".", "..", "no such", "a" * 250, "no-such-topic"):
        await see(script, describe(TOPIC, name), 0, 4)
        await script.ask(alter((TOPIC, name, [("retention.ms", SET, "1")])), 1)
        await script.ask(replace_configs((TOPIC, name, [("retention.ms", "1")])), 2)


async def everything(script: Patient) -> None:
    """Every property of the broker and of a topic, in every version, with and without optional fields."""
    topic = script.topic
    for synonyms, documentation in ((False, False), (True, False), (False, True), (True, True)):
        for kind, name in ((BROKER, "0"), (BROKER, ""), (TOPIC, topic)):
            await see(script, described((kind, name, None), synonyms=synonyms, documentation=documentation))


async def keys(script: Patient) -> None:
    """Some properties of several resources: none listed, unknown, twice, of a resource that is named twice."""
    topic = script.topic
    for names in ([], ["no.such"], ["retention.ms", "retention.ms"], ["log.retention.ms", "retention.ms", ""]):
        await see(script, described((TOPIC, topic, names), (BROKER, "", names)))
    await see(script, described((TOPIC, topic, ["retention.ms"]), (TOPIC, topic, ["segment.bytes"])))
    await see(
        script, described((TOPIC, "no-such-topic", None), (TOPIC, topic, ["segment.bytes"]), (BROKER, "0", ["x"]))
    )
    await see(script, described())


def sample(row: ConfigKey) -> str:
    """A value that the property accepts, other than its default where that is easy."""
    if row.name.startswith("max.connection") and row.type is Type.INT:
        return "1000"
    if row.type is Type.BOOLEAN:
        return "true"
    if row.type is Type.LIST:
        return {"log.cleanup.policy": "compact,delete", "cleanup.policy": "compact,delete"}.get(
            row.name, show_value(row.default) or ""
        )
    if row.type is Type.DOUBLE:
        return "0.25"
    if row.type in (Type.STRING, Type.CLASS, Type.PASSWORD):
        return show_value(row.default) or "x"
    return "2" if row.allowed is None or row.allowed.complaint(2) is None else show_value(row.default) or "1"


APART: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")
"""Dynamic properties that have a script of their own."""
CLASSES: Final = ("metric.reporters", "principal.builder.class", "ssl.engine.factory.class")
"""Properties that name Java classes, which Kafka loads at once and Odradek does not use."""


def dynamic_rows() -> Iterable[ConfigKey]:
    return (
        row
        for row in BROKER_PROPERTIES.values()
        if row.update is not Update.READ_ONLY and row.name not in (*APART, *CLASSES)
    )


async def dynamic(script: Patient) -> None:
    """Every property that can change at run time: each tried alone, and all set, described and deleted together."""
    for row in dynamic_rows():
        wanted = [(row.name, SET, sample(row)), (row.name, APPEND, sample(row)), (row.name, DELETE, None)]
        if row.type not in (Type.STRING, Type.CLASS, Type.PASSWORD, Type.LIST):
            wanted += [(row.name, SET, "soon"), (row.name, SET, "")]
        for change in wanted:
            await script.ask(alter((BROKER, "0", [change]), validate_only=True), 1)
        await script.ask(alter((BROKER, "", wanted[:1]), validate_only=True), 1)
    for name, rows in (
        ("0", [row for row in dynamic_rows() if not row.name.startswith(("ssl.", "sasl.", "num.", "background."))]),
        ("", [row for row in dynamic_rows() if row.update is Update.CLUSTER_WIDE and not row.name.startswith("num.")]),
    ):
        names = [row.name for row in rows]
        await script.ask(alter((BROKER, name, [(row.name, SET, sample(row)) for row in rows])), 1)
        await see(script, described((BROKER, "0", names), (BROKER, "", names)), 1, 4)
        await script.ask(alter((BROKER, name, [(each, DELETE, None) for each in names])), 1)
        await see(script, described((BROKER, "0", names), (BROKER, "", names)), 4)
    await script.ask(alter((BROKER, "0", [("ssl.keystore.password", SET, "x")])), 1)
    await script.ask(alter((BROKER, "0", [("sasl.jaas.config", SET, "x")])), 1)
    await script.ask(alter((BROKER, "0", [("listener.name.plaintext.ssl.keystore.password", SET, "x")])), 1)


async def read_only(script: Patient) -> None:
    """No property that is read-only can be set, wherever it is tried."""
    for row in BROKER_PROPERTIES.values():
        if row.update is Update.READ_ONLY and not row.name.startswith("odradek."):  # those are unknown to Kafka
            await script.ask(alter((BROKER, "0", [(row.name, SET, sample(row))]), validate_only=True), 1)
    for name in ("0", ""):
        await script.ask(replace_configs((BROKER, name, [("broker.id", "0")])), 2)
        await script.ask(replace_configs((BROKER, name, [("broker.id", "0"), ("log.retention.ms", "5")])), 2)
        await see(script, described((BROKER, name, ["log.retention.ms"])), 4)


async def layers(script: Patient) -> None:
    """The nearest layer gives the value, and all layers are named in their order."""
    topic = script.topic
    watched = ["log.retention.ms", "num.io.threads", "log.cleanup.policy", "message.max.bytes", "log.roll.ms"]
    of_topic = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.ms"]

    async def look() -> None:
        await see(script, described((BROKER, "0", watched), (BROKER, "", watched), (TOPIC, topic, of_topic)), 0, 1, 4)

    for name, changes in (
        ("", [("log.retention.ms", SET, "7000"), ("message.max.bytes", SET, "5000")]),
        ("0", [("log.retention.ms", SET, "8000"), ("log.cleanup.policy", APPEND, "compact")]),
        ("", [("log.cleanup.policy", SET, "compact"), ("log.roll.ms", SET, "100000")]),
        ("0", [("log.cleanup.policy", SUBTRACT, "delete,nothing")]),
        ("0", [("log.retention.ms", DELETE, None)]),
        ("", [("log.retention.ms", DELETE, None), ("message.max.bytes", DELETE, None)]),
        ("0", [("log.cleanup.policy", DELETE, None)]),
        ("", [("log.cleanup.policy", DELETE, None), ("log.roll.ms", DELETE, None)]),
    ):
        await script.ask(alter((BROKER, name, list(changes))), 1)
        await look()
    await script.ask(alter((TOPIC, topic, [("retention.ms", SET, "9000"), ("cleanup.policy", APPEND, "compact")])), 1)
    await look()
    await script.ask(replace_configs((TOPIC, topic, [("segment.ms", "100000")])), 2)
    await look()


async def of_a_listener(script: Patient) -> None:
    """The properties that a single listener has, and those that it inherits."""
    # Not the number of threads: fewer of them would close connections that Kafka's threads serve.
    limit, rate, _ = (f"listener.name.plaintext.{name}" for name in OF_LISTENERS)
    none = "listener.name.nobody.max.connections"
    strange = ["listener.name.nobody.no.such", "listener.name.nobody.log.retention.ms", "no.such"]
    watched = [limit, none, rate, *strange, "max.connections", "max.connection.creation.rate"]
    for name, changes in (
        ("", [(limit, SET, "700"), (none, SET, "0"), (rate, SET, "5000")]),
        ("0", [(limit, SET, "800"), ("max.connections", SET, "900")]),
        ("0", [(each, SET, "9") for each in strange]),
        ("", [(strange[0], SET, "9")]),
        ("0", [(limit, SET, "0")]),
        ("", [(limit, SET, "0")]),
        ("0", [(limit, DELETE, None), *((each, DELETE, None) for each in strange)]),
        ("", [(limit, DELETE, None), (none, DELETE, None), (rate, DELETE, None)]),
        ("0", [("max.connections", DELETE, None)]),
    ):
        await script.ask(alter((BROKER, name, list(changes))), 1)
        await see(script, described((BROKER, "0", watched), (BROKER, "", watched)), 0, 4)


async def topics(script: Patient) -> None:
    """Every property of a topic: set, described, wrong, deleted."""
    topic = script.topic
    for row in TOPIC_PROPERTIES.values():
        for value in ("soon", "-7", "", sample(row)):
            await script.ask(alter((TOPIC, topic, [(row.name, SET, value)]), validate_only=True), 1)
        await script.ask(alter((TOPIC, topic, [(row.name, SET, sample(row))])), 1)
        await see(script, described((TOPIC, topic, [row.name])), 4)
        await script.ask(alter((TOPIC, topic, [(row.name, DELETE, None)])), 1)


async def threads(script: Patient) -> None:
    """Numbers of threads change by a factor of two at most."""
    for name in (
        "num.io.threads",
        "num.network.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "background.threads",
        "log.cleaner.threads",
    ):
        for count in ("0", "-1", "1", "2", "3", "4", "8", "16", "17", "100", "9", "4"):
            await script.ask(alter((BROKER, "0", [(name, SET, count)]), validate_only=True), 1)
            await script.ask(alter((BROKER, "", [(name, SET, count)]), validate_only=True), 1)
    for name, value in (
        ("log.cleaner.dedupe.buffer.size", "1048576"),
        ("log.cleaner.io.buffer.size", "0"),
        ("log.cleaner.io.buffer.load.factor", "0"),
        ("log.cleaner.io.buffer.load.factor", "-1"),
        ("log.cleaner.min.compaction.lag.ms", str(2**63 - 1)),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "127.0.0.1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:many"),
        ("max.connections.per.ip.overrides", "no such host:5"),
        ("max.connections.per.ip.overrides", "127.0.0.1:500,127.0.0.2:6"),
        ("max.connections", "0"),
        ("max.connections", "100"),
        ("max.connection.creation.rate", "0"),
        ("max.connection.creation.rate", "1000"),
        ("log.message.timestamp.type", "Never"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "0"),
        ("log.retention.bytes", "-5"),
        ("log.segment.bytes", "13"),
        ("log.index.size.max.bytes", "3"),
        ("log.local.retention.ms", "-3"),
        ("log.local.retention.ms", str(2**62)),
        ("producer.id.expiration.ms", "0"),
        ("listener.name.plaintext.max.connections", "50"),
        ("listener.name.plaintext.max.connection.creation.rate", "50"),
        *((f"listener.name.plaintext.{name}", value) for name in OF_LISTENERS for value in WRONG),
        *((f"listener.name.{who}.max.connections", value) for who in ("nobody", "PLAINTEXT") for value in WRONG),
        *(("listener.name.plaintext.num.network.threads", value) for value in ("1", "2", "6", "7")),
        ("listener.name.plaintext.max.connections.per.ip", "5"),
        ("listener.name.plaintext.log.retention.ms", "2"),
        ("listener.name.plaintext.no.such", "2"),
        ("listener.name.nobody.ssl.keystore.type", "JKS"),
        ("listener.name.plaintext.broker.id", "2"),
        ("listener.name.", "2"),
        ("no.such.property", "2"),
        ("", "2"),
    ):
        for broker in ("0", ""):
            await script.ask(alter((BROKER, broker, [(name, SET, value)]), validate_only=True), 1)


async def loggers(script: Patient) -> None:
    """Levels of loggers. Here Kafka runs on a logging library in which it finds the root only."""

    for changes in (
        [("root", SET, "WARN")],
        [("root", SET, "ERROR")],
        [("root", SET, "LOUD")],
        [("root", SET, "warn")],
        [("root", SET, "")],
        [("root", SET, None)],
        [("root", DELETE, None)],
        [("root", APPEND, "INFO")],
        [("root", SUBTRACT, "INFO")],
        [("root", NOWHERE, "INFO")],
        [("no.such", SET, "INFO")],
        [("no.such", DELETE, None)],
        [("no.such", SET, "LOUD")],
        [("root", SET, "INFO"), ("no.such", SET, "INFO")],
        [("root", SET, "INFO"), ("root", SET, "WARN")],
        [("root", SET, "WARN")],
    ):
        await script.ask(alter((LOGGER, "0", changes), validate_only=True), 1)
        await script.ask(alter((LOGGER, "0", changes)))
        await see(script, describe(LOGGER, "0", "root", "no.such"), 0, 4)


async def listeners(script: Patient) -> None:
    """Listeners come and go while the broker runs; forbidden changes are refused."""
    here = (await script.quietly(m.MetadataRequest(topics=[]), 7)).brokers[0]
    first, ports = f"PLAINTEXT://127.0.0.1:{here.port}", [free_port(), free_port()]
    names = "PLAINTEXT:PLAINTEXT,SSL:SSL"
    for changes in (
        {"listeners": f"{first},EXTRA://127.0.0.1:{ports[0]}"},
        {"listeners": f"EXTRA://127.0.0.1:{ports[0]}"},
        {"listeners": ""},
        {"listeners": "nonsense"},
        {"advertised.listeners": "PLAINTEXT://0.0.0.0:5"},
        {"advertised.listeners": f"EXTRA://127.0.0.1:{ports[0]}"},
        {"advertised.listeners": ""},
        {"listener.security.protocol.map": "EXTRA:PLAINTEXT"},
        {"listener.security.protocol.map": "PLAINTEXT:SSL"},
        {"listener.security.protocol.map": f"{names},EXTRA:NONE"},
        {"listener.security.protocol.map": f"{names},EXTRA:PLAINTEXT"},
    ):
        wanted: list[tuple[str, int, str | None]] = [(name, SET, value) for name, value in changes.items()]
        await script.ask(alter((BROKER, "0", wanted), validate_only=True), 1)
        await script.ask(alter((BROKER, "", wanted), validate_only=True), 1)
    extra, secured = f"EXTRA://127.0.0.1:{ports[0]}", f"{names},EXTRA:PLAINTEXT"
    for step in (
        [("listeners", SET, f"{first},{extra}"), ("listener.security.protocol.map", SET, secured)],
        [("advertised.listeners", SET, f"{first},{extra}")],
        [("advertised.listeners", SET, f"{first},EXTRA://elsewhere:{ports[1]}")],
        [("listener.security.protocol.map", SET, f"{names},EXTRA:SSL")],
        [("listeners", SET, f"{first},{extra},MORE://127.0.0.1:{ports[1]}")],
        [("listeners", SET, extra)],
    ):
        await script.ask(alter((BROKER, "0", step)), 1)
        script.note("sent", await reported_through(here.port, lambda brokers: True))
        # Kafka applies the change some time after its response, and accepts a forbidden change when it equals the
        # current value.
        await eventually_async(lambda: is_open(ports[0]))
    script.note("sent", await reported_through(ports[0], lambda brokers: brokers == [("elsewhere", ports[1])]))
    gone = [(name, DELETE, None) for name in APART]
    await script.ask(alter((BROKER, "0", gone)), 1)
    await eventually_async(lambda: is_open(ports[0]), lambda accepts: not accepts)
    script.transcript = [
        _without_numbers(line, {here.port: "HERE", ports[0]: "EXTRA", ports[1]: "MORE"}) for line in script.transcript
    ]


async def reported_through(port: int, enough: Callable[[list[tuple[str, int]]], bool]) -> list[tuple[str, int]]:
    """The addresses that Metadata returns to a client at this port, once they are the expected ones."""

    async def reported() -> list[tuple[str, int]]:
        client = await Client.connect(port)
        try:
            answer = await client.ask(m.MetadataRequest(topics=[]), 7)
        finally:
            client.close()
        return [(each.host, each.port) for each in answer.brokers]

    return await eventually_async(reported, enough, retry_on=(ConnectionRefusedError,))


async def is_open(port: int) -> bool:
    """Whether the port accepts connections."""
    try:
        (await Client.connect(port)).close()
    except (ConnectionRefusedError, ConnectionResetError):  # after it was taken, too
        return False
    return True


def _without_numbers(line: str, names: dict[int, str]) -> str:
    for port, name in names.items():
        line = line.replace(str(port), name)
    return line


Play = Callable[[Patient], Awaitable[None]]
PLAYS: Final[tuple[Play, ...]] = (
    resources,
    broker_names,
    everything,
    keys,
    dynamic,
    read_only,
    layers,
    of_a_listener,
    topics,
    threads,
    loggers,
    listeners,
)


async def transcript(play: Play, port: int, name: str, expected: list[str]) -> list[str]:
    """The responses of a broker to a script; `expected` has the responses of the broker before it."""
    client = await Client.connect(port)
    script = Patient(client, f"topic-{name}", expected)
    try:
        await script.begin()
        await play(script)
    finally:
        client.close()
        # Other tests use the same Kafka.
        client = await Client.connect(port)
        await client.ask(replace_configs((BROKER, "0", []), (BROKER, "", [])), 2)
        client.close()
    return script.transcript


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Restores the logger level of this process."""
    before = logging.getLogger("odradek").level
    yield
    logging.getLogger("odradek").setLevel(before)


@pytest.fixture
async def our_port(kafka: Kafka, tmp_path: Path) -> AsyncIterator[int]:
    """Odradek with the server.properties of that Kafka."""
    properties = parse_properties((kafka.data_dir.parent / "server.properties").read_bytes())
    same = {name: value for name, value in properties.items() if name not in INTENDED}
    async with running_broker(tmp_path / "data", same) as broker:
        yield broker.port


@pytest.mark.parametrize("play", PLAYS)
async def test_configurations_match_those_of_kafka(play: Play, kafka: Kafka, our_port: int) -> None:
    name = uuid.uuid4().hex
    ours = await transcript(play, our_port, name, [])
    theirs = await transcript(play, kafka.port, name, ours)
    different = [(our, their) for our, their in zip(ours, theirs, strict=True) if our != their]
    assert different == []


async def test_the_tables_match_the_descriptions_of_kafka(kafka: Kafka) -> None:
    """Name, type, default, and whether it can change at run time, of every property that docs/configuration.md has."""
    client = await Client.connect(kafka.port)
    topic = f"topic-{uuid.uuid4().hex}"
    await client.create_topic(topic)
    answer = await client.ask(described((BROKER, "0", None), (TOPIC, topic, None)), 4)
    client.close()
    of_broker, of_topic = ({each.name: each for each in result.configs} for result in answer.results)
    theirs: dict[str, Row] = {}
    for name, entry in of_broker.items():
        default = next((each.value for each in entry.synonyms if each.source == DEFAULT_CONFIG), None)
        theirs[name] = (Type(entry.config_type), default, entry.read_only)
    assert differences(BROKER_PROPERTIES, theirs) == set(configuration.INTENDED)
    # A topic's default is the broker's, which is unchanged here.
    theirs = {name: (Type(entry.config_type), entry.value, entry.read_only) for name, entry in of_topic.items()}
    assert {entry.config_source for entry in of_topic.values()} == {DEFAULT_CONFIG}
    assert differences(TOPIC_PROPERTIES, theirs) == set()


Row = tuple[Type, str | None, bool]


def differences(table: dict[str, ConfigKey], theirs: dict[str, Row]) -> set[str]:
    """The properties for which a table differs from Kafka."""
    ours = {
        row.name: (row.type, show_value(row.default), row.update is Update.READ_ONLY)
        for row in table.values()
        if not row.internal
    }
    return {name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}
