from odradek.protocol.chain import Buffer
from odradek.protocol.legacy_walks import Lifted, Lowered, Survey

def survey(buffer: Buffer, limit: int, /) -> Survey: ...
def lift(buffer: Buffer, magic: int, flags: int, stamp: int, earliest: int, latest: int, /) -> Lifted: ...
def lower(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    magic: int,
    flags: int,
    base_offset: int,
    base_timestamp: int,
    first_offset: int,
    limit: int,
    /,
) -> Lowered: ...
