"""Bounds of decompression from headers: never below what comes out, and small for what is small."""

from __future__ import annotations

import gzip
import random
import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.compression import Codec, compress, decompress
from odradek.protocol.errors import KafkaError
from odradek.protocol.output_bounds import announced_size, output_bound
from tests.protocol.batch_mutations import mutated

REAL = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
ENOUGH = 1 << 20
NOISE = random.Random(3).randbytes(50_000)


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=2_000), repeats=st.integers(1, 2_000), noise=st.randoms(use_true_random=False))
def test_no_data_decompresses_to_more(codec: Codec, data: bytes, repeats: int, noise: random.Random) -> None:
    packed = bytes(compress(codec, data * repeats))
    for given_as in (packed, mutated(packed, noise), packed + packed):
        bound = output_bound(codec, given_as, ENOUGH)
        try:
            size = len(decompress(codec, given_as, 1 << 23))
        except KafkaError:
            continue
        assert size <= bound or bound > ENOUGH


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize(("data", "most"), [(NOISE, 1 << 17), (b"x" * 1_000, 1 << 17), (NOISE * 4, 400_000)])
def test_the_bound_of_ordinary_data_is_near_its_size(codec: Codec, data: bytes, most: int) -> None:
    packed = compress(codec, data)
    assert len(data) <= announced_size(codec, packed, ENOUGH) <= most


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_has_a_large_bound(codec: Codec) -> None:
    packed = compress(codec, bytes(30_000_000))
    assert output_bound(codec, packed, ENOUGH) == announced_size(codec, packed, ENOUGH) == ENOUGH + 1
    assert output_bound(codec, packed, 1 << 28) >= 30_000_000


def test_gzip_can_announce_too_little() -> None:
    packed = gzip.compress(bytes(100_000)) + gzip.compress(b"x")
    assert announced_size(Codec.GZIP, packed, ENOUGH) == 1
    assert output_bound(Codec.GZIP, packed, ENOUGH) >= 100_001


def test_a_zstd_frame_behind_a_skippable_one_counts() -> None:
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    packed = skippable + zstandard.compress(bytes(5_000_000))
    assert output_bound(Codec.ZSTD, packed, ENOUGH) == ENOUGH + 1


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("data", [b"", b"\x04", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18\x60", b"\x82SNAPPY\x00"])
def test_data_without_whole_headers_has_a_bound(codec: Codec, data: bytes) -> None:
    assert 0 <= output_bound(codec, data, ENOUGH) <= ENOUGH + 1
