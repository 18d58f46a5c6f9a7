"""Apache Kafka 3.9.2 and Odradek, both with an authorizer, and scenarios of users with different rights on both.

Without authentication every client is `User:ANONYMOUS`, and ACLs distinguish clients by their hosts: each user is a
client with its own loopback address. The brokers themselves and the administrator have 127.0.0.1, which may do
everything. `check` runs a scenario as a user with no rights, as users that lack one right each, and as a user with all
of them; the responses of both brokers have to be equal every time, and every right has to make a difference.

    def test_delete_topics(authorized: AuthorizedPair) -> None:
        async def scenario(s: User) -> None:
            await s.admin.ask("CreateTopics", 7, topics=[...])
            await s.ask("DeleteTopics", "1-5", topic_names=["mine"], timeout_ms=10_000)

        authorized.check(scenario, Right(AclOperation.DELETE, ResourceType.TOPIC, "mine"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.broker.security.state.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from odradek.broker_process import BrokerProcess
from tests.comparison.pair import PROPERTIES, Outcome, Ports, announced, judge, ready
from tests.comparison.requests import key_of
from tests.comparison.side import Side, Step
from tests.jvm.kafka import SMALL_JVM, Kafka, running_kafka
from tests.support.eventually import eventually_async

ADMIN: Final = "127.0.0.1"
SHOWN: Final = 12
ANY: Final = 1
"""Every type of resource, pattern, operation or permission, in a filter."""
AUDIT: Final = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug"
AUTHORIZED: Final = {
    **PROPERTIES,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # until the first ACLs are there
}
ALL_TYPES: Final = tuple(each for each in ResourceType if each > ResourceType.ANY)


class Right(NamedTuple):
    """An ACL of a user."""

    operation: AclOperation
    resource_type: ResourceType
    name: str = "*"
    pattern: PatternType = PatternType.LITERAL
    permission: AclPermissionType = AclPermissionType.ALLOW


def cluster(operation: AclOperation) -> Right:
    """A right on the cluster."""
    return Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def topic(operation: AclOperation, name: str) -> Right:
    """A right on a topic."""
    return Right(operation, ResourceType.TOPIC, name)


class User(Side):
    """A client with rights. `admin` may do everything; `tag` is another name in every run, of the same length."""

    def __init__(self, who: str, port: int, versions: dict[int, tuple[int, int]], source: str, tag: str) -> None:
        super().__init__(who, port, versions, source)
        self.tag = tag
        self.admin = Side(who, port, versions)

    def close(self) -> None:
        super().close()
        self.admin.close()


Scenario = Callable[[User], Awaitable[None]]


class Run(NamedTuple):
    """A scenario as one user, whose address is `source`."""

    source: str
    rights: tuple[Right, ...]
    outcome: Outcome
    theirs: list[str]
    """Kafka's responses, without the tag of the run."""


class AuthorizedPair:
    """Both brokers."""

    def __init__(self, ports: Ports, runner: asyncio.Runner) -> None:
        self.ports = ports
        self._runner = runner
        self._users = 0
        self.versions = runner.run(_prepare(ports))

    def check(self, scenario: Scenario, *rights: Right, decisive: bool = True) -> list[Run]:
        """Run a scenario with no right, without each, and with all; `decisive` if each right makes a difference."""
        every = [tuple(each for each in rights if each is not missing) for missing in rights]
        runs = [self.run(scenario, subset) for subset in dict.fromkeys([(), *every, rights])]
        for run in runs:
            differences = run.outcome.unexplained
            shown = "\n".join(map(str, differences[:SHOWN]))
            assert not differences, f"{len(differences)} differences with {_text(run.rights)}:\n{shown}"
        if decisive:
            for run in runs[:-1]:
                assert run.theirs != runs[-1].theirs, f"no right makes a difference beside {_text(run.rights)}"
        return runs

    def run(self, scenario: Scenario, rights: Sequence[Right]) -> Run:
        """Run a scenario as a new user with these rights."""
        return self._runner.run(self._run(scenario, tuple(rights)))

    async def _run(self, scenario: Scenario, rights: tuple[Right, ...]) -> Run:
        self._users += 1
        source = f"127.1.{self._users >> 8}.{self._users & 255}"
        tag = f"run{self._users:04d}"
        users = [
            User(who, port, self.versions, source, tag)
            for who, port in (("Odradek", self.ports.ours), ("Kafka", self.ports.theirs))
        ]
        try:
            for user in users:
                await _create(user.admin, [_creation(source, right, tag) for right in rights])
            done = await asyncio.gather(*map(scenario, users), return_exceptions=True)
            failure = next((each for each in done if isinstance(each, BaseException)), None)
            if failure is not None:
                raise AssertionError(f"the scenario failed with {_text(rights)}") from failure
            ours, theirs = users
            outcome = judge(ours, theirs)
            if outcome.failure is not None:
                raise outcome.failure
            return Run(source, rights, outcome, [_shown(step, tag) for step in theirs.steps])
        finally:
            for user in users:
                user.close()


