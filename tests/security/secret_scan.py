"""Secret scan: registers the secrets that the security tests use, and searches all that brokers show for them.

While `scanning` is active, secrets register themselves where they enter the code: properties of type PASSWORD, users of
`Security`, salted credentials, token HMACs and signatures. What brokers show is collected in the same way: the log of
this process, exception messages, descriptions of configurations; and of brokers in processes their log, their
DescribeConfigs answers, their metrics and their command lines.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.types import ConfigError, Type
from odradek.broker.security import cipher_suites, delegation_token_manager, jks, keystores, sasl_oauth_http, tls
from odradek.broker.security.state import delegation_tokens, jaas, jwks
from odradek.broker_process import BrokerProcess
from odradek.cluster_security import ClusterSecurity
from odradek.forked_process import ForkedProcess
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError
from odradek.protocol.sasl import exchange, oauthbearer, scram_credentials
from odradek.ready_process import HOST, ReadyProcess
from odradek.security import Security
from odradek.token_issuer import SigningKey

LEAST_LENGTH: Final = 8
"""Of a secret; shorter ones, as "secret", are parts of other words."""
BROKER: Final = 4
METRICS_TIMEOUT_S: Final = 30.0
_PEM_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)
_SECRET_OPTION: Final = re.compile(r"user_.*|.*(?:password|secret).*", re.IGNORECASE)
_ERRORS: Final[tuple[type[Exception], ...]] = (
    ConfigError,
    KafkaError,
    exchange.SaslError,
    jaas.JaasError,
    jwks.JwksError,
    oauthbearer.TokenRejectedError,
    scram_credentials.CredentialError,
    sasl_oauth_http.IssuerError,
    keystores.KeystoreError,
    jks.JksError,
    tls.TlsError,
    cipher_suites.CipherSuiteError,
)


class SecretScan:
    """Secrets, and the places where one of them was shown."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}  # text -> description
        self._shown: dict[str, set[str]] = {}  # place -> texts
        self._metrics: dict[ReadyProcess, str] = {}

    @property
    def count(self) -> int:
        """The number of secrets, each counted in every encoding."""
        return len(self._secrets)

    def register(self, secret: str | bytes, description: str) -> None:
        """Search for a secret; one of bytes in Base64 (of both alphabets) and in hexadecimal."""
        if isinstance(secret, str):
            texts = [secret, repr(secret)[1:-1], base64.b64encode(secret.encode("utf-8", "replace")).decode()]
        else:
            encoded = base64.b64encode(secret).rstrip(b"=").decode()
            texts = [encoded, encoded.translate(str.maketrans("+/", "-_")), secret.hex(), repr(secret)[2:-1]]
        if len(secret) >= LEAST_LENGTH and len(set(secret)) > 1:
            self._secrets.update(dict.fromkeys(texts, description))

    def register_property(self, name: str, value: str) -> None:
        """Search for the secrets in a property, if its type is PASSWORD."""
        row = next((BROKER_PROPERTIES[each] for each in _suffixes(name) if each in BROKER_PROPERTIES), None)
        if row is None or row.type is not Type.PASSWORD:
            return
        if row.name == "sasl.jaas.config":
            self._register_options(name, value)
        elif value.startswith("-----BEGIN"):
            for key in _PEM_KEY.findall(value):
                self.register_key(key, name)
        else:
            self.register(value, name)

    def register_key(self, pem: str, description: str) -> None:
        """Search for each line of a private key; the first ones are equal in every key of its kind."""
        for line in pem.split()[1:]:
            self.register(line, description)

    def _register_options(self, name: str, text: str) -> None:
        try:
            modules = jaas.parse_modules(text)
        except jaas.JaasError:
            return
        for module in modules:
            for option, value in module.options.items():
                if _SECRET_OPTION.fullmatch(option) and not option.lower().endswith("file"):
                    self.register(value, f"{name} {option}")

    def collect(self, place: str, text: str) -> None:
        """Search a text at the end: its secrets may be registered later."""
        self._shown.setdefault(place, set()).add(text)

    def with_metrics(self, broker: BrokerProcess, arguments: list[str]) -> list[str]:
        """The arguments of a broker that also serves its metrics."""
        address = self._metrics.setdefault(broker, f"{HOST}:{free_port(HOST)}")
        return [*arguments, f"--metrics={address}"]

    def collect_metrics(self, broker: BrokerProcess) -> None:
        """The metrics page of a broker that serves one."""
        address = self._metrics.get(broker)
        if address is not None:
            with urlopen(f"http://{address}/metrics", timeout=METRICS_TIMEOUT_S) as page:
                self.collect("a metrics page", page.read().decode())

    def findings(self) -> list[str]:
        """Places with the description of the secret that they show, never with the secret."""
        found = set()
        for place, texts in self._shown.items():
            whole = "\n".join(texts)
            found |= {f"{place} shows {what}" for secret, what in self._secrets.items() if secret in whole}
        return sorted(found)


def _suffixes(name: str) -> Iterator[str]:
    """A property, and what remains of it without the prefixes of a listener and a mechanism."""
    parts = name.split(".")
    return (".".join(parts[begin:]) for begin in range(len(parts)))


class _LogCollector(logging.Handler):
    """Formats each record with its traceback."""

    def __init__(self, scan: SecretScan) -> None:
        super().__init__()
        self._scan = scan

    def emit(self, record: logging.LogRecord) -> None:
        self._scan.collect("the log", self.format(record))


