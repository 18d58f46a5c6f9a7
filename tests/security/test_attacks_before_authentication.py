"""What clients without credentials can do to a broker: its memory stays bounded, it logs no exception, and it answers
other clients meanwhile. Each attack comes over SASL_PLAINTEXT and over SASL_SSL.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient

from odradek.broker.security.state.sasl_server_authenticator import MOST_FRAMES
from odradek.broker_process import BrokerProcess
from odradek.protocol.framing import frame, request_header
from odradek.security import Security
from tests.support.eventually import eventually

PASSWORD = "alice-before-authentication"
MIB = 1 << 20
FRAME_BYTES = 524288
"""The default of sasl.server.max.receive.size."""
CONNECTIONS = 20
NOISE = 12 * MIB
"""Memory that a broker takes for other reasons during a test."""
TIMEOUT_S = 20.0

API_VERSIONS = request_header(18, 3, 1, "c") + b"\x02c\x021\0"
UNKNOWN_VERSION = request_header(18, 99, 1, "c")
HANDSHAKE = request_header(17, 1, 1, "c") + b"\0\5PLAIN"
HANDSHAKE_0 = request_header(17, 0, 1, "c") + b"\0\x0dSCRAM-SHA-256"
AUTHENTICATE = request_header(36, 2, 1, "c")
METADATA = request_header(3, 12, 1, "c")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux resets the peak of the memory"),
]


@pytest.fixture(scope="module", params=["plain+scram+oauth", "tls+plain+scram+oauth"], ids=["plaintext", "tls"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    security = Security(request.param, users={"alice": PASSWORD})
    overrides = {"connection.failed.authentication.delay.ms": "1"}
    with BrokerProcess(tmp_path_factory.mktemp("attacked"), overrides, security=security) as running:
        yield running


@pytest.fixture(autouse=True)
def served(broker: BrokerProcess) -> Iterator[None]:
    """Every test leaves a broker that answers, and no exception in its log."""
    begin = len(broker.output)
    yield
    _use(broker)
    log = broker.output[begin:]
    assert not [line for line in log.splitlines() if "Traceback" in line or " ERROR " in line or "unexpectedly" in line]


def _use(broker: BrokerProcess) -> None:
    """A user logs in and is answered."""
    client = AdminClient(broker.client_config("alice", mechanism="PLAIN"))
    assert client.list_topics(timeout=TIMEOUT_S).brokers


@contextlib.contextmanager
def memory_growth_below(broker: BrokerProcess, most: int) -> Iterator[None]:
    """The peak of the broker's resident memory stays within `most` bytes of the present one."""
    folder = Path(f"/proc/{broker.pid}")

    def bytes_of(name: str) -> int:
        line = next(each for each in (folder / "status").read_text().splitlines() if each.startswith(name))
        return int(line.split()[1]) * 1024

    _use(broker)
    (folder / "clear_refs").write_text("5")  # the peak begins again
    begin = bytes_of("VmRSS")
    yield
    assert bytes_of("VmHWM") - begin < most


class Strangers:
    """Connections of clients without credentials."""

    def __init__(self, broker: BrokerProcess, stack: contextlib.ExitStack) -> None:
        self._broker = broker
        self._stack = stack
        authorities = broker.client_config("alice").get("ssl.ca.location")
        self._tls = ssl.create_default_context(cafile=authorities) if authorities else None

    def connect(self, *, tls: bool = True) -> socket.socket:
        """A connection after its TLS handshake; without `tls` before it."""
        made = socket.create_connection((self._broker.host, self._broker.port), TIMEOUT_S)
        self._stack.enter_context(made)
        if self._tls is None or not tls:
            return made
        wrapped = self._tls.wrap_socket(made, server_hostname=self._broker.host)
        self._stack.enter_context(wrapped)
        return wrapped


@pytest.fixture
def strangers(broker: BrokerProcess) -> Iterator[Strangers]:
    with contextlib.ExitStack() as stack:
        yield Strangers(broker, stack)


