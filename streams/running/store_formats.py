"""Formats of the stores on disk, in the file `.store-formats` of a task's directory.

A store of another kind, or with other serdes, cannot read what an earlier topology left under its name. So each store
is described when its directory is created, and compared with the description when it is opened again. Only ready-made
serdes are compared: the same bytes may come from a serde of the user under another name.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from odradek.streams import serdes
from odradek.streams.errors import SerializationError, StoreFormatError
from odradek.streams.stores.interface import WAY_OUT

log = logging.getLogger(__name__)

FILE: Final = ".store-formats"
_READY_MADE: Final = {
    id(serde): serde.name
    for serde in (
        serdes.STRING,
        serdes.LONG,
        serdes.INTEGER,
        serdes.SHORT,
        serdes.DOUBLE,
        serdes.FLOAT,
        serdes.BOOLEAN,
        serdes.BYTES,
        serdes.UUID,
        serdes.VOID,
        serdes.JSON,
    )
}

Format = Mapping[str, Any]

OF_OTHER_BYTES: Final = (struct.error, ValueError, LookupError, SerializationError)
"""Errors of a store, or of a serde, that is given the bytes of another format."""


def format_of(builder: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """The format of a store: its kind, and the names of its serdes where they are ready-made ones."""
    found: dict[str, Any] = {"kind": f"{getattr(builder, 'kind', type(builder).__name__)} store"}
    if getattr(builder, "stamped", False) or getattr(builder, "ttl_ms", 0):
        found["values"] = "with timestamps"
    if getattr(builder, "retain_duplicates", False):
        found["duplicates"] = "retained"
    if type(builder).__name__ != "StoreBuilder":
        found["kind"] += f" ({type(builder).__name__})"
    for role, setting in (("key", "default.key.serde"), ("value", "default.value.serde")):
        serde = getattr(builder, f"{role}_serde", None) or config.get(setting)
        name = _READY_MADE.get(id(serde))
        if name is not None:
            found[f"{role} serde"] = name
    return found


class StoreFormats:
    """The formats in one directory, a task's or that of the global stores."""

    def __init__(self, directory: Path) -> None:
        """Reads the file; one that cannot be read counts as empty."""
        self._directory = directory
        self._path = directory / FILE
        self._formats: dict[str, Format] = {}
        try:
            self._formats = dict(json.loads(self._path.read_text()))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            log.warning("ignoring unreadable store formats path=%s error=%r", self._path, error)

    def check(self, name: str, wanted: Format, path: Path) -> None:
        """Compare a store with what is at its path, or write its format where there is none.

        Raises StoreFormatError, OSError.
        """
        known = self._formats.get(name) if path.exists() else None
        if known is None:
            self._write({**self._formats, name: wanted})
            return
        serdes_of_both = {each for each in known.keys() & wanted.keys() if each.endswith(" serde")}
        compared = {*serdes_of_both, *(each for each in {**known, **wanted} if not each.endswith(" serde"))}
        if any(known.get(each) != wanted.get(each) for each in compared):
            raise StoreFormatError(
                f"the state of store {name} in {path} has another format: it is a {describe(known)}, and the topology "
                f"has a {describe(wanted)}. {WAY_OUT}"
            )

    def _write(self, formats: dict[str, Format]) -> None:
        fresh = self._directory / f"{FILE}.tmp"
        fresh.write_text(json.dumps(formats, indent=1) + "\n")
        fresh.replace(self._path)
        self._formats = formats


def describe(known: Format) -> str:
    """A format as text."""
    more = ", ".join(f"{name} {value}" for name, value in known.items() if name != "kind")
    return f"{known.get('kind')}{f' ({more})' if more else ''}"
