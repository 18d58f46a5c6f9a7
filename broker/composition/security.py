"""Security of a broker: its authorizer, its SASL mechanisms and its delegation tokens."""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.composition.authorization import Authorization, authorization
from odradek.broker.composition.environment import Environment
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.changes import read_users
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.metrics.refusals import RateLimitedReport
from odradek.broker.registry.znodes import Endpoint
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Timers
from odradek.broker.security.channel_builder import ChannelBuilder
from odradek.broker.security.jaas_file import JaasFile
from odradek.broker.security.sasl_credentials import UNKNOWN_USERS_SECRET_BYTES, CredentialCache
from odradek.broker.security.sasl_dependencies import SaslDependencies
from odradek.broker.security.state.delegation_tokens import DelegationTokenCache
from odradek.protocol.net import FrameHandler


class BrokerSecurity(NamedTuple):
    """The parts of one broker that decide who may do what."""

    authorization: Authorization
    sasl: SaslDependencies
    tokens: DelegationTokenCache

    def channel_builder(self, on_frame: FrameHandler, config: BrokerConfig, endpoint: Endpoint) -> ChannelBuilder:
        """The security of one listener. Raises ConfigError."""
        return ChannelBuilder(config, endpoint, on_frame=on_frame, sasl=self.sasl)


async def security(
    config: BrokerConfig,
    environment: Environment,
    timers: Timers,
    session: RegistrySession,
    request_tasks: RequestTasks,
) -> BrokerSecurity:
    """The security that `config` asks for, with the SCRAM credentials of all users.

    Raises ConfigError, RegistryError.
    """
    clock = environment.clock
    credentials = CredentialCache(environment.random.randbytes(UNKNOWN_USERS_SECRET_BYTES))
    tokens = DelegationTokenCache()
    credentials.replace(await read_users(session.registry))
    return BrokerSecurity(
        authorization(config, session, request_tasks, clock),
        SaslDependencies(
            clock,
            timers,
            environment.random,
            credentials,
            tokens,
            RateLimitedReport(clock),
            JaasFile(environment.kafka_opts),
        ),
        tokens,
    )
