"""Delegation tokens (Kafka: Admin.createDelegationToken and others; KIP-48, KIP-373)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

from odradek.admin.client import AdminClient, check
from odradek.protocol import messages as m


class Principal(NamedTuple):
    """A user as brokers name it: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class TokenDescription(NamedTuple):
    """A token. The HMAC is the password with which it logs in, in Base64."""

    token_id: str
    hmac: str
    owner: Principal
    requester: Principal | None
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int


def create_token(
    client: AdminClient, owner: Principal | None, renewers: Sequence[Principal], max_lifetime_ms: int
) -> TokenDescription:
    """A new token, of the logged-in user or of `owner`; a life of -1 is the longest allowed one. Raises KafkaError."""
    request = m.CreateDelegationTokenRequest(
        owner_principal_type=owner.type if owner is not None else None,
        owner_principal_name=owner.name if owner is not None else None,
        renewers=[
            m.CreateDelegationTokenRequest.CreatableRenewers(principal_type=each.type, principal_name=each.name)
            for each in renewers
        ],
        max_lifetime_ms=max_lifetime_ms,
    )

    def attempt() -> TokenDescription:
        answer: m.CreateDelegationTokenResponse = client.controller(request)
        check(answer.error_code)
        return TokenDescription(
            answer.token_id,
            base64.b64encode(answer.hmac).decode(),
            Principal(answer.principal_type, answer.principal_name),
            _requester(answer.token_requester_principal_type, answer.token_requester_principal_name),
            tuple(renewers),
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    return client.call(attempt)


def describe_tokens(client: AdminClient, owners: Sequence[Principal] | None = None) -> list[TokenDescription]:
    """The tokens that the logged-in user may see, all or those of `owners`. Raises KafkaError."""
    owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    wanted = None if owners is None else [owner(principal_type=each.type, principal_name=each.name) for each in owners]

    def attempt() -> list[TokenDescription]:
        answer: m.DescribeDelegationTokenResponse = client.any_broker(m.DescribeDelegationTokenRequest(owners=wanted))
        check(answer.error_code)
        found = [
            TokenDescription(
                each.token_id,
                base64.b64encode(each.hmac).decode(),
                Principal(each.principal_type, each.principal_name),
                _requester(each.token_requester_principal_type, each.token_requester_principal_name),
                tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
            )
            for each in answer.tokens
        ]
        return sorted(found, key=lambda token: token.issue_ms)

    return client.call(attempt)


def renew_token(client: AdminClient, hmac: str, period_ms: int) -> int:
    """Renew a token by so many milliseconds, -1 for the default of the brokers; the new expiry. Raises KafkaError."""

    def attempt() -> int:
        request = m.RenewDelegationTokenRequest(hmac=base64.b64decode(hmac), renew_period_ms=period_ms)
        answer: m.RenewDelegationTokenResponse = client.controller(request)
        check(answer.error_code)
        return answer.expiry_timestamp_ms

    return client.call(attempt)


def expire_token(client: AdminClient, hmac: str, period_ms: int) -> int:
    """Let a token expire in so many milliseconds, or with -1 delete it; the new expiry. Raises KafkaError."""

    def attempt() -> int:
        request = m.ExpireDelegationTokenRequest(hmac=base64.b64decode(hmac), expiry_time_period_ms=period_ms)
        answer: m.ExpireDelegationTokenResponse = client.controller(request)
        check(answer.error_code)
        return answer.expiry_timestamp_ms

    return client.call(attempt)


def _requester(kind: str, name: str) -> Principal | None:
    """None before version 3."""
    return Principal(kind, name) if kind else None
