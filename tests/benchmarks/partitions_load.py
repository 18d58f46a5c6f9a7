"""Writes batches at a steady rate to every partition of two topics in turn: the load of `python -m tests soak stalls`.

python -m tests.benchmarks.partitions_load PORT SECONDS PARTITIONS
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from typing import Final

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.protocol.framing import frame, request_header
from odradek.ready_process import HOST

BYTES_PER_S: Final = 50_000_000
BATCH_BYTES: Final = 64_000
RECORD_BYTES: Final = 1_000
COMPACTED, SHORTENED = "compacted", "shortened"
PRODUCE: Final = 9
CORRELATION_AND_TAGS: Final = 5
TIME_MS: Final = 1_700_000_000_000


def produce_request(topic: str, partition: int, batch: bytes) -> m.ProduceRequest:
    """A request with one batch."""
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return m.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)


def write(port: int, seconds: float, partitions: int) -> None:
    """The load of the others: at most BYTES_PER_S. Prints how much it was. Raises RuntimeError for an error."""
    count = BATCH_BYTES // RECORD_BYTES
    records = [Record(at, TIME_MS, b"%d" % at, os.urandom(RECORD_BYTES // 2) * 2) for at in range(count)]
    batch = bytes(build(records))
    requests = [
        frame(
            request_header(m.ProduceRequest.API_KEY, PRODUCE, 1, "others"),
            produce_request(topic, at, batch).encode(PRODUCE),
        )
        for at in range(partitions)
        for topic in (COMPACTED, SHORTENED)
    ]
    with socket.create_connection((HOST, port), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began, written = time.perf_counter(), 0
        for request in itertools.cycle(requests):
            passed = time.perf_counter() - began
            if passed > seconds:
                break
            time.sleep(max(0.0, written / BYTES_PER_S - passed))
            connection.sendall(request)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            data = connection.recv(size, socket.MSG_WAITALL)
            answer = m.ProduceResponse.decode(data, PRODUCE, CORRELATION_AND_TAGS).responses[0].partition_responses[0]
            if answer.error_code:
                raise RuntimeError(f"the broker refused a batch: {answer}")
            written += len(batch)
    print(f"the others wrote {written / 1e6 / passed:.1f} MB a second to {len(requests):,} partitions")


if __name__ == "__main__":
    write(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
