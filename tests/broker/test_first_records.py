"""The shortest way through the broker: a topic, a write, a read."""

from __future__ import annotations

from odradek.protocol.batch import records
from tests.broker.wire import Client, batch


async def test_a_written_record_is_read_back(client: Client) -> None:
    await client.create_topic("first")
    written = await client.produce("first", batch(b"one", b"two"))
    assert (written.error_code, written.base_offset) == (0, 0)
    read = await client.fetch("first", 0)
    assert read.high_watermark == 2
    assert [record.value for record in records(read.records)] == [b"one", b"two"]
