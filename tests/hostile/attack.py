"""Sends a hostile request to a broker beside a well-behaved client, and reports what it costs."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from odradek.protocol import messages as m
from odradek.wire import Wire
from tests.hostile.bystander import Bystander, Latencies
from tests.hostile.requests import GROUP, TOPIC, Hostile

QUIET_TOPIC: Final = "bystander"
CHUNK_BYTES: Final = 1 << 20
NO_OFFSETS: Final = 3
METADATA: Final = 12
CREATE_TOPICS: Final = 5
FIND_COORDINATOR: Final = 3
RECOVERY_S: Final = 120.0


class Target(Protocol):
    """A running broker: Odradek's or Apache Kafka."""

    @property
    def port(self) -> int: ...

    @property
    def pid(self) -> int: ...


class Outcome(NamedTuple):
    """What one request cost. `answer` is its size in bytes, or why there is none; `peak_bytes` is resident memory."""

    request: Hostile
    latencies: Latencies
    answer: str
    answered_s: float
    peak_bytes: int


def prepare(target: Target) -> bytes:
    """Create the topics and the group coordinator; returns the id of the topic that the requests name."""
    topics = [
        m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in (TOPIC, QUIET_TOPIC)
    ]
    with Wire("127.0.0.1", target.port, 30) as wire:
        wire.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=20_000), CREATE_TOPICS)
        deadline = time.monotonic() + 30
        while wire.ask(m.FindCoordinatorRequest(key=GROUP), FIND_COORDINATOR).error_code:
            assert time.monotonic() < deadline, "the broker has no group coordinator"
        asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        topic_id: bytes = wire.ask(asked, METADATA).topics[0].topic_id
        return topic_id


def versions(target: Target) -> dict[int, tuple[int, int]]:
    """The lowest and the highest version of every API that the broker has."""
    with Wire("127.0.0.1", target.port, 30) as wire:
        asked = m.ApiVersionsRequest(client_software_name="hostile", client_software_version="1")
        # The header of this response never has tags.
        data = wire.exchange(asked, NO_OFFSETS)
        answer = m.ApiVersionsResponse.decode(data, NO_OFFSETS, 4)
        return {
            each.api_key: (
                max(each.min_version, m.request_class(each.api_key).MIN_VERSION),
                min(each.max_version, m.request_class(each.api_key).MAX_VERSION),
            )
            for each in answer.api_keys
            if each.api_key in m.APIS
        }


def attack(
    target: Target, request: Hostile, timeout_s: float, connections: int = 1, recovery_s: float = RECOVERY_S
) -> Outcome:
    """Send the request on each of so many connections at the same time, and wait until the broker has answered it or
    closed the connection, at most `timeout_s`.

    Raises OSError where the broker does not answer the well-behaved client within `recovery_s`.
    """
    reset_peak(target.pid)
    with (
        _senders(target.port, request.frame, timeout_s, connections) as send,
        Bystander(target.port, target.pid, QUIET_TOPIC, recovery_s) as bystander,
    ):
        started = time.monotonic()
        answer = send()
        took_s = time.monotonic() - started
    return Outcome(request, bystander.latencies(), answer, took_s, peak_bytes(target.pid))


@contextlib.contextmanager
def _senders(port: int, frame: bytes, timeout_s: float, connections: int) -> Iterator[Callable[[], str]]:
    """A function that sends the frame on so many connections, and returns the answer on the first of them when all have
    theirs. A process of its own sends on several: here it would delay the well-behaved client.
    """
    if connections == 1:
        yield lambda: _answer(port, frame, timeout_s)
        return
    command = [sys.executable, "-m", "tests.hostile.attack", str(port), str(timeout_s), str(connections)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(struct.pack(">i", len(frame)) + frame)
        process.stdin.flush()
        process.stdout.readline()
        yield lambda: process.communicate(b"\n")[0].decode().strip()


@contextlib.contextmanager
def _connection(port: int, timeout_s: float) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as opened:
        yield opened


def _send_from_several(port: int, timeout_s: float, connections: int) -> None:
    """Read a frame, print a line, and send the frame on so many connections when a line comes."""
    (size,) = struct.unpack(">i", sys.stdin.buffer.read(4))
    frame = sys.stdin.buffer.read(size)
    print("ready", flush=True)
    sys.stdin.buffer.readline()
    with ThreadPoolExecutor(connections) as pool:
        senders = [pool.submit(_answer, port, frame, timeout_s) for _ in range(connections)]
        answers = Counter(sender.result() for sender in senders)
    [(answer, count), *others] = answers.most_common()
    print(answer if not others else f"{count} {answer}")


def _answer(port: int, frame: bytes, timeout_s: float) -> str:
    try:
        with _connection(port, timeout_s) as opened:
            opened.sendall(frame)
            head = _received(opened, 4)
            if len(head) < 4:
                return "closed"
            (size,) = struct.unpack(">i", head)
            read = _received(opened, size, keep=False)
            return f"{size:,} B" if len(read) or not size else "closed"
    except TimeoutError:
        return f"none in {timeout_s:g} s"
    except ConnectionError:
        return "closed"


def _received(opened: socket.socket, size: int, *, keep: bool = True) -> bytes:
    """`size` bytes; without `keep` only the last of them. Empty, or less, where the broker closed the connection."""
    data = b""
    left = size
    while left:
        chunk = opened.recv(min(left, CHUNK_BYTES))
        if not chunk:
            return b""
        left -= len(chunk)
        data = data + chunk if keep else chunk
    return data


def reset_peak(pid: int) -> None:
    with contextlib.suppress(OSError):  # a container may not allow it; the peak is then that of the process' life
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    _send_from_several(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
