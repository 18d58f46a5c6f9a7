"""Compares the functions for whole batches in C with those in Python: plain batches, and batches of the broker itself.

The tests run a few thousand comparisons. A campaign of any length, on a build with sanitizers, is a part of

    make sanitize ARGS="--rounds 1000 --seed 7"
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Final

from odradek.protocol import own_batch, plain_batch
from odradek.protocol.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE, Record, build
from odradek.protocol.checksum import crc32c
from tests.protocol.codec_differences import load

BATCHES_A_ROUND: Final = 1_000


def random_batch(rng: random.Random) -> bytearray:
    """A batch of a client, in half of the cases with some wrong bytes, most of them in the header; some of these have
    the right checksum.
    """
    records = [
        Record(
            number,
            1_700_000_000_000 + rng.randint(-5, 5),
            rng.choice((None, b"", b"k")),
            rng.randbytes(rng.randint(0, 80) if rng.random() < 0.99 else rng.randint(3900, 4200)),
        )
        for number in range(rng.randint(1, 4))
    ]
    batch = build(records, producer_id=rng.choice((-1, 7)), producer_epoch=0, base_sequence=rng.choice((-1, 0, 9)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(HEADER_SIZE) if rng.random() < 0.7 else rng.randrange(len(batch))
        batch[at] = rng.choice((0, 1, 2, 0x10, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    if rng.random() < 0.2:
        batch = batch[: rng.randrange(len(batch))] if rng.random() < 0.5 else batch + b"more"
    if len(batch) > HEADER_SIZE and rng.random() < 0.7:
        checked = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
        batch[CRC_POSITION:ATTRIBUTES_POSITION] = checked.to_bytes(4, "big")
    return batch


def compare_plain(rng: random.Random) -> bool:
    """Whether a random batch is a plain one. Raises AssertionError where C and Python differ."""
    batch = random_batch(rng)
    view = memoryview(batch) if rng.random() < 0.5 else memoryview(bytes(batch))
    found, expected = plain_batch.plain_header(view), plain_batch.plain_header_in_python(view)
    assert (found, type(found)) == (expected, type(expected)), batch.hex()
    return found is not None


def compare_own(rng: random.Random) -> None:
    """Make one batch with both. Raises AssertionError where C and Python differ."""
    sizes = (0, 1, 61, 62, 63, 64, 127, 128, 8190, 8191, 8192)
    entries: own_batch.Entries = [
        (rng.randbytes(rng.choice(sizes[:8])), None if rng.random() < 0.2 else rng.randbytes(rng.choice(sizes)))
        for _ in range(rng.choice((1, 1, 1, 2, 3, 130)))
    ]
    now_ms = rng.choice((0, 1_700_000_000_000, 2**62))
    assert own_batch.own_batch(entries, now_ms) == own_batch.own_batch_in_python(entries, now_ms), entries


def main() -> None:
    """Run a campaign. Raises AssertionError with the first difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10, help=f"each compares {BATCHES_A_ROUND} batches")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path, help="the folder of another build of the extensions")
    arguments = parser.parse_args()
    if arguments.library is not None:
        load(arguments.library, "_chain", plain_batch)
        load(arguments.library, "_chain", own_batch)
    rng = random.Random(arguments.seed)
    for number in range(1, arguments.rounds + 1):
        plain = 0
        for _ in range(BATCHES_A_ROUND):
            plain += compare_plain(rng)
            if rng.random() < 0.1:
                compare_own(rng)
        print(f"round {number}: {BATCHES_A_ROUND} batches, {plain} of them plain, no differences", flush=True)


if __name__ == "__main__":
    main()
