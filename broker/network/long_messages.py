"""Error messages that do not fit their field, because they repeat a name of a request that almost fills its own.

A string of the protocol has at most 32,767 bytes. Kafka returns UNKNOWN_SERVER_ERROR without a message, or closes the
connection, where its own message is longer; here the error code stays and the message is cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from odradek.protocol.classes import Struct
from odradek.protocol.encoding import Each

MOST_BYTES: Final = 32_767
KEPT_CHARACTERS: Final = 1_000
SUFFIX: Final = "error_message"


def shorten_messages(response: Any, each: Each = lambda items: items) -> bool:
    """Cut the error messages of a response that are too long for their field; returns whether there were any."""
    found = False
    pending: list[Any] = [response]
    while pending:
        struct = pending.pop()
        for name in struct.ATTRIBUTES:
            value = getattr(struct, name)
            if isinstance(value, str):
                if name.endswith(SUFFIX) and len(value.encode("utf-8", "replace")) > MOST_BYTES:
                    setattr(struct, name, value[:KEPT_CHARACTERS] + "…")
                    found = True
            elif isinstance(value, Struct):
                pending.append(value)
            elif isinstance(value, list) and value and isinstance(value[0], Struct):
                items: Iterable[Any] = each(value)
                pending.extend(items)
    return found
