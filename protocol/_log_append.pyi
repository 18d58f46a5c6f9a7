from typing import Any

def append_usual(log: Any, batch: memoryview, is_prepared: bool, leader_epoch: int, now_ms: int, /) -> Any: ...
def prepare(
    log: type,
    segments: type,
    segment: type,
    config: type,
    epochs: type,
    producers: type,
    recent: type,
    result: type,
    /,
) -> None: ...
