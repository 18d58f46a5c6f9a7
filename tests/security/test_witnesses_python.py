"""confluent-kafka, aiokafka, kafka-python and kcat over TLS with every mechanism, each also with a rejected login."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from tests.jvm.process import run_java
from tests.security.witnesses import LOGINS, MTLS, OAUTH, SecuredBrokers, running_secured_brokers
from tests.support.eventually import eventually

pytestmark = [pytest.mark.slow]

VALUE = b"from alice"
TIMEOUT_S = 30.0
KCAT = shutil.which("kcat") or shutil.which("kafkacat")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    with running_secured_brokers(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.mark.parametrize("login", LOGINS)
def test_confluent_kafka(brokers: SecuredBrokers, login: str) -> None:
    config, topic = brokers.config(login, "confluent-kafka"), f"confluent-{login}"
    outcomes: list[Any] = []
    producer = Producer(config)
    producer.produce(topic, VALUE, on_delivery=lambda error, message: outcomes.append((error, message.value())))
    assert producer.flush(TIMEOUT_S) == 0
    assert outcomes == [(None, VALUE)]
    consumer = Consumer({**config, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, VALUE)

    errors: list[KafkaError] = []
    wrong = {**brokers.wrong_config(login, "confluent-kafka"), "error_cb": errors.append, "log_level": 0}
    rejected = Producer(wrong)
    expected = KafkaError._ALL_BROKERS_DOWN if login == MTLS else KafkaError._AUTHENTICATION
    eventually(lambda: rejected.poll(0.1), lambda _: expected in {error.code() for error in errors})
    with pytest.raises(KafkaException):
        rejected.list_topics(timeout=0.1)


async def _aiokafka(config: dict[str, Any], wrong: dict[str, Any], topic: str) -> None:
    producer = AIOKafkaProducer(**config)
    await producer.start()
    await producer.send_and_wait(topic, VALUE)
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest")
    await consumer.start()
    assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value == VALUE
    await consumer.stop()
    rejected = AIOKafkaProducer(**wrong)
    with pytest.raises(AiokafkaError):
        await rejected.start()
    await rejected.stop()


@pytest.mark.parametrize("login", LOGINS)
def test_aiokafka(brokers: SecuredBrokers, login: str) -> None:
    config, wrong = (make(login, "aiokafka") for make in (brokers.config, brokers.wrong_config))
    asyncio.run(_aiokafka(config, wrong, f"aiokafka-{login}"))


@pytest.mark.parametrize("login", LOGINS)
def test_kafka_python(brokers: SecuredBrokers, caplog: pytest.LogCaptureFixture, login: str) -> None:
    config, topic = brokers.config(login, "kafka-python"), f"kafka-python-{login}"
    producer = KafkaProducer(**config)
    assert producer.send(topic, VALUE).get(TIMEOUT_S).offset == 0
    producer.close()
    consumer = KafkaConsumer(topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=1000 * TIMEOUT_S)
    assert next(consumer).value == VALUE
    consumer.close()
    # With a version it connects when it is used, so that there is a producer that can be closed.
    wrong = brokers.wrong_config(login, "kafka-python")
    rejected = KafkaProducer(**wrong, api_version=(2, 8), max_block_ms=500)
    with pytest.raises(KafkaPythonError):
        rejected.send(topic, VALUE)
    rejected.close()
    # It drops the response with the error if it finds the connection closed at the same time.
    assert re.search("SaslAuthenticationFailed|CERTIFICATE_REQUIRED|socket disconnected", caplog.text)


def _kcat(folder: Path, config: Mapping[str, str], *arguments: str, check: bool = True) -> Any:
    """Run kcat with a file of properties: a command line shows passwords to every user."""
    assert KCAT is not None
    file = folder / "kcat.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    return run_java([KCAT, "-F", str(file), *arguments], stdin="from alice\n", timeout_s=TIMEOUT_S, check=check)


@pytest.mark.skipif(KCAT is None, reason="no kcat on this machine (install kcat)")
@pytest.mark.parametrize("login", [login for login in LOGINS if login != OAUTH])  # it has no function for tokens
def test_kcat(brokers: SecuredBrokers, tmp_path: Path, login: str) -> None:
    config, topic = brokers.config(login, "confluent-kafka"), f"kcat-{login}"
    _kcat(tmp_path, config, "-P", "-t", topic)
    read = _kcat(tmp_path, config, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    assert read.stdout == "from alice\n"
    wrong = brokers.wrong_config(login, "confluent-kafka")
    rejected = _kcat(tmp_path, wrong, "-L", "-m", "5", check=False)
    assert rejected.status == 1
    expected = "certificate required" if login == MTLS else "SASL authentication error"
    assert expected in rejected.stderr
