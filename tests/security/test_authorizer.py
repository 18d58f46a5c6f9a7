"""The authorizer beside Apache Kafka's AclAuthorizer, then as a property, then by examples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import jpype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.security.state import authorizer as module
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclError,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    delete_matching,
    validate_binding,
)
from odradek.broker.security.state.authorizer import AclAuthorizer
from odradek.broker.security.state.hosts import host_address
from odradek.broker.security.state.principals import KafkaPrincipal, parse_super_users
from tests.security.acl_oracle import InProcessZooKeeper, KafkaAuthorizer
from tests.security.kafka_classes import KafkaClasses

NAMES = ("*", "a", "ab", "abc", "abd", "ac", "b", "ba", "bab")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1")
PRINCIPALS = ("User:*", "User:alice", "User:bob", "Group:alice", "User:root", "User:a:b")
SUPER_USERS = "User:root; User:CN=x,O=y"
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = [each for each in AclOperation if each > AclOperation.ANY]

# Most rules are about the clients and actions below, so that several rules match one action.
COMMON = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
patterns = st.builds(
    ResourcePattern,
    st.just(ResourceType.TOPIC) | st.sampled_from(TYPES),
    st.just("abc") | st.sampled_from(NAMES),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
)
entries = st.builds(
    AccessControlEntry,
    st.just("User:alice") | st.sampled_from(PRINCIPALS),
    st.just("*") | st.sampled_from(HOSTS),
    st.sampled_from(COMMON) | st.sampled_from(OPERATIONS),
    st.sampled_from((AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY)),
)
bindings = st.builds(AclBinding, patterns, entries)
filters = st.builds(
    AclBindingFilter,
    st.builds(
        ResourcePatternFilter,
        st.sampled_from((ResourceType.ANY, *TYPES)),
        st.none() | st.sampled_from(NAMES),
        st.sampled_from((PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)),
    ),
    st.builds(
        AccessControlEntryFilter,
        st.none() | st.sampled_from(PRINCIPALS),
        st.none() | st.sampled_from(HOSTS),
        st.sampled_from([AclOperation.ANY, *OPERATIONS]),
        st.sampled_from((AclPermissionType.ANY, AclPermissionType.ALLOW, AclPermissionType.DENY)),
    ),
)
CLIENTS = [
    (KafkaPrincipal(kind, name), host)
    for kind, name in (("User", "alice"), ("User", "bob"), ("Group", "alice"), ("User", "root"), ("User", "a:b"))
    for host in ("10.0.0.1", "10.9.9.9", "::1")
]
ACTIONS = [
    (operation, ResourceType.TOPIC, name)
    for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER)
    for name in ("abc", "abd", "b", "z")
]
EVERYTHING = AclBindingFilter(
    ResourcePatternFilter(ResourceType.ANY, None, PatternType.ANY),
    AccessControlEntryFilter(None, None, AclOperation.ANY, AclPermissionType.ANY),
)


@pytest.fixture(scope="module")
def kafka_authorizers(
    classes: KafkaClasses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[bool, KafkaAuthorizer]]:
    """AclAuthorizers with and without allow.everyone.if.no.acl.found."""
    zookeeper = InProcessZooKeeper(classes, tmp_path_factory.mktemp("zookeeper"))
    found = {}
    for everyone in (False, True):
        config = {"allow.everyone.if.no.acl.found": str(everyone).lower(), "super.users": SUPER_USERS}
        found[everyone] = KafkaAuthorizer(classes, f"{zookeeper.connect}/{everyone}", config)
    yield found
    for each in found.values():
        each.close()
    zookeeper.stop()


def _authorizer(acls: list[AclBinding], *, everyone: bool = False) -> AclAuthorizer:
    made = AclAuthorizer(parse_super_users(SUPER_USERS), everyone)
    for pattern in {each.pattern for each in acls}:
        made.update(pattern, tuple(each.entry for each in acls if each.pattern == pattern))
    return made


@pytest.mark.jvm
@settings(max_examples=40)
@given(acls=st.lists(bindings, max_size=9), everyone=st.booleans(), again=st.lists(filters, max_size=3))
def test_decisions_are_those_of_kafka(
    kafka_authorizers: dict[bool, KafkaAuthorizer],
    acls: list[AclBinding],
    everyone: bool,
    again: list[AclBindingFilter],
) -> None:
    kafka = kafka_authorizers[everyone]
    kafka.delete([EVERYTHING])
    assert set(kafka.create(acls)) <= {None}
    ours = _authorizer(acls, everyone=everyone)
    assert set(ours.cache.select(EVERYTHING)) == kafka.select(EVERYTHING)
    for selection in again:
        assert set(ours.cache.select(selection)) == kafka.select(selection)
    for round_ in range(2):
        for client in CLIENTS:
            principal, host = client[0], host_address(client[1])
            decisions = [ours.authorize(principal, host, *action) for action in ACTIONS]
            assert decisions == kafka.authorize(client, ACTIONS), (round_, client)
            for operation in (AclOperation.READ, AclOperation.DESCRIBE):
                by_type = ours.authorize_by_resource_type(principal, host, operation, ResourceType.TOPIC)
                assert by_type == kafka.authorize_by_resource_type(client, operation, ResourceType.TOPIC)
        deletion = delete_matching(ours.cache.acls, again)
        for pattern, remaining in deletion.remaining.items():
            ours.update(pattern, remaining)
        assert [set(each) for each in deletion.deleted] == kafka.delete(again)


@pytest.mark.jvm
@pytest.mark.parametrize("permission", [AclPermissionType.ALLOW, AclPermissionType.DENY])
@pytest.mark.parametrize("granted", OPERATIONS)
def test_operations_imply_what_they_imply_in_kafka(
    kafka_authorizers: dict[bool, KafkaAuthorizer], granted: AclOperation, permission: AclPermissionType
) -> None:
    """Each operation for each other one; a DENY stands beside an ALLOW of all operations."""
    pattern = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
    acls = [AclBinding(pattern, AccessControlEntry("User:alice", "*", granted, permission))]
    if permission == AclPermissionType.DENY:
        everything = AccessControlEntry("User:alice", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        acls.append(AclBinding(pattern, everything))
    kafka, ours = kafka_authorizers[False], _authorizer(acls)
    kafka.delete([EVERYTHING])
    kafka.create(acls)
    actions = [(operation, ResourceType.TOPIC, "t") for operation in OPERATIONS]
    alice, host = client = KafkaPrincipal("User", "alice"), "10.0.0.1"
    assert [ours.authorize(alice, host, *action) for action in actions] == kafka.authorize(client, actions)


KINDS = [
    (ResourcePattern(ResourceType.TOPIC, name, pattern_type), permission)
    for name, pattern_type in (
        ("*", PatternType.LITERAL),
        ("ab", PatternType.LITERAL),
        ("a", PatternType.PREFIXED),
        ("abc", PatternType.PREFIXED),
    )
    for permission in (AclPermissionType.ALLOW, AclPermissionType.DENY)
]


@pytest.mark.jvm
@pytest.mark.parametrize("everyone", [False, True])
def test_pairs_of_acls_mean_what_they_mean_in_kafka(
    kafka_authorizers: dict[bool, KafkaAuthorizer], everyone: bool
) -> None:
    """Literal, wildcard and prefixed names, allowed and denied, each with each: for a name, and for any name."""
    kafka = kafka_authorizers[everyone]
    client = KafkaPrincipal("User", "alice"), "10.0.0.1"
    actions = [(AclOperation.READ, ResourceType.TOPIC, name) for name in ("ab", "abc", "abcd", "a", "b")]
    for pair in itertools.combinations_with_replacement(KINDS, 2):
        acls = [
            AclBinding(pattern, AccessControlEntry("User:alice", "*", AclOperation.READ, permission))
            for pattern, permission in pair
        ]
        ours = _authorizer(acls, everyone=everyone)
        kafka.delete([EVERYTHING])
        kafka.create(acls)
        assert [ours.authorize(*client, operation, kind, name) for operation, kind, name in actions] == kafka.authorize(
            client, actions
        ), pair
        by_type = ours.authorize_by_resource_type(*client, AclOperation.READ, ResourceType.TOPIC)
        assert by_type == kafka.authorize_by_resource_type(client, AclOperation.READ, ResourceType.TOPIC), pair


@pytest.mark.jvm
@pytest.mark.parametrize(
    "binding",
    [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, name, pattern_type),
            AccessControlEntry(principal, "*", AclOperation.READ, AclPermissionType.ALLOW),
        )
        for name, pattern_type, principal in (
            ("a/b", PatternType.LITERAL, "User:a"),
            ("a", PatternType.UNKNOWN, "User:a"),
            ("a", PatternType.LITERAL, "alice"),
            ("a", PatternType.LITERAL, ""),
            ("a", PatternType.PREFIXED, "User:"),
            ("a b", PatternType.PREFIXED, "X:a:b"),
        )
    ],
)
def test_rejects_the_bindings_that_kafka_rejects(
    kafka_authorizers: dict[bool, KafkaAuthorizer], binding: AclBinding
) -> None:
    (error,) = kafka_authorizers[False].create([binding])
    kafka_authorizers[False].delete([EVERYTHING])
    if error is None:
        validate_binding(binding)
    else:
        with pytest.raises(AclError):
            validate_binding(binding)


@given(st.lists(bindings, max_size=20), st.lists(filters, min_size=1, max_size=4))
def test_deletions_keep_every_other_entry(acls: list[AclBinding], selections: list[AclBindingFilter]) -> None:
    """CVE-2024-27309: removing one of several ACLs of a resource removed others."""
    ours = _authorizer(acls)
    deletion = delete_matching(ours.cache.acls, selections)
    for pattern, remaining in deletion.remaining.items():
        ours.update(pattern, remaining)
    kept = {each for each in acls if not any(selection.matches(each) for selection in selections)}
    assert set(ours.cache.select(EVERYTHING)) == kept
    deleted = [each for some in deletion.deleted for each in some]
    assert len(deleted) == len(set(deleted))
    assert set(deleted) == set(acls) - kept
    assert len(ours.cache) == len(kept)


@pytest.mark.slow
@given(st.lists(st.tuples(patterns, st.lists(entries, max_size=3)), max_size=20))
def test_lookups_do_not_depend_on_the_order_of_changes(
    changes: list[tuple[ResourcePattern, list[AccessControlEntry]]],
) -> None:
    ours = AclAuthorizer()
    for pattern, some in changes:
        for client, host in CLIENTS:
            ours.authorize(client, host_address(host), *ACTIONS[0])
        ours.update(pattern, tuple(some))
    fresh = AclAuthorizer()
    for pattern, some in dict(changes).items():
        fresh.update(pattern, tuple(some))
    for client, host in CLIENTS:
        for action in ACTIONS:
            assert ours.authorize(client, host_address(host), *action) == fresh.authorize(
                client, host_address(host), *action
            )


@given(st.sets(st.text("ab", max_size=6), max_size=30), st.text("ab", max_size=8))
def test_the_prefixes_of_a_name_are_found(prefixes: set[str], name: str) -> None:
    ours = AclAuthorizer()
    entry = AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    for prefix in prefixes:
        ours.update(ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED), (entry,))
    found = [each.name for each in ours.cache.patterns_of(ResourceType.TOPIC, name)]
    assert sorted(found) == sorted(each for each in prefixes if name.startswith(each))


def test_unrelated_acls_do_not_cost_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = AclAuthorizer()
    allow = AclPermissionType.ALLOW
    for number in range(3_000):
        entry = AccessControlEntry(f"User:u{number}", "*", AclOperation.READ, allow)
        ours.update(ResourcePattern(ResourceType.TOPIC, f"t{number:04}", PatternType.PREFIXED), (entry,))
        ours.update(ResourcePattern(ResourceType.TOPIC, f"x{number}", PatternType.LITERAL), (entry,))
    many = tuple(AccessControlEntry(f"User:u{number}", "*", AclOperation.READ, allow) for number in range(3_000))
    ours.update(ResourcePattern(ResourceType.TOPIC, "shared", PatternType.LITERAL), many)
    seen = 0

    def counted(pattern: str, host: str) -> bool:
        nonlocal seen
        seen += 1
        return True

    monkeypatch.setattr(module, "host_matches", counted)
    user = KafkaPrincipal("User", "u2500")
    assert ours.authorize(user, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "shared")
    assert ours.authorize(user, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t2500-x")
    assert not ours.authorize(user, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t2501-x")
    assert seen == 2


def test_the_cache_of_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DECISIONS", 10)
    ours = AclAuthorizer(allow_everyone_if_no_acl_found=True)
    for number in range(1_000):
        user = KafkaPrincipal("User", f"u{number % 7}")
        assert ours.authorize(user, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, f"t{number}")
        assert sum(map(len, ours._decisions.values())) <= 10
        assert len(ours._decisions) <= 10


def test_an_acl_of_one_principal_changes_the_decisions_of_others() -> None:
    ours = AclAuthorizer(allow_everyone_if_no_acl_found=True)
    bob, where = KafkaPrincipal("User", "bob"), ("10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t")
    assert ours.authorize(bob, *where)
    entry = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    ours.update(ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL), (entry,))
    assert not ours.authorize(bob, *where)
    ours.update(ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL), ())
    assert ours.authorize(bob, *where)


@pytest.mark.parametrize(
    ("block", "host", "matches"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.2.3/16", "10.1.9.9", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("0.0.0.0/0", "192.0.2.1", True),
        ("0.0.0.0/0", "::1", False),
        ("2001:db8::/32", "2001:db8::7", True),
        ("2001:db8::/32", "2001:db9::7", False),
        ("10.1.2.3/32", "10.1.2.3", True),
    ],
)
def test_a_block_covers_its_addresses(block: str, host: str, matches: bool) -> None:
    for permission, expected in ((AclPermissionType.ALLOW, matches), (AclPermissionType.DENY, not matches)):
        ours = AclAuthorizer()
        entries = [AccessControlEntry("User:a", block, AclOperation.READ, permission)]
        if permission == AclPermissionType.DENY:
            entries.append(AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW))
        ours.update(ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL), tuple(entries))
        user, address = KafkaPrincipal("User", "a"), host_address(host)
        assert ours.authorize(user, address, AclOperation.READ, ResourceType.TOPIC, "t") == expected
        by_type = ours.authorize_by_resource_type(user, address, AclOperation.READ, ResourceType.TOPIC)
        assert by_type == expected


@pytest.mark.parametrize("host", ["10.0.0.0/33", "10.0.0/8", "x/8", "10.0.0.0/", "10.0.0.0/255.0.0.0", "::/129"])
def test_rejects_an_invalid_block(host: str) -> None:
    entry = AccessControlEntry("User:a", host, AclOperation.READ, AclPermissionType.ALLOW)
    with pytest.raises(AclError, match="Invalid CIDR host"):
        validate_binding(AclBinding(ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL), entry))


@pytest.mark.parametrize(("kind", "name"), [(ResourceType.CLUSTER, "other"), (ResourceType.TOPIC, "")])
def test_rejects_the_names_that_kafka_apis_reject(kind: ResourceType, name: str) -> None:
    entry = AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    with pytest.raises(AclError, match="resource"):
        validate_binding(AclBinding(ResourcePattern(kind, name, PatternType.LITERAL), entry))


@pytest.mark.jvm
@given(st.ip_addresses())
def test_addresses_have_javas_form(classes: KafkaClasses, address: object) -> None:
    expected = jpype.JClass("java.net.InetAddress").getByName(str(address)).getHostAddress()
    assert host_address(str(address)) == str(expected)
