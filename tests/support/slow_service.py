"""A service beside the application under test: its responses take a while."""

from __future__ import annotations

import asyncio
import random
from typing import TypeVar

T = TypeVar("T")


async def respond(response: T, least_s: float, most_s: float) -> T:
    """The response, after a duration that is drawn."""
    await asyncio.sleep(random.uniform(least_s, most_s))
    return response
