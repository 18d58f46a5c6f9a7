"""Every definition text agrees with the JSON inside Kafka's jars, field by field and version by version."""

from __future__ import annotations

import re
from typing import Any

import pytest

from odradek.protocol import messages
from odradek.protocol.compile import Shape, literal
from odradek.protocol.grammar import Field, Message, Versions, parse
from tests.protocol.kafka_definitions import RELEASES, FieldFacts, definitions, fields_at, versions

OURS: dict[str, Message] = {
    name: message
    for path in sorted(set(messages.texts().values()))
    for name, message in parse(path.read_text(encoding="utf-8"), path.name).items()
}

NOT_OURS = {
    r"(DescribeQuorum|Vote|(Begin|End)QuorumEpoch|FetchSnapshot|(Add|Remove|Update)RaftVoter)Re\w+": "KRaft quorum",
    r"(Broker|ControllerRegistration|UnregisterBroker|AssignReplicasToDirs)\w+": "KRaft quorum",
    r"QuorumStateData": "KRaft quorum, never on the wire",
    r"(GetTelemetrySubscriptions|PushTelemetry|ListConfigResources|ListClientMetricsResources)Re\w+": "later",
    r"(Share|(Initialize|Read|Write|Delete|Describe|Alter)ShareGroup)\w+": "share groups: later",
    r"StreamsGroup\w+": "streams groups: later",
}
"""Messages of Kafka that have no text here, and the reasons."""

OTHER_VERSIONS = {
    ("4.3.0", "InitProducerIdRequest"): (Versions(0, 5), "v6 is marked unstable in 4.3.0 and no broker offers it"),
    ("4.3.0", "InitProducerIdResponse"): (Versions(0, 5), "v6 is marked unstable in 4.3.0 and no broker offers it"),
}
"""Versions of a jar that differ from those of Odradek."""

RENAMED = {"LegacyOffsetCommitKey": "OffsetCommitKey", "LegacyOffsetCommitValue": "OffsetCommitValue"}
"""4.x split version 0 of these off under names of their own; the bytes are those of version 0."""

BY_ID = "4.3.0 marks the name ignorable since a newer version has topic ids in its place; ours follows"
TAGS = "a tag that 4.x added without a new version, and 3.9 reads as an unknown one"
OF_OURS = "a tag of our own, which Kafka reads as an unknown one"
OWN_FIELDS = {
    ("FetchRequest", "Topics.Partitions.CleanedTo"),
    ("FetchResponse", "Responses.Partitions.CompactedEverywhere"),
    ("FetchResponse", "Responses.Partitions.LeaderEpochs"),
    ("FetchResponse", "Responses.Partitions.LeaderEpochs.Epoch"),
    ("FetchResponse", "Responses.Partitions.LeaderEpochs.StartOffset"),
}
DIFFERENT = {
    **{(release, *field): OF_OURS for release in RELEASES for field in OWN_FIELDS},
    ("3.9.2", "ProduceRequest", "TopicData.Name"): BY_ID,
    ("3.9.2", "ProduceResponse", "Responses.Name"): BY_ID,
    ("3.9.2", "OffsetCommitRequest", "Topics.Name"): BY_ID,
    ("3.9.2", "OffsetCommitResponse", "Topics.Name"): BY_ID,
    ("3.9.2", "OffsetFetchRequest", "Groups.Topics.Name"): BY_ID,
    ("3.9.2", "OffsetFetchResponse", "Groups.Topics.Name"): BY_ID,
    ("3.9.2", "UpdateFeaturesResponse", "Results"): "4.3.0 marks it ignorable since v2 is without it; ours follows",
    (
        "4.3.0",
        "RequestHeader",
        "ClientId",
    ): "no longer ignorable, as it dropped header v0; ours keeps v0 and follows 3.9.2",
    ("3.9.2", "ConsumerGroupCurrentMemberAssignmentValue", "AssignedPartitions.AssignmentEpochs"): TAGS,
    ("3.9.2", "ConsumerGroupCurrentMemberAssignmentValue", "PartitionsPendingRevocation.AssignmentEpochs"): TAGS,
    ("3.9.2", "ConsumerGroupMetadataValue", "MetadataHash"): TAGS,
    ("3.9.2", "ConsumerGroupTargetAssignmentMetadataValue", "AssignmentTimestamp"): TAGS,
    ("3.9.2", "OffsetCommitValue", "topicId"): TAGS,
    ("3.9.2", "TransactionLogValue", "ClientTransactionVersion"): TAGS,
    ("3.9.2", "TransactionLogValue", "NextProducerEpoch"): TAGS,
    ("3.9.2", "TransactionLogValue", "NextProducerId"): TAGS,
    ("3.9.2", "TransactionLogValue", "PreviousProducerId"): TAGS,
}
"""Fields that a jar describes differently from Odradek, and the reasons."""


def ours_at(message: Message, version: int) -> list[FieldFacts]:
    shape = Shape(message, version)

    def walk(fields: tuple[Field, ...], prefix: str) -> list[FieldFacts]:
        found = []
        for field in fields:
            if not shape.has(field):
                continue
            path = prefix + field.name
            made: Any = {"[]": (), f"{field.type}()": "a new structure"}.get(literal(field), field.default)
            if field.absent_is_none:  # None stands for Kafka's structure of defaults
                made = "a new structure"
            found.append(
                FieldFacts(
                    path=path,
                    type=("[]" if field.is_array else "") + field.type,
                    nullable=version in field.nullable,
                    default=made,
                    tag=field.tag,
                    ignorable=field.ignorable,
                    inflexible=field.inflexible,
                )
            )
            if field.is_struct:
                found += walk(message.structs[field.type].fields, path + ".")
        return found

    return walk(message.root.fields, "")


