"""Client quotas of users, client ids and addresses (Kafka: Admin.describeClientQuotas, alterClientQuotas; KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.admin.client import AdminClient, check
from odradek.protocol import messages as m

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_EXACT, _DEFAULT, _ANY = 0, 1, 2
"""Match types of DescribeClientQuotas."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types of entities with a name each, None for the default; sorted by type."""


class AnyName:
    """Selects every name of an entity type, the default among them."""


ANY_NAME: Final = AnyName()


def describe_quotas(
    client: AdminClient, wanted: Mapping[str, str | AnyName | None], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of the entities with these types and names; None is the default. Raises KafkaError.

    With `strict` an entity has no type beside those of `wanted`.
    """
    component = m.DescribeClientQuotasRequest.ComponentData

    def attempt() -> dict[QuotaEntity, dict[str, float]]:
        components = [
            component(
                entity_type=kind,
                match_type=_ANY if isinstance(name, AnyName) else _DEFAULT if name is None else _EXACT,
                match=name if isinstance(name, str) else None,
            )
            for kind, name in wanted.items()
        ]
        answer: m.DescribeClientQuotasResponse = client.any_broker(
            m.DescribeClientQuotasRequest(components=components, strict=strict)
        )
        check(answer.error_code, answer.error_message)
        return {
            tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries or ()
        }

    return client.call(attempt)


def alter_quotas(
    client: AdminClient, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas of an entity, or remove those whose value is None. Raises KafkaError."""
    request = m.AlterClientQuotasRequest

    def attempt() -> None:
        entry = request.EntryData(
            entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                request.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in changes.items()
            ],
        )
        answer: m.AlterClientQuotasResponse = client.controller(request(entries=[entry], validate_only=validate_only))
        for each in answer.entries:
            check(each.error_code, each.error_message)

    client.call(attempt)
