"""The four codecs: round trips, and the checks of untrusted input (compared with Java in test_batch_jvm.py)."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.compression import Codec, compress, decompress
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.protocol.batch_mutations import mutated

REAL = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LIMIT = 1 << 20
NOISE = random.Random(7).randbytes(70_000)
TEXT = b"".join(b"%d bottles of beer on the wall\n" % i for i in range(9_000))
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def _outcome(codec: Codec, data: bytes) -> ErrorCode:
    try:
        read = decompress(codec, data, LIMIT)
    except KafkaError as problem:
        return problem.code
    return ErrorCode.NONE if len(read) <= LIMIT else ErrorCode.UNKNOWN_SERVER_ERROR


POSSIBLE = {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE}


def _refused(codec: Codec, data: bytes, limit: int = LIMIT) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        decompress(codec, data, limit)
    return refusal.value.code


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "data", [b"", b"x", NOISE, TEXT, bytes(300_000)], ids=["empty", "byte", "noise", "text", "zeros"]
)
def test_compressed_data_decompresses_to_the_input(codec: Codec, data: bytes) -> None:
    for given_as in (data, bytearray(data), memoryview(data)):
        packed = compress(codec, given_as)
        assert bytes(decompress(codec, packed, len(data))) == data
        assert bytes(decompress(codec, memoryview(b"__" + bytes(packed))[2:], len(data))) == data


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=3_000), repeats=st.integers(1, 60))
def test_round_trip(codec: Codec, data: bytes, repeats: int) -> None:
    assert bytes(decompress(codec, compress(codec, data * repeats), LIMIT)) == data * repeats


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(codec: Codec, data: bytes) -> None:
    assert _outcome(codec, data) in POSSIBLE


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("data", [TEXT[:40_000], NOISE[:500], bytes(200_000)], ids=["text", "noise", "zeros"])
def test_mutated_data_is_read_or_refused(codec: Codec, data: bytes) -> None:
    chance = random.Random(1)
    packed = bytes(compress(codec, data))
    outcomes = [_outcome(codec, mutated(packed, chance)) for _ in range(300)]
    assert set(outcomes) <= POSSIBLE
    assert len(outcomes) - outcomes.count(ErrorCode.NONE) > 50


@pytest.mark.parametrize("codec", REAL)
def test_data_truncated_anywhere_is_refused(codec: Codec) -> None:
    # snappy-java's framing has no end mark: where a block ends, a shorter stream ends. One block here.
    packed = bytes(compress(codec, TEXT[:2_000]))
    for end in range(len(packed)):
        if codec is Codec.SNAPPY and end == len(XERIAL):
            assert decompress(codec, packed[:end], LIMIT) == b""
        else:
            assert _refused(codec, packed[:end]) is ErrorCode.CORRUPT_MESSAGE, end


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [TEXT, bytes(300_000)], ids=["text", "zeros"])
def test_the_limit_is_exact(codec: Codec, data: bytes) -> None:
    packed = bytes(compress(codec, data))
    assert bytes(decompress(codec, packed, len(data))) == data
    for limit in (len(data) - 1, len(data) // 2, 1, 0):
        assert _refused(codec, packed, limit) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(KafkaError) as refusal:
        decompress(codec, b"", LIMIT)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(ValueError, match=f"codec {codec}"):
        compress(codec, b"")


def test_gzip_members_follow_one_another() -> None:
    members = b"".join(gzip.compress(part) for part in (b"one, ", b"", b"two"))
    assert decompress(Codec.GZIP, members, 8) == b"one, two"
    assert decompress(Codec.GZIP, members + b"no member", 8) == b"one, two"
    assert _refused(Codec.GZIP, members, 7) is ErrorCode.MESSAGE_TOO_LARGE
    many = gzip.compress(b"a") * 20_000
    assert decompress(Codec.GZIP, many, LIMIT) == b"a" * 20_000


def test_snappy_is_read_bare_and_framed() -> None:
    bare = bytes(cramjam.snappy.compress_raw(TEXT))
    assert bytes(decompress(Codec.SNAPPY, bare, LIMIT)) == TEXT
    framed = XERIAL + struct.pack(">I", len(bare)) + bare
    assert bytes(decompress(Codec.SNAPPY, framed, LIMIT)) == TEXT
    assert bytes(decompress(Codec.SNAPPY, framed + framed, LIMIT)) == TEXT * 2  # streams appended to one another
    assert bytes(compress(Codec.SNAPPY, TEXT))[:16] == XERIAL


@pytest.mark.parametrize("promised", [5_000, 2**31, 2**32 - 1])
def test_declared_sizes_of_snappy_are_not_trusted(promised: int) -> None:
    size = bytearray()
    while promised > 0x7F:
        size.append(promised & 0x7F | 0x80)
        promised >>= 7
    size.append(promised)
    assert _refused(Codec.SNAPPY, bytes(size) + b"\x00a") is ErrorCode.CORRUPT_MESSAGE


def test_the_densest_snappy_is_accepted() -> None:
    packed = bytes(cramjam.snappy.compress_raw(bytes(1_000_000)))
    assert bytes(decompress(Codec.SNAPPY, packed, LIMIT)) == bytes(1_000_000)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("block_size", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
def test_every_kind_of_lz4_frame_is_read(linked: bool, block_size: int) -> None:
    packed = lz4.frame.compress(
        TEXT, block_size=block_size, block_linked=linked, store_size=linked, content_checksum=True, block_checksum=True
    )
    assert bytes(decompress(Codec.LZ4, packed, LIMIT)) == TEXT


def test_lz4_is_written_as_java_requires() -> None:
    flags, block = bytes(compress(Codec.LZ4, TEXT))[4:6]
    assert flags == 0b01_1_0_0_0_00  # version 1, independent blocks, no checksums of blocks, no size, no checksum
    assert block == 4 << 4  # 64 KiB


def test_every_kind_of_zstd_frame_is_read() -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    stream = compressor.compressobj()
    pieces = (
        b"".join(stream.compress(TEXT[i : i + 999]) + stream.flush(1) for i in range(0, 9_990, 999)) + stream.flush()
    )
    skippable = struct.pack("<II", 0x184D2A5F, 3) + b"any"
    sized = zstandard.ZstdCompressor().compress(NOISE)
    assert bytes(decompress(Codec.ZSTD, pieces, LIMIT)) == TEXT[:9_990]
    assert bytes(decompress(Codec.ZSTD, skippable + pieces + skippable + sized, LIMIT)) == TEXT[:9_990] + NOISE
    assert _refused(Codec.ZSTD, pieces + b"rest") is ErrorCode.CORRUPT_MESSAGE


def test_declared_sizes_of_zstd_are_not_trusted() -> None:
    # single segment, 8 bytes of content size; one last raw block of 1 byte
    frame = struct.pack("<IBQ", 0xFD2FB528, 0xE0, 2**40) + (1 << 3 | 1).to_bytes(3, "little") + b"a"
    assert _refused(Codec.ZSTD, frame) is ErrorCode.CORRUPT_MESSAGE


def _bombs() -> dict[Codec, bytes]:
    """A few MB at most that would decompress to hundreds."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    block = bytes(cramjam.snappy.compress_raw(zeros))
    blocks = 4_000
    frame_header = struct.pack("<IBB", 0xFD2FB528, 0, 17 << 3)  # a window of 128 MiB
    run = struct.Struct("<IB")
    runs = b"".join(run.pack(131_072 << 3 | 2 | (i == blocks - 1), 0)[:3] + b"a" for i in range(blocks))
    return {
        Codec.GZIP: b"".join(deflater.compress(zeros) for _ in range(256)) + deflater.flush(),
        Codec.SNAPPY: XERIAL + (struct.pack(">I", len(block)) + block) * 64,
        Codec.LZ4: lz4.frame.compress(bytes(1 << 28), block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=True),
        Codec.ZSTD: frame_header + runs,
    }


