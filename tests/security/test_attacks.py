"""Attacks on a broker with SASL that earlier brokers allowed, each over the wire or on the code of all of them.

Attacks on single parts stand beside these: SCRAM's nonce in test_scram.py (CVE-2024-56128), the removal of ACLs in
test_authorizer.py and test_acl_store.py (CVE-2024-27309), tokens in test_jwt.py and test_sasl_oauth.py (CVE-2026-33557,
CVE-2026-110985), frames in test_sasl_connections.py (CVE-2022-34917) and test_attacks_before_authentication.py
(CVE-2026-111115).
"""

from __future__ import annotations

import ast
import logging
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.types import ConfigError, Type
from odradek.broker.security import sasl_client
from odradek.broker.security.sasl_oauth import ALLOWED_FILES, ALLOWED_URLS, require_allowed
from odradek.broker.security.state import delegation_tokens
from odradek.broker.security.state.delegation_tokens import token_password
from odradek.broker.server import Broker
from odradek.broker_process import BrokerProcess
from odradek.certificates import make_certificates
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.sasl.plain import client_message
from odradek.protocol.sasl.scram import ScramClient, salted_password
from odradek.protocol.sasl.scram_credentials import (
    MECHANISMS,
    MOST_ITERATIONS,
    UserScramCredentialUpsertion,
    text,
)
from odradek.registry_login import ensure_jaas_file
from odradek.security import Security
from tests.broker.wire import Client, running_broker
from tests.security.secret_scan import SecretScan

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "alice-in-attacks"
TOKEN_KEY = "the-key-of-tokens-in-attacks"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    JAAS: f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_bob="bob-in-attacks";',
    "delegation.token.secret.key": TOKEN_KEY,
    "connection.failed.authentication.delay.ms": "1",
    "connections.max.reauth.ms": "60000",
}
BROKER = 4
SHA_256 = MECHANISMS[1]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, PROPERTIES) as running:
        yield running


async def _connect(broker: Broker, listener: str = "SASL_PLAINTEXT") -> Client:
    endpoint = broker.running.metadata_cache.brokers[0].endpoint(listener)
    assert endpoint is not None
    return await Client.connect(endpoint.port)


async def _send_token(client: Client, token: bytes) -> m.SaslAuthenticateResponse:
    answer: m.SaslAuthenticateResponse = await client.ask(m.SaslAuthenticateRequest(auth_bytes=token), 2)
    return answer


async def _log_in(client: Client, user: str, password: str) -> m.SaslAuthenticateResponse:
    """By SASL/PLAIN."""
    assert (await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
    return await _send_token(client, client_message(user, password))


async def _log_in_with_token(client: Client, user: str, password: str) -> m.SaslAuthenticateResponse:
    assert (await client.ask(m.SaslHandshakeRequest(mechanism=SHA_256.name), 1)).error_code == 0
    exchange = ScramClient(SHA_256, user, "nonce-of-the-client", token_authenticated=True)
    challenge = exchange.receive_first((await _send_token(client, exchange.first_message())).auth_bytes)
    salted = salted_password(SHA_256, password, challenge.salt, challenge.iterations)
    return await _send_token(client, exchange.final_message(salted))


async def _alter(client: Client, name: str, value: str, broker_id: str = "0") -> Any:
    """The answer to a dynamic change of a broker's property."""
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER,
        resource_name=broker_id,
        configs=[m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)],
    )
    answer = await client.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return answer.responses[0]


# ---- hashing


