"""Producer id blocks: allocates producer ids that no other broker gets (KIP-730; Kafka: ZkProducerIdManager)."""

from __future__ import annotations

from typing import Final

from odradek.broker.controller.state.context import Context
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import BadVersionError, Check, Registry, Set
from odradek.protocol.errors import ErrorCode, KafkaError

PRODUCER_IDS_IN_BLOCK: Final = 1000


async def allocate_block(registry: Registry, context: Context, broker_id: int, broker_epoch: int) -> range:
    """Allocate the next block of producer ids to a broker.

    Raises KafkaError with BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH, and RegistryError.
    """
    broker = context.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"the epoch of broker {broker_id} is {broker.epoch}")
    while True:
        data, stat = await registry.get(znodes.PRODUCER_ID_BLOCK)
        first = znodes.ProducerIdBlock.decode(data).last + 1 if data else 0
        last = first + PRODUCER_IDS_IN_BLOCK - 1
        block = znodes.ProducerIdBlock(broker_id, first, last).encode()
        check = Check(znodes.CONTROLLER_EPOCH, context.epoch_version)
        try:
            await registry.multi([check, Set(znodes.PRODUCER_ID_BLOCK, block, stat.version)])
        except BadVersionError as error:
            if error.path == znodes.CONTROLLER_EPOCH:
                raise
            continue
        return range(first, last + 1)