def _send(connection: socket.socket, data: bytes) -> None:
    """Send until the broker closes the connection."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        connection.sendall(data)


def _is_closed(connection: socket.socket) -> bool:
    """Whether the broker ends the connection; what it has answered before is read."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while connection.recv(65536):
            pass
    return True


def test_incomplete_frames_hold_what_has_arrived(broker: BrokerProcess, strangers: Strangers) -> None:
    """An attacker would gain the broker's memory with a few bytes, or with frames that never end."""
    with memory_growth_below(broker, 2 * CONNECTIONS * FRAME_BYTES + NOISE):
        connections = [strangers.connect() for _ in range(CONNECTIONS)]
        for each in connections:
            _send(each, struct.pack(">i", FRAME_BYTES) + bytes(FRAME_BYTES - 1))
        _use(broker)
        larger = strangers.connect()
        _send(larger, struct.pack(">i", FRAME_BYTES + 1))
        assert _is_closed(larger)
        for each in connections:
            _send(each, b"\0")
            assert _is_closed(each)


@pytest.mark.parametrize("begin", [b"", frame(HANDSHAKE), frame(HANDSHAKE_0)], ids=["first", "sasl", "token"])
def test_pipelined_frames_are_not_kept(broker: BrokerProcess, strangers: Strangers, begin: bytes) -> None:
    """An attacker would gain memory and processor time with requests that the broker keeps for later."""
    with memory_growth_below(broker, 2 * CONNECTIONS * 256 * 1024 + NOISE):
        for _ in range(CONNECTIONS):
            _send(strangers.connect(), begin + frame(METADATA + bytes(1000)) * 1000)
        _use(broker)


def test_unread_answers_are_bounded(broker: BrokerProcess, strangers: Strangers) -> None:
    """An attacker would gain memory with answers that it does not read: Kafka answers any number of such requests."""
    with memory_growth_below(broker, CONNECTIONS * 256 * 1024 + NOISE):
        connections = [strangers.connect() for _ in range(CONNECTIONS)]
        for each in connections:
            _send(each, frame(UNKNOWN_VERSION) * 20_000)
        _use(broker)
    one = strangers.connect()
    _send(one, frame(UNKNOWN_VERSION) * (MOST_FRAMES + 1))
    answered = 0
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while (size := one.recv(4, 0)) and (data := one.recv(struct.unpack(">i", size)[0])):
            answered += bool(data)
    assert answered <= MOST_FRAMES


def test_cve_2026_111115_tagged_fields_are_not_kept(broker: BrokerProcess, strangers: Strangers) -> None:
    """CVE-2026-111115: 400 KB of empty tagged fields became 12.8 MB of objects on each connection of an attacker."""
    count = 100_000
    tagged = b"\xa0\x8d\x06" + b"".join(_varint(tag) + b"\0" for tag in range(count))
    body = b"\x02c\x021" + tagged
    first = frame(request_header(18, 3, 1, "c") + body)
    second = frame(HANDSHAKE) + frame(AUTHENTICATE + b"\x05\0a\0b" + tagged)
    in_the_header = frame(AUTHENTICATE[:-1] + tagged + b"\x05\0a\0b\0")
    assert len(first) > 300_000
    with memory_growth_below(broker, 10 * MIB):
        for data in (first, second, frame(HANDSHAKE) + in_the_header):
            for _ in range(3):
                connection = strangers.connect()
                _send(connection, data)
                assert _is_closed(connection)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _client_hello() -> bytes:
    """A ClientHello, in one record."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def _endless_hello() -> bytes:
    """A ClientHello that announces 16 MiB and never ends, in records of one KiB."""
    record = b"\x16\x03\x01\x04\x00" + bytes(1024)
    return b"\x16\x03\x01\x04\x00" + b"\x01\xff\xff\xff\x03\x03" + bytes(1018) + record * 512


def _tiny_records() -> bytes:
    """A ClientHello in records of one byte, again and again."""
    return b"".join(b"\x16\x03\x01\x00\x01" + bytes([each]) for each in _client_hello()[5:]) * 100


BEFORE_TLS = {
    "garbage": Random(1).randbytes(MIB),
    "zeros": bytes(MIB),
    "an endless ClientHello": _endless_hello(),
    "tiny records": _tiny_records(),
    "ClientHello again and again": _client_hello() * 5000,
    "alerts": b"\x15\x03\x01\x00\x02\x01\x00" * 100_000,
    "empty records": b"\x16\x03\x01\x00\x00" * 200_000,
    "a request without TLS": frame(API_VERSIONS) * 1000,
}


@pytest.mark.parametrize("name", BEFORE_TLS)
def test_bytes_before_the_handshake_are_not_kept(broker: BrokerProcess, strangers: Strangers, name: str) -> None:
    """An attacker would gain memory with handshakes that do not end (CVE-2025-26466's class)."""
    with memory_growth_below(broker, 8 * 512 * 1024 + NOISE):
        connections = [strangers.connect(tls=False) for _ in range(8)]
        for each in connections:
            _send(each, BEFORE_TLS[name])
        _use(broker)
    for each in connections:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_WR)
        assert _is_closed(each)


