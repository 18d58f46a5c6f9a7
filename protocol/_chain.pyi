from odradek.protocol.chain import Buffer, Scan

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
