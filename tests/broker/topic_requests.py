"""Requests about topics."""

from __future__ import annotations

from odradek.protocol import messages as m
from tests.broker.wire import Client


async def metadata(
    client: Client, *names: str, version: int = 12, auto_create: bool = False
) -> list[m.MetadataResponse.MetadataResponseTopic]:
    wanted = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create or version < 4)
    topics: list[m.MetadataResponse.MetadataResponseTopic] = (await client.ask(request, version)).topics
    return topics
