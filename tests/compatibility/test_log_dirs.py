"""Several data directories, as Apache Kafka 3.9.2 has them: requests, stock tools, and moves that the other broker
completes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import OsDisk
from tests.broker.log_dir_requests import alter, places
from tests.broker.replica_places import Places
from tests.broker.wire import Client, batch
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.storage.r13 import batches_of
from tests.support.eventually import eventually, eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

DEADLINE_S = 60
TOPICS = {"t": 2, "moving": 1, "x" * 240: 1}


class Side(NamedTuple):
    """A broker with two data directories."""

    name: str
    broker: BrokerProcess | Kafka
    one: str
    two: str


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    folder: Path = tmp_path_factory.mktemp("log-dirs")

    def properties(name: str) -> dict[str, str]:
        return {"log.dirs": f"{folder / name / 'one'},{folder / name / 'two'}", "offsets.topic.num.partitions": "1"}

    (folder / "ours").mkdir()
    kafka = Kafka(folder / "kafka", properties("kafka"))
    with contextlib.ExitStack() as undo:
        undo.callback(kafka.close)
        kafka.start()
        ours = undo.enter_context(BrokerProcess(folder / "ours", properties("ours")))
        yield [
            Side(name, broker, str(folder / name / "one"), str(folder / name / "two"))
            for name, broker in (("ours", ours), ("kafka", kafka))
        ]


async def prepared(side: Side, client: Client) -> None:
    """The topics, all in the first directory."""
    for topic, partitions in TOPICS.items():
        for index in range(partitions):
            if len(topic) < 200:
                await alter(client, 2, (side.one, topic, index))
        await client.create_topic(topic, partitions=partitions)
        for index in range(partitions):
            while (await client.produce(topic, batch(b"v" * 100), partition=index, version=11)).error_code:
                pass


async def until_moved(client: Client, path: str, name: tuple[str, int]) -> dict[str, Any]:
    return await eventually_async(
        lambda: places(client, 4),
        lambda found: [each for each, logs in found.items() if {(*name, False), (*name, True)} & logs.keys()] == [path],
    )


async def conversation(side: Side) -> list[object]:
    """A broker's response, with its folders replaced by words."""
    client = await Client.connect(side.broker.port)
    await prepared(side, client)
    asked = [
        (side.one + "/elsewhere", "t", 0),
        ("one", "t", 1),
        (side.one, "t", 9),
        (side.one, "never", 0),
        (side.two, "x" * 240, 0),
        (side.one, "moving", 0),
    ]
    printed: list[object] = [sorted(await alter(client, version, *asked)) for version in range(3)]
    printed.append(await alter(client, 2, (side.two, "t", 1)))
    described = await until_moved(client, side.two, ("t", 1))
    words = {side.one: "one", side.two: "two"}
    printed.append(
        sorted((words[path], *name, *facts) for path, logs in described.items() for name, facts in logs.items())
    )
    for version in range(5):
        answer = await client.ask(
            m.DescribeLogDirsRequest(
                topics=[
                    m.DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[0, 1, 7]),
                    m.DescribeLogDirsRequest.DescribableLogDirTopic(topic="nothing", partitions=[0]),
                ]
            ),
            version,
        )
        printed.append((version, answer.error_code, sorted(_words(each, words) for each in answer.results)))
    client.close()
    return printed


