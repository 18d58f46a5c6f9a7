"""Znodes of Kafka 3.9: their paths, and the encoding of their data. Pure functions over bytes (Kafka: ZkData).

The layout is that of kafka.zk.ZkData; a test compares it with the znodes that Apache Kafka 3.9.2 writes, byte for
byte. The JSON is compact, its keys in the order of Kafka's hash maps (see java_order). Older versions of a node are
decoded wherever Kafka 3.9 decodes them; the newest is written.

Paths are relative to the chroot of zookeeper.connect. Decoders raise ZnodeError and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import urllib.parse
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from odradek.broker.registry.interface import OPEN_ACL, Acl
from odradek.broker.registry.java_order import properties_order, scala_immutable_order, scala_mutable_buckets
from odradek.protocol.topic_partition import TopicPartition

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONSUMERS = "/consumers"
DELEGATION_TOKENS = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES = "/delegation_token/token_changes"
ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACLS = "/kafka-acl-extended"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"

CONFIG_CHANGE_PREFIX = CONFIG_CHANGES + "/config_change_"
ISR_CHANGE_PREFIX = ISR_CHANGES + "/isr_change_"
LOG_DIR_EVENT_PREFIX = LOG_DIR_EVENTS + "/log_dir_event_"
ACL_CHANGE_PREFIX = ACL_CHANGES + "/acl_changes_"
EXTENDED_ACL_CHANGE_PREFIX = EXTENDED_ACL_CHANGES + "/acl_changes_"
DELEGATION_TOKEN_CHANGE_PREFIX = DELEGATION_TOKEN_CHANGES + "/token_change_"
"""Paths of sequential nodes, without the number."""

ENTITY_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{entity_type}" for entity_type in ENTITY_TYPES),
)
"""The nodes that a broker creates at its start where they are missing."""

_SENSITIVE_PATHS: Final = (f"{CONFIG}/users", f"{CONFIG}/brokers", DELEGATION_TOKENS)
_SECURE_ACL: Final = (Acl(31, "auth", ""),)
_READABLE_ACL: Final = (*_SECURE_ACL, Acl(1, "world", "anyone"))

_ENDPOINT: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_TOPIC_ID_BYTES: Final = 16
_ESCAPED: Final = re.compile("\\\\(?:\\\\|u[0-9a-f]{4})|[\U00010000-\U0010ffff]")
"""An escaped backslash, an escaped control character, or a character outside of the BMP."""


class ZnodeError(ValueError):
    """The data of a znode is not what Kafka writes there; the message states which node and what is wrong."""


def split_connect(connect: str) -> tuple[str, str]:
    """zookeeper.connect as hosts and chroot: "a:1,b:2/x" gives ("a:1,b:2", "/x"); without a chroot the second is
    empty.
    """
    hosts, slash, chroot = connect.partition("/")
    return hosts, (slash + chroot).rstrip("/")


# Paths


def default_acl(path: str) -> tuple[Acl, ...]:
    """The access list of a new node with zookeeper.set.acl (ZkData.defaultAcls): the creator may do everything, others
    may read what is not sensitive.
    """
    if path == CONSUMERS:
        return OPEN_ACL  # old consumers of other users write below it
    return _SECURE_ACL if path.startswith(_SENSITIVE_PATHS) else _READABLE_ACL


def broker_path(broker_id: int) -> str:
    """The registration of a broker; ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The assignment of a topic."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    """Leader and ISR of a partition."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def delete_topic_path(topic: str) -> str:
    """A request to delete a topic; no data."""
    return f"{DELETE_TOPICS}/{topic}"


def config_path(entity: str) -> str:
    """The configuration of an entity, as "topics/T", "brokers/<default>" or "users/U/clients/C", names sanitized."""
    return f"{CONFIG}/{entity}"


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    """An offset of the old consumer, in decimal digits."""
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def acl_path(resource_type: str, name: str, pattern_type: str = "LITERAL") -> str:
    """The access rules of a resource: type as "Topic" or "TransactionalId", pattern as "LITERAL" or "PREFIXED"."""
    store = ACLS if pattern_type == "LITERAL" else f"{EXTENDED_ACLS}/{pattern_type.lower()}"
    return f"{store}/{resource_type}/{name}"


def delegation_token_path(token_id: str) -> str:
    """A delegation token, without its HMAC."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def sanitize(name: str) -> str:
    """A user or client name in a form that is valid in a path and in JMX (Sanitizer: percent encoding)."""
    return urllib.parse.quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The original of a sanitized name."""
    return urllib.parse.unquote(name)


