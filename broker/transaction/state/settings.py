"""Broker properties of transactions, under Kafka's names and with the defaults of Kafka 3.9."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionSettings:
    """`transaction.*` of server.properties; dots are underscores."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 104_857_600
    transaction_state_log_load_buffer_size: int = 5_242_880
    request_timeout_ms: int = 30_000