async def test_cve_2026_10143_iteration_counts_are_bounded(broker: Broker) -> None:
    """A user with one right would set a count that keeps each client of another user busy for minutes, or a low one
    with which a stolen credential is soon guessed.
    """
    client = await _connect(broker, "PLAINTEXT")
    for iterations in (-1, 0, 1, 4095, MOST_ITERATIONS + 1, 2**31 - 1):
        for mechanism in (1, 2):
            upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name="alice", mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"x" * 32
            )
            answer = await client.ask(m.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
            assert answer.results[0].error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    client.close()


async def test_cve_2026_10143_passwords_are_hashed_outside_of_the_event_loop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hashes on the event loop, clients that create tokens would delay all others."""
    threads: list[int] = []

    def recorded(*arguments: Any) -> bytes:
        threads.append(threading.get_ident())
        return salted_password(*arguments)

    monkeypatch.setattr(delegation_tokens, "salted_password", recorded)
    client = await _connect(broker)
    assert (await _log_in(client, "alice", PASSWORD)).error_code == 0
    answer = await client.ask(m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert answer.error_code == 0
    client.close()
    assert len(threads) == len(MECHANISMS)
    assert threading.get_ident() not in threads


def test_cve_2026_10143_no_other_code_hashes_passwords() -> None:
    """The test above covers the only two places of a broker: `delegation_tokens`, and the clients of `sasl_client`."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("broker", "protocol", "storage")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"pbkdf2|scrypt|bcrypt|salted_password\(", path.read_text())
    }
    assert found == {
        "broker/config/password_encoder.py",  # its iterations are the operator's (password.encoder.iterations)
        "broker/security/state/delegation_tokens.py",
        "protocol/client/login.py",  # commands and stream threads, which block anyway
        "protocol/sasl/scram.py",
    }
    assert "run_in_executor(None, salted_password" in Path(sasl_client.__file__).read_text()


# ---- comparisons

_SECRET_NAME = re.compile(
    r"(?:.*_)?(?:password|passwd|secret|hmac|mac|nonce|proof|signature|digest|stored_key|server_key|client_key|salted)s?"
)
_PUBLIC = {
    "given.get('nonce') != self._nonce",  # of DIGEST-MD5: the server has sent its nonce to this client
    "self._salted[:2] != (salt, iterations)",  # the server's challenge
}


def _unsafe_comparisons(source: str) -> list[str]:
    """Comparisons of secrets whose time depends on the first byte that differs."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
            sides = [node.left, *node.comparators]
            if any(map(_is_secret, sides)) and not any(map(_is_empty, sides)):
                found.append(ast.unparse(node))
    return found


def _is_secret(side: ast.expr) -> bool:
    """Whether an expression is the value of a secret name: a call of `len` or of a test of it is not."""
    while isinstance(side, ast.Subscript | ast.Call):
        side = side.value if isinstance(side, ast.Subscript) else side.func
        if isinstance(side, ast.Attribute) and side.attr in ("encode", "decode", "hex", "digest", "hexdigest"):
            if side.attr in ("digest", "hexdigest"):
                return True
            side = side.value
    name = side.id if isinstance(side, ast.Name) else side.attr if isinstance(side, ast.Attribute) else ""
    return bool(_SECRET_NAME.fullmatch(name))


def _is_empty(side: ast.expr) -> bool:
    return isinstance(side, ast.Constant) and not side.value


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("password == expected", 1),
        ("given.nonce != self._nonce", 1),
        ("x == hmac.digest(key, data, 'sha1')", 1),
        ("hashlib.sha1(x).digest() == y", 1),
        ("expected == password.encode()", 1),
        ("credential.stored_key[:4] == key", 1),
        ("password == ''", 0),
        ("len(password) == 4", 0),
        ("hmac.compare_digest(password, expected)", 0),
        ("password is None", 0),
        ("mechanism == name", 0),
    ],
)
def test_the_search_for_comparisons_finds_them(source: str, count: int) -> None:
    assert len(_unsafe_comparisons(source)) == count


@pytest.mark.slow
def test_cve_2021_38153_secrets_are_compared_in_constant_time() -> None:
    """From the time of a comparison an attacker would learn a password or a proof byte by byte."""
    paths = [path for folder in ("broker", "odradek", "protocol") for path in (ROOT / folder).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): _unsafe_comparisons(path.read_text()) for path in paths}
    assert sum(map(len, found.values())) == len(_PUBLIC)
    assert {path: each for path, each in found.items() if not _PUBLIC.issuperset(each)} == {}


# ---- names of classes, modules, URLs and files


@pytest.fixture
def planted_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that can be imported."""
    name = "planted_by_an_attack"
    (tmp_path / f"{name}.py").write_text("class Planted:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    assert sys.modules.pop(name, None) is None, "the module was imported"


CLASS_NAMES = sorted(
    name for name, row in BROKER_PROPERTIES.items() if row.type is Type.CLASS or "class" in name or "report" in name
)


async def test_cve_2025_27818_no_class_of_a_property_is_loaded(tmp_path: Path, planted_module: str) -> None:
    """A user with the right to set a property would run code in the broker, as with Java's JndiLoginModule in Kafka.

    Properties that would select another behavior stop the start; the others have no effect.
    """
    planted = f"{planted_module}.Planted"
    properties = PROPERTIES | {JAAS: PROPERTIES[JAAS].replace(PLAIN_MODULE, planted)}
    refused: list[str] = []
    names = list(CLASS_NAMES)
    while True:
        own = dict.fromkeys(names, planted)
        own |= {f"listener.name.sasl_plaintext.plain.{name}": planted for name in names}
        error = await _start_error(tmp_path / f"{len(refused)}", properties | own)
        if error is None:
            break
        refused.append(next(name for name in names if name in error))
        names.remove(refused[-1])
    assert {"authorizer.class.name", "create.topic.policy.class.name"} <= set(refused)
    assert {"alter.config.policy.class.name", "sasl.server.callback.handler.class"} <= set(refused)
    assert len(names) >= 8


async def _start_error(folder: Path, properties: dict[str, str]) -> str | None:
    """Why a broker does not start; None if it does, and a user logs in."""
    try:
        async with running_broker(folder, properties) as broker:
            client = await _connect(broker)
            assert (await _log_in(client, "alice", PASSWORD)).error_code == 0
            client.close()
    except ConfigError as error:
        return str(error)
    return None


async def test_cve_2025_27818_no_class_of_a_client_is_loaded(broker: Broker, planted_module: str) -> None:
    """A client with the right to alter configurations would run code in the broker."""
    planted = f"{planted_module}.Planted"
    client = await _connect(broker, "PLAINTEXT")
    for name in CLASS_NAMES:
        for full in (name, f"listener.name.sasl_plaintext.plain.{name}"):
            await _alter(client, full, planted)
    jaas = f"{planted} required user_alice=x;"
    jndi = 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://127.0.0.1:1/x";'
    for each in (jaas, jndi):
        await _alter(client, JAAS, each)
    handshake = await client.ask(m.SaslHandshakeRequest(mechanism=planted), 1)
    assert handshake.error_code
    client.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:",
        "file://",
        "file:///",
        "file:///allowed/jwks.json.other",
        "file:///allowed/../allowed/jwks.json",
        "file:///allowed/%2e%2e/jwks.json",
        "http://issuer.example/jwks.other",
        "http://issuer.example/jwks?x=1",
        "http://issuer.example:80/jwks",
        "http://issuer.example@other.example/jwks",
        "https://issuer.example/jwks",
        "HTTP://other.example/jwks",
        "ftp://issuer.example/jwks",
        "jar:file:///allowed/jwks.json",
        "data:application/json,{}",
        "http://169.254.169.254/latest/meta-data",
    ],
)
@pytest.mark.parametrize(
    "lists",
    [{}, {ALLOWED_URLS: "http://issuer.example/jwks, ,", ALLOWED_FILES: "/allowed/jwks.json,"}],
    ids=["no-lists", "lists"],
)
def test_cve_2025_27817_only_listed_urls_and_files_are_read(lists: dict[str, str], url: str) -> None:
    """An attacker that sets a URL would read files of the broker and send requests from inside its network."""
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        require_allowed(url, "sasl.oauthbearer.jwks.endpoint.url", lists)


