"""A response in a form in which two brokers can be compared: everything that they cannot have in common gets a name.

Ids (of topics, producers, members, sessions, clusters, directories) get a name by the order in which they appear, so it
still counts which id is in which field. A moment of today is "now", the broker's own port "own", those of a cluster by
the broker's id, the size of a disk "some"; error messages are compared only for presence. Records are parsed: every
batch with its header and its records.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Mapping
from typing import Any, Final

from odradek.protocol import batch
from odradek.protocol import messages as m
from odradek.protocol.classes import Struct
from odradek.protocol.errors import KafkaError, ProtocolError

CLOSED: Final = "the connection ends without an answer"
SILENT: Final = "no answer, and the connection goes on"

IDS: Final = {
    "topic_id": bytes(16),
    "producer_id": -1,
    "producer_id_start": -1,
    "member_id": "",
    "leader": "",
    "cluster_id": "",
    "session_id": 0,
    "log_dir": "",
    "token_id": "",
    "hmac": b"",
}
"""Fields that hold an id, with the value for none."""
KINDS: Final = {"leader": "member_id", "producer_id_start": "producer_id"}
MESSAGES: Final = frozenset({"error_message", "batch_index_error_message"})
SIZES: Final = frozenset({"total_bytes", "usable_bytes"})
DAY_MS: Final = 86_400_000
MESSAGE: Final = struct.Struct(">qiIbb")
"""Offset, size, checksum, magic and attributes of a message of a message set."""
FILLER: Final = b"\xff" * 8
"""The bytes after the last message in the response to an old Fetch, which are no message: an offset of -1."""

HASHED: Final = frozenset(
    """
    AddPartitionsToTxnResponse.results_by_topic_v3_and_below
    AddPartitionsToTxnResponse.results_by_topic_v3_and_below.results_by_partition
    AddPartitionsToTxnResponse.results_by_transaction
    AddPartitionsToTxnResponse.results_by_transaction.topic_results
    AddPartitionsToTxnResponse.results_by_transaction.topic_results.results_by_partition
    AlterClientQuotasResponse.entries
    AlterConfigsResponse.responses
    AlterPartitionReassignmentsResponse.responses
    AlterPartitionReassignmentsResponse.responses.partitions
    AlterReplicaLogDirsResponse.results
    AlterReplicaLogDirsResponse.results.partitions
    AlterUserScramCredentialsResponse.results
    CreateTopicsResponse.topics
    CreateTopicsResponse.topics.configs
    DeleteAclsResponse.filter_results.matching_acls
    DeleteRecordsResponse.topics
    DeleteRecordsResponse.topics.partitions
    DescribeAclsResponse.resources
    DescribeAclsResponse.resources.acls
    DescribeClientQuotasResponse.entries
    DescribeClientQuotasResponse.entries.entity
    DescribeClientQuotasResponse.entries.values
    DescribeClusterResponse.brokers
    DescribeConfigsResponse.results
    DescribeConfigsResponse.results.configs
    DescribeGroupsResponse.groups.members
    DescribeLogDirsResponse.results.topics
    DescribeLogDirsResponse.results.topics.partitions
    DescribeProducersResponse.topics.partitions.active_producers
    DescribeTransactionsResponse.transaction_states.topics.partitions
    DescribeUserScramCredentialsResponse.results
    DescribeUserScramCredentialsResponse.results.credential_infos
    ElectLeadersResponse.replica_election_results
    ElectLeadersResponse.replica_election_results.partition_result
    IncrementalAlterConfigsResponse.responses
    JoinGroupResponse.members
    ListGroupsResponse.groups
    ListTransactionsResponse.transaction_states
    MetadataResponse.brokers
    MetadataResponse.topics
    MetadataResponse.topics.partitions
    OffsetCommitResponse.topics
    OffsetCommitResponse.topics.partitions
    OffsetDeleteResponse.topics
    OffsetDeleteResponse.topics.partitions
    OffsetFetchResponse.groups.topics
    OffsetFetchResponse.groups.topics.partitions
    OffsetFetchResponse.topics
    OffsetFetchResponse.topics.partitions
    ProduceResponse.responses
    ProduceResponse.responses.partition_responses
    TxnOffsetCommitResponse.topics
    TxnOffsetCommitResponse.topics.partitions
    WriteTxnMarkersResponse.markers
    WriteTxnMarkersResponse.markers.topics
    WriteTxnMarkersResponse.markers.topics.partitions
    """.split()  # noqa: SIM905 - a column is easier to read and to sort
)
"""Lists that Kafka returns in the order of a hash table. No client can rely on it; they are sorted and then compared.
"""

ABOUT: Final = (
    *("topic", "name", "topic_name", "partition_index", "partition", "partition_id", "index", "group_id", "key"),
    *("resource_type", "resource_name", "transactional_id", "user", "feature", "api_key"),
)
"""Fields that identify a structure in a list."""


class Names:
    """Names for ids, in the order in which they appear."""

    def __init__(self, ports: Mapping[int, str]) -> None:
        """`ports` gives the ports of brokers their names."""
        self.ports = ports
        self._known: dict[str, dict[Any, str]] = {}

    def of(self, kind: str, value: Any) -> str:
        """The name of an id."""
        known = self._known.setdefault(kind, {})
        return known.setdefault(value, f"{kind}#{len(known) + 1}")

    def known(self, structure: Any) -> str:
        """The names that the ids in a structure have already."""
        if not isinstance(structure, dict):
            return ""
        kinds = [name for name in structure if name in IDS]
        return repr([self._known.get(KINDS.get(name, name), {}).get(structure[name]) for name in kinds])


def plain(answer: Any, names: Names) -> Any:
    """A response as dictionaries, lists and values."""
    if not isinstance(answer, Struct):
        return answer
    if isinstance(answer, m.DescribeLogDirsResponse):
        _hide_own_topics(answer)
    return _named(_ordered(answer, type(answer).__name__, names), names)


def _hide_own_topics(answer: m.DescribeLogDirsResponse) -> None:
    """The sizes of a broker's own topics are not compared."""
    for result in answer.results:
        for topic in result.topics:
            if topic.name.startswith("__"):
                for partition in topic.partitions:
                    partition.partition_size = 0


