"""The layout of Kafka's znodes: bytes of Kafka's own encoders, older versions, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.registry import znodes
from odradek.broker.registry.java_order import properties_order, scala_immutable_order, scala_mutable_order
from odradek.broker.registry.znodes import (
    AclChange,
    AclEntry,
    BrokerRegistration,
    ControllerZNode,
    Endpoint,
    FinalizedFeatures,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    ZnodeError,
)

TOPIC_ID = bytes(range(16))
A_AND_B = [("t", 3), ("u", 0)]


# Printed by kafka.zk.ZkData of Kafka 3.9.2, called by hand; one broker of a running cluster does not write them.
def test_bytes_of_nodes_that_only_a_cluster_writes() -> None:
    assert (
        znodes.encode_partitions(A_AND_B)
        == b'{"version":1,"partitions":[{"topic":"t","partition":3},{"topic":"u","partition":0}]}'
    )
    assert znodes.encode_log_dir_event(3) == b'{"version":1,"broker":3,"event":1}'
    assert znodes.encode_reassignment({("t", 3): [1, 2], ("u", 0): [4]}) == (
        b'{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[1,2]},'
        b'{"topic":"u","partition":0,"replicas":[4]}]}'
    )


def test_bytes_of_a_broker_without_plaintext_and_rack() -> None:
    endpoints = (Endpoint("A", "h", 1, "SSL"), Endpoint("B", "::1", 2, "SASL_SSL"))
    assert BrokerRegistration(endpoints, 1795233790837).encode() == (
        b'{"features":{},"listener_security_protocol_map":{"A":"SSL","B":"SASL_SSL"},'
        b'"endpoints":["A://h:1","B://[::1]:2"],"jmx_port":-1,"port":-1,"host":null,"version":5,'
        b'"timestamp":"1795233790837"}'
    )


# Orders of Scala 2.13.15 and Java 17.
def test_keys_have_the_order_of_the_jvm() -> None:
    numbers = [str(number) for number in range(24)]
    assert scala_mutable_order(numbers[:11]) == numbers[:11]
    assert scala_mutable_order(numbers[:12]) == ["11", *numbers[:11]]
    assert ",".join(scala_mutable_order(numbers)) == ("22,23,10,11,12,13,14,15,16,17,18,19,0,1,2,3,4,5,6,7,8,9,20,21")
    listeners = [f"LISTENER{number}" for number in range(9)]
    assert scala_immutable_order(listeners[:4]) == listeners[:4]
    assert [name[-1] for name in scala_immutable_order(listeners[:5])] == list("10432")
    assert [name[-1] for name in scala_immutable_order(listeners)] == list("715034862")
    keys = [f"some.key.{number}" for number in range(13)]
    assert [key[9:] for key in properties_order(keys[:5])] == list("02143")
    assert [int(key[9:]) for key in properties_order(keys)] == [12, 9, 10, 11, 0, 2, 1, 4, 3, 6, 5, 8, 7]


@settings(deadline=None)
@given(keys=st.lists(st.text(), unique=True, max_size=200))
def test_an_order_loses_no_key(keys: list[str]) -> None:
    for order in (scala_mutable_order, scala_immutable_order, properties_order):
        assert sorted(order(keys)) == sorted(keys)


def test_a_topic_of_any_version_is_read() -> None:
    partitions = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))}
    assert TopicAssignment.decode(b'{"version":1,"partitions":{"1":[2,1],"0":[1,2]}}') == TopicAssignment(
        None, partitions
    )
    second = b'{"version":2,"partitions":{"0":[1,2,3]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
    assert TopicAssignment.decode(second).partitions == {0: ReplicaAssignment((1, 2, 3), (3,), (1,))}
    third = TopicAssignment(TOPIC_ID, {0: ReplicaAssignment((1, 2, 3), (3,), (1,))})
    assert third.encode() == (
        b'{"partitions":{"0":[1,2,3]},"topic_id":"AAECAwQFBgcICQoLDA0ODw","adding_replicas":{"0":[3]},'
        b'"removing_replicas":{"0":[1]},"version":3}'
    )
    assert TopicAssignment.decode(third.encode()) == third


def test_a_broker_of_any_version_is_read() -> None:
    first = BrokerRegistration.decode(b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"7"}')
    assert first == BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),), 7, jmx_port=9999)
    second = BrokerRegistration.decode(
        b'{"version":2,"host":"h","port":1,"jmx_port":-1,"timestamp":"7","endpoints":["PLAINTEXT://h:1","SSL://g:2"]}'
    )
    assert second.endpoints == (Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT"), Endpoint("SSL", "g", 2, "SSL"))
    fifth = BrokerRegistration(
        (Endpoint("IN", "::1", 1, "PLAINTEXT"), Endpoint("OUT", "x.y", 2, "SASL_SSL")),
        7,
        "r",
        features={"f": {"min_version": 1, "max_version": 2}},
    )
    assert BrokerRegistration.decode(fifth.encode()) == fifth
    assert b'"port":1,"host":"::1"' in fifth.encode()


def test_controllers_and_features_of_older_versions_are_read() -> None:
    assert ControllerZNode.decode(b'{"version":1,"brokerid":3,"timestamp":"7"}') == ControllerZNode(3, 7)
    first = b'{"features":{"f":{"min_version_level":1,"max_version_level":4}},"version":1,"status":0}'
    assert FinalizedFeatures.decode(first) == FinalizedFeatures({"f": 4}, False)
    second = FinalizedFeatures({"f": 4})
    assert FinalizedFeatures.decode(second.encode()) == second


def test_a_recovering_partition_is_written_and_read() -> None:
    state = PartitionState(1, 2, (1, 3), 5, is_recovering=True)
    assert PartitionState.decode(state.encode()) == state
    assert b'"leader_recovery_state":1' in state.encode()
    old = b'{"controller_epoch":5,"leader":1,"version":1,"leader_epoch":2,"isr":[1,3]}'
    assert PartitionState.decode(old) == PartitionState(1, 2, (1, 3), 5)


def test_configuration_changes_of_both_versions_are_read() -> None:
    assert znodes.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    assert znodes.decode_config_change(znodes.encode_config_change("users/a/clients/b")) == "users/a/clients/b"
    assert znodes.decode_config(None) == znodes.decode_config(b"") == {}


@pytest.mark.parametrize(
    ("connect", "expected"),
    [("a:1", ("a:1", "")), ("a:1,b:2/x/y", ("a:1,b:2", "/x/y")), ("a:1/", ("a:1", ""))],
)
def test_a_chroot_is_split_off(connect: str, expected: tuple[str, str]) -> None:
    assert znodes.split_connect(connect) == expected


@settings(deadline=None)
@given(name=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_sanitized_name_is_safe_and_round_trips(name: str) -> None:
    assert znodes.desanitize(znodes.sanitize(name)) == name
    assert not set(znodes.sanitize(name)) & set('/*?"=,:~+ ')


@settings(deadline=None)
@given(
    text=st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    numbers=st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=60),
    uuid=st.binary(min_size=16, max_size=16),
)
def test_written_nodes_are_read(text: str, numbers: list[int], uuid: bytes) -> None:
    topic = TopicAssignment(uuid, {number: ReplicaAssignment((1, number), (number,)) for number in sorted(numbers)})
    assert TopicAssignment.decode(topic.encode()) == topic
    config = {f"{text}{number}": text for number in numbers}
    assert znodes.decode_config(znodes.encode_config(config)) == config
    partitions = [(text, number) for number in numbers]
    assert znodes.decode_partitions(znodes.encode_partitions(partitions)) == partitions
    reassignment = dict.fromkeys(partitions, (1, 2))
    assert znodes.decode_reassignment(znodes.encode_reassignment(reassignment)) == reassignment
    block = ProducerIdBlock(len(numbers), sum(numbers), sum(numbers) + 999)
    assert ProducerIdBlock.decode(block.encode()) == block
    acl = AclEntry(text, "Allow", "*", "Read")
    assert znodes.decode_acls(znodes.encode_acls([acl])) == [acl]
    assert AclChange.decode_literal(AclChange("TOPIC", text).encode()) == AclChange("TOPIC", text)
    extended = AclChange("GROUP", text, "PREFIXED")
    assert AclChange.decode_extended(extended.encode()) == extended


DECODERS: list[Callable[[bytes | None], Any]] = [
    BrokerRegistration.decode,
    ControllerZNode.decode,
    FinalizedFeatures.decode,
    ProducerIdBlock.decode,
    TopicAssignment.decode,
    PartitionState.decode,
    AclChange.decode_literal,
    AclChange.decode_extended,
    znodes.decode_acls,
    znodes.decode_cluster_id,
    znodes.decode_config,
    znodes.decode_config_change,
    znodes.decode_controller_epoch,
    znodes.decode_log_dir_event,
    znodes.decode_partitions,
    znodes.decode_reassignment,
]
WORDS = """version host port jmx_port timestamp endpoints rack features status partitions adding_replicas topic_id
    leader leader_epoch isr controller_epoch config entity_path acls brokerid id broker block_start block_end
    listener_security_protocol_map topic partition replicas entity_type leader_recovery_state"""
KEYS = WORDS.split()
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("A://b:1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "x", *KEYS]), inner, max_size=4),
    max_leaves=10,
)


@settings(deadline=None, max_examples=50)
@given(node=st.dictionaries(st.sampled_from(KEYS), values, max_size=12) | values, junk=st.binary(max_size=20))
def test_any_content_of_a_node_is_read_or_refused(node: Any, junk: bytes) -> None:
    for data in (json.dumps(node).encode(), junk, b"[" * 5_000):
        for decode in DECODERS:
            try:
                decode(data)
            except ZnodeError as error:
                message = str(error)
                assert message


@pytest.mark.parametrize("decode", DECODERS[:6])
def test_a_missing_key_is_named(decode: Callable[[bytes | None], Any]) -> None:
    with pytest.raises(ZnodeError, match="is missing"):
        decode(b"{}")
    with pytest.raises(ZnodeError):
        decode(None)


def test_characters_are_escaped_as_jackson_escapes_them() -> None:
    """Found beside Kafka's ResourceZNode (tests/security/test_acl_znodes.py)."""
    acl = AclEntry('User:\x1f\x7fü\U0001f600"\\u001f', "Allow", "*", "Read")
    principal = '"principal":"User:\\u001F\x7fü\\uD83D\\uDE00\\"\\\\u001f"'
    assert principal.encode() in znodes.encode_acls([acl])
    assert znodes.decode_acls(znodes.encode_acls([acl])) == [acl]


@pytest.mark.parametrize("decode", [znodes.decode_acls, AclChange.decode_extended])
def test_acls_of_another_version_are_rejected(decode: Callable[[bytes | None], Any]) -> None:
    with pytest.raises(ZnodeError, match="version 2, only 1 is defined"):
        decode(b'{"version":2,"acls":[],"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}')


def test_the_keys_of_a_partition_state_are_not_hashed_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes took two thirds of the encoding, for each partition of a new topic."""
    state = znodes.PartitionState(1, 2, (1, 2), 3)
    expected = [state.encode(), state._replace(is_recovering=True).encode()]
    monkeypatch.delattr(znodes, "scala_immutable_order")
    assert [state.encode(), state._replace(is_recovering=True).encode()] == expected
