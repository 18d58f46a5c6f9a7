"""Encoders and decoders: literal bytes, views instead of copies, and errors that name the position."""

from __future__ import annotations

import linecache
import random
import traceback
import tracemalloc
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ProtocolError
from odradek.protocol.primitives import uvarint
from tests.protocol.samples import every_version, sample

T, P = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData
PRODUCE = m.ProduceRequest(
    acks=-1,
    timeout_ms=5,
    topic_data=[T(name="t", partition_data=[P(index=2, records=memoryview(b"abc"))])],
)
CURSOR = m.DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=3)

EXAMPLES: list[tuple[Any, int, str]] = [
    # acks, timeout, one topic "t" with partition 2 and three bytes of records
    (PRODUCE, 3, "ffff" "ffff" "00000005" "00000001" "0001" "74" "00000001" "00000002" "00000003" "616263"),
    # the same, flexible: lengths are varints plus one, and each structure ends with its tags
    (PRODUCE, 9, "00" "ffff" "00000005" "02" "02" "74" "02" "00000002" "04" "616263" "00" "00" "00"),
    (m.MetadataRequest(topics=None), 1, "ffffffff"),
    (m.MetadataRequest(topics=None, allow_auto_topic_creation=False), 12, "00" "00" "00" "00"),
    (m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, "02" "61" "02" "31" "00"),
    # a tagged field with its number and its size before it
    (m.ApiVersionsResponse(finalized_features_epoch=1), 3, "0000" "01" "00000000" "01" "01" "08" "0000000000000001"),
    # a structure that may be null: -1 before it, or 1
    (m.DescribeTopicPartitionsRequest(cursor=None), 0, "01" "000007d0" "ff" "00"),
    (m.DescribeTopicPartitionsRequest(cursor=CURSOR), 0, "01" "000007d0" "01" "02" "74" "00000003" "00" "00"),
    (m.OffsetCommitKey(group="g", topic="t", partition=1), 1, "0001" "67" "0001" "74" "00000001"),
    (m.EndTxnMarker(coordinator_epoch=7), 0, "00000007"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "version", "expected"), EXAMPLES)
def test_literal_bytes(message: Any, version: int, expected: str) -> None:
    assert message.encode(version).hex() == expected
    assert type(message).decode(bytes.fromhex(expected), version) == message


def test_every_message_and_version_round_trips() -> None:
    rng = random.Random(1)
    for name, version in every_version():
        message = sample(name, version, rng)
        data = message.encode(version)
        padded = b"before" + data + b"and what follows"
        for buffer in (padded, bytearray(padded), memoryview(padded)):
            read, end = type(message).decode_prefix(buffer, version, 6)
            assert (read, end) == (message, 6 + len(data)), f"{name} v{version}"
        assert type(message).decode(padded, version, offset=6) == message
        assert b"".join(message.encode_parts(version, prefix=b"before")) == b"before" + data


@pytest.mark.slow
def test_a_message_truncated_anywhere_is_refused() -> None:
    rng = random.Random(2)
    for name, version in every_version():
        data = sample(name, version, rng).encode(version)
        cuts = range(len(data)) if len(data) <= 60 else sorted(rng.sample(range(len(data)), 60))
        for cut in cuts:
            with pytest.raises(ProtocolError) as caught:
                getattr(m, name).decode(memoryview(data)[:cut], version)
            assert caught.value.field.startswith(name)
            assert 0 <= caught.value.position <= cut


def test_records_are_views_into_the_buffer() -> None:
    data = bytearray(PRODUCE.encode(9))
    records = m.ProduceRequest.decode(data, 9).topic_data[0].partition_data[0].records
    assert records is not None
    assert records.obj is data
    assert bytes(records) == b"abc"


def test_records_are_sent_as_the_object_that_was_given() -> None:
    class Range:
        """A range of a file that the transport sends without reading it."""

        def __len__(self) -> int:
            return 1000

    stretch = Range()
    partition = m.FetchResponse.PartitionData(records=stretch)
    response = m.FetchResponse(responses=[m.FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])
    before, found, after = response.encode_parts(12, prefix=b"header")
    assert found is stretch
    assert bytes(before).startswith(b"header")  # type: ignore[call-overload]
    assert bytes(before).endswith(b"\xe9\x07")  # type: ignore[call-overload]  # 1001 as a varint
    assert bytes(after) == b"\0\0\0"  # type: ignore[call-overload]


def test_empty_records_and_null_records_differ() -> None:
    for records in (memoryview(b""), None):
        partition = m.ProduceRequest.PartitionProduceData(records=records)
        request = m.ProduceRequest(topic_data=[m.ProduceRequest.TopicProduceData(partition_data=[partition])])
        for version in (3, 9):
            read = m.ProduceRequest.decode(request.encode(version), version)
            assert read.topic_data[0].partition_data[0].records == records


