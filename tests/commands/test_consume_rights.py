"""`odradek consume` on a broker with SASL and ACLs: reading a topic needs no right on a group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.security import Security, allow

pytestmark = pytest.mark.slow

ACLS = [allow("alice", topic="*", cluster=True), allow("bob", read="orders", describe="orders")]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    security = Security("scram", users=["alice", "bob"], acls=ACLS)
    with BrokerProcess(tmp_path_factory.mktemp("secured"), security=security) as running:
        producer = Producer(running.client_config("alice"))
        producer.produce("orders", b"for bob")
        assert producer.flush(30) == 0
        yield running


def consume(secured: BrokerProcess, folder: Path, *options: str) -> Result:
    config = {name: each for name, each in secured.client_config("bob").items() if name.startswith(("sasl.", "sec"))}
    properties = folder / "client.properties"
    properties.write_text("".join(f"{name}={each}\n" for name, each in config.items()))
    where = ("--bootstrap-server", secured.bootstrap, "--command-config", str(properties))
    return CliRunner().invoke(main, ["consume", "orders", "--exit", *where, *options])


def test_a_user_without_rights_on_groups_reads_a_topic(secured: BrokerProcess, tmp_path: Path) -> None:
    result = consume(secured, tmp_path)
    assert (result.exit_code, result.stdout) == (0, "for bob\n"), result.output


def test_a_group_that_the_user_may_not_join_is_an_error(secured: BrokerProcess, tmp_path: Path) -> None:
    result = consume(secured, tmp_path, "--group", "billing")
    assert result.exit_code != 0
    assert "GROUP_AUTHORIZATION_FAILED" in result.stderr
