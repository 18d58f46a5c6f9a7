"""Principals: the identity that a connection authenticates as (Kafka: KafkaPrincipal, SecurityUtils)."""

from __future__ import annotations

from typing import Final, NamedTuple

USER_TYPE: Final = "User"


class PrincipalError(ValueError):
    """A text is no principal."""


class KafkaPrincipal(NamedTuple):
    """A principal. Two principals are equal if type and name are; a type is compared with its case."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
WILDCARD: Final = KafkaPrincipal(USER_TYPE, "*")
"""In an ACL: every principal, of any type."""


def parse_principal(text: str) -> KafkaPrincipal:
    """The principal of a text as "User:alice"; the name may contain colons, and may be empty. Raises PrincipalError."""
    principal_type, colon, name = text.partition(":")
    if not colon:
        raise PrincipalError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(principal_type, name)


def parse_super_users(text: str) -> frozenset[KafkaPrincipal]:
    """The principals of `super.users`, which separates them by semicolons, because names contain commas.

    Empty items at the end are ignored, as Java's String.split ignores them. Raises PrincipalError.
    """
    items = text.split(";")
    while items and not items[-1]:
        items.pop()
    return frozenset(parse_principal(item.strip()) for item in items)