class RunningPair(AuthorizedPair):
    """Both brokers with their processes."""

    def __init__(self, kafka: Kafka, odradek: BrokerProcess, runner: asyncio.Runner) -> None:
        super().__init__(Ports(odradek.port, kafka.port), runner)
        self.kafka = kafka
        self.odradek = odradek


def _shown(step: Step, tag: str) -> str:
    return f"{step.api} {step.version} {step.answer}".replace(tag, "tag")


def _text(rights: Sequence[Right]) -> str:
    named = (f"{each.permission.name} {each.operation.name} {each.resource_type.name} {each.name}" for each in rights)
    return f"[{', '.join(named)}]"


def _creation(host: str, right: Right, tag: str) -> dict[str, Any]:
    return {
        "resource_type": int(right.resource_type),
        "resource_name": right.name.replace("{tag}", tag),
        "resource_pattern_type": int(right.pattern),
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": int(right.operation),
        "permission_type": int(right.permission),
    }


async def _create(admin: Side, creations: list[dict[str, Any]]) -> None:
    if creations:
        answer = await admin.quietly("CreateAcls", 3, creations=creations)
        assert [each.error_code for each in answer.results] == [0] * len(creations), answer
        # A broker with KRaft has the ACLs when it has applied the record of the controller, which may be later.
        (host,) = {each["host"] for each in creations}
        await eventually_async(lambda: _acls_of(admin, host), lambda count: count == len(creations), "ACLs are applied")


async def _acls_of(admin: Side, host: str) -> int:
    """How many ACLs a broker has for a host."""
    answer = await admin.quietly(
        "DescribeAcls",
        3,
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=host,
        operation=ANY,
        permission_type=ANY,
    )
    assert answer.error_code == 0, answer
    return sum(len(each.acls) for each in answer.resources)


async def _prepare(ports: Ports) -> dict[int, tuple[int, int]]:
    """Give 127.0.0.1 all rights, and with that nothing to all others."""
    for port in ports:
        await ready(port)
    versions = await announced(ports.theirs)
    for port in ports:
        admin = Side("", port, versions)
        await _create(
            admin,
            [
                _creation(
                    ADMIN, Right(AclOperation.ALL, kind, CLUSTER_NAME if kind == ResourceType.CLUSTER else "*"), ""
                )
                for kind in ALL_TYPES
            ],
        )
        admin.close()
    return versions


@contextmanager
def running_authorized_pair(folder: Path) -> Iterator[RunningPair]:
    """Both brokers, fresh, with the same properties and ACLs."""
    with (
        running_kafka(folder / "kafka", AUTHORIZED, (*SMALL_JVM, AUDIT)) as kafka,
        BrokerProcess(folder / "odradek", AUTHORIZED) as odradek,
        asyncio.Runner() as runner,
    ):
        yield RunningPair(kafka, odradek, runner)


def last_version(versions: dict[int, tuple[int, int]], api: str) -> int:
    """The newest version of an API that Kafka has."""
    return versions[key_of(api)][1]
