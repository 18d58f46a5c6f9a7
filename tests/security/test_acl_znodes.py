"""ACLs in ZooKeeper beside the classes of kafka.zk."""

from __future__ import annotations

from typing import Any

import jpype
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.registry.znodes import ZnodeError
from odradek.broker.security.state import acl_znodes
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tests.security.acl_oracle import AclConversion
from tests.security.kafka_classes import KafkaClasses, java_bytes

pytestmark = pytest.mark.jvm

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
patterns = st.builds(
    ResourcePattern,
    st.sampled_from([each for each in ResourceType if each > ResourceType.ANY]),
    texts.filter(lambda name: "/" not in name and name != ""),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
)
entries = st.builds(
    AccessControlEntry,
    st.builds("{}:{}".format, st.sampled_from(("User", "Group", "")), texts),
    texts,
    st.sampled_from([each for each in AclOperation if each > AclOperation.ANY]),
    st.sampled_from((AclPermissionType.ALLOW, AclPermissionType.DENY)),
)


def _stat(classes: KafkaClasses) -> Any:
    return classes("org.apache.zookeeper.data.Stat")()


def _entries_of(classes: KafkaClasses, versioned: Any) -> set[AccessControlEntry]:
    """The entries of Kafka's VersionedAcls."""
    some = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
    to = AclConversion(classes)
    binding = classes.common("acl.AclBinding")
    found = classes("scala.jdk.javaapi.CollectionConverters").asJava(versioned.acls())
    return {to.back(binding(to.pattern(some), each.ace)).entry for each in found}


@given(st.lists(entries, max_size=6))
def test_entries_are_those_of_kafka(classes: KafkaClasses, some: list[AccessControlEntry]) -> None:
    to, node = AclConversion(classes), classes("kafka.zk.ResourceZNode")
    theirs = jpype.JClass("java.util.HashSet")()
    for each in some:
        theirs.add(classes("org.apache.kafka.security.authorizer.AclEntry")(to.entry(each)))
    scala_set = classes("scala.jdk.javaapi.CollectionConverters").asScala(theirs).toSet()
    data = bytes(node.encode(scala_set))
    decoded = acl_znodes.decode_entries(data)
    assert set(decoded) == set(some)
    assert acl_znodes.encode_entries(decoded) == data
    assert _entries_of(classes, node.decode(java_bytes(acl_znodes.encode_entries(some)), _stat(classes))) == set(some)


@given(patterns)
def test_paths_and_changes_are_those_of_kafka(classes: KafkaClasses, pattern: ResourcePattern) -> None:
    theirs = AclConversion(classes).pattern(pattern)
    assert acl_znodes.acl_path(pattern) == str(classes("kafka.zk.ResourceZNode").path(theirs))
    literal = pattern.pattern_type == PatternType.LITERAL
    store = classes(f"kafka.zk.{'Literal' if literal else 'Extended'}AclChangeStore")
    node = store.createChangeNode(theirs)
    assert acl_znodes.change_prefix(pattern) == str(node.path())
    data = bytes(node.bytes())
    assert acl_znodes.encode_change(pattern) == data
    decode = acl_znodes.decode_literal_change if literal else acl_znodes.decode_extended_change
    assert decode(data) == pattern


WORDS = [*(each.name for each in AclOperation), "DescribeConfigs", "describeconfigs", "createTokens", "Foo", ""]
WORDS += ["Allow", "DENY", "Topic", "TransactionalId", "transactionalid", "TRANSACTIONAL_ID", "User", "KafkaCluster"]


@pytest.mark.parametrize("word", WORDS)
def test_words_are_read_as_kafka_reads_them(classes: KafkaClasses, word: str) -> None:
    security = classes.common("utils.SecurityUtils")
    assert acl_znodes.parse_type_name(word) == security.resourceType(word).code()
    data = (
        f'{{"version":1,"acls":[{{"principal":"User:a","permissionType":"{word}","operation":"{word}","host":"*"}}]}}'
    )
    (entry,) = acl_znodes.decode_entries(data.encode())
    assert entry.operation == security.operation(word).code()
    assert entry.permission_type == security.permissionType(word).code()
    for form in (b"%s:x:y", b'{"version":1,"resourceType":"%s","name":"x:y","patternType":"PREFIXED"}'):
        store = classes(f"kafka.zk.{'Extended' if b'{' in form else 'Literal'}AclChangeStore")
        decode = acl_znodes.decode_extended_change if b"{" in form else acl_znodes.decode_literal_change
        try:
            theirs = store.decode(java_bytes(form % word.encode()))
        except jpype.JException:
            with pytest.raises(ZnodeError):
                decode(form % word.encode())
            continue
        ours = decode(form % word.encode())
        assert (ours.resource_type, ours.name) == (theirs.resourceType().code(), str(theirs.name()))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"acls":[]}', "'version' is missing"),
        (b'{"version":2,"acls":[]}', "only 1 is defined"),
        (b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read"}]}', "'host'"),
        (b'{"version":1,"acls":[{"principal":"a","permissionType":"Allow","operation":"Read","host":"*"}]}', "format"),
    ],
)
def test_rejects_the_nodes_that_kafka_rejects(classes: KafkaClasses, data: bytes, problem: str) -> None:
    with pytest.raises(jpype.JException):
        classes("kafka.zk.ResourceZNode").decode(java_bytes(data), _stat(classes))
    with pytest.raises(ZnodeError, match=problem):
        acl_znodes.decode_entries(data)


def test_rejects_a_node_that_is_no_json() -> None:
    """Kafka reads it as a node without entries."""
    with pytest.raises(ZnodeError):
        acl_znodes.decode_entries(b"xx")
    assert acl_znodes.decode_entries(None) == acl_znodes.decode_entries(b"") == ()


@pytest.mark.parametrize("pattern_type", ["MATCH", "ANY"])
def test_rejects_a_change_of_a_filters_pattern(classes: KafkaClasses, pattern_type: str) -> None:
    data = b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"%s"}' % pattern_type.encode()
    with pytest.raises(jpype.JException):
        classes("kafka.zk.ExtendedAclChangeStore").decode(java_bytes(data))
    with pytest.raises(ZnodeError, match="no resource pattern"):
        acl_znodes.decode_extended_change(data)


def test_a_binding_keeps_its_type() -> None:
    binding = AclBinding(
        ResourcePattern(ResourceType.GROUP, "g", PatternType.PREFIXED),
        AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW),
    )
    assert acl_znodes.decode_entries(acl_znodes.encode_entries([binding.entry])) == (binding.entry,)
