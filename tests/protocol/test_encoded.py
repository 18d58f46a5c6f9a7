"""Preencoded elements: the bytes of a message are the same, and so are the errors that are counted."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.encoded import EncodedArray, EncodedElement
from odradek.protocol.grammar import Field
from tests.protocol.samples import definitions, sample

Topic = m.MetadataResponse.MetadataResponseTopic
PREENCODED = [
    (name, version, field)
    for name, message in definitions().items()
    for field in message.root.fields
    if field.preencoded
    for version in message.versions
    if version in field.versions
]
"""Every array of a message that may be preencoded, in every version."""


def test_two_messages_have_such_an_array() -> None:
    found = {(name, field.name) for name, _, field in PREENCODED}
    assert found == {("MetadataResponse", "Topics"), ("GroupMetadataValue", "members")}


@pytest.mark.parametrize(("name", "version", "field"), PREENCODED)
def test_a_message_has_the_same_bytes_and_the_same_errors(name: str, version: int, field: Field) -> None:
    rng = random.Random(version)
    sizes = set()
    for _ in range(100):
        message = sample(name, version, rng, nulls="none")
        elements = getattr(message, field.attribute) * rng.choice((1, 1, 100))  # a count of one byte, or of more
        setattr(message, field.attribute, elements)
        plain, errors = message.encode(version), counted(message)
        encoded = EncodedArray([encoded_element(each, version) for each in elements], version)
        setattr(message, field.attribute, encoded)
        assert message.encode(version) == plain
        assert b"".join(message.encode_parts(version, b"head")) == b"head" + plain
        assert counted(message) == errors
        sizes.add(len(elements))
    assert {0, 1, 200} <= sizes


def encoded_element(element: Any, version: int) -> EncodedElement:
    if hasattr(element, "errors_reporter"):
        encoded: EncodedElement = element.encoded(version)
        return encoded
    return EncodedElement(element.encode(version))  # a part of a record has no errors


def counted(message: Any) -> Counter[int]:
    codes: list[int] = []
    if isinstance(message, m.MetadataResponse):  # a record has no errors
        type(message).errors_reporter()(message, codes.append)
    return Counter(codes)


def test_elements_of_another_version_are_refused() -> None:
    answer = m.MetadataResponse(topics=EncodedArray([Topic(name="t").encoded(12)], 12))
    assert answer.encode(12)
    for version in (9, 11, 13):
        with pytest.raises(ValueError, match=r"MetadataResponse\.topics: encoded for version 12"):
            answer.encode(version)


def test_a_field_that_a_version_does_not_have_is_refused_where_the_element_is_encoded() -> None:
    assert Topic(name=None).encoded(12).data
    with pytest.raises(ValueError, match=r"MetadataResponse\.MetadataResponseTopic\.name"):
        Topic(name=None).encoded(11)
    with pytest.raises(ValueError, match="there is no version 99"):
        Topic(name="t").encoded(99)


def test_the_errors_inside_an_element_are_counted() -> None:
    partitions = [m.MetadataResponse.MetadataResponsePartition(error_code=code) for code in (0, 5, 9, 5)]
    assert Topic(name="t", error_code=3, partitions=partitions).encoded(1).error_codes == (3, 5, 9, 5)
