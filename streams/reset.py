"""Application reset: makes an application read its topics anew (Kafka: kafka-streams-application-reset,
StreamsResetter, 3.9).

In this order: the reset fails if the group still has members, or removes them with `force`; the committed offsets of
input topics go to the beginning, or to `ResetTarget`, those of intermediate topics to the end; internal topics are
deleted. Internal topics are those whose names begin with the application id and end with the suffixes of internal
topics. Output topics and the state on the instances' disks stay: `KafkaStreams.clean_up` removes the latter.

    odradek streams reset --application-id counts --bootstrap-servers localhost:9092 --input-topics text
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from odradek.protocol import messages as m
from odradek.protocol.client.connection import code_of
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.config import PREFIXES, PROPERTIES
from odradek.streams.errors import StreamsError
from odradek.streams.functions import imported
from odradek.streams.group.authentication import security_of
from odradek.streams.group.connection import CoordinatorLink, parse_bootstrap

Offsets = dict[TopicPartition, int]
Say = Callable[[str], None]
TIMEOUT_S: Final = 60.0
DESCRIBE_TIMEOUT_S: Final = 10.0
_NONE: Final = -1
"""The broker's response where no record has such a timestamp or a later one."""
_INTERNAL: Final = re.compile(
    r".*-changelog|.*-repartition|.*-subscription-registration-topic|.*-subscription-response-topic"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d+-topic",
    re.DOTALL,
)
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?(?:(?P<seconds>[-+]?\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class ResetError(StreamsError):
    """The application was not reset, or not completely; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The target position in input topics. `number` is an offset, ms since the epoch, or a number of records to
    skip.
    """

    kind: Literal["earliest", "latest", "offset", "time", "shift", "plan"] = "earliest"
    number: int = 0
    plan: Mapping[TopicPartition, int] = field(default_factory=dict)
    """An offset for each partition of the input topics."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The reset to perform. `internal_topics` limits the topics to delete; none means all of them."""

    application_id: str
    bootstrap_servers: str
    input_topics: Sequence[str] = ()
    intermediate_topics: Sequence[str] = ()
    internal_topics: Sequence[str] = ()
    position: ResetTarget = ResetTarget()
    force: bool = False
    dry_run: bool = False
    client: Mapping[str, Any] = field(default_factory=dict)
    """Further properties of librdkafka, such as those for authentication; those of an application that concern no
    administrator have no effect.
    """


def reset(what: Reset, say: Say = print) -> bool:
    """Reset the application, and report the actions. Returns False for a missing topic; all other actions are done
    then.

    Raises ResetError.
    """
    client = of_administrator(what.client)
    try:
        if isinstance(client.get("oauth_cb"), str):
            client["oauth_cb"] = imported(client["oauth_cb"])
        what = replace(what, client=client)
        admin = AdminClient({**client, "bootstrap.servers": what.bootstrap_servers})
    except (KafkaException, ValueError, TypeError) as error:
        raise ResetError(f"a property of the client is wrong: {_text_of(error)}") from error
    try:
        _remove_members(admin, what, say)
        existing = admin.list_topics(timeout=TIMEOUT_S).topics
        topics = {name: sorted(each.partitions) for name, each in existing.items() if each.error is None}
        if what.dry_run:
            say("---- A dry run: the following actions are not performed ----")
        complete = _reset_offsets(admin, what, topics, say)
        _delete_topics(admin, what, sorted(topics), say)
    except (KafkaException, TimeoutError, OSError, KafkaError, ProtocolError) as error:
        raise ResetError(f"the cluster at {what.bootstrap_servers}: {_text_of(error)}") from error
    return complete


def of_administrator(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of librdkafka among these properties of an application: those of its administrator."""
    prefix = "admin.client."
    own = {
        name: value
        for name, value in properties.items()
        if (name not in PROPERTIES or name == "client.id") and not name.startswith((*PREFIXES, "client.tag."))
    }
    narrower = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    return {**own, **narrower}


def internal_topics(application_id: str, topics: Iterable[str]) -> list[str]:
    """The internal topics of the application among these topics, by their names."""
    prefix = f"{application_id}-"
    return [topic for topic in topics if topic.startswith(prefix) and _INTERNAL.fullmatch(topic)]


# ---- the group


def _remove_members(admin: AdminClient, what: Reset, say: Say) -> None:
    described = admin.describe_consumer_groups([what.application_id], request_timeout=DESCRIBE_TIMEOUT_S)
    members = described[what.application_id].result(TIMEOUT_S).members
    if not members:
        return
    if not what.force:
        detail = ", ".join(f"{each.member_id} ({each.host})" for each in members)
        raise ResetError(
            f"The group {what.application_id} still has members: {detail}. Stop all instances of the application "
            "before it is reset. Members that are gone, but not missed yet, are removed with --force."
        )
    say(f"Removing all members of the group {what.application_id}")
    leaving = [
        m.LeaveGroupRequest.MemberIdentity(
            member_id="" if each.group_instance_id else each.member_id,
            group_instance_id=each.group_instance_id or None,
            reason="the application is reset",
        )
        for each in members
    ]
    try:
        bootstrap, security = parse_bootstrap(what.bootstrap_servers), security_of(what.client)
    except StreamsError as error:
        raise ResetError(str(error)) from error
    link = CoordinatorLink(bootstrap, what.application_id, "reset", DESCRIBE_TIMEOUT_S, security)
    try:
        answer: m.LeaveGroupResponse = link.ask(m.LeaveGroupRequest(group_id=what.application_id, members=leaving))
    finally:
        link.forget()
    codes = {code_of(answer.error_code), *(code_of(each.error_code) for each in answer.members)}
    refused = codes - {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}
    if refused:
        raise ResetError(f"members were not removed: {', '.join(sorted(code.name for code in refused))}")


# ---- offsets


def _reset_offsets(admin: AdminClient, what: Reset, topics: Mapping[str, list[int]], say: Say) -> bool:
    """Returns whether all topics exist."""
    if not what.input_topics and not what.intermediate_topics:
        say("No input or intermediate topics are named: offsets stay.")
        return True
    if what.input_topics:
        say(f"Setting offsets of the input topics {', '.join(what.input_topics)}")
    if what.intermediate_topics:
        say(f"Setting offsets of the intermediate topics {', '.join(what.intermediate_topics)} to the end")
    missing = False
    for kind, names in (("input", what.input_topics), ("intermediate", what.intermediate_topics)):
        absent = [name for name in names if name not in topics]
        if absent:
            missing = True
            say(f"These {kind} topics are not there, and passed over:")
            for name in absent:
                say(f"Topic: {name}")
    intermediate = _partitions(what.intermediate_topics, topics)
    inputs = [place for place in _partitions(what.input_topics, topics) if place not in set(intermediate)]
    if inputs or intermediate:
        _commit(admin, what, inputs, intermediate, say)
    return not missing


def _commit(
    admin: AdminClient, what: Reset, inputs: list[TopicPartition], intermediate: list[TopicPartition], say: Say
) -> None:
    ends = _ask(admin, inputs + intermediate, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    wanted: Offsets = {}
    if inputs:
        say(f"Offsets of the group {what.application_id} in input topics:")
        wanted = _positions(admin, what, inputs, ends, say)
        for (topic, partition), offset in wanted.items():
            say(f"Topic: {topic} Partition: {partition} Offset: {offset}")
    if intermediate:
        say(f"Intermediate topics whose offsets go to the end, of the group {what.application_id}:")
        for topic in dict.fromkeys(topic for topic, _ in intermediate):
            say(f"Topic: {topic}")
        wanted.update((place, ends[place]) for place in intermediate)
    if not what.dry_run:
        places = [Place(topic, partition, offset) for (topic, partition), offset in wanted.items()]
        asked = ConsumerGroupTopicPartitions(what.application_id, places)
        done = admin.alter_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)
        failed = [place for place in done[what.application_id].result(TIMEOUT_S).topic_partitions if place.error]
        if failed:
            detail = "; ".join(f"{place.topic}-{place.partition}: {place.error.str()}" for place in failed)
            raise ResetError(f"Resetting offsets failed: {detail}")
    say("Done.")


def _positions(admin: AdminClient, what: Reset, inputs: list[TopicPartition], ends: Offsets, say: Say) -> Offsets:
    """The target offset of each partition, within the offsets that it has."""
    position = what.position
    if position.kind == "latest":
        return {place: ends[place] for place in inputs}
    begins = _ask(admin, inputs, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    if position.kind == "earliest":
        return begins
    if position.kind == "time":
        found = _ask(admin, inputs, OffsetSpec.for_timestamp(position.number))
        for topic, partition in (place for place in inputs if found[place] == _NONE):
            say(f"{topic}-{partition} has no record of that time or later; its end is taken")
        return {place: ends[place] if found[place] == _NONE else found[place] for place in inputs}
    if position.kind == "shift":
        committed = _committed(admin, what.application_id, inputs)
        asked = {place: committed.get(place, ends[place]) + position.number for place in inputs}
    elif position.kind == "plan":
        left_out = [f"{topic}-{partition}" for topic, partition in inputs if (topic, partition) not in position.plan]
        if left_out:
            raise ResetError(f"the reset plan has no offset for {', '.join(left_out)}")
        asked = {place: position.plan[place] for place in inputs}
    else:
        asked = dict.fromkeys(inputs, position.number)
    return {place: clipped(offset, begins[place], ends[place], say) for place, offset in asked.items()}


def clipped(offset: int, begin: int, end: int, say: Say) -> int:
    """An offset within the first and the end offset of a partition."""
    if offset >= end:
        if offset > end:
            say(f"Offset {offset} lies behind the end; it is set to {end}")
        return end
    if offset <= begin:
        if offset < begin:
            say(f"Offset {offset} lies before the beginning; it is set to {begin}")
        return begin
    return offset


def _partitions(names: Iterable[str], topics: Mapping[str, list[int]]) -> list[TopicPartition]:
    return [(name, partition) for name in dict.fromkeys(names) for partition in topics.get(name, ())]


def _ask(admin: AdminClient, places: list[TopicPartition], spec: Any) -> Offsets:
    if not places:
        return {}
    futures = admin.list_offsets({Place(*place): spec for place in places}, request_timeout=TIMEOUT_S)
    found = {(place.topic, place.partition): future.result(TIMEOUT_S).offset for place, future in futures.items()}
    return {place: found[place] for place in places}


def _committed(admin: AdminClient, group: str, places: list[TopicPartition]) -> Offsets:
    asked = ConsumerGroupTopicPartitions(group, [Place(*place) for place in places])
    found = admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)[group].result(TIMEOUT_S)
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0}


# ---- internal topics


def _delete_topics(admin: AdminClient, what: Reset, topics: Sequence[str], say: Say) -> None:
    named = {*what.input_topics, *what.intermediate_topics}
    inferred = [topic for topic in internal_topics(what.application_id, topics) if topic not in named]
    if what.internal_topics:
        strange = set(what.internal_topics) - set(inferred)
        if strange:
            raise ResetError(
                f"Not topics that the application has made for itself: {', '.join(sorted(strange))}. A dry run without "
                "--internal-topics shows which there are."
            )
        doomed = list(dict.fromkeys(what.internal_topics))
        say(f"Deleting the internal topics that were named: {', '.join(doomed)}")
    else:
        doomed = inferred
        say(f"Deleting internal topics: {', '.join(doomed) or 'there are none'}")
    if what.dry_run or not doomed:
        return
    failed = []
    for topic, future in admin.delete_topics(doomed, request_timeout=TIMEOUT_S).items():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            say(f"ERROR: {topic} was not deleted: {_text_of(error)}")
            failed.append(topic)
    if failed:
        raise ResetError(f"Topics were not deleted: {', '.join(failed)}")


# ---- user input


def moment_ms(text: str) -> int:
    """`YYYY-MM-DDTHH:mm:SS.sss`, in UTC unless it names a zone, as ms since the epoch. Raises ValueError."""
    if "T" not in text:
        raise ValueError(f"{text!r} does not contain a 'T' according to ISO 8601")
    found = datetime.fromisoformat(text)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def before_ms(duration: str, now_ms: int | None = None) -> int:
    """`PnDTnHnMnS` before now, as ms since the epoch. Raises ValueError."""
    found = _DURATION.fullmatch(duration)
    parts = {} if found is None else {unit: found[unit] for unit in _UNITS_MS if found[unit] is not None}
    if found is None or not parts:
        raise ValueError(f"{duration!r} is not PnDTnHnMnS")
    total = round(sum(float(number) * _UNITS_MS[unit] for unit, number in parts.items()))
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return now - (-total if found["sign"] == "-" else total)


def read_plan(path: Path) -> dict[TopicPartition, int]:
    """A file of lines `TOPIC,PARTITION,OFFSET`. Raises ValueError, OSError."""
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    if not rows:
        raise ValueError(f"the plan {path} is empty")
    try:
        return {(topic.strip(), int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError:
        raise ValueError(f"a line of the plan {path} is not TOPIC,PARTITION,OFFSET") from None


def _text_of(error: Exception) -> str:
    problem = error.args[0] if error.args else error
    detail = getattr(problem, "str", None)
    return str(detail()) if detail is not None else str(error) or type(error).__name__
