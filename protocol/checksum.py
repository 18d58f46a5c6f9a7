"""CRC-32C, the checksum of record batches (Kafka: Crc32C), by the processor's own instruction.

The package `crc32c` reads its version and defines a command line when it is imported, with `importlib.metadata`,
`email` and `argparse`: 50 modules, and a tenth of the time in which a broker starts. So its extension is loaded alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final

from odradek.protocol.primitives import Bytes

Checksum = Callable[[Bytes], int]


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations if package else None)
    if spec is None or spec.loader is None:  # another layout of the package, or no file of its own
        from crc32c import crc32c as whole

        return whole
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    found: Checksum = extension.crc32c
    return found


crc32c: Final = _load()
"""The checksum of some bytes, as an unsigned number."""
