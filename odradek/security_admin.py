"""Administration of users and ACLs for fixtures: a change returns when every broker applies it.

Requests go to the listener for peers, as a super user (`ClusterSecurity.admin`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from odradek.broker.security.state.acls import AclBinding
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.sasl.exchange import SaslError
from odradek.protocol.sasl.scram import ScramClient, salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS, Mechanism
from odradek.ready_process import BrokerError
from odradek.wire import Wire

POLL_S: Final = 0.05
ACLS_VERSION: Final = 3
ITERATIONS: Final = 4096
Connect = Callable[[], Wire]


class SecurityAdmin:
    """Changes users and ACLs of a cluster. Every call raises BrokerError and OSError."""

    def __init__(self, brokers: Sequence[Connect], timeout_s: float) -> None:
        """`brokers` connect to every running broker as a super user; `timeout_s` bounds every wait."""
        self._brokers = brokers
        self._timeout_s = timeout_s

    def add_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add ACLs."""
        wanted = set(bindings)
        if not wanted:
            return
        creations = [m.CreateAclsRequest.AclCreation(**_fields(each)) for each in wanted]
        with self._brokers[0]() as wire:
            for each in wire.ask(m.CreateAclsRequest(creations=creations), ACLS_VERSION).results:
                _check(each.error_code, each.error_message, "cannot create ACLs")
        for connect in self._brokers:
            self.await_that(partial(_has_acls, connect, wanted), "the ACLs on every broker")

    def create_scram_users(
        self, passwords: Mapping[str, str], mechanisms: Sequence[str], clients: Sequence[Connect]
    ) -> None:
        """Create the credentials of users. `clients` connect to the listener for clients of every broker."""
        upsertions = []
        enabled = _scram(mechanisms)
        for code, mechanism in enabled.items():
            for user, password in passwords.items():
                salt = os.urandom(16)
                salted = salted_password(mechanism, password, salt, ITERATIONS)
                upsertions.append(
                    m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                        name=user, mechanism=code, iterations=ITERATIONS, salt=salt, salted_password=salted
                    )
                )
        if not upsertions:
            return
        self._ask_controller(m.AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))
        # Brokers are notified one after the other, and read users in the order of the changes.
        *_, mechanism = enabled.values()
        *_, (user, password) = passwords.items()
        for connect in clients:
            self.await_that(partial(_can_log_in, connect, mechanism, user, password), f"a login of {user}")

    def remove_scram_users(self, users: Sequence[str], mechanisms: Sequence[str]) -> None:
        """Remove the credentials of users."""
        removed = [
            m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=code)
            for code in _scram(mechanisms)
            for user in users
        ]
        if removed:
            self._ask_controller(m.AlterUserScramCredentialsRequest(deletions=removed, upsertions=[]))

    def await_that(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; `what` is for the error message."""
        deadline = time.monotonic() + self._timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise BrokerError(f"not {what} within {self._timeout_s:g} s")
            time.sleep(POLL_S)

    def _ask_controller(self, request: m.AlterUserScramCredentialsRequest) -> None:
        """Only the controller changes users; another broker answers NOT_CONTROLLER."""
        results: list[Any] = []
        for connect in self._brokers:
            with connect() as wire:
                results = wire.ask(request, 0).results
            if all(each.error_code != ErrorCode.NOT_CONTROLLER for each in results):
                break
        for each in results:
            _check(each.error_code, each.error_message, f"cannot change user {each.user}")


def _scram(mechanisms: Sequence[str]) -> dict[int, Mechanism]:
    return {code: each for code, each in MECHANISMS.items() if each.name in mechanisms}


def _can_log_in(connect: Connect, mechanism: Mechanism, user: str, password: str) -> bool:
    client = ScramClient(mechanism, user, os.urandom(12).hex())
    with connect() as wire:
        wire.ask(m.SaslHandshakeRequest(mechanism=mechanism.name), 1)
        try:
            challenge = client.receive_first(_exchange(wire, client.first_message()))
            salted = salted_password(mechanism, password, challenge.salt, challenge.iterations)
            client.receive_final(_exchange(wire, client.final_message(salted)))
        except (SaslError, OSError):
            return False
    return client.complete


def _exchange(wire: Wire, message: bytes) -> bytes:
    answer = wire.ask(m.SaslAuthenticateRequest(auth_bytes=message), 2)
    if answer.error_code != ErrorCode.NONE:
        raise SaslError(answer.error_message or "")
    return bytes(answer.auth_bytes)


def _has_acls(connect: Connect, bindings: set[AclBinding]) -> bool:
    """Whether a broker applies these ACLs."""
    request = m.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with connect() as wire:
        found = wire.ask(request, ACLS_VERSION)
    _check(found.error_code, found.error_message, "cannot read ACLs")
    applied = {  # equal to bindings
        (
            (resource.resource_type, resource.resource_name, resource.pattern_type),
            (acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for resource in found.resources
        for acl in resource.acls
    }
    return bindings <= applied


def _fields(binding: AclBinding) -> dict[str, Any]:
    (resource_type, name, pattern), (principal, host, operation, permission) = binding
    return {
        "resource_type": int(resource_type),
        "resource_name": name,
        "resource_pattern_type": int(pattern),
        "principal": principal,
        "host": host,
        "operation": int(operation),
        "permission_type": int(permission),
    }


def _check(error_code: int, message: str | None, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise BrokerError(f"{what}: {message or ErrorCode(error_code).name}")
