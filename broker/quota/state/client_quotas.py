"""The quotas of users and client ids of one type, and which of them applies to a client (Kafka:
ClientQuotaManager.DefaultQuotaCallback).

Quotas of several kinds are searched in this order: user and client id, user and default client id, user, default user
and client id, default user and default client id, default user, client id, default client id. The kind of the quota
that is found decides which requests count together: those of a user, of a client id, or of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.broker.quota.state.rates import UNLIMITED

USER: Final = "user"
CLIENT_ID: Final = "client-id"


class MetricTags(NamedTuple):
    """The clients that share a quota: empty where any user, or any client id, is meant."""

    user: str
    client_id: str


class _Default:
    """In place of a name: all that have no quota of their own."""

    __slots__ = ()


DEFAULT: Final = _Default()
_Part = str | _Default | None
_Key = tuple[_Part, _Part]


class ClientQuotas:
    """Quotas by entity."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: dict[_Key, float] = {}

    def __len__(self) -> int:
        return len(self._bounds)

    def update(self, entity: Mapping[str, str | None], bound: float | None) -> bool:
        """Set the quota of an entity (USER and CLIENT_ID -> name, None for the default), or with None remove it.

        Returns whether that is a change.
        """
        key = _part(entity, USER), _part(entity, CLIENT_ID)
        before = self._bounds.get(key)
        if bound is None:
            self._bounds.pop(key, None)
        else:
            self._bounds[key] = bound
        return bound != before

    def entities(self) -> list[dict[str, str | None]]:
        """The entities that have a quota."""
        return [
            {
                kind: None if isinstance(part, _Default) else part
                for kind, part in ((USER, user), (CLIENT_ID, client_id))
                if part is not None
            }
            for user, client_id in self._bounds
        ]

    def tags(self, user: str, client_id: str) -> MetricTags:
        """Which clients' requests count together with those of this one."""
        for key in (
            (user, client_id),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client_id),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client_id),
            (None, DEFAULT),
        ):
            if key in self._bounds:
                return MetricTags(user if key[0] is not None else "", client_id if key[1] is not None else "")
        return MetricTags("", "")

    def bound(self, tags: MetricTags) -> float:
        """The quota of these clients; UNLIMITED where there is none."""
        user, client_id = tags
        keys: tuple[_Key, ...] = ()
        if user and client_id:
            keys = (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
        elif user:
            keys = (user, None), (DEFAULT, None)
        elif client_id:
            keys = (None, client_id), (None, DEFAULT)
        return next((self._bounds[key] for key in keys if key in self._bounds), UNLIMITED)


def _part(entity: Mapping[str, str | None], kind: str) -> _Part:
    if kind not in entity:
        return None
    name = entity[kind]
    return DEFAULT if name is None else name
