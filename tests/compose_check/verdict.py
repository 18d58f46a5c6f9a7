"""The checks of compose-check; every function raises CheckError where its condition does not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.broker.runtime.open_files import RECOMMENDED
from tests.support.checker import History, Log, report

LEAST_ACKNOWLEDGED: Final = 1_000
"""Of the whole load: fewer records would show little of a fault that lasts for seconds."""
LOW_LIMIT: Final = "the open file limit is lower than recommended"
VOLUME: Final = "/var/lib/odradek"
READ_ONLY: Final = "Read-only file system"


class CheckError(Exception):
    """The state differs from docker-compose.yml and the Dockerfile; the message is for the user."""


def require(holds: bool, failure: str) -> None:
    """Raises CheckError with `failure` unless it holds."""
    if not holds:
        raise CheckError(failure)


def require_one_build(config: Mapping[str, Any], brokers: Sequence[str]) -> None:
    """Of all brokers exactly one has a build, and all run the image that it makes."""
    services = config["services"]
    built = [name for name in brokers if services[name].get("build")]
    require(len(built) == 1, f"the image is built once for each of {built}; one service must build it for all")
    images = {services[name].get("image") for name in brokers}
    require(len(images) == 1 and None not in images, f"the brokers run several images: {images}")


def require_image_health(image: Mapping[str, Any], containers: Mapping[str, Mapping[str, Any]]) -> None:
    """The image has a health check, every container runs that one on that image, and is healthy by it."""
    check = image["Config"].get("Healthcheck")
    require(bool(check and check.get("Test")), "the image has no HEALTHCHECK")
    for name, container in containers.items():
        require(container["Image"] == image["Id"], f"{name} runs another image than {image['Id']}")
        require(container["Config"].get("Healthcheck") == check, f"{name} has a health check of its own")
        status = container["State"].get("Health", {}).get("Status")
        require(status == "healthy", f"{name} is {status}")


def require_read_only(name: str, container: Mapping[str, Any], lines: Iterable[str]) -> None:
    """The container's root is read-only and its volume is not, and the broker tried to write to the volume only."""
    require(container["HostConfig"].get("ReadonlyRootfs") is True, f"the root of {name} is writable")
    writable = [mount["Destination"] for mount in container["Mounts"] if mount["RW"]]
    require(writable == [VOLUME], f"{name} can write to {writable}; the volume is {VOLUME}")
    rejected = [line for line in lines if READ_ONLY in line]
    require(not rejected, f"{name} tried to write outside its volume: {rejected[:3]}")


def require_limit_warning(name: str, limit: int, lines: Iterable[str]) -> None:
    """A broker logs once that its open file limit is low, and only where it is; limit and recommendation are named."""
    warnings = [line for line in lines if LOW_LIMIT in line]
    expected = 1 if limit < RECOMMENDED else 0
    require(len(warnings) == expected, f"{name} has the limit {limit} and logged {len(warnings)} warnings of it")
    for line in warnings:
        named = f"limit={limit} " in line and f"recommended={RECOMMENDED}" in line
        require(named, f"{name} warns without the limit {limit} and the recommended {RECOMMENDED}: {line}")


def require_nothing_lost(history: History, final: Sequence[Log]) -> int:
    """Every acknowledged record is in the final logs, and readers saw no other; returns how many there were."""
    acknowledged = history.acknowledged()
    require(
        acknowledged >= LEAST_ACKNOWLEDGED,
        f"only {acknowledged} records were acknowledged; {LEAST_ACKNOWLEDGED} are the least for a verdict",
    )
    anomalies = history.anomalies(final)
    require(not anomalies, report(anomalies))
    return acknowledged


def require_same_logs(before: Sequence[Log], after: Sequence[Log]) -> int:
    """Two readings of all partitions are equal, offset by offset; returns how many records they have."""
    require(len(before) == len(after), f"{len(before)} partitions before, {len(after)} after")
    for partition, (old, new) in enumerate(zip(before, after, strict=True)):
        missing = sorted(offset for offset, value in old.items() if new.get(offset) != value)
        require(not missing, f"partition {partition} lost or changed the records at {missing[:20]} ({len(missing)})")
        added = sorted(new.keys() - old.keys())
        require(not added, f"partition {partition} has more records than before, at {added[:20]} ({len(added)})")
    return sum(map(len, after))


def require_word_counts(printed: str, lines: Iterable[str], top: int) -> None:
    """The report of the pipeline has the `top` most frequent words of the text with their exact counts."""
    counts = Counter(word for line in lines for word in line.split())
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:top]
    found = [(word, int(count.replace(",", ""))) for word, count in map(str.split, printed.splitlines())]
    require(found == expected, f"the pipeline counted {found}, the text has {expected}")
