"""Requests for delegation tokens, sent to Apache Kafka as users of SASL/PLAIN, and to Odradek's handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.broker.apis.create_delegation_token import CreateDelegationToken
from odradek.broker.apis.describe_delegation_token import DescribeDelegationToken
from odradek.broker.apis.expire_delegation_token import ExpireDelegationToken
from odradek.broker.apis.renew_delegation_token import RenewDelegationToken
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.broker.security.session import ANONYMOUS_SESSION, Session
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.broker.security.state.authorizer import AclAuthorizer
from odradek.broker.security.state.delegation_tokens import token_password
from odradek.broker.security.state.principals import ANONYMOUS, USER_TYPE, KafkaPrincipal
from odradek.protocol import messages as m
from odradek.protocol.sasl.plain import client_message
from odradek.protocol.sasl.scram import ScramClient, salted_password
from odradek.protocol.sasl.scram_credentials import MECHANISMS
from odradek.wire import Wire

USERS: Final = ("alice", "bob", "carol", "dave", "eve")
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
CREATE_ACLS_VERSION: Final = 3


class Right(NamedTuple):
    """An operation that a user may perform on a resource."""

    user: str
    operation: AclOperation
    resource_type: ResourceType
    name: str

    def binding(self) -> AclBinding:
        entry = AccessControlEntry(f"User:{self.user}", "*", self.operation, AclPermissionType.ALLOW)
        return AclBinding(ResourcePattern(self.resource_type, self.name, PatternType.LITERAL), entry)


def password_of(user: str) -> str:
    """The password of a user of SASL/PLAIN."""
    return f"password-of-{user}"


def plain_jaas() -> str:
    """The JAAS configuration of a listener with all users."""
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in USERS)
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"


class TokenClients:
    """Options of the console tools for a listener of SASL_PLAINTEXT."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port

    def user(self, name: str) -> list[str]:
        """The options for a user of SASL/PLAIN."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return self._options(name, "PLAIN", f'{module} required username="{name}" password="{password_of(name)}";')

    def with_token(self, mechanism: str, token_id: str, hmac: bytes) -> list[str]:
        """The options for a login with a token."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'username="{token_id}" password="{token_password(hmac)}" tokenauth="true"'
        return self._options(token_id, mechanism, f"{module} required {login};")

    def _options(self, name: str, mechanism: str, jaas: str) -> list[str]:
        path = self._folder / f"{name}.properties"
        path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
        return ["--bootstrap-server", f"127.0.0.1:{self._port}", "--command-config", str(path)]


def rows_of(output: str) -> list[dict[str, str]]:
    """The rows of the table that kafka-delegation-tokens prints."""
    lines = [line for line in output.splitlines() if line.strip()]
    heads = next(number for number, line in enumerate(lines) if line.startswith("TOKENID"))
    names = lines[heads].split()
    return [dict(zip(names, line.split(), strict=False)) for line in lines[heads + 1 :]]


