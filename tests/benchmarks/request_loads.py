"""Small requests from one light process: prepared frames over plain sockets, sent again for each answer.

Of an answer only the length is read while the load runs. Afterwards the last answer of each connection is decoded, and
must have no error. From request to request only the epoch of a fetch session changes, and the sequence number of an
idempotent batch; some connections have several requests, which take turns (`request_transactions`).
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.protocol.checksum import crc32c
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header, response_header
from odradek.wire import Wire, parse_address
from tests.benchmarks.crowd_loads import TIMEOUT_S, batch_of

RECORD_BYTES: Final = 100
LONG_POLL_MS: Final = 50
NEW_SESSION: Final = 0
CHECKED_FROM: Final = 21
SEQUENCE_AT: Final = 53
"""Places in a batch: the first byte behind its checksum, and its base sequence."""
NOT_READY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_EPOCH_TO_REPLACE: Final = 0x01020304
_POLL_S: Final = 0.02


Renew = Callable[[bytearray, int], None]
"""Changes a frame to that of the request of this number, from 0 on."""


class Prepared(NamedTuple):
    """A request that one connection repeats, renewed each time where it has to be another one."""

    frame: bytearray
    response: type[Any]
    version: int
    renew: Renew | None = None
    others: tuple[Prepared, ...] = ()
    """The requests that follow this one, before it is sent again."""
    checks_all: bool = False
    """Whether every answer is decoded, of a request whose error would cost less than its success."""


def prepared(request: Any, version: int) -> Prepared:
    """The request as a frame."""
    head = request_header(request.API_KEY, version, 1, "bench")
    whole = bytearray(frame(head, request.encode(version)))
    return Prepared(whole, m.response_class(request.API_KEY), version)


# ---- the requests


def produce(bootstrap: str, topic: str, number: int) -> Prepared:
    """One record of RECORD_BYTES, acks=1."""
    return _produce(topic, batch_of(1, RECORD_BYTES), acks=1)


def produce_idempotent(bootstrap: str, topic: str, number: int) -> Prepared:
    """The same with a producer id and acks=all, as the Java producer sends it by default."""
    init = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    producer = ask_ready(bootstrap, init, 3)
    record = Record(0, time.time_ns() // 1_000_000, None, bytes(RECORD_BYTES))
    batch = build([record], producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0)
    request = _produce(topic, batch, acks=-1)
    start = request.frame.index(batch)
    end = start + len(batch)

    def renew(whole: bytearray, count: int) -> None:
        whole[start + SEQUENCE_AT : start + SEQUENCE_AT + 4] = count.to_bytes(4, "big")
        checksum = crc32c(memoryview(whole)[start + CHECKED_FROM : end])
        whole[start + CHECKED_FROM - 4 : start + CHECKED_FROM] = checksum.to_bytes(4, "big")

    return request._replace(renew=renew)


def _produce(topic: str, batch: bytes | bytearray, acks: int) -> Prepared:
    data = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return prepared(m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), 9)


def fetch_idle(bootstrap: str, topic: str, number: int) -> Prepared:
    """The next fetch of a session without new records, answered at once."""
    return _fetch(bootstrap, topic, max_wait_ms=0)


def fetch_long_poll(bootstrap: str, topic: str, number: int) -> Prepared:
    """The next fetch of a session without new records, answered after LONG_POLL_MS."""
    return _fetch(bootstrap, topic, max_wait_ms=LONG_POLL_MS)


def fetch_batch(bootstrap: str, topic: str, number: int) -> Prepared:
    """A fetch of a session that reads one batch of one record."""
    return _fetch(bootstrap, topic, max_wait_ms=0, from_start=True)


def metadata(bootstrap: str, topic: str, number: int) -> Prepared:
    """Metadata of one topic."""
    topics = [m.MetadataRequest.MetadataRequestTopic(name=topic)]
    return prepared(m.MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)


def list_offsets(bootstrap: str, topic: str, number: int) -> Prepared:
    """The end offset of one partition."""
    partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    return prepared(m.ListOffsetsRequest(topics=topics), 7)


Prepare = Callable[[str, str, int], Prepared]
"""Makes the request of a connection from the address of the broker, a topic and the number of the connection."""


def _fetch(bootstrap: str, topic: str, *, max_wait_ms: int, from_start: bool = False) -> Prepared:
    """A session of the topic, and its next fetch."""
    version = 11
    with Wire(*parse_address(bootstrap)) as wire:
        offsets = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        asked = m.ListOffsetsRequest(topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[offsets])])
        end = wire.ask(asked, 7).topics[0].partitions[0].offset
        partition = m.FetchRequest.FetchPartition(
            partition=0, fetch_offset=0 if from_start else end, partition_max_bytes=1 << 20
        )
        topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
        first = m.FetchRequest(min_bytes=1, max_bytes=1 << 20, session_epoch=NEW_SESSION, topics=topics)
        session = wire.ask(first, version).session_id
    if not session:
        raise RuntimeError("the broker keeps no fetch session")
    request = m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session,
        session_epoch=_EPOCH_TO_REPLACE,
        topics=topics if from_start else [],
    )
    whole = prepared(request, version)
    at = whole.frame.index(_EPOCH_TO_REPLACE.to_bytes(4, "big"))

    def renew(frame: bytearray, count: int) -> None:
        frame[at : at + 4] = (count + 1).to_bytes(4, "big")

    return whole._replace(renew=renew)


def ask_ready(
    bootstrap: str, request: Any, version: int, code_of: Callable[[Any], int] = lambda answer: int(answer.error_code)
) -> Any:
    """The answer, once the coordinator is ready. Raises RuntimeError for any other error."""
    deadline = time.monotonic() + TIMEOUT_S
    with Wire(*parse_address(bootstrap)) as wire:
        while True:
            answer = wire.ask(request, version)
            code = code_of(answer)
            if code == ErrorCode.NONE:
                return answer
            if code not in NOT_READY or time.monotonic() > deadline:
                raise RuntimeError(f"{type(request).__name__}: {ErrorCode(code).name}")
            time.sleep(_POLL_S)


# ---- the load


class Conversation:
    """One connection: sends its requests in turn, the next one for each answer."""

    def __init__(self, bootstrap: str, request: Prepared) -> None:
        self._requests = (request, *request.others)
        self._sent = self._answered = 0
        self._waiting = b""
        self._last = b""
        self._checks_all = request.checks_all
        self.socket = socket.create_connection(parse_address(bootstrap), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, count: int) -> None:
        """Send the next `count` requests; at once where they are all the same."""
        first = self._requests[0]
        if count > 1 and len(self._requests) == 1 and first.renew is None:
            self._sent += count
            self.socket.sendall(first.frame * count)
            return
        for _ in range(count):
            turn, number = divmod(self._sent, len(self._requests))
            request = self._requests[number]
            if request.renew is not None:
                request.renew(request.frame, turn)
            self._sent += 1
            self.socket.sendall(request.frame)

    def receive(self) -> int:
        """Read what there is; returns the number of answers. Raises ConnectionError, and RuntimeError for an error in
        an answer if all are checked.
        """
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the broker closed a connection")
        data, at, count = self._waiting + data, 0, 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            self._last, at, count = data[at + 4 : end], end, count + 1
            self._answered += 1
            if self._checks_all:
                self.check()
        self._waiting = data[at:]
        return count

    def check(self) -> None:
        """Raises RuntimeError for an error in the last answer."""
        request = self._requests[(self._answered - 1) % len(self._requests)]
        start = len(response_header(request.response.API_KEY, request.version, 0))
        answer = request.response.decode(self._last, request.version, start)
        codes: list[int] = []
        request.response.errors_reporter()(answer, codes.append)
        if codes:
            raise RuntimeError(f"{request.response.__name__}: {ErrorCode(codes[0]).name}")


def repeat(bootstrap: str, requests: Sequence[Prepared], in_flight: int, count: int) -> Mapping[str, float]:
    """Send `count` requests in all, `in_flight` at a time on each connection; returns how many a second were answered.

    Raises RuntimeError for an error, TimeoutError where no answer comes within TIMEOUT_S.
    """
    with ExitStack() as stack:
        poller = stack.enter_context(select.epoll())
        conversations: dict[int, Conversation] = {}
        for request in requests:
            conversation = Conversation(bootstrap, request)
            stack.callback(conversation.socket.close)
            conversations[conversation.socket.fileno()] = conversation
            poller.register(conversation.socket, select.EPOLLIN)
        began, sent, answered = time.perf_counter(), 0, 0
        for conversation in conversations.values():
            conversation.send(in_flight)
            sent += in_flight
        while answered < sent:
            ready = poller.poll(TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"{answered} of {sent} requests are answered")
            for descriptor, _ in ready:
                conversation = conversations[descriptor]
                found = conversation.receive()
                answered += found
                again = min(found, count - sent)
                if again > 0:
                    conversation.send(again)
                    sent += again
        elapsed_s = time.perf_counter() - began
        for conversation in conversations.values():
            conversation.check()
    return {"requests": sent, "requests_per_s": sent / elapsed_s}
