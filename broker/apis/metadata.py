"""Metadata (key 3), versions 0 to 13: the brokers, the controller, topics and their partitions (Kafka: KafkaApis).

The request contains topics by name, or from version 10 on by id; null (an empty list in version 0) means all topics. A
missing topic is created when the request and `auto.create.topics.enable` allow it: the response then waits for the
creation, where Kafka returns an error that makes clients retry. If it cannot be created, the response contains the
reason; if the outcome is unknown, the error makes clients retry, and so it does until this broker has received metadata
from a controller.

The response contains the topics that the client may describe. Another topic has an error if the client requests it,
which is the same whether the topic exists or not, and is omitted where the client requests all topics. To create a
topic, the client needs CREATE on the topic or on the cluster.

The response is joined from the encoded bytes of its topics, which are cached until they change (`topic_responses`).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.controller.auto_topic_creation import AutoCreatedTopic, TopicCreator
from odradek.broker.metadata.cache import NO_LEADER, MetadataCache, TopicMetadata
from odradek.broker.metadata.state.topics import can_be_made, is_internal, why_missing
from odradek.broker.metadata.topic_responses import TopicAnswers
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_turn, keep, later
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.encoded import EncodedArray, EncodedElement
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

NO_TOPIC_ID = bytes(16)
TopicAnswer = m.MetadataResponse.MetadataResponseTopic
AUTHORIZED_OPERATIONS_UNKNOWN = -(2**31)
MADE_OR_UNKNOWN = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
"""Outcomes of a creation after which a topic may exist, although this broker's metadata do not contain it."""


PARTITIONS_AT_ONCE = 1000
"""Partitions that are encoded without an interruption: some milliseconds."""
TOPICS_AT_ONCE = 1000
"""Topics whose bytes, which are cached, are joined without an interruption: a millisecond for each of a crowd."""
ELEMENTS_AT_ONCE = 10_000
"""Encoded topics that are added to a response without an interruption: a millisecond."""
MOST_KEPT = 500
"""Whole responses of one topic that are kept, by topic, version and listener."""
FEW_PARTITIONS = 16
"""A topic with more is encoded from its kept bytes each time: such a request is rarer, and the response larger."""
_Topics = list[TopicMetadata | m.MetadataResponse.MetadataResponseTopic]


class _Kept(NamedTuple):
    """A response, valid while these are the topic, the live brokers and the controller."""

    topic: TopicMetadata
    live: object
    controller_id: int
    response: m.MetadataResponse


