"""Producer ids for idempotent producers, in blocks from the controller (KIP-730; Kafka: RPCProducerIdManager).

No two producers of a cluster share an id: a block belongs to one broker. While the allocation of a new block is
pending, requests wait for it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from odradek.broker.network.controller_channel import BrokerIdentity, SendToController
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

OnProducerId = Callable[[int, ErrorCode], None]


class ProducerIds:
    """The producer ids that this broker may assign."""

    def __init__(self, identity: BrokerIdentity, send_request: SendToController) -> None:
        """`send_request` sends a request to the controller."""
        self._identity = identity
        self._send_request = send_request
        self._block = range(0)
        self._waiting: deque[OnProducerId] = deque()

    def take(self, done: OnProducerId) -> None:
        """Call `done` with an unused id, or with a retriable error; perhaps before this returns."""
        if self._block:
            done(self._next(), ErrorCode.NONE)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._request()

    def _request(self) -> None:
        request = m.AllocateProducerIdsRequest(
            broker_id=self._identity.broker_id, broker_epoch=self._identity.broker_epoch
        )
        self._send_request(request, self._allocated, lambda error: self._refused(str(error)))

    def _next(self) -> int:
        first = self._block[0]
        self._block = self._block[1:]
        return first

    def _allocated(self, response: m.AllocateProducerIdsResponse) -> None:
        if response.error_code:
            self._refused(ErrorCode(response.error_code).name)
            return
        start = response.producer_id_start
        self._block = range(start, start + response.producer_id_len)
        while self._waiting and self._block:
            self._waiting.popleft()(self._next(), ErrorCode.NONE)
        if self._waiting:
            self._request()

    def _refused(self, why: str) -> None:
        log.info("cannot allocate producer ids error=%s", why)
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
