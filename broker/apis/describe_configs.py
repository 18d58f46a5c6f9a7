"""DescribeConfigs (key 32), versions 0 to 4: the properties of a topic or a broker, and their sources.

Version 1 adds sources and synonyms (KIP-226), 3 types and documentation (KIP-569).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.loggers import describe_loggers
from odradek.broker.config.topic_config import describe_topic
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.config.types import ConfigEntry, Type, whole_number
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.topics import name_problem
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

TOPIC: Final = 2
BROKER: Final = 4
LOGGER: Final = 8
CLIENT_METRICS: Final = 16
AT_ONCE: Final = 8
"""Resources after which the loop serves others: each takes up to a millisecond."""
RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""The limit for a response, which has some hundred times the size of its request if that repeats one name."""
ENTRY_BYTES: Final = 16
"""What an entry takes beside its strings."""
Result = m.DescribeConfigsResponse.DescribeConfigsResult
ResourceResult = m.DescribeConfigsResponse.DescribeConfigsResourceResult


class DescribeConfigs:
    """Handles DescribeConfigs."""

    KEY = 32
    VERSIONS = (0, 4)

    def __init__(
        self,
        config: BrokerConfig,
        metadata_cache: MetadataCache,
        topics: TopicConfigs,
        request_tasks: RequestTasks,
        auth: AuthHelper,
    ) -> None:
        self._auth = auth
        self._config = config
        self._metadata_cache = metadata_cache
        self._topics = topics
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.DescribeConfigsRequest) -> None:
        self._request_tasks.run(self._answer(call, request), call.connection.close)

    async def _answer(self, call: Call, request: m.DescribeConfigsRequest) -> None:
        # A resource that the request repeats is described once; its results are one object.
        found: dict[tuple[int, str, tuple[str, ...] | None], tuple[Result, int]] = {}
        results: list[Result] = []
        size = 0
        for each in request.resources:
            keys = each.configuration_keys
            key = each.resource_type, each.resource_name, None if keys is None else tuple(keys)
            if key not in found:
                result = await self._describe(call, request, each)
                found[key] = result, _size(result)
                if len(found) % AT_ONCE == 0:
                    await asyncio.sleep(0)
            result, bytes_ = found[key]
            size += bytes_
            if size > RESPONSE_BYTES:
                text = (
                    f"the response to DescribeConfigs of {len(results) + 1} resources takes over {RESPONSE_BYTES} bytes"
                )
                call.connection.refuse("large response", text)
                return
            results.append(result)
        call.reply(m.DescribeConfigsResponse(results=results))

    async def _describe(
        self, call: Call, request: m.DescribeConfigsRequest, resource: m.DescribeConfigsRequest.DescribeConfigsResource
    ) -> m.DescribeConfigsResponse.DescribeConfigsResult:
        result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            self._require_right(call, resource.resource_type, resource.resource_name)
            entries = await self._entries(resource.resource_type, resource.resource_name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return result
        wanted = set(resource.configuration_keys or ())
        result.configs = [
            _entry(entry, call.version, request) for entry in entries if not wanted or entry.name in wanted
        ]
        return result

    def _require_right(self, call: Call, kind: int, name: str) -> None:
        """Raises KafkaError with the code of a resource that the client may not describe."""
        operation = AclOperation.DESCRIBE_CONFIGS
        if kind == TOPIC:
            if not self._auth.authorize(call, operation, ResourceType.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        elif kind in (BROKER, LOGGER, CLIENT_METRICS):
            self._auth.require_cluster(call, operation)

    async def _entries(self, kind: int, name: str) -> list[ConfigEntry]:
        if kind == TOPIC:
            problem = name_problem(name)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in self._metadata_cache.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")  # no message, like Kafka
            return describe_topic(self._config, await self._topics.read(name))
        if kind == BROKER:
            if not name:
                return self._config.describe_cluster_default()
            self._require_own(name, " or empty string,")
            return self._config.describe_broker()
        if kind == LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            self._require_own(name, "")
            return describe_loggers()
        if kind == CLIENT_METRICS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "client metrics have a configuration in KRaft clusters only")
        # Groups have a configuration since Kafka 4, which has no ZooKeeper.
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no configuration here")

    def _require_own(self, name: str, also: str) -> None:
        """Raises KafkaError with INVALID_REQUEST unless `name` is this broker's id."""
        number = whole_number(Type.INT, name)
        if number is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if number != self._config.broker_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._config.broker_id}{also} but received {number}",
            )


def _entry(
    entry: ConfigEntry, version: int, request: m.DescribeConfigsRequest
) -> m.DescribeConfigsResponse.DescribeConfigsResourceResult:
    result = ResourceResult(name=entry.name, value=entry.value, read_only=entry.read_only, is_sensitive=entry.sensitive)
    if version == 0:
        return result  # without `is_default`: Kafka has sent false for everything there since 2.6
    result.config_source = entry.source
    if request.include_synonyms:
        result.synonyms = [
            m.DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in entry.synonyms
        ]
    if version >= 3:
        result.config_type = entry.type
        documented = request.include_documentation or not entry.documentation
        result.documentation = entry.documentation if documented else None
    return result


def _size(result: Result) -> int:
    """About how many bytes a result takes in a response."""
    size = len(result.resource_name) + len(result.error_message or "") + ENTRY_BYTES
    for entry in result.configs:
        size += len(entry.name) + len(entry.value or "") + len(entry.documentation or "") + ENTRY_BYTES
        for synonym in entry.synonyms:
            size += len(synonym.name) + len(synonym.value or "") + ENTRY_BYTES
    return size