# Brokers and the controller


class Endpoint(NamedTuple):
    """One listener: its name, address and protocol (Kafka: EndPoint).

    In a broker's properties an empty host means every interface, and port 0 a free port.
    """

    listener: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"

    def advertise(self, host: str, port: int) -> Endpoint:
        """This address for others: with `host` where it has none, and `port` where its port is 0."""
        return self._replace(host=self.host or host, port=self.port or port)


class BrokerRegistration(NamedTuple):
    """/brokers/ids/N, version 5 (KIP-584). `features` maps a name to its min_version and max_version."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, Mapping[str, int]] = MappingProxyType({})

    def encode(self) -> bytes:
        """The host and port are for clients that support only one plaintext listener; Kafka writes null where there is
        none.
        """
        plain = next((endpoint for endpoint in self.endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
        protocols = {endpoint.listener: endpoint.security_protocol for endpoint in self.endpoints}
        return _json(
            {
                "features": {name: dict(versions) for name, versions in self.features.items()},
                "listener_security_protocol_map": _ordered(protocols, scala_immutable_order),
                "endpoints": [str(endpoint) for endpoint in self.endpoints],
                **({} if self.rack is None else {"rack": self.rack}),
                "jmx_port": self.jmx_port,
                "port": -1 if plain is None else plain.port,
                "host": None if plain is None else plain.host,
                "version": 5,
                "timestamp": str(self.timestamp_ms),
            }
        )

    @classmethod
    def decode(cls, data: bytes | None) -> BrokerRegistration:
        """Decode versions 1 to 5."""
        with _reading("broker registration", data) as node:
            if int(node["version"]) == 1:
                endpoints: tuple[Endpoint, ...] = (
                    Endpoint("PLAINTEXT", str(node["host"]), int(node["port"]), "PLAINTEXT"),
                )
            else:
                protocols = node.get("listener_security_protocol_map") or {}
                endpoints = tuple(_parse_endpoint(text, protocols) for text in node["endpoints"])
            return cls(
                endpoints,
                int(node["timestamp"]),
                node.get("rack"),
                int(node["jmx_port"]),
                {name: dict(versions) for name, versions in (node.get("features") or {}).items()},
            )


def _parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an endpoint")
    listener, host, port = match.groups()
    return Endpoint(listener, host, int(port), protocols.get(listener, listener))


class ControllerZNode(NamedTuple):
    """/controller, version 2 (KIP-866): the broker that controls the cluster; ephemeral."""

    broker_id: int
    timestamp_ms: int
    kraft_epoch: int = -1

    def encode(self) -> bytes:
        return _json(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_epoch,
            }
        )

    @classmethod
    def decode(cls, data: bytes | None) -> ControllerZNode:
        """Decode versions 1 and 2."""
        with _reading("controller", data) as node:
            return cls(int(node["brokerid"]), int(node["timestamp"]), int(node.get("kraftControllerEpoch", -1)))


def encode_controller_epoch(epoch: int) -> bytes:
    """/controller_epoch: decimal digits. The node's version guards every write of a controller."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes | None) -> int:
    """The number in /controller_epoch."""
    try:
        return int(data or b"")
    except ValueError as error:
        raise ZnodeError(f"controller epoch: {data!r} is not a number") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    """/cluster/id."""
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """The id in /cluster/id."""
    with _reading("cluster id", data) as node:
        return str(node["id"])


class FinalizedFeatures(NamedTuple):
    """/feature, version 2 (KIP-584): the finalized features of the cluster. `features` maps a name to its level."""

    features: Mapping[str, int] = MappingProxyType({})
    is_enabled: bool = True

    def encode(self) -> bytes:
        return _json({"features": dict(self.features), "version": 2, "status": int(self.is_enabled)})

    @classmethod
    def decode(cls, data: bytes | None) -> FinalizedFeatures:
        """Decode version 2; from version 1 (a range for each feature) the upper bounds."""
        with _reading("features", data) as node:
            levels = {
                name: int(level["max_version_level"] if isinstance(level, dict) else level)
                for name, level in node["features"].items()
            }
            return cls(levels, _one_of(int(node["status"]), (0, 1)) == 1)


