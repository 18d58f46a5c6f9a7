"""Serdes of Python classes: dataclasses, structs, attrs classes, named tuples, typed dictionaries, pydantic models.

msgspec encodes and validates in C, so it is the default for everything but pydantic models, which only pydantic can
validate. The JSON is compact UTF-8 with the fields in the order of the class, as Jackson writes it in Java. Bytes that
do not fit the class raise the validation error of the library, which goes to the deserialization handler.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from odradek.streams.extras import extra_module
from odradek.streams.serdes.formats import Serde

T = TypeVar("T")

MSGSPEC_EXTRA: Final = "msgspec"
PYDANTIC_EXTRA: Final = "pydantic"


def json_serde(kind: type[T], *, immutable: bool = False) -> Serde[T]:
    """Values of the class `kind` as JSON.

    A pydantic model, by pydantic; every other type, by msgspec. `immutable` states that values never change in place,
    so that a cache may keep them as objects. Raises MissingExtraError where the library is not installed, and
    TypeError for a type that the library does not support.
    """
    if _is_pydantic(kind):
        return pydantic_serde(kind, immutable=immutable)
    msgspec = extra_module("msgspec", MSGSPEC_EXTRA, f"json_serde({_name(kind)})")
    name = f"json {_name(kind)}"
    return Serde(msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode, name=name, immutable=immutable)


def msgpack_serde(kind: type[T], *, immutable: bool = False) -> Serde[T]:
    """Values of the class `kind` as MessagePack, by msgspec. Raises as `json_serde`."""
    msgspec = extra_module("msgspec", MSGSPEC_EXTRA, f"msgpack_serde({_name(kind)})")
    name = f"msgpack {_name(kind)}"
    return Serde(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode, name=name, immutable=immutable)


def pydantic_serde(kind: type[T], *, immutable: bool = False) -> Serde[T]:
    """Values of a pydantic model, or of any type that pydantic validates, as JSON; fields have their aliases.

    Raises MissingExtraError where pydantic is not installed.
    """
    pydantic = extra_module("pydantic", PYDANTIC_EXTRA, f"pydantic_serde({_name(kind)})")
    adapter = pydantic.TypeAdapter(kind)
    dump = adapter.dump_json

    def serialize(value: T) -> bytes:
        written: bytes = dump(value, by_alias=True)
        return written

    return Serde(serialize, adapter.validate_json, name=f"pydantic {_name(kind)}", immutable=immutable)


class BuiltinsConversion(NamedTuple):
    """How values of a class become dictionaries and lists, and back."""

    to_builtins: Callable[[Any], Any]
    from_builtins: Callable[[Any], Any]
    json_schema: Callable[[], str]
    """A JSON Schema of the class, with its name as the title."""


def conversion(kind: Any, *, keep: tuple[type, ...] = ()) -> BuiltinsConversion:
    """The conversion of a class; values of the types in `keep` stay as they are, where msgspec converts.

    Raises MissingExtraError.
    """
    if _is_pydantic(kind):
        adapter = extra_module("pydantic", PYDANTIC_EXTRA, _name(kind)).TypeAdapter(kind)
        mode = "python" if keep else "json"
        return BuiltinsConversion(
            lambda value: adapter.dump_python(value, mode=mode, by_alias=True),
            adapter.validate_python,
            lambda: json.dumps(adapter.json_schema()),
        )
    msgspec = extra_module("msgspec", MSGSPEC_EXTRA, _name(kind))
    return BuiltinsConversion(
        lambda value: msgspec.to_builtins(value, builtin_types=keep),
        lambda data: msgspec.convert(data, kind, builtin_types=keep),
        lambda: json.dumps(_with_title(msgspec.json.schema(kind), kind)),
    )


def _with_title(schema: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The schema with its definition inlined at the top: the registry's clients read the title there."""
    reference = schema.get("$ref", "")
    definitions = schema.get("$defs", {})
    if reference.startswith("#/$defs/"):
        top = definitions[reference.removeprefix("#/$defs/")]
        schema = {**top, "$defs": definitions} if len(definitions) > 1 else dict(top)
    schema.setdefault("title", _name(kind))
    return schema


def _is_pydantic(kind: Any) -> bool:
    """Whether a class is a pydantic model, without an import of pydantic: only a model has this attribute."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_core_schema__")


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)
