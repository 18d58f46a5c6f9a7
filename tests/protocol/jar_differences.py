"""Where the definitions differ from those in the jars of Kafka, and why."""

from __future__ import annotations

import re
from typing import Any

from odradek.protocol.grammar import Versions
from tests.protocol.kafka_definitions import RELEASES

NOT_OURS = {
    r"(Vote|(Begin|End)QuorumEpoch|FetchSnapshot|(Add|Remove|Update)RaftVoter)Re\w+": "KRaft quorum",
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


def is_ours(name: str) -> bool:
    return not any(re.fullmatch(pattern, name) for pattern in NOT_OURS)


def our_version(definition: dict[str, Any], version: int) -> int:
    """The version in Odradek that has the bytes of a version in the jar: 4.x counts record types as API keys."""
    return int(definition["apiKey"]) if definition["type"] == "coordinator-key" else version
