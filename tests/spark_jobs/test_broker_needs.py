"""The requirements of Spark's connector on the broker: offsets that never go back when leaders change; topics that grow
or are deleted under a running query; records of open, aborted and committed transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import ClusterProcess
from odradek.protocol import messages as m
from odradek.spark_jobs.command import Options
from odradek.spark_jobs.kafka_admin import KafkaAdmin
from odradek.spark_jobs.source import read_batch, read_stream
from odradek.wire import Wire
from tests.spark_jobs.copies import Record
from tests.spark_jobs.topics import make_topics, producer, read, send, unique, write
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

DEADLINE_S: Final = 120.0
PARTITIONS: Final = 2
FETCH_VERSION: Final = 12  # the last version with names of topics


def options_of(bootstrap: str, topic: str, checkpoint: Path, **more: Any) -> Options:
    return Options(job="needs", bootstrap=bootstrap, topics=(topic,), checkpoint=str(checkpoint), once=True, **more)


def records_of(topic: str, begin: int, end: int, partitions: int = PARTITIONS) -> list[Record]:
    return [Record(topic, number % partitions, 0, b"%d" % number) for number in range(begin, end)]


class Batches:
    """The records of each batch of a query; `after` is called after each with its number."""

    def __init__(self, after: Callable[[int], None] = lambda number: None) -> None:
        self._after = after
        self.values: list[bytes] = []

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.values += [bytes(row.value) for row in batch.select("value").collect()]
        self._after(number)

    def start(self, records: DataFrame, options: Options) -> Any:
        writer = records.writeStream.foreachBatch(self).option("checkpointLocation", options.checkpoint)
        return writer.trigger(**options.trigger).start()

    def wait_for(self, count: int, query: Any) -> None:
        eventually(lambda: len(self.values) >= count or not query.isActive, describe=f"{count} records")
        if query.exception() is not None:
            raise query.exception()


class Ends:
    """Requests the end offsets of a topic repeatedly, as Spark does at each trigger, and records where one
    went back.
    """

    def __init__(self, admin: KafkaAdmin, topic: str) -> None:
        self._admin = admin
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.seen: dict[int, int] = {}
        self.asked = 0
        self.regressions: list[tuple[int, int, int]] = []
        self.failures: list[str] = []

    def __enter__(self) -> Ends:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join(DEADLINE_S)

    def _ask(self) -> None:
        while not self._ended.is_set():
            try:
                found = self._admin.ends({self._topic: PARTITIONS})[self._topic]
            except Exception as error:  # Spark would retry, too, but a client waits for leaders
                self.failures.append(str(error))
                continue
            self.asked += 1
            for partition, end in found.items():
                if end < self.seen.get(partition, 0):
                    self.regressions.append((partition, self.seen[partition], end))
                self.seen[partition] = end


def test_a_job_completes_while_a_leader_dies(
    spark: SparkSession, spark_cluster: ClusterProcess, tmp_path: Path
) -> None:
    """AvailableNow fixes where it ends when it begins, and fails where a partition later ends before that."""
    cluster, topic = spark_cluster, unique("moving")
    make_topics(cluster.bootstrap_servers, {topic: PARTITIONS}, replicas=3)
    cluster.await_topic(topic)
    written = records_of(topic, 0, 1_000)
    write(cluster.bootstrap_servers, written)
    killed: list[int] = []

    def after(number: int) -> None:
        if number == 1:
            leader = cluster.leader_of(topic, 0)
            cluster.kill(leader)
            killed.append(leader)
            led = [n for n in range(PARTITIONS) if cluster.leader_of(topic, n) == leader]
            more = records_of(topic, 1_000, 1_300)
            for partition in led:
                cluster.await_leader(topic, partition, other_than=leader)
            write(cluster.bootstrap_servers, more)
            written.extend(more)
            cluster.restart(leader)
            for partition in range(PARTITIONS):
                cluster.await_isr(topic, partition, cluster.brokers)

    batches = Batches(after)
    options = options_of(cluster.bootstrap_servers, topic, tmp_path / "checkpoint", batch_records=350)
    with KafkaAdmin(spark, options.client) as admin, Ends(admin, topic) as ends:
        query = batches.start(read_stream(spark, options), options)
        assert query.awaitTermination(DEADLINE_S)
        assert query.exception() is None
        assert len(killed) == 1
        assert sorted(batches.values) == sorted(record.value or b"" for record in written[:1_000])
        batches.start(read_stream(spark, options), options).awaitTermination(DEADLINE_S)
        assert sorted(batches.values) == sorted(record.value or b"" for record in written)
        eventually(lambda: sum(ends.seen.values()) == len(written), describe="the ends")
    assert ends.regressions == []
    assert ends.asked > 3


def test_list_offsets_is_not_delayed_by_long_polls(spark_broker: BrokerProcess) -> None:
    """Spark's executors request the first and the last offset at every poll, beside consumers in long polls."""
    topic = unique("asked")
    make_topics(spark_broker.bootstrap, {topic: 1})
    write(spark_broker.bootstrap, records_of(topic, 0, 100, 1))
    host, port = spark_broker.host, spark_broker.port
    answered = threading.Event()
    with Wire(host, port, timeout_s=DEADLINE_S) as polling, Wire(host, port, timeout_s=DEADLINE_S) as asking:

        def poll() -> None:
            polling.ask(long_poll(topic), FETCH_VERSION)
            answered.set()

        waiting = threading.Thread(target=poll)
        waiting.start()
        for spec, offset in ((-2, 0), (-1, 100)) * 500:
            found: m.ListOffsetsResponse = asking.ask(list_offsets(topic, spec))
            assert found.topics[0].partitions[0].offset == offset
        assert not answered.is_set()
        write(spark_broker.bootstrap, records_of(topic, 100, 101, 1))
        waiting.join(DEADLINE_S)
    assert answered.is_set()


