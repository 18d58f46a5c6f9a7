from collections.abc import Sized
from typing import Any

from odradek.protocol.decoding import Decoder, Meter, MeteredDecoder
from odradek.protocol.encoding import Encoder
from odradek.protocol.primitives import Bytes

class Program:
    def __new__(
        cls,
        layout: tuple[Any, ...],
        version: int,
        encoded_array: type,
        copies: bool,
        decode: Decoder,
        decode_metered: MeteredDecoder,
        encode: Encoder,
        /,
    ) -> Program: ...
    def decode(self, buffer: Bytes, pos: int, /) -> tuple[Any, int]: ...
    def decode_metered(self, buffer: Bytes, pos: int, meter: Meter, /) -> tuple[Any, int]: ...
    def encode(self, message: Any, out: bytearray, /) -> list[Sized]: ...