def test_any_negative_length_is_null_where_null_is_a_value() -> None:
    read = m.ProduceRequest.decode(bytes.fromhex("8000ffff0000000500000000"), 3)
    assert read.transactional_id is None
    assert m.MetadataRequest.decode(bytes.fromhex("fffffffe"), 3).topics is None
    assert m.MetadataRequest.decode(bytes.fromhex("ffffffff0f00000000"), 12).topics is None


@pytest.mark.parametrize("version", [3, 9])
def test_text_that_is_not_utf_8_is_replaced(version: int) -> None:
    data = PRODUCE.encode(version)
    data = data.replace(b"t", b"\xff", 1)
    read = m.ProduceRequest.decode(data, version)
    assert [topic.name for topic in read.topic_data] == ["\ufffd"]
    records = read.topic_data[0].partition_data[0].records
    assert records is not None
    assert bytes(records) == b"abc"


# Invalid bytes, and the position of the error. Positions are those of the value that could not be read.
REFUSALS = [
    (m.ProduceRequest, 3, "ffff" "ffff" "00", "ProduceRequest.timeout_ms", 4, "1 left"),
    (m.ProduceRequest, 3, "ffff" "ffff" "00000005" "7fffffff", "ProduceRequest.topic_data", 12, "2147483647 elements"),
    (m.ProduceRequest, 3, "ffff" "ffff" "00000005" "ffffffff", "ProduceRequest.topic_data", 12, "null"),
    (m.ProduceRequest, 3, "ffff" "ffff" "00000005" "fffffffe", "ProduceRequest.topic_data", 12, "negative"),
    (
        m.ProduceRequest,
        9,
        "00" "ffff" "00000005" "02" "02" "74" "03" "00000001" "01" "00" "00000002" "09" "616263",
        "ProduceRequest.topic_data[0].partition_data[1].records",
        22,
        "8 bytes announced, 3 left",
    ),
    (m.MetadataRequest, 12, "ffffffffff01", "MetadataRequest.topics", 1, "varint"),
    (m.FetchRequest, 12, "00000000" * 4 + "00" + "00000000" * 2 + "ffffffff0f", "FetchRequest.topics", 26, "varint"),
    (m.MetadataRequest, 12, "00" "00" "00" "01" "05" "ff01" "00", "MetadataRequest.tags", 7, "255 bytes announced"),
    (m.MetadataRequest, 12, "00" "00" "00" "7f", "MetadataRequest.tags", 4, "127 elements"),
    (m.GroupMetadataValue, 4, "818002" + "61" * 32768, "GroupMetadataValue.protocol_type", 3, "32767 is the most"),
    (
        m.ApiVersionsResponse,
        3,
        "0000" "01" "00000000" "01" "01" "09" "0000000000000001" "00",
        "ApiVersionsResponse.finalized_features_epoch",
        18,
        "ends -1 bytes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "version", "data", "field", "position", "reason"), REFUSALS)
def test_an_error_names_field_and_position(
    message: Any, version: int, data: str, field: str, position: int, reason: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        message.decode(bytes.fromhex(data), version)
    assert (caught.value.field, caught.value.position) == (field, position)
    assert reason in caught.value.reason


def test_positions_count_from_the_start_of_the_buffer() -> None:
    with pytest.raises(ProtocolError) as caught:
        m.ProduceRequest.decode(b"12345" + bytes.fromhex("ffffffff"), 3, offset=5)
    assert (caught.value.field, caught.value.position) == ("ProduceRequest.timeout_ms", 9)


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="no version"):
        m.ProduceRequest.decode(b"", version)
    with pytest.raises(ValueError, match="no version"):
        m.ProduceRequest().encode(version)


UNWRITABLE = [
    (m.ProduceRequest(transactional_id="t"), 2, "ProduceRequest.transactional_id: version 2 has no place"),
    (m.ListOffsetsRequest(isolation_level=1, unknown_tagged_fields=[(9, b"")]), 5, "no place for tagged fields"),
    (m.ProduceRequest(acks=40000), 3, "ProduceRequest.acks"),
    (m.ProduceRequest(timeout_ms=2**31), 9, "ProduceRequest.timeout_ms"),
    (m.ProduceRequest(topic_data=[T(name=None)]), 3, r"ProduceRequest.topic_data\[\].name"),  # type: ignore[arg-type]
    (m.ProduceRequest(topic_data=[T(name="\udc80")]), 3, r"ProduceRequest.topic_data\[\].name"),
    (m.ProduceRequest(topic_data=[T(name="x" * 32768)]), 3, "32768 bytes; 32767 is the most"),
    (m.ProduceRequest(topic_data=[T(name="x" * 32768)]), 9, "32768 bytes; 32767 is the most"),
    (m.ProduceRequest(topic_data=None), 3, "ProduceRequest.topic_data"),  # type: ignore[arg-type]
    (m.ProduceRequest(topic_data=[T(topic_id=7)]), 13, r"ProduceRequest.topic_data\[\].topic_id"),  # type: ignore[arg-type]
    (m.ProduceRequest(topic_data=[T(topic_id=b"short")]), 13, r"ProduceRequest.topic_data\[\].topic_id: an id has 16"),
    (m.MetadataRequest(topics=None), 0, "MetadataRequest.topics"),  # null only from v1 on
    (m.FetchRequest(replica_state=m.FetchRequest.ReplicaState(replica_id=1)), 14, "FetchRequest.replica_state"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "version", "reason"), UNWRITABLE)
def test_a_field_that_a_version_does_not_have_is_an_error(message: Any, version: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        message.encode(version)


def test_an_ignorable_field_is_dropped() -> None:
    response = m.ProduceResponse(throttle_time_ms=5)
    assert response.encode(0) == m.ProduceResponse().encode(0)
    topic = T(name="t", topic_id=b"i" * 16)
    assert m.ProduceRequest.decode(m.ProduceRequest(topic_data=[topic]).encode(12), 12).topic_data == [T(name="t")]


def test_a_tag_that_holds_its_default_is_not_written() -> None:
    Leader = m.FetchResponse.LeaderIdAndEpoch  # noqa: N806
    for leader in (None, Leader(), Leader(leader_id=-1, leader_epoch=-1)):
        partition = m.FetchResponse.PartitionData(current_leader=leader)
        assert partition == m.FetchResponse.PartitionData() or leader is not None
        topic = m.FetchResponse.FetchableTopicResponse(partitions=[partition])
        plain = m.FetchResponse.FetchableTopicResponse(partitions=[m.FetchResponse.PartitionData()])
        assert m.FetchResponse(responses=[topic]).encode(12) == m.FetchResponse(responses=[plain]).encode(12)


def test_unknown_tags_of_responses_round_trip() -> None:
    response = m.HeartbeatResponse(unknown_tagged_fields=[(5, b"five"), (300, b"")])
    data = response.encode(4)
    assert data.hex() == "00000000" "0000" "02" "05" "04" + b"five".hex() + "ac02" "00"  # fmt: skip
    assert m.HeartbeatResponse.decode(data, 4) == response


def test_unknown_tags_of_requests_are_skipped() -> None:
    request = m.ApiVersionsRequest(unknown_tagged_fields=[(5, b"five"), (300, b"")])
    assert m.ApiVersionsRequest.decode(request.encode(3), 3) == m.ApiVersionsRequest()
    # Known and unknown tags are written in the order of their numbers.
    mixed = m.FetchRequest(cluster_id="c", unknown_tagged_fields=[(7, b"x")])
    assert m.FetchRequest.decode(mixed.encode(12), 12) == m.FetchRequest(cluster_id="c")


@pytest.mark.slow
@pytest.mark.memory
def test_unknown_tags_of_a_request_take_no_memory() -> None:
    """CVE-2026-111115: 400 KB of empty tagged fields became 12.8 MB of objects before a client had authenticated."""
    count = 200_000
    data = m.ApiVersionsRequest().encode(3)[:-1] + uvarint(count) + bytes((5, 0)) * count
    m.ApiVersionsRequest.decode(m.ApiVersionsRequest().encode(3), 3)  # compiles the decoder
    tracemalloc.start()
    try:
        request = m.ApiVersionsRequest.decode(data, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request == m.ApiVersionsRequest()
    assert peak < 64 * 1024


def test_compiled_code_can_be_read_in_a_debugger() -> None:
    with pytest.raises(ProtocolError):  # the C engine reads valid messages, and the generated code all others
        m.MetadataRequest.decode(b"\xff", 1)
    lines = linecache.getlines("<odradek decoder of MetadataRequest v1>")
    assert lines[0].startswith("def decode(buffer, pos")
    try:
        m.MetadataRequest(topics=[None]).encode(1)  # type: ignore[list-item]
    except ValueError as error:
        cause = error.__cause__
        assert cause is not None
        last = traceback.extract_tb(cause.__traceback__)[-1]
        assert "encoder of MetadataRequest v1" in last.filename
        assert last.line
    else:
        pytest.fail("null among the topics was written")