async def test_cve_2025_27817_clients_cannot_change_urls(broker: Broker) -> None:
    """The URLs and their lists are those of the broker's file, which a client would otherwise extend."""
    client = await _connect(broker, "PLAINTEXT")
    for name in (each for each in BROKER_PROPERTIES if each.endswith("endpoint.url")):
        for resource in ("0", ""):
            answer = await _alter(client, name, "file:///etc/passwd", resource)
            assert answer.error_code == ErrorCode.INVALID_REQUEST, name
    client.close()
    for name in (ALLOWED_URLS, ALLOWED_FILES):
        assert name not in BrokerConfig(PROPERTIES, {name: "/etc/passwd"}, {name: "/etc/passwd"}).static


# ---- principals


@pytest.mark.parametrize(("user", "password"), [("bob", "bob-in-attacks"), ("alice", "wrong-in-attacks")])
async def test_a_connection_cannot_become_another_principal(broker: Broker, user: str, password: str) -> None:
    """A client that proxies others would act with the rights of the first one."""
    client = await _connect(broker)
    assert (await _log_in(client, "alice", PASSWORD)).error_code == 0
    assert (await _log_in(client, user, password)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed()
    client.close()


# ---- secrets


async def test_secrets_are_in_no_log_at_any_level(
    broker: Broker, caplog: pytest.LogCaptureFixture, secret_scan: SecretScan
) -> None:
    """An attacker that reads logs, answers or metrics would log in (CVE-2019-12399's class)."""
    for name in ("odradek", "kafka", "asyncio"):
        caplog.set_level(logging.DEBUG, name)
    admin, client = await _connect(broker, "PLAINTEXT"), await _connect(broker)
    known = secret_scan.count
    wrong = "a-password-of-no-user"
    secret_scan.register(wrong, "a wrong password")
    for password in (PASSWORD, wrong):
        other = await _connect(broker)
        await _log_in(other, "alice", password)
        other.close()
    await _log_in(client, "alice", PASSWORD)
    token = await client.ask(m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert token.error_code == 0
    for password in (token_password(token.hmac), wrong):
        other = await _connect(broker)
        answer = await _log_in_with_token(other, token.token_id, password)
        assert (answer.error_code == 0) is (password != wrong)
        other.close()
    for hmac in (token.hmac, wrong.encode()):
        await client.ask(m.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2)
        await client.ask(m.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2)
    shown = [
        await _alter(admin, name, value)
        for name in (
            JAAS,
            "sasl.jaas.config",
            "ssl.keystore.password",
            "ssl.keystore.key",
            "delegation.token.secret.key",
        )
        for value in (
            wrong,
            f"{PLAIN_MODULE} required user_alice={wrong}",
            f'{PLAIN_MODULE} required user_a="{wrong}";',
        )
    ]
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=BROKER, resource_name="0")
    shown.append(await admin.ask(m.DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4))
    for each in shown:
        secret_scan.collect("an answer", repr(each))
    assert secret_scan.count > known
    assert "authentication failed" in caplog.text
    assert secret_scan.findings() == []
    admin.close()
    client.close()


@pytest.fixture
def open_umask() -> Iterator[None]:
    """New files have the modes that the code gives them."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.slow
async def test_files_with_credentials_are_readable_by_their_owner_only(open_umask: None, tmp_path: Path) -> None:
    """Another user of the machine would guess passwords without a trace, or read keys."""
    async with running_broker(tmp_path / "data", PROPERTIES) as broker:
        client = await _connect(broker, "PLAINTEXT")
        upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted" * 6
        )
        answer = await client.ask(m.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        assert answer.results[0].error_code == 0
        client.close()
    stored = text(UserScramCredentialUpsertion("alice", 1, 4096, b"salt", b"salted" * 6)).encode()
    make_certificates(tmp_path / "certificates", [["localhost"]], ["alice"], days=1, password="of-a-key-store")
    with BrokerProcess(tmp_path / "process", security=Security("tls+plain", users=["alice"])) as process:
        process.client_properties("alice")
        ensure_jaas_file(tmp_path / "cluster")
    found = _files_with(tmp_path, (stored, b"PRIVATE KEY", b"password="))
    assert len(found) >= 8
    assert [name for name in found if _is_open(tmp_path, name)] == []
    for folder in ("certificates", "process/security"):
        assert (tmp_path / folder).stat().st_mode & 0o077 == 0


def _files_with(folder: Path, secrets: Sequence[bytes]) -> set[str]:
    """The files that contain one of these secrets."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and any(secret in path.read_bytes() for secret in secrets)
    }


def _is_open(folder: Path, name: str) -> bool:
    """Whether other users can read a file: its mode and those of all folders above allow it."""
    path = folder / name
    above = [each for each in path.parents if each != folder and folder in each.parents]
    return all(each.stat().st_mode & 0o077 for each in (path, *above))


def test_secrets_are_in_no_representation() -> None:
    """A traceback with local variables, or a debugger's log, would show them."""
    config = BrokerConfig(PROPERTIES)
    for shown in (repr(config), str(config), repr(vars(type(config)))):
        assert PASSWORD not in shown
