"""Login modules of listeners in a JAAS file, beside Kafka's JaasContext, and a broker that takes its users from one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import jpype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.config.types import ConfigError
from odradek.broker.security.jaas_file import JaasFile
from odradek.protocol.errors import ErrorCode
from odradek.protocol.sasl.plain import client_message
from tests.broker.wire import Client, running_broker
from tests.security.kafka_classes import KafkaClasses, attempt, java_map
from tests.security.sasl_broker import METADATA, authenticate, handshake, port

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECTIONS = ("KafkaServer", "sasl_plaintext.KafkaServer", "SASL_PLAINTEXT.KafkaServer", "KafkaClient")
options = st.dictionaries(st.sampled_from(("username", "password", "user_alice")), st.sampled_from("xyz"))
modules = st.lists(st.tuples(st.sampled_from((PLAIN, SCRAM)), options), min_size=1, max_size=3)


def kafka_opts(path: Path) -> str:
    return f"-Xmx1g {shlex.quote(f'-Djava.security.auth.login.config={path}')}"


def written(path: Path, sections: dict[str, list[tuple[str, dict[str, str]]]]) -> Path:
    """A JAAS file."""
    lines = []
    for section, entries in sections.items():
        lines.append(f"{section} {{")
        for name, values in entries:
            texts = [f'{key}="{text}"' for key, text in values.items()]
            lines.append(f"  {name} required {' '.join(texts)};")
        lines.append("};")
    path.write_text("\n".join(lines))
    return path


@pytest.mark.jvm
@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(SECTIONS), modules))
def test_the_options_of_a_listener_are_those_that_kafka_finds(
    classes: KafkaClasses, tmp_path_factory: pytest.TempPathFactory, sections: dict[str, Any]
) -> None:
    path = written(tmp_path_factory.mktemp("jaas") / "jaas.conf", sections)
    system, configuration = jpype.JClass("java.lang.System"), jpype.JClass("javax.security.auth.login.Configuration")
    context = classes.common("security.JaasContext")
    system.setProperty("java.security.auth.login.config", str(path))
    try:
        configuration.setConfiguration(None)  # read the file again
        listener = classes.common("network.ListenerName")("SASL_PLAINTEXT")
        found = attempt(context.loadServerContext, listener, "PLAIN", java_map({}))
        ours = JaasFile(kafka_opts(path)).server_options("SASL_PLAINTEXT", "PlainLoginModule")
        if found.error is not None:
            assert (found.error, ours) == ("IllegalArgumentException", None)
            return
        for name in ("username", "password", "user_alice", "user_bob"):
            value = context.configEntryOption(found.value.configurationEntries(), name, PLAIN)
            assert (ours or {}).get(name) == (None if value is None else str(value))
    finally:
        system.clearProperty("java.security.auth.login.config")
        configuration.setConfiguration(None)


PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.mark.parametrize(
    ("sections", "others", "password"),
    [
        ({"KafkaServer": "global"}, {}, "global"),
        ({"KafkaServer": "global", "sasl_plaintext.KafkaServer": "own"}, {}, "own"),
        (
            {"KafkaServer": "global"},
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'a.B required user_alice="of-the-property";'},
            "of-the-property",
        ),
    ],
)
async def test_the_users_of_a_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, str], others: dict[str, str], password: str
) -> None:
    entries = {name: [(SCRAM, {}), (PLAIN, {"user_alice": text})] for name, text in sections.items()}
    monkeypatch.setenv("KAFKA_OPTS", kafka_opts(written(tmp_path / "jaas.conf", entries)))
    async with running_broker(tmp_path / "data", PROPERTIES | others) as broker:
        for tried in ("global", "own", "of-the-property"):
            client = await Client.connect(port(broker, "SASL_PLAINTEXT"))
            await handshake(client)
            answer = await authenticate(client, client_message("alice", tried))
            assert (answer.error_code == ErrorCode.NONE) == (tried == password)
            client.close()


@pytest.mark.parametrize("text", [None, "KafkaServer { x-secret", "KafkaServer { };", "KafkaClient { a.B required; };"])
async def test_a_start_without_users_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    path = tmp_path / "jaas.conf"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("KAFKA_OPTS", kafka_opts(path))
    with pytest.raises(ConfigError, match="JAAS file") as failed:
        async with running_broker(tmp_path / "data", PROPERTIES):
            pass
    assert "x-secret" not in failed.value.message


async def test_a_broker_without_sasl_does_not_read_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", kafka_opts(tmp_path / "nothing"))
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        assert (await client.ask(METADATA, 12)).brokers
        client.close()