def is_ours(name: str) -> bool:
    return not any(re.fullmatch(pattern, name) for pattern in NOT_OURS)


def our_version(definition: dict[str, Any], version: int) -> int:
    """The version in Odradek that has the bytes of a version in the jar: 4.x counts record types as API keys."""
    return int(definition["apiKey"]) if definition["type"] == "coordinator-key" else version


def pairs() -> list[tuple[str, str]]:
    return [(release, name) for release in RELEASES for name in sorted(definitions(release)) if is_ours(name)]


def test_every_message_of_kafka_is_defined_or_left_out_for_a_reason() -> None:
    theirs = {RENAMED.get(name, name) for release in RELEASES for name in definitions(release)}
    missing = sorted(name for name in theirs - OURS.keys() if is_ours(name))
    assert missing == []
    assert sorted(OURS.keys() - theirs) == []
    for pattern, reason in NOT_OURS.items():
        assert any(re.fullmatch(pattern, name) for name in theirs), f"nothing is left out for {reason}: {pattern}"


def test_a_field_of_odradek_alone_is_a_tag_that_kafka_does_not_use_and_may_be_lost() -> None:
    for name, path in OWN_FIELDS:
        if (name, path.rpartition(".")[0]) in OWN_FIELDS:
            continue  # within a tag of Odradek's own
        ours = OURS[name]
        found = {v: facts for v in ours.versions for facts in ours_at(ours, v) if facts.path == path}
        assert set(found) == set(ours.flexible & ours.versions)
        for facts in found.values():
            assert facts.tag is not None
            assert facts.tag > 10_000
            assert facts.ignorable


@pytest.mark.parametrize("release", RELEASES)
def test_fields_are_those_of_the_jars(release: str) -> None:
    used = set()
    for name in sorted(definitions(release)):
        if not is_ours(name):
            continue
        definition, ours = definitions(release)[name], OURS[RENAMED.get(name, name)]
        valid = versions(definition["validVersions"])
        known, _ = OTHER_VERSIONS.get((release, name), (valid, ""))
        for version in valid & known:
            mine = our_version(definition, version)
            assert mine in ours.versions, f"{release} {name} v{version}: not among our {ours.versions}"
            flexible = version in versions(definition.get("flexibleVersions"))
            assert (mine in ours.flexible) == flexible, f"{release} {name} v{version}: flexible"
            theirs, have = fields_at(definition, version), ours_at(ours, mine)
            odd = {facts.path for facts in {*theirs} ^ {*have}}
            explained = {path for jar, message, path in DIFFERENT if (jar, message) == (release, name)}
            assert odd <= explained, f"{release} {name} v{version}: {theirs} and not {have}"
            used |= {(release, name, path) for path in odd}
            order = [facts.path for facts in theirs if facts.path not in odd]
            assert [facts.path for facts in have if facts.path not in odd] == order, f"{release} {name} v{version}"
    unused = sorted(key for key in DIFFERENT if key[0] == release and key not in used)
    assert unused == [], "listed as different, and are the same"


def test_versions_are_the_union_of_those_of_the_jars() -> None:
    found: dict[str, set[int]] = {}
    for release, name in pairs():
        definition = definitions(release)[name]
        valid = versions(definition["validVersions"])
        known, _ = OTHER_VERSIONS.get((release, name), (valid, ""))
        found.setdefault(RENAMED.get(name, name), set()).update(our_version(definition, v) for v in valid & known)
    assert {name: set(message.versions) for name, message in OURS.items()} == found


def test_api_keys_are_those_of_the_jars() -> None:
    theirs = {
        name: definition["apiKey"]
        for release in RELEASES
        for name, definition in definitions(release).items()
        if definition["type"] in ("request", "response") and is_ours(name)
    }
    assert {name: message.key for name, message in OURS.items() if message.key is not None} == theirs


def test_request_and_response_of_an_api_have_the_same_versions() -> None:
    for api in messages.APIS.values():
        request, response = OURS[f"{api.name}Request"], OURS[f"{api.name}Response"]
        assert (request.versions, request.flexible, request.key) == (response.versions, response.flexible, api.key)


def test_a_comment_lists_the_changes_of_each_version() -> None:
    for path in sorted(set(messages.texts().values())):
        text = path.read_text(encoding="utf-8")
        notified = {int(version) for version in re.findall(r"^# v(\d+) ", text, re.MULTILINE)}
        wanted = set()
        for message in parse(text, path.name).values():
            wanted |= set(message.versions) - {message.versions.first}
        assert notified >= wanted, f"{path.name} has no comment on the changes of {sorted(wanted - notified)}"


def test_no_array_has_elements_of_no_bytes() -> None:
    """Otherwise a count could be correct without a byte behind it, and the check of counts would refuse it."""
    for message in OURS.values():
        for version in message.versions:
            shape = Shape(message, version)
            for struct in (message.root, *message.structs.values()):
                for field in shape.present(struct) + shape.tagged(struct):
                    if field.is_array and field.is_struct:
                        element = message.structs[field.type]
                        assert shape.flexible or shape.present(element), f"{message.name} v{version} {field.name}"
