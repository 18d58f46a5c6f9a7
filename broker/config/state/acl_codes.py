"""Codes of access control lists (Kafka: ResourceType, PatternType, AclOperation, AclPermissionType)."""

from __future__ import annotations

from typing import Final

NO_AUTHORIZER: Final = "this broker has no authorizer, so there are no access rules"
UNKNOWN: Final = 0


def is_unknown(resource_type: int, pattern_type: int, operation: int, permission_type: int) -> bool:
    """Whether one of these codes is UNKNOWN, which no request may contain.

    An authorizer would refuse other undefined codes.
    """
    return UNKNOWN in (resource_type, pattern_type, operation, permission_type)
