"""The messages of admin calls about groups, and how their answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.client.admin.group_descriptions import (
    CLASSIC,
    CONSUMER,
    DEAD,
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
)
from odradek.client.groups.member_bytes import PROTOCOL_TYPE, by_topic, read_assignment
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups import consumer_group_describe as consumer
from odradek.protocol.messages.groups import describe_groups as classic
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


def list_groups(broker: int, states: Sequence[str], types: Sequence[str]) -> Exchange:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def read(told: ListGroupsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        found = [
            GroupListing(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                state=each.group_state,
                type=each.group_type,
            )
            for each in told.groups
        ]
        outcome.note(broker, told.error_code, None, found)
        return outcome

    return Exchange(request=request, answer=ListGroupsResponse, read=read)


def describe_classic(groups: Iterable[str], coordinator: int) -> Exchange:
    """A group that does not exist is an error: brokers differ in how they say so."""

    def read(told: classic.DescribeGroupsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for each in told.groups:
            missing = each.group_state == DEAD and not each.members
            code = each.error_code or (ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE)
            outcome.note(each.group_id, code, _nicer(code), _classic_group(each, coordinator))
        return outcome

    request = classic.DescribeGroupsRequest(groups=list(groups))
    return Exchange(request=request, answer=classic.DescribeGroupsResponse, read=read)


def describe_consumer(groups: Iterable[str], coordinator: int) -> Exchange:
    """Groups of the new protocol; others are GROUP_ID_NOT_FOUND here."""

    def read(told: consumer.ConsumerGroupDescribeResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for each in told.groups:
            description = GroupDescription(
                group_id=each.group_id,
                type=CONSUMER,
                protocol_type=PROTOCOL_TYPE,
                state=each.group_state,
                assignor=each.assignor_name,
                coordinator=coordinator,
                epoch=each.group_epoch,
                members=tuple(_consumer_member(member) for member in each.members),
            )
            outcome.note(each.group_id, each.error_code, _nicer(each.error_code), description)
        return outcome

    request = consumer.ConsumerGroupDescribeRequest(group_ids=list(groups))
    return Exchange(request=request, answer=consumer.ConsumerGroupDescribeResponse, read=read)


def delete_groups(wanted: dict[str, Any], timeout_s: float) -> Exchange:
    def read(told: DeleteGroupsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for each in told.results:
            outcome.note(each.group_id, each.error_code, _nicer(each.error_code))
        return outcome

    request = DeleteGroupsRequest(groups_names=list(wanted))
    return Exchange(request=request, answer=DeleteGroupsResponse, read=read)


def delete_offsets(group_id: str, partitions: Iterable[TopicPartition]) -> Exchange:
    """The outcome's items are partitions; an error of the whole answer is raised."""

    def read(told: OffsetDeleteResponse) -> CallOutcome:
        code = ErrorCode.of(told.error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"group {group_id!r}: {_nicer(code) or code.meaning}")
        outcome = CallOutcome.none()
        for topic in told.topics:
            for each in topic.partitions:
                outcome.note(TopicPartition(topic.name, each.partition_index), each.error_code, None)
        return outcome

    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )
    return Exchange(request=request, answer=OffsetDeleteResponse, read=read)


def _nicer(code: int) -> str | None:
    """Where the general meaning of a code says too little."""
    if code == ErrorCode.NON_EMPTY_GROUP:
        return "the group has members; stop them first"
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return "there is no such group"
    return None


def _classic_group(told: classic.DescribedGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        group_id=told.group_id,
        type=CLASSIC,
        protocol_type=told.protocol_type,
        state=told.group_state,
        assignor=told.protocol_data,
        coordinator=coordinator,
        members=tuple(
            GroupMemberDescription(
                member_id=each.member_id,
                client_id=each.client_id,
                client_host=each.client_host,
                group_instance_id=each.group_instance_id,
                assignment=_assignment(told.protocol_type, each.member_assignment),
            )
            for each in told.members
        ),
    )


def _assignment(protocol_type: str, content: bytes) -> tuple[TopicPartition, ...]:
    if protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return read_assignment(content)
    except KafkaError:  # a client's own bytes: opaque
        return ()


def _consumer_member(told: consumer.Member) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=told.member_id,
        client_id=told.client_id,
        client_host=told.client_host,
        group_instance_id=told.instance_id,
        assignment=_partitions(told.assignment),
        target_assignment=_partitions(told.target_assignment),
        member_epoch=told.member_epoch,
    )


def _partitions(told: consumer.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(each.topic_name, number)
        for each in told.topic_partitions
        for number in each.partitions
    )
