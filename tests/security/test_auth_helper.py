"""The checks of many resources at once equal the single checks, and log the same lines."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.security.audit_log import AUDIT_LOGGER
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.session import ANONYMOUS_SESSION, OWN_SESSION, Session
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.broker.security.state.authorizer import AclAuthorizer

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
NAMES = ("a", "b", "c")
names = st.lists(st.sampled_from(NAMES), max_size=6)


class Connection:
    address = "127.0.0.1"


class Request:
    api_name = "Fetch"
    connection = Connection()

    def __init__(self, session: Session = ANONYMOUS_SESSION) -> None:
        self.session = session


class NothingCached:
    """An authorizer of another package, which shows no cached decisions."""

    def __init__(self, authorizer: AclAuthorizer) -> None:
        self.authorize = authorizer.authorize
        self.authorize_by_resource_type = authorizer.authorize_by_resource_type


def allow(authorizer: AclAuthorizer, name: str, *, allowed: bool = True) -> None:
    entry = AccessControlEntry("User:ANONYMOUS", "*", READ, AclPermissionType.ALLOW)
    authorizer.update(ResourcePattern(TOPIC, name, PatternType.LITERAL), (entry,) if allowed else ())


@given(st.lists(st.tuples(names, st.sampled_from(NAMES), st.booleans())))
def test_the_check_of_many_equals_the_checks_of_each(rounds: list[tuple[list[str], str, bool]]) -> None:
    """While decisions are cached and ACLs change."""
    authorizer = AclAuthorizer()
    helpers = AuthHelper(authorizer), AuthHelper(NothingCached(authorizer))
    allowed: set[str] = set()
    for wanted, changed, is_allowed in rounds:
        for helper in helpers:
            denied = helper.unauthorized(Request(), READ, TOPIC, wanted)
            assert set(denied) == set(wanted) - allowed
            assert helper.filter_by_authorized(Request(), READ, TOPIC, wanted) == set(wanted) & allowed
        allow(authorizer, changed, allowed=is_allowed)
        allowed = allowed | {changed} if is_allowed else allowed - {changed}


def test_without_authorizer_and_for_the_broker_itself_everything_is_allowed() -> None:
    assert not AuthHelper().unauthorized(Request(), READ, TOPIC, NAMES)
    assert not AuthHelper(AclAuthorizer()).unauthorized(Request(OWN_SESSION), READ, TOPIC, NAMES)
    assert set(AuthHelper(AclAuthorizer()).unauthorized(Request(), READ, TOPIC, NAMES)) == set(NAMES)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_cached_grants_are_logged_at_debug_only(level: int, caplog: pytest.LogCaptureFixture) -> None:
    authorizer = AclAuthorizer()
    helper = AuthHelper(authorizer)
    allow(authorizer, "a")
    with caplog.at_level(level, AUDIT_LOGGER):
        for _ in range(2):
            assert helper.unauthorized(Request(), READ, TOPIC, ["a", "a", "b"]) == {"b"}
            assert not helper.unauthorized(Request(), READ, TOPIC, ["a", "a"])
    lines = [(each.levelname, each.getMessage().partition("resource = ")[2]) for each in caplog.records]
    granted = ("DEBUG", "Topic:LITERAL:a for request = Fetch with resourceRefCount = 2")
    denied = ("INFO", "Topic:LITERAL:b for request = Fetch with resourceRefCount = 1")
    assert lines == ([granted, denied, granted] * 2 if level == logging.DEBUG else [denied] * 2)
