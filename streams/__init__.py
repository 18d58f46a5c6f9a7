"""The streams runtime: Kafka Streams for Python processes (docs/streams.md).

    from odradek.streams import KafkaStreams, StreamsBuilder

    builder = StreamsBuilder()
    builder.stream("text").map_values(str.upper).to("loud")
    print(builder.build().describe())

Topologies, stores and the driver for tests need no cluster; KafkaStreams brings the client with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.streams import aggregations
from odradek.streams.aggregations import Aggregation
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
    MissingSourceTopicError,
    ProcessingError,
    Response,
    StreamsError,
    TopologyError,
    UncaughtResponse,
    Undelivered,
    log_and_continue,
    log_and_fail,
)
from odradek.streams.extras import MissingExtraError
from odradek.streams.mock_processor_context import MockProcessorContext
from odradek.streams.operators.table import ValueTransformer
from odradek.streams.operators.ticks import CatchUp
from odradek.streams.processor import FixedKeyProcessor, Processor, ProcessorContext, PunctuationType
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
    from odradek.streams.runtime import KafkaStreams


def __getattr__(name: str) -> Any:
    """Imports KafkaStreams at its first use."""
    if name != "KafkaStreams":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from odradek.streams.runtime import KafkaStreams

    return KafkaStreams


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
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "Materialized",
    "MissingExtraError",
    "MissingSourceTopicError",
    "MockProcessorContext",
    "Printed",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "Produced",
    "PunctuationType",
    "ReadOnlyStoreMap",
    "Record",
    "RecordMetadata",
    "RecordingLevel",
    "Repartitioned",
    "Response",
    "RocksDBConfigSetter",
    "SchemaRegistry",
    "Sensor",
    "Serde",
    "SessionWindows",
    "SlidingWindows",
    "StoreBuilder",
    "StoreMap",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsError",
    "StreamsMetrics",
    "Suppressed",
    "TableJoined",
    "TaskId",
    "TestInputTopic",
    "TestOutputTopic",
    "TimeWindows",
    "Topology",
    "TopologyDescription",
    "TopologyError",
    "TopologyTestDriver",
    "UncaughtResponse",
    "Undelivered",
    "UnlimitedWindows",
    "ValueTransformer",
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