class Metadata:
    """Handles Metadata."""

    KEY = 3
    VERSIONS = (0, 13)

    def __init__(
        self,
        metadata_cache: MetadataCache,
        creator: TopicCreator,
        auto_create: Callable[[], bool],
        new_topic: Callable[[str], AutoCreatedTopic],
        answers: TopicAnswers,
        auth: AuthHelper,
        quotas: QuotaManagers,
        reply_in_turns: Callable[[Call, Callable[[], m.MetadataResponse]], None],
    ) -> None:
        """`new_topic` returns the creation parameters for a topic name; `answers` caches encoded topics;
        `reply_in_turns` makes a response in turns with the loop, and sends it.
        """
        self._metadata_cache = metadata_cache
        self._creator = creator
        self._auto_create = auto_create
        self._new_topic = new_topic
        self._answers = answers
        self._auth = auth
        self._quotas = quotas
        self._reply_in_turns = reply_in_turns
        self._kept: dict[tuple[str | None, int, str], _Kept] = {}

    def handle(self, call: Call, request: m.MetadataRequest) -> m.MetadataResponse | None:
        topics = request.topics
        if (kept := self._find_kept(call, request)) is not None:
            return kept
        if topics is None or (call.version == 0 and not topics):
            return self._response(call, request, self._all_topics(call))
        if call.version >= 10 and any(each.name is None and each.topic_id == NO_TOPIC_ID for each in topics):
            return _neither(topics, ErrorCode.INVALID_REQUEST if call.version < 12 else ErrorCode.UNKNOWN_SERVER_ERROR)
        if 10 <= call.version < 12 and any(each.name is None or each.topic_id != NO_TOPIC_ID for each in topics):
            code = ErrorCode.INVALID_REQUEST  # these versions have ids, but do not support requests by id
            answers = [TopicAnswer(name=each.name or "", topic_id=each.topic_id, error_code=code) for each in topics]
            return m.MetadataResponse(topics=answers)
        missing = self._missing(call, request)
        refused = self._not_creatable(call, missing)
        wanted = [name for name in items_of(missing) if name not in refused and can_be_made(name)]
        if wanted:
            once = keep(dict.fromkeys(items_of(wanted)))
            new = [name for name in items_of(once) if not self._creator.is_creating(name)]

            def created(outcomes: Mapping[str, ErrorCode]) -> None:
                self._charge(call, [name for name in items_of(new) if outcomes.get(name) is ErrorCode.NONE])
                self._reply(
                    call, self._answer(call, request, ChainMap(dict(outcomes), refused) if refused else outcomes)
                )

            self._creator.create(keep([self._new_topic(name) for name in items_of(once)]), later(created))
            return None
        return self._answer(call, request, refused)

    def _charge(self, call: Call, made: list[str]) -> None:
        """Charge the partitions of topics that were created for a client to its quota (KIP-599). The client is not
        throttled for them, and topics are not rejected, as in Kafka: its later CreateTopics requests are.
        """
        quota = self._quotas.permissive_mutations(call)
        for name in items_of(made):
            topic = self._metadata_cache.topics.get(name)
            quota.record(len(topic.partitions) if topic is not None else 1)

    def _all_topics(self, call: Call) -> list[TopicMetadata | m.MetadataResponse.MetadataResponseTopic]:
        """The topics that the client may describe."""
        topics = self._metadata_cache.topics
        if not self._auth.is_enabled:
            return list(topics.values())
        described = self._auth.filter_by_authorized(
            call, AclOperation.DESCRIBE, ResourceType.TOPIC, topics, log_if_denied=False
        )
        return [topic for name, topic in topics.items() if name in described]

    def _missing(self, call: Call, request: m.MetadataRequest) -> list[str]:
        """The names without a topic, if the request and the broker allow to create topics."""
        if not self._metadata_cache.is_initialized or not self._auto_create():
            return []
        if call.version >= 4 and not request.allow_auto_topic_creation:
            return []
        known = self._metadata_cache.topics
        return [
            topic.name
            for topic in request.topics or ()
            if topic.name is not None
            and topic.name not in known
            and self._may_describe(call, topic.name, is_logged=False)
        ]

    def _may_describe(self, call: Call, name: str, *, is_logged: bool = True) -> bool:
        return self._auth.authorize(
            call,
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            name,
            log_if_allowed=is_logged,
            log_if_denied=is_logged,
        )

    def _not_creatable(self, call: Call, names: list[str]) -> dict[str, ErrorCode]:
        """The error of each topic that the client may not create."""
        if not names or self._auth.authorize_cluster(call, AclOperation.CREATE, log_if_denied=False):
            return {}
        creatable = self._auth.filter_by_authorized(call, AclOperation.CREATE, ResourceType.TOPIC, names)
        return {name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for name in items_of(names) if name not in creatable}

    def _answer(
        self, call: Call, request: m.MetadataRequest, outcomes: Mapping[str, ErrorCode]
    ) -> m.MetadataResponse | None:
        """The response to a request by name or id; `outcomes` are those of the topics that had to be created."""
        answers: list[TopicMetadata | m.MetadataResponse.MetadataResponseTopic] = []
        named: set[str] = keep(set())
        for wanted in request.topics or ():
            name = wanted.name
            if name is None or (call.version >= 10 and wanted.topic_id != NO_TOPIC_ID):
                name = self._metadata_cache.name_of(wanted.topic_id)
                if name is None:
                    answers.append(
                        TopicAnswer(name=None, topic_id=wanted.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                    )
                    continue
            if name in named:
                continue
            named.add(name)
            if not self._may_describe(call, name):
                answers.append(_not_described(wanted))
                continue
            topic = self._metadata_cache.topics.get(name)
            if topic is not None:
                answers.append(topic)
                continue
            code = why_missing(name, is_initialized=self._metadata_cache.is_initialized)
            if (outcome := outcomes.get(name)) is not None:
                code = ErrorCode.LEADER_NOT_AVAILABLE if outcome in MADE_OR_UNKNOWN else outcome
            unknown = TopicAnswer(name=name, error_code=code, is_internal=is_internal(name))
            if request.include_topic_authorized_operations and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unknown.topic_authorized_operations = self._operations(call, ResourceType.TOPIC, name)
            answers.append(unknown)
        return self._response(call, request, answers)

    @staticmethod
    def _reply(call: Call, response: m.MetadataResponse | None) -> None:
        if response is not None:
            call.reply(response)

    def _response(self, call: Call, request: m.MetadataRequest, topics: _Topics) -> m.MetadataResponse | None:
        """The response with known topics, and with the entries for unknown ones.

        Where there are thousands of topics, or partitions to encode, it is made and sent in turns with the loop: None.
        """
        if not in_turn():
            reachable = frozenset(broker.broker_id for broker, _ in self._metadata_cache.live_brokers(call.listener))
            known = (topic for topic in topics if isinstance(topic, TopicMetadata))
            form = _form(call, AUTHORIZED_OPERATIONS_UNKNOWN)
            if (
                len(topics) > TOPICS_AT_ONCE
                or (
                    request.include_topic_authorized_operations
                    and sum(len(topic.partitions) for topic in known) > PARTITIONS_AT_ONCE
                )
                or self._answers.partitions_to_encode(known, form, reachable) > PARTITIONS_AT_ONCE
            ):
                self._reply_in_turns(call, lambda: self._make_response(call, request, topics))
                return None
        response = self._make_response(call, request, topics)
        if self._is_kept(request) and isinstance(topics[0], TopicMetadata):
            self._keep(call, topics[0], response)
        return response

    # ---- requests of one topic, whose response is kept while nothing changes

    def _is_kept(self, request: m.MetadataRequest) -> bool:
        """Whether the response is the same for every client: one topic by name, without authorization and quotas."""
        topics = request.topics
        return (
            topics is not None
            and len(topics) == 1
            and topics[0].topic_id == NO_TOPIC_ID
            and not (request.include_cluster_authorized_operations or request.include_topic_authorized_operations)
            and not (self._auth.is_enabled or self._quotas.is_active)
        )

    def _find_kept(self, call: Call, request: m.MetadataRequest) -> m.MetadataResponse | None:
        if not self._is_kept(request):
            return None
        cache, name, listener = self._metadata_cache, request.topics[0].name, call.listener  # type: ignore[index]
        kept = self._kept.get((name, call.version, listener))
        if kept is None or kept.topic is not cache.topics.get(kept.topic.name):
            return None
        is_valid = kept.live is cache.live_brokers(listener) and kept.controller_id == cache.controller_id
        return kept.response if is_valid else None

    def _keep(self, call: Call, topic: TopicMetadata, response: m.MetadataResponse) -> None:
        if len(topic.partitions) > FEW_PARTITIONS:
            return
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        live = self._metadata_cache.live_brokers(call.listener)
        kept = _Kept(topic, live, self._metadata_cache.controller_id, response)
        self._kept[topic.name, call.version, call.listener] = kept

    def _make_response(self, call: Call, request: m.MetadataRequest, topics: _Topics) -> m.MetadataResponse:
        metadata_cache, version = self._metadata_cache, call.version
        live = metadata_cache.live_brokers(call.listener)
        reachable = frozenset(broker.broker_id for broker, _ in live)
        known = [topic for topic in items_of(topics) if isinstance(topic, TopicMetadata)]
        if request.include_topic_authorized_operations:
            elements = self._with_operations(call, known, reachable)
        else:
            elements = self._elements(call, known, reachable, AUTHORIZED_OPERATIONS_UNKNOWN)
        if len(known) < len(topics):
            elements = list(_in_order(topics, elements, version))
        brokers = [
            m.MetadataResponse.MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in live
        ]
        return m.MetadataResponse(
            brokers=brokers,
            cluster_id=metadata_cache.cluster_id,
            controller_id=metadata_cache.controller_id,
            topics=_joined(keep(elements), version),
            cluster_authorized_operations=self._cluster_operations(call, request),
        )

    def _elements(
        self, call: Call, topics: list[TopicMetadata], reachable: frozenset[int], operations: int
    ) -> list[EncodedElement]:
        """The encoded topics; the client may perform the same operations on all of them."""

        def encoded(topic: TopicMetadata) -> EncodedElement:
            described = _describe(topic, reachable, operations)
            return described.encoded_sliced(call.version, items_of) if in_turn() else described.encoded(call.version)

        return self._answers.of(topics, _form(call, operations), reachable, encoded)

    def _with_operations(
        self, call: Call, topics: list[TopicMetadata], reachable: frozenset[int]
    ) -> list[EncodedElement]:
        """The encoded topics, each with the operations that the client may perform on it."""
        groups: dict[int, list[TopicMetadata]] = {}
        for topic in items_of(topics):
            groups.setdefault(self._operations(call, ResourceType.TOPIC, topic.name), []).append(topic)
        found: dict[str, EncodedElement] = {}
        for operations, group in groups.items():
            elements = self._elements(call, group, reachable, operations)
            found.update(zip((topic.name for topic in group), elements, strict=True))
        return [found[topic.name] for topic in topics]

    def _operations(self, call: Call, resource_type: ResourceType, name: str) -> int:
        return self._auth.authorized_operations(call, resource_type, name)

    def _cluster_operations(self, call: Call, request: m.MetadataRequest) -> int:
        """The operations that the client may perform on the cluster; none if it may not describe the cluster."""
        if not request.include_cluster_authorized_operations:
            return AUTHORIZED_OPERATIONS_UNKNOWN
        if not self._auth.authorize_cluster(call, AclOperation.DESCRIBE):
            return 0
        return self._operations(call, ResourceType.CLUSTER, CLUSTER_NAME)


def _form(call: Call, operations: int) -> tuple[int, int, str]:
    """What the bytes of a topic depend on, beside the topic."""
    return call.version, operations, call.listener


def _describe(
    topic: TopicMetadata, reachable: frozenset[int], operations: int
) -> m.MetadataResponse.MetadataResponseTopic:
    """A topic for clients that can reach these brokers."""
    partitions = []
    for partition in items_of(topic.partitions):
        answer = m.MetadataResponse.MetadataResponsePartition(
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(partition.offline),
        )
        if partition.leader not in reachable:
            answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            answer.leader_id = NO_LEADER
        partitions.append(answer)
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _joined(elements: list[EncodedElement], version: int) -> EncodedArray:
    """The array of these elements."""
    joined = EncodedArray((), version)
    for first in items_of(range(0, len(elements), ELEMENTS_AT_ONCE)):
        joined.add(elements[first : first + ELEMENTS_AT_ONCE])
    return joined


def _in_order(
    topics: Iterable[TopicMetadata | m.MetadataResponse.MetadataResponseTopic],
    known: Iterable[EncodedElement],
    version: int,
) -> Iterator[EncodedElement]:
    """The elements of all topics, in order: the next of `known` for each known topic, the others as they are."""
    rest = iter(known)
    for topic in items_of(topics):
        if isinstance(topic, TopicMetadata):
            yield next(rest)
        else:
            yield topic.encoded(version)


def _not_described(wanted: m.MetadataRequest.MetadataRequestTopic) -> m.MetadataResponse.MetadataResponseTopic:
    """A topic that the client may not describe: with the name or the id that the request has, never with both."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if wanted.topic_id != NO_TOPIC_ID:
        return TopicAnswer(name=None, topic_id=wanted.topic_id, error_code=code)
    return TopicAnswer(name=wanted.name, error_code=code)


def _neither(topics: list[m.MetadataRequest.MetadataRequestTopic], code: ErrorCode) -> m.MetadataResponse:
    """The response of Kafka to an entry without name and id: an error for every topic of the request."""
    return m.MetadataResponse(
        cluster_id=None,
        topics=[TopicAnswer(name=each.name or "", error_code=code) for each in topics],
    )
