"""Audit log: a line for each authorization, in Apache Kafka's words (Kafka: AclAuthorizer.logAuditMessage).

The logger `kafka.authorizer.logger` logs denials at INFO and grants at DEBUG. A check that only filters a list, or
computes the authorized operations of a resource, is logged at TRACE where it neither refuses nor gives access. The
values of a line are also members of its object in a JSON log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from odradek.broker.security.state.acl_znodes import operation_name, type_name
from odradek.broker.security.state.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from odradek.broker.security.auth_helper import RequestSender

AUDIT_LOGGER: Final = "kafka.authorizer.logger"
TRACE: Final = logging.DEBUG // 2
_MESSAGE: Final = (
    "Principal = %(principal)s is %(outcome)s Operation = %(operation)s from host = %(host)s on resource = "
    "%(resource)s for request = %(api)s with resourceRefCount = %(count)d"
)
AUDIT: Final = logging.getLogger(AUDIT_LOGGER)


def literal(resource_type: ResourceType, name: str) -> str:
    """A resource as the log has it: `Topic:LITERAL:orders`."""
    return f"{type_name(resource_type)}:LITERAL:{name}"


def any_of(resource_type: ResourceType) -> str:
    """The resource of a check of all resources of a type."""
    return f"{type_name(resource_type)}:UNKNOWN:NONE"


def log_decision(
    level: int, call: RequestSender, host: str, operation: AclOperation, resource: str, *, allowed: bool, count: int
) -> None:
    """Log a decision; `count` is how often the request names the resource."""
    if AUDIT.isEnabledFor(level):
        fields = {
            "principal": call.session.name,
            "outcome": "Allowed" if allowed else "Denied",
            "operation": operation_name(operation),
            "host": host,
            "resource": resource,
            "api": call.api_name,
            "count": count,
        }
        AUDIT.log(level, _MESSAGE, fields)
