"""The errors of jobs for their users, and the exit status of their processes."""

from __future__ import annotations

import re
from typing import Final

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2  # click's
NOT_THERE: Final = 3
DIFFERENCES: Final = 4
_RAISED: Final = re.compile(r"^(?:Caused by: |: )?([\w.$]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_LOST: Final = ("Some data may have been lost", "KAFKA_DATA_LOSS", "OffsetOutOfRange")
_NO_TOPIC: Final = ("UnknownTopicOrPartition", "UnknownTopicId")


class JobError(Exception):
    """The job failed. The message is one line for the user; `status` is the exit code."""

    status = FAILED


class NotThereError(JobError):
    """A requested object is missing: a topic, offsets that retention removed, a checkpoint of another topic."""

    status = NOT_THERE


def explained(error: Exception) -> JobError:
    """An error of Spark's as one line: the innermost cause, not the layers that wrapped it."""
    text = str(error)
    causes = [(kind, message) for kind, message in _RAISED.findall(text) if not kind.startswith("py4j.")]
    kind, message = causes[-1] if causes else ("", _first_line(error))
    if any(sign in text for sign in _LOST):
        return NotThereError(f"offsets are gone that were not read yet: {message}")
    if kind.endswith("NotThereError") or any(sign in text for sign in _NO_TOPIC):
        return NotThereError(message)
    return JobError(message)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
