"""Constructors in C: make objects of the message classes without a Python call.

`install` prepares a class whose `__init__` takes keyword arguments only, one for each slot, each with a default. From
then on a call of the class with known keywords sets the slots in C; any other call goes to `__init__`, which is the
specification. Where there is no extension, nothing is installed and `__init__` always runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Default = tuple[str, int, Any]
"""The name of a slot, and how it begins where it is not given: `programs.initial`."""


def in_c(cls: type, defaults: Iterable[Default]) -> None:
    """Construct the objects of `cls` in C; `defaults` are those of all of its arguments."""
    _constructors.install(cls, tuple(defaults))


def in_python(cls: type, defaults: Iterable[Default]) -> None:
    """Leave the class as it is."""


try:
    from odradek.protocol import _constructors

    _constructors.install  # noqa: B018  # absent where the extension was built from other sources
    install = in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    install = in_python
