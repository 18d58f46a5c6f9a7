"""The intended differences between Odradek's responses and those of Apache Kafka 3.9.2, with reasons.

Each entry matches a set of differences. One that no response needs any more fails the test, so the list is up to date;
docs/compatibility.md has these reasons in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from odradek.protocol.errors import ErrorCode
from tests.comparison.answers import SILENT, differences
from tests.comparison.side import Step


class Difference(NamedTuple):
    """One place in which two responses differ. Both whole responses are in it, too."""

    theirs_step: Step
    ours_step: Step
    path: str
    ours: Any
    theirs: Any

    @property
    def api(self) -> str:
        return self.theirs_step.api

    @property
    def version(self) -> int:
        return self.theirs_step.version

    @property
    def notified(self) -> str:
        return self.theirs_step.notified

    def __str__(self) -> str:
        what = f"{self.api} v{self.version} {self.notified}"
        return f"{what}\n    {self.path}\n      Kafka:   {self.theirs!r}\n      Odradek: {self.ours!r}"


class Intended(NamedTuple):
    """An intended difference. `reason` is its text in the documentation."""

    name: str
    reason: str
    covers: Callable[[Difference], bool]


ABORTED: Final = {"guards"}
"""Groups of the scenario whose only offsets were those of aborted transactions."""


REASSIGNED: Final = 3
"""How often the scenario reassigns a partition of the topic `elected` to the replicas that it has."""


def codes(answer: Any) -> Iterator[int]:
    """Every error code in an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code") and isinstance(value, int):
                yield value
            else:
                yield from codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from codes(each)


def _unanswered(d: Difference) -> bool:
    return d.theirs == SILENT and not d.path


def _named_fault(d: Difference) -> bool:
    ours, theirs = list(codes(d.ours_step.answer)), list(codes(d.theirs_step.answer))
    return ErrorCode.UNKNOWN_SERVER_ERROR in theirs and any(code > 0 for code in ours)


def _made_on_demand(d: Difference) -> bool:
    asked_too_early = ErrorCode.LEADER_NOT_AVAILABLE in codes(d.theirs_step.answer)
    return d.api == "Metadata" and d.path.startswith("topics") and asked_too_early


def _newer_versions(d: Difference) -> bool:
    if d.api != "ApiVersions" or not isinstance(d.ours_step.answer, dict):
        return False
    ours = {each["api_key"]: each for each in d.ours_step.answer["api_keys"]}
    all_there = all(
        each["api_key"] in ours
        and ours[each["api_key"]]["min_version"] <= each["min_version"]
        and ours[each["api_key"]]["max_version"] >= each["max_version"]
        for each in d.theirs_step.answer["api_keys"]
    )
    return all_there and ("api_keys" in d.path or "features" in d.path)


def _offsets_of_version_0(d: Difference) -> bool:
    return d.version == 0 and d.api in ("OffsetCommit", "OffsetFetch")


def _groups_of_version_0(d: Difference) -> bool:
    named = "late-0" in f"{d.ours}{d.notified}" or (d.version == 0 and "late-{v}" in d.notified)
    return named and d.api in ("ListGroups", "DeleteGroups", "DescribeGroups")


def _empty_groups(d: Difference) -> bool:
    listed = d.api == "ListGroups" and d.path == "groups" and not d.ours
    return listed and all(group["group_id"] in ABORTED for group in d.theirs)


def _start_of_the_one_before(d: Difference) -> bool:
    listed = d.api == "ListTransactions" and "duration_filter" in d.notified and not d.theirs
    return listed or (d.path.endswith("transaction_start_time_ms") and d.theirs == "now" and d.ours == -1)


def _moved_nowhere(d: Difference) -> bool:
    notified = d.api == "Metadata" and d.path.endswith("leader_epoch") and "'elected'" in str(d.ours_step.answer)
    return notified and d.ours == 0 and d.theirs == REASSIGNED


def _named_twice(d: Difference) -> bool:
    return d.api in ("Produce", "Fetch") and "'twice'" in d.notified