def test_unfinished_handshakes_and_half_frames_delay_no_client(broker: BrokerProcess, strangers: Strangers) -> None:
    """Connections that wait for more bytes cost no time."""
    hello = _client_hello()
    for number in range(100):
        _send(strangers.connect(tls=False), hello[: number % len(hello)])
    _use(broker)


PIECES = (
    API_VERSIONS,
    UNKNOWN_VERSION,
    HANDSHAKE,
    HANDSHAKE_0,
    request_header(17, 1, 1, "c") + b"\0\x0bOAUTHBEARER",
    request_header(17, 1, 1, None) + b"\0\x0dSCRAM-SHA-512",
    AUTHENTICATE + b"\x05\0a\0b\0",
    AUTHENTICATE + b"\x14n,,n=alice,r=nonce\0",
    AUTHENTICATE + b"\x1cn,,\1auth=Bearer a.b.c\1\1\0",
    b"n,,n=alice,r=nonce",
    METADATA + b"\0\0\0\0",
    b"",
)


def test_any_frames_end_in_an_answer_or_a_closed_connection(broker: BrokerProcess, strangers: Strangers) -> None:
    """Requests in any order, truncated or with changed bytes: none leads further than a client with a password."""
    random = Random(20)
    with memory_growth_below(broker, NOISE):
        for _ in range(120):
            connection = strangers.connect()
            for _ in range(random.randrange(1, 6)):
                piece = bytearray(random.choice(PIECES))
                for _ in range(random.choice((0, 0, 1, 3))):
                    if piece:
                        piece[random.randrange(len(piece))] = random.randrange(256)
                _send(connection, frame(bytes(piece[: random.choice((len(piece), random.randrange(len(piece) + 1)))])))
            _send(connection, frame(METADATA + b"\1\0\0\0") + struct.pack(">i", -1))
            assert b"odradek" not in _read(connection)
    _use(broker)


def _read(connection: socket.socket) -> bytes:
    """Everything until the end."""
    received = bytearray()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := connection.recv(65536):
            received += data
    return bytes(received)


def test_closed_connections_release_their_files(broker: BrokerProcess, strangers: Strangers) -> None:
    """Attackers do not use up the broker's descriptors."""
    folder = f"/proc/{broker.pid}/fd"
    begin = len(os.listdir(folder))
    connections = [strangers.connect() for _ in range(30)]
    for each in connections:
        _send(each, frame(METADATA))
        assert _is_closed(each)
        each.close()
    eventually(lambda: len(os.listdir(folder)), lambda count: count <= begin + 5)
