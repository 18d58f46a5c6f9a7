"""`authorizer.class.name`: which authorizer it selects, and a broker that has one."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from odradek.broker.composition.authorization import ACL_AUTHORIZERS
from odradek.broker.config.types import ConfigError
from odradek.broker.security.audit_log import AUDIT_LOGGER
from odradek.log_lines import JsonLines, TextLines
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, running_broker
from tests.support.installed import install

NAME = "authorizer.class.name"
OPEN = {NAME: ACL_AUTHORIZERS[0], "super.users": "User:stranger;User:ANONYMOUS;"}
CLOSED = {NAME: ACL_AUTHORIZERS[0]}
READ_TOPIC = m.CreateAclsRequest.AclCreation(
    resource_type=2,
    resource_name="open",
    resource_pattern_type=3,
    principal="User:ANONYMOUS",
    host="127.0.0.1",
    operation=8,
    permission_type=3,
)
DESCRIBE_LOG_DIRS = m.DescribeLogDirsRequest(topics=None)

PACKAGE = '''
class OnlyDescribe:
    """Allows requests that describe, to everyone."""

    def configure(self, properties):
        self.allowed = int(properties["example.operation"])

    def authorize(self, principal, host, operation, resource_type, name):
        return operation == self.allowed

    def authorize_by_resource_type(self, principal, host, operation, resource_type):
        return operation == self.allowed
'''


async def describe_log_dirs(port: int) -> ErrorCode:
    client = await Client.connect(port)
    try:
        answer = await client.ask(DESCRIBE_LOG_DIRS, 4)
        return ErrorCode(answer.error_code)
    finally:
        client.close()


@pytest.mark.parametrize("name", ACL_AUTHORIZERS)
async def test_both_names_of_kafka_select_the_acl_authorizer(tmp_path: Path, name: str) -> None:
    async with running_broker(tmp_path, {NAME: name}) as broker:
        assert await describe_log_dirs(broker.port) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    async with running_broker(tmp_path, {**OPEN, NAME: name}) as broker:
        assert await describe_log_dirs(broker.port) is ErrorCode.NONE


@pytest.mark.parametrize(
    "name", ["antigravity", "os.path", "example", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
)
async def test_an_unknown_name_fails_the_start_and_loads_nothing(tmp_path: Path, name: str) -> None:
    before = set(sys.modules)
    with pytest.raises(
        ConfigError, match=f"{name} for configuration {NAME}: allowed: .*AclAuthorizer.*odradek.authorizers"
    ):
        async with running_broker(tmp_path, {NAME: name}):
            pass
    assert "antigravity" not in set(sys.modules) - before


async def test_an_entry_point_selects_an_authorizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, PACKAGE, "odradek.authorizers", {"example": "OnlyDescribe"})
    async with running_broker(tmp_path / "data", {NAME: "example", "example.operation": "8"}) as broker:
        client = await Client.connect(broker.port)
        assert (await client.ask(DESCRIBE_LOG_DIRS, 4)).error_code == ErrorCode.NONE
        answer = await client.ask(m.UpdateFeaturesRequest(feature_updates=[]), 0)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        anything = m.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        assert (await client.ask(anything, 3)).error_code == ErrorCode.SECURITY_DISABLED  # it has no ACLs
        client.close()
    with pytest.raises(ConfigError, match="KeyError"):
        async with running_broker(tmp_path / "other", {NAME: "example"}):
            pass


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"super.users": "alice"}, "Invalid value alice for configuration super.users"),
        ({"allow.everyone.if.no.acl.found": "yes"}, "Invalid value yes for configuration allow.everyone"),
    ],
)
async def test_invalid_properties_of_the_authorizer_fail_the_start(
    tmp_path: Path, properties: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        async with running_broker(tmp_path, {**CLOSED, **properties}):
            pass


async def test_the_acls_are_loaded_before_the_first_answer(tmp_path: Path) -> None:
    deny = m.CreateAclsRequest.AclCreation(
        resource_type=4,
        resource_name="kafka-cluster",
        resource_pattern_type=3,
        principal="User:*",
        host="*",
        operation=8,
        permission_type=2,
    )
    everyone = {NAME: ACL_AUTHORIZERS[0], "allow.everyone.if.no.acl.found": "TRUE"}
    async with running_broker(tmp_path, everyone) as broker:
        assert await describe_log_dirs(broker.port) is ErrorCode.NONE
        client = await Client.connect(broker.port)
        answer = await client.ask(m.CreateAclsRequest(creations=[deny]), 3)
        assert answer.results[0].error_code == ErrorCode.NONE
        client.close()
        assert await describe_log_dirs(broker.port) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    async with running_broker(tmp_path, everyone) as broker:
        assert await describe_log_dirs(broker.port) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_broker_without_rights_for_its_clients_still_serves_itself(tmp_path: Path) -> None:
    """Its requests to itself as controller and as leader do not come from a client."""
    async with running_broker(tmp_path, OPEN) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("open")
        await client.ask(m.CreateAclsRequest(creations=[READ_TOPIC]), 3)
        client.close()
    async with running_broker(tmp_path, CLOSED) as broker:
        replica = broker.replicas.get("open", 0)
        assert replica is not None
        replica.machine.check_leader()


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The audit log at DEBUG."""
    caplog.set_level(logging.DEBUG, AUDIT_LOGGER)
    return caplog


async def test_the_audit_log_as_text_and_as_json(tmp_path: Path, audit: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, CLOSED) as broker:
        await describe_log_dirs(broker.port)
    async with running_broker(tmp_path, OPEN) as broker:
        await describe_log_dirs(broker.port)
    denied, granted = (each for each in audit.records if each.name == AUDIT_LOGGER)
    assert (denied.levelno, granted.levelno) == (logging.INFO, logging.DEBUG)
    text = (
        "Principal = User:ANONYMOUS is {} Operation = Describe from host = 127.0.0.1 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = DescribeLogDirs with resourceRefCount = 1"
    )
    assert TextLines().format(denied).endswith(f"INFO {AUDIT_LOGGER}: {text.format('Denied')}")
    assert TextLines().format(granted).endswith(f"DEBUG {AUDIT_LOGGER}: {text.format('Allowed')}")
    entry = json.loads(JsonLines().format(denied))
    assert entry["message"] == text.format("Denied")
    assert {
        name: entry[name] for name in ("principal", "outcome", "operation", "host", "resource", "api", "count")
    } == {
        "principal": "User:ANONYMOUS",
        "outcome": "Denied",
        "operation": "Describe",
        "host": "127.0.0.1",
        "resource": "Cluster:LITERAL:kafka-cluster",
        "api": "DescribeLogDirs",
        "count": 1,
    }
