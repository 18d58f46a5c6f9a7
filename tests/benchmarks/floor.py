"""The lower bound: the least that a Python process has to do for a producer in a produce path.

A connection reads into one buffer that it keeps (uvloop, `BufferedProtocol`), unpacks the Produce header in place,
checks each batch's CRC-32C, writes the base offset and the leader epoch into the received bytes, writes the batch to
the log with one system call and answers. There is no broker around it: no topics to create, no fetch, no index, no
producer state, no roll, no limits. The cost of a broker is its cost above this one.

It implements just enough for the stock Java producer: ApiVersions, Metadata 5, Produce 8 and InitProducerId 1, the last
versions before flexible encodings (KIP-482) or nearly so, with the request header of version 1. Every topic exists and
has the number of partitions in the command line. Any other request, or a batch with a bad CRC, closes the connection.

    python -m tests.benchmarks.floor PORT DIRECTORY PARTITIONS
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from pathlib import Path
from typing import cast

import uvloop
from crc32c import crc32c

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
SUPPORTED = ((PRODUCE, 8, 8), (METADATA, 5, 5), (API_VERSIONS, 0, 3), (INIT_PRODUCER_ID, 1, 1))
UNSUPPORTED_VERSION = 35
FIRST_CAPACITY = 256 * 1024  # bytes; small enough to stay in the processor's cache, grown to the largest frame seen

SIZE = struct.Struct(">i")
LENGTH = struct.Struct(">h")
REQUEST_HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
PRODUCE_HEADER = struct.Struct(">hii")  # acks, timeout, number of topics; follows the transactional id
PARTITION_HEADER = struct.Struct(">ii")  # index, size of the records
BATCH_STAMP = struct.Struct(">qii")  # base offset, length after this field, leader epoch: all outside the CRC
BATCH_CHECK = struct.Struct(">bIhi")  # magic, CRC-32C, attributes, last offset delta; 16 bytes into a batch
CHECKED_FROM = 21  # the CRC covers a batch from its attributes on
PARTITION_ANSWER = struct.Struct(">ihqqqih")  # index, error, base offset, append time, log start, no errors, no message


class Partition:
    """One log file and the offset that its next record gets."""

    __slots__ = ("descriptor", "next_offset")

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.descriptor = os.open(folder / f"{0:020d}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.next_offset = 0

    def append(self, buffer: bytearray, batch: memoryview, start: int) -> int:
        """Check, stamp and write the batch that lies in `buffer` from `start`; return its base offset.

        Raises ValueError when magic, length or CRC are wrong.
        """
        magic, crc, _, last_offset_delta = BATCH_CHECK.unpack_from(buffer, start + 16)
        if magic != 2 or crc32c(batch[CHECKED_FROM:]) != crc:
            raise ValueError(f"not a sound batch of magic 2: magic {magic}, CRC {crc:#x}")
        base_offset = self.next_offset
        BATCH_STAMP.pack_into(buffer, start, base_offset, len(batch) - 12, 0)
        os.write(self.descriptor, batch)
        self.next_offset = base_offset + last_offset_delta + 1
        return base_offset


class Logs:
    """All partitions of all topics; each is created at its first write."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.partition_count = partitions
        self._directory = directory
        self._partitions: dict[tuple[bytes, int], Partition] = {}

    def partition(self, topic: bytes, index: int) -> Partition:
        key = (topic, index)
        found = self._partitions.get(key)
        if found is None:
            found = self._partitions[key] = Partition(self._directory / f"{topic.decode()}-{index}")
        return found


