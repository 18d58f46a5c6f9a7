"""Avro values from and to JSON, and their encoding by fastavro.

JSON is plain: a union is the value of its branch, bytes and fixed are text of U+0000 to U+00FF as in Avro's JSON
encoding, and logical types are text: `2026-01-31T12:00:00+00:00`, `12.50`. Input may also have the JSON encoding of
Avro's own tools, in which a union names its branch, `{"string": "x"}`, and the numbers below logical types.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import io
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from odradek.records.schemas.avro_bounds import SchemaBounds, named_types, parsed_json
from odradek.records.schemas.errors import MisfitError, SchemaError

Names = Mapping[str, Any]
_RANGES: Final = {"int": 31, "long": 63}
_NOT_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_ROOT: Final = "$root"
_PLAIN: Final = ("string", "bytes")
"""Types of whole keys or values that are as they are, without JSON."""


class AvroCodec:
    """Encodes and decodes the values of one schema."""

    format: Final = "Avro"

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Raises SchemaError for a text that is not a schema, or is one of which a few bytes cost too much."""
        import fastavro
        from fastavro.schema import load_schema

        try:
            repository: Any = _Repository(parsed_json({**references, _ROOT: _json_of(text)}))
            self._schema = load_schema(_ROOT, repo=repository)
            self._names = named_types(self._schema)  # fastavro's own table has no fields
            self._bounds = SchemaBounds(self._schema, self._names)
        except SchemaError as error:
            raise SchemaError(f"not an Avro schema that can be used: {error}") from error
        except Exception as error:  # of several classes: of fastavro, and of what it finds in the schema
            raise SchemaError(f"not an Avro schema: {error}") from error
        self._write, self._read = fastavro.schemaless_writer, fastavro.schemaless_reader
        self._kind = _kind(self._schema)
        self.name = _branch_name(self._schema) if isinstance(self._schema, dict) else self._kind
        """Of a type with a name, otherwise the type."""

    @property
    def is_text(self) -> bool:
        """Whether a value is text as it is, rather than JSON."""
        return self._kind in _PLAIN

    def encode(self, value: Any, path: str) -> bytes:
        """Raises MisfitError. `path` is the name of the whole value."""
        if self._kind == "bytes":  # Confluent's serializers leave out the length
            return value if isinstance(value, bytes) else str(value).encode()
        file = io.BytesIO()
        try:
            self._write(file, self._schema, converted(self._schema, value, path, self._names))
        except MisfitError:
            raise
        except Exception as error:
            raise MisfitError(path, str(error)) from error
        return file.getvalue()

    def decode(self, data: bytes) -> Any:
        """The value as JSON has it. Raises MisfitError."""
        if self._kind == "bytes":
            return data
        if self._bounds.is_recursive:
            self._bounds.check(self._schema, data)
        file = io.BytesIO(data)
        try:
            value = self._read(file, self._schema, None)
        except Exception as error:
            raise MisfitError("the data", f"{type(error).__name__} {error}".strip()) from error
        if file.tell() != len(data):
            raise MisfitError("the data", f"{len(data) - file.tell()} bytes are left")
        return shown(value)


