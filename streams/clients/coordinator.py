"""Coordinator of a group or of a transactional id: found, and found again after it has moved (Kafka: the coordinator of
TransactionManager).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.streams.clients.network import REQUESTS, Channel, ClientNetwork

GROUP: Final = 0
TRANSACTION: Final = 1
"""The key types of FindCoordinator."""
ONE_KEY: Final = 3
"""The highest version of FindCoordinator with a single key."""
AGAIN_S: Final = 0.1
SOON_S: Final = 0.01
"""The pause before a request again that waits for the end of the previous transaction."""
UNREACHABLE_S: Final = 1.0
"""After so long without a connection the coordinator is looked up again."""
MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
PENDING: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS})
RETRIED: Final = MOVED | PENDING | {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors after which a request is repeated."""


class Coordinator:
    """The coordinator of one key, as the network's thread finds it."""

    def __init__(self, network: ClientNetwork, key: str, key_type: int) -> None:
        self._network = network
        self._key, self._key_type = key, key_type
        self._node: int | None = None
        self._looking = False
        self._again_s = 0.0
        self._missing_since_s: float | None = None
        self.failure = 0
        """The error code of the last lookup, where a repetition does not help; 0 for none."""

    def channel(self) -> Channel | None:
        """The open channel to the coordinator; None while it is looked up or connected."""
        now = time.monotonic()
        if self._node is None:
            self._look_up(now)
            return None
        channel = (self._node, REQUESTS)
        if self._network.ready(channel):
            self._missing_since_s = None
            return channel
        self._missing_since_s = self._missing_since_s or now
        if now - self._missing_since_s > UNREACHABLE_S:
            self.forget()
        return None

    def forget(self) -> None:
        """Look the coordinator up again: it has moved or is unavailable."""
        self._node = self._missing_since_s = None

    def judge(self, code: int) -> float | None:
        """After how many seconds a request with this error code is repeated; None where it is not."""
        if code not in RETRIED:
            return None
        if code in MOVED:
            self.forget()
        return SOON_S if code == ErrorCode.CONCURRENT_TRANSACTIONS else AGAIN_S

    def _look_up(self, now: float) -> None:
        channel = (self._network.any_node(), REQUESTS)
        if self._looking or now < self._again_s or not self._network.ready(channel):
            return
        self._looking = True
        request = m.FindCoordinatorRequest(key=self._key, key_type=self._key_type)
        self._network.send(channel, request, self._found, highest=ONE_KEY)

    def _found(self, response: m.FindCoordinatorResponse, error: Exception | None) -> None:
        self._looking = False
        self._again_s = time.monotonic() + AGAIN_S
        if error is not None:
            return
        if response.error_code:
            self.failure = 0 if response.error_code in RETRIED else response.error_code
            return
        self.failure = 0
        self._network.add_node(response.node_id, (response.host, response.port))
        self._node = response.node_id


def ask(
    network: ClientNetwork,
    coordinator: Coordinator,
    request: Any,
    code_of: Callable[[Any], int],
    deadline: float,
    *,
    highest: int | None = None,
    step: Callable[[], None] = lambda: None,
) -> tuple[Any, int]:
    """The response of a coordinator and its error code, after repetitions; (None, REQUEST_TIMED_OUT) after the
    deadline, a time of the monotonic clock. `step` is called while it waits. Raises UnsupportedRequestError.
    """
    answers: list[tuple[Any, Exception | None]] = []
    waiting, again_s = False, 0.0
    while (now := time.monotonic()) < deadline:
        if answers:
            waiting = False
            response, error = answers.pop()
            code = ErrorCode.REQUEST_TIMED_OUT if error is not None else code_of(response)
            pause_s = coordinator.judge(code)
            if pause_s is None:
                return response, code
            if error is not None:
                coordinator.forget()
            again_s = now + pause_s
        channel = coordinator.channel() if not waiting and now >= again_s else None
        if coordinator.failure:
            return None, coordinator.failure
        if network.login_failure is not None:
            return None, ErrorCode.SASL_AUTHENTICATION_FAILED
        if channel is not None:
            waiting = True
            network.send(channel, request, lambda *answer: answers.append(answer), highest=highest)
        step()
        network.poll(max(0.0, min(deadline - now, SOON_S if not waiting else AGAIN_S)))
    return None, ErrorCode.REQUEST_TIMED_OUT
