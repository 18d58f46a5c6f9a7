"""Generator of expensive requests: for each API and version, the requests of a given size that cost a broker most.

The requests are built from the definition texts, so a new API or version is included without a change here. A request
has one array that is filled up to the size; everything else in it is as small as possible. The shapes of its elements:

- `smallest`: every field has its smallest encoding, so that there are as many elements as possible;
- `repeated`: every element names the same existing topic, group or id;
- `distinct`: every element has another name;
- `nested`: every element names the same, and has one element in each array inside it (elements with arrays only);
- `numbers`: every element names the same topic and another partition (elements with numbers of partitions only);
- `tags`: no array, but unknown tagged fields of two bytes (flexible versions only);
- `strings`: elements whose strings have the largest allowed length.
"""

from __future__ import annotations

import string
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, product
from typing import Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.compile import Shape
from odradek.protocol.framing import request_header
from odradek.protocol.grammar import NUMBERS, Field, StructSpec, parse
from odradek.protocol.primitives import MAX_STRING, uvarint

TOPIC: Final = "orders"
GROUP: Final = "group"
NESTED: Final = "nested"
NUMBERED: Final = "numbers"
SHAPES: Final = ("smallest", "repeated", "distinct", NESTED, NUMBERED, "strings")
NUMBERS_BY_NAME: Final = {
    "acks": 1,
    "timeout_ms": 1000,
    "transaction_timeout_ms": 60_000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "timestamp": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "num_partitions": -1,
    "replication_factor": -1,
    "max_num_offsets": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "current_leader_epoch": -1,
    "session_epoch": -1,
    "member_epoch": 0,
    "response_partition_limit": 2000,
}
"""Values with which a broker does not reject the whole request; others are 0."""
GROUP_NAMES: Final = frozenset({"group_id", "groups", "group_ids", "groups_names", "coordinator_keys", "key"})
STRINGS_BY_NAME: Final = {"member_id": "member", "protocol_type": "consumer", "client_software_name": "hostile"}
NAME: Final = "QQQQQ"
"""In an element of `distinct`, the place of a name."""
NUMBER: Final = b"QQQQ"
"""In an element of `numbers`, the place of a number."""
PARTITION_NUMBERS: Final = frozenset(
    {"partition", "partitions", "partition_index", "partition_indexes", "partition_id", "index"}
)
TAG: Final = b"\x7f\x00"
"""An unknown tag without a value."""


class Hostile(NamedTuple):
    """One request. `array` is the path of the array that is filled, empty for tagged fields."""

    api_key: int
    version: int
    shape: str
    array: str
    elements: int
    frame: bytes
    """The whole request with its size."""

    @property
    def name(self) -> str:
        """A description of the request for the table."""
        api = m.APIS[self.api_key].name
        return f"{api} v{self.version} {self.shape} {self.array}".rstrip()


def requests(
    api_key: int,
    version: int,
    size: int,
    topic_id: bytes = bytes(16),
    shapes: Sequence[str] = (*SHAPES, "tags"),
    array: str | None = None,
) -> Iterator[Hostile]:
    """The expensive requests of about `size` bytes for one version of one API; with `array` those that fill it."""
    shape = _shape(api_key, version)
    for path in _arrays(shape, shape.message.root):
        if array is not None and array != _name(path):
            continue
        for kind in SHAPES:
            if kind in shapes and _is_of_use(shape, path[-1], kind):
                yield _Writer(shape, kind, topic_id).request(path, size)
    if shape.flexible and "tags" in shapes:
        count = size // len(TAG)
        body = _Writer(shape, "smallest", topic_id).struct(shape.message.root, ())[:-1] + uvarint(count) + TAG * count
        yield Hostile(api_key, version, "tags", "", count, _framed(api_key, version, body))


def _distinct_names() -> Iterator[bytes]:
    letters = string.ascii_lowercase + string.digits
    return ("".join(each).encode() for each in product(letters, repeat=len(NAME)))


@cache
def _shape(api_key: int, version: int) -> Shape:
    name = m.request_class(api_key).__name__
    path = m.texts()[name]
    return Shape(parse(path.read_text(encoding="utf-8"), path.name)[name], version)


