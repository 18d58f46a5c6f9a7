"""Interactive queries of a client: views of its stores, and the instances that have a key or a store (KIP-67, KIP-535).

Kafka: KafkaStreams.store, queryMetadataForKey, streamsMetadataForStore, allLocalStorePartitionLags.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, overload

from odradek.streams.client_state import ClientState
from odradek.streams.config import StreamsConfig
from odradek.streams.errors import UnknownStateStoreError
from odradek.streams.local_queries import global_result, query_tasks
from odradek.streams.queries import (
    Kind,
    LocalStores,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
    make_view,
)
from odradek.streams.running.global_state import GlobalState
from odradek.streams.running.leadership import end_offsets
from odradek.streams.running.locations import (
    KeyQueryMetadata,
    LagInfo,
    Locations,
    Serializer,
    StreamsMetadata,
    local_lags,
)
from odradek.streams.running.stream_threads import StreamThreads
from odradek.streams.running.thread import StreamThread
from odradek.streams.serdes import Serde
from odradek.streams.state_query import StateQueryRequest, StateQueryResult
from odradek.streams.topology import Partitioner, Topology


class InteractiveQueries(ABC):
    """The queries of KafkaStreams."""

    def __init__(self, topology: Topology, config: StreamsConfig, state: ClientState, threads: StreamThreads) -> None:
        self.topology = topology
        self.config = config
        self._state = state
        self._threads = threads
        self._locations = Locations(
            topology,
            config["application.id"],
            config["application.server"],
            lambda topic: threads.started_application().partitions_of(topic),
        )
        self._stores = LocalStores(lambda: self.stream_threads, lambda: self.global_state)

    @property
    def stream_threads(self) -> Sequence[StreamThread]:
        """The running threads, for queries and metrics."""
        return self._threads.all

    @property
    @abstractmethod
    def global_state(self) -> GlobalState | None:
        """The global stores; None where the topology has none, and before they are restored."""

    @overload
    def store(
        self,
        name: str,
        kind: Literal["key-value", "timestamped-key-value"] = "key-value",
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyKeyValueStore: ...

    @overload
    def store(
        self,
        name: str,
        kind: Literal["window", "timestamped-window"],
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyWindowStore: ...

    @overload
    def store(
        self, name: str, kind: Literal["session"], *, partition: int | None = None, stale: bool = False
    ) -> ReadOnlySessionStore: ...

    @overload
    def store(
        self, name: str, kind: Literal["versioned"], *, partition: int | None = None, stale: bool = False
    ) -> ReadOnlyVersionedStore: ...

    def store(self, name: str, kind: Kind = "key-value", *, partition: int | None = None, stale: bool = False) -> Any:
        """A view of this instance's part of a store; see `queries.py`. It reads the stores of its own tasks alone:
        `query_metadata_for_key` returns the instance that has a key.

        `partition` narrows it to one task's store; with `stale` it also reads standbys and tasks that are being
        restored. Raises UnknownStateStoreError, InvalidStateStoreError for another kind of store or a client that was
        not started, StreamsError for one that has ended. Reads raise InvalidStateStoreError while the stores are on
        other instances.
        """
        self._state.check_alive()
        return make_view(self.topology, name, kind, self._stores.finder(name, kind, partition, stale))

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """The result of a query for each partition of a store on this instance (KIP-796).

        Unlike `store`, it reports for each partition why there is no result, also where a task is a standby or is being
        restored. Raises UnknownStateStoreError; InvalidStateStoreError for a client that was not started, StreamsError
        for one that has ended.
        """
        name = request.store_name
        builder: Any = self.topology.stores.get(name) or self.topology.global_stores.get(name)
        if builder is None:
            raise UnknownStateStoreError(
                f"Cannot get state store {name} because no such store is registered in the topology."
            )
        self._state.check_alive()
        if name in self.topology.global_stores:
            return global_result()
        stamped, result = bool(getattr(builder, "stamped", False)), getattr(builder, "result", None)
        return query_tasks(self.stream_threads, request, stamped, result)

    def query_metadata_for_key(
        self, store: str, key: Any, serializer: Serde[Any] | Serializer, partitioner: Partitioner | None = None
    ) -> KeyQueryMetadata | None:
        """The instance that has a key, and its standbys; None where there is no such store (KIP-535).

        `partitioner` is the partitioner that writes the source topics of the store, where that is not the default.
        Instances are identified by their application.server. Raises StreamsError.
        """
        self._state.check_alive()
        serialize = serializer.serialize if isinstance(serializer, Serde) else serializer
        return self._locations.of_key(store, key, serialize, partitioner)

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """The instances that have a partition of a store. Raises StreamsError."""
        self._state.check_alive()
        return self._locations.of_store(store)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """All instances that have an application.server, and their stores and partitions. Raises StreamsError."""
        self._state.check_alive()
        return self._locations.everywhere()

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """The lags of this instance's stores behind their changelogs, by store and partition. Raises StreamsError."""
        self._state.check_alive()
        admin, timeout_s = self._threads.started_application().admin, self.config["request.timeout.ms"] / 1000
        states = [found for thread in self.stream_threads for found in thread.states()]
        return local_lags(states, lambda places: end_offsets(admin, places, timeout_s))
