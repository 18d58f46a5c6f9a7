"""kcat, the command line over librdkafka: metadata, keys, headers and codecs, where reading begins and ends, groups.

The tests need `kcat` (or `kafkacat`, its old name) on the PATH.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import ClusterProcess
from tests.jvm.process import BackgroundProcess, run_java
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

KCAT: Final = shutil.which("kcat") or shutil.which("kafkacat")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S: Final = 30.0
ALONE: Final = pytest.mark.parametrize("kcat", [1], indirect=True, ids=["one"])
"""A partition's output is the same in a cluster."""


class Kcat:
    """kcat against one place; `brokers` is its number of brokers."""

    def __init__(self, bootstrap: str, brokers: int) -> None:
        self.bootstrap = bootstrap
        self.brokers = brokers

    def command(self, *arguments: str) -> list[str]:
        assert KCAT is not None
        return [KCAT, "-b", self.bootstrap, *arguments]

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Its output, at its end."""
        return run_java(self.command(*arguments), stdin=stdin, timeout_s=TIMEOUT_S).stdout

    def consume(self, topic: str, *arguments: str, form: str = "%o %s\n") -> list[str]:
        """The records up to the end, one a line."""
        return self.run("-C", "-q", "-e", "-t", topic, "-f", form, *arguments).splitlines()

    def create(self, topic: str) -> None:
        """A topic of as many replicas as there are brokers: created by a Metadata request, with the brokers'
        defaults.
        """
        eventually(
            lambda: self.run("-L", "-t", topic),
            lambda notified: "leader -1" not in notified and "not available" not in notified,
        )


@pytest.fixture(scope="module", params=[1, 3], ids=["one", "three"])
def kcat(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kcat]:
    if KCAT is None:
        pytest.skip("no kcat on this machine (install kcat)")
    brokers: int = request.param
    if request.config.getoption("--broker") == "kafka":
        if brokers > 1:
            pytest.skip("one Apache Kafka broker is enough as a reference")
        yield Kcat(request.getfixturevalue("kafka").bootstrap, 1)
        return
    folder = tmp_path_factory.mktemp("kcat")
    if brokers == 1:
        with BrokerProcess(folder) as broker:
            yield Kcat(broker.bootstrap, 1)
    else:
        with ClusterProcess(folder, 3, {"default.replication.factor": "3"}) as cluster:
            yield Kcat(cluster.bootstrap_servers, 3)


def test_metadata_as_text_and_as_json(kcat: Kcat, topic: str) -> None:
    kcat.create(topic)
    printed = kcat.run("-L", "-t", topic)
    assert f" {kcat.brokers} brokers:" in printed
    assert f'  topic "{topic}" with 1 partitions:' in printed
    notified: dict[str, Any] = json.loads(kcat.run("-L", "-J", "-t", topic))
    ids = {broker["id"] for broker in notified["brokers"]}
    assert notified["controllerid"] in ids
    (described,) = notified["topics"]
    (partition,) = described["partitions"]
    assert described["topic"] == topic
    assert partition["leader"] in ids
    assert {replica["id"] for replica in partition["replicas"]} == ids
    assert {replica["id"] for replica in partition["isrs"]} == ids


def test_keys_headers_and_codecs(kcat: Kcat, topic: str) -> None:
    kcat.create(topic)
    sent: list[str] = []
    for codec in CODECS:
        records = [(f"key {number}", f"value {number} {'again ' * number}") for number in range(20)]
        settings = ["-z", codec, "-X", "enable.idempotence=true", "-K", ":", "-H", "codec=" + codec, "-H", "empty="]
        lines = "".join(f"{key}:{value}\n" for key, value in records)
        kcat.run("-P", "-t", topic, "-p", "0", *settings, stdin=lines)
        sent += [f"{key}|{value}|codec={codec},empty=" for key, value in records]
    read = kcat.consume(topic, "-o", "beginning", form="%T %o|%k|%s|%h\n")
    assert [line.partition("|")[2] for line in read] == sent
    now = time.time() * 1000
    assert all(now - 300_000 < int(line.split()[0]) <= now for line in read)

    (last,) = kcat.run("-C", "-J", "-e", "-q", "-t", topic, "-p", "0", "-o", "99").splitlines()
    notified = json.loads(last)
    assert (notified["topic"], notified["partition"], notified["offset"], notified["key"]) == (topic, 0, 99, "key 19")
    assert notified["headers"] == ["codec", "zstd", "empty", ""]
    assert notified["tstype"] == "create"


@ALONE
def test_where_reading_begins_and_ends(kcat: Kcat, topic: str) -> None:
    kcat.create(topic)
    first = [f"first {number}" for number in range(10)]
    kcat.run("-P", "-t", topic, "-p", "0", stdin="\n".join(first) + "\n")
    newest = max(int(line) for line in kcat.consume(topic, "-o", "beginning", form="%T\n"))
    # The second half is younger: between the newest of the first and it a process has started and requested metadata.
    second = [f"second {number}" for number in range(10)]
    kcat.run("-P", "-t", topic, "-p", "0", stdin="\n".join(second) + "\n")
    everything = [f"{offset} {line}" for offset, line in enumerate([*first, *second])]
    assert kcat.consume(topic, "-o", "beginning") == everything
    assert kcat.consume(topic, "-p", "0", "-o", "-5") == everything[-5:]
    assert kcat.consume(topic, "-p", "0", "-o", "7") == everything[7:]
    assert kcat.consume(topic, "-p", "0", "-o", f"s@{newest + 1}") == everything[10:]
    assert kcat.consume(topic, "-p", "0", "-o", "s@0", "-o", f"e@{newest + 1}") == everything[:10]
    assert kcat.consume(topic, "-o", "beginning", "-c", "3") == everything[:3]
    assert kcat.consume(topic, "-o", "end") == []
    assert kcat.run("-Q", "-t", f"{topic}:0:{newest + 1}").split() == [topic, "[0]", "offset", "10"]


@ALONE
def test_a_tombstone(kcat: Kcat, topic: str) -> None:
    kcat.create(topic)
    kcat.run("-P", "-t", topic, "-K", ":", "-Z", stdin="gone:\nthere:value\n")
    assert kcat.consume(topic, "-o", "beginning", "-Z", form="%k %S %s\n") == ["gone -1 NULL", "there 5 value"]


def test_a_group_continues_at_its_offset(kcat: Kcat, topic: str, group: str) -> None:
    kcat.create(topic)
    kcat.run("-P", "-t", topic, stdin="one\ntwo\n")
    arguments = ["-q", "-u", "-e", "-X", "auto.offset.reset=earliest", "-f", "%o %s\n", "-G", group, topic]
    assert kcat.run(*arguments).splitlines() == ["0 one", "1 two"]
    kcat.run("-P", "-t", topic, stdin="three\n")
    assert kcat.run(*arguments).splitlines() == ["2 three"]
    with BackgroundProcess(kcat.command(*[each for each in arguments if each != "-e"])) as follower:
        kcat.run("-P", "-t", topic, stdin="four\n")
        follower.stdout.wait_for("3 four", TIMEOUT_S)
        follower.stop()
    assert kcat.run(*arguments).splitlines() == []


@ALONE
def test_a_transactional_producer(kcat: Kcat, topic: str) -> None:
    kcat.create(topic)
    kcat.run("-P", "-t", topic, "-X", f"transactional.id={topic}", stdin="one\ntwo\n")
    committed = kcat.consume(topic, "-o", "beginning", "-X", "isolation.level=read_committed")
    assert committed == ["0 one", "1 two"]
