from collections.abc import Callable
from typing import Any

from odradek.protocol.frames import Classes
from odradek.protocol.net import Connection
from odradek.protocol.net import FrameHandler as Function

class FrameHandler:
    def __new__(
        cls,
        routes: dict[int, Any],
        classes: Classes,
        now_ns: Callable[[], int],
        largest: int,
        behind: Function,
        unanswered: Callable[[Any], None],
        failed: Callable[[Any, Exception], None],
        /,
    ) -> FrameHandler: ...
    def reply(self, call: Any, response: Any, /) -> bool: ...
    def __call__(self, connection: Connection, frame: memoryview, /) -> None: ...
