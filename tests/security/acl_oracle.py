"""Apache Kafka's AclAuthorizer in the test process, over an Apache ZooKeeper in the same process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jpype

from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.broker.security.state.principals import KafkaPrincipal
from tests.security.kafka_classes import KafkaClasses, java_list, java_map

Action = tuple[AclOperation, ResourceType, str]
Client = tuple[KafkaPrincipal, str]


class InProcessZooKeeper:
    """Apache ZooKeeper in the JVM of this process, on a free port of the loopback address."""

    def __init__(self, classes: KafkaClasses, folder: Path) -> None:
        file = jpype.JClass("java.io.File")(str(folder))
        jpype.JClass("java.lang.System").setProperty("zookeeper.forceSync", "no")
        with classes.in_use():
            self._factory = classes("org.apache.zookeeper.server.NIOServerCnxnFactory")()
            self._factory.configure(jpype.JClass("java.net.InetSocketAddress")("127.0.0.1", 0), 100)
            self._factory.startup(classes("org.apache.zookeeper.server.ZooKeeperServer")(file, file, 500))
        self.connect = f"127.0.0.1:{self._factory.getLocalPort()}"

    def stop(self) -> None:
        """End the server and its threads."""
        self._factory.shutdown()


class AclConversion:
    """Bindings and filters as Java's objects, and back."""

    def __init__(self, classes: KafkaClasses) -> None:
        self._classes = classes
        self._enums = {
            name: classes.common(path)
            for name, path in (
                ("type", "resource.ResourceType"),
                ("pattern", "resource.PatternType"),
                ("operation", "acl.AclOperation"),
                ("permission", "acl.AclPermissionType"),
            )
        }

    def code(self, enum: str, value: int) -> Any:
        """The constant of an enumeration."""
        return self._enums[enum].fromCode(jpype.JByte(int(value)))

    def pattern(self, pattern: ResourcePattern) -> Any:
        """Java's ResourcePattern."""
        kind, name, pattern_type = pattern
        return self._classes.common("resource.ResourcePattern")(
            self.code("type", kind), name, self.code("pattern", pattern_type)
        )

    def entry(self, entry: AccessControlEntry) -> Any:
        """Java's AccessControlEntry."""
        return self._classes.common("acl.AccessControlEntry")(
            entry.principal,
            entry.host,
            self.code("operation", entry.operation),
            self.code("permission", entry.permission_type),
        )

    def binding(self, binding: AclBinding) -> Any:
        """Java's AclBinding."""
        return self._classes.common("acl.AclBinding")(self.pattern(binding.pattern), self.entry(binding.entry))

    def filter(self, selection: AclBindingFilter) -> Any:
        """Java's AclBindingFilter."""
        kind, name, pattern_type = selection.pattern
        principal, host, operation, permission = selection.entry
        return self._classes.common("acl.AclBindingFilter")(
            self._classes.common("resource.ResourcePatternFilter")(
                self.code("type", kind), name, self.code("pattern", pattern_type)
            ),
            self._classes.common("acl.AccessControlEntryFilter")(
                principal, host, self.code("operation", operation), self.code("permission", permission)
            ),
        )

    @staticmethod
    def back(binding: Any) -> AclBinding:
        """A binding of Java's."""
        pattern, entry = binding.pattern(), binding.entry()
        return AclBinding(
            ResourcePattern(
                ResourceType(pattern.resourceType().code()),
                str(pattern.name()),
                PatternType(pattern.patternType().code()),
            ),
            AccessControlEntry(
                str(entry.principal()),
                str(entry.host()),
                AclOperation(entry.operation().code()),
                AclPermissionType(entry.permissionType().code()),
            ),
        )


class KafkaAuthorizer:
    """One AclAuthorizer with its configuration."""

    def __init__(self, classes: KafkaClasses, connect: str, config: Mapping[str, str]) -> None:
        self._classes = classes
        self._to = AclConversion(classes)
        with classes.in_use():
            self._authorizer = classes("kafka.security.authorizer.AclAuthorizer")()
            self._authorizer.configure(java_map({"zookeeper.connect": connect, **config}))

    def close(self) -> None:
        """End its session with ZooKeeper."""
        self._authorizer.close()

    def create(self, bindings: Iterable[AclBinding]) -> list[str | None]:
        """The error of each binding, None for a success."""
        context = self._context((KafkaPrincipal("User", "admin"), "127.0.0.1"))
        results = self._authorizer.createAcls(context, java_list(map(self._to.binding, bindings)))
        outcomes = [each.toCompletableFuture().get().exception() for each in results]
        return [str(each.get().toString()) if each.isPresent() else None for each in outcomes]

    def delete(self, filters: Iterable[AclBindingFilter]) -> list[set[AclBinding]]:
        """The deleted bindings of each filter."""
        context = self._context((KafkaPrincipal("User", "admin"), "127.0.0.1"))
        results = self._authorizer.deleteAcls(context, java_list(map(self._to.filter, filters)))
        outcomes = [each.toCompletableFuture().get() for each in results]
        return [{self._to.back(each.aclBinding()) for each in one.aclBindingDeleteResults()} for one in outcomes]

    def select(self, selection: AclBindingFilter) -> set[AclBinding]:
        """The bindings that a filter selects."""
        return {self._to.back(each) for each in self._authorizer.acls(self._to.filter(selection))}

    def authorize(self, client: Client, actions: Iterable[Action]) -> list[bool]:
        """The decisions of one request."""
        kind = self._classes("org.apache.kafka.server.authorizer.Action")
        asked = java_list(
            kind(
                self._to.code("operation", operation),
                self._to.pattern(ResourcePattern(resource_type, name, PatternType.LITERAL)),
                1,
                False,
                False,
            )
            for operation, resource_type, name in actions
        )
        return [str(each) == "ALLOWED" for each in self._authorizer.authorize(self._context(client), asked)]

    def authorize_by_resource_type(self, client: Client, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client has the operation on any resource of the type."""
        result = self._authorizer.authorizeByResourceType(
            self._context(client), self._to.code("operation", operation), self._to.code("type", resource_type)
        )
        return str(result) == "ALLOWED"

    def _context(self, client: Client) -> Any:
        (principal_type, name), host = client
        address = jpype.JClass("java.net.InetAddress").getByName(host)
        principal = self._classes.common("security.auth.KafkaPrincipal")(principal_type, name)
        kind = self._classes("org.apache.kafka.server.authorizer.AuthorizableRequestContext")
        methods = {
            "principal": lambda: principal,
            "clientAddress": lambda: address,
            "requestType": lambda: jpype.JInt(0),
        }
        return jpype.JProxy(kind, dict=methods)
