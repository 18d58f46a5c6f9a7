"""For any bytes a decoder returns, or raises one ProtocolError that names field and position.

Valid messages of every API and record, in every version, are corrupted in typical ways, from fixed seeds; hypothesis
adds drawn bytes. No length or count makes a decoder allocate more than the bytes hold.
"""

from __future__ import annotations

import random
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol import messages
from odradek.protocol.errors import ProtocolError
from tests.protocol.corrupted import spoiled
from tests.protocol.samples import every_version, sample

SPOILED_COPIES = 100
"""How many corrupted copies of each message and version are read."""


def read(name: str, version: int, data: bytes) -> Any | None:
    """Decode, and check the guarantees of decoding; None where the bytes were refused."""
    error: ProtocolError | None = None
    try:
        message, end = getattr(messages, name).decode_prefix(data, version)
    except ProtocolError as refusal:
        message, end, error = None, refusal.position, refusal
    assert 0 <= end <= len(data)
    if error is not None:
        assert error.field.split(".")[0] == name
        assert "{" not in error.field
        assert error.reason
    return message


@pytest.mark.slow
def test_corrupted_messages_are_read_or_refused() -> None:
    rng = random.Random(3)
    read_anyway = refused = 0
    for name, version in every_version():
        data = sample(name, version, rng).encode(version)
        for _ in range(SPOILED_COPIES):
            message = read(name, version, spoiled(data, rng))
            if message is None:
                refused += 1
                continue
            read_anyway += 1
            # Decoded messages can be written, and from then on the bytes stay the same.
            written = message.encode(version)
            assert getattr(messages, name).decode(written, version).encode(version) == written
    assert refused > 20_000
    assert read_anyway > 10_000


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=st.sampled_from(every_version()), data=st.binary(max_size=200))
def test_drawn_bytes_are_read_or_refused(case: tuple[str, int], data: bytes) -> None:
    read(*case, data)


@pytest.mark.slow
@pytest.mark.memory
def test_no_length_allocates_more_than_the_bytes_hold() -> None:
    """Each place of each message in turn holds a huge length; allocations stay in proportion.

    In a process of its own: here threads of other tests may allocate meanwhile.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        alone.submit(check_allocations).result()


def check_allocations() -> None:
    """Raises AssertionError, with the message and the place, where there are too many bytes."""
    rng = random.Random(4)
    tracemalloc.start()
    for name, version in every_version():
        data = sample(name, version, rng).encode(version)[:2000]
        read(name, version, data[:-1])  # compiles both forms of the decoder, which is not measured
        places = rng.sample(range(len(data)), min(len(data), 2))
        for claim in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00\xff\xff\xff", b"\xff\xff\xff\x07"):
            for place in places:
                hostile = data[:place] + claim + data[place + len(claim) :]
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                read(name, version, hostile)
                _, peak = tracemalloc.get_traced_memory()
                assert peak - before < 20_000 + 100 * len(hostile), f"{name} v{version} at {place}: {peak - before}"
