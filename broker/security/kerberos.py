"""Kerberos of a broker, by the package gssapi of `odradek[kerberos]` (Kafka: KerberosLogin; Java: Krb5LoginModule).

The JAAS options of Krb5LoginModule name the principal and its key table:

    com.sun.security.auth.module.Krb5LoginModule required
        useKeyTab=true storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";

The library reads krb5.conf, obtains tickets with the key table and replaces them when they expire, so there is no
thread that renews them. Calls may wait for files (key table, replay cache) and for the KDC: a caller on an event loop
uses a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

from odradek.broker.config.types import ConfigError
from odradek.broker.security.state.principal_mapping import (
    KerberosName,
    KerberosShortNamer,
    NoMatchingRuleError,
    RuleError,
)
from odradek.protocol.sasl.exchange import SaslError

T = TypeVar("T")

SERVICE_NAME: Final = "sasl.kerberos.service.name"
_FILE: Final = "file:"


def gssapi_package() -> ModuleType:
    """The package gssapi. Raises ConfigError if it, or the library of Kerberos, is not installed."""
    try:
        return import_module("gssapi")
    except (ImportError, OSError) as error:
        raise ConfigError(
            "SASL/GSSAPI needs MIT Kerberos and the package gssapi (pip install '.[kerberos]' in a clone of Odradek): "
            f"{error}"
        ) from error


class KerberosLogin:
    """The principal of a broker and its key table."""

    def __init__(self, options: Mapping[str, str], service_name: str | None) -> None:
        """`options` are those of the login module, `service_name` is the property. Raises ConfigError.

        The key table has to contain a key of the principal.
        """
        self._gssapi = gssapi_package()
        missing = [name for name in ("keyTab", "principal") if not options.get(name)]
        if missing or options.get("useKeyTab", "").lower() != "true":
            raise ConfigError(
                "SASL/GSSAPI needs the options useKeyTab=true, keyTab and principal in sasl.jaas.config"
                + (f"; missing: {', '.join(missing)}" if missing else "")
            )
        self.service_name = _service_name(options.get("serviceName"), service_name)
        path = options["keyTab"]
        self._key_table = path[len(_FILE) :] if path.lower().startswith(_FILE) else path
        self._principal = options["principal"]
        try:
            self._accepting = self._credentials("accept", keytab=self._key_table)
        except self._gssapi.exceptions.GSSError as error:
            raise ConfigError(
                f"cannot use the key of {self._principal} in {self._key_table}: {_reason(error)}"
            ) from error

    def _credentials(self, usage: str, **store: str) -> Any:
        gssapi = self._gssapi
        name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
        # Kerberos only: the library would accept SPNEGO, too, and negotiate.
        return gssapi.Credentials(name=name, usage=usage, store=store, mechs=[gssapi.MechType.kerberos])

    def accept(self) -> KerberosContext:
        """The server's side of a new context."""
        return KerberosContext(
            self._gssapi, lambda: self._gssapi.SecurityContext(creds=self._accepting, usage="accept")
        )

    def initiate(self, host: str) -> KerberosContext:
        """The client's side of a new context with the service on another host."""
        gssapi = self._gssapi

        def create() -> Any:
            target = gssapi.Name(f"{self.service_name}@{host}", gssapi.NameType.hostbased_service)
            cache = f"MEMORY:{self._principal} {self._key_table}"
            credentials = self._credentials("initiate", client_keytab=self._key_table, ccache=cache)
            flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
            kerberos = gssapi.MechType.kerberos
            return gssapi.SecurityContext(name=target, creds=credentials, usage="initiate", flags=flags, mech=kerberos)

        return KerberosContext(gssapi, create)

    def default_realm(self) -> str:
        """The default realm of krb5.conf; empty if there is none."""
        gssapi = self._gssapi
        try:
            name = gssapi.Name("user", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
        except gssapi.exceptions.GSSError:
            return ""
        return str(name).rpartition("@")[2]


class KerberosContext:
    """A security context of the library (state.gssapi.GssContext)."""

    def __init__(self, gssapi: ModuleType, create: Callable[[], Any]) -> None:
        """`create` is called at the first step."""
        self._gssapi = gssapi
        self._create = create
        self._context: Any = None

    @property
    def complete(self) -> bool:
        """Whether both ends are authenticated."""
        return self._context is not None and bool(self._context.complete)

    @property
    def initiator(self) -> str:
        """The Kerberos principal of the client, once the context is complete."""
        return self._call(lambda: str(self._context.initiator_name))

    def step(self, token: bytes | None) -> bytes | None:
        """Take a token of the other end; return the token to send, if there is one. Raises SaslError."""
        return self._call(lambda: self._step(token))

    def _step(self, token: bytes | None) -> bytes | None:
        if self._context is None:
            self._context = self._create()
            self._context.__DEFER_STEP_ERRORS__ = False  # raise them; the next call would do it otherwise
        sent: bytes | None = self._context.step(token)
        return sent

    def wrap(self, message: bytes) -> bytes:
        """A message with its integrity protected. Raises SaslError."""
        return self._call(lambda: bytes(self._context.wrap(message, False).message))

    def unwrap(self, message: bytes) -> bytes:
        """The content of such a message. Raises SaslError."""
        return self._call(lambda: bytes(self._context.unwrap(message).message))

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except self._gssapi.exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: {_reason(error)}") from error


def user_mapper(rules: tuple[str, ...], default_realm: str) -> Callable[[str], str]:
    """Maps Kerberos principals to users by sasl.kerberos.principal.to.local.rules. Raises ConfigError."""
    try:
        namer = KerberosShortNamer(default_realm, rules or ("DEFAULT",))
    except RuleError as error:
        raise ConfigError(f"sasl.kerberos.principal.to.local.rules: {error}") from error

    def user_of(principal: str) -> str:
        try:
            return namer.short_name(KerberosName.parse(principal))
        except (NoMatchingRuleError, RuleError) as error:
            raise SaslError(f"Failed to set name for '{principal}' based on Kerberos authentication rules.") from error

    return user_of


def _service_name(of_jaas: str | None, of_config: str | None) -> str:
    if of_jaas and of_config and of_jaas != of_config:
        raise ConfigError(
            f"Conflicting serviceName values found in JAAS and Kafka configs: value in JAAS {of_jaas}, value in "
            f"{SERVICE_NAME} {of_config}"
        )
    name = of_jaas or of_config
    if not name:
        raise ConfigError(f"SASL/GSSAPI needs {SERVICE_NAME}, or the option serviceName in sasl.jaas.config")
    return name


def _reason(error: Exception) -> str:
    """The message of a GSSAPI error in one line."""
    return " ".join(str(error).split())
