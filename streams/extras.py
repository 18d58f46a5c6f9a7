"""Optional dependencies: imports a package of one of Odradek's extras at its first use."""

from __future__ import annotations

import importlib
from types import ModuleType

from odradek.streams.errors import StreamsError


class MissingExtraError(StreamsError, ImportError):
    """A package that is not installed; the message names the extra that installs it."""


def extra_module(module: str, extra: str, user: str) -> ModuleType:
    """The module; `user` is what needs it, for the message. Raises MissingExtraError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{user} needs a package that is not installed ({error}): install odradek with its extra {extra!r}"
        ) from error
