"""CreateAcls, DescribeAcls and DeleteAcls beside Apache Kafka 3.9.2, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.security.state.acls import AclOperation
from tests.security.authorization_oracle import AuthorizedPair, User, cluster

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

EVERYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
READ_MINE: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "mine",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
PREFIXED = {"resource_pattern_type": 4}


def creation(**changes: Any) -> dict[str, Any]:
    return {**READ_MINE, **changes}


def selection(**changes: Any) -> dict[str, Any]:
    return {**EVERYTHING, **changes}


async def manage(s: User) -> None:
    """Create, describe and delete, as an administrator does."""
    mine = {"principal": f"User:{s.tag}"}
    of_user = {"principal_filter": mine["principal"]}
    await s.ask("CreateAcls", creations=[creation(**mine), creation(**mine, operation=4)])
    await s.ask("CreateAcls", "1+", creations=[creation(**mine, **PREFIXED), creation(**mine, resource_name="*")])
    literal = {key: value for key, value in selection(**of_user).items() if key != "pattern_type_filter"}
    await s.ask("DescribeAcls", **literal)
    for pattern in (1, 2, 3, 4):
        for name in (None, "mine", "min", "mine-too", "*"):
            wanted = selection(**of_user, pattern_type_filter=pattern, resource_name_filter=name)
            await s.ask("DescribeAcls", "1+", **wanted)
    await s.ask("DeleteAcls", 0, filters=[{**literal, "operation": 4}])
    await s.ask("DeleteAcls", "1+", filters=[selection(**of_user, pattern_type_filter=4), selection(**of_user)])
    await s.ask("DescribeAcls", "1+", **selection(**of_user))


def test_rights_of_the_acl_apis(authorized: AuthorizedPair) -> None:
    authorized.check(manage, cluster(AclOperation.ALTER), cluster(AclOperation.DESCRIBE), decisive=False)
    authorized.check(manage, cluster(AclOperation.ALTER))
    authorized.check(manage, cluster(AclOperation.DESCRIBE))


async def invalid(s: User) -> None:
    """ACLs that are refused, alone and beside a valid one."""
    mine = {"principal": f"User:{s.tag}"}
    for changes in (
        {"resource_type": 99},
        {"resource_type": 1},
        {"resource_type": 4},
        {"resource_type": 4, "resource_name": "kafka-cluster", "operation": 8},
        {"resource_type": 7, "resource_name": "User:x", "operation": 13},
        {"resource_name": ""},
        {"resource_name": "a/b"},
        {"resource_name": "."},
        {"resource_name": ".."},
        {"resource_name": "a b"},
        {"resource_name": "ü"},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"resource_pattern_type": 99},
        {"principal": "alice"},
        {"principal": ""},
        {"principal": ":"},
        {"principal": "Group:a:b"},
        {"operation": 1},
        {"operation": 99},
        {"operation": 9},
        {"permission_type": 1},
        {"permission_type": 99},
        {"permission_type": 2},
        {"host": ""},
        {"host": "not a host"},
        {"host": "127.0.0.300"},
    ):
        wanted = {**creation(**mine), **changes}
        await s.ask("CreateAcls", "1+", creations=[wanted], label=f"{changes}")
        await s.ask("CreateAcls", 3, creations=[wanted, creation(**mine)], label=f"{changes} beside a valid ACL")
        await s.ask("CreateAcls", 3, creations=[creation(**mine), wanted], label=f"a valid ACL beside {changes}")
    await s.ask("CreateAcls", creations=[])
    await s.ask("CreateAcls", 3, creations=[creation(**mine), creation(**mine)])
    await s.ask("DescribeAcls", 3, **selection(principal_filter=mine["principal"]))


def test_invalid_acls(authorized: AuthorizedPair) -> None:
    authorized.check(invalid, cluster(AclOperation.ALTER), decisive=False)


async def filters(s: User) -> None:
    """Filters with codes that no ACL has, and deletions by several filters."""
    mine = {"principal": f"User:{s.tag}"}
    of_user = {"principal_filter": mine["principal"]}
    await s.ask(
        "CreateAcls",
        3,
        creations=[
            creation(**mine, operation=operation, host=host) for operation in (3, 4, 8) for host in ("*", "1.2.3.4")
        ],
    )
    for changes in (
        {"resource_type_filter": 99},
        {"pattern_type_filter": 99},
        {"operation": 99},
        {"operation": 2},
        {"permission_type": 99},
        {"permission_type": 2},
        {"host_filter": ""},
        {"host_filter": "*"},
        {"resource_name_filter": ""},
        {"resource_name_filter": "a/b"},
    ):
        await s.ask("DescribeAcls", 3, **selection(**{**of_user, **changes}))
        await s.ask("DeleteAcls", 3, filters=[selection(**{**of_user, **changes})])
    await s.ask("DeleteAcls", filters=[])
    reads, any_host = selection(**of_user, operation=4), selection(**of_user, host_filter="1.2.3.4")
    exact = selection(
        **of_user, resource_type_filter=2, resource_name_filter="mine", pattern_type_filter=3, operation=8
    )
    await s.ask("DeleteAcls", 3, filters=[exact, reads, any_host, reads])
    await s.ask("DescribeAcls", 3, **selection(**of_user))


def test_filters(authorized: AuthorizedPair) -> None:
    authorized.check(filters, cluster(AclOperation.ALTER), decisive=False)
