"""Rules of client quotas: entities, quota names, values and filters (KIP-546, KIP-612; Kafka: ZkAdminManager).

A quota belongs to a user, a client id, a client id of a user, or an address; None in place of a name means all that
have no quota of their own. Kafka's classes are `ZkAdminManager` and `DynamicConfig`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.broker.registry import znodes
from odradek.protocol.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (CLIENT_ID, USER, IP)
"""In the order of Kafka's answers."""

_OF_CLIENTS: Final = {
    "producer_byte_rate": int,
    "consumer_byte_rate": int,
    "request_percentage": float,
    "controller_mutation_rate": float,
}
_OF_ADDRESSES: Final = {"connection_creation_rate": int}
_LARGEST: Final = {"connection_creation_rate": 2**31 - 1}
_LARGEST_LONG: Final = 2**63 - 1
_EPSILON: Final = 1e-6
"""The tolerance for a value that must be a whole number."""

Entity = Mapping[str, str | None]
"""The parts of a quota entity: USER, CLIENT_ID or IP -> name, None for the default."""


class ClientQuotaFilterComponent(NamedTuple):
    """The condition of a filter for one part of an entity: the name, None for the default; or any name."""

    name: str | None = None
    any_name: bool = False


Filter = Mapping[str, ClientQuotaFilterComponent]


def check_entity(entity: Entity) -> None:
    """Raises KafkaError with INVALID_REQUEST for an entity that cannot have a quota."""
    if not entity:
        raise _refused("a quota needs a user, a client id or an address")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise _refused(f"{kind!r} cannot have a quota; {', '.join(ENTITY_TYPES)} can")
        if name == "":
            raise _refused(f"the name of the {kind} is empty")
    if IP in entity and len(entity) > 1:
        raise _refused("the quota of an address can be for no user or client id")


def path(entity: Entity) -> str:
    """The path of an entity's quotas below /config, such as "users/U/clients/C"."""
    if IP in entity:
        return f"ips/{_node(entity[IP])}"
    if USER not in entity:
        return f"clients/{_node(entity[CLIENT_ID])}"
    user = f"users/{_node(entity[USER])}"
    return f"{user}/clients/{_node(entity[CLIENT_ID])}" if CLIENT_ID in entity else user


def entity_of_path(path: str) -> Entity:
    """The entity whose quotas are at a path below /config, such as "users/U/clients/C". Raises ValueError."""
    match path.split("/"):
        case ["users", user]:
            return {USER: name_of_node(user)}
        case ["users", user, "clients", client]:
            return {USER: name_of_node(user), CLIENT_ID: name_of_node(client)}
        case ["clients", client]:
            return {CLIENT_ID: name_of_node(client)}
        case ["ips", address]:
            return {IP: name_of_node(address)}
    raise ValueError(f"{path!r} is no user, client id or address")


def name_of_node(node: str) -> str | None:
    """The name of an entity from the node of its path."""
    return None if node == znodes.DEFAULT_ENTITY else znodes.desanitize(node)


def value_text(entity: Entity, key: str, value: float) -> str:
    """A quota as text for the metadata store. Raises KafkaError with INVALID_REQUEST."""
    kinds = _OF_ADDRESSES if IP in entity else _OF_CLIENTS
    if key not in kinds:
        raise _refused(f"{key!r} is no quota of {' and '.join(entity)}; {', '.join(kinds)} are")
    if kinds[key] is float:
        return java_double(value)
    largest = _LARGEST.get(key, _LARGEST_LONG)
    whole = 0 if math.isnan(value) else int(min(max(value + _EPSILON, -largest - 1), largest))
    if whole < 0 or abs(whole - value) > _EPSILON:
        raise _refused(f"{key} is {value}; it must be a whole number up to {largest}, and not negative")
    return str(whole)


def values(properties: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the properties of an entity; those that are no numbers are ignored."""
    found = {}
    for key in (*_OF_CLIENTS, *_OF_ADDRESSES):
        with contextlib.suppress(ValueError):
            if key in properties:
                found[key] = float(properties[key])
    return found


def check_filter(kinds: Iterable[str]) -> None:
    """Raises KafkaError for parts of a filter that conflict: INVALID_REQUEST, UNSUPPORTED_VERSION."""
    seen: dict[str, None] = {}
    for kind in kinds:
        if kind in seen:
            raise _refused(f"the filter names {kind} twice")
        if not kind:
            raise _refused("the filter names an empty type of entity")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{kind!r} has no quotas here")
        seen[kind] = None
    if IP in seen and len(seen) > 1:
        raise _refused("a filter for addresses can name no user or client id")


def matches(wanted: Filter, entity: Entity, *, strict: bool) -> bool:
    """Whether an entity matches a filter; with `strict`, it has no parts that the filter does not have."""
    if strict and set(entity) - set(wanted):
        return False
    return all(kind in entity and (each.any_name or entity[kind] == each.name) for kind, each in wanted.items())


def java_double(value: float) -> str:
    """A number in Java's format, which Kafka stores: "12.5", "1.0E9", "NaN"."""
    from decimal import Decimal  # imported late: only a broker that writes quotas needs it

    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    # The shortest digits that represent this number, with the point behind the first of them.
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text, power = "".join(map(str, digits)), len(digits) - 1 + exponent
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0"
    if -3 <= power < 7:
        plain = f"{Decimal(repr(abs(value))):f}"
        return minus + (plain if "." in plain else plain + ".0")
    return f"{minus}{text[0]}.{text[1:] or '0'}E{power}"


def _node(name: str | None) -> str:
    return znodes.DEFAULT_ENTITY if name is None else znodes.sanitize(name)


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
