"""Requests from dictionaries and lists: `request("Metadata", 9, topics=[{"name": "a"}])`.

A scenario is easier to read, and to print when it fails, when its requests are dictionaries and lists. Field names are
those of the message classes; one that does not exist is an error, and so is one that the version cannot carry. `{v}`
inside a string stands for the version, so that one line can create a topic for each.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.grammar import MessageSpec, StructSpec, parse


@cache
def definition(name: str) -> MessageSpec:
    """The definition of a message, by its name."""
    path = m.texts()[name]
    return parse(path.read_text(encoding="utf-8"), path.name)[name]


def key_of(api: str) -> int:
    """The key of an API, by the name of its request without `Request`."""
    key = definition(f"{api}Request").key
    assert key is not None
    return key


def name_of(key: int) -> str:
    """The name of an API as in scenarios."""
    return m.request_class(key).__name__.removesuffix("Request")


def request(api: str, version: int, **fields: Any) -> Any:
    """The request of an API. Raises TypeError for a field that does not exist."""
    message = definition(f"{api}Request")
    return _struct(getattr(m, message.name), message, message.root, fields, version)


def _struct(cls: type[Any], message: MessageSpec, struct: StructSpec, fields: dict[str, Any], version: int) -> Any:
    known = {field.attribute: field for field in struct.fields}
    values = {}
    for name, value in fields.items():
        if name not in known:
            raise TypeError(f"{struct.name} has no field {name}, only {', '.join(known)}")
        field = known[name]
        if field.is_struct and value is not None:
            inner = message.structs[field.type]
            made = getattr(getattr(m, message.name), field.type)
            if field.is_array:
                value = [_struct(made, message, inner, each, version) for each in value]
            else:
                value = _struct(made, message, inner, value, version)
        else:
            value = _filled(value, version)
        values[name] = value
    return cls(**values)


def _filled(value: Any, version: int) -> Any:
    if isinstance(value, str):
        return value.replace("{v}", str(version))
    if isinstance(value, list):
        return [_filled(each, version) for each in value]
    return value
