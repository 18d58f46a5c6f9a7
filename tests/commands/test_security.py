"""`odradek acl`, `user`, `quota` and `token`: their answers equal those of kafka-acls, kafka-configs and
kafka-delegation-tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from odradek.commands.output import time_text
from odradek.security import Security
from tests.commands.running import Acl, Running, SecuredRunning, stock_acls
from tests.security.token_broker import TokenBroker
from tests.security.token_requests import rows_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def ours(rows: list[dict[str, Any]]) -> set[Acl]:
    keys = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
    return {tuple(row[key] for key in keys) for row in rows}


PREFIXED = ("--resource-pattern-type", "prefixed")
CHANGES: tuple[tuple[str, ...], ...] = (
    ("--allow-principal", "User:alice", "--operation", "Read", "--operation", "describe-configs", "--topic", "{}"),
    ("--deny-principal", "User:bob", "--deny-host", "192.0.2.7", "--group", "{}", "--topic", "{}-other"),
    ("--allow-principal", "User:carol", "--producer", "--idempotent", "--topic", "{}", "--transactional-id", "{}-t"),
    ("--allow-principal", "User:dan", "--consumer", "--topic", "{}", "--group", "{}-g", *PREFIXED),
    ("--allow-principal", "User:eve", "--operation", "Create", "--cluster"),
)


def test_acls_are_those_of_the_stock_tool(authorized_side: Running, name: str) -> None:
    """The same options make the same ACLs: what one tool adds the other removes."""
    side = authorized_side
    before = stock_acls(side)
    for change in CHANGES:
        options = [each.format(name) for each in change]
        added = ours(side.data("acl", "add", *options))
        assert stock_acls(side) - before == added, change
        assert ours(side.data("acl", "list")) == stock_acls(side)
        assert ours(side.data("acl", "remove", *options, "--dry-run")) == added
        side.stock("kafka-acls", "--remove", "--force", *_of_stock(options))
        assert stock_acls(side) == before, change
        side.stock("kafka-acls", "--add", *_of_stock(options))
        assert stock_acls(side) - before == added, change
        assert ours(side.data("acl", "remove", *options, "--yes")) == added
    assert stock_acls(side) == before

    side.done("acl", "add", "--allow-principal", "User:alice", "--topic", name, "--operation", "read")
    side.done("acl", "add", "--allow-principal", "User:bob", "--topic", name[:9], "--resource-pattern-type", "prefixed")
    for query in (
        ("--topic", name),
        ("--topic", name, "--resource-pattern-type", "match"),
        ("--topic", name, "--principal", "User:alice", "--resource-pattern-type", "match"),
    ):
        stock = query if "--resource-pattern-type" in query else (*query, "--resource-pattern-type", "any")
        assert ours(side.data("acl", "list", *query)) == stock_acls(side, *stock), query
    result = side.run("acl", "remove", "--all", "--topic", name, stdin="y\n")
    assert result.exit_code == 0
    assert f"remove ALLOW READ on TOPIC {name} (LITERAL) for User:alice from *\n" in result.stderr
    side.done("acl", "remove", "--all", "--topic", name[:9], "--resource-pattern-type", "prefixed", "--yes")
    assert stock_acls(side) == before


def _of_stock(options: list[str]) -> list[str]:
    """kafka-acls names operations as `DescribeConfigs`."""
    return ["DescribeConfigs" if each == "describe-configs" else each for each in options]


def test_without_an_authorizer_acls_are_rejected(side: Running) -> None:
    status, text = side.failure("acl", "list")
    assert (status, text.endswith("(SECURITY_DISABLED)\n")) == (1, True)
    for arguments in (
        ("add", "--topic", "x"),
        ("add", "--allow-principal", "User:a"),
        ("add", "--allow-principal", "User:a", "--producer", "--operation", "read", "--topic", "x"),
        ("add", "--allow-principal", "User:a", "--operation", "fly", "--topic", "x"),
        ("remove", "--all"),
    ):
        assert side.failure("acl", *arguments)[0] == 2


def test_users_are_set_and_deleted(side: Running, name: str) -> None:
    mechanisms = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    side.done("user", "set", name, *mechanisms, "--iterations", "8192", "--password-stdin", stdin="secret\n")
    described = side.stock("kafka-configs", "--describe", "--entity-type", "users", "--entity-name", name)
    (user,) = side.data("user", "list", name)
    assert user == {"user": name, "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}}
    for mechanism, iterations in user["mechanisms"].items():
        assert f"{mechanism}=iterations={iterations}" in described
    assert user in side.data("user", "list")
    side.done("user", "delete", name, "--mechanism", "SCRAM-SHA-256", "--yes")
    assert side.data("user", "list", name) == [{"user": name, "mechanisms": {"SCRAM-SHA-512": 8192}}]
    side.done("user", "delete", name, stdin="y\n")
    assert side.failure("user", "list", name)[0] == 3
    assert side.failure("user", "delete", name, "--yes")[0] == 3
    assert side.failure("user", "set", name, "--password-stdin", stdin="\n")[0] == 2


QUOTA = re.compile(r"([\w.]+)=([\d.E]+)")


def test_quotas_are_those_of_kafka_configs(side: Running, name: str) -> None:
    rates = ("producer_byte_rate=1024", "consumer_byte_rate=2048")
    for ours_named, stock_named in (
        (("--user", name), ("--entity-type", "users", "--entity-name", name)),
        (("--client-id", name), ("--entity-type", "clients", "--entity-name", name)),
        (
            ("--user", name, "--client-id", "default"),
            ("--entity-type", "users", "--entity-name", name, "--entity-type", "clients", "--entity-default"),
        ),
    ):
        (row,) = side.data("quota", "set", *rates, *ours_named)
        assert row["quotas"] == {"producer_byte_rate": 1024, "consumer_byte_rate": 2048}
        stock = side.stock("kafka-configs", "--describe", *stock_named)
        assert {key: float(value) for key, value in QUOTA.findall(stock)} == row["quotas"]
        assert row in side.data("quota", "list")
        assert row in side.data("quota", "list", *ours_named)
        (after,) = side.data("quota", "unset", "consumer_byte_rate", *ours_named)
        assert after["quotas"] == {"producer_byte_rate": 1024}
        side.done("quota", "unset", "producer_byte_rate", *ours_named)
    address = ("--ip", "192.0.2.7")
    side.done("quota", "set", "connection_creation_rate=5", *address)
    stock = side.stock("kafka-configs", "--describe", "--entity-type", "ips", "--entity-name", "192.0.2.7")
    assert "connection_creation_rate=5.0" in stock
    side.done("quota", "unset", "connection_creation_rate", *address)
    assert not [row for row in side.data("quota", "list") if row["ip"] or row["user"] == name]
    side.done("quota", "set", "producer_byte_rate=1", "--user", name, "--dry-run")
    assert not [row for row in side.data("quota", "list") if row["user"] == name]
    assert side.failure("quota", "set", "no_such_rate=1", "--user", name)[0] == 1
    assert side.failure("quota", "set", "producer_byte_rate=1")[0] == 2
    assert side.failure("quota", "set", "producer_byte_rate=1", "--user", name, *address)[0] == 2


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    properties = {"delegation.token.secret.key": "secret", "connection.failed.authentication.delay.ms": "10"}
    folder = tmp_path_factory.mktemp("secured")
    with BrokerProcess(
        folder, properties, security=Security("tls+scram+plain", users={"alice": "a", "bob": "b"})
    ) as it:
        yield it


@pytest.fixture(scope="module")
def token_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    made = TokenBroker(tmp_path_factory.mktemp("kafka-with-tokens"))
    made.kafka.start()
    yield made
    made.kafka.close()


@pytest.fixture(params=["odradek", "kafka"])
def with_tokens(request: pytest.FixtureRequest, secured: BrokerProcess, token_broker: TokenBroker) -> SecuredRunning:
    if request.param == "odradek":
        return SecuredRunning(secured.bootstrap, secured.client_properties("alice"))
    _, bootstrap, _, path = token_broker.clients.user("alice")
    return SecuredRunning(bootstrap, Path(path))


def stock_tokens(side: SecuredRunning) -> dict[str, tuple[str, ...]]:
    rows = rows_of(side.stock("kafka-delegation-tokens", "--describe", "--owner-principal", "User:alice"))
    keys = ("HMAC", "OWNER", "REQUESTER", "RENEWERS")
    return {row["TOKENID"]: tuple(row[key] for key in keys) for row in rows}


def our_tokens(rows: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    return {
        row["token_id"]: (row["hmac"], row["owner"], row["requester"], f"[{','.join(row['renewers'])}]") for row in rows
    }


def test_tokens_are_created_renewed_and_expired(with_tokens: SecuredRunning) -> None:
    side = with_tokens
    (made,) = side.data("token", "create", "--renewer", "User:bob", "--max-life", "2h")
    assert (made["owner"], made["renewers"], made["max_ms"] - made["issue_ms"]) == (
        "User:alice",
        ["User:bob"],
        7_200_000,
    )
    assert our_tokens(side.data("token", "list")) == stock_tokens(side)
    assert our_tokens(side.data("token", "list", "--owner", "User:alice")) == stock_tokens(side)
    renewed = side.data("token", "renew", made["hmac"], "--period", "30m")["expiry_ms"]
    (listed,) = [row for row in side.data("token", "list") if row["token_id"] == made["token_id"]]
    assert listed["expiry_ms"] == renewed
    assert time_text(renewed) in side.done("token", "list")
    side.done("token", "expire", made["hmac"], stdin="y\n")
    assert made["token_id"] not in our_tokens(side.data("token", "list"))
    status, text = side.failure("token", "renew", made["hmac"])
    assert (status, text) == (3, "odradek: the token does not exist (DELEGATION_TOKEN_NOT_FOUND)\n")
    assert side.failure("token", "renew", "no base64!")[0] == 2


def test_a_connection_without_a_login_has_no_tokens(side: Running) -> None:
    status, text = side.failure("token", "list")
    assert status == 1
    assert "(DELEGATION_TOKEN_" in text


def test_a_command_logs_in_with_a_token(secured: BrokerProcess, tmp_path: Path) -> None:
    """Java's `tokenauth`, and the same in librdkafka's names."""
    login = SecuredRunning(secured.bootstrap, secured.client_properties("alice"))
    (made,) = login.data("token", "create")
    java = login.properties.read_text().splitlines()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="{made["token_id"]}" password="{made["hmac"]}" tokenauth="true";'
    path = tmp_path / "token.properties"
    kept = [line for line in java if not line.startswith(("sasl.jaas.config", "sasl.mechanism"))]
    path.write_text("\n".join([*kept, "sasl.mechanism=SCRAM-SHA-256", f"sasl.jaas.config={jaas}"]))
    by_token = SecuredRunning(secured.bootstrap, path)
    assert by_token.data("broker", "list") == login.data("broker", "list")
    assert by_token.failure("token", "create")[1].endswith("(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)\n")


def test_properties_of_both_kinds_of_clients(secured: BrokerProcess, tmp_path: Path) -> None:
    config = secured.client_config("alice")
    librdkafka = tmp_path / "librdkafka.properties"
    librdkafka.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        java = secured.client_properties("alice", mechanism=mechanism)
        assert SecuredRunning(secured.bootstrap, java).data("broker", "list")[0]["broker"] == 0
    assert SecuredRunning(secured.bootstrap, librdkafka).data("broker", "list")[0]["broker"] == 0
    SecuredRunning(secured.bootstrap, librdkafka).done("topic", "create", "secured")
    for number, path in enumerate((secured.client_properties("alice"), librdkafka)):
        side = SecuredRunning(secured.bootstrap, path)
        side.done("produce", "secured", stdin=f"{number}\n")
        assert side.done("consume", "secured", "--tail", "1", "--exit") == f"{number}\n"
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(librdkafka.read_text().replace(f"sasl.password={config['sasl.password']}", "sasl.password=guess"))
    status, text = SecuredRunning(secured.bootstrap, wrong).failure("topic", "list")
    assert status == 4
    assert text.startswith(f"odradek: SASL/{config['sasl.mechanism']} with {secured.bootstrap} failed: ")
    assert "guess" not in text
    wrong.write_text("security.protocol=SSL\nssl.keystore.location=/none\nssl.keystore.type=PEM\n")
    assert SecuredRunning(secured.bootstrap, wrong).failure("topic", "list")[0] == 2
