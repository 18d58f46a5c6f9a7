"""Timed requests to the brokers of one contestant: one blocking connection for each broker, one time for each request.

The time of a request runs from the first byte that leaves to the last byte of the response. A response with an error
that clients retry (a new topic without a leader yet, CONCURRENT_TRANSACTIONS) is not the end: the session repeats the
request at once, and the time runs until the broker has carried it out. Encoding and decoding are outside of the time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from odradek.wire import Wire, parse_address

TIMEOUT_S: Final = 60.0
RETRIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
VERSIONS: Final = {
    # The newest that Apache Kafka 3.9.2 has in ZooKeeper mode and that names topics and not their ids.
    m.ProduceRequest.API_KEY: 11,
    m.FetchRequest.API_KEY: 12,
    m.ListOffsetsRequest.API_KEY: 8,
    m.MetadataRequest.API_KEY: 12,
    m.OffsetCommitRequest.API_KEY: 8,
    m.OffsetFetchRequest.API_KEY: 8,
    m.FindCoordinatorRequest.API_KEY: 4,
    m.JoinGroupRequest.API_KEY: 9,
    m.HeartbeatRequest.API_KEY: 4,
    m.LeaveGroupRequest.API_KEY: 5,
    m.SyncGroupRequest.API_KEY: 5,
    m.DescribeGroupsRequest.API_KEY: 5,
    m.ListGroupsRequest.API_KEY: 4,
    m.ApiVersionsRequest.API_KEY: 3,
    m.CreateTopicsRequest.API_KEY: 7,
    m.DeleteTopicsRequest.API_KEY: 5,
    m.DeleteRecordsRequest.API_KEY: 2,
    m.InitProducerIdRequest.API_KEY: 4,
    m.OffsetForLeaderEpochRequest.API_KEY: 4,
    m.AddPartitionsToTxnRequest.API_KEY: 3,
    m.AddOffsetsToTxnRequest.API_KEY: 3,
    m.EndTxnRequest.API_KEY: 3,
    m.TxnOffsetCommitRequest.API_KEY: 3,
    m.DescribeConfigsRequest.API_KEY: 4,
    m.DescribeLogDirsRequest.API_KEY: 4,
    m.CreatePartitionsRequest.API_KEY: 3,
    m.DeleteGroupsRequest.API_KEY: 2,
    m.ElectLeadersRequest.API_KEY: 2,
    m.IncrementalAlterConfigsRequest.API_KEY: 1,
    m.AlterPartitionReassignmentsRequest.API_KEY: 0,
    m.ListPartitionReassignmentsRequest.API_KEY: 0,
    m.OffsetDeleteRequest.API_KEY: 0,
    m.DescribeClientQuotasRequest.API_KEY: 1,
    m.AlterClientQuotasRequest.API_KEY: 1,
    m.DescribeUserScramCredentialsRequest.API_KEY: 0,
    m.AlterUserScramCredentialsRequest.API_KEY: 0,
    m.DescribeClusterRequest.API_KEY: 0,
    m.DescribeProducersRequest.API_KEY: 0,
    m.DescribeTransactionsRequest.API_KEY: 0,
    m.ListTransactionsRequest.API_KEY: 0,
}


class Connection(Wire):
    """A connection whose requests can be sent and received apart. All methods raise OSError and ProtocolError."""

    def send(self, request: Any) -> float:
        """Send a request and return when its first byte left, in seconds of the monotonic clock."""
        version = VERSIONS[request.API_KEY]
        self._correlation_id += 1
        head = request_header(request.API_KEY, version, self._correlation_id, self._client_id)
        data = frame(head, *(bytes(part) for part in request.encode_parts(version)))
        began = time.perf_counter()
        self._socket.sendall(data)
        return began

    def receive(self, request: Any) -> tuple[Any, float]:
        """The response to the oldest request without one, and when its last byte arrived."""
        data = self._read(int.from_bytes(self._read(4), "big"))
        ended = time.perf_counter()
        version, response = VERSIONS[request.API_KEY], m.response_class(request.API_KEY)
        has_tags = version >= response.FIRST_FLEXIBLE and request.API_KEY != m.ApiVersionsRequest.API_KEY
        return response.decode(data, version, 5 if has_tags else 4), ended


class Session:
    """Connections to all brokers of one contestant. `times_ms` has the times of each API, in milliseconds, by name.

    The session pauses for `pause_s` before each timed request, as a client does that is not busy.
    """

    def __init__(self, bootstrap: str, pause_s: float = 0.0) -> None:
        """Connects to every broker that the first one names. Raises OSError."""
        self.times_ms: defaultdict[str, list[float]] = defaultdict(list)
        self._pause_s = pause_s
        self._open = ExitStack()
        with _connect(bootstrap.partition(",")[0]) as first:
            metadata = first.metadata()
        self.controller: int = metadata.controller_id
        self._addresses = {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}
        self.brokers = {
            number: self._open.enter_context(_connect(address)) for number, address in self._addresses.items()
        }

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def second_connection(self, broker: int) -> Connection:
        """Another connection to a broker, closed with the session."""
        return self._open.enter_context(_connect(self._addresses[broker]))

    def ask(self, name: str, broker: int, request: Any, accepted: ErrorCode = ErrorCode.NONE) -> Any:
        """Time a request until the broker has carried it out. Raises RuntimeError for an error that no client retries.

        An error that is `accepted` counts as success.
        """
        if self._pause_s:
            time.sleep(self._pause_s)
        answer, began, ended = self._until_done(broker, request, accepted)
        self.times_ms[name].append((ended - began) * 1000)
        return answer

    def prepare(self, broker: int, request: Any, accepted: ErrorCode = ErrorCode.NONE) -> Any:
        """The same without a time, for requests that a scenario needs before it begins."""
        return self._until_done(broker, request, accepted)[0]

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition, awaited where there is none yet."""
        request = m.MetadataRequest(
            topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        metadata = self.prepare(self.controller, request)
        partitions = metadata.topics[0].partitions
        leader: int = next(each.leader_id for each in partitions if each.partition_index == partition)
        return leader

    def coordinator(self, key: str, key_type: int) -> int:
        """The broker that coordinates a group (type 0) or a transactional id (type 1)."""
        request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        coordinator: int = self.prepare(self.controller, request).coordinators[0].node_id
        return coordinator

    def _until_done(self, broker: int, request: Any, accepted: ErrorCode) -> tuple[Any, float, float]:
        connection = self.brokers[broker]
        began = connection.send(request)
        answer, ended = connection.receive(request)
        while failed := [code for code in error_codes(answer) if code not in (ErrorCode.NONE, accepted)]:
            name = type(request).__name__
            if not RETRIED.issuperset(failed) or ended - began > TIMEOUT_S:
                raise RuntimeError(f"{name} at broker {broker}: {', '.join(ErrorCode(code).name for code in failed)}")
            connection.send(request)
            answer, ended = connection.receive(request)
        return answer, began, ended


def _connect(address: str) -> Connection:
    return Connection(*parse_address(address), timeout_s=TIMEOUT_S)


def error_codes(answer: Any) -> Iterator[int]:
    """Every error code of a response, wherever in it."""
    for name in answer.ATTRIBUTES:
        value = getattr(answer, name, None)
        if name.endswith("error_code"):  # AddPartitionsToTxn has partition_error_code
            yield int(value or 0)
        elif isinstance(value, list) and value and hasattr(value[0], "ATTRIBUTES"):
            for each in value:
                yield from error_codes(each)
