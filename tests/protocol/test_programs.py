"""The C codec engine: equal to the generated functions on any input, without leaks, and within the same limits."""

from __future__ import annotations

import gc
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.network.large_requests import AtOnce
from odradek.protocol import messages as m
from odradek.protocol import programs
from odradek.protocol.encoded import EncodedArray, EncodedElement
from tests.protocol.codec_differences import (
    TAKES_NO_PART,
    Counts,
    classes_of,
    compare,
    compare_encoding,
    engine,
    generated,
    is_same,
)
from tests.protocol.counting_meter import CountingMeter
from tests.protocol.samples import definitions, every_version, sample

pytest.importorskip("odradek.protocol._codec", reason="no C compiler when Odradek was installed")

PRODUCE = m.ProduceRequest(
    acks=-1,
    topic_data=[
        m.ProduceRequest.TopicProduceData(
            name="t", partition_data=[m.ProduceRequest.PartitionProduceData(index=2, records=memoryview(b"abc"))]
        )
    ],
)


def test_the_engine_takes_every_valid_message_and_is_equal_to_the_generated_functions() -> None:
    """On one message of each API in its lowest and highest version; the slow test has all versions."""
    rng, counts = random.Random(31), Counts()
    for name, message in definitions().items():
        for version in {message.versions.first, message.versions.last}:
            written = sample(name, version, rng, unknown_tags=False)
            data = written.encode(version)
            assert engine(name, version).decode(data, 0) is not TAKES_NO_PART, (name, version)
            assert engine(name, version).encode(written, bytearray()) is not TAKES_NO_PART, (name, version)
            if name in ("FetchResponse", "ProduceRequest", "MetadataResponse", "OffsetCommitRequest"):
                compare(name, version, rng, counts, valid=True, spoils=20)
    assert not counts.differences
    assert counts.decoded_in_c > 40


@pytest.mark.slow
def test_corrupted_bytes_and_odd_values_are_handled_as_by_the_generated_functions() -> None:
    rng, counts = random.Random(32), Counts()
    for name, version in every_version():
        compare(name, version, rng, counts, valid=True, spoils=20)
    assert not counts.differences
    assert counts.decoded_in_c > 4_000
    assert counts.encoded_in_c > 900


@pytest.mark.slow
def test_structures_alone_and_encoded_elements_are_written_as_by_the_generated_functions() -> None:
    rng, counts = random.Random(33), Counts()
    for name, version in every_version():
        message = sample(name, version, rng, unknown_tags=False, nulls="none")
        for struct_ in definitions()[name].structs:
            compare_encoding(name, version, classes_of(name)[struct_](), counts, struct_)
        for field in definitions()[name].root.fields:
            if field.preencoded and version in field.versions:
                elements = getattr(message, field.attribute)
                encoded = [EncodedElement(each.encode(version)) for each in elements]
                array = EncodedArray(encoded, version)
                before = message.encode(version)
                setattr(message, field.attribute, array)
                compare_encoding(name, version, message, counts)
                assert message.encode(version) == before
    assert not counts.differences
    assert counts.encoded_in_c > 300


def test_encoded_elements_of_another_version_are_refused() -> None:
    topic = m.MetadataResponse.MetadataResponseTopic(name="t").encoded(11)
    with pytest.raises(ValueError, match="encoded for version 11"):
        m.MetadataResponse(topics=EncodedArray([topic], 11)).encode(12)


