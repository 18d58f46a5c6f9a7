"""Errors of these clients: those of confluent-kafka, which the runtime handles."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from odradek.protocol.client.connection import code_of


def described(code: int, detail: str = "") -> str:
    """The name of a broker's error code, with a detail."""
    name = code_of(code).name
    return f"{name}: {detail}" if detail else name


def error_of_code(code: int, detail: str = "") -> KafkaError:
    """The error of a code on the wire, which is not one that aborts a transaction or that is fatal."""
    return KafkaError(code, described(code, detail))


def failure(
    code: int, reason: str, *, retriable: bool = False, abort: bool = False, fatal: bool = False
) -> KafkaException:
    """An exception to raise. `abort`: the transaction has to be aborted; `fatal`: the client is unusable."""
    return KafkaException(KafkaError(code, reason, fatal, retriable, abort))


def timed_out(what: str) -> KafkaException:
    """The exception of a call that may be repeated."""
    return failure(KafkaError._TIMED_OUT, f"{what}: timed out", retriable=True)
