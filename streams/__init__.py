"""The streams runtime: Kafka Streams for Python processes (docs/streams.md).

    from odradek.streams import KafkaStreams, StreamsBuilder

    builder = StreamsBuilder()
    builder.stream("text").map_values(str.upper).to("loud")
    print(builder.build().describe())

Topologies, stores and the driver for tests need no cluster; KafkaStreams brings the client with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from odradek.streams import aggregations
from odradek.streams.aggregations import Aggregation
from odradek.streams.client_state import State
from odradek.streams.config import StreamsConfigError
from odradek.streams.declared_topics import DeclaredTopic, topic
from odradek.streams.driver import TestInputTopic, TestOutputTopic, TopologyTestDriver
from odradek.streams.dsl.branched import BranchedKStream
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.grouped import KGroupedStream, KGroupedTable
from odradek.streams.dsl.kstream import KStream
from odradek.streams.dsl.ktable import GlobalKTable, KTable
from odradek.streams.dsl.options import (
    Branched,
    Consumed,
    Grouped,
    Joined,
    Materialized,
    Printed,
    Produced,
    Repartitioned,
    StreamJoined,
    TableJoined,
)
from odradek.streams.dsl.suppress import BufferConfig, Suppressed
from odradek.streams.errors import (
    ArgumentError,
    DeadLetter,
    Decision,
    ErrorContext,
    InvalidStateStoreError,
    LockError,
    MissingSourceTopicError,
    ProcessingError,
    Response,
    SerializationError,
    ShutdownRequestedError,
    StoreFormatError,
    StoreSerializationError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
    TopologyError,
    UncaughtResponse,
    Undelivered,
    UnknownStateStoreError,
    log_and_continue,
    log_and_fail,
)
from odradek.streams.extras import MissingExtraError
from odradek.streams.mock_processor_context import MockProcessorContext
from odradek.streams.operators.table import ValueTransformer
from odradek.streams.operators.ticks import CatchUp
from odradek.streams.processor import FixedKeyProcessor, Processor, ProcessorContext, PunctuationType
from odradek.streams.processor_wrapper import ProcessorWrapper
from odradek.streams.records import Change, Record, RecordMetadata, TaskId, Window, Windowed
from odradek.streams.sensors import RecordingLevel, Sensor, StreamsMetrics
from odradek.streams.serdes import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID,
    VOID,
    SchemaRegistry,
    Serde,
    json_serde,
    list_serde,
    msgpack_serde,
    pydantic_serde,
    session_windowed_serde,
    windowed_serde,
)
from odradek.streams.store_maps import ReadOnlyStoreMap, StoreMap
from odradek.streams.stores.builders import (
    StoreBuilder,
    key_value_store,
    lru_map,
    session_store,
    timestamped_key_value_store,
    timestamped_window_store,
    versioned_key_value_store,
    window_store,
)
from odradek.streams.stores.interface import StateStore, StoreContext, VersionedRecord
from odradek.streams.stores.rocksdb_config import RocksDBConfigSetter
from odradek.streams.timestamps import (
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)
from odradek.streams.topology import Topology
from odradek.streams.topology_description import TopologyDescription
from odradek.streams.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

if TYPE_CHECKING:
    from odradek.streams.metrics_page import serve_metrics
    from odradek.streams.running.restoration import RestoreListener
    from odradek.streams.running.standby_listener import StandbyUpdateListener
    from odradek.streams.runtime import KafkaStreams

_AT_FIRST_USE: Final = {
    "KafkaStreams": "runtime",
    "RestoreListener": "running.restoration",
    "StandbyUpdateListener": "running.standby_listener",
    "serve_metrics": "metrics_page",
}
"""Names whose modules are imported at their first use: topologies and tests of them need no client and no server."""


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _AT_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_AT_FIRST_USE[name]}"), name)


__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "JSON",
    "LONG",
    "SHORT",
    "STRING",
    "UUID",
    "VOID",
    "Aggregation",
    "ArgumentError",
    "Branched",
    "BranchedKStream",
    "BufferConfig",
    "CatchUp",
    "Change",
    "Consumed",
    "DeadLetter",
    "Decision",
    "DeclaredTopic",
    "EmitStrategy",
    "ErrorContext",
    "FixedKeyProcessor",
    "GlobalKTable",
    "Grouped",
    "InvalidStateStoreError",
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "LockError",
    "Materialized",
    "MissingExtraError",
    "MissingSourceTopicError",
    "MockProcessorContext",
    "Printed",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "ProcessorWrapper",
    "Produced",
    "PunctuationType",
    "ReadOnlyStoreMap",
    "Record",
    "RecordMetadata",
    "RecordingLevel",
    "Repartitioned",
    "Response",
    "RestoreListener",
    "RocksDBConfigSetter",
    "SchemaRegistry",
    "Sensor",
    "Serde",
    "SerializationError",
    "SessionWindows",
    "ShutdownRequestedError",
    "SlidingWindows",
    "StandbyUpdateListener",
    "State",
    "StateStore",
    "StoreBuilder",
    "StoreContext",
    "StoreFormatError",
    "StoreMap",
    "StoreSerializationError",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsConfigError",
    "StreamsError",
    "StreamsMetrics",
    "Suppressed",
    "TableJoined",
    "TaskCorruptedError",
    "TaskId",
    "TaskMigratedError",
    "TestInputTopic",
    "TestOutputTopic",
    "TimeWindows",
    "Topology",
    "TopologyDescription",
    "TopologyError",
    "TopologyTestDriver",
    "UncaughtResponse",
    "Undelivered",
    "UnknownStateStoreError",
    "UnlimitedWindows",
    "ValueTransformer",
    "VersionedRecord",
    "Window",
    "Windowed",
    "Windows",
    "aggregations",
    "fail_on_invalid_timestamp",
    "json_serde",
    "key_value_store",
    "list_serde",
    "log_and_continue",
    "log_and_fail",
    "log_and_skip_on_invalid_timestamp",
    "lru_map",
    "msgpack_serde",
    "pydantic_serde",
    "serve_metrics",
    "session_store",
    "session_windowed_serde",
    "timestamped_key_value_store",
    "timestamped_window_store",
    "topic",
    "use_partition_time_on_invalid_timestamp",
    "versioned_key_value_store",
    "wallclock_timestamp",
    "window_store",
    "windowed_serde",
]
