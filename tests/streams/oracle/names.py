"""Names from Python's spelling to Java's."""

from __future__ import annotations


def camel_case(name: str) -> str:
    """map_values -> mapValues; a trailing underscore, which keeps a name from being a keyword, is removed."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)
