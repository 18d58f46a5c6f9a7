"""A broker that is about to stop asks the controller to move leadership away first (controlled shutdown).

Clients then learn of the new leaders while the old one still answers, in place of finding out that it is gone. A
controller that cannot be asked, or cannot move everything, delays the stop but does not prevent it
(`controlled.shutdown.max.retries`, `controlled.shutdown.retry.backoff.ms`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.network.controller_channel import Ask
from odradek.broker.network.inter_broker_connection import PeerLostError
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


async def hand_over(config: BrokerConfig, broker_epoch: int, ask: Ask) -> None:
    """Ask the controller to move leadership elsewhere before this broker stops (KIP-143's controlled shutdown)."""
    if not config["controlled.shutdown.enable"]:
        return
    request = m.ControlledShutdownRequest(broker_id=config.broker_id, broker_epoch=broker_epoch)
    for attempt in range(int(config["controlled.shutdown.max.retries"])):
        if attempt:
            await asyncio.sleep(int(config["controlled.shutdown.retry.backoff.ms"]) / 1000)
        answer: asyncio.Future[m.ControlledShutdownResponse] = asyncio.get_running_loop().create_future()
        ask(request, _resolver(answer), _failer(answer))
        try:
            response = await answer
        except PeerLostError as error:
            log.info("the controller could not be asked for a controlled shutdown: %s", error)
            continue
        if not response.error_code and not response.remaining_partitions:
            return
        left = len(response.remaining_partitions)
        log.info("%d partitions are still led here: %s", left, ErrorCode(response.error_code).name)
    log.warning("leadership could not be handed over; the cluster will notice that this broker is gone")


def _resolver(answer: asyncio.Future[Any]) -> Callable[[Any], None]:
    return lambda response: None if answer.done() else answer.set_result(response)


def _failer(answer: asyncio.Future[Any]) -> Callable[[PeerLostError], None]:
    return lambda error: None if answer.done() else answer.set_exception(error)
