"""SCRAM users from before the first start: `odradek scram`, and Kafka's tool of 2.8 in the metadata store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.cluster_process import RegistryProcess
from tests.jvm.tools import run_tool
from tests.security.sasl_clients import PASSWORD, listed_by_librdkafka

PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="alice-secret";'
    ),
}


def scram(*arguments: str, password: str | None = PASSWORD) -> Result:
    """Run `odradek scram`, with the password on standard input."""
    return CliRunner().invoke(main, ["scram", *arguments], input=password)


def test_a_broker_finds_the_users_that_the_command_has_created(tmp_path: Path) -> None:
    data = f"log.dirs={tmp_path / 'data'}"
    for user in ("alice", "bob"):
        added = scram("add", "--override", data, "--user", user, "--password-file", "-")
        assert (added.exit_code, added.stdout) == (0, f"{user} has a credential for SCRAM-SHA-512\n"), added.output
    assert scram("delete", "--override", data, "--user", "bob").exit_code == 0
    missing = scram("delete", "--override", data, "--user", "bob")
    assert (missing.exit_code, missing.stderr) == (1, "Error: user 'bob' has no credential of SCRAM-SHA-512\n")
    with BrokerProcess(tmp_path, PROPERTIES) as broker:
        assert listed_by_librdkafka(broker.port, "SCRAM-SHA-512", PASSWORD) == {0}
        used = scram("add", "--override", data, "--user", "bob", "--password-file", "-")
        assert used.exit_code == 1
        assert "in another process or thread is using this directory" in used.stderr


def test_the_command_asks_for_the_password_twice_and_hides_it(tmp_path: Path) -> None:
    options = ("--override", f"log.dirs={tmp_path}", "--user", "alice")
    asked = scram("add", *options, password=f"{PASSWORD}\n{PASSWORD}\n")
    assert asked.exit_code == 0
    assert PASSWORD not in asked.output
    assert scram("add", *options, password=f"{PASSWORD}\nanother\n").exit_code != 0
    assert scram("add", *options, "--password-file", "-", password="\n").exit_code == 2
    assert scram("add", *options, "--iterations", "4095").exit_code == 2
    assert scram("add", "--override", "no value", "--user", "alice", "--password-file", "-").exit_code == 1


@contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """The address of a registry in a process of its own."""
    process = RegistryProcess(folder, tick_ms=1000)
    process.start()
    try:
        yield f"127.0.0.1:{process.port}"
    finally:
        process.close()


@pytest.mark.jvm
@pytest.mark.slow
def test_users_that_kafka_configs_has_created_in_the_metadata_store(tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as registry:
        run_tool(
            "2.8.2",
            "kafka-configs",
            [
                *("--zookeeper", registry, "--alter", "--entity-type", "users", "--entity-name", "alice"),
                *("--add-config", f"SCRAM-SHA-256=[password={PASSWORD}],SCRAM-SHA-512=[password={PASSWORD}]"),
            ],
        )
        with BrokerProcess(tmp_path, PROPERTIES | {"zookeeper.connect": registry}) as broker:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                assert listed_by_librdkafka(broker.port, mechanism, PASSWORD) == {0}
            options = ("--override", f"zookeeper.connect={registry}", "--mechanism", "SCRAM-SHA-256")
            changed = scram("add", *options, "--user", "alice", "--password-file", "-", password="another-secret")
            assert changed.exit_code == 0
