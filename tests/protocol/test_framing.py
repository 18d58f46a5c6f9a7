"""Headers of requests and responses, and framing for any split of the bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import messages as m
from odradek.protocol.errors import ProtocolError
from odradek.protocol.framing import (
    Frames,
    RequestHeader,
    frame,
    read_request_header,
    request_header,
    request_header_version,
    response_header,
    response_header_version,
)
from tests.protocol.samples import sample

UNKNOWN_API = 9999


@pytest.mark.parametrize("client_id", [None, "", "console-producer", "größe"])
def test_a_header_is_read_as_written(client_id: str | None) -> None:
    for api in m.APIS.values():
        for version in range(api.min, api.max + 1):
            data = request_header(api.key, version, 77, client_id) + b"body"
            expected = None if (api.key, version) == (7, 0) else client_id
            found = read_request_header(memoryview(data))
            assert found == RequestHeader(api.key, version, 77, expected, len(data) - 4)


def test_header_versions_follow_the_body() -> None:
    assert [request_header_version(m.ProduceRequest.API_KEY, version) for version in (8, 9)] == [1, 2]
    assert [response_header_version(m.ProduceRequest.API_KEY, version) for version in (8, 9)] == [0, 1]
    # The response to ApiVersions is read before the versions are agreed on; ControlledShutdown v0 has no client id.
    assert [request_header_version(18, version) for version in (2, 3, 4)] == [1, 2, 2]
    assert [response_header_version(18, version) for version in (2, 3, 4)] == [0, 0, 0]
    assert [request_header_version(7, version) for version in (0, 1, 2, 3)] == [0, 1, 1, 2]


def test_response_headers() -> None:
    assert response_header(0, 8, 258).hex() == "00000102"
    assert response_header(0, 9, 258).hex() == "00000102" "00"  # fmt: skip
    assert response_header(18, 4, 258).hex() == "00000102"
    for api in m.APIS.values():
        for version in range(api.min, api.max + 1):
            header = m.ResponseHeader(correlation_id=-9).encode(response_header_version(api.key, version))
            assert response_header(api.key, version, -9) == header


def test_a_version_from_the_future_can_be_answered() -> None:
    data = request_header(18, 4, 5, "new client").replace(b"\0\x12\0\x04", b"\0\x12\0\x63")
    assert read_request_header(data) == RequestHeader(18, 99, 5, "new client", len(data))


def test_an_unknown_api_is_read_as_an_old_one() -> None:
    assert read_request_header(request_header(UNKNOWN_API, 3, 5, "c")) == RequestHeader(UNKNOWN_API, 3, 5, "c", 11)


def test_tags_of_a_header_are_skipped() -> None:
    data = request_header(18, 3, 5, "c")[:-1] + bytes.fromhex("020103616263ac0200") + b"body"
    assert data[read_request_header(data).body :] == b"body"


@pytest.mark.parametrize(("data", "client_id"), [("fffe00", None), ("800000", None), ("000241ff00", "A\ufffd")])
def test_a_client_id_is_read_as_kafka_reads_it(data: str, client_id: str | None) -> None:
    assert read_request_header(bytes.fromhex("0012000300000005" + data)).client_id == client_id


@pytest.mark.parametrize(
    ("data", "field", "position"),
    [
        ("", "RequestHeader.request_api_key", 0),
        ("0012", "RequestHeader.request_api_version", 2),
        ("00120003" "0000", "RequestHeader.correlation_id", 4),
        ("00120003" "00000005", "RequestHeader.client_id", 8),
        ("00120003" "00000005" "0003" "61", "RequestHeader.client_id", 8),
        ("00120003" "00000005" "0001" "61", "RequestHeader.tags", 11),
        ("00120003" "00000005" "0001" "61" "01" "05" "09" "00", "RequestHeader.tags", 15),
        ("00120003" "00000005" "0001" "61" "ffffffff0f", "RequestHeader.tags", 11),
    ],
)  # fmt: skip
def test_a_bad_header_is_refused_by_name(data: str, field: str, position: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_request_header(bytes.fromhex(data))
    assert (caught.value.field, caught.value.position) == (field, position)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_header_or_one_error(data: bytes) -> None:
    try:
        found = read_request_header(data)
    except ProtocolError as error:
        assert error.field.startswith("RequestHeader")  # noqa: PT017
    else:
        assert 8 <= found.body <= len(data)


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_frames_are_complete_for_any_split_of_the_bytes(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(body) for body in bodies) + b"\0\0"
    frames = Frames()
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += list(frames.feed(stream[:size]))
        stream = stream[size:]
    assert found == bodies
    assert frames.waiting == 2


def test_frames_come_out_byte_by_byte() -> None:
    frames, stream = Frames(), frame(b"one") + frame() + frame(b"t", b"wo")
    assert [found for byte in stream for found in frames.feed(bytes([byte]))] == [b"one", b"", b"two"]
    assert frames.waiting == 0


def test_requests_of_every_version_are_read_byte_by_byte() -> None:
    rng = random.Random(6)
    frames = Frames()
    for api in m.APIS.values():
        for version in range(api.min, api.max + 1):
            request = sample(f"{api.name}Request", version, rng)
            stream = frame(request_header(api.key, version, version, "c"), request.encode(version))
            found = [whole for byte in stream for whole in frames.feed(bytes([byte]))]
            assert len(found) == 1
            header = read_request_header(found[0])
            assert header[:3] == (api.key, version, version)
            assert m.request_class(api.key).decode_prefix(found[0], version, header.body) == (request, len(found[0]))


@pytest.mark.parametrize("size", ["ffffffff", "80000000", "0000000b", "7fffffff"])
def test_a_frame_over_the_limit_is_refused_before_it_arrives(size: str) -> None:
    frames = Frames(limit=10)
    stream = frames.feed(frame(b"0123456789") + bytes.fromhex(size))
    assert next(stream) == b"0123456789"
    with pytest.raises(ProtocolError, match="0 to 10"):
        next(stream)
