"""Two secured brokers for the clients of other libraries, and the logins with which each of them connects.

`BROKERS` offer every mechanism over TLS, and client certificates; a login is the configuration of one client for
"alice", or one that a broker has to reject: a wrong password, a token for another audience, no certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.broker_process import BrokerProcess
from odradek.security import Security

USER: Final = "alice"
PASSWORD: Final = "alice-secret"
WRONG_PASSWORD: Final = "mallory-guess"
MTLS: Final = "mTLS"
OAUTH: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTH)
LOGINS: Final = (*MECHANISMS, MTLS)
PROPERTIES: Final = {
    "connection.failed.authentication.delay.ms": "10",
    "offsets.topic.num.partitions": "1",
    "delegation.token.secret.key": "tokens-secret",
}
_CERTIFICATE_KEYS: Final = (
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.keystore.type",
)


class SecuredBrokers(NamedTuple):
    """A broker with SASL_SSL, and one with SSL and client certificates."""

    sasl: BrokerProcess
    certificates: BrokerProcess

    def of(self, login: str) -> BrokerProcess:
        """The broker that has this login."""
        return self.certificates if login == MTLS else self.sasl

    def authorities(self, login: str) -> Path:
        """The file of the authority that the broker's certificate comes from."""
        return Path(self.of(login).client_config(USER, mechanism=None)["ssl.ca.location"])

    def config(self, login: str, client: str) -> dict[str, Any]:
        """The configuration of a client that the broker accepts."""
        return self.of(login).client_config(USER, client, mechanism=None if login == MTLS else login)

    def wrong_config(self, login: str, client: str) -> dict[str, Any]:
        """The configuration of a client that the broker rejects."""
        if login == OAUTH:
            token = self.sasl.issuer.token(USER, aud="another-service")
            return self.sasl.client_config(USER, client, mechanism=login, token=token)
        found = self.config(login, client)
        if login == MTLS:
            found = {key: value for key, value in found.items() if key not in _CERTIFICATE_KEYS}
            if "ssl_context" in found:
                found["ssl_context"] = ssl.create_default_context(cafile=str(self.authorities(login)))
            return found
        return {
            key: value.replace(PASSWORD, WRONG_PASSWORD) if isinstance(value, str) else value
            for key, value in found.items()
        }


@contextmanager
def running_secured_brokers(folder: Path) -> Iterator[SecuredBrokers]:
    """Both brokers, while the block runs."""
    users = {USER: PASSWORD}
    sasl = Security("tls+plain+scram+oauth", users=users)
    with (
        BrokerProcess(folder / "sasl", PROPERTIES, security=sasl) as first,
        BrokerProcess(folder / "mtls", PROPERTIES, security=Security("mtls", users=users)) as second,
    ):
        yield SecuredBrokers(first, second)
