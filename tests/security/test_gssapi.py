"""SASL/GSSAPI with MIT Kerberos: both sides here, tickets that are wrong, and messages in every wrong order."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.config.types import ConfigError
from odradek.broker.security.kerberos import KerberosLogin, user_mapper
from odradek.broker.security.state.gssapi import GssapiClient, GssapiServer, GssapiState
from odradek.protocol.sasl.exchange import SaslError
from tests.security.kdc import REALM, Kdc


class FakeContext:
    """A context that is complete after some tokens, and whose wrapped messages begin with "w"."""

    def __init__(self, tokens: list[bytes | None], initiator: str = f"alice@{REALM}") -> None:
        self._tokens = tokens
        self.initiator = initiator

    @property
    def complete(self) -> bool:
        return not self._tokens

    def step(self, token: bytes | None) -> bytes | None:
        if not token:
            raise SaslError("GSSAPI: defective token")
        return self._tokens.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"w" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"w"):
            raise SaslError("GSSAPI: the message is not wrapped")
        return message[1:]


user_of = user_mapper(("DEFAULT",), REALM)


def test_a_server_offers_no_security_layer() -> None:
    server = GssapiServer(FakeContext([b"one", b"two"]), user_of)
    assert [server.evaluate(message) for message in (b"a", b"b", b"")] == [b"one", b"two", b"w\1\0\0\0"]
    assert not server.complete
    assert server.evaluate(b"w\1\0\0\0another user") is None
    assert server.complete
    assert server.authorization_id == "alice"


def test_a_server_without_a_last_token_offers_the_layers_at_once() -> None:
    server = GssapiServer(FakeContext([None]), user_of)
    assert server.evaluate(b"a") == b"w\1\0\0\0"
    assert server.state is GssapiState.CHOICE


@given(st.lists(st.sampled_from([b"", b"a", b"w", b"w\1\0\0", b"w\2\0\0\0", b"w\3\0\0\0", b"\1\0\0\0"]), max_size=5))
def test_a_server_accepts_no_other_exchange(messages: list[bytes]) -> None:
    server = GssapiServer(FakeContext([b"one"]), user_of)
    failed = False
    for message in messages:
        try:
            server.evaluate(message)
        except SaslError:
            failed = True
        else:
            assert not failed, "no message is accepted after an error"
    assert not server.complete
    assert server.authorization_id == ""


def test_a_principal_without_a_rule_is_not_authenticated() -> None:
    server = GssapiServer(FakeContext([None], "alice@ELSEWHERE"), user_of)
    server.evaluate(b"a")
    with pytest.raises(SaslError, match="based on Kerberos authentication rules"):
        server.evaluate(b"w\1\0\0\0")
    assert not server.complete


@pytest.mark.parametrize("layers", [b"w\6\0\1\0", b"w", b"w\0\0\0\0", b"\1\0\0\0"])
def test_a_client_selects_no_security_layer(layers: bytes) -> None:
    client = GssapiClient(FakeContext([]))
    with pytest.raises(SaslError):
        client.evaluate(layers)
    assert not client.complete


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (("DEFAULT",), f"alice/admin@{REALM}", "alice"),
        ((), f"alice@{REALM}", "alice"),
        (("RULE:[1:$1@$0](.*@ELSEWHERE)s/@.*/-guest/", "DEFAULT"), "bob@ELSEWHERE", "bob-guest"),
        (("RULE:[2:$1-$2]/U",), f"kafka/host@{REALM}", "KAFKA-HOST"),
    ],
)
def test_rules_map_principals_to_users(rules: tuple[str, ...], principal: str, user: str) -> None:
    assert user_mapper(rules, REALM)(principal) == user


def test_an_invalid_rule_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules: Invalid rule"):
        user_mapper(("RULE:[x]",), REALM)


# ---- MIT Kerberos


@pytest.fixture(scope="module")
def broker_keys(kdc: Kdc) -> Path:
    return kdc.key_table("kafka/localhost", "kafka/elsewhere")


def _login(key_table: Path, principal: str, service_name: str | None = "kafka", **options: str) -> KerberosLogin:
    known = {"useKeyTab": "true", "storeKey": "true", "keyTab": str(key_table), "principal": principal}
    return KerberosLogin({**known, **options}, service_name)


def _exchange(client: GssapiClient, server: GssapiServer) -> None:
    message = client.first_message()
    while not client.complete:
        message = client.evaluate(server.evaluate(message) or b"")
    assert server.evaluate(message) is None


@pytest.mark.slow
def test_a_client_logs_in_with_its_key_table(kdc: Kdc, broker_keys: Path) -> None:
    broker = _login(broker_keys, f"kafka/localhost@{REALM}")
    alice = _login(kdc.key_table("alice"), "alice")
    assert broker.default_realm() == REALM
    for login, user in ((alice, "alice"), (broker, "kafka")):
        server = GssapiServer(broker.accept(), user_of)
        _exchange(GssapiClient(login.initiate("localhost")), server)
        assert server.complete
        assert server.authorization_id == user


@pytest.mark.slow
def test_tickets_of_other_services_and_replayed_tokens_are_rejected(kdc: Kdc, broker_keys: Path) -> None:
    broker, carol = _login(broker_keys, "kafka/localhost"), _login(kdc.key_table("carol"), "carol")
    with pytest.raises(SaslError, match="GSSAPI"):
        GssapiServer(broker.accept(), user_of).evaluate(GssapiClient(carol.initiate("elsewhere")).first_message())
    message = GssapiClient(carol.initiate("localhost")).first_message()
    GssapiServer(broker.accept(), user_of).evaluate(message)
    with pytest.raises(SaslError, match="replay"):
        GssapiServer(broker.accept(), user_of).evaluate(message)
    changed = bytearray(GssapiClient(carol.initiate("localhost")).first_message())
    changed[-1] ^= 1
    with pytest.raises(SaslError):
        GssapiServer(broker.accept(), user_of).evaluate(bytes(changed))
    with pytest.raises(SaslError):
        GssapiClient(carol.initiate("unknown-host")).first_message()


@pytest.mark.slow
@settings(max_examples=300)
@given(st.binary(max_size=40), st.integers(0, 2**16), st.integers(0, 255), st.booleans())
def test_other_tokens_authenticate_no_client(
    kdc: Kdc, broker_keys: Path, text: bytes, place: int, byte: int, cut: bool
) -> None:
    """Any bytes, and a token with another byte or without its end, cause no error but a failed authentication.

    Some bytes of a token are not protected, such as the realm of the ticket. Only the key of its session, which the
    client proves with its last message, completes the exchange.
    """
    token = bytearray(_token_of_frank(kdc))
    place %= len(token)
    if cut:
        del token[place:]
    elif token[place] != byte:
        token[place] = byte
    else:
        token[place] ^= 1
    broker = _login(broker_keys, "kafka/localhost")
    for message in (text, bytes(token)):
        server = GssapiServer(broker.accept(), user_of)
        with contextlib.suppress(SaslError):
            server.evaluate(message)
            server.evaluate(b"")
            server.evaluate(text)
        assert server.state in (GssapiState.FAILED, GssapiState.EMPTY_MESSAGE, GssapiState.CHOICE)
        assert not server.complete
        assert server.authorization_id == ""


@cache
def _token_of_frank(kdc: Kdc) -> bytes:
    return GssapiClient(_login(kdc.key_table("frank"), "frank").initiate("localhost")).first_message()


@pytest.mark.slow
def test_a_server_negotiates_no_other_mechanism(kdc: Kdc, broker_keys: Path) -> None:
    gssapi = pytest.importorskip("gssapi")
    spnego = gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
    store = {"client_keytab": str(kdc.key_table("dave")), "ccache": "MEMORY:dave"}
    dave = gssapi.Name("dave", gssapi.NameType.kerberos_principal)
    client = gssapi.SecurityContext(
        name=gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service),
        creds=gssapi.Credentials(name=dave, usage="initiate", store=store),
        usage="initiate",
        mech=spnego,
    )
    for token in (client.step(), b""):
        server = GssapiServer(_login(broker_keys, "kafka/localhost").accept(), user_of)
        with pytest.raises(SaslError):
            server.evaluate(token)
        assert server.state is GssapiState.FAILED


@pytest.mark.slow
def test_a_broker_without_its_key_does_not_start(kdc: Kdc, broker_keys: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot use the key of kafka/other in"):
        _login(broker_keys, "kafka/other")
    with pytest.raises(ConfigError, match="cannot use the key of"):
        _login(tmp_path / "none.keytab", "kafka/localhost")
    with pytest.raises(ConfigError, match="missing: principal"):
        _login(broker_keys, "")
    with pytest.raises(ConfigError, match="useKeyTab=true"):
        _login(broker_keys, "kafka/localhost", useKeyTab="false")
    with pytest.raises(ConfigError, match=r"needs sasl\.kerberos\.service\.name"):
        _login(broker_keys, "kafka/localhost", None)
    with pytest.raises(ConfigError, match="Conflicting serviceName"):
        _login(broker_keys, "kafka/localhost", serviceName="other")
    assert _login(broker_keys, "kafka/localhost", None, serviceName="other").service_name == "other"
