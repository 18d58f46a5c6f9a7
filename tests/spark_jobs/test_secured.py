"""A job over a broker with TLS, SCRAM and ACLs: its clients get their properties from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.security import Security, allow
from odradek.spark_jobs import windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC: Final = "words"
TEXT: Final = ["a", "thread", "that", "is", "the", "log", "and", "the", "log", "that", "is", "a", "thread"]
LATER_MS: Final = 3_600_000
SECURITY: Final = Security(
    "tls+scram",
    users=("writer", "reader"),
    acls=[
        allow("writer", create=TOPIC, write=TOPIC),
        allow("reader", read=TOPIC, group="odradek-windows"),
    ],
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("secured"), security=SECURITY) as running:
        config = running.client_config("writer")
        settings = {"retention.ms": "-1"}
        admin = AdminClient(config)
        admin.create_topics([NewTopic(TOPIC, 2, 1, config=settings)])[TOPIC].result(60)
        producer = Producer(config)
        for word, at_ms in [*((word, 0) for word in TEXT), ("later", LATER_MS)]:
            producer.produce(TOPIC, b"", word.encode(), timestamp=LATER_MS + at_ms)
        assert producer.flush(60) == 0
        yield running


def arguments(broker: BrokerProcess, folder: Path, user: str) -> list[str]:
    return [
        *("--bootstrap", broker.bootstrap, "--topic", TOPIC, "--once", "--size", "1s"),
        *("--kafka", f"@{broker.client_properties(user)}"),
        *("--checkpoint", str(folder / "checkpoint"), "--output", str(folder / "out")),
    ]


def test_words_are_counted_over_tls_and_scram(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    assert windows.main(arguments(broker, tmp_path, "reader")) == 0
    rows: list[Any] = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {bytes(row.key).decode(): row["count"] for row in rows} == Counter(TEXT)


def test_a_user_without_rights_ends_the_job_with_the_reason(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The writer may describe the topic and not read it."""
    assert windows.main(arguments(broker, tmp_path, "writer")) == 1
    assert "Not authorized to access" in capfd.readouterr().err.splitlines()[-1]
