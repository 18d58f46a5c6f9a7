"""Policies for new topics and changed configurations (KIP-108, KIP-133; Kafka: CreateTopicPolicy, AlterConfigPolicy).

`create.topic.policy.class.name` and `alter.config.policy.class.name` contain the name of an entry point of an installed
Python package, in the group `odradek.policies` (`plugins`). The broker creates one object of its class at its start,
calls its `configure`, if it has one, with the content of server.properties, and then `validate` before each change; a
`PolicyViolationError` that it raises refuses the change with POLICY_VIOLATION and its message.

    class FewPartitions:
        def validate(self, topic: NewTopicRequest) -> None:
            if (topic.partitions or 0) > 100:
                raise PolicyViolationError("no more than 100 partitions")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.plugins import load_plugin
from odradek.broker.config.types import ConfigError
from odradek.protocol.errors import ErrorCode, KafkaError

CREATE_TOPIC: Final = "create.topic.policy.class.name"
ALTER_CONFIG: Final = "alter.config.policy.class.name"
ENTRY_POINTS: Final = "odradek.policies"


class PolicyViolationError(KafkaError):
    """A request that a policy refuses."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, message)


class NewTopicRequest(NamedTuple):
    """A topic to be created. Either both numbers are set, or the replicas of each partition."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


class AlterConfigRequest(NamedTuple):
    """The new properties of a topic (`resource_type` 2) or a broker (4); a name of "" means all brokers."""

    resource_type: int
    resource_name: str
    configs: Mapping[str, str]


def load_policy(config: BrokerConfig, name: str) -> Callable[[Any], object]:
    """The validation function of the policy that a property contains; without one, it accepts every request.

    Raises ConfigError for a policy that is not installed: a broker must not run without its configured policy.
    """
    selected = config[name]
    if selected is None:
        return lambda request: None
    validate = getattr(load_plugin(ENTRY_POINTS, name, selected, config.static), "validate", None)
    if validate is None:
        raise ConfigError(f"Invalid value {selected} for configuration {name}: a policy needs a method validate")
    judge: Callable[[Any], object] = validate
    return judge
