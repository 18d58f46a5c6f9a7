from collections.abc import Iterable

from odradek.protocol.chain import Buffer, Scan
from odradek.protocol.records import Record

def scan(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    flags: int,
    earliest: int,
    latest: int,
    /,
) -> Scan: ...
def write_records(records: Iterable[Record], base_offset: int, base_timestamp: int, /) -> bytearray: ...
def own_batch(entries: list[tuple[bytes, bytes | None]], timestamp_ms: int, /) -> tuple[bytearray, tuple[int, ...]]: ...
def plain_header(batch: Buffer, /) -> tuple[int, ...] | None: ...
