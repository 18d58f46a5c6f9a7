"""A client for administration, over Odradek's own protocol code (Kafka: KafkaAdminClient).

    with AdminClient([("localhost", 9092)]) as client:
        topics.create_topics(client, [topics.CreatableTopic("orders", partitions=6)])

It is synchronous and uses plain sockets, so that a command starts without an event loop, and serves any broker from
Apache Kafka 2.8 to 4.3. Each module has the operations of one kind as functions; the first parameter of all is the
client, and a result for several items has for each its value or its KafkaError.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


class _LateModule(ModuleType):
    """Stands for a module in `from odradek.admin import topics` until something uses a name of it: the help of a
    command then imports none of them, and a command only those that it needs.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


for _path in Path(__file__).parent.glob("*.py"):
    if _path.stem != "__init__":
        globals()[_path.stem] = _LateModule(f"{__name__}.{_path.stem}")
