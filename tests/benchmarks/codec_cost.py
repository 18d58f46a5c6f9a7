"""What a codec costs in process: a request decoded and its response encoded, in C and by the generated functions.

    python -m tests.benchmarks.codec_cost [--rounds N] [--calls N]

Both take turns; the least CPU time of all rounds counts, because other processes only add to it. Each request is a view
into a receive buffer, behind a header, as the dispatcher passes it on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol import programs
from odradek.protocol.decoding import decoder
from odradek.protocol.encoded import EncodedArray
from odradek.protocol.encoding import encoder
from odradek.protocol.grammar import parse

HEADER: Final = bytes(30)
RECORDS: Final = memoryview(bytes(168))
"""A batch of one record of 100 bytes."""
MEMBER: Final = "consumer-1-6f0ff3a5-7e43-4d0b-9c2a-0d0f4b1f3d6e"
TOPIC: Final = "perf-topic"
TOPIC_ID: Final = b"t" * 16


class Exchanged(NamedTuple):
    """A request with its response, in a version."""

    request: Any
    response: Any
    version: int


def produce() -> Exchanged:
    data = m.ProduceRequest.PartitionProduceData(records=RECORDS)
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
    written = m.ProduceResponse.PartitionProduceResponse(base_offset=12_345_678, log_start_offset=0)
    answered = m.ProduceResponse.TopicProduceResponse(name=TOPIC, partition_responses=[written])
    return Exchanged(m.ProduceRequest(acks=-1, topic_data=[topic]), m.ProduceResponse(responses=[answered]), 9)


def fetch() -> Exchanged:
    partition = m.FetchRequest.FetchPartition(fetch_offset=1_000_000, partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])
    data = m.FetchResponse.PartitionData(high_watermark=1_000_001, last_stable_offset=1_000_001, records=RECORDS)
    answered = m.FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
    request = m.FetchRequest(max_wait_ms=500, session_id=5, session_epoch=3, topics=[topic])
    return Exchanged(request, m.FetchResponse(session_id=5, responses=[answered]), 13)


def heartbeat() -> Exchanged:
    return Exchanged(m.HeartbeatRequest(group_id="group", member_id=MEMBER), m.HeartbeatResponse(), 4)


def offset_commit() -> Exchanged:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1_234_567)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    committed = m.OffsetCommitResponse.OffsetCommitResponsePartition()
    answered = m.OffsetCommitResponse.OffsetCommitResponseTopic(name=TOPIC, partitions=[committed])
    request = m.OffsetCommitRequest(group_id="group", member_id=MEMBER, topics=[topic])
    return Exchanged(request, m.OffsetCommitResponse(topics=[answered]), 8)


def metadata() -> Exchanged:
    partition = m.MetadataResponse.MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
    topic = m.MetadataResponse.MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
    brokers = [m.MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)]
    encoded = EncodedArray([topic.encoded(12)], 12)
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    return Exchanged(request, m.MetadataResponse(brokers=brokers, cluster_id=MEMBER[:22], topics=encoded), 12)


KINDS: Final[Mapping[str, Callable[[], Exchanged]]] = {
    "produce": produce,
    "fetch": fetch,
    "heartbeat": heartbeat,
    "offset commit": offset_commit,
    "metadata": metadata,
}


def generated(message: type[Any], version: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The generated decoder and encoder of a message."""
    definition = parse(m.texts()[message.__name__].read_text(encoding="utf-8"))[message.__name__]
    classes = {message.__name__: message} | {name: getattr(message, name) for name in definition.structs}
    return decoder(definition, version, classes), encoder(definition, definition.root, version, classes)


def least_us(calls: Sequence[Callable[[], object]], rounds: int, count: int) -> list[float]:
    """The least CPU time of each call in microseconds; the calls take turns."""
    least = [float("inf")] * len(calls)
    for _ in range(rounds):
        for place, call in enumerate(calls):
            began_ns = time.thread_time_ns()
            for _ in range(count):
                call()
            least[place] = min(least[place], (time.thread_time_ns() - began_ns) / count / 1000)
    return least


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a row for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=3_000)
    options = parser.parse_args(arguments)
    if programs.codecs is programs.generated:
        print("the C extension is missing: both columns are the generated functions")
    print(f"{'us of CPU':<16}{'decode':>16}{'encode':>16}{'both':>16}{'ratio':>8}")
    for name, make in KINDS.items():
        request, response, version = make()
        data = memoryview(HEADER + request.encode(version))
        decode_in_c, encode_in_c = type(request).DECODERS[version], type(response).ENCODERS[version]
        decode, _ = generated(type(request), version)
        _, encode = generated(type(response), version)
        calls = (
            lambda decode=decode, data=data: decode(data, len(HEADER)),
            lambda decode=decode_in_c, data=data: decode(data, len(HEADER)),
            lambda encode=encode, response=response: encode(response, bytearray(9)),
            lambda encode=encode_in_c, response=response: encode(response, bytearray(9)),
        )
        d, d_c, e, e_c = least_us(calls, options.rounds, options.calls)
        columns = (f"{before:.2f} > {after:.2f}" for before, after in ((d, d_c), (e, e_c), (d + e, d_c + e_c)))
        print(f"{name:<16}{''.join(f'{column:>16}' for column in columns)}{(d_c + e_c) / (d + e):>8.2f}", flush=True)


if __name__ == "__main__":
    main()
