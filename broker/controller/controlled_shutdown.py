"""Controlled shutdown: a broker that is about to stop requests that the controller moves leadership away first.

Clients then receive the new leaders while the old leader still responds, and need not detect that it is gone. If the
controller is unreachable or cannot move every partition, the stop is delayed but not prevented
(`controlled.shutdown.max.retries`, `controlled.shutdown.retry.backoff.ms`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.network.controller_channel import SendToController
from odradek.broker.network.inter_broker_connection import PeerLostError
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


async def request_controlled_shutdown(config: BrokerConfig, broker_epoch: int, ask: SendToController) -> None:
    """Have the controller move leadership elsewhere before this broker stops (KIP-143's controlled shutdown)."""
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
            log.info("controlled shutdown request failed error=%s", error)
            continue
        if not response.error_code and not response.remaining_partitions:
            return
        left = len(response.remaining_partitions)
        log.info(
            "controlled shutdown incomplete remaining_partitions=%d error=%s",
            left,
            ErrorCode(response.error_code).name,
        )
    log.warning("controlled shutdown did not move all leaders, other brokers detect the stop by the expired session")


def _resolver(answer: asyncio.Future[Any]) -> Callable[[Any], None]:
    return lambda response: None if answer.done() else answer.set_result(response)


def _failer(answer: asyncio.Future[Any]) -> Callable[[PeerLostError], None]:
    return lambda error: None if answer.done() else answer.set_exception(error)
