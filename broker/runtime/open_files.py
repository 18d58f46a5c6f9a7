"""Open file limit: raises the soft limit to the hard limit, and warns if it is lower than Kafka recommends.

Every connection needs two descriptors and every segment a few. Container engines, rootless ones and CI sandboxes above
all, may grant fewer than a server needs; the broker starts with what the engine grants.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from typing import Final

log = logging.getLogger("odradek.broker")

RECOMMENDED: Final = 100_000
"""What Kafka's documentation recommends for a broker process as a starting point (section "OS")."""


def raise_open_file_limit() -> None:
    """Raises the soft limit to the hard limit, as far as the system grants it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_low_open_file_limit() -> None:
    """Logs one warning when the process may open fewer files than RECOMMENDED."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < RECOMMENDED:
        log.warning(
            "the open file limit is lower than recommended; raise the hard limit (ulimit -Hn, LimitNOFILE of systemd, "
            "ulimits of a container) before the broker holds many partitions or connections",
            extra={"limit": soft, "recommended": RECOMMENDED},
        )