class _Repository:
    """Schemas by name, which fastavro puts where a schema refers to them."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def load(self, name: str) -> Any:
        """Raises LookupError."""
        if name not in self._schemas:
            raise LookupError(f"{name} is neither a type nor a reference")
        return copy.deepcopy(self._schemas[name])


def _json_of(text: str) -> str:
    """A schema as JSON; a text may also be the name of a primitive type."""
    name = text.strip()
    return json.dumps(name) if name.isidentifier() else text


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def shown(value: Any) -> Any:
    """A value of fastavro as JSON has it."""
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return str(value) if isinstance(value, uuid.UUID) else value


def converted(schema: Any, value: Any, path: str, names: Names) -> Any:
    """A JSON value as fastavro takes it for a schema. Raises MisfitError."""
    if isinstance(schema, list):
        return _branch(schema, value, path, names)
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    logical = _LOGICAL.get(schema.get("logicalType", ""))
    if logical is not None and isinstance(value, (str, float, int)) and not isinstance(value, bool):
        found = logical(schema, value, path)
        if found is not None:
            return found
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return converted(kind, value, path, names)
    convert = _TYPES.get(kind)
    return converted(names[kind], value, path, names) if convert is None else convert(schema, value, path, names)


def _branch(schemas: list[Any], value: Any, path: str, names: Names) -> Any:
    """The value for the first branch that it fits; `{"BRANCH": value}` names one."""
    called = {_branch_name(each): each for each in schemas}
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in called:
        ((name, inner),) = value.items()
        return converted(called[name], inner, path, names)
    misfits = []
    for each in schemas:
        try:
            return converted(each, value, path, names)
        except MisfitError as misfit:
            misfits.append(misfit)
    records = [misfit for misfit, each in zip(misfits, schemas, strict=True) if _is_record(each, names)]
    if isinstance(value, dict) and len(records) == 1:
        raise records[0]
    raise MisfitError(path, f"{_json(value)} is none of {', '.join(called)}")


def _branch_name(schema: Any) -> str:
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else str(schema)


def _is_record(schema: Any, names: Names) -> bool:
    return _kind(names.get(schema, schema) if isinstance(schema, str) else schema) in ("record", "error")


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _record(schema: Any, value: Any, path: str, names: Names) -> Any:
    if not isinstance(value, dict):
        raise MisfitError(path, f"{_json(value)} is not an object of {schema['name']}")
    fields = {each["name"]: each for each in schema["fields"]}
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise MisfitError(f"{path}.{unknown[0]}", f"{schema['name']} has no such field; allowed: {', '.join(fields)}")
    found = {}
    for name, field in fields.items():
        if name in value:
            found[name] = converted(field["type"], value[name], f"{path}.{name}", names)
        elif "default" not in field:
            raise MisfitError(
                f"{path}.{name}", f"it is missing, and has no default; its type is {_text(field['type'])}"
            )
    return found


def _text(schema: Any) -> str:
    return " or ".join(map(_branch_name, schema)) if isinstance(schema, list) else _branch_name(schema)


def _array(schema: Any, value: Any, path: str, names: Names) -> Any:
    if not isinstance(value, list):
        raise MisfitError(path, f"{_json(value)} is not an array")
    return [converted(schema["items"], each, f"{path}[{number}]", names) for number, each in enumerate(value)]


def _map(schema: Any, value: Any, path: str, names: Names) -> Any:
    if not isinstance(value, dict):
        raise MisfitError(path, f"{_json(value)} is not an object")
    return {name: converted(schema["values"], each, f"{path}.{name}", names) for name, each in value.items()}


def _enum(schema: Any, value: Any, path: str, names: Names) -> Any:
    if value not in schema["symbols"]:
        raise MisfitError(path, f"{_json(value)} is not a symbol; allowed: {', '.join(schema['symbols'])}")
    return value


def _integer(schema: Any, value: Any, path: str, names: Names) -> Any:
    bits = _RANGES[schema["type"]]
    if not isinstance(value, int) or isinstance(value, bool):
        raise MisfitError(path, f"{_json(value)} is not of type {schema['type']}")
    if not -(2**bits) <= value < 2**bits:
        raise MisfitError(path, f"{value} is out of range; allowed: {-(2**bits)} to {2**bits - 1}")
    return value


def _float(schema: Any, value: Any, path: str, names: Names) -> Any:
    if value in _NOT_NUMBERS:
        return float(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise MisfitError(path, f"{_json(value)} is not of type {schema['type']}")
    return float(value)


def _bytes(schema: Any, value: Any, path: str, names: Names) -> Any:
    if not isinstance(value, str) or any(letter > "\xff" for letter in value):
        raise MisfitError(path, f"{_json(value)} is not of type {schema['type']}; allowed: text of U+0000 to U+00FF")
    if len(value) != schema.get("size", len(value)):
        raise MisfitError(path, f"it has {len(value)} bytes; allowed: {schema['size']}")
    return value.encode("latin-1")


def _exact(name: str, kind: type) -> Callable[[Any, Any, str, Names], Any]:
    def convert(schema: Any, value: Any, path: str, names: Names) -> Any:
        if not isinstance(value, kind):
            raise MisfitError(path, f"{_json(value)} is not of type {name}")
        return value

    return convert


_TYPES: Final[Mapping[str, Callable[[Any, Any, str, Names], Any]]] = {
    "null": _exact("null", type(None)),
    "boolean": _exact("boolean", bool),
    "string": _exact("string", str),
    "int": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "fixed": _bytes,
    "enum": _enum,
    "array": _array,
    "map": _map,
    "record": _record,
    "error": _record,
}


def _time(kind: type, example: str) -> Callable[[Any, Any, str], Any]:
    def convert(schema: Any, value: Any, path: str) -> Any:
        if not isinstance(value, str):
            return None  # the number below
        try:
            return kind.fromisoformat(value)  # type: ignore[attr-defined]
        except ValueError as error:
            reason = f"{_json(value)} is not of type {schema['logicalType']}; allowed: text as {example}, or a number"
            raise MisfitError(path, reason) from error

    return convert


def _decimal(schema: Any, value: Any, path: str) -> Any:
    try:
        number = decimal.Decimal(str(value))
    except decimal.InvalidOperation:
        return None  # the bytes below, as text
    digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
    scale, precision = schema.get("scale", 0), schema["precision"]
    if not isinstance(exponent, int) or -exponent > scale or len(digits) + exponent > precision - scale:
        raise MisfitError(path, f"{value} is out of range; allowed: {precision} digits, {scale} of them decimals")
    return number


def _uuid(schema: Any, value: Any, path: str) -> Any:
    try:
        return str(uuid.UUID(str(value)))
    except ValueError as error:
        raise MisfitError(path, f"{_json(value)} is not a UUID") from error


_MOMENT: Final = _time(datetime.datetime, "2026-01-31T12:00:00+00:00")
_CLOCK: Final = _time(datetime.time, "12:00:00")
_LOGICAL: Final[Mapping[str, Callable[[Any, Any, str], Any]]] = {
    "date": _time(datetime.date, "2026-01-31"),
    "decimal": _decimal,
    "uuid": _uuid,
    **dict.fromkeys(("time-millis", "time-micros"), _CLOCK),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), _MOMENT),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), _MOMENT),
}