DEFUSE = """
import re, sys
from pathlib import Path
from odradek.protocol.compression import Codec, compress, decompress
from odradek.protocol.errors import KafkaError

def most_memory():  # KiB
    return int(re.search("VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

codec, bomb = int(sys.argv[1]), sys.stdin.buffer.read()
decompress(codec, compress(codec, b"x"), 1)  # load the library
before = most_memory()
try:
    decompress(codec, bomb, 4 << 20)
except KafkaError as problem:
    print(problem.code.name, most_memory() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: Linux only")
def test_bombs_do_not_fill_the_memory() -> None:
    for codec, bomb in _bombs().items():
        command = [sys.executable, "-c", DEFUSE, str(int(codec))]
        notified = subprocess.run(command, input=bomb, capture_output=True, timeout=60, check=True)
        code, memory_kib = notified.stdout.split()
        assert code == b"MESSAGE_TOO_LARGE"
        # The largest allowed output, twice while parts are joined, and one large block of the codec's own.
        assert int(memory_kib) < 8 * 1024 + 2 * 8 * 1024 + len(bomb) // 1024, codec.name


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_large_data_comes_back_whole(codec: Codec, size: int) -> None:
    for data in (bytes(size), (NOISE * (1 + size // len(NOISE)))[:size]):
        packed = compress(codec, data)
        assert bytes(decompress(codec, packed, size)) == data
        assert _refused(codec, bytes(packed), size - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_large_snappy_block_without_framing() -> None:
    data = TEXT * 20
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data))) == data


RUNS_EACH_CODEC = """
import sys
from odradek.protocol.compression import Codec, compress, decompress, import_under

class Lent:
    def __enter__(self):
        lent.append("lent")
        is_lent.append(True)
    def __exit__(self, *_):
        is_lent.pop()

lent, is_lent, opened = [], [], []
import_under(Lent)
sys.addaudithook(lambda event, arguments: is_lent or opened.append(arguments) if event in ("open", "import") else None)
for codec in [*Codec, *Codec]:
    assert decompress(codec, compress(codec, b"text"), 10) == b"text"
print(len(lent), opened)
"""


def test_a_codec_opens_files_for_its_first_use_only_and_where_descriptors_are_lent() -> None:
    """A process may have none left by then."""
    run = subprocess.run([sys.executable, "-c", RUNS_EACH_CODEC], capture_output=True, text=True, check=True)
    assert run.stdout == "4 []\n"
