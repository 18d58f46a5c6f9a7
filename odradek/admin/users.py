"""Users of SASL/SCRAM (Kafka: Admin.describeUserScramCredentials, alterUserScramCredentials; KIP-554).

The client salts and hashes a password; the password itself is not sent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.admin.client import AdminClient, check, outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError
from odradek.protocol.sasl.scram import salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS

SALT_BYTES: Final = 20
CODES: Final = {each.name: code for code, each in MECHANISMS.items()}
"""The code of each mechanism in the protocol."""


class ScramUser(NamedTuple):
    """A user with the mechanisms of the stored credentials, and the iterations of each."""

    name: str
    iterations: dict[str, int]


class NewCredential(NamedTuple):
    """A credential to create or replace."""

    mechanism: str
    password: str
    iterations: int


def describe_users(client: AdminClient, names: Sequence[str] | None = None) -> dict[str, ScramUser | KafkaError]:
    """Users with SCRAM credentials, all or those of `names`. Raises KafkaError."""
    request = m.DescribeUserScramCredentialsRequest

    def attempt() -> dict[str, ScramUser | KafkaError]:
        users = None if names is None else [request.UserName(name=name) for name in names]
        answer: m.DescribeUserScramCredentialsResponse = client.any_broker(request(users=users))
        check(answer.error_code, answer.error_message)
        return {
            each.user: outcome(
                ScramUser(
                    each.user, {MECHANISMS[info.mechanism].name: info.iterations for info in each.credential_infos}
                ),
                each.error_code,
                each.error_message,
            )
            for each in answer.results
        }

    return client.call(attempt)


def set_credentials(client: AdminClient, user: str, credentials: Sequence[NewCredential]) -> None:
    """Create a user or replace credentials. Raises KafkaError."""
    upsertions = []
    for each in credentials:
        salt, code = os.urandom(SALT_BYTES), CODES[each.mechanism]
        upsertions.append(
            m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user,
                mechanism=code,
                iterations=each.iterations,
                salt=salt,
                salted_password=salted_password(MECHANISMS[code], each.password, salt, each.iterations),
            )
        )
    _alter(client, m.AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))


def delete_credentials(client: AdminClient, user: str, mechanisms: Sequence[str]) -> None:
    """Delete credentials of a user. Raises KafkaError."""
    deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    deletions = [deletion(name=user, mechanism=CODES[mechanism]) for mechanism in mechanisms]
    _alter(client, m.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]))


def _alter(client: AdminClient, request: m.AlterUserScramCredentialsRequest) -> None:
    def attempt() -> None:
        for each in client.controller(request).results:
            check(each.error_code, each.error_message)

    client.call(attempt)