class ProducerIdBlock(NamedTuple):
    """/latest_producer_id_block, version 1: the producer ids allocated last to a broker, both ends included."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        return _json(
            {"version": 1, "broker": self.broker_id, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @classmethod
    def decode(cls, data: bytes | None) -> ProducerIdBlock:
        with _reading("producer id block", data) as node:
            return cls(int(node["broker"]), int(node["block_start"]), int(node["block_end"]))


# Topics and partitions


class ReplicaAssignment(NamedTuple):
    """The assignment of a partition: all its replicas, and those of them that a reassignment adds or removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


T = TypeVar("T")
InParts: TypeAlias = Generator[None, None, T]
"""Work that is divided into parts; its result is the value of the generator."""
_ENTRIES_IN_A_PART: Final = 1000


def _run_to_end(work: InParts[T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def _numbers_by_number(table: Mapping[str, Sequence[int]]) -> InParts[str]:
    """The members of a JSON object whose keys and values are numbers and lists of numbers."""
    buckets = scala_mutable_buckets(len(table))
    for count, number in enumerate(table, 1):
        buckets.add(number)
        if not count % _ENTRIES_IN_A_PART:
            yield
    members = []
    for count, number in enumerate(buckets, 1):
        members.append(f'"{number}":[{",".join(map(str, table[number]))}]')
        if not count % _ENTRIES_IN_A_PART:
            yield
    return ",".join(members)


class TopicAssignment(NamedTuple):
    """/brokers/topics/T, version 3. `topic_id` is the uuid in 16 bytes, None for a topic of an older broker."""

    topic_id: bytes | None
    partitions: Mapping[int, ReplicaAssignment]

    def encode(self) -> bytes:
        return _run_to_end(self.encode_in_parts())

    def encode_in_parts(self) -> InParts[bytes]:
        """`encode`, in parts of a few milliseconds for a topic of thousands of partitions."""
        partitions: dict[str, Sequence[int]] = {}
        adding: dict[str, Sequence[int]] = {}
        removing: dict[str, Sequence[int]] = {}
        for count, (index, replicas) in enumerate(self.partitions.items(), 1):
            number = str(index)
            partitions[number] = replicas.replicas
            if replicas.adding:
                adding[number] = replicas.adding
            if replicas.removing:
                removing[number] = replicas.removing
            if not count % _ENTRIES_IN_A_PART:
                yield
        texts = []
        for table in (partitions, adding, removing):
            text = yield from _numbers_by_number(table)
            texts.append(text)
        topic_id = "" if self.topic_id is None else f'"topic_id":"{encode_uuid(self.topic_id)}",'
        return (
            f'{{"partitions":{{{texts[0]}}},{topic_id}"adding_replicas":{{{texts[1]}}},'
            f'"removing_replicas":{{{texts[2]}}},"version":3}}'
        ).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> TopicAssignment:
        """Decode versions 1 to 3."""
        return _run_to_end(cls.decode_in_parts(data))

    @classmethod
    def decode_in_parts(cls, data: bytes | None) -> InParts[TopicAssignment]:
        """`decode`, in parts of a few milliseconds for a topic of thousands of partitions."""
        with _reading("topic", data) as node:
            adding, removing = node.get("adding_replicas") or {}, node.get("removing_replicas") or {}
            partitions: dict[int, ReplicaAssignment] = {}
            for count, (number, replicas) in enumerate(node["partitions"].items(), 1):
                partitions[int(number)] = ReplicaAssignment(
                    _ints(replicas), _ints(adding.get(number, ())), _ints(removing.get(number, ()))
                )
                if not count % _ENTRIES_IN_A_PART:
                    yield
            topic_id = node.get("topic_id")
            return cls(None if topic_id is None else decode_uuid(topic_id), dict(sorted(partitions.items())))


_STATE_KEYS: Final = ("version", "leader", "leader_epoch", "controller_epoch", "isr")
_STATE_ORDER: Final = scala_immutable_order(_STATE_KEYS)
_RECOVERING_STATE_ORDER: Final = scala_immutable_order((*_STATE_KEYS, "leader_recovery_state"))
"""The order of the keys of a partition's state: the hashes of the keys took most of the time of its encoding."""


class PartitionState(NamedTuple):
    """/brokers/topics/T/partitions/P/state, version 1. A leader of -1 means that there is none.

    `is_recovering` is the leader recovery state after an unclean election (KIP-704). The node's own version is the
    partition epoch with which a leader changes the ISR.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    is_recovering: bool = False

    def encode(self) -> bytes:
        node: dict[str, object] = {
            "version": 1,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "controller_epoch": self.controller_epoch,
            "isr": list(self.isr),
        }
        order = _STATE_ORDER
        if self.is_recovering:
            node["leader_recovery_state"] = 1
            order = _RECOVERING_STATE_ORDER
        return _json({key: node[key] for key in order})

    @classmethod
    def decode(cls, data: bytes | None) -> PartitionState:
        with _reading("partition state", data) as node:
            return cls(
                int(node["leader"]),
                int(node["leader_epoch"]),
                _ints(node["isr"]),
                int(node["controller_epoch"]),
                _one_of(int(node.get("leader_recovery_state", 0)), (0, 1)) == 1,
            )


def encode_uuid(uuid: bytes) -> str:
    """A uuid of 16 bytes as Kafka writes it in text: base64url without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    """The 16 bytes. Raises ZnodeError."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ZnodeError(f"{text!r} is not a uuid") from error
    if len(uuid) != _TOPIC_ID_BYTES:
        raise ZnodeError(f"{text!r} is not a uuid: {len(uuid)} bytes")
    return uuid


# Configurations


def encode_config(config: Mapping[str, str]) -> bytes:
    """/config/TYPE/NAME, version 1: the properties that were set, no defaults."""
    return _json({"version": 1, "config": _ordered(config, properties_order)})


def decode_config(data: bytes | None) -> dict[str, str]:
    """The properties; none where the node has no data, as the parent of a user's clients."""
    if not data:
        return {}
    with _reading("configuration", data) as node:
        return {str(name): str(value) for name, value in (node.get("config") or {}).items()}


def encode_config_change(entity: str) -> bytes:
    """/config/changes/config_change_N, version 2: the entity whose configuration is to be read again (see
    `config_path`).
    """
    return _json({"version": 2, "entity_path": entity})


def decode_config_change(data: bytes | None) -> str:
    """The entity; versions 1 (topics and clients only) and 2."""
    with _reading("configuration change", data) as node:
        if int(node["version"]) == 1:
            return f"{_one_of(node['entity_type'], ('topics', 'clients'))}/{node['entity_name']}"
        return str(node["entity_path"])


# Notifications of brokers and tools for the controller


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """/isr_change_notification/isr_change_N and /admin/preferred_replica_election, both version 1."""
    return _json({"version": 1, "partitions": [{"topic": topic, "partition": number} for topic, number in partitions]})


def decode_partitions(data: bytes | None) -> list[TopicPartition]:
    """The topics and partitions of either node."""
    with _reading("list of partitions", data) as node:
        return [(str(item["topic"]), int(item["partition"])) for item in node["partitions"]]


def encode_log_dir_event(broker_id: int) -> bytes:
    """/log_dir_event_notification/log_dir_event_N, version 1: a directory of this broker failed (KIP-112)."""
    return _json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes | None) -> int:
    """The broker."""
    with _reading("log directory event", data) as node:
        return int(node["broker"])


def encode_reassignment(reassignment: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """/admin/reassign_partitions, version 1: the new replicas of partitions."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in reassignment.items()
    ]
    return _json({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas by topic and partition."""
    with _reading("reassignment", data) as node:
        return {(str(item["topic"]), int(item["partition"])): _ints(item["replicas"]) for item in node["partitions"]}


# Access rules


class AclEntry(NamedTuple):
    """One access rule of a resource, words as in "User:alice", "Allow", "*", "Read"."""

    principal: str
    permission_type: str
    host: str
    operation: str


def encode_acls(acls: Iterable[AclEntry]) -> bytes:
    """/kafka-acl/TYPE/NAME and /kafka-acl-extended/PATTERN/TYPE/NAME, version 1."""
    entries = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission_type,
            "host": acl.host,
            "operation": acl.operation,
        }
        for acl in acls
    ]
    return _json({"acls": entries, "version": 1})