def _ordered(struct: Struct, path: str, names: Names) -> dict[str, Any]:
    """The fields of a structure, lists without order sorted by the fields that are no id."""
    fields: dict[str, Any] = {}
    for name in struct.ATTRIBUTES:
        value = getattr(struct, name)
        if isinstance(value, Struct):
            value = _ordered(value, f"{path}.{name}", names)
        elif isinstance(value, list):
            within = f"{path}.{name}"
            value = [_ordered(each, within, names) if isinstance(each, Struct) else each for each in value]
            if within in HASHED and len(value) > 1:
                value.sort(key=lambda each: (_without_ids(each), names.known(each)))
        elif name == "records":
            value = _records(value)
        fields[name] = value
    if struct.unknown_tagged_fields:
        fields["unknown_tagged_fields"] = struct.unknown_tagged_fields
    return fields


def _without_ids(value: Any) -> str:
    """The sort key of a structure: its identifying fields, then all the rest of it."""
    if isinstance(value, dict):
        about = [value.get(name) for name in ABOUT if name in value]
        return repr([about, *((name, _without_ids(each)) for name, each in value.items() if name not in IDS)])
    if isinstance(value, list):
        return repr([_without_ids(each) for each in value])
    return repr(value)


def _named(value: Any, names: Names, field: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _named(each, names, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_named(each, names, field) for each in value]
    if field in IDS:
        return value if value is None or value == IDS[field] else names.of(KINDS.get(field, field), value)
    if field in MESSAGES:
        return None if value is None else "said"
    if field in SIZES and value > 0:
        return "some"
    if field == "port" and value in names.ports:
        return names.ports[value]
    if isinstance(value, str) and value.startswith("LISTENER"):
        return value
    if type(value) is int and abs(value - time.time() * 1000) < DAY_MS:
        return "now"
    return value


def _records(data: Any) -> Any:
    """The batches of a fetch, and the number of bytes behind the last whole one."""
    if data is None:
        return None
    found: list[Any] = []
    position = 0
    data = bytes(data)
    while len(data) - position > batch.HEADER_SIZE and data[position + 16] == batch.MAGIC:
        header = batch.read_header(data, position)
        if position + header.size > len(data):
            break
        fields = {name: value for name, value in header._asdict().items() if name != "crc"}
        fields["checksum holds"] = batch.crc_ok(data, position, header)
        try:
            fields["content"] = [record._asdict() for record in batch.records(data, position)]
        except (ProtocolError, KafkaError) as error:
            fields["content"] = f"unreadable: {error}"
        found.append(fields)
        position += header.size
    return found + _messages(data[position:])


def _messages(data: bytes) -> list[Any]:
    """The messages of magic 0 and 1, those inside of a compressed one included; the rest stays bytes."""
    found: list[Any] = []
    position = 0
    while len(data) - position >= MESSAGE.size:
        offset, size, crc, magic, attributes = MESSAGE.unpack_from(data, position)
        end = position + 12 + size
        if magic > 1 or end > len(data):
            break
        fields = {"offset": offset, "magic": magic, "attributes": attributes}
        at = position + MESSAGE.size
        if magic:
            (fields["timestamp"],) = struct.unpack_from(">q", data, at)
            at += 8
        for name in ("key", "value"):
            (length,) = struct.unpack_from(">i", data, at)
            fields[name] = None if length < 0 else data[at + 4 : at + 4 + length]
            at += 4 + max(0, length)
        fields["checksum holds"] = crc == zlib.crc32(data[position + 16 : end])
        if attributes & 7 == 1:
            fields["value"] = _messages(zlib.decompress(fields["value"], wbits=31))
        found.append(fields)
        position = end
    rest = data[position:]
    if rest.startswith(FILLER):
        rest = FILLER  # it makes up for the bytes that conversion saves, which depends on the compression ratio
    return [*found, {"rest": rest}] if rest else found


def differences(ours: Any, theirs: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """The differences of two responses, as (path, Odradek's, Kafka's); the path of an element of a list has no
    number.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for name in dict.fromkeys([*ours, *theirs]):
            found += differences(ours.get(name), theirs.get(name), f"{path}.{name}" if path else name)
        return found
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) == len(theirs):
            return [each for pair in zip(ours, theirs, strict=True) for each in differences(*pair, f"{path}[]")]
        return [(path, _beyond(ours, theirs), _beyond(theirs, ours))]
    return [] if ours == theirs else [(path, ours, theirs)]


def _beyond(some: list[Any], others: list[Any]) -> list[Any]:
    """The elements that only the first list has."""
    left = list(others)
    found = []
    for each in some:
        if each in left:
            left.remove(each)
        else:
            found.append(each)
    return found
