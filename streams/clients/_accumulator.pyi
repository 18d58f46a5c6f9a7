from collections.abc import Callable
from typing import Any

from odradek.streams.clients.accumulator import Refuse

class ProducerBatch:
    topic: str
    partition: int
    count: int
    begun_s: float
    first_timestamp: int
    max_timestamp: int
    def seal(self, producer_id: int, epoch: int, sequence: int, attributes: int, /) -> None: ...
    def view(self) -> memoryview: ...
    def origins(self) -> list[Any]: ...
    def __len__(self) -> int: ...

class Accumulator:
    bytes: int
    records: int
    full: int
    def __init__(
        self,
        batch_bytes: int,
        record_bytes: int,
        most_bytes: int,
        most_records: int,
        sticky: int,
        partitions_of: Callable[[str], int],
        refuse: Refuse,
        /,
    ) -> None: ...
    def produce(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        origin: Any,
        source: Any,
        timestamp: int,
        headers: Any,
        /,
    ) -> None: ...
    def due(self, begun_before: float, /) -> list[ProducerBatch]: ...
    def set_partitions(self, topic: str, partitions: int, /) -> None: ...

def checked_text(text: Any, /) -> str | bytes: ...