def decode_acls(data: bytes | None) -> list[AclEntry]:
    """The rules; none where the node has no data."""
    if not data:
        return []
    with _reading("access rules", data) as node:
        _require_first_version("access rules", node)
        return [
            AclEntry(str(item["principal"]), str(item["permissionType"]), str(item["host"]), str(item["operation"]))
            for item in node["acls"]
        ]


class AclChange(NamedTuple):
    """The resource whose access rules are to be read again; type as "TOPIC", pattern as "LITERAL" or "PREFIXED"."""

    resource_type: str
    name: str
    pattern_type: str = "LITERAL"

    def encode(self) -> bytes:
        """A literal pattern as plain text, for /kafka-acl-changes; others as JSON, for /kafka-acl-extended-changes."""
        if self.pattern_type == "LITERAL":
            return f"{self.resource_type}:{self.name}".encode()
        return _json(
            {
                "version": 1,
                "resourceType": self.resource_type,
                "name": self.name,
                "patternType": self.pattern_type,
            }
        )

    @classmethod
    def decode_literal(cls, data: bytes | None) -> AclChange:
        """A node of /kafka-acl-changes."""
        try:
            resource_type, colon, name = (data or b"").decode().partition(":")
        except UnicodeDecodeError as error:
            raise ZnodeError("access rule change: not UTF-8") from error
        if not colon:
            raise ZnodeError(f"access rule change: {resource_type!r} is not TYPE:NAME")
        return cls(resource_type, name)

    @classmethod
    def decode_extended(cls, data: bytes | None) -> AclChange:
        """A node of /kafka-acl-extended-changes."""
        with _reading("access rule change", data) as node:
            _require_first_version("access rule change", node)
            return cls(str(node["resourceType"]), str(node["name"]), str(node["patternType"]))


