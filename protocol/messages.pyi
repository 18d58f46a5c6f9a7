# Written by `python -m odradek.protocol.stubs` from the definition texts; not edited by hand.

from collections.abc import Sized
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from odradek.protocol.classes import BaseMessage, Struct

FOLDER: Path

class Api(NamedTuple):
    name: str
    key: int
    min: int
    max: int
    first_flexible: int

NEVER: int
APIS: dict[int, Api]

def texts() -> dict[str, Path]: ...
def request_class(api_key: int) -> type[Any]: ...
def response_class(api_key: int) -> type[Any]: ...

class ProduceRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicProduceData(Struct):
        name: str
        topic_id: bytes
        partition_data: list[ProduceRequest.PartitionProduceData]
        def __init__(
            self,
            *,
            name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partition_data: list[ProduceRequest.PartitionProduceData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionProduceData(Struct):
        index: int
        @property
        def records(self) -> memoryview | None: ...
        @records.setter
        def records(self, value: Sized | None) -> None: ...
        def __init__(
            self,
            *,
            index: int = 0,
            records: Sized | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[ProduceRequest.TopicProduceData]
    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[ProduceRequest.TopicProduceData] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ProduceResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicProduceResponse(Struct):
        name: str
        topic_id: bytes
        partition_responses: list[ProduceResponse.PartitionProduceResponse]
        def __init__(
            self,
            *,
            name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionProduceResponse(Struct):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: ProduceResponse.LeaderIdAndEpoch | None
        def __init__(
            self,
            *,
            index: int = 0,
            error_code: int = 0,
            base_offset: int = 0,
            log_append_time_ms: int = -1,
            log_start_offset: int = -1,
            record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...,
            error_message: str | None = None,
            current_leader: ProduceResponse.LeaderIdAndEpoch | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int
        batch_index_error_message: str | None
        def __init__(
            self,
            *,
            batch_index: int = 0,
            batch_index_error_message: str | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class LeaderIdAndEpoch(Struct):
        leader_id: int
        leader_epoch: int
        def __init__(
            self,
            *,
            leader_id: int = -1,
            leader_epoch: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class NodeEndpoint(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = '',
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    responses: list[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[ProduceResponse.NodeEndpoint]
    def __init__(
        self,
        *,
        responses: list[ProduceResponse.TopicProduceResponse] = ...,
        throttle_time_ms: int = 0,
        node_endpoints: list[ProduceResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class FetchRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class ReplicaState(Struct):
        replica_id: int
        replica_epoch: int
        def __init__(
            self,
            *,
            replica_id: int = -1,
            replica_epoch: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class FetchTopic(Struct):
        topic: str
        topic_id: bytes
        partitions: list[FetchRequest.FetchPartition]
        def __init__(
            self,
            *,
            topic: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[FetchRequest.FetchPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class FetchPartition(Struct):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: bytes
        high_watermark: int
        cleaned_to: int
        def __init__(
            self,
            *,
            partition: int = 0,
            current_leader_epoch: int = -1,
            fetch_offset: int = 0,
            last_fetched_epoch: int = -1,
            log_start_offset: int = -1,
            partition_max_bytes: int = 0,
            replica_directory_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            high_watermark: int = 9223372036854775807,
            cleaned_to: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ForgottenTopic(Struct):
        topic: str
        topic_id: bytes
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequest.ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchRequest.FetchTopic]
    forgotten_topics_data: list[FetchRequest.ForgottenTopic]
    rack_id: str
    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: FetchRequest.ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchRequest.FetchTopic] = ...,
        forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...,
        rack_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class FetchResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class FetchableTopicResponse(Struct):
        topic: str
        topic_id: bytes
        partitions: list[FetchResponse.PartitionData]
        def __init__(
            self,
            *,
            topic: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[FetchResponse.PartitionData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionData(Struct):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: FetchResponse.EpochEndOffset | None
        current_leader: FetchResponse.LeaderIdAndEpoch | None
        snapshot_id: FetchResponse.SnapshotId | None
        compacted_everywhere: int
        leader_epochs: list[FetchResponse.EpochStartOffset]
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None
        preferred_read_replica: int
        @property
        def records(self) -> memoryview | None: ...
        @records.setter
        def records(self, value: Sized | None) -> None: ...
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            high_watermark: int = 0,
            last_stable_offset: int = -1,
            log_start_offset: int = -1,
            diverging_epoch: FetchResponse.EpochEndOffset | None = None,
            current_leader: FetchResponse.LeaderIdAndEpoch | None = None,
            snapshot_id: FetchResponse.SnapshotId | None = None,
            compacted_everywhere: int = -1,
            leader_epochs: list[FetchResponse.EpochStartOffset] = ...,
            aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...,
            preferred_read_replica: int = -1,
            records: Sized | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class EpochEndOffset(Struct):
        epoch: int
        end_offset: int
        def __init__(
            self,
            *,
            epoch: int = -1,
            end_offset: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class LeaderIdAndEpoch(Struct):
        leader_id: int
        leader_epoch: int
        def __init__(
            self,
            *,
            leader_id: int = -1,
            leader_epoch: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class SnapshotId(Struct):
        end_offset: int
        epoch: int
        def __init__(
            self,
            *,
            end_offset: int = -1,
            epoch: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class EpochStartOffset(Struct):
        epoch: int
        start_offset: int
        def __init__(
            self,
            *,
            epoch: int = -1,
            start_offset: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AbortedTransaction(Struct):
        producer_id: int
        first_offset: int
        def __init__(
            self,
            *,
            producer_id: int = 0,
            first_offset: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class NodeEndpoint(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = '',
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchResponse.FetchableTopicResponse]
    node_endpoints: list[FetchResponse.NodeEndpoint]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchResponse.FetchableTopicResponse] = ...,
        node_endpoints: list[FetchResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListOffsetsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class ListOffsetsTopic(Struct):
        name: str
        partitions: list[ListOffsetsRequest.ListOffsetsPartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ListOffsetsPartition(Struct):
        partition_index: int
        current_leader_epoch: int
        timestamp: int
        max_num_offsets: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            current_leader_epoch: int = -1,
            timestamp: int = 0,
            max_num_offsets: int = 1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...,
        timeout_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListOffsetsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class ListOffsetsTopicResponse(Struct):
        name: str
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int
        error_code: int
        old_style_offsets: list[int]
        timestamp: int
        offset: int
        leader_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            old_style_offsets: list[int] = ...,
            timestamp: int = -1,
            offset: int = -1,
            leader_epoch: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class MetadataRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class MetadataRequestTopic(Struct):
        topic_id: bytes
        name: str | None
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            name: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(
        self,
        *,
        topics: list[MetadataRequest.MetadataRequestTopic] | None = ...,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class MetadataResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class MetadataResponseBroker(Struct):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = 0,
            host: str = '',
            port: int = 0,
            rack: str | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class MetadataResponseTopic(Struct):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: list[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = 0,
            name: str | None = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            is_internal: bool = False,
            partitions: list[MetadataResponse.MetadataResponsePartition] = ...,
            topic_authorized_operations: int = -2147483648,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class MetadataResponsePartition(Struct):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        offline_replicas: list[int]
        def __init__(
            self,
            *,
            error_code: int = 0,
            partition_index: int = 0,
            leader_id: int = 0,
            leader_epoch: int = -1,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            offline_replicas: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    brokers: list[MetadataResponse.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        brokers: list[MetadataResponse.MetadataResponseBroker] = ...,
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: list[MetadataResponse.MetadataResponseTopic] = ...,
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class LeaderAndIsrRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class LeaderAndIsrPartitionState(Struct):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        partition_epoch: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        is_new: bool
        leader_recovery_state: int
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            controller_epoch: int = 0,
            leader: int = 0,
            leader_epoch: int = 0,
            isr: list[int] = ...,
            partition_epoch: int = 0,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
            is_new: bool = False,
            leader_recovery_state: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class LeaderAndIsrTopicState(Struct):
        topic_name: str
        topic_id: bytes
        partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]
        def __init__(
            self,
            *,
            topic_name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class LeaderAndIsrLiveLeader(Struct):
        broker_id: int
        host_name: str
        port: int
        def __init__(
            self,
            *,
            broker_id: int = 0,
            host_name: str = '',
            port: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    type: int
    ungrouped_partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]
    topic_states: list[LeaderAndIsrRequest.LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_k_raft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        type: int = 0,
        ungrouped_partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...,
        topic_states: list[LeaderAndIsrRequest.LeaderAndIsrTopicState] = ...,
        live_leaders: list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class LeaderAndIsrResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class LeaderAndIsrPartitionError(Struct):
        topic_name: str
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class LeaderAndIsrTopicError(Struct):
        topic_id: bytes
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    error_code: int
    partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]
    topics: list[LeaderAndIsrResponse.LeaderAndIsrTopicError]
    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...,
        topics: list[LeaderAndIsrResponse.LeaderAndIsrTopicError] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class StopReplicaRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class StopReplicaPartitionV0(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class StopReplicaTopicV1(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class StopReplicaTopicState(Struct):
        topic_name: str
        partition_states: list[StopReplicaRequest.StopReplicaPartitionState]
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_states: list[StopReplicaRequest.StopReplicaPartitionState] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class StopReplicaPartitionState(Struct):
        partition_index: int
        leader_epoch: int
        delete_partition: bool
        def __init__(
            self,
            *,
            partition_index: int = 0,
            leader_epoch: int = -1,
            delete_partition: bool = False,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    delete_partitions: bool
    ungrouped_partitions: list[StopReplicaRequest.StopReplicaPartitionV0]
    topics: list[StopReplicaRequest.StopReplicaTopicV1]
    topic_states: list[StopReplicaRequest.StopReplicaTopicState]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_k_raft_controller: bool = False,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        delete_partitions: bool = False,
        ungrouped_partitions: list[StopReplicaRequest.StopReplicaPartitionV0] = ...,
        topics: list[StopReplicaRequest.StopReplicaTopicV1] = ...,
        topic_states: list[StopReplicaRequest.StopReplicaTopicState] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class StopReplicaResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class StopReplicaPartitionError(Struct):
        topic_name: str
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    error_code: int
    partition_errors: list[StopReplicaResponse.StopReplicaPartitionError]
    def __init__(
        self,
        *,
        error_code: int = 0,
        partition_errors: list[StopReplicaResponse.StopReplicaPartitionError] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class UpdateMetadataRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class UpdateMetadataPartitionState(Struct):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        zk_version: int
        replicas: list[int]
        offline_replicas: list[int]
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            controller_epoch: int = 0,
            leader: int = 0,
            leader_epoch: int = 0,
            isr: list[int] = ...,
            zk_version: int = 0,
            replicas: list[int] = ...,
            offline_replicas: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class UpdateMetadataTopicState(Struct):
        topic_name: str
        topic_id: bytes
        partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState]
        def __init__(
            self,
            *,
            topic_name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class UpdateMetadataBroker(Struct):
        id: int
        v0_host: str
        v0_port: int
        endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint]
        rack: str | None
        def __init__(
            self,
            *,
            id: int = 0,
            v0_host: str = '',
            v0_port: int = 0,
            endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint] = ...,
            rack: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class UpdateMetadataEndpoint(Struct):
        port: int
        host: str
        listener: str
        security_protocol: int
        def __init__(
            self,
            *,
            port: int = 0,
            host: str = '',
            listener: str = '',
            security_protocol: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    controller_id: int
    is_k_raft_controller: bool
    type: int
    controller_epoch: int
    broker_epoch: int
    ungrouped_partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState]
    topic_states: list[UpdateMetadataRequest.UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataRequest.UpdateMetadataBroker]
    def __init__(
        self,
        *,
        controller_id: int = 0,
        is_k_raft_controller: bool = False,
        type: int = 0,
        controller_epoch: int = 0,
        broker_epoch: int = -1,
        ungrouped_partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...,
        topic_states: list[UpdateMetadataRequest.UpdateMetadataTopicState] = ...,
        live_brokers: list[UpdateMetadataRequest.UpdateMetadataBroker] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class UpdateMetadataResponse(BaseMessage):
    API_KEY: ClassVar[int]
    error_code: int
    def __init__(
        self,
        *,
        error_code: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ControlledShutdownRequest(BaseMessage):
    API_KEY: ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ControlledShutdownResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class RemainingPartition(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    error_code: int
    remaining_partitions: list[ControlledShutdownResponse.RemainingPartition]
    def __init__(
        self,
        *,
        error_code: int = 0,
        remaining_partitions: list[ControlledShutdownResponse.RemainingPartition] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetCommitRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetCommitRequestTopic(Struct):
        name: str
        topic_id: bytes
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition]
        def __init__(
            self,
            *,
            name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetCommitRequestPartition(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        commit_timestamp: int
        committed_metadata: str | None
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            commit_timestamp: int = -1,
            committed_metadata: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = '',
        generation_id_or_member_epoch: int = -1,
        member_id: str = '',
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
        topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetCommitResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetCommitResponseTopic(Struct):
        name: str
        topic_id: bytes
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition]
        def __init__(
            self,
            *,
            name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetCommitResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetFetchRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetFetchRequestTopic(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetFetchRequestGroup(Struct):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        def __init__(
            self,
            *,
            group_id: str = '',
            member_id: str | None = None,
            member_epoch: int = -1,
            topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetFetchRequestTopics(Struct):
        name: str
        topic_id: bytes
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    group_id: str
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        *,
        group_id: str = '',
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...,
        groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...,
        require_stable: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetFetchResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetFetchResponseTopic(Struct):
        name: str
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetFetchResponsePartition(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            metadata: str | None = '',
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetFetchResponseGroup(Struct):
        group_id: str
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: int
        def __init__(
            self,
            *,
            group_id: str = '',
            topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetFetchResponseTopics(Struct):
        name: str
        topic_id: bytes
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions]
        def __init__(
            self,
            *,
            name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            metadata: str | None = '',
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...,
        error_code: int = 0,
        groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class FindCoordinatorRequest(BaseMessage):
    API_KEY: ClassVar[int]
    key: str
    key_type: int
    coordinator_keys: list[str]
    def __init__(
        self,
        *,
        key: str = '',
        key_type: int = 0,
        coordinator_keys: list[str] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class FindCoordinatorResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class Coordinator(Struct):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            key: str = '',
            node_id: int = 0,
            host: str = '',
            port: int = 0,
            error_code: int = 0,
            error_message: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[FindCoordinatorResponse.Coordinator]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = '',
        node_id: int = 0,
        host: str = '',
        port: int = 0,
        coordinators: list[FindCoordinatorResponse.Coordinator] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class JoinGroupRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class JoinGroupRequestProtocol(Struct):
        name: str
        metadata: bytes
        def __init__(
            self,
            *,
            name: str = '',
            metadata: bytes = b'',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: str | None
    def __init__(
        self,
        *,
        group_id: str = '',
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = '',
        group_instance_id: str | None = None,
        protocol_type: str = '',
        protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...,
        reason: str | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class JoinGroupResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class JoinGroupResponseMember(Struct):
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        def __init__(
            self,
            *,
            member_id: str = '',
            group_instance_id: str | None = None,
            metadata: bytes = b'',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponse.JoinGroupResponseMember]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = '',
        leader: str = '',
        skip_assignment: bool = False,
        member_id: str = '',
        members: list[JoinGroupResponse.JoinGroupResponseMember] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class HeartbeatRequest(BaseMessage):
    API_KEY: ClassVar[int]
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(
        self,
        *,
        group_id: str = '',
        generation_id: int = 0,
        member_id: str = '',
        group_instance_id: str | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class HeartbeatResponse(BaseMessage):
    API_KEY: ClassVar[int]
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class LeaveGroupRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class MemberIdentity(Struct):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(
            self,
            *,
            member_id: str = '',
            group_instance_id: str | None = None,
            reason: str | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    group_id: str
    member_id: str
    members: list[LeaveGroupRequest.MemberIdentity]
    def __init__(
        self,
        *,
        group_id: str = '',
        member_id: str = '',
        members: list[LeaveGroupRequest.MemberIdentity] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class LeaveGroupResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class MemberResponse(Struct):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(
            self,
            *,
            member_id: str = '',
            group_instance_id: str | None = '',
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    members: list[LeaveGroupResponse.MemberResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[LeaveGroupResponse.MemberResponse] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SyncGroupRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class SyncGroupRequestAssignment(Struct):
        member_id: str
        assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = '',
            assignment: bytes = b'',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]
    def __init__(
        self,
        *,
        group_id: str = '',
        generation_id: int = 0,
        member_id: str = '',
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SyncGroupResponse(BaseMessage):
    API_KEY: ClassVar[int]
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b'',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeGroupsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    groups: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        groups: list[str] = ...,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeGroupsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribedGroup(Struct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = None,
            group_id: str = '',
            group_state: str = '',
            protocol_type: str = '',
            protocol_data: str = '',
            members: list[DescribeGroupsResponse.DescribedGroupMember] = ...,
            authorized_operations: int = -2147483648,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DescribedGroupMember(Struct):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = '',
            group_instance_id: str | None = None,
            client_id: str = '',
            client_host: str = '',
            member_metadata: bytes = b'',
            member_assignment: bytes = b'',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[DescribeGroupsResponse.DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[DescribeGroupsResponse.DescribedGroup] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListGroupsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    states_filter: list[str]
    types_filter: list[str]
    def __init__(
        self,
        *,
        states_filter: list[str] = ...,
        types_filter: list[str] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListGroupsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class ListedGroup(Struct):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(
            self,
            *,
            group_id: str = '',
            protocol_type: str = '',
            group_state: str = '',
            group_type: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    groups: list[ListGroupsResponse.ListedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListGroupsResponse.ListedGroup] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SaslHandshakeRequest(BaseMessage):
    API_KEY: ClassVar[int]
    mechanism: str
    def __init__(
        self,
        *,
        mechanism: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SaslHandshakeResponse(BaseMessage):
    API_KEY: ClassVar[int]
    error_code: int
    mechanisms: list[str]
    def __init__(
        self,
        *,
        error_code: int = 0,
        mechanisms: list[str] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ApiVersionsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    client_software_name: str
    client_software_version: str
    def __init__(
        self,
        *,
        client_software_name: str = '',
        client_software_version: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ApiVersionsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class ApiVersion(Struct):
        api_key: int
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            api_key: int = 0,
            min_version: int = 0,
            max_version: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class SupportedFeatureKey(Struct):
        name: str
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            name: str = '',
            min_version: int = 0,
            max_version: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class FinalizedFeatureKey(Struct):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(
            self,
            *,
            name: str = '',
            max_version_level: int = 0,
            min_version_level: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    error_code: int
    api_keys: list[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: int
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(
        self,
        *,
        error_code: int = 0,
        api_keys: list[ApiVersionsResponse.ApiVersion] = ...,
        throttle_time_ms: int = 0,
        supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...,
        finalized_features_epoch: int = -1,
        finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreateTopicsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class CreatableTopic(Struct):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: list[CreateTopicsRequest.CreatableTopicConfig]
        def __init__(
            self,
            *,
            name: str = '',
            num_partitions: int = 0,
            replication_factor: int = 0,
            assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...,
            configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class CreatableReplicaAssignment(Struct):
        partition_index: int
        broker_ids: list[int]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            broker_ids: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class CreatableTopicConfig(Struct):
        name: str
        value: str | None
        def __init__(
            self,
            *,
            name: str = '',
            value: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[CreateTopicsRequest.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: list[CreateTopicsRequest.CreatableTopic] = ...,
        timeout_ms: int = 60000,
        validate_only: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreateTopicsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class CreatableTopicResult(Struct):
        name: str
        topic_id: bytes
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None
        def __init__(
            self,
            *,
            name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            error_code: int = 0,
            error_message: str | None = '',
            topic_config_error_code: int = 0,
            num_partitions: int = -1,
            replication_factor: int = -1,
            configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class CreatableTopicConfigs(Struct):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        def __init__(
            self,
            *,
            name: str = '',
            value: str | None = '',
            read_only: bool = False,
            config_source: int = -1,
            is_sensitive: bool = False,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[CreateTopicsResponse.CreatableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[CreateTopicsResponse.CreatableTopicResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteTopicsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class DeleteTopicState(Struct):
        name: str | None
        topic_id: bytes
        def __init__(
            self,
            *,
            name: str | None = None,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[DeleteTopicsRequest.DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteTopicsRequest.DeleteTopicState] = ...,
        topic_names: list[str] = ...,
        timeout_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteTopicsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DeletableTopicResult(Struct):
        name: str | None
        topic_id: bytes
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            name: str | None = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[DeleteTopicsResponse.DeletableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteRecordsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class DeleteRecordsTopic(Struct):
        name: str
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DeleteRecordsPartition(Struct):
        partition_index: int
        offset: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            offset: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...,
        timeout_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteRecordsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DeleteRecordsTopicResult(Struct):
        name: str
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DeleteRecordsPartitionResult(Struct):
        partition_index: int
        low_watermark: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            low_watermark: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class InitProducerIdRequest(BaseMessage):
    API_KEY: ClassVar[int]
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        transactional_id: str | None = '',
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class InitProducerIdResponse(BaseMessage):
    API_KEY: ClassVar[int]
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetForLeaderEpochRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetForLeaderTopic(Struct):
        topic: str
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]
        def __init__(
            self,
            *,
            topic: str = '',
            partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetForLeaderPartition(Struct):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        def __init__(
            self,
            *,
            partition: int = 0,
            current_leader_epoch: int = -1,
            leader_epoch: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    replica_id: int
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    def __init__(
        self,
        *,
        replica_id: int = -2,
        topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetForLeaderEpochResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetForLeaderTopicResult(Struct):
        topic: str
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset]
        def __init__(
            self,
            *,
            topic: str = '',
            partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class EpochEndOffset(Struct):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        def __init__(
            self,
            *,
            error_code: int = 0,
            partition: int = 0,
            leader_epoch: int = -1,
            end_offset: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AddPartitionsToTxnRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        def __init__(
            self,
            *,
            transactional_id: str = '',
            producer_id: int = 0,
            producer_epoch: int = 0,
            verify_only: bool = False,
            topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AddPartitionsToTxnTopic(Struct):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = '',
        v3_and_below_producer_id: int = 0,
        v3_and_below_producer_epoch: int = 0,
        v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AddPartitionsToTxnResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class AddPartitionsToTxnResult(Struct):
        transactional_id: str
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        def __init__(
            self,
            *,
            transactional_id: str = '',
            topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AddPartitionsToTxnTopicResult(Struct):
        name: str
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]
        def __init__(
            self,
            *,
            name: str = '',
            results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int
        partition_error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            partition_error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AddOffsetsToTxnRequest(BaseMessage):
    API_KEY: ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(
        self,
        *,
        transactional_id: str = '',
        producer_id: int = 0,
        producer_epoch: int = 0,
        group_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AddOffsetsToTxnResponse(BaseMessage):
    API_KEY: ClassVar[int]
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class EndTxnRequest(BaseMessage):
    API_KEY: ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(
        self,
        *,
        transactional_id: str = '',
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class EndTxnResponse(BaseMessage):
    API_KEY: ClassVar[int]
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class WriteTxnMarkersRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class WritableTxnMarker(Struct):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(
            self,
            *,
            producer_id: int = 0,
            producer_epoch: int = 0,
            transaction_result: bool = False,
            topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...,
            coordinator_epoch: int = 0,
            transaction_version: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class WritableTxnMarkerTopic(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker]
    def __init__(
        self,
        *,
        markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class WriteTxnMarkersResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class WritableTxnMarkerResult(Struct):
        producer_id: int
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]
        def __init__(
            self,
            *,
            producer_id: int = 0,
            topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class WritableTxnMarkerTopicResult(Struct):
        name: str
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult]
    def __init__(
        self,
        *,
        markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class TxnOffsetCommitRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TxnOffsetCommitRequestTopic(Struct):
        name: str
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        def __init__(
            self,
            *,
            partition_index: int = 0,
            committed_offset: int = 0,
            committed_leader_epoch: int = -1,
            committed_metadata: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        transactional_id: str = '',
        group_id: str = '',
        producer_id: int = 0,
        producer_epoch: int = 0,
        generation_id: int = -1,
        member_id: str = '',
        group_instance_id: str | None = None,
        topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class TxnOffsetCommitResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class TxnOffsetCommitResponseTopic(Struct):
        name: str
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeAclsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        resource_type_filter: int = 0,
        resource_name_filter: str | None = '',
        pattern_type_filter: int = 3,
        principal_filter: str | None = '',
        host_filter: str | None = '',
        operation: int = 0,
        permission_type: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeAclsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeAclsResource(Struct):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: list[DescribeAclsResponse.AclDescription]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = '',
            pattern_type: int = 3,
            acls: list[DescribeAclsResponse.AclDescription] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AclDescription(Struct):
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            principal: str = '',
            host: str = '',
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResponse.DescribeAclsResource]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = '',
        resources: list[DescribeAclsResponse.DescribeAclsResource] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreateAclsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class AclCreation(Struct):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = '',
            resource_pattern_type: int = 3,
            principal: str = '',
            host: str = '',
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    creations: list[CreateAclsRequest.AclCreation]
    def __init__(
        self,
        *,
        creations: list[CreateAclsRequest.AclCreation] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreateAclsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class AclCreationResult(Struct):
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    results: list[CreateAclsResponse.AclCreationResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[CreateAclsResponse.AclCreationResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteAclsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class DeleteAclsFilter(Struct):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            resource_type_filter: int = 0,
            resource_name_filter: str | None = '',
            pattern_type_filter: int = 3,
            principal_filter: str | None = '',
            host_filter: str | None = '',
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    filters: list[DeleteAclsRequest.DeleteAclsFilter]
    def __init__(
        self,
        *,
        filters: list[DeleteAclsRequest.DeleteAclsFilter] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteAclsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DeleteAclsFilterResult(Struct):
        error_code: int
        error_message: str | None
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = '',
            matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DeleteAclsMatchingAcl(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = '',
            resource_type: int = 0,
            resource_name: str = '',
            pattern_type: int = 3,
            principal: str = '',
            host: str = '',
            operation: int = 0,
            permission_type: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeConfigsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = '',
            configuration_keys: list[str] | None = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    resources: list[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        *,
        resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeConfigsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeConfigsResult(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = '',
            resource_type: int = 0,
            resource_name: str = '',
            configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DescribeConfigsResourceResult(Struct):
        name: str
        value: str | None
        read_only: bool
        is_default: bool
        config_source: int
        is_sensitive: bool
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        def __init__(
            self,
            *,
            name: str = '',
            value: str | None = '',
            read_only: bool = False,
            is_default: bool = False,
            config_source: int = -1,
            is_sensitive: bool = False,
            synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...,
            config_type: int = 0,
            documentation: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DescribeConfigsSynonym(Struct):
        name: str
        value: str | None
        source: int
        def __init__(
            self,
            *,
            name: str = '',
            value: str | None = '',
            source: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    results: list[DescribeConfigsResponse.DescribeConfigsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterConfigsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class AlterConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configs: list[AlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = '',
            configs: list[AlterConfigsRequest.AlterableConfig] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AlterableConfig(Struct):
        name: str
        value: str | None
        def __init__(
            self,
            *,
            name: str = '',
            value: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    resources: list[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: list[AlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterConfigsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class AlterConfigsResourceResponse(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = '',
            resource_type: int = 0,
            resource_name: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterReplicaLogDirsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class AlterReplicaLogDir(Struct):
        path: str
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]
        def __init__(
            self,
            *,
            path: str = '',
            topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AlterReplicaLogDirTopic(Struct):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir]
    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterReplicaLogDirsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]
        def __init__(
            self,
            *,
            topic_name: str = '',
            partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeLogDirsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribableLogDirTopic(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    def __init__(
        self,
        *,
        topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeLogDirsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeLogDirsResult(Struct):
        error_code: int
        log_dir: str
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(
            self,
            *,
            error_code: int = 0,
            log_dir: str = '',
            topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...,
            total_bytes: int = -1,
            usable_bytes: int = -1,
            is_cordoned: bool = False,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DescribeLogDirsTopic(Struct):
        name: str
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DescribeLogDirsPartition(Struct):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        def __init__(
            self,
            *,
            partition_index: int = 0,
            partition_size: int = 0,
            offset_lag: int = 0,
            is_future_key: bool = False,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SaslAuthenticateRequest(BaseMessage):
    API_KEY: ClassVar[int]
    auth_bytes: bytes
    def __init__(
        self,
        *,
        auth_bytes: bytes = b'',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SaslAuthenticateResponse(BaseMessage):
    API_KEY: ClassVar[int]
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = '',
        auth_bytes: bytes = b'',
        session_lifetime_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreatePartitionsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class CreatePartitionsTopic(Struct):
        name: str
        count: int
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None
        def __init__(
            self,
            *,
            name: str = '',
            count: int = 0,
            assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int]
        def __init__(
            self,
            *,
            broker_ids: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...,
        timeout_ms: int = 0,
        validate_only: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreatePartitionsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class CreatePartitionsTopicResult(Struct):
        name: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            name: str = '',
            error_code: int = 0,
            error_message: str | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreateDelegationTokenRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class CreatableRenewers(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = '',
            principal_name: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers]
    max_lifetime_ms: int
    def __init__(
        self,
        *,
        owner_principal_type: str | None = '',
        owner_principal_name: str | None = '',
        renewers: list[CreateDelegationTokenRequest.CreatableRenewers] = ...,
        max_lifetime_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class CreateDelegationTokenResponse(BaseMessage):
    API_KEY: ClassVar[int]
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = 0,
        principal_type: str = '',
        principal_name: str = '',
        token_requester_principal_type: str = '',
        token_requester_principal_name: str = '',
        issue_timestamp_ms: int = 0,
        expiry_timestamp_ms: int = 0,
        max_timestamp_ms: int = 0,
        token_id: str = '',
        hmac: bytes = b'',
        throttle_time_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class RenewDelegationTokenRequest(BaseMessage):
    API_KEY: ClassVar[int]
    hmac: bytes
    renew_period_ms: int
    def __init__(
        self,
        *,
        hmac: bytes = b'',
        renew_period_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class RenewDelegationTokenResponse(BaseMessage):
    API_KEY: ClassVar[int]
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = 0,
        expiry_timestamp_ms: int = 0,
        throttle_time_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ExpireDelegationTokenRequest(BaseMessage):
    API_KEY: ClassVar[int]
    hmac: bytes
    expiry_time_period_ms: int
    def __init__(
        self,
        *,
        hmac: bytes = b'',
        expiry_time_period_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ExpireDelegationTokenResponse(BaseMessage):
    API_KEY: ClassVar[int]
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = 0,
        expiry_timestamp_ms: int = 0,
        throttle_time_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeDelegationTokenRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeDelegationTokenOwner(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = '',
            principal_name: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None
    def __init__(
        self,
        *,
        owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeDelegationTokenResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribedDelegationToken(Struct):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]
        def __init__(
            self,
            *,
            principal_type: str = '',
            principal_name: str = '',
            token_requester_principal_type: str = '',
            token_requester_principal_name: str = '',
            issue_timestamp: int = 0,
            expiry_timestamp: int = 0,
            max_timestamp: int = 0,
            token_id: str = '',
            hmac: bytes = b'',
            renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str
        principal_name: str
        def __init__(
            self,
            *,
            principal_type: str = '',
            principal_name: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    error_code: int
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken]
    throttle_time_ms: int
    def __init__(
        self,
        *,
        error_code: int = 0,
        tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...,
        throttle_time_ms: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteGroupsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    groups_names: list[str]
    def __init__(
        self,
        *,
        groups_names: list[str] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DeleteGroupsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DeletableGroupResult(Struct):
        group_id: str
        error_code: int
        def __init__(
            self,
            *,
            group_id: str = '',
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    results: list[DeleteGroupsResponse.DeletableGroupResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DeleteGroupsResponse.DeletableGroupResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ElectLeadersRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicPartitions(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    election_type: int
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None
    timeout_ms: int
    def __init__(
        self,
        *,
        election_type: int = 0,
        topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = ...,
        timeout_ms: int = 60000,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ElectLeadersResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class ReplicaElectionResult(Struct):
        topic: str
        partition_result: list[ElectLeadersResponse.PartitionResult]
        def __init__(
            self,
            *,
            topic: str = '',
            partition_result: list[ElectLeadersResponse.PartitionResult] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionResult(Struct):
        partition_id: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            partition_id: int = 0,
            error_code: int = 0,
            error_message: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class IncrementalAlterConfigsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class AlterConfigsResource(Struct):
        resource_type: int
        resource_name: str
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            *,
            resource_type: int = 0,
            resource_name: str = '',
            configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class AlterableConfig(Struct):
        name: str
        config_operation: int
        value: str | None
        def __init__(
            self,
            *,
            name: str = '',
            config_operation: int = 0,
            value: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class IncrementalAlterConfigsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class AlterConfigsResourceResponse(Struct):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = '',
            resource_type: int = 0,
            resource_name: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterPartitionReassignmentsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class ReassignableTopic(Struct):
        name: str
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ReassignablePartition(Struct):
        partition_index: int
        replicas: list[int] | None
        def __init__(
            self,
            *,
            partition_index: int = 0,
            replicas: list[int] | None = None,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic]
    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterPartitionReassignmentsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class ReassignableTopicResponse(Struct):
        name: str
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ReassignablePartitionResponse(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        allow_replication_factor_change: bool = True,
        error_code: int = 0,
        error_message: str | None = '',
        responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListPartitionReassignmentsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class ListPartitionReassignmentsTopics(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    timeout_ms: int
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListPartitionReassignmentsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class OngoingTopicReassignment(Struct):
        name: str
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OngoingPartitionReassignment(Struct):
        partition_index: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = '',
        topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetDeleteRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetDeleteRequestTopic(Struct):
        name: str
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    group_id: str
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = '',
        topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetDeleteResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class OffsetDeleteResponseTopic(Struct):
        name: str
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OffsetDeleteResponsePartition(Struct):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic]
    def __init__(
        self,
        *,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeClientQuotasRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class ComponentData(Struct):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(
            self,
            *,
            entity_type: str = '',
            match_type: int = 0,
            match: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    components: list[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    def __init__(
        self,
        *,
        components: list[DescribeClientQuotasRequest.ComponentData] = ...,
        strict: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeClientQuotasResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData]
        values: list[DescribeClientQuotasResponse.ValueData]
        def __init__(
            self,
            *,
            entity: list[DescribeClientQuotasResponse.EntityData] = ...,
            values: list[DescribeClientQuotasResponse.ValueData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class EntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = '',
            entity_name: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ValueData(Struct):
        key: str
        value: float
        def __init__(
            self,
            *,
            key: str = '',
            value: float = 0.0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[DescribeClientQuotasResponse.EntryData] | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = '',
        entries: list[DescribeClientQuotasResponse.EntryData] | None = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterClientQuotasRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData]
        ops: list[AlterClientQuotasRequest.OpData]
        def __init__(
            self,
            *,
            entity: list[AlterClientQuotasRequest.EntityData] = ...,
            ops: list[AlterClientQuotasRequest.OpData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class EntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = '',
            entity_name: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class OpData(Struct):
        key: str
        value: float
        remove: bool
        def __init__(
            self,
            *,
            key: str = '',
            value: float = 0.0,
            remove: bool = False,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    entries: list[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    def __init__(
        self,
        *,
        entries: list[AlterClientQuotasRequest.EntryData] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterClientQuotasResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class EntryData(Struct):
        error_code: int
        error_message: str | None
        entity: list[AlterClientQuotasResponse.EntityData]
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = '',
            entity: list[AlterClientQuotasResponse.EntityData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class EntityData(Struct):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = '',
            entity_name: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    entries: list[AlterClientQuotasResponse.EntryData]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        entries: list[AlterClientQuotasResponse.EntryData] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeUserScramCredentialsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class UserName(Struct):
        name: str
        def __init__(
            self,
            *,
            name: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    users: list[DescribeUserScramCredentialsRequest.UserName] | None
    def __init__(
        self,
        *,
        users: list[DescribeUserScramCredentialsRequest.UserName] | None = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeUserScramCredentialsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeUserScramCredentialsResult(Struct):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo]
        def __init__(
            self,
            *,
            user: str = '',
            error_code: int = 0,
            error_message: str | None = '',
            credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class CredentialInfo(Struct):
        mechanism: int
        iterations: int
        def __init__(
            self,
            *,
            mechanism: int = 0,
            iterations: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = '',
        results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterUserScramCredentialsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class ScramCredentialDeletion(Struct):
        name: str
        mechanism: int
        def __init__(
            self,
            *,
            name: str = '',
            mechanism: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ScramCredentialUpsertion(Struct):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(
            self,
            *,
            name: str = '',
            mechanism: int = 0,
            iterations: int = 0,
            salt: bytes = b'',
            salted_password: bytes = b'',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    def __init__(
        self,
        *,
        deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...,
        upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterUserScramCredentialsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class AlterUserScramCredentialsResult(Struct):
        user: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            user: str = '',
            error_code: int = 0,
            error_message: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeQuorumRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicData(Struct):
        topic_name: str
        partitions: list[DescribeQuorumRequest.PartitionData]
        def __init__(
            self,
            *,
            topic_name: str = '',
            partitions: list[DescribeQuorumRequest.PartitionData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionData(Struct):
        partition_index: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[DescribeQuorumRequest.TopicData]
    def __init__(
        self,
        *,
        topics: list[DescribeQuorumRequest.TopicData] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeQuorumResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicData(Struct):
        topic_name: str
        partitions: list[DescribeQuorumResponse.PartitionData]
        def __init__(
            self,
            *,
            topic_name: str = '',
            partitions: list[DescribeQuorumResponse.PartitionData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionData(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: list[DescribeQuorumResponse.ReplicaState]
        observers: list[DescribeQuorumResponse.ReplicaState]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = '',
            leader_id: int = 0,
            leader_epoch: int = 0,
            high_watermark: int = 0,
            current_voters: list[DescribeQuorumResponse.ReplicaState] = ...,
            observers: list[DescribeQuorumResponse.ReplicaState] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ReplicaState(Struct):
        replica_id: int
        replica_directory_id: bytes
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int
        def __init__(
            self,
            *,
            replica_id: int = 0,
            replica_directory_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            log_end_offset: int = 0,
            last_fetch_timestamp: int = -1,
            last_caught_up_timestamp: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class Node(Struct):
        node_id: int
        listeners: list[DescribeQuorumResponse.Listener]
        def __init__(
            self,
            *,
            node_id: int = 0,
            listeners: list[DescribeQuorumResponse.Listener] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class Listener(Struct):
        name: str
        host: str
        port: int
        def __init__(
            self,
            *,
            name: str = '',
            host: str = '',
            port: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    error_code: int
    error_message: str | None
    topics: list[DescribeQuorumResponse.TopicData]
    nodes: list[DescribeQuorumResponse.Node]
    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = '',
        topics: list[DescribeQuorumResponse.TopicData] = ...,
        nodes: list[DescribeQuorumResponse.Node] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterPartitionRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicData(Struct):
        topic_name: str
        topic_id: bytes
        partitions: list[AlterPartitionRequest.PartitionData]
        def __init__(
            self,
            *,
            topic_name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[AlterPartitionRequest.PartitionData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionData(Struct):
        partition_index: int
        leader_epoch: int
        new_isr: list[int]
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState]
        leader_recovery_state: int
        partition_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            leader_epoch: int = 0,
            new_isr: list[int] = ...,
            new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = ...,
            leader_recovery_state: int = 0,
            partition_epoch: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class BrokerState(Struct):
        broker_id: int
        broker_epoch: int
        def __init__(
            self,
            *,
            broker_id: int = 0,
            broker_epoch: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    broker_id: int
    broker_epoch: int
    topics: list[AlterPartitionRequest.TopicData]
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        topics: list[AlterPartitionRequest.TopicData] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AlterPartitionResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicData(Struct):
        topic_name: str
        topic_id: bytes
        partitions: list[AlterPartitionResponse.PartitionData]
        def __init__(
            self,
            *,
            topic_name: str = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[AlterPartitionResponse.PartitionData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionData(Struct):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        isr: list[int]
        leader_recovery_state: int
        partition_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            leader_id: int = 0,
            leader_epoch: int = 0,
            isr: list[int] = ...,
            leader_recovery_state: int = 0,
            partition_epoch: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    topics: list[AlterPartitionResponse.TopicData]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        topics: list[AlterPartitionResponse.TopicData] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class UpdateFeaturesRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class FeatureUpdateKey(Struct):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        def __init__(
            self,
            *,
            feature: str = '',
            max_version_level: int = 0,
            allow_downgrade: bool = False,
            upgrade_type: int = 1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    timeout_ms: int
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: bool
    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey] = ...,
        validate_only: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class UpdateFeaturesResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class UpdatableFeatureResult(Struct):
        feature: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            feature: str = '',
            error_code: int = 0,
            error_message: str | None = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = '',
        results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class EnvelopeRequest(BaseMessage):
    API_KEY: ClassVar[int]
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes
    def __init__(
        self,
        *,
        request_data: bytes = b'',
        request_principal: bytes | None = b'',
        client_host_address: bytes = b'',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class EnvelopeResponse(BaseMessage):
    API_KEY: ClassVar[int]
    response_data: bytes | None
    error_code: int
    def __init__(
        self,
        *,
        response_data: bytes | None = None,
        error_code: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeClusterRequest(BaseMessage):
    API_KEY: ClassVar[int]
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeClusterResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeClusterBroker(Struct):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(
            self,
            *,
            broker_id: int = 0,
            host: str = '',
            port: int = 0,
            rack: str | None = None,
            is_fenced: bool = False,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = '',
        controller_id: int = -1,
        brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...,
        cluster_authorized_operations: int = -2147483648,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeProducersRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicRequest(Struct):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = '',
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[DescribeProducersRequest.TopicRequest]
    def __init__(
        self,
        *,
        topics: list[DescribeProducersRequest.TopicRequest] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeProducersResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicResponse(Struct):
        name: str
        partitions: list[DescribeProducersResponse.PartitionResponse]
        def __init__(
            self,
            *,
            name: str = '',
            partitions: list[DescribeProducersResponse.PartitionResponse] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionResponse(Struct):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: list[DescribeProducersResponse.ProducerState]
        def __init__(
            self,
            *,
            partition_index: int = 0,
            error_code: int = 0,
            error_message: str | None = None,
            active_producers: list[DescribeProducersResponse.ProducerState] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ProducerState(Struct):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        def __init__(
            self,
            *,
            producer_id: int = 0,
            producer_epoch: int = 0,
            last_sequence: int = -1,
            last_timestamp: int = -1,
            coordinator_epoch: int = 0,
            current_txn_start_offset: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DescribeProducersResponse.TopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DescribeProducersResponse.TopicResponse] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeTransactionsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    transactional_ids: list[str]
    def __init__(
        self,
        *,
        transactional_ids: list[str] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeTransactionsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class TransactionState(Struct):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: list[DescribeTransactionsResponse.TopicData]
        def __init__(
            self,
            *,
            error_code: int = 0,
            transactional_id: str = '',
            transaction_state: str = '',
            transaction_timeout_ms: int = 0,
            transaction_start_time_ms: int = 0,
            producer_id: int = 0,
            producer_epoch: int = 0,
            topics: list[DescribeTransactionsResponse.TopicData] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class TopicData(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    transaction_states: list[DescribeTransactionsResponse.TransactionState]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        transaction_states: list[DescribeTransactionsResponse.TransactionState] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListTransactionsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(
        self,
        *,
        state_filters: list[str] = ...,
        producer_id_filters: list[int] = ...,
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ListTransactionsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class TransactionState(Struct):
        transactional_id: str
        producer_id: int
        transaction_state: str
        def __init__(
            self,
            *,
            transactional_id: str = '',
            producer_id: int = 0,
            transaction_state: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[ListTransactionsResponse.TransactionState]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] = ...,
        transaction_states: list[ListTransactionsResponse.TransactionState] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AllocateProducerIdsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class AllocateProducerIdsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id_start: int = 0,
        producer_id_len: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicPartitions(Struct):
        topic_id: bytes
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    def __init__(
        self,
        *,
        group_id: str = '',
        member_id: str = '',
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: list[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class TopicPartitions(Struct):
        topic_id: bytes
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: ConsumerGroupHeartbeatResponse.Assignment | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupDescribeRequest(BaseMessage):
    API_KEY: ClassVar[int]
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupDescribeResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribedGroup(Struct):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ConsumerGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = 0,
            error_message: str | None = None,
            group_id: str = '',
            group_state: str = '',
            group_epoch: int = 0,
            assignment_epoch: int = 0,
            assignor_name: str = '',
            members: list[ConsumerGroupDescribeResponse.Member] = ...,
            authorized_operations: int = -2147483648,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class Member(Struct):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: int
        def __init__(
            self,
            *,
            member_id: str = '',
            instance_id: str | None = None,
            rack_id: str | None = None,
            member_epoch: int = 0,
            client_id: str = '',
            client_host: str = '',
            subscribed_topic_names: list[str] = ...,
            subscribed_topic_regex: str | None = None,
            assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            target_assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            member_type: int = -1,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class TopicPartitions(Struct):
        topic_id: bytes
        topic_name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            topic_name: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeTopicPartitionsRequest(BaseMessage):
    API_KEY: ClassVar[int]
    class TopicRequest(Struct):
        name: str
        def __init__(
            self,
            *,
            name: str = '',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class Cursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequest.Cursor | None
    def __init__(
        self,
        *,
        topics: list[DescribeTopicPartitionsRequest.TopicRequest] = ...,
        response_partition_limit: int = 2000,
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DescribeTopicPartitionsResponse(BaseMessage):
    API_KEY: ClassVar[int]
    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = 0,
            name: str | None = '',
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            is_internal: bool = False,
            partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ...,
            topic_authorized_operations: int = -2147483648,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        eligible_leader_replicas: list[int] | None
        last_known_elr: list[int] | None
        offline_replicas: list[int]
        def __init__(
            self,
            *,
            error_code: int = 0,
            partition_index: int = 0,
            leader_id: int = 0,
            leader_epoch: int = -1,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            eligible_leader_replicas: list[int] | None = None,
            last_known_elr: list[int] | None = None,
            offline_replicas: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class Cursor(Struct):
        topic_name: str
        partition_index: int
        def __init__(
            self,
            *,
            topic_name: str = '',
            partition_index: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...,
        next_cursor: DescribeTopicPartitionsResponse.Cursor | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupMetadataKey(BaseMessage):
    group_id: str
    def __init__(
        self,
        *,
        group_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupMetadataValue(BaseMessage):
    epoch: int
    metadata_hash: int
    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupPartitionMetadataKey(BaseMessage):
    group_id: str
    def __init__(
        self,
        *,
        group_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupPartitionMetadataValue(BaseMessage):
    class TopicMetadata(Struct):
        topic_id: bytes
        topic_name: str
        num_partitions: int
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata]
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            topic_name: str = '',
            num_partitions: int = 0,
            partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class PartitionMetadata(Struct):
        partition: int
        racks: list[str]
        def __init__(
            self,
            *,
            partition: int = 0,
            racks: list[str] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata]
    def __init__(
        self,
        *,
        topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupMemberMetadataKey(BaseMessage):
    group_id: str
    member_id: str
    def __init__(
        self,
        *,
        group_id: str = '',
        member_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupMemberMetadataValue(BaseMessage):
    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol]
        def __init__(
            self,
            *,
            session_timeout_ms: int = 0,
            supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class ClassicProtocol(Struct):
        name: str
        metadata: bytes
        def __init__(
            self,
            *,
            name: str = '',
            metadata: bytes = b'',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None
    def __init__(
        self,
        *,
        instance_id: str | None = '',
        rack_id: str | None = '',
        client_id: str = '',
        client_host: str = '',
        subscribed_topic_names: list[str] = ...,
        subscribed_topic_regex: str | None = '',
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = '',
        classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey(BaseMessage):
    group_id: str
    def __init__(
        self,
        *,
        group_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue(BaseMessage):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(
        self,
        *,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey(BaseMessage):
    group_id: str
    member_id: str
    def __init__(
        self,
        *,
        group_id: str = '',
        member_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue(BaseMessage):
    class TopicPartition(Struct):
        topic_id: bytes
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition]
    def __init__(
        self,
        *,
        topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey(BaseMessage):
    group_id: str
    member_id: str
    def __init__(
        self,
        *,
        group_id: str = '',
        member_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue(BaseMessage):
    class TopicPartitions(Struct):
        topic_id: bytes
        partitions: list[int]
        assignment_epochs: list[int] | None
        def __init__(
            self,
            *,
            topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            partitions: list[int] = ...,
            assignment_epochs: list[int] | None = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    def __init__(
        self,
        *,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupRegularExpressionKey(BaseMessage):
    group_id: str
    regular_expression: str
    def __init__(
        self,
        *,
        group_id: str = '',
        regular_expression: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerGroupRegularExpressionValue(BaseMessage):
    topics: list[str]
    version: int
    timestamp: int
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        version: int = 0,
        timestamp: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerProtocolSubscription(BaseMessage):
    class TopicPartition(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        user_data: bytes | None = None,
        owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...,
        generation_id: int = -1,
        rack_id: str | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ConsumerProtocolAssignment(BaseMessage):
    class TopicPartition(Struct):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = '',
            partitions: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | None
    def __init__(
        self,
        *,
        assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...,
        user_data: bytes | None = None,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ControlRecordTypeSchema(BaseMessage):
    type: int
    def __init__(
        self,
        *,
        type: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class EndTxnMarker(BaseMessage):
    coordinator_epoch: int
    def __init__(
        self,
        *,
        coordinator_epoch: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class LeaderChangeMessage(BaseMessage):
    class Voter(Struct):
        voter_id: int
        voter_directory_id: bytes
        def __init__(
            self,
            *,
            voter_id: int = 0,
            voter_directory_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    version: int
    leader_id: int
    voters: list[LeaderChangeMessage.Voter]
    granting_voters: list[LeaderChangeMessage.Voter]
    def __init__(
        self,
        *,
        version: int = 0,
        leader_id: int = 0,
        voters: list[LeaderChangeMessage.Voter] = ...,
        granting_voters: list[LeaderChangeMessage.Voter] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SnapshotHeaderRecord(BaseMessage):
    version: int
    last_contained_log_timestamp: int
    def __init__(
        self,
        *,
        version: int = 0,
        last_contained_log_timestamp: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class SnapshotFooterRecord(BaseMessage):
    version: int
    def __init__(
        self,
        *,
        version: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class KRaftVersionRecord(BaseMessage):
    version: int
    k_raft_version: int
    def __init__(
        self,
        *,
        version: int = 0,
        k_raft_version: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class VotersRecord(BaseMessage):
    class Voter(Struct):
        voter_id: int
        voter_directory_id: bytes
        endpoints: list[VotersRecord.Endpoint]
        k_raft_version_feature: VotersRecord.KRaftVersionFeature
        def __init__(
            self,
            *,
            voter_id: int = 0,
            voter_directory_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
            endpoints: list[VotersRecord.Endpoint] = ...,
            k_raft_version_feature: VotersRecord.KRaftVersionFeature = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class Endpoint(Struct):
        name: str
        host: str
        port: int
        def __init__(
            self,
            *,
            name: str = '',
            host: str = '',
            port: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    class KRaftVersionFeature(Struct):
        min_supported_version: int
        max_supported_version: int
        def __init__(
            self,
            *,
            min_supported_version: int = 0,
            max_supported_version: int = 0,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    version: int
    voters: list[VotersRecord.Voter]
    def __init__(
        self,
        *,
        version: int = 0,
        voters: list[VotersRecord.Voter] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class GroupMetadataKey(BaseMessage):
    group: str
    def __init__(
        self,
        *,
        group: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class GroupMetadataValue(BaseMessage):
    class MemberMetadata(Struct):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = '',
            group_instance_id: str | None = None,
            client_id: str = '',
            client_host: str = '',
            rebalance_timeout: int = -1,
            session_timeout: int = 0,
            subscription: bytes = b'',
            assignment: bytes = b'',
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: list[GroupMetadataValue.MemberMetadata]
    def __init__(
        self,
        *,
        protocol_type: str = '',
        generation: int = 0,
        protocol: str | None = '',
        leader: str | None = '',
        current_state_timestamp: int = -1,
        members: list[GroupMetadataValue.MemberMetadata] = ...,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class RequestHeader(BaseMessage):
    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None
    def __init__(
        self,
        *,
        request_api_key: int = 0,
        request_api_version: int = 0,
        correlation_id: int = 0,
        client_id: str | None = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class ResponseHeader(BaseMessage):
    correlation_id: int
    def __init__(
        self,
        *,
        correlation_id: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetCommitKey(BaseMessage):
    group: str
    topic: str
    partition: int
    def __init__(
        self,
        *,
        group: str = '',
        topic: str = '',
        partition: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class OffsetCommitValue(BaseMessage):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes
    def __init__(
        self,
        *,
        offset: int = 0,
        leader_epoch: int = -1,
        metadata: str = '',
        commit_timestamp: int = 0,
        expire_timestamp: int = -1,
        topic_id: bytes = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class DefaultPrincipalData(BaseMessage):
    type: str
    name: str
    token_authenticated: bool
    def __init__(
        self,
        *,
        type: str = '',
        name: str = '',
        token_authenticated: bool = False,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class TransactionLogKey(BaseMessage):
    transactional_id: str
    def __init__(
        self,
        *,
        transactional_id: str = '',
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

class TransactionLogValue(BaseMessage):
    class PartitionsSchema(Struct):
        topic: str
        partition_ids: list[int]
        def __init__(
            self,
            *,
            topic: str = '',
            partition_ids: list[int] = ...,
            unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
        ) -> None: ...

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    def __init__(
        self,
        *,
        producer_id: int = 0,
        previous_producer_id: int = -1,
        next_producer_id: int = -1,
        producer_epoch: int = 0,
        next_producer_epoch: int = -1,
        transaction_timeout_ms: int = 0,
        transaction_status: int = 0,
        transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = ...,
        transaction_last_update_timestamp_ms: int = 0,
        transaction_start_timestamp_ms: int = 0,
        client_transaction_version: int = 0,
        unknown_tagged_fields: list[tuple[int, bytes]] | None = None,
    ) -> None: ...

