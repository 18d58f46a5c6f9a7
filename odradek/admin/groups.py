"""Groups: list, describe, delete, remove members (Kafka: Admin.listGroups, describeConsumerGroups and others).

Groups of the classic and of the consumer protocol (KIP-848) have different descriptions in the protocol; a
`GroupDescription` is that of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.admin.client import GROUP, AdminClient, check, error_of, outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"
EMPTY: Final = "Empty"
SEVERAL_MEMBERS: Final = 3
"""The first version of LeaveGroup with several members, and with static ones."""
_TYPED: Final = 5
_WITH_STATE: Final = 4
"""The first versions of ListGroups with the type (KIP-848) and with the state (KIP-518) of groups."""

Assignment = Mapping[str, tuple[int, ...]]
"""The partitions of each topic."""


class GroupListing(NamedTuple):
    """A group in a list; `state` and `type` are empty where the broker is older than them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Assignment
    target_assignment: Assignment | None
    """What the coordinator wants the member to have; None in the classic protocol."""
    epoch: int | None


class GroupDescription(NamedTuple):
    """A group and its members."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    coordinator: int
    assignor: str
    epoch: int | None
    """The group epoch of the consumer protocol; None in the classic one."""
    members: tuple[MemberDescription, ...]


class GroupLists(NamedTuple):
    """The groups of all coordinators, and the errors of brokers that did not return theirs."""

    groups: list[GroupListing]
    errors: dict[int, Exception]


def list_groups(client: AdminClient, states: Sequence[str] = (), types: Sequence[str] = ()) -> GroupLists:
    """The groups of every broker, by id, in any of `states` and of any of `types`."""

    def request(version: int) -> m.ListGroupsRequest:
        return m.ListGroupsRequest(
            states_filter=list(states) if version >= _WITH_STATE else [],
            types_filter=list(types) if version >= _TYPED else [],
        )

    def attempt() -> GroupLists:
        brokers = client.broker_ids()
        requests = {each: request(client.version_at(each, m.ListGroupsRequest)) for each in brokers}
        groups: dict[str, GroupListing] = {}
        errors: dict[int, Exception] = {}
        for broker_id, answer in client.brokers(requests).items():
            if isinstance(answer, Exception):
                errors[broker_id] = answer
            elif answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise error_of(answer.error_code)
            elif answer.error_code:
                errors[broker_id] = error_of(answer.error_code)
            else:
                for each in answer.groups:
                    groups[each.group_id] = GroupListing(
                        each.group_id, each.protocol_type, each.group_state, each.group_type
                    )
        return GroupLists([groups[name] for name in sorted(groups)], errors)

    return client.call(attempt)


def describe_groups(client: AdminClient, group_ids: Sequence[str]) -> dict[str, GroupDescription | KafkaError]:
    """The groups of these ids; GROUP_ID_NOT_FOUND for one that does not exist."""

    def attempt(pending: list[str]) -> dict[str, GroupDescription | KafkaError]:
        results: dict[str, GroupDescription | KafkaError] = {}
        for broker_id, group in _by_coordinator(client, pending, results).items():
            newer = client.version_at(broker_id, m.ConsumerGroupDescribeRequest) >= 0
            if newer:
                results |= _of_consumer_protocol(client, broker_id, group)
            classic = [each for each in group if not newer or _is_not_of_consumer_protocol(results[each])]
            if classic:
                results |= _of_classic_protocol(client, broker_id, classic)
        return results

    return client.each(group_ids, attempt)


def delete_groups(client: AdminClient, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
    """Delete groups that have no members, with their committed offsets."""

    def attempt(pending: list[str]) -> dict[str, KafkaError | None]:
        results: dict[str, KafkaError | None] = {}
        for broker_id, group in _by_coordinator(client, pending, results).items():
            answer = client.broker(broker_id, m.DeleteGroupsRequest(groups_names=group))
            results |= {each.group_id: outcome(None, each.error_code) for each in answer.results}
        return results

    return client.each(group_ids, attempt)


def remove_members(
    client: AdminClient, group_id: str, members: Sequence[MemberDescription], reason: str
) -> dict[str, KafkaError | None]:
    """Remove members from a group of the classic protocol; the result of each by its member id.

    A static member (with an instance id) is removed by its instance id, as Kafka's AdminClient does it.
    """
    identity = m.LeaveGroupRequest.MemberIdentity

    def attempt() -> dict[str, KafkaError | None]:
        coordinator = coordinator_of(client, group_id)
        leaving = [
            identity(
                member_id="" if each.instance_id else each.member_id,
                group_instance_id=each.instance_id,
                reason=f"member was removed by an admin: {reason}",
            )
            for each in members
        ]
        answer = client.broker(coordinator, m.LeaveGroupRequest(group_id=group_id, members=leaving))
        check(answer.error_code)
        codes = {(each.group_instance_id or each.member_id): each.error_code for each in answer.members}
        return {each.member_id: outcome(None, codes.get(each.instance_id or each.member_id, 0)) for each in members}

    return client.call(attempt)


def coordinator_of(client: AdminClient, group_id: str) -> int:
    """The broker id of a group's coordinator. Raises KafkaError."""
    found = client.coordinators(GROUP, [group_id])[group_id]
    if isinstance(found, KafkaError):
        raise found
    return found


