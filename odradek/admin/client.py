"""The client: which broker gets a request, and which errors are retried (Kafka: KafkaAdminClient, its Call).

A request goes to any broker, to the controller, to the leader of partitions or to a coordinator. An error that only
means "not here" or "not now" is retried after a backoff until the timeout, against fresh metadata.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from odradek.protocol import messages as m
from odradek.protocol.client.connection import SETUP_TIMEOUT_S, Address, BrokerConnection, code_of, shown
from odradek.protocol.client.errors import ClientError
from odradek.protocol.client.security import PLAINTEXT, ConnectionSecurity
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

K = TypeVar("K")
T = TypeVar("T")

TIMEOUT_S: Final = 30.0
FIRST_BACKOFF_S: Final = 0.1
"""retry.backoff.ms of Kafka's clients; it doubles up to the next."""
LONGEST_BACKOFF_S: Final = 1.0
GROUP: Final = 0
TRANSACTION: Final = 1
"""Key types of FindCoordinator."""
MANY_KEYS: Final = 4
"""The first version of FindCoordinator with several keys (KIP-699)."""

RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors after which the same request can succeed. A topic that does not exist is none of them, as for Kafka's
AdminClient, although producers and consumers retry it."""


class NoBrokerError(ConnectionError):
    """No broker of the list answers."""


class AdminClient:
    """A client of one cluster, for one thread.

    Calls raise OSError (NoBrokerError, TimeoutError among them), ClientError, ProtocolError, and KafkaError where an
    error is about the whole request.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: ConnectionSecurity = PLAINTEXT,
        *,
        client_id: str = "odradek",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Connects at the first request. `timeout_s` bounds each request, and all retries of a call together."""
        self._bootstrap = list(bootstrap)
        self._security = security
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._connections: dict[Address, BrokerConnection] = {}
        self._nodes: dict[int, Address] = {}
        self._controller_id = -1
        self._coordinators: dict[tuple[int, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- retries

    def call(self, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, which is repeated after a KafkaError of `RETRIED` and after an OSError."""
        results: list[T] = []

        def once(items: list[None]) -> dict[None, None]:
            results.append(attempt())
            return {None: None}

        self.each([None], once)
        return results[-1]

    def each(
        self, items: Iterable[K], attempt: Callable[[list[K]], Mapping[K, T | KafkaError]]
    ) -> dict[K, T | KafkaError]:
        """The result of each item. `attempt` gets all items; then again those whose error is to be retried, and those
        for which it has no result.

        An error that `attempt` raises is that of all of its items. Raises it when it is not retried or the time is up.
        """
        results: dict[K, T | KafkaError] = {}
        pending = list(dict.fromkeys(items))
        deadline_s, backoff_s = time.monotonic() + self.timeout_s, FIRST_BACKOFF_S
        while pending:
            failure: OSError | KafkaError | None = None
            try:
                results |= attempt(pending)
            except OSError as error:
                failure = error
            except KafkaError as error:
                if error.code not in RETRIED:
                    raise
                failure = error
            pending = [item for item in pending if _is_open(results.get(item, _NO_RESULT))]
            if pending and (time.monotonic() + backoff_s > deadline_s or isinstance(failure, NoBrokerError)):
                if failure is not None:
                    raise failure
                break
            if pending:
                self.forget()
                time.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
        for item in pending:
            results.setdefault(item, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no broker returned a result in time"))
        return results

    def forget(self) -> None:
        """Find the controller, leaders and coordinators again."""
        self._nodes.clear()
        self._coordinators.clear()
        self._controller_id = -1

    # ---- who gets a request

    def any_broker(self, request: Any, highest: int | None = None) -> Any:
        """The response of any broker. `highest` bounds the version of the request."""
        return self._ask(self._any_address(), request, highest)

    def controller(self, request: Any, highest: int | None = None) -> Any:
        """The response of the controller; with KRaft, of a broker that forwards the request to it."""
        if self._controller_id not in self._nodes:
            self.metadata([])
        if self._controller_id not in self._nodes:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller")
        return self._ask(self._nodes[self._controller_id], request, highest)

    def broker(self, broker_id: int, request: Any, highest: int | None = None) -> Any:
        """The response of one broker. Raises KafkaError BROKER_NOT_AVAILABLE where the cluster does not have it."""
        return self._ask(self.address_of(broker_id), request, highest)

    def brokers(self, requests: Mapping[int, Any], highest: int | None = None) -> dict[int, Any]:
        """The response of each broker to its request, or its OSError, ProtocolError, ClientError or KafkaError.

        Every broker has its request before the first response is awaited.
        """
        results: dict[int, Any] = {}
        sent: dict[int, BrokerConnection] = {}
        for broker_id, request in requests.items():
            try:
                connection = self._connect(self.address_of(broker_id))
                connection.send(request, self.timeout_s, highest)
                sent[broker_id] = connection
            except (OSError, ProtocolError, ClientError, KafkaError) as error:
                results[broker_id] = error
        for broker_id, connection in sent.items():
            try:
                results[broker_id] = connection.receive(self.timeout_s)
            except (OSError, ProtocolError) as error:
                self._drop(connection)
                results[broker_id] = error
        return results

    def address_of(self, broker_id: int) -> Address:
        """The address of a broker. Raises KafkaError BROKER_NOT_AVAILABLE."""
        if broker_id not in self._nodes:
            self.metadata([])
        if broker_id not in self._nodes:
            there = ", ".join(map(str, sorted(self._nodes)))
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not in the cluster; it has {there}"
            )
        return self._nodes[broker_id]

    def broker_ids(self) -> list[int]:
        """The brokers of the cluster."""
        if not self._nodes:
            self.metadata([])
        return sorted(self._nodes)

    def supports(self, request_class: type[Any]) -> bool:
        """Whether the broker of the next `any_broker` has the API."""
        return request_class.API_KEY in self._connect(self._any_address()).versions()

    def version_at(self, broker_id: int, request_class: type[Any]) -> int:
        """The version in which a request goes to a broker; -1 where that has no common one."""
        return self._version(self.address_of(broker_id), request_class)

    # ---- the cluster

    def metadata(self, topics: Sequence[str] | None = None) -> m.MetadataResponse:
        """Brokers, and `topics` (None for all); the request creates no topic. Raises KafkaError."""
        wanted = None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer: m.MetadataResponse = self.any_broker(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        check(answer.error_code)
        self._nodes = {each.node_id: (each.host, each.port) for each in answer.brokers}
        self._controller_id = answer.controller_id
        return answer

    def coordinators(self, kind: int, keys: Sequence[str]) -> dict[str, int | KafkaError]:
        """The broker id of the coordinator of each group (`GROUP`) or transactional id (`TRANSACTION`)."""
        found: dict[str, int | KafkaError] = {
            key: self._coordinators[kind, key] for key in keys if (kind, key) in self._coordinators
        }
        missing = [key for key in keys if key not in found]
        if missing and self._version(self._any_address(), m.FindCoordinatorRequest) >= MANY_KEYS:
            request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=missing)
            for each in self.any_broker(request).coordinators:
                found[each.key] = self._coordinator(kind, each.key, each)
        else:
            for key in missing:
                request = m.FindCoordinatorRequest(key_type=kind, key=key)
                found[key] = self._coordinator(kind, key, self.any_broker(request, MANY_KEYS - 1))
        return found

    def _coordinator(self, kind: int, key: str, answer: Any) -> int | KafkaError:
        if answer.error_code:
            return error_of(answer.error_code, answer.error_message)
        self._nodes[answer.node_id] = (answer.host, answer.port)
        self._coordinators[kind, key] = answer.node_id
        return int(answer.node_id)

    # ---- connections

    def _any_address(self) -> Address:
        """That of an open connection, or of the first broker that can be reached. Raises NoBrokerError."""
        if self._connections:
            return next(iter(self._connections))
        failures = []
        for address in dict.fromkeys([*self._bootstrap, *self._nodes.values()]):
            try:
                self._connect(address)
            except OSError as error:
                failures.append(f"{shown(address)}: {error}")
            else:
                return address
        raise NoBrokerError(f"no broker answers at {'; '.join(failures)}")

    def _connect(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            timeout_s = min(self.timeout_s, SETUP_TIMEOUT_S)
            try:
                connection = BrokerConnection(address, self._client_id, self._security, timeout_s)
            except TimeoutError as error:
                raise TimeoutError(f"{shown(address)} does not answer within {timeout_s:g} s") from error
            self._connections[address] = connection
        return connection

    def _version(self, address: Address, request_class: type[Any]) -> int:
        try:
            return self._connect(address).version_of(request_class)
        except ClientError:
            return -1

    def _ask(self, address: Address, request: Any, highest: int | None) -> Any:
        connection = self._connect(address)
        try:
            return connection.ask(request, self.timeout_s, highest)
        except TimeoutError as error:
            self._drop(connection)
            raise TimeoutError(f"{shown(address)} does not answer within {self.timeout_s:g} s") from error
        except (OSError, ProtocolError):
            self._drop(connection)
            raise

    def _drop(self, connection: BrokerConnection) -> None:
        connection.close()
        self._connections.pop(connection.address, None)


_NO_RESULT: Final = KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _is_open(result: object) -> bool:
    return isinstance(result, KafkaError) and result.code in RETRIED


def error_of(error_code: int, message: str | None = None) -> KafkaError:
    """The error of a code on the wire."""
    return KafkaError(code_of(error_code), message or "")


def check(error_code: int, message: str | None = None) -> None:
    """Raises KafkaError for any code but NONE."""
    if error_code:
        raise error_of(error_code, message)


def outcome(value: T, error_code: int, message: str | None = None) -> T | KafkaError:
    """The value of an item, or its error."""
    return error_of(error_code, message) if error_code else value
