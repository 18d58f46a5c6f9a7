"""What tests do to the checkpoints of Spark's queries."""

from __future__ import annotations

from pathlib import Path


def forget_last_commit(checkpoint: Path) -> None:
    """As if the job had been killed after its last batch was written, and before Spark took note of that."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