def long_poll(topic: str) -> m.FetchRequest:
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=100, partition_max_bytes=1 << 20)
    wanted = m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])
    return m.FetchRequest(max_wait_ms=int(DEADLINE_S * 1000), min_bytes=1, max_bytes=1 << 20, topics=[wanted])


def list_offsets(topic: str, timestamp: int) -> m.ListOffsetsRequest:
    partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    wanted = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])
    return m.ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[wanted])


def test_a_topic_grows_and_is_deleted_under_a_running_query(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    topic = unique("growing")
    make_topics(bootstrap, {topic: 1})
    write(bootstrap, records_of(topic, 0, 100, 1))
    batches = Batches()
    # The source sees new partitions as the consumer's metadata expire.
    quick = {"metadata.max.age.ms": "200"}
    options = Options(
        job="needs", bootstrap=bootstrap, topics=(topic,), checkpoint=str(tmp_path / "checkpoint"), kafka=quick
    )
    query = batches.start(read_stream(spark, options), options)
    try:
        batches.wait_for(100, query)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(DEADLINE_S)
        with KafkaAdmin(spark, options.client) as asked:
            eventually(lambda: asked.topics([topic])[topic].partitions == PARTITIONS, describe="the new partitions")
        write(bootstrap, records_of(topic, 100, 400))
        batches.wait_for(400, query)
        assert sorted(batches.values) == sorted(b"%d" % number for number in range(400))
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
        eventually(lambda: not query.isActive, describe="the end of a query whose topic is gone")
        assert query.exception() is not None
        assert len(batches.values) == 400
    finally:
        query.stop()


def test_transactional_records_are_read_after_their_commit(
    spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    """Aborted batches are skipped, and records behind an open transaction are not read before its end."""
    topic, bootstrap = unique("transactional"), spark_broker.bootstrap
    make_topics(bootstrap, {topic: PARTITIONS})
    to = producer(bootstrap, transactional_id=topic)
    to.init_transactions(DEADLINE_S)
    for begin, commit in ((0, True), (300, False), (600, True), (900, False)):
        to.begin_transaction()
        for record in records_of(topic, begin, begin + 300):
            send(to, record)
        assert to.flush(DEADLINE_S) == 0
        if commit:
            to.commit_transaction(DEADLINE_S)
        else:
            to.abort_transaction(DEADLINE_S)
    to.begin_transaction()
    send(to, Record(topic, 0, 0, b"open"))
    assert to.flush(DEADLINE_S) == 0
    write(bootstrap, [Record(topic, 0, 0, b"behind")])

    committed = {b"%d" % number for number in (*range(300), *range(600, 900))}
    assert values(read_batch(spark, options_of(bootstrap, topic, tmp_path))) == committed
    everything = read_batch(spark, options_of(bootstrap, topic, tmp_path, isolation="read_uncommitted"))
    assert values(everything) == {*(b"%d" % number for number in range(1_200)), b"open", b"behind"}
    batches = Batches()
    options = options_of(bootstrap, topic, tmp_path / "checkpoint", batch_records=700)
    assert batches.start(read_stream(spark, options), options).awaitTermination(DEADLINE_S)
    assert sorted(batches.values) == sorted(committed)
    to.abort_transaction(DEADLINE_S)
    assert batches.start(read_stream(spark, options), options).awaitTermination(DEADLINE_S)
    assert sorted(batches.values) == sorted([*committed, b"behind"])
    assert sorted(batches.values) == sorted(seen.value or b"" for seen in read(bootstrap, {topic: PARTITIONS}))


def values(records: DataFrame) -> set[bytes]:
    found = [bytes(row.value) for row in records.select("value").collect()]
    assert len(set(found)) == len(found)
    return set(found)
