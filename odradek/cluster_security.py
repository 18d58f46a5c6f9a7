"""The security of a broker or cluster under test: certificates, users, ACLs and tokens, and client configurations.

    FOLDER/ca.pem, ca.key      the authority; FOLDER/broker-N.pem, USER.pem  its certificates
    FOLDER/USER.properties     a configuration for Kafka's tools

Brokers connect to each other through a listener of their own, PEERS, with certificates on both sides, for every kind of
client. Administration goes the same way, so that a test can change ACLs that lock its own users out.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from odradek.broker.security.state.acls import AclBinding, AclPermissionType
from odradek.certificates import CertificateAuthority
from odradek.client_configs import OAUTH, ClientLogin, client_config, jaas_text, properties_text
from odradek.cluster_links import LinkTls
from odradek.ready_process import HOST, BrokerError
from odradek.security import Security, everything
from odradek.security_admin import SecurityAdmin
from odradek.token_issuer import TokenIssuer
from odradek.wire import Wire

CLIENTS: Final = "CLIENTS"
PEERS: Final = "PEERS"
BROKER: Final = "odradek-broker"
ADMIN: Final = "odradek-admin"
HOSTS: Final = ("localhost", HOST)
OWNER_ONLY: Final = 0o600
_JAAS_OPTIONS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    OAUTH: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
_NAME_RULES: Final = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
"""The principal of a certificate is User: and its common name."""


class SecuredBroker(Protocol):
    """A running broker of the cluster."""

    @property
    def port(self) -> int:
        """The port for clients."""

    @property
    def peers_port(self) -> int:
        """The port for other brokers."""


class ClusterSecurity:
    """Certificates, users and tokens of a cluster whose files are in `folder`."""

    def __init__(self, folder: Path, security: Security | str, timeout_s: float) -> None:
        """`timeout_s` bounds every wait for the brokers."""
        self.security: Security = Security(security) if isinstance(security, str) else security
        self._folder = folder
        self._timeout_s = timeout_s
        self._authority = CertificateAuthority.create()
        self._brokers: set[int] = set()
        self._is_prepared = False
        self._issuer: TokenIssuer | None = None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._authorities = folder / "ca.pem"
        self._authorities.write_bytes(self._authority.pem)
        self._issue(ADMIN)
        if OAUTH in self.security.mechanisms:
            self._issuer = TokenIssuer()
            self._issuer.__enter__()

    # For brokers

    def listeners(self, port: int, peers_port: int, advertised_peers_port: int | None = None) -> dict[str, str]:
        """The properties of a broker's listeners: one for clients, one for other brokers."""
        clients = f"{CLIENTS}://{HOST}:{port}"
        return {
            "listeners": f"{clients},{PEERS}://{HOST}:{peers_port}",
            "advertised.listeners": f"{clients},{PEERS}://{HOST}:{advertised_peers_port or peers_port}",
            "listener.security.protocol.map": f"{CLIENTS}:{self.security.protocol},{PEERS}:SSL",
            "inter.broker.listener.name": PEERS,
        }

    def broker_properties(self, broker_id: int) -> dict[str, str]:
        """The other properties of a broker. Its certificate is made at the first call."""
        self._brokers.add(broker_id)
        keystore = self._folder / f"broker-{broker_id}.pem"
        if not keystore.exists():
            self._issue(BROKER, keystore.stem, HOSTS)
        clients = f"listener.name.{CLIENTS.lower()}."
        properties = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authorities),
            "ssl.principal.mapping.rules": _NAME_RULES,
            f"listener.name.{PEERS.lower()}.ssl.client.auth": "required",
            f"{clients}ssl.client.auth": "required" if self.security.requires_certificate else "none",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER};User:{ADMIN}",
        }
        if self.security.mechanisms:
            properties["sasl.enabled.mechanisms"] = ",".join(self.security.mechanisms)
        if "PLAIN" in self.security.mechanisms:
            passwords = self.security.passwords.items()
            users = "".join(f" user_{name}={jaas_text(password)}" for name, password in passwords)
            properties[f"{clients}plain.sasl.jaas.config"] = f"{_JAAS_OPTIONS['PLAIN']} required{users};"
        if self._issuer is not None:
            oauth = f"{clients}{OAUTH.lower()}."
            properties |= {
                f"{oauth}sasl.jaas.config": f"{_JAAS_OPTIONS[OAUTH]} required;",
                f"{oauth}sasl.server.callback.handler.class": _OAUTH_HANDLER,
                "sasl.oauthbearer.jwks.endpoint.url": self._issuer.jwks_url,
                "sasl.oauthbearer.expected.issuer": self._issuer.url,
                "sasl.oauthbearer.expected.audience": self._issuer.audience,
                "org.apache.kafka.sasl.oauthbearer.allowed.urls": self._issuer.jwks_url,
            }
        return properties

    def link_tls(self) -> LinkTls:
        """The contexts of a relay between brokers: it has a certificate as theirs, and accepts no other."""
        if not (self._folder / f"{BROKER}.pem").exists():
            self._issue(BROKER, hosts=HOSTS)
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self._authorities))
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_cert_chain(self._folder / f"{BROKER}.pem")
        return LinkTls(server, self._context(BROKER))

    def prepare(self, brokers: Sequence[SecuredBroker]) -> None:
        """Create the users and ACLs, once. Raises BrokerError."""
        if self._is_prepared:
            return
        self._is_prepared = True
        admin = self._administer(brokers)
        clients = [partial(self.client_wire, broker.port) for broker in brokers]
        admin.create_scram_users(self.security.passwords, self.security.mechanisms, clients)
        admin.add_acls(self.security.rules)

    def admin(self, port: int) -> Wire:
        """A connection of a super user to a broker's port for its peers. Raises OSError."""
        return Wire(HOST, port, tls=self._context(ADMIN))

    def client_wire(self, port: int) -> Wire:
        """A connection to a broker's port for clients that has not authenticated by SASL. Raises OSError."""
        return Wire(HOST, port, tls=self._context(ADMIN) if self.security.has_tls else None)

    def close(self) -> None:
        """End the issuer of tokens."""
        if self._issuer is not None:
            self._issuer.__exit__()
            self._issuer = None

    # For tests

    @property
    def issuer(self) -> TokenIssuer:
        """The issuer of tokens. Raises BrokerError without "oauth"."""
        if self._issuer is None:
            raise BrokerError(f"security {self.security.kind!r} has no tokens; add oauth")
        return self._issuer

    def login(self, bootstrap: str, user: str, mechanism: str | None, token: str | None) -> ClientLogin:
        """The login of a user. Raises BrokerError for one that the cluster does not have."""
        security = self.security
        if user not in security.passwords:
            raise BrokerError(f"there is no user {user!r}; there are {', '.join(security.passwords)}")
        if mechanism is not None and mechanism not in security.mechanisms:
            raise BrokerError(f"SASL mechanism {mechanism!r} is not enabled; enabled: {', '.join(security.mechanisms)}")
        keystore = self._folder / f"{user}.pem" if security.requires_certificate else None
        if keystore is not None and not keystore.exists():
            self._issue(user)
        issuer = self._issuer
        return ClientLogin(
            bootstrap=bootstrap,
            protocol=security.protocol,
            user=user,
            password=security.passwords[user],
            authorities=self._authorities,
            keystore=keystore,
            mechanism=mechanism or next(iter(security.mechanisms), None),
            token=lambda: token if token is not None else self.issuer.token(user),
            token_url=issuer.token_url if issuer is not None else "",
        )

    def client_config(
        self, bootstrap: str, user: str, client: str, mechanism: str | None = None, token: str | None = None
    ) -> dict[str, Any]:
        """The configuration of a client for a user. Raises BrokerError, ValueError."""
        return client_config(self.login(bootstrap, user, mechanism, token), client)

    def client_properties(self, bootstrap: str, user: str, mechanism: str | None = None) -> Path:
        """A file for Kafka's tools (--command-config, --consumer.config), readable by its owner only."""
        return self.write(self._folder / f"{user}.properties", self.client_config(bootstrap, user, "java", mechanism))

    @staticmethod
    def write(path: Path, properties: dict[str, str]) -> Path:
        """Write a file of properties that its owner only can read: a command line shows them to every user."""
        _write(path, properties_text(properties).encode())
        return path

    def add_acls(self, brokers: Sequence[SecuredBroker], bindings: Iterable[AclBinding]) -> None:
        """Add ACLs, and wait until every broker applies them. Raises BrokerError."""
        self._administer(brokers).add_acls(bindings)

    def revoke(self, brokers: Sequence[SecuredBroker], user: str) -> None:
        """Deny a user everything, also on open connections, and remove SCRAM credentials. Raises BrokerError."""
        admin = self._administer(brokers)
        admin.add_acls(everything(user, AclPermissionType.DENY))
        admin.remove_scram_users([user], self.security.mechanisms)

    def rotate_certificates(self, brokers: Sequence[SecuredBroker]) -> None:
        """Replace the certificates of all brokers, and wait until these serve the new ones. Raises BrokerError."""
        served = {self._issue(BROKER, f"broker-{broker_id}", HOSTS) for broker_id in sorted(self._brokers)}
        admin = self._administer(brokers)
        for broker in brokers:
            admin.await_that(partial(self._serves_one_of, broker.peers_port, served), f"a new certificate of {broker}")

    # Internals

    def _administer(self, brokers: Sequence[SecuredBroker]) -> SecurityAdmin:
        return SecurityAdmin([partial(self.admin, broker.peers_port) for broker in brokers], self._timeout_s)

    def _context(self, file: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._authorities))
        context.load_cert_chain(self._folder / f"{file}.pem")
        return context

    def _issue(self, common_name: str, file: str = "", hosts: Sequence[str] = ()) -> bytes:
        """Write a key store; returns the certificate as DER."""
        certificate = self._authority.issue(common_name, hosts)
        _write(self._folder / f"{file or common_name}.pem", certificate.keystore_pem)
        return ssl.PEM_cert_to_DER_cert(certificate.certificate_pem.decode())

    def _serves_one_of(self, port: int, certificates: set[bytes]) -> bool:
        try:
            with self.admin(port) as wire:
                return wire.peer_certificate in certificates
        except OSError:
            return False


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