def _by_coordinator(client: AdminClient, group_ids: Sequence[str], errors: dict[str, Any]) -> dict[int, list[str]]:
    """The groups by their coordinator; those without one go into `errors`."""
    groups: dict[int, list[str]] = {}
    for group_id, found in client.coordinators(GROUP, group_ids).items():
        if isinstance(found, KafkaError):
            errors[group_id] = found
        else:
            groups.setdefault(found, []).append(group_id)
    return groups


def _is_not_of_consumer_protocol(result: GroupDescription | KafkaError) -> bool:
    absent = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(result, KafkaError) and result.code in absent


def _of_consumer_protocol(
    client: AdminClient, broker_id: int, group_ids: list[str]
) -> dict[str, GroupDescription | KafkaError]:
    answer = client.broker(broker_id, m.ConsumerGroupDescribeRequest(group_ids=group_ids))
    return {
        each.group_id: outcome(
            GroupDescription(
                each.group_id,
                CONSUMER,
                CONSUMER,
                each.group_state,
                broker_id,
                each.assignor_name,
                each.group_epoch,
                tuple(_member_of_consumer_protocol(member) for member in each.members),
            ),
            each.error_code,
            each.error_message,
        )
        for each in answer.groups
    }


def _member_of_consumer_protocol(member: m.ConsumerGroupDescribeResponse.Member) -> MemberDescription:
    def assignment(given: m.ConsumerGroupDescribeResponse.Assignment) -> Assignment:
        return {each.topic_name: tuple(sorted(each.partitions)) for each in given.topic_partitions}

    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        assignment(member.assignment),
        assignment(member.target_assignment),
        member.member_epoch,
    )


def _of_classic_protocol(
    client: AdminClient, broker_id: int, group_ids: list[str]
) -> dict[str, GroupDescription | KafkaError]:
    answer = client.broker(broker_id, m.DescribeGroupsRequest(groups=group_ids))
    results: dict[str, GroupDescription | KafkaError] = {}
    for each in answer.groups:
        if each.group_state == DEAD and not each.error_code:  # before version 6
            results[each.group_id] = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {each.group_id} not found.")
            continue
        description = GroupDescription(
            each.group_id,
            CLASSIC,
            each.protocol_type,
            each.group_state,
            broker_id,
            each.protocol_data,
            None,
            tuple(_member_of_classic_protocol(member, each.protocol_type) for member in each.members),
        )
        results[each.group_id] = outcome(description, each.error_code, each.error_message)
    return results


def _member_of_classic_protocol(
    member: m.DescribeGroupsResponse.DescribedGroupMember, protocol_type: str
) -> MemberDescription:
    """Only members of the protocol type "consumer" have an assignment that can be read."""
    consumes = protocol_type == CONSUMER and member.member_assignment
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        decoded_assignment(member.member_assignment) if consumes else {},
        None,
        None,
    )


def decoded_assignment(data: bytes) -> Assignment:
    """The partitions in an assignment of the classic consumer protocol (Kafka: ConsumerProtocol).

    Raises ProtocolError. A newer version than the newest known one has the same beginning.
    """
    version = int.from_bytes(data[:2], "big", signed=True)
    known = min(version, m.ConsumerProtocolAssignment.MAX_VERSION)
    assigned = m.ConsumerProtocolAssignment.decode(data, known, 2)
    return {each.topic: tuple(sorted(each.partitions)) for each in assigned.assigned_partitions}
