"""JSON values with a JSON Schema, checked by the package jsonschema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from odradek.records.schemas.errors import MisfitError, SchemaError


class JsonCodec:
    """Encodes and decodes the values of one schema."""

    format: Final = "JSON Schema"

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Raises SchemaError for a text that is not a schema."""
        from jsonschema.exceptions import SchemaError as WrongSchemaError
        from jsonschema.validators import Draft7Validator, validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

        try:
            schema = json.loads(text)
            resources = [
                (name, Resource.from_contents(json.loads(each), default_specification=DRAFT7))
                for name, each in references.items()
            ]
            kind = validator_for(schema, default=Draft7Validator)
            kind.check_schema(schema)
        except (ValueError, WrongSchemaError) as error:
            reason = error.message if isinstance(error, WrongSchemaError) else str(error)
            raise SchemaError(f"not a JSON Schema: {reason}") from error
        self._validator: Any = kind(schema, registry=Registry().with_resources(resources))
        self.is_text = isinstance(schema, dict) and schema.get("type") == "string"
        """Whether a value is text as it is, rather than JSON."""
        self.name = str(schema.get("title", "")) if isinstance(schema, dict) else ""

    def encode(self, value: Any, path: str) -> bytes:
        """Raises MisfitError. `path` is the name of the whole value."""
        from jsonschema.exceptions import best_match

        error = best_match(self._validator.iter_errors(value))
        if error is not None:
            raise MisfitError(path + error.json_path.removeprefix("$"), error.message)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> Any:
        """The value, which is not checked again. Raises MisfitError for data that are not JSON."""
        try:
            return json.loads(data)
        except ValueError as error:
            raise MisfitError("the data", f"not JSON: {error}") from error
