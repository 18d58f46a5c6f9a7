"""The page of metrics: it has the names that dashboards for Kafka use, and correct values."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from odradek.broker.metrics.broker_metrics import KEPT, RequestMetrics, percentiles
from odradek.broker.metrics.exposition.page import connections
from odradek.broker.metrics.exposition.snapshot import take_snapshot
from odradek.broker.server import Broker
from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.storage.quarantine import QUARANTINE
from odradek.wire import Wire
from tests.broker.wire import running_broker
from tests.jvm.jars import classpath
from tests.jvm.kafka import SMALL_JVM, Kafka
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0
Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


class Page:
    """The content of a page of metrics: types of families, and samples by name and labels."""

    def __init__(self, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as page:
            text = page.read().decode()
        self.types: dict[str, str] = {}
        self.samples: Samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.types[sample.name] = family.type
                self.samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value

    def __getitem__(self, name: str) -> float:
        """The sample without labels."""
        return self.samples[name][frozenset()]

    def of(self, name: str, **labels: str) -> float:
        """The sample with exactly these labels; 0 where there is none."""
        return self.samples.get(name, {}).get(frozenset(labels.items()), 0)

    def labels(self, name: str) -> set[frozenset[str]]:
        """The sets of label names that the samples of this name have."""
        return {frozenset(label for label, _ in labels) for labels in self.samples[name]}


class Watched(BrokerProcess):
    """A broker with a page of metrics."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"offsets.topic.num.partitions": "4"})
        self.page_port = free_port()

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), f"--metrics=127.0.0.1:{self.page_port}"]


@pytest.fixture
def odradek(tmp_path: Path) -> Iterator[Watched]:
    broker = Watched(tmp_path / "odradek")
    broker.start()
    yield broker
    broker.stop()