# Delegation tokens


class DelegationTokenZNode(NamedTuple):
    """/delegation_token/tokens/ID, version 3 (KIP-373); principals as in "User:alice", times in milliseconds.

    The secret of a token, its HMAC, is not stored.
    """

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    def encode(self) -> bytes:
        node: dict[str, object] = {
            "version": 3,
            "owner": sanitize(self.owner),
            "tokenRequester": sanitize(self.token_requester),
            "renewers": [sanitize(renewer) for renewer in self.renewers],
            "issueTimestamp": self.issue_timestamp_ms,
            "maxTimestamp": self.max_timestamp_ms,
            "expiryTimestamp": self.expiry_timestamp_ms,
            "tokenId": self.token_id,
        }
        return _json(_ordered(node, scala_immutable_order))

    @classmethod
    def decode(cls, data: bytes | None) -> DelegationTokenZNode:
        """Decode versions 1 to 3; before 3 the owner of a token is also its requester."""
        with _reading("delegation token", data) as node:
            version = _one_of(node["version"], (1, 2, 3))
            owner = desanitize(str(node["owner"]))
            return cls(
                str(node["tokenId"]),
                owner,
                desanitize(str(node["tokenRequester"])) if version >= 3 else owner,
                tuple(desanitize(str(renewer)) for renewer in node["renewers"]),
                int(node["issueTimestamp"]),
                int(node["maxTimestamp"]),
                int(node["expiryTimestamp"]),
            )


# JSON as Jackson writes it


def _json(node: Mapping[str, object]) -> bytes:
    return _ESCAPED.sub(_escape_as_jackson, json.dumps(node, separators=(",", ":"), ensure_ascii=False)).encode()


def _escape_as_jackson(found: re.Match[str]) -> str:
    """Jackson escapes characters outside of the BMP, as surrogates, and writes hexadecimal digits in upper case."""
    text = found[0]
    if text.startswith("\\"):
        return text if text == r"\\" else r"\u" + text[2:].upper()
    high, low = divmod(ord(text) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


def _ordered(node: Mapping[str, Any], order: Callable[[Iterable[str]], list[str]]) -> dict[str, Any]:
    return {key: node[key] for key in order(node)}


@contextmanager
def _reading(what: str, data: bytes | None) -> Iterator[dict[str, Any]]:
    """The JSON object in `data`; any error in it is raised as a ZnodeError that names `what`."""
    try:
        node = json.loads(data or b"")
        if not isinstance(node, dict):
            raise ZnodeError(f"{what}: not a JSON object")
        yield node
    except ZnodeError:
        raise
    except KeyError as error:
        raise ZnodeError(f"{what}: {error.args[0]!r} is missing in {(data or b'')[:200]!r}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ZnodeError(f"{what}: {error} in {(data or b'')[:200]!r}") from error


def _require_first_version(what: str, node: Mapping[str, object]) -> None:
    if node["version"] != 1:
        raise ZnodeError(f"{what}: version {node['version']}, only 1 is defined")


def _ints(values: Iterable[object]) -> tuple[int, ...]:
    numbers = tuple(values)
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"{numbers} are not all numbers")
    return numbers  # type: ignore[return-value]


def _one_of(value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} is none of {allowed}")
    return value