def _classes(d: Difference) -> bool:
    return d.api == "IncrementalAlterConfigs" and "no.such.Class" in d.notified


def _missing_broker(d: Difference) -> bool:
    return d.api == "CreateTopics" and "'on-no-broker'" in d.notified


INTENDED: Final = (
    Intended(
        "Requests that Kafka never answers",
        "Kafka 3.9.2 leaves a few malformed requests without any answer and the connection open: records that are "
        "null, an empty list of groups or transactions, a resource twice in AlterConfigs, a partition twice in "
        "WriteTxnMarkers. Odradek answers them.",
        _unanswered,
    ),
    Intended(
        "UNKNOWN_SERVER_ERROR",
        "Where Kafka fails inside on a request and returns UNKNOWN_SERVER_ERROR, Odradek returns the error code of "
        "the fault. Clients give up on either.",
        _named_fault,
    ),
    Intended(
        "Topics made on demand",
        "Odradek answers a Metadata request that creates a topic once the topic exists. Kafka answers "
        "LEADER_NOT_AVAILABLE at once, and the client retries. Odradek returns that, too, while the controller cannot "
        "be reached and on a broker to which the controller has not sent metadata yet: Kafka answers "
        "UNKNOWN_TOPIC_OR_PARTITION or INVALID_REPLICATION_FACTOR there, also for topics that exist, and a broker "
        "without metadata returns no broker, not even itself. librdkafka then fails the writes, or has no broker left "
        "to connect to.",
        _made_on_demand,
    ),
    Intended(
        "Versions and features",
        "ApiVersions returns the APIs, versions and features of Kafka 4.3 as well, and the epoch of the features "
        "counts differently. Newer clients need them, older ones choose the versions that they support.",
        _newer_versions,
    ),
    Intended(
        "A partition twice in one request",
        "Of a partition that is twice in a Produce request Kafka writes the last batch and drops the other without an "
        "error, and a Fetch is answered once. Odradek writes and answers both: no client sends such requests, and a "
        "check would cost every request.",
        _named_twice,
    ),
    Intended(
        "Offsets of version 0",
        "OffsetCommit and OffsetFetch in version 0 were made for offsets in ZooKeeper, where Kafka still keeps them. "
        "Odradek keeps them with those of all other versions, so a client of 0.8.1 and a newer one see the same.",
        _offsets_of_version_0,
    ),
    Intended(
        "Groups of version 0",
        "A group that has committed offsets in version 0 only is therefore a group like others in Odradek, and no "
        "group in Kafka.",
        _groups_of_version_0,
    ),
    Intended(
        "Groups that hold nothing",
        "Odradek removes a group without members and offsets (for example after an aborted transaction) at once. "
        "Kafka lists it until it cleans up: every ten minutes, and when a topic is deleted.",
        _empty_groups,
    ),
    Intended(
        "The start of a transaction that is over",
        "For a transaction that is empty since its producer came back, Kafka returns the start time of the one before "
        "it, until it has loaded the log anew. Odradek returns at once that there is none.",
        _start_of_the_one_before,
    ),
    Intended(
        "Reassignment to where a partition is",
        "Kafka gives a partition a new leader epoch for every reassignment to the replicas that it has already, so "
        "that its clients request the leader anew. Odradek does not change the partition.",
        _moved_nowhere,
    ),
    Intended(
        "Replicas on brokers that are not there",
        "Odradek rejects a topic whose assignment names a broker that does not exist, as Kafka does since KRaft. "
        "Kafka 3.9 with ZooKeeper creates it, without a leader.",
        _missing_broker,
    ),
    Intended(
        "Classes",
        "Kafka rejects a property whose value is the name of a Java class that it cannot load. Odradek has no classes "
        "to load and keeps the name.",
        _classes,
    ),
)


def compare(ours: Step, theirs: Step) -> list[Difference]:
    """All differences of two responses to one request."""
    return [Difference(theirs, ours, *each) for each in differences(ours.answer, theirs.answer)]


def explanation(difference: Difference) -> Intended | None:
    """The entry that matches this difference."""
    return next((each for each in INTENDED if each.covers(difference)), None)