def work(bootstrap: str) -> None:
    """A group writes and reads three records, and a client requests a partition that does not exist."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2)])["t"].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000, "acks": "all"})
    for number in range(3):
        producer.produce("t", b"value %d" % number, partition=1, timestamp=1_700_000_000_000)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["t"])
    read = []
    while len(read) < 3:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        read.append(message)
    consumer.commit(offsets=[TopicPartition("t", 1, 3)], asynchronous=False)
    consumer.close()


def test_percentiles_are_of_the_last_requests() -> None:
    metrics = RequestMetrics("Produce")
    assert percentiles((total for total, _ in metrics.durations()), (0.5, 0.999)) == [0, 0]
    for number in range(3 * KEPT):
        metrics.answered(9, number * 1_000_000, 1_000_000)
    assert metrics.count == metrics.versions[9] == 3 * KEPT
    totals = [total for total, _ in metrics.durations()]
    assert sorted(totals) == [number * 1_000_000 for number in range(2 * KEPT, 3 * KEPT)]
    assert percentiles(totals, (0, 0.5, 1)) == [2 * KEPT, 2.5 * KEPT, 3 * KEPT - 1]


@pytest.mark.slow
def test_metrics_follow_the_actions_of_clients(odradek: Watched) -> None:
    before = Page(odradek.page_port)
    assert before["kafka_server_brokertopicmetrics_messagesin_total"] == 0
    assert before["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    work(odradek.bootstrap)
    page = Page(odradek.page_port)
    assert page.of("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 3
    size = page.of("kafka_server_brokertopicmetrics_bytesin_total", topic="t")
    assert size == page.of("kafka_log_log_size", topic="t", partition="1") > 0
    assert page.of("kafka_server_brokertopicmetrics_bytesout_total", topic="t") >= size
    assert page.of("kafka_log_log_logendoffset", topic="t", partition="1") == 3
    assert page["kafka_server_replicamanager_leadercount"] == 2 + 4
    assert page["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert page["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 1
    assert page["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 1
    assert page.of("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 1
    assert page.of("kafka_network_requestmetrics_totaltimems", request="FetchConsumer", quantile="0.5") > 0
    connections = "kafka_server_socket_server_metrics_connection_count"
    with socket.create_connection(("127.0.0.1", odradek.port)):
        eventually(lambda: Page(odradek.page_port), lambda page: sum(page.samples[connections].values()) == 1)
    assert page["process_resident_memory_bytes"] > 1 << 20
    assert 0 <= page["kafka_network_socketserver_networkprocessoravgidlepercent"] <= 1


@pytest.mark.slow
def test_large_requests_and_stalls_of_the_loop_are_counted(odradek: Watched) -> None:
    names = (
        "odradek_sliced_requests_total",
        "odradek_request_interruptions_total",
        "odradek_rejected_large_requests_total",
    )
    before = Page(odradek.page_port)
    assert [before[name] for name in (*names, "odradek_held_bytes")] == [0, 0, 0, 0]
    large, too_large = (
        m.DescribeGroupsRequest(groups=[f"group-{number}" for number in range(count)]) for count in (50_000, 2_000_000)
    )
    with Wire("127.0.0.1", odradek.port, TIMEOUT_S) as wire:
        assert len(wire.ask(large, 5).groups) == 50_000
        with pytest.raises(ConnectionError):
            wire.ask(too_large, 5)
    page = Page(odradek.page_port)
    sliced, interruptions, rejected = (page[name] for name in names)
    assert (sliced, rejected) == (2, 1)
    assert interruptions > 2
    stalls = "odradek_event_loop_stall_seconds"
    measured = eventually(
        lambda: Page(odradek.page_port), lambda page: page[f"{stalls}_count"] > 5, "the stalls of the loop are measured"
    )
    assert measured.of(f"{stalls}_bucket", le="+Inf") == measured[f"{stalls}_count"]
    assert measured.of(f"{stalls}_bucket", le="0.01") <= measured.of(f"{stalls}_bucket", le="5.0")


@pytest.mark.slow
def test_errors_are_counted_by_their_names(odradek: Watched) -> None:
    producer = Producer({"bootstrap.servers": odradek.bootstrap, "message.max.bytes": 2_000_000})
    notified: list[str] = []
    producer.produce(
        "large", bytes(1_500_000), on_delivery=lambda error, message: notified.append(error.name() if error else "")
    )
    assert producer.flush(TIMEOUT_S) == 0
    assert notified == ["MSG_SIZE_TOO_LARGE"]
    page = Page(odradek.page_port)
    assert page.of("kafka_network_requestmetrics_errors_total", request="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert page.of("kafka_server_brokertopicmetrics_bytesrejected_total", topic="large") > 1_500_000


RULES = [
    # attribute, the end of the name that it removes, the suffix of the name, the type
    ("Count", "PerSec", "_total", "COUNTER"),
    ("MeanRate", "Percent", "_percent", "GAUGE"),
    ("Count", "", "_count", "COUNTER"),
    ("Value", "", "", "GAUGE"),
]


def rules() -> str:
    """The exporter's configuration, in YAML: metrics with up to three labels, then percentiles, then connections."""
    lines = ["lowercaseOutputName: true", "rules:"]

    def rule(pattern: str, name: str, kind: str, labels: list[tuple[str, str]]) -> None:
        lines.extend([f"- pattern: '{pattern}'", f"  name: '{name}'", f"  type: {kind}"])
        if labels:
            lines.append("  labels:")
            lines.extend(f"    '{label}': '{value}'" for label, value in labels)

    rule(r"kafka\.coordinator\.(\w+)<type=(.+), name=(.+)><>Value", "kafka_coordinator_$1_$2_$3", "GAUGE", [])
    for count in (3, 2, 1, 0):
        keys = ", (.+)=(.+)" * count
        labels = [(f"${4 + 2 * each}", f"${5 + 2 * each}") for each in range(count)]
        for attribute, taken, behind, kind in RULES:
            pattern = rf"kafka\.(\w+)<type=(.+), name=(.+){taken}{keys}><>{attribute}"
            rule(pattern, f"kafka_$1_$2_$3{behind}", kind, labels)
        percentile = rf"kafka\.(\w+)<type=(.+), name=(.+){keys}><>(\d+)thPercentile"
        rule(percentile, "kafka_$1_$2_$3", "GAUGE", [*labels, ("quantile", f"0.${4 + 2 * count}")])
    sockets = r"kafka\.server<type=(.+), listener=(.+), networkProcessor=(.+)><>"
    of_sockets = [("listener", "$2"), ("networkProcessor", "$3")]
    for names, kind in (
        ("connection-count|expired-connections-killed-count", "GAUGE"),
        (r"\w+-(?:re)?authentication-total", "COUNTER"),
    ):
        rule(f"{sockets}({names})", "kafka_server_$1_$4", kind, of_sockets)
    return "\n".join(lines) + "\n"


