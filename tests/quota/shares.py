"""Measured rates as shares of their quotas, on Odradek and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TOLERANCE: Final = 0.05


def check(
    rates: Mapping[tuple[str, str], float], quotas: Mapping[str, float], *, kafkas_least: float = 1 - 2 * TOLERANCE
) -> None:
    """Each rate, by its quota and broker, is that of the quota. Kafka, which is not under test, shows that the time is
    measured at the right moments; `kafkas_least` is the share that it has to reach.
    """
    shares = {(name, side): rate / quotas[name] for (name, side), rate in sorted(rates.items())}
    print("\n".join(f"{name} {side} {share:.3f} of the quota" for (name, side), share in shares.items()))
    for (name, side), share in shares.items():
        least = 1 - TOLERANCE if side == "odradek" else kafkas_least
        assert least <= share <= 1 + (TOLERANCE if side == "odradek" else 2 * TOLERANCE), (name, side, shares)
