"""The scan for secrets registers every kind of secret, and finds one in each place that it searches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.security import delegation_token_manager
from odradek.broker.security.state.jaas import JaasError
from odradek.broker_process import BrokerProcess
from odradek.certificates import CertificateAuthority
from odradek.protocol.sasl.scram_credentials import ScramCredential
from odradek.security import Security
from odradek.token_issuer import SigningKey
from tests.security.secret_scan import SecretScan, scanning

PLANTED = "planted-by-a-test-of-the-scan"
"""Shown in every place; only `scan` registers it."""
USED = "used-by-a-test-of-the-scan"
"""Shown nowhere."""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def scan() -> Iterator[SecretScan]:
    """A scan of its own. That of all tests collects the same texts, but PLANTED is no secret there."""
    with scanning(SecretScan()) as found:
        yield found


def _log_a_traceback() -> None:
    try:
        raise ValueError(PLANTED)
    except ValueError:
        logging.getLogger("odradek").exception("a traceback")


def _raise_a_config_error() -> None:
    with pytest.raises(ConfigError):
        BrokerConfig({"listeners": PLANTED})


def _raise_a_jaas_error() -> None:
    JaasError(PLANTED)


def _describe() -> None:
    BrokerConfig({"sasl.jaas.config": f'{PLAIN} required user_a="abcdefgh";', "log.dirs": PLANTED})


@pytest.mark.parametrize(
    ("plant", "place"),
    [
        (_log_a_traceback, "the log"),
        (_raise_a_config_error, "a message of ConfigError"),
        (_raise_a_jaas_error, "a message of JaasError"),
        (_describe, "the description of a configuration"),
    ],
)
def test_a_planted_secret_is_found(scan: SecretScan, plant: Callable[[], None], place: str) -> None:
    scan.register(PLANTED, "a password")
    assert scan.findings() == []
    plant()
    assert scan.findings() == [f"{place} shows a password"]


@pytest.mark.slow
def test_a_secret_that_a_process_shows_is_found(scan: SecretScan, tmp_path: Path) -> None:
    scan.register(PLANTED, "a password")
    with BrokerProcess(tmp_path / PLANTED, security="plain") as broker, broker.log_path.open("a") as log:
        log.write(PLANTED)
    shown = {each.partition(" shows ")[0] for each in scan.findings()}
    assert shown == {"a DescribeConfigs answer", "a command line", "a metrics page", "the log of a process"}


def _configure_users() -> None:
    BrokerConfig({"listener.name.a.plain.sasl.jaas.config": f'{PLAIN} required user_a="{USED}";'})


def _configure_a_wrong_password() -> None:
    with pytest.raises(ConfigError):
        BrokerConfig({"ssl.keystore.password": USED, "listeners": "nowhere"})


def _configure_a_key() -> None:
    BrokerConfig({"ssl.keystore.key": CertificateAuthority.create().issue(USED).key_pem.decode()})


def _make_users() -> None:
    Security("plain", users={"alice": USED})


def _sign_a_token() -> None:
    SigningKey("key").sign(b"header.claims")


def _make_a_credential() -> None:
    ScramCredential(b"salt", b"0123456789", b"9876543210", 4096).encode()


def _make_a_token() -> None:
    vars(delegation_token_manager)["token_hmac"]("secret key", "id")


@pytest.mark.parametrize(
    "use",
    [
        _configure_users,
        _configure_a_wrong_password,
        _configure_a_key,
        _make_users,
        _sign_a_token,
        _make_a_credential,
        _make_a_token,
    ],
)
def test_secrets_register_themselves(scan: SecretScan, use: Callable[[], None]) -> None:
    assert scan.count == 0
    use()
    assert scan.count > 0