class KafkaSide:
    """A broker with a listener of SASL_PLAINTEXT and one of PLAINTEXT, whose clients are super users."""

    def __init__(self, plaintext: int, sasl: int) -> None:
        self._plaintext, self._sasl = plaintext, sasl
        self._connections: dict[str, Wire] = {}

    async def ask(self, user: str, request: Any, version: int) -> Any:
        """The response to a request of a user; without a name, over PLAINTEXT."""
        return await asyncio.to_thread(lambda: self._connection(user).ask(request, version))

    async def log_in_with_token(self, mechanism: str, token_id: str, hmac: bytes) -> int:
        """Log in on a connection of its own; returns the lifetime of the session."""
        return await asyncio.to_thread(self._log_in_with_token, mechanism, token_id, hmac)

    def _log_in_with_token(self, mechanism: str, token_id: str, hmac: bytes) -> int:
        known = next(each for each in MECHANISMS.values() if each.name == mechanism)
        client = ScramClient(known, token_id, "client", token_authenticated=True)
        with Wire("127.0.0.1", self._sasl, 30) as connection:

            def send(message: bytes) -> m.SaslAuthenticateResponse:
                request = m.SaslAuthenticateRequest(auth_bytes=message)
                answer: m.SaslAuthenticateResponse = connection.ask(request, AUTHENTICATE_VERSION)
                assert answer.error_code == 0, answer.error_message
                return answer

            connection.ask(m.SaslHandshakeRequest(mechanism=mechanism), HANDSHAKE_VERSION)
            first = client.receive_first(bytes(send(client.first_message()).auth_bytes))
            salted = salted_password(known, token_password(hmac), first.salt, first.iterations)
            final = send(client.final_message(salted))
            client.receive_final(bytes(final.auth_bytes))
            return final.session_lifetime_ms

    async def allow(self, rights: Iterable[Right]) -> None:
        """Create ACLs."""
        creation = m.CreateAclsRequest.AclCreation
        creations = []
        for pattern, entry in (right.binding() for right in rights):
            creations.append(
                creation(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    resource_pattern_type=pattern.pattern_type,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission_type,
                )
            )
        answer = await self.ask("", m.CreateAclsRequest(creations=creations), CREATE_ACLS_VERSION)
        assert [each.error_code for each in answer.results] == [0] * len(creations)

    def _connection(self, user: str) -> Wire:
        connection = self._connections.get(user)
        if connection is None:
            connection = Wire("127.0.0.1", self._sasl if user else self._plaintext, 30)
            self._connections[user] = connection
            if user:
                connection.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), HANDSHAKE_VERSION)
                message = client_message(user, password_of(user))
                answer = connection.ask(m.SaslAuthenticateRequest(auth_bytes=message), AUTHENTICATE_VERSION)
                assert answer.error_code == 0, answer.error_message
        return connection

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()


class _Call:
    """A request of a session, without a connection."""

    address = "127.0.0.1"

    def __init__(self, session: Session, version: int) -> None:
        self.session = session
        self.version = version
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def connection(self) -> _Call:
        return self

    def close(self) -> None:
        self.answer.set_exception(ConnectionResetError("the handler closed the connection"))

    def reply(self, response: Any) -> None:
        self.answer.set_result(response)


class HandlerSide:
    """The handlers of these requests over one manager, with an authorizer whose super user is anonymous."""

    def __init__(self, manager: DelegationTokenManager, *, with_authorizer: bool) -> None:
        self._authorizer = AclAuthorizer(frozenset({ANONYMOUS}))
        auth, request_tasks = AuthHelper(self._authorizer if with_authorizer else None), RequestTasks()
        self._handlers: dict[int, Any] = {
            each.KEY: each
            for each in (
                CreateDelegationToken(manager, auth, request_tasks),
                RenewDelegationToken(manager, request_tasks),
                ExpireDelegationToken(manager, request_tasks),
                DescribeDelegationToken(manager, auth),
            )
        }

    async def ask(self, user: str, request: Any, version: int) -> Any:
        """The response to a request of a user; without a name, of one that is not authenticated."""
        session = Session(KafkaPrincipal(USER_TYPE, user)) if user else ANONYMOUS_SESSION
        return await self.ask_in(session, request, version)

    async def ask_in(self, session: Session, request: Any, version: int) -> Any:
        """The response to a request of a session, encoded and decoded."""
        call = _Call(session, version)
        answer = self._handlers[request.API_KEY].handle(call, request)
        if answer is None:
            answer = await call.answer
        return type(answer).decode(answer.encode(version), version)

    async def allow(self, rights: Iterable[Right]) -> None:
        """Add ACLs."""
        for pattern, entry in (right.binding() for right in rights):
            known = self._authorizer.cache.acls.get(pattern, ())
            self._authorizer.update(pattern, (*known, entry))
