from odradek.protocol.chain import Buffer

class OffsetMap:
    def __init__(self, slots: int, capacity: int, hash_key: bytes, /) -> None: ...
    @property
    def capacity(self) -> int: ...
    def __len__(self) -> int: ...
    def note(
        self, buffer: Buffer, start: int, end: int, count: int, base_offset: int, from_offset: int, /
    ) -> tuple[int, int, int]: ...
    def retain(
        self,
        buffer: Buffer,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        flags: int,
        latest_offset: int,
        tombstones_below: int,
        horizon: int,
        /,
    ) -> tuple[int, int, int, int, int, int, int, int, bytearray | None]: ...
