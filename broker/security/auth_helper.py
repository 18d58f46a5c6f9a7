"""Authorization of requests: which resources of a request its sender may use (Kafka: AuthHelper).

Handlers ask here before they act. Without an authorizer everything is allowed. Requests of this broker to itself are
allowed always: Kafka sends them through a listener, as the brokers' own principal, which has to be a super user.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.audit_log import AUDIT, TRACE, any_of, literal, log_decision
from odradek.broker.security.session import Session
from odradek.broker.security.state.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.broker.security.state.authorizer import NOTHING_DECIDED
from odradek.broker.security.state.hosts import host_address
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.protocol.errors import ErrorCode, KafkaError

OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
}
"""The operations that a resource of a type has, of those that responses list (Kafka: AclEntry.supportedOperations)."""


class Authorizer(Protocol):
    """Decides (Kafka: org.apache.kafka.server.authorizer.Authorizer). Called on the event loop, so it must not wait."""

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the principal may perform the operation on the resource of this literal name."""
        ...

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there is any resource of the type on which the principal may perform the operation (KIP-679)."""
        ...


class ClientConnection(Protocol):
    """A connection, as far as authorization needs it."""

    @property
    def address(self) -> str: ...


class RequestSender(Protocol):
    """A request, as far as authorization needs it."""

    @property
    def session(self) -> Session: ...

    @property
    def connection(self) -> ClientConnection: ...

    @property
    def api_name(self) -> str: ...


class AuthHelper:
    """The checks of one broker, and their audit log.

    The audit log has a denial at INFO if the request asked for the resource, and a grant at DEBUG if it gives access;
    `log_if_denied` and `log_if_allowed` are false for checks that only filter or describe.
    """

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        """Without an authorizer every request is allowed."""
        self._authorizer = authorizer
        self.is_enabled = authorizer is not None
        """Whether there is an authorizer."""
        self._decided: Callable[..., Mapping[str, bool]] = getattr(authorizer, "decided", _nothing_decided)

    def authorize(
        self,
        call: RequestSender,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
        count: int = 1,
    ) -> bool:
        """Whether the sender may perform the operation on the resource, which its request names `count` times."""
        authorizer = self._authorizer
        if authorizer is None:
            return True
        session = call.session
        if session.is_broker_itself:
            return True
        host = _host(call.connection.address)
        if authorizer.authorize(session.principal, host, operation, resource_type, name):
            if AUDIT.level <= logging.DEBUG:  # most brokers do not log grants, and need no text for them
                level = logging.DEBUG if log_if_allowed else TRACE
                log_decision(level, call, host, operation, literal(resource_type, name), allowed=True, count=count)
            return True
        level = logging.INFO if log_if_denied else TRACE
        log_decision(level, call, host, operation, literal(resource_type, name), allowed=False, count=count)
        return False

    def authorize_cluster(self, call: RequestSender, operation: AclOperation, *, log_if_denied: bool = True) -> bool:
        """Whether the sender may perform the operation on the cluster."""
        return self.authorize(call, operation, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=log_if_denied)

    def require_cluster(self, call: RequestSender, operation: AclOperation) -> None:
        """Raise KafkaError with CLUSTER_AUTHORIZATION_FAILED unless `authorize_cluster` allows the operation."""
        if not self.authorize_cluster(call, operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")

    def authorize_by_resource_type(
        self, call: RequestSender, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there is any resource of the type on which the sender may perform the operation."""
        authorizer, session = self._authorizer, call.session
        if authorizer is None or session.is_broker_itself:
            return True
        host = _host(call.connection.address)
        allowed = authorizer.authorize_by_resource_type(session.principal, host, operation, resource_type)
        level = logging.DEBUG if allowed else logging.INFO
        log_decision(level, call, host, operation, any_of(resource_type), allowed=allowed, count=0)
        return allowed

    def filter_by_authorized(
        self,
        call: RequestSender,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
    ) -> set[str]:
        """The names of the resources on which the sender may perform the operation."""
        if self._authorizer is None:
            return keep(set(items_of(names)))
        counts = keep(Counter(items_of(names)))
        allowed = {
            name
            for name, count in items_of(counts.items())
            if self.authorize(
                call,
                operation,
                resource_type,
                name,
                log_if_allowed=log_if_allowed,
                log_if_denied=log_if_denied,
                count=count,
            )
        }
        return keep(allowed)

    def unauthorized(
        self, call: RequestSender, operation: AclOperation, resource_type: ResourceType, names: Collection[str]
    ) -> Collection[str]:
        """Those of `names`, which may repeat, on whose resources the sender may not perform the operation.

        The decisions of a request for many resources are mostly cached, and that they all are grants is found without
        a call for each.
        """
        session = call.session
        if self._authorizer is None or session.is_broker_itself:
            return ()
        if AUDIT.level > logging.DEBUG:
            host = _host(call.connection.address)
            if all(map(self._decided(session.principal, host, operation, resource_type).get, names)):
                return ()
        allowed = self.filter_by_authorized(call, operation, resource_type, names)
        return {name for name in names if name not in allowed}

    def authorized_operations(self, call: RequestSender, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed on a resource, as the bit field of responses (KIP-430)."""
        allowed = 0
        for operation in OPERATIONS[resource_type]:
            if self.authorize(call, operation, resource_type, name, log_if_allowed=False, log_if_denied=False):
                allowed |= 1 << operation
        return allowed


@lru_cache(maxsize=4096)
def _host(address: str) -> str:
    """The address of a client in Java's form. A connection sends many requests from one address."""
    return host_address(address)


def _nothing_decided(*_: object) -> Mapping[str, bool]:
    """For authorizers that show no cached decisions."""
    return NOTHING_DECIDED