class AllowingMeter(CountingMeter):
    """A meter that lets a decoder take so many bytes at once."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.at_once = at_once


@pytest.mark.parametrize(
    "name", ["MetadataRequest", "FetchRequest", "OffsetCommitRequest", "ProduceRequest", "JoinGroupRequest"]
)
def test_the_engine_charges_a_meter_the_same_and_stops_at_its_limit(name: str) -> None:
    rng = random.Random(34)
    version = definitions()[name].versions.last
    for _ in range(5):
        message = sample(name, version, rng)
        data = message.encode(version)
        expected = CountingMeter()
        request, end = generated(name, version).decode_metered(data, 0, expected)
        enough = max(expected.charged, expected.copied)  # nothing is copied of a message with records
        meter = AllowingMeter(max(enough, 1))
        assert is_same(engine(name, version).decode_metered(data, 0, meter), (request, end))
        assert meter.charged == expected.charged
        assert engine(name, version).decode_metered(data, 0, AllowingMeter(enough - 1)) is TAKES_NO_PART


def test_skipped_tags_and_numbers_are_charged_as_by_the_generated_decoder() -> None:
    request = m.MetadataRequest(topics=[]).encode(12)[:-1] + b"\xe8\x07" + b"\x7f\x00" * 1000
    numbers = m.ListPartitionReassignmentsRequest(
        topics=[m.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(partition_indexes=[1] * 100)]
    )
    for cls, version, data in ((m.MetadataRequest, 12, request), (type(numbers), 0, numbers.encode(0))):
        expected, meter = CountingMeter(), AllowingMeter(60_000)
        generated(cls.__name__, version).decode_metered(data, 0, expected)
        assert engine(cls.__name__, version).decode_metered(data, 0, meter) is not TAKES_NO_PART
        assert meter.charged == expected.charged > 0


def test_a_request_is_charged_to_the_limit_of_requests_that_are_handled_at_once() -> None:
    meter = AtOnce()
    before = meter.at_once
    m.ProduceRequest.METERED_DECODERS[9](PRODUCE.encode(9), 0, meter)
    assert before - meter.at_once == 2 * 216


def test_a_call_that_gives_up_leaves_the_buffer_and_keeps_no_memory() -> None:
    """The engine frees all objects that it has made until a failure."""
    rng = random.Random(35)
    response = sample("FetchResponse", 17, rng, unknown_tags=False, nulls="none")
    data, out = response.encode(17), bytearray(b"head")
    broken = m.FetchResponse.decode(data, 17)
    broken.responses[-1].partitions[-1].high_watermark = 2**63
    decode, encode = engine("FetchResponse", 17).decode, engine("FetchResponse", 17).encode
    payload = memoryview(data)
    watched = (data, out, response, broken, m.FetchResponse, m.FetchResponse.PartitionData, payload)

    def calls() -> None:
        for cut in range(0, len(data), 1 + len(data) // 20):
            decode(payload[:cut], 0)
        decode(payload, 0)
        assert encode(broken, out) is TAKES_NO_PART
        assert out == b"head"
        encode(response, bytearray())

    def measure() -> tuple[int, list[int]]:
        for _ in range(5):
            calls()
        gc.collect()
        return sys.getallocatedblocks(), [sys.getrefcount(each) for each in watched]

    measure()
    blocks, references = measure()
    blocks_later, references_later = measure()
    assert references_later == references
    assert abs(blocks_later - blocks) < 50


def test_an_array_that_shrinks_while_it_is_written_is_left_to_the_generated_encoder() -> None:
    partitions = [m.FetchResponse.PartitionData(partition_index=number) for number in range(3)]
    topic = m.FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)

    class Records:
        def __len__(self) -> int:
            partitions.clear()
            return 5

    partitions[0].records = Records()
    assert engine("FetchResponse", 12).encode(m.FetchResponse(responses=[topic]), bytearray()) is TAKES_NO_PART


@pytest.mark.parametrize("arguments", [(), (b"",), (b"", 0, 0)])
def test_calls_with_other_arguments_are_refused(arguments: tuple[Any, ...]) -> None:
    program = engine("HeartbeatRequest", 4)
    with pytest.raises(TypeError):
        program.decode(*arguments)
    with pytest.raises(TypeError):
        program.encode(*arguments)
    assert program.decode(b"", -1) is TAKES_NO_PART
    assert program.decode(b"", 1) is TAKES_NO_PART
    assert program.decode(b"", 2**70) is TAKES_NO_PART
    assert program.encode(None, b"") is TAKES_NO_PART  # type: ignore[arg-type]


def test_a_table_that_does_not_fit_its_class_is_refused() -> None:
    from odradek.protocol import _codec

    field = ("group_id", "s", 0, 0, 0, 0, 1, 0, None, None, None)
    head = (m.HeartbeatRequest, "unknown_tagged_fields", False, False)
    for layout in (
        (*head, 0, 0, (("nothing", *field[1:]),)),
        (*head, 0, 0, (("encode", *field[1:]),)),
        (*head, 0, 0, ((field[0], "x", *field[2:]),)),
        (*head, 0, 0, ((field[0], "o", *field[2:]),)),
        (*head, 0, 0, ((*field[:6], 0, *field[7:]),)),
        (*head, 1, 1, (field,)),
        (*head, 0, 0, ((),)),
        (*head, 0, 0, [field]),
    ):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            _codec.Program(layout, 0, EncodedArray, True, *[lambda *_arguments: None] * 3)  # type: ignore[arg-type]


def test_both_have_the_same_numbers() -> None:
    source = (Path(programs.__file__).parent / "_codec_table.h").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"\b([A-Z_]+) = (\d+)", source)}
    assert numbers.pop("ARRAY") == programs.ARRAY
    for name, value in numbers.items():
        assert getattr(programs, name) == value
    letters = dict(re.findall(r"#define ([A-Z]+) '(\w)'", source))
    assert letters.pop("STRUCT") == programs.STRUCT
    assert letters == {name.upper(): letter for name, letter in programs.LETTERS.items() if name.upper() in letters}
