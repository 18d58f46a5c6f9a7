from collections.abc import Callable
from typing import Any

def methods(
    connection: type,
    turn: type,
    outbox: type,
    get_buffer: Callable[..., Any],
    buffer_updated: Callable[..., Any],
    first_frames: int,
    first_frames_ns: int,
    counted_bytes: int,
    /,
) -> tuple[Callable[[Any, int], memoryview], Callable[[Any, int], None]]: ...