@pytest.mark.jvm
@pytest.mark.slow
def test_names_labels_and_types_are_those_of_kafka_with_the_exporter(odradek: Watched, tmp_path: Path) -> None:
    config, port = tmp_path / "rules.yml", free_port()
    config.write_text(rules())
    (agent,) = classpath("jmx-exporter")
    kafka = Kafka(tmp_path / "kafka", jvm=(*SMALL_JVM, f"-javaagent:{agent}=127.0.0.1:{port}:{config}"))
    try:
        kafka.start()
        work(kafka.bootstrap)
        theirs = eventually(
            lambda: Page(port),
            lambda page: page.of("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 3,
        )
    finally:
        kafka.close()
    work(odradek.bootstrap)
    ours = Page(odradek.page_port)
    names = {name for name in ours.samples if name.startswith("kafka_")}
    assert len(names) > 60
    assert sorted(names - theirs.samples.keys()) == []
    for name in sorted(names):
        assert (name, ours.types[name]) == (name, theirs.types[name])
        assert (name, ours.labels(name) - theirs.labels(name)) == (name, set())
    for name in ("messagesin", "bytesin"):
        sample = f"kafka_server_brokertopicmetrics_{name}_total"
        assert (name, ours.of(sample, topic="t")) == (name, theirs.of(sample, topic="t"))
    produced = "kafka_network_requestmetrics_totaltimems_count"
    assert ours.of(produced, request="Produce") == theirs.of(produced, request="Produce")


@pytest.mark.slow
def test_every_name_is_in_the_documentation(odradek: Watched) -> None:
    rows = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    words = [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in rows if row.startswith("| `")]
    documented = {prefix + name for row in words for prefix in (*row, "") for name in row}
    names = {name for name in Page(odradek.page_port).samples if name.startswith(("kafka_", "odradek_"))}
    timed = {f"kafka_network_requestmetrics_{part}timems_count" for part in ("total", "local", "remote")}
    assert sorted(names - documented - timed) == []


FUNCTIONS = {"max", "rate", "sum", "increase", "ignoring", "le"}
OF_LIMITS = (
    "odradek_event_loop_stall_seconds",
    "odradek_held_bytes",
    "odradek_log_quarantined_bytes",
    "odradek_quota_throttles_total",
    "odradek_rejected_large_requests_total",
)
"""What shows that a client, or a disk, takes more than its share."""


def test_alert_rules_use_metrics_of_the_page_and_are_in_the_documentation(odradek: Watched) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{odradek.page_port}/metrics", timeout=TIMEOUT_S) as page:
        text = page.read().decode()
    names = {"up", *re.findall(r"^# TYPE (\S+) ", text, re.M), *re.findall(r"^(\w+_(?:bucket|count))[{ ]", text, re.M)}
    documentation = (ROOT / "docs" / "metrics.md").read_text()
    groups = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    expressions = " ".join(rule["expr"] for rule in rules)
    assert [name for name in OF_LIMITS if name not in expressions] == []
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert f"`{rule['alert']}`" in documentation
        expression = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", rule["expr"])
        used = set(re.findall(r"[a-z][a-z_]*", expression)) - FUNCTIONS
        assert used, rule
        assert used <= names, f"{rule['alert']} uses {used - names}, which the page does not have"


@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", "docs/alerts.yml"), ("test", "rules", "tests/broker/alert_rules.yml")],
    ids=["valid", "unit tests"],
)
def test_alert_rules_in_prometheus(arguments: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool of Prometheus is not installed")
    checked = subprocess.run([promtool, *arguments], cwd=ROOT, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


async def test_the_bytes_of_the_quarantine_are_on_the_page(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (quarantined,) = of_name("odradek_log_quarantined_bytes", broker)
        assert quarantined.value == 0
    entry = tmp_path / QUARANTINE / "20260101T000000-topic-0"
    entry.mkdir(parents=True)
    (entry / "00000000000000000000.log").write_bytes(bytes(1234))
    async with running_broker(tmp_path) as broker:
        (quarantined,) = of_name("odradek_log_quarantined_bytes", broker)
        assert (quarantined.labels, quarantined.value) == ({"logDirectory": str(tmp_path)}, 1234)


def of_name(name: str, broker: Broker) -> list[Sample]:
    """The samples of a family of the metrics page that has directories and connections."""
    families = connections(take_snapshot(broker.running.sources))
    return [sample for family in families if family.name == name for sample in family.samples]
