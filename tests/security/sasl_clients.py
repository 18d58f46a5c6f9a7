"""Python clients that log in with SASL as alice: librdkafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError as RdKafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.errors import KafkaError

PASSWORD = "alice-secret"


def listed_by_librdkafka(port: int, mechanism: str, password: str) -> set[int]:
    """The ids of the brokers. Raises PermissionError if the authentication fails."""
    errors: list[Any] = []
    client = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
            "error_cb": errors.append,  # type: ignore[dict-item]
            "log_level": 0,
        }
    )
    try:
        return set(client.list_topics(timeout=20 if password == PASSWORD else 1).brokers)
    except KafkaException as error:
        client.poll(0)
        assert {each.code() for each in errors} & {RdKafkaError._AUTHENTICATION}
        raise PermissionError from error


def listed_by_kafka_python(port: int, mechanism: str, password: str) -> set[int]:
    """As `listed_by_librdkafka`."""
    # With a version the constructor does not connect, so that there is a client that can be closed: its thread would
    # try again for ever.
    client = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password,
        api_version=(2, 8),
        max_block_ms=20_000 if password == PASSWORD else 500,
    )
    try:
        client.partitions_for("listed")
        return {broker.node_id for broker in client._metadata.brokers()}
    except KafkaError as error:
        raise PermissionError from error
    finally:
        client.close()


async def _listed_by_aiokafka(port: int, mechanism: str, password: str) -> set[int]:
    client = AIOKafkaAdminClient(
        bootstrap_servers=f"127.0.0.1:{port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password,
    )
    try:
        await client.start()
        return {each["node_id"] for each in (await client.describe_cluster())["brokers"]}
    except AiokafkaError as error:
        raise PermissionError from error
    finally:
        await client.close()


def listed_by_aiokafka(port: int, mechanism: str, password: str) -> set[int]:
    """As `listed_by_librdkafka`."""
    return asyncio.run(_listed_by_aiokafka(port, mechanism, password))


CLIENTS = (listed_by_librdkafka, listed_by_kafka_python, listed_by_aiokafka)
