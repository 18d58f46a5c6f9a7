"""SASL exchanges byte by byte beside Apache Kafka 3.9.2, and its tools of three releases with every mechanism.

Each script sends the same frames to both brokers, which have the same properties, and compares every byte of the
responses and whether the broker closes the connection.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.broker.security.state.unsecured_tokens import unsecured_token
from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.framing import frame, request_header, response_header
from odradek.protocol.sasl.plain import client_message
from odradek.protocol.sasl.scram import ScramClient, salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS
from odradek.wire import Wire
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PASSWORD = "alice-secret"
OFFERED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PREFIX = "listener.name.sasl"
MODULES = {
    "PLAIN": f'plain.PlainLoginModule required user_alice="{PASSWORD}" user_bob="bob-secret"',
    "SCRAM-SHA-256": "scram.ScramLoginModule required",
    "SCRAM-SHA-512": "scram.ScramLoginModule required",
    "OAUTHBEARER": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"',
}
TIMEOUT_S = 20.0


class Ports(NamedTuple):
    """The ports of one broker: with SASL, and without."""

    sasl: int
    plaintext: int


def properties(ports: Ports) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{ports.plaintext},SASL://127.0.0.1:{ports.sasl}"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(OFFERED),
        "connection.failed.authentication.delay.ms": "10",
        "sasl.server.max.receive.size": "20000",
        f"{PREFIX}.plain.connections.max.reauth.ms": "60000",
        "odradek.sasl.oauthbearer.allow.unsecured.tokens": "true",
        **{
            f"{PREFIX}.{name.lower()}.sasl.jaas.config": f"org.apache.kafka.common.security.{module};"
            for name, module in MODULES.items()
        },
    }


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ports, Ports]]:
    """Odradek and Kafka with the same users."""
    folder = tmp_path_factory.mktemp("sasl")
    ours, theirs = (Ports(free_port(), free_port()) for _ in range(2))
    kafka = Kafka(folder / "kafka", properties(theirs))
    kafka.port = theirs.plaintext
    try:
        kafka.start()
        with BrokerProcess(folder / "ours", properties(ours)):
            for ports in (ours, theirs):
                create_alice(ports)
            yield ours, theirs
    finally:
        kafka.close()


def create_alice(ports: Ports) -> None:
    request = m.AlterUserScramCredentialsRequest
    with Wire("127.0.0.1", ports.plaintext, TIMEOUT_S) as wire:
        upsertions = [
            request.ScramCredentialUpsertion(
                name="alice",
                mechanism=number,
                iterations=4096,
                salt=b"salt",
                salted_password=salted_password(mechanism, PASSWORD, b"salt", 4096),
            )
            for number, mechanism in MECHANISMS.items()
        ]
        answer = wire.ask(request(upsertions=upsertions), 0)
        assert [each.error_code for each in answer.results] == [0]


class Line:
    """A connection that sends frames as they are."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rb")

    def send(self, *frames: bytes) -> None:
        self._socket.sendall(b"".join(map(frame, frames)))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next response; None if the broker closes the connection."""
        try:
            head = self._file.read(4)
            return self._file.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None
        except ConnectionError:
            return None

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def request(message: Any, version: int, number: int = 1) -> bytes:
    return request_header(message.API_KEY, version, number, "client") + bytes(message.encode(version))


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(m.SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(token: bytes, version: int = 2) -> bytes:
    return request(m.SaslAuthenticateRequest(auth_bytes=token), version)


ALICE = client_message("alice", PASSWORD)
VERSIONS_0 = request(m.ApiVersionsRequest(), 0)
METADATA = request(m.MetadataRequest(topics=[]), 1)
SOFTWARE = m.ApiVersionsRequest(client_software_name="c", client_software_version="1")
OAUTH = unsecured_token({"sub": "alice", "exp": 4_000_000_000, "iat": 1})

SCRIPTS: dict[str, Sequence[bytes]] = {
    "plain": [handshake(), authenticate(ALICE)],
    **{f"plain, SaslAuthenticate v{each}": [handshake(), authenticate(ALICE, each)] for each in (0, 1)},
    "plain without headers": [handshake(version=0), ALICE],
    "wrong password": [handshake(), authenticate(client_message("alice", "x"))],
    "unknown user": [handshake(), authenticate(client_message("mallory", "x"))],
    "no user": [handshake(), authenticate(client_message("", "x"))],
    "no password": [handshake(), authenticate(client_message("alice", ""))],
    "two tokens": [handshake(), authenticate(b"a\0b")],
    "four tokens": [handshake(), authenticate(b"a\0b\0c\0d")],
    "another authorization id": [handshake(), authenticate(b"bob\0alice\0" + PASSWORD.encode())],
    "wrong password without headers": [handshake(version=0), client_message("alice", "x")],
    "unknown mechanism": [handshake("GSSAPI")],
    "unknown mechanism v0": [handshake("plain", 0)],
    "empty mechanism": [handshake("")],
    "scram, malformed first message": [handshake("SCRAM-SHA-256"), authenticate(b"hello")],
    "scram without headers, malformed": [handshake("SCRAM-SHA-256", 0), b"hello"],
    "scram, another authorization id": [handshake("SCRAM-SHA-256"), authenticate(b"n,a=bob,n=alice,r=nonce")],
    "oauth": [handshake("OAUTHBEARER"), authenticate(b"n,,\x01auth=Bearer a.b.c\x01\x01"), authenticate(b"\x01")],
    "oauth, malformed": [handshake("OAUTHBEARER"), authenticate(b"hello")],
    "oauth without a form": [handshake("OAUTHBEARER", 0), b"n,,\x01auth=Bearer a.b.c\x01\x01", b"\x01"],
    "oauth, another authorization id": [
        handshake("OAUTHBEARER"),
        authenticate(f"n,a=bob,\x01auth=Bearer {OAUTH}\x01\x01".encode()),
    ],
    "metadata first": [METADATA],
    "authenticate first": [authenticate(ALICE)],
    "no request": [b"\x60\x82\x01\x02 a token of Kerberos"],
    "an empty frame": [b""],
    "an unknown API": [request_header(999, 0, 1, "c")],
    "versions twice": [VERSIONS_0, VERSIONS_0],
    "versions of another version": [request_header(18, 99, 1, "c"), request(SOFTWARE, 3)],
    "versions with invalid software": [request(m.ApiVersionsRequest(), 3), handshake()],
    "versions in an exchange": [handshake(), VERSIONS_0],
    "versions of another version in an exchange": [handshake(), request_header(18, 99, 1, "c")],
    "a handshake in an exchange": [handshake(), handshake()],
    "a handshake in an exchange v0": [handshake(), handshake(version=0)],
    "no request in an exchange": [handshake(), b"hello, there is no header"],
    "handshake v2": [request_header(17, 2, 1, "c") + b"\0\5PLAIN"],
    "authenticate v3": [handshake(), request_header(36, 3, 1, "c") + b"\x01\0"],
    "a handshake with more bytes": [handshake() + b"xyz"],
    "a handshake that is cut": [handshake()[:-2]],
    "metadata after it": [handshake(), authenticate(ALICE), METADATA],
    "authenticate after it": [handshake(), authenticate(ALICE), authenticate(ALICE)],
    "the same user again": [handshake(), authenticate(ALICE), handshake(), authenticate(ALICE), METADATA],
    "another user again": [
        handshake(),
        authenticate(ALICE),
        handshake(),
        authenticate(client_message("bob", "bob-secret")),
    ],
    "a wrong password again": [handshake(), authenticate(ALICE), handshake(), authenticate(client_message("bob", "x"))],
    "another mechanism again": [handshake(), authenticate(ALICE), handshake("SCRAM-SHA-256"), authenticate(b"x")],
    "an unknown mechanism again": [handshake(), authenticate(ALICE), handshake("GSSAPI")],
    "a second time in one second": [
        handshake(),
        authenticate(ALICE),
        handshake(),
        authenticate(ALICE),
        handshake(),
        METADATA,
    ],
    "without headers again": [handshake(), authenticate(ALICE), handshake(version=0), ALICE],
}


def exchanged(port: int, frames: Sequence[bytes]) -> list[bytes | None]:
    """The responses to frames, one after the other, and None where the broker closes the connection."""
    line, received = Line(port), list[bytes | None]()
    try:
        for each in frames:
            line.send(each)
            received.append(line.receive())
            if received[-1] is None:
                return received
        if is_error(received[-1], frames[-1]):
            received.append(line.receive())
        return received
    finally:
        line.close()


def is_error(response: bytes | None, sent: bytes) -> bool:
    """Whether an error code follows the header of the response, so that the broker closes the connection."""
    key, version = struct.unpack(">hh", sent[:4])
    if response is None or key not in (17, 36) or version > 2 or len(response) < 6:
        return False
    head = len(response_header(key, version, 1))
    return response[head : head + 2] not in (b"\0\0", b"\0\x22")


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_same_frames_have_the_same_responses(brokers: tuple[Ports, Ports], script: str) -> None:
    ours, theirs = (exchanged(each.sasl, SCRIPTS[script]) for each in brokers)
    assert [each is None for each in ours] == [each is None for each in theirs]
    for mine, other, sent in zip(ours, theirs, SCRIPTS[script], strict=False):
        if sent not in (METADATA,) and not sent.startswith(b"\0\x12"):  # addresses and supported versions differ
            assert mine == other
        elif sent.startswith(b"\0\x12") and mine is not None and other is not None:
            assert mine[:6] == other[:6]


@pytest.mark.parametrize("size", [20001, 2**31 - 1, -1])
@pytest.mark.parametrize("before", [[], [handshake()]])
def test_frames_over_the_limit_close_the_connection(
    brokers: tuple[Ports, Ports], size: int, before: list[bytes]
) -> None:
    for ports in brokers:
        line = Line(ports.sasl)
        for each in before:
            line.send(each)
            assert line.receive() is not None
        line.send_bytes(struct.pack(">i", size))
        assert line.receive() is None
        line.close()


def scram(port: int, name: str, user: str, password: str) -> list[bytes | None]:
    mechanism = next(each for each in MECHANISMS.values() if each.name == name)
    client, line = ScramClient(mechanism, user, "nonce"), Line(port)
    try:
        line.send(handshake(name))
        received = [line.receive()]
        line.send(authenticate(client.first_message()))
        first = line.receive()
        assert first is not None
        answer = m.SaslAuthenticateResponse.decode(first, 2, 5)
        if answer.error_code:
            return [*received, first, line.receive()]
        challenge = client.receive_first(answer.auth_bytes)
        received.append(re.sub(rb"r=[^,]*", b"r=", answer.auth_bytes))
        salted = salted_password(mechanism, password, challenge.salt, challenge.iterations)
        line.send(authenticate(client.final_message(salted)))
        last = line.receive()
        assert last is not None
        answer = m.SaslAuthenticateResponse.decode(last, 2, 5)
        if answer.error_code:
            return [*received, last, line.receive()]
        client.receive_final(answer.auth_bytes)
        return received
    finally:
        line.close()


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_exchanges(brokers: tuple[Ports, Ports], name: str) -> None:
    for password in (PASSWORD, "x"):
        ours, theirs = (scram(each.sasl, name, "alice", password) for each in brokers)
        assert ours == theirs
    ours, theirs = (scram(each.sasl, name, "mallory", "x") for each in brokers)
    # Kafka ends at the first message, so that a client learns which users exist; the text is the same.
    assert ours[-2:] == theirs[-2:]
    assert (len(ours), len(theirs)) == (4, 3)


# ---- the tools


def client_properties(folder: Path, mechanism: str, password: str = PASSWORD) -> Path:
    module = MODULES[mechanism].partition(" ")[0]
    options = f'username="alice" password="{password}"'
    if mechanism == "OAUTHBEARER":
        options = 'unsecuredLoginStringClaim_sub="alice"'
    path = folder / f"{mechanism}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required {options};\n"
    )
    return path


@pytest.mark.parametrize("release", ["3.9.2"])  # test_witnesses_tools has the other releases
@pytest.mark.parametrize("mechanism", OFFERED)
def test_tools_authenticate(brokers: tuple[Ports, Ports], tmp_path: Path, release: str, mechanism: str) -> None:
    ours, _ = brokers
    arguments = ["--bootstrap-server", f"127.0.0.1:{ours.sasl}"]
    config = ["--command-config", str(client_properties(tmp_path, mechanism))]
    name = f"{mechanism}-{release}"
    create = ["--create", "--topic", name, "--partitions", "1", "--replication-factor", "1"]
    assert run_tool(release, "kafka-topics", [*arguments, *config, *create]).status == 0
    assert name in run_tool(release, "kafka-topics", [*arguments, *config, "--list"]).stdout