@contextlib.contextmanager
def scanning(scan: SecretScan) -> Iterator[SecretScan]:
    """Register and collect everything until the end of the block."""
    collector = _LogCollector(scan)
    logging.getLogger().addHandler(collector)
    try:
        with pytest.MonkeyPatch.context() as patch:
            _register_all(scan, patch)
            _collect_all(scan, patch)
            yield scan
    finally:
        logging.getLogger().removeHandler(collector)


def _before(patch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[..., None]) -> None:
    """Call `action` with the arguments before each call of a function."""
    original = getattr(owner, name)

    def wrapper(*arguments: Any, **options: Any) -> Any:
        action(*arguments, **options)
        return original(*arguments, **options)

    patch.setattr(owner, name, wrapper)


def _after(patch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[[Any, Any], None]) -> None:
    """Call `action` with the first argument and the result after each call of a function."""
    original = getattr(owner, name)

    def wrapper(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        action(arguments[0], result)
        return result

    patch.setattr(owner, name, wrapper)


def _register_all(scan: SecretScan, patch: pytest.MonkeyPatch) -> None:
    def properties(*layers: Any, **named: Any) -> None:
        for layer in (*layers, *named.values()):
            if isinstance(layer, dict):
                for name, value in layer.items():
                    scan.register_property(name, value)

    def users(security: Security, _: object) -> None:
        for user, password in security.passwords.items():
            scan.register(password, f"the password of {user}")

    def credential(kept: scram_credentials.ScramCredential, _: object) -> None:
        scan.register(kept.stored_key, "a stored key")
        scan.register(kept.server_key, "a server key")

    _before(patch, BrokerConfig, "__init__", lambda _, *layers, **named: properties(*layers, **named))
    _after(patch, Security, "__post_init__", users)
    _after(patch, SigningKey, "sign", lambda _, signature: scan.register(signature, "the signature of a token"))
    _after(patch, scram_credentials.ScramCredential, "encode", credential)

    def token_hmac(secret_key: Any, token_id: str) -> bytes:
        hmac = delegation_tokens.token_hmac(secret_key, token_id)
        scan.register(hmac, "the HMAC of a token")
        return hmac

    patch.setattr(delegation_token_manager, "token_hmac", token_hmac)
    write = ClusterSecurity.write

    def write_properties(path: Path, of_file: dict[str, str]) -> Path:
        properties(of_file)
        return write(path, of_file)

    patch.setattr(ClusterSecurity, "write", staticmethod(write_properties))


def _collect_all(scan: SecretScan, patch: pytest.MonkeyPatch) -> None:
    def message(error: Exception, *arguments: Any, **_: Any) -> None:
        scan.collect(f"a message of {type(error).__name__}", " ".join(map(str, arguments)))

    for kind in _ERRORS:
        _before(patch, kind, "__init__", message)
    _after(patch, BrokerConfig, "__init__", lambda config, _: _collect_description(scan, config))
    _serve_metrics(scan, patch)
    _after(patch, ReadyProcess, "await_ready", lambda process, _: collect_title(scan, process.pid))
    _before(patch, ReadyProcess, "stop", lambda process: collect_process(scan, process))
    _before(patch, ReadyProcess, "_forget", lambda process, _: scan.collect("the log of a process", process.output))


def _serve_metrics(scan: SecretScan, patch: pytest.MonkeyPatch) -> None:
    arguments_of = BrokerProcess._arguments

    def arguments(broker: BrokerProcess) -> list[str]:
        found = arguments_of(broker)
        return scan.with_metrics(broker, found) if broker.peers_port else found

    patch.setattr(BrokerProcess, "_arguments", arguments)


def _collect_description(scan: SecretScan, config: BrokerConfig) -> None:
    """As DescribeConfigs answers it, where the configuration has secrets."""
    if not any("password" in name or name.endswith((".jaas.config", ".key")) for name in config.static):
        return
    for entry in (*config.describe_broker(), *config.describe_cluster_default()):
        scan.collect("the description of a configuration", repr((entry.name, entry.value, entry.synonyms)))


def collect_title(scan: SecretScan, pid: int) -> None:
    """The command line of a process, which every user of the machine can read."""
    title = Path(f"/proc/{pid}/cmdline")
    if title.exists():
        scan.collect("a command line", title.read_bytes().decode("utf-8", "replace"))


def collect_process(scan: SecretScan, process: ReadyProcess) -> None:
    """The command line of a process; of a broker that runs with `security=` its DescribeConfigs answers and metrics."""
    if not process.running:
        return
    collect_title(scan, process.pid)
    if isinstance(process._process, ForkedProcess):  # another start of it has a command line
        scan.collect("a command line", " ".join(process._process.args))
    if not isinstance(process, BrokerProcess) or not process.peers_port:
        return
    with contextlib.suppress(OSError):
        scan.collect_metrics(process)
    with contextlib.suppress(OSError), process.admin() as wire:
        brokers = [str(broker.node_id) for broker in wire.metadata([]).brokers]
        for name in ("", *brokers):
            resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=BROKER, resource_name=name)
            request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
            scan.collect("a DescribeConfigs answer", repr(wire.ask(request, request.MAX_VERSION)))
