"""The codec against kio, an independent one made for Kafka 4: every message and version that both have, both ways.

kio has types of its own for times, durations, error codes and ids; values are chosen from what those can hold.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_entity_module
from kio.schema.errors import ErrorCode
from kio.schema.index import LoadableEntityType, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from odradek.protocol import messages
from odradek.protocol.grammar import Field, MessageSpec, StructSpec
from tests.protocol.jar_differences import OWN_FIELDS
from tests.protocol.samples import Special, Value, definitions, sample

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
EXACT_MS = 2**32 * 1000
CODES = [int(code) for code in ErrorCode]
"""The end of the times that kio reads exactly: it counts seconds in a float, too coarse after the year 2106."""

OWN_NAMES = frozenset(path.rpartition(".")[2] for _, path in OWN_FIELDS if path.count(".") == 2)
NOT_IN_KIO = {
    "LeaderAndIsr": "only with ZooKeeper",
    "StopReplica": "only with ZooKeeper",
    "UpdateMetadata": "only with ZooKeeper",
    "ControlledShutdown": "only with ZooKeeper",
    "Key": "records of the coordinators are in no jar that kio reads",
    "Value": "records of the coordinators are in no jar that kio reads",
}


def kio_kind(name: str) -> LoadableEntityType:
    """kio's name for the kind of a message of Odradek."""
    if name.endswith("Request"):
        return EntityType.request
    if name.endswith("Response"):
        return EntityType.response
    return EntityType.header if name.endswith("Header") else EntityType.data


def kio_schema(name: str) -> str:
    """The name of a message as kio writes it in its index: `KRaftVersionRecord` is `k_raft_version_record`."""
    name = name.removesuffix("Request").removesuffix("Response")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).removeprefix("_")


def kio_versions(name: str) -> list[int]:
    """The versions of a message of Odradek that kio has, too. kio has a module for each: its index names them all."""
    kind, versions = kio_kind(name), definitions()[name].versions
    found = schema_name_map.get(kio_schema(name), {})
    return [version for version, kinds in found.items() if kind in kinds and version in versions]


def kio_modules(name: str) -> dict[int, ModuleType]:
    """The modules of kio for a message of Odradek, by version."""
    schema, kind = kio_schema(name), kio_kind(name)
    return {version: load_entity_module(schema, version, kind) for version in kio_versions(name)}


class Translation:
    """Converts objects of Odradek into those of kio, for one message in one version."""

    def __init__(self, message: MessageSpec, version: int, module: ModuleType) -> None:
        self._message = message
        self._version = version
        self._module = module
        self._attributes = {
            struct.name: self._pair(struct) for struct in (message.root, *message.structs.values()) if self._has(struct)
        }

    def kio(self, value: Any, struct: StructSpec | None = None) -> Any:
        """The object of kio with the value of `value`."""
        struct = struct or self._message.root
        given: dict[str, Any] = {}
        for field, theirs in self._attributes[struct.name]:
            mine = getattr(value, field.attribute)
            if mine is None and field.absent_is_none:
                continue  # kio's default is the same
            optional = "None" in str(theirs.type)
            if field.is_array and mine is not None:
                given[theirs.name] = tuple(self._single(field, theirs, element, False) for element in mine)
            else:
                given[theirs.name] = self._single(field, theirs, mine, optional)
        return getattr(self._module, struct.name)(**given)

    def special(self, struct: str, field: Field) -> Value | None:
        """Values that the types of kio can hold."""
        kinds = {mine.name: theirs.metadata.get("kafka_type") for mine, theirs in self._attributes[struct]}
        makers: dict[str, Callable[[random.Random], Any]] = {
            "error_code": lambda rng: rng.choice(CODES),
            "timedelta_i64": lambda rng: rng.randint(-EXACT_MS, EXACT_MS),
            "datetime_i64": lambda rng: rng.randint(0, EXACT_MS),
        }
        return makers.get(str(kinds.get(field.name)))

    def _has(self, struct: StructSpec) -> bool:
        return hasattr(self._module, struct.name)

    def _pair(self, struct: StructSpec) -> list[tuple[Field, dataclasses.Field[Any]]]:
        """Each field of a structure in this version with that of kio, which leaves out the unit of times."""
        theirs = {field.name: field for field in dataclasses.fields(getattr(self._module, struct.name))}
        pairs = []
        for field in struct.fields:
            if self._version in field.versions and not self._is_own(field):
                mine = field.attribute
                name = next(name for name in (mine, mine.removesuffix("_ms"), mine + "_") if name in theirs)
                pairs.append((field, theirs.pop(name)))
        assert not theirs, f"{struct.name} v{self._version}: only kio has {sorted(theirs)}"
        return pairs

    def _is_own(self, field: Field) -> bool:
        # The fields of a structure that only a field of Odradek's own has are not among those of a structure of kio.
        own = {path for name, path in OWN_FIELDS if name == self._message.name}
        return any(path.endswith(f".{field.name}") for path in own if path.rpartition(".")[0] not in own)

    def _single(self, field: Field, theirs: dataclasses.Field[Any], value: Any, optional: bool) -> Any:
        if value is None:
            return None
        if field.is_struct:
            return self.kio(value, self._message.structs[field.type])
        kind = theirs.metadata["kafka_type"]
        if kind == "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        if kind == "error_code":
            return ErrorCode(value)
        if kind.startswith("timedelta"):
            return value * MILLISECOND
        if kind == "datetime_i64":
            return None if optional and value == -1 else EPOCH + value * MILLISECOND
        return bytes(value) if isinstance(value, memoryview) else value


def messages_of_both() -> list[str]:
    return [name for name in definitions() if kio_versions(name)]


def test_every_message_in_both_is_compared() -> None:
    missing = sorted(set(definitions()) - set(messages_of_both()))
    unexplained = [name for name in missing if not any(part in name for part in NOT_IN_KIO)]
    assert unexplained == []
    # Of those in both, kio has one version more: v6 of InitProducerId, which no release offers.
    left_out = {
        (name, version)
        for name in messages_of_both()
        for version in schema_name_map[kio_schema(name)]
        if version not in definitions()[name].versions
    }
    assert left_out == {("InitProducerIdRequest", 6), ("InitProducerIdResponse", 6)}


@pytest.mark.parametrize("name", messages_of_both())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(seed=st.integers(0, 2**64 - 1))
def test_bytes_and_values_are_those_of_kio(name: str, seed: int) -> None:
    """Hypothesis draws the seed only: each of the 200 numbers of an example cost it more than the comparison."""
    rng = random.Random(seed)
    message, ours = definitions()[name], getattr(messages, name)
    for version, module in kio_modules(name).items():
        translation = Translation(message, version, module)
        special: Special = translation.special
        value = sample(name, version, rng, special=special, unknown_tags=False, without=OWN_NAMES)
        theirs = translation.kio(value)
        entity = getattr(module, name)
        written = io.BytesIO()
        entity_writer(entity)(written, theirs)
        assert value.encode(version) == written.getvalue(), f"{name} v{version} written"
        assert ours.decode(written.getvalue(), version) == value, f"{name} v{version} read by ours"
        read, size = entity_reader(entity)(value.encode(version), 0)
        assert (read, size) == (theirs, len(written.getvalue())), f"{name} v{version} read by kio"
