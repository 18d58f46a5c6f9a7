"""Exit codes of the commands, and the one line on standard error that states the reason.

| code | meaning |
|---|---|
| 0 | done |
| 1 | the broker rejects the request, a record does not fit its schema, or the user declines the change |
| 2 | the command line, the profile or the file of properties is wrong |
| 3 | a topic, group, broker, schema or other object does not exist |
| 4 | the login or the authorization fails |
| 5 | no broker, or no schema registry, answers |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from odradek.protocol.client.errors import ClientError, LoginFailedError, SecurityConfigError
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
DENIED: Final = 4
UNREACHABLE: Final = 5

_ABSENT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.LOG_DIR_NOT_FOUND,
    }
)
_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
_MEANINGS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the name is not valid for a topic",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it exists already",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are subscribed to the topic",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is in a rebalance",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is beyond the high watermark, or before the start of the log",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the user may not do this with the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the user may not do this with the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the user may not do this with the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user may not do this with the transactional id",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    ErrorCode.POLICY_VIOLATION: "a policy of the broker rejects it",
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have delegation tokens disabled",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "a connection that manages tokens is SASL or SSL, without a token",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "the token does not exist",
    ErrorCode.TOPIC_DELETION_DISABLED: "the brokers have delete.topic.enable=false",
    ErrorCode.REQUEST_TIMED_OUT: "the time ran out",
}
"""For errors to which brokers add no message."""


class CommandFailure(click.ClickException):
    """The end of a command: one line on standard error, and an exit code of this module."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the exception

    def show(self, file: Any = None) -> None:
        """Print the line; nothing where the command has printed its errors already."""
        if self.message:
            click.echo(f"odradek: {self.message}", err=True)


def failure_of(error: Exception, about: str = "") -> CommandFailure:
    """The end of a command after an error of the client. `about` is the object of the failed operation."""
    prefix = f"{about}: " if about else ""
    if isinstance(error, KafkaError):
        text = error.message or _MEANINGS.get(error.code, "")
        reason = f"{text} ({error.code.name})" if text else error.code.name
        return CommandFailure(f"{prefix}{reason}", exit_code_of(error))
    return CommandFailure(f"{prefix}{error}", exit_code_of(error))


def exit_code_of(error: Exception) -> int:
    """The exit code for an error."""
    if isinstance(error, KafkaError):
        if error.code in _ABSENT:
            return NOT_FOUND
        return DENIED if error.code in _DENIED else FAILED
    if isinstance(error, LoginFailedError):
        return DENIED
    if isinstance(error, SecurityConfigError):
        return USAGE
    return UNREACHABLE if isinstance(error, OSError) else FAILED


@contextmanager
def failures() -> Iterator[None]:
    """End the command with one line after an error of the client."""
    try:
        yield
    except (KafkaError, ClientError, ProtocolError, OSError) as error:
        raise failure_of(error) from error