def _words(result: Any, words: dict[str, str]) -> tuple[object, ...]:
    topics = sorted(
        (topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
        for topic in result.topics
        for each in topic.partitions
    )
    return words[result.log_dir], result.error_code, topics, result.total_bytes, result.usable_bytes > 0


async def test_a_broker_answers_as_kafka_does(sides: list[Side]) -> None:
    ours, kafka = [await conversation(side) for side in sides]
    assert ours == kafka
    assert (("t", 0, ErrorCode.LOG_DIR_NOT_FOUND)) in ours[0]  # type: ignore[operator]


def tool(side: Side, name: str, *arguments: str) -> str:
    result = run_tool("3.9.2", name, ["--bootstrap-server", side.broker.bootstrap, *arguments], timeout_s=DEADLINE_S)
    text = result.stdout + result.stderr
    for path, word in ((side.one, "(one)"), (side.two, "(two)"), (side.broker.bootstrap, "(bootstrap)")):
        text = text.replace(path, word)
    return text


def test_stock_tools_describe_and_move(sides: list[Side], tmp_path: Path) -> None:
    """After the test above, so that the topics are there."""
    transcripts = []
    for side in sides:
        plan = tmp_path / f"{side.name}.json"
        moves = [{"topic": "moving", "partition": 0, "replicas": [0], "log_dirs": [side.two]}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        wrong = tmp_path / f"{side.name}-wrong.json"
        moves[0]["log_dirs"] = [side.one + "/elsewhere"]
        wrong.write_text(json.dumps({"version": 1, "partitions": moves}))
        printed = [tool(side, "kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))]
        printed.append(
            eventually(
                lambda side=side, plan=plan: tool(
                    side, "kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan)
                ),
                lambda text: "completed successfully" in text,
            )
        )
        printed.append(tool(side, "kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(wrong)))
        printed.append(tool(side, "kafka-log-dirs", "--describe", "--topic-list", "moving,t", "--broker-list", "0"))
        transcripts.append([_settled(each) for each in printed])
    ours, kafka = transcripts
    assert ours == kafka
    assert "(two)" in ours[-1]


def _settled(text: str) -> str:
    """The lines in a fixed order: the tools print Java's maps."""
    found = re.search(r"^\{.*\}$", text, re.MULTILINE)
    if found is None:
        return text
    described = json.loads(found[0])
    for broker in described.get("brokers", ()):
        for each in broker["logDirs"]:
            each["partitions"].sort(key=lambda partition: str(partition["partition"]))
        broker["logDirs"].sort(key=lambda each: str(each["logDir"]))
    return text.replace(found[0], json.dumps(described, sort_keys=True))


def identity(path: str) -> set[str]:
    """The properties in a directory's meta.properties."""
    lines = (Path(path) / "meta.properties").read_text().splitlines()
    return {line.partition("=")[0] for line in lines if not line.startswith("#")}


def opened(side: Side) -> Places:
    """The directories of a broker that does not run, as Odradek describes them."""
    opened = Places(OsDisk(), (side.one, side.two))
    opened.epoch = 100
    opened.open(cluster_id=None)
    return opened


def lead(opened: Places, name: tuple[str, int]) -> list[bytes]:
    """The replica of this log; returns its batches."""
    log = opened.log(name)
    opened.lead(name, topic_id=log.topic_id)
    return [each.data for each in batches_of(log)]


async def move_slowly(client: Client) -> None:
    """From the next start on Kafka moves so slowly that a long move is still under way when the test continues."""
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name="replica.alter.log.dirs.io.max.bytes.per.second", config_operation=0, value="2000"
    )
    broker = m.IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="0", configs=[config])
    answer = await client.ask(m.IncrementalAlterConfigsRequest(resources=[broker]), 1)
    assert answer.responses[0].error_code == 0, answer


async def test_each_broker_completes_moves_that_the_other_has_begun(sides: list[Side]) -> None:
    """Last, because it stops the brokers."""
    ours, side = sides
    kafka = side.broker
    client = await Client.connect(kafka.port)
    await client.create_topic("late")
    while (await client.produce("late", batch(b"v" * 100_000), version=11)).error_code:
        pass
    for size in (*[100_000] * 29, 1):
        assert (await client.produce("late", batch(b"v" * size), version=11)).error_code == 0
    await move_slowly(client)
    client.close()
    kafka.stop()
    assert identity(side.one) == identity(side.two) == identity(ours.one) == identity(ours.two)

    begun = opened(side)
    before = lead(begun, ("late", 0))
    source = begun.where(("late", 0))[0]
    destination = side.two if source == side.one else side.one
    begun.host.moves.piece_bytes = 100_100
    begun.move(destination, ("late", 0))
    future = begun.directories.at(destination).futures["late", 0]  # type: ignore[union-attr]
    while future.end_offset < 30:
        assert begun.hands.turn()
    assert begun.where(("late", 0)) == (source, destination)
    begun.host.retire()
    begun.host.close()

    kafka.start()
    client = await Client.connect(kafka.port)
    await until_moved(client, destination, ("late", 0))
    # A Kafka that has just started may not lead the partition yet.
    await eventually_async(lambda: client.fetch("late", 30, version=12), lambda answer: answer.high_watermark == 31)
    assert await alter(client, 2, (source or "", "late", 0)) == [("late", 0, ErrorCode.NONE)]
    await eventually_async(
        lambda: places(client, 4), lambda found: found[source or ""].get(("late", 0, True), (0, 0))[0]
    )
    client.close()
    kafka.stop()

    ended = opened(side)
    assert ended.where(("late", 0)) == (destination, source)
    assert lead(ended, ("late", 0)) == before
    ended.settle()
    assert ended.where(("late", 0)) == (source, None)
    assert [each.data for each in batches_of(ended.log(("late", 0)))] == before
    ended.host.retire()
    ended.host.close()