class Connection(asyncio.BufferedProtocol):
    """One client: frames out of the kept buffer, one answer for each."""

    def __init__(self, logs: Logs, port: int) -> None:
        self._logs = logs
        self._port = port
        self._buffer = bytearray(FIRST_CAPACITY)
        self._view = memoryview(self._buffer)
        self._start = 0  # of the first frame not answered yet
        self._end = 0  # of the bytes received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports only have the same methods

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        start, end = self._start, self._end + nbytes
        frame_end = 0
        while end - start >= 4:
            frame_end = start + 4 + SIZE.unpack_from(self._buffer, start)[0]
            if frame_end > end:
                break
            self._answer(start + 4)
            start = frame_end
        if start == end:
            start = end = 0
        elif max(frame_end, start + 4) > len(self._buffer):
            start, end = 0, self._make_room(start, end, frame_end - start)
        self._start, self._end = start, end

    def _make_room(self, start: int, end: int, frame_size: int) -> int:
        """Move the unfinished frame to the front, of a larger buffer if it needs one; return where it ends now."""
        source = self._view[start:end]
        if frame_size > len(self._buffer):
            self._buffer = bytearray(frame_size)
            self._view = memoryview(self._buffer)
        self._view[: end - start] = source
        return end - start

    def _answer(self, at: int) -> None:
        key, version, correlation_id, client_id_length = REQUEST_HEADER.unpack_from(self._buffer, at)
        at += REQUEST_HEADER.size + max(client_id_length, 0)
        if key == PRODUCE:
            body = self._produce(at)
        elif key == METADATA:
            body = self._metadata(at)
        elif key == API_VERSIONS:
            body = api_versions(version)
        elif key == INIT_PRODUCER_ID:
            body = struct.pack(">ihqh", 0, 0, 1, 0)  # throttle time, error, producer id, epoch
        else:
            raise ValueError(f"the floor has no API {key}")
        if body:
            self._transport.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def _produce(self, at: int) -> bytes:
        buffer, view = self._buffer, self._view
        at += 2 + max(LENGTH.unpack_from(buffer, at)[0], 0)
        acks, _, topic_count = PRODUCE_HEADER.unpack_from(buffer, at)
        at += PRODUCE_HEADER.size
        answer: list[bytes | memoryview] = [SIZE.pack(topic_count)]
        for _ in range(topic_count):
            name_end = at + 2 + LENGTH.unpack_from(buffer, at)[0]
            topic = bytes(view[at + 2 : name_end])
            partition_count = SIZE.unpack_from(buffer, name_end)[0]
            answer.append(view[at : name_end + 4])  # the name and the count, as they came
            at = name_end + 4
            for _ in range(partition_count):
                index, size = PARTITION_HEADER.unpack_from(buffer, at)
                at += PARTITION_HEADER.size
                base_offset = self._logs.partition(topic, index).append(buffer, view[at : at + size], at)
                at += size
                answer.append(PARTITION_ANSWER.pack(index, 0, base_offset, -1, 0, 0, -1))
        answer.append(SIZE.pack(0))  # throttle time
        return b"".join(answer) if acks else b""

    def _metadata(self, at: int) -> bytes:
        buffer = self._buffer
        topic_count = max(SIZE.unpack_from(buffer, at)[0], 0)
        at += 4
        host = b"127.0.0.1"
        answer: list[bytes | memoryview] = [
            # throttle time; one broker: id 0, host and port, no rack; no cluster id; controller 0
            struct.pack(f">iiih{len(host)}sih", 0, 1, 0, len(host), host, self._port, -1),
            struct.pack(">hii", -1, 0, topic_count),
        ]
        count = self._logs.partition_count
        for _ in range(topic_count):
            name_end = at + 2 + LENGTH.unpack_from(buffer, at)[0]
            answer += [struct.pack(">h", 0), self._view[at:name_end], struct.pack(">?i", False, count)]
            at = name_end
            for index in range(count):
                # no error; index; leader; replicas; ISR; no offline replicas
                answer.append(struct.pack(">hiiiiiii", 0, index, 0, 1, 0, 1, 0, 0))
        return b"".join(answer)


def api_versions(version: int) -> bytes:
    """The response to ApiVersions. For a version above 3 a client gets version 0 and an error, and retries
    (KIP-511).
    """
    flexible = version == 3
    if flexible:
        entries = struct.pack(">B", len(SUPPORTED) + 1) + b"".join(struct.pack(">hhhB", *api, 0) for api in SUPPORTED)
        return struct.pack(">h", 0) + entries + struct.pack(">iB", 0, 0)
    error = UNSUPPORTED_VERSION if version > 3 else 0
    entries = struct.pack(">i", len(SUPPORTED)) + b"".join(struct.pack(">hhh", *api) for api in SUPPORTED)
    return struct.pack(">h", error) + entries + (struct.pack(">i", 0) if version in (1, 2) else b"")


async def serve(port: int, directory: Path, partitions: int) -> None:
    """Serve at 127.0.0.1:`port` until SIGTERM or SIGINT, with the logs in `directory`."""
    loop = asyncio.get_running_loop()
    logs = Logs(directory, partitions)
    server = await loop.create_server(lambda: Connection(logs, port), "127.0.0.1", port)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
