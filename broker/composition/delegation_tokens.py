"""Delegation tokens of a broker: the manager, its thread and the check for expired tokens (Kafka: KafkaServer,
KafkaController).
"""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.broker.composition.context import BrokerContext
from odradek.broker.controller.controller import Controller
from odradek.broker.replication.partition import Worker
from odradek.broker.runtime.scheduler import Periodic, ThreadWorker
from odradek.broker.security.delegation_token_manager import DelegationTokenManager

INTERVAL: Final = "delegation.token.expiry.check.interval.ms"


def delegation_token_manager(context: BrokerContext, controller: Controller) -> DelegationTokenManager:
    """The manager. The controller removes expired tokens, at its election and at intervals."""
    session = context.session
    manager = DelegationTokenManager(
        context.config,
        context.security.tokens,
        lambda: session.registry,
        context.environment.random,
        _worker(context).run,
        context.request_tasks,
        context.clock,
    )
    if manager.is_enabled:
        _schedule(context, controller, manager)
    return manager


def _schedule(context: BrokerContext, controller: Controller, manager: DelegationTokenManager) -> None:
    was_controller = False

    def check() -> None:
        if controller.is_active:
            context.request_tasks.run(manager.remove_expired())

    def metadata_changed() -> None:
        nonlocal was_controller
        if controller.is_active and not was_controller:
            check()
        was_controller = controller.is_active

    periodic = Periodic(context.clock, context.timers)
    context.undo.callback(periodic.close)
    periodic.every(INTERVAL, lambda: int(context.config[INTERVAL]), check)
    context.metadata_cache.watch(metadata_changed)  # a new controller sends the metadata to all brokers


def _worker(context: BrokerContext) -> Worker:
    """Hashes the secrets of tokens. Its thread starts with the first token."""
    if context.environment.worker is not None:
        return context.environment.worker
    worker = ThreadWorker(asyncio.get_running_loop(), threads=1)
    context.undo.push_async_callback(worker.close)
    return worker
