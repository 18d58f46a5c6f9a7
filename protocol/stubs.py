"""Writes messages.pyi, the type stub of the message classes: `python -m odradek.protocol.stubs`.

The classes themselves are made at run time. The stub has their fields and constructors for type checkers and editors;
a test fails when it is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from odradek.protocol import messages
from odradek.protocol.compile import literal
from odradek.protocol.grammar import Field, MessageSpec, StructSpec, parse

STUB: Final = Path(messages.__file__).with_suffix(".pyi")

HEAD: Final = """\
# Written by `python -m odradek.protocol.stubs` from the definition texts; not edited by hand.

from collections.abc import Sized
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from odradek.protocol.classes import BaseMessage, Struct

FOLDER: Path

class Api(NamedTuple):
    name: str
    key: int
    min: int
    max: int
    first_flexible: int

NEVER: int
APIS: dict[int, Api]

def texts() -> dict[str, Path]: ...
def request_class(api_key: int) -> type[Any]: ...
def response_class(api_key: int) -> type[Any]: ...
"""

PYTHON_TYPES: Final = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "memoryview",
}
"""The Python type of a Kafka type; numbers that are missing here are int."""


def stub() -> str:
    """The text of messages.pyi."""
    lines = [HEAD]
    for path in sorted(set(messages.texts().values())):
        for message in parse(path.read_text(encoding="utf-8"), path.name).values():
            lines += _message(message)
    return "\n".join(lines) + "\n"


def _message(message: MessageSpec) -> Iterator[str]:
    yield f"class {message.name}(BaseMessage):"
    if message.key is not None:
        yield "    API_KEY: ClassVar[int]"
    for struct in message.structs.values():
        yield f"    class {struct.name}(Struct):"
        for line in _body(message, struct):
            yield "    " + line
        yield ""
    yield from _body(message, message.root)
    yield ""


def _body(message: MessageSpec, struct: StructSpec) -> Iterator[str]:
    for field in struct.fields:
        if field.type == "records":  # read as a view, written from anything that has a length
            yield "    @property"
            yield f"    def {field.attribute}(self) -> memoryview | None: ..."
            yield f"    @{field.attribute}.setter"
            yield f"    def {field.attribute}(self, value: Sized | None) -> None: ..."
        else:
            yield f"    {field.attribute}: {_type(message, field)}"
    yield "    def __init__("
    yield "        self,"
    yield "        *,"
    for field in struct.fields:
        taken = "Sized | None" if field.type == "records" else _type(message, field)
        made = literal(field)
        default = "..." if made == "[]" or made.endswith("()") else made
        yield f"        {field.attribute}: {taken} = {default},"
    yield "        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,"
    yield "    ) -> None: ..."


def _type(message: MessageSpec, field: Field) -> str:
    name = f"{message.name}.{field.type}" if field.is_struct else PYTHON_TYPES.get(field.type, "int")
    if field.is_array:
        name = f"list[{name}]"
    can_be_none = bool(field.nullable) or field.absent_is_none or literal(field) == "None"
    return f"{name} | None" if can_be_none else name


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
