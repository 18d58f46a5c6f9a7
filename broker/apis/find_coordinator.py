"""FindCoordinator (key 10), versions 0 to 6: which broker coordinates a group or a transactional id.

Version 1 adds the type of key (transactions) and an error message, version 4 many keys in one request (KIP-699),
version 5 an error code for transactions (KIP-890) and version 6 share groups (KIP-932), which Odradek does not support.
The client has to be authorized to describe the group or the transactional id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import later
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
DESCRIBE: Final = AclOperation.DESCRIBE
RESOURCES: Final = {
    GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
"""The resource that a key of each type names, and the error of a client that may not describe it."""
NO_ERROR: Final = ErrorCode.NONE
Coordinator = m.FindCoordinatorResponse.Coordinator
DEADLINE_MS: Final = 2_000
"""How long a request waits while the topic is created or its partition gets another leader. Kafka returns an error at
once; librdkafka retries twice within 200 ms for the group of a transaction, then never."""
FIRST_VERSION_WITH_MANY_KEYS: Final = 4
FIRST_VERSION_WITH_SHARE_GROUPS: Final = 6
Found = tuple[ErrorCode, int, str, int, str | None]
"""Error code, node id, host, port, and an error message."""


class CoordinatorLookup(Protocol):
    """Finds the leader of the partition of a key, and creates the topic when it is missing."""

    def coordinator(self, kind: int, key: str, listener: str) -> Found:
        """The coordinator of a group (kind 0) or of a transactional id (kind 1), with its endpoint for a listener."""
        ...

    def await_coordinators(
        self,
        kind: int,
        keys: Sequence[str],
        listener: str,
        timeout_ms: int,
        charge: Callable[[int], None],
        done: Callable[[], None],
    ) -> None:
        """Call `done` once, when each key has a coordinator or at the timeout; perhaps before this returns. `charge`
        receives the number of partitions that were created for this request.
        """
        ...


class FindCoordinator:
    """Handles FindCoordinator."""

    KEY = 10
    VERSIONS = (0, 6)

    def __init__(self, lookup: CoordinatorLookup, quotas: QuotaManagers, auth: AuthHelper) -> None:
        self._lookup = lookup
        self._quotas = quotas
        self._auth = auth

    def handle(self, call: Call, request: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse | None:
        kind, has_many = request.key_type, call.version >= FIRST_VERSION_WITH_MANY_KEYS
        if (not has_many or len(request.coordinator_keys) == 1) and kind in RESOURCES and not self._auth.is_enabled:
            key = request.coordinator_keys[0] if has_many else request.key
            coordinator = self._lookup.coordinator(kind, key, call.listener)
            if coordinator[0] is NO_ERROR:  # the common case
                if has_many:
                    return m.FindCoordinatorResponse(coordinators=[_entry(key, coordinator)])
                return _old(coordinator)
        # A key that the request repeats is answered once; its answers are one object.
        keys = dict.fromkeys(request.coordinator_keys if has_many else [request.key])
        refused: set[str] = set()
        found: dict[str, Found] = {}
        if kind in RESOURCES:
            resource, _ = RESOURCES[kind]
            refused = {key for key in items_of(keys) if not self._auth.authorize(call, DESCRIBE, resource, key)}
            wanted = [key for key in items_of(keys) if key not in refused]
            found = {key: self._lookup.coordinator(kind, key, call.listener) for key in items_of(wanted)}
            if any(each[0] for each in found.values()):
                self._lookup.await_coordinators(
                    kind,
                    wanted,
                    call.listener,
                    DEADLINE_MS,
                    # The client is not throttled for it, as in Kafka: its later CreateTopics requests are (KIP-599).
                    self._quotas.permissive_mutations(call).record,
                    later(lambda: call.reply(self._answer(call, request, refused, {}))),
                )
                return None
        return self._answer(call, request, refused, found)

    def _answer(
        self, call: Call, request: m.FindCoordinatorRequest, refused: set[str], known: dict[str, Found]
    ) -> m.FindCoordinatorResponse:
        """The response; `known` has coordinators that are found already."""
        if call.version < FIRST_VERSION_WITH_MANY_KEYS:
            return _old(known.get(request.key) or self._find(call, request.key_type, request.key, refused))
        found: dict[str, m.FindCoordinatorResponse.Coordinator] = {}
        for key in request.coordinator_keys:
            if key not in found:
                coordinator = known.get(key) or self._find(call, request.key_type, key, refused)
                found[key] = _entry(key, coordinator)
        return m.FindCoordinatorResponse(coordinators=[found[key] for key in request.coordinator_keys])

    def _find(self, call: Call, kind: int, key: str, refused: set[str]) -> Found:
        if kind == SHARE and call.version >= FIRST_VERSION_WITH_SHARE_GROUPS:
            if not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, "", -1, None
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1, "share groups are not served"
        if kind not in RESOURCES:
            return ErrorCode.INVALID_REQUEST, -1, "", -1, f"coordinators of type {kind} are not served; 0 or 1 are"
        if key in refused:
            return RESOURCES[kind][1], -1, "", -1, None
        return self._lookup.coordinator(kind, key, call.listener)


def _old(found: Found) -> m.FindCoordinatorResponse:
    """The response in a version with one key."""
    error, node_id, host, port, message = found
    return m.FindCoordinatorResponse(
        error_code=error,
        # Kafka returns the message NONE on success, which appears in the logs of clients.
        error_message=message or (error.name if error else "NONE"),
        node_id=node_id,
        host=host,
        port=port,
    )


def _entry(key: str, found: Found) -> m.FindCoordinatorResponse.Coordinator:
    """The coordinator of one of many keys."""
    error, node_id, host, port, message = found
    return Coordinator(key=key, error_code=error, error_message=message or "", node_id=node_id, host=host, port=port)
