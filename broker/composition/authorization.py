"""Authorization: the authorizer that `authorizer.class.name` selects, and its ACLs (Kafka: KafkaConfig,
AuthorizerUtils).

Both of Kafka's names for its authorizer over ZooKeeper select Odradek's. Any other name is the name of an entry point
of an installed Python package, in the group `odradek.authorizers`; the property never names a module or a class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.plugins import load_plugin
from odradek.broker.config.types import ConfigError
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.acl_store import AclStore
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.authorizer import AclAuthorizer
from odradek.broker.security.state.principals import KafkaPrincipal, PrincipalError, parse_super_users

CLASS_NAME: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
ACL_AUTHORIZERS: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
ENTRY_POINTS: Final = "odradek.authorizers"


class Authorization(NamedTuple):
    """How requests are authorized."""

    helper: AuthHelper
    acls: AclStore | None
    """The ACLs in the metadata store; None without an authorizer, or where the authorizer has none."""


def authorization(
    config: BrokerConfig, session: RegistrySession, request_tasks: RequestTasks, clock: Clock
) -> Authorization:
    """The authorizer of the configuration. Raises ConfigError."""
    name = config[CLASS_NAME].strip()
    if not name:
        return Authorization(AuthHelper(), None)
    if name in ACL_AUTHORIZERS:
        authorizer = AclAuthorizer(super_users(config.static), allow_everyone_if_no_acl_found(config.static))
        acls = AclStore(authorizer, lambda: session.registry, request_tasks, clock)
        return Authorization(AuthHelper(authorizer), acls)
    authorizer_of_package = load_plugin(ENTRY_POINTS, CLASS_NAME, name, config.static, ACL_AUTHORIZERS)
    return Authorization(AuthHelper(authorizer_of_package), None)


def super_users(properties: Mapping[str, str]) -> frozenset[KafkaPrincipal]:
    """The principals that may do everything. Raises ConfigError."""
    text = properties.get(SUPER_USERS, "")
    try:
        return parse_super_users(text)
    except PrincipalError as error:
        message = f"Invalid value {text} for configuration {SUPER_USERS}: {error}; allowed: User:a;User:b"
        raise ConfigError(message) from error


def allow_everyone_if_no_acl_found(properties: Mapping[str, str]) -> bool:
    """Whether resources without ACLs are open. Raises ConfigError."""
    text = properties.get(ALLOW_EVERYONE, "false")
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"Invalid value {text} for configuration {ALLOW_EVERYONE}: allowed: true, false")
    return text.lower() == "true"
