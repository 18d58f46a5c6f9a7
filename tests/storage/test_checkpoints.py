"""The small files are byte-identical to Kafka's, and a file with any other content is read or refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.checkpoints import (
    CorruptFile,
    decode_clean_shutdown,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_uuid,
    encode_clean_shutdown,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    encode_uuid,
)

# The output of the classes of Kafka 3.9.2.
TOPIC_ID = "oMEr9MwPTtq0QgdPj4u1Mw"
METADATA = b"version: 0\ntopic_id: oMEr9MwPTtq0QgdPj4u1Mw"
EPOCHS = b"0\n2\n1 2\n3 9\n"
PROPERTIES = b"#\n#Sat Nov 21 03:57:36 UTC 2026\nbroker.id=0\nversion=0\ncluster.id=abc\\:\\=x\\#\\!\n"
PROPERTIES_MS = 1_795_233_456_000
CLEAN = b'{"version":0,"brokerEpoch":7}'


def test_kafkas_own_bytes() -> None:
    assert encode_partition_metadata(decode_uuid(TOPIC_ID)) == METADATA
    assert encode_epochs([(1, 2), (3, 9)]) == EPOCHS
    assert encode_properties({"broker.id": "0", "version": "0", "cluster.id": "abc:=x#!"}, PROPERTIES_MS) == PROPERTIES
    assert encode_clean_shutdown(7) == CLEAN
    assert encode_offsets({("b-c", 1): 7, ("a", 0): 2**40}) == b"0\n2\na 0 1099511627776\nb-c 1 7\n"


def test_kafkas_own_bytes_are_read() -> None:
    assert encode_uuid(decode_partition_metadata(METADATA)) == TOPIC_ID
    assert decode_epochs(EPOCHS) == [(1, 2), (3, 9)]
    assert decode_properties(PROPERTIES) == {"broker.id": "0", "version": "0", "cluster.id": "abc:=x#!"}
    assert decode_clean_shutdown(CLEAN) == 7
    assert decode_clean_shutdown(b"") == -1


TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_offsets_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(st.binary(min_size=16, max_size=16))
def test_ids_round_trip(uuid: bytes) -> None:
    assert decode_partition_metadata(encode_partition_metadata(uuid)) == uuid


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties, 0)) == properties


@given(st.binary() | st.text("0123456789 \n-:=\\#uversiontopc_d").map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_offsets, decode_epochs, decode_partition_metadata, decode_properties, decode_clean_shutdown):
        with contextlib.suppress(CorruptFile):
            decode(data)


@pytest.mark.parametrize(
    "data", [b"", b"0", b"1\n0\n", b"0\n1\n", b"0\nx\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\n0\na 0 1\n"]
)
def test_a_broken_table_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode_offsets(data)
