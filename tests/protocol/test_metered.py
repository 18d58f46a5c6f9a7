"""The second form of the codecs, for large messages: metered decoders, and encoders whose loops can be interrupted."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.encoded import EncodedArray
from odradek.protocol.encoding import PART_BYTES
from odradek.protocol.errors import ProtocolError
from tests.protocol.counting_meter import CountingMeter
from tests.protocol.samples import every_version, sample


def each(items: Iterable[Any]) -> Iterable[Any]:
    return iter(items)


@pytest.mark.slow
def test_both_forms_of_a_codec_are_equal_for_every_message_and_version() -> None:
    chance = random.Random(21)
    for name, version in every_version():
        message = getattr(m, name)
        if not hasattr(message, "METERED_DECODERS"):
            continue
        for _ in range(2):
            data = sample(name, version, chance, unknown_tags=not name.endswith("Request")).encode(version)
            decoded, end = message.DECODERS[version](data, 0)
            metered, metered_end = message.METERED_DECODERS[version](data, 0, CountingMeter())
            assert (metered, metered_end) == (decoded, end), (name, version)
            sliced = b"".join(map(bytes, message.SLICED_ENCODERS[version](decoded, bytearray(), each)))
            assert sliced == data, (name, version)
            if name.endswith("Response"):
                codes: list[int] = []
                sliced_codes: list[int] = []
                message.errors_reporter()(decoded, codes.append)
                message.sliced_errors_reporter()(decoded, sliced_codes.append, each)
                assert sliced_codes == codes, (name, version)


def test_each_element_is_charged_before_its_array_is_made() -> None:
    topics = [m.MetadataRequest.MetadataRequestTopic(name="") for _ in range(1000)]
    data = m.MetadataRequest(topics=topics).encode(12)
    meter = CountingMeter()
    m.MetadataRequest.METERED_DECODERS[12](data, 0, meter)
    assert meter.items == 1000
    assert 100 * 1000 < meter.charged < 300 * 1000
    small = CountingMeter(limit=99_999)
    with pytest.raises(MemoryError):
        m.MetadataRequest.METERED_DECODERS[12](data, 0, small)
    assert (small.items, small.arrays) == (0, 0)


def test_skipped_tags_are_charged() -> None:
    data = m.MetadataRequest(topics=[]).encode(12)[:-1] + b"\xe8\x07" + b"\x7f\x00" * 1000
    meter = CountingMeter()
    m.MetadataRequest.METERED_DECODERS[12](data, 0, meter)
    assert (meter.items, meter.charged) == (1000, 8000)


def test_text_that_is_not_utf_8_and_malformed_bytes_are_handled_as_in_the_first_form() -> None:
    data = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="abc")]).encode(9)
    broken = data.replace(b"abc", b"a\xffc")
    found, _ = m.MetadataRequest.METERED_DECODERS[9](broken, 0, CountingMeter())
    assert found.topics[0].name == "a\N{REPLACEMENT CHARACTER}c"
    with pytest.raises(ProtocolError, match=r"topics\[0\]"):
        m.MetadataRequest.METERED_DECODERS[9](data[:4], 0, CountingMeter())


def test_a_large_response_is_encoded_into_parts() -> None:
    """A buffer of 20 MB that grew was copied as a whole, which took 15 milliseconds."""
    topic = m.MetadataResponse.MetadataResponseTopic
    response = m.MetadataResponse(topics=[topic(name=f"{number:02}" + "x" * 30_000) for number in range(100)])
    parts: list[Any] = list(m.MetadataResponse.SLICED_ENCODERS[12](response, bytearray(b"head"), each))
    assert [len(part) < PART_BYTES + 31_000 for part in parts] == [True] * 3
    assert b"".join(map(bytes, parts)) == b"head" + response.encode(12)


def test_the_codes_of_encoded_elements_are_reported_with_interruptions() -> None:
    """142,000 codes took 30 milliseconds at once."""
    topic = m.MetadataResponse.MetadataResponseTopic(name="", error_code=3)
    response = m.MetadataResponse(topics=EncodedArray([topic.encoded(12)] * 1000, 12))
    codes: list[int] = []
    meter = CountingMeter()
    m.MetadataResponse.sliced_errors_reporter()(response, codes.append, meter.each)
    assert codes == [3] * 1000
    assert meter.items == 1000
