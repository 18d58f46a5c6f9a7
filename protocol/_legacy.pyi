from odradek.protocol.chain import Buffer
from odradek.protocol.legacy_walks import DownConverted, Survey, UpConverted

def survey(buffer: Buffer, limit: int, /) -> Survey: ...
def up_convert(buffer: Buffer, magic: int, flags: int, stamp: int, earliest: int, latest: int, /) -> UpConverted: ...
def down_convert(
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
) -> DownConverted: ...
