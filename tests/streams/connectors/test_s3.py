"""The sink of object stores with a server that has conditional writes (moto): the contract, fencing, errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import boto3
import pytest
from hypothesis import given, settings
from moto.server import ThreadedMotoServer

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.errors import ConnectError, FencedError, RetriableError
from odradek.streams.connectors.interface import Sink
from odradek.streams.connectors.s3_sink import S3Sink
from tests.streams.connectors.contract import Course, check_sink, courses, logs
from tests.streams.connectors.memory import Countdown, Crashing, log_of
from tests.streams.connectors.memory_s3 import MemoryS3
from tests.streams.connectors.stored import offsets_of_objects

pytestmark = pytest.mark.slow

PLACE = ("orders", 0)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[Any]:
    made = client_of(endpoint)
    yield made
    made.close()


def client_of(endpoint: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def bucket(client: Any) -> str:
    """A new bucket."""
    name = f"bucket{next(_numbers)}"
    client.create_bucket(Bucket=name)
    return name


def objects(client: Any, name: str) -> dict[str, bytes]:
    listed = client.list_objects_v2(Bucket=name).get("Contents", [])
    return {each["Key"]: client.get_object(Bucket=name, Key=each["Key"])["Body"].read() for each in listed}


@given(wanted=logs, course=courses)
@settings(max_examples=8, deadline=None)
def test_the_sink_passes_the_contract(
    client: Any, wanted: Mapping[TopicPartition, Sequence[int]], course: Course
) -> None:
    name = bucket(client)

    def make(countdown: Countdown) -> Sink:
        return S3Sink(name, "archive/", roll_records=4, client=Crashing(client, countdown))

    check_sink(make, lambda: offsets_of_objects(objects(client, name), "archive/"), wanted, course)


@pytest.mark.parametrize("kind", ["server", "memory"])
def test_a_process_whose_partition_moved_is_fenced(client: Any, kind: str) -> None:
    """Also with the store in memory, which the quick tests use."""
    used, name = (client, bucket(client)) if kind == "server" else (MemoryS3(), "bucket")
    late, owner = S3Sink(name, client=used), S3Sink(name, client=used)
    late.open("group", [PLACE])
    assert owner.open("group", [PLACE]) == {}
    records = log_of(PLACE, [0, 2, 5, 6], lambda offset: b"x")
    owner.put(records[:3])
    owner.flush()
    late.put(records[:1])
    with pytest.raises(FencedError, match="another process has taken over"):
        late.flush()
    assert late.open("group", [PLACE]) == {PLACE: 6}
    late.put(records[3:])
    late.flush()
    assert owner.open("group", [PLACE]) == {PLACE: 7}


def test_errors_of_the_store(endpoint: str, client: Any) -> None:
    with pytest.raises(ConnectError, match="NoSuchBucket"):
        S3Sink("no-such-bucket", client=client).open("group", [PLACE])
    name = bucket(client)
    client.put_object(Bucket=name, Key="orders/partition=0/other.jsonl", Body=b"{}")
    with pytest.raises(ConnectError, match="no metadata next-offset"):
        S3Sink(name, client=client).open("group", [PLACE])
    away = boto3.client(
        "s3",
        endpoint_url="http://127.0.0.1:1",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=boto3.session.Config(retries={"max_attempts": 0}, connect_timeout=1),
    )
    with pytest.raises(RetriableError, match="list_objects_v2 in bucket"):
        S3Sink(name, client=away).open("group", [PLACE])
    away.close()