def _arrays(shape: Shape, struct_: StructSpec, before: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """The path of every array, also of those inside other arrays."""
    for field in shape.present(struct_):
        path = (*before, field)
        if field.is_array:
            yield path
        if field.is_struct:
            yield from _arrays(shape, shape.message.structs[field.type], path)


def _name(path: tuple[Field, ...]) -> str:
    return ".".join(field.attribute for field in path)


def _is_of_use(shape: Shape, field: Field, kind: str) -> bool:
    """Whether elements of this kind differ from the smallest ones: by a string in them, or by an array."""
    if kind == "smallest":
        return True
    if not field.is_struct:
        return _is_partition(field) if kind == NUMBERED else field.type == "string" and kind != NESTED
    inside = list(shape.present(shape.message.structs[field.type]))
    if kind == NESTED:
        return any(each.is_array for each in inside)
    if kind == NUMBERED:
        return any(_is_partition(each) and not each.is_array for each in inside)
    return any(each.type == "string" and not each.is_array for each in inside)


def _is_partition(field: Field) -> bool:
    return field.type == "int32" and field.attribute in PARTITION_NUMBERS


def _framed(api_key: int, version: int, body: bytes) -> bytes:
    head = request_header(api_key, version, 1, "hostile")
    return struct.pack(">i", len(head) + len(body)) + head + body


class _Writer:
    """Encodes one request. Outside of the filled array, values are those of `repeated`."""

    def __init__(self, shape: Shape, kind: str, topic_id: bytes) -> None:
        self._shape = shape
        self._kind = kind
        self._topic_id = topic_id
        self._size = 0
        self._count = 0

    def request(self, path: tuple[Field, ...], size: int) -> Hostile:
        """The request whose array at `path` is filled."""
        self._size = size
        message = self._shape.message
        body = self.struct(message.root, path)
        assert message.key is not None
        frame = _framed(message.key, self._shape.version, body)
        return Hostile(message.key, self._shape.version, self._kind, _name(path), self._count, frame)

    def struct(self, struct_: StructSpec, path: tuple[Field, ...], kind: str = "repeated") -> bytes:
        """A structure on the way to the filled array, or outside of it (`path` is then empty)."""
        parts = [
            self._on_the_way(field, path[1:]) if path and field is path[0] else self._value(field, kind)
            for field in self._shape.present(struct_)
        ]
        return b"".join(parts) + (b"\0" if self._shape.flexible else b"")

    def _on_the_way(self, field: Field, rest: tuple[Field, ...]) -> bytes:
        if not rest:
            return self._filled(field)
        inner = self.struct(self._shape.message.structs[field.type], rest)
        if field.is_array:
            return self._length(field, 1) + inner
        return (b"\x01" if self._shape.is_nullable(field) else b"") + inner

    def _filled(self, field: Field) -> bytes:
        element = self._element(field)
        self._count = max(1, self._size // len(element))
        if self._kind == "distinct":
            around = element.split(NAME.encode())
            data = b"".join(name.join(around) for name in islice(_distinct_names(), self._count))
        elif self._kind == NUMBERED:
            around = element.split(NUMBER)
            data = b"".join(struct.pack(">i", number).join(around) for number in range(self._count))
        else:
            data = element * self._count
        return self._length(field, self._count) + data

    def _element(self, field: Field) -> bytes:
        if field.is_struct:
            return self.struct(self._shape.message.structs[field.type], (), self._kind)
        return self._single(field, self._kind)

    def _value(self, field: Field, kind: str) -> bytes:
        """A field outside of the path: arrays are empty, or null where they may be."""
        nullable = self._shape.is_nullable(field)
        if field.is_array:
            if kind == NESTED:
                return self._length(field, 1) + self._element(field)
            if nullable:
                return b"\0" if self._shape.is_compact(field) else struct.pack(">i", -1)
            return self._length(field, 0)
        if field.is_struct:
            return b"\xff" if nullable else self.struct(self._shape.message.structs[field.type], (), kind)
        return self._single(field, kind)

    def _single(self, field: Field, kind: str) -> bytes:
        if field.type == "uuid":
            return self._topic_id if kind in ("repeated", NESTED, NUMBERED) else bytes(16)
        if kind == NUMBERED and _is_partition(field):
            return NUMBER
        if field.type in NUMBERS:
            number = NUMBERS_BY_NAME.get(field.attribute, 0)
            return struct.pack(">" + NUMBERS[field.type], number)
        if field.type != "string":
            null = self._shape.is_nullable(field)
            if self._shape.is_compact(field):
                return b"\0" if null else b"\1"
            return struct.pack(">i", -1 if null else 0)
        nullable = self._shape.is_nullable(field)
        if nullable and kind in ("smallest", "repeated", NESTED, NUMBERED) and field.attribute not in ("name", "topic"):
            return b"\0" if self._shape.is_compact(field) else struct.pack(">h", -1)
        data = self._text(field, kind).encode()
        return (uvarint(len(data) + 1) if self._shape.is_compact(field) else struct.pack(">h", len(data))) + data

    def _text(self, field: Field, kind: str) -> str:
        if kind == "smallest":
            return ""
        if kind == "distinct":
            return NAME
        if kind == "strings":
            return "s" * MAX_STRING
        if field.attribute in GROUP_NAMES:
            return GROUP
        return STRINGS_BY_NAME.get(field.attribute, TOPIC)

    def _length(self, field: Field, count: int) -> bytes:
        return uvarint(count + 1) if self._shape.is_compact(field) else struct.pack(">i", count)
