"""Verifies logs at rest: every batch, its length, checksum, offsets and records.

The first error ends the check of a file. A batch with a wrong checksum is reported as a whole, since the checksum
cannot show which of its bytes changed; where the value of a field is impossible, the field is reported.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.protocol import chain
from odradek.protocol.batch import HEADER_SIZE, MAX_DECOMPRESSED, Buffer, read_header
from odradek.protocol.compression import decompress
from odradek.protocol.errors import KafkaError
from odradek.storage.read_files import ReadFile, base_offset_of
from odradek.storage.reading import Batch, DamagedLog, checked, walk

_COUNT_POSITION: Final = 57


class Checked(NamedTuple):
    """The content of a valid file; `size` is in bytes.

    The offsets are that of its first batch and the one behind its last batch, None where it is empty.
    """

    batches: int
    records: int
    size: int
    first_offset: int | None
    next_offset: int | None


def verify(path: str) -> Checked:
    """Read all of one `.log` file. Raises DamagedLog with the first bad byte, OSError.

    An incomplete batch that a broker is writing meanwhile is no damage.
    """
    base = base_offset_of(path) or 0
    found = Checked(0, 0, 0, None, None)
    with ReadFile(path) as file:
        while True:
            size = file.size
            try:
                for batch in walk(file, found.size, size):
                    checked(batch)
                    _check_offsets(batch, base if found.next_offset is None else found.next_offset)
                    found = _after(found, batch)
                if found.size < size:
                    raise DamagedLog(path, found.size, _cut(file, found.size, size))
            except DamagedLog:
                if file.size > size:
                    continue  # it was being written
                raise
            return found


def _after(found: Checked, batch: Batch) -> Checked:
    header = batch.header
    return Checked(
        found.batches + 1,
        found.records + header.record_count,
        batch.position + header.size,
        header.base_offset if found.first_offset is None else found.first_offset,
        header.next_offset,
    )


def _check_offsets(batch: Batch, expected: int) -> None:
    header = batch.header
    if header.base_offset < expected:
        reason = f"base offset {header.base_offset}, where {expected} or a higher one follows"
        raise DamagedLog(batch.path, batch.position, reason)
    if _counts_on(batch):
        return
    previous = header.base_offset - 1
    count = 0
    for record in batch.records():
        if not previous < record.offset <= header.last_offset:
            reason = f"the batch of offsets to {header.last_offset} has record {record.offset} after {previous}"
            raise DamagedLog(batch.path, batch.position, reason)
        previous = record.offset
        count += 1
    if count != header.record_count:
        reason = f"the header counts {header.record_count} records, and the batch has {count}"
        raise DamagedLog(batch.path, batch.position + _COUNT_POSITION, reason)


def _counts_on(batch: Batch) -> bool:
    """Whether the records are valid and their offsets have no gap, as before compaction; does not parse the records."""
    header = batch.header
    payload: Buffer = batch.data[batch.start + HEADER_SIZE : batch.start + header.size]
    try:
        payload = decompress(header.codec, payload, MAX_DECOMPRESSED)
    except KafkaError:
        return False
    if not 0 < header.record_count <= header.last_offset_delta + 1:
        return False
    return chain.scan(payload, 0, len(payload), header.record_count, 0, 0, 0, 0)[0] == chain.Fault.SOUND


def _cut(file: ReadFile, position: int, size: int) -> str:
    """The reason why no batch was read at `position`, although bytes are left."""
    left = size - position
    if left < HEADER_SIZE:
        return f"{left} bytes are left, where the header of a batch takes {HEADER_SIZE}"
    size_of_batch = read_header(file.read(HEADER_SIZE, position)).size
    return f"the batch is cut off: {left} bytes are left of {size_of_batch}"
