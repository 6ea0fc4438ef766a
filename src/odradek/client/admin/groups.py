"""The messages of admin calls about groups, and the readers of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.client.admin.group_descriptions import (
    CLASSIC,
    CONSUMER,
    DEAD,
    SHARE,
    STREAMS,
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
)
from odradek.client.groups.member_bytes import PROTOCOL_TYPE, by_topic, read_assignment
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups import consumer_group_describe as consumer
from odradek.protocol.messages.groups import describe_groups as classic
from odradek.protocol.messages.groups import streams_group_describe as streams
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.messages.share import share_group_describe as share
from odradek.protocol.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from odradek.protocol.messages.share.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from odradek.protocol.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)


def list_groups(broker: int, states: Sequence[str], types: Sequence[str]) -> Exchange:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def read(response: ListGroupsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        group_listings = [
            GroupListing(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                state=group.group_state,
                type=group.group_type,
            )
            for group in response.groups
        ]
        outcome.note(broker, response.error_code, None, group_listings)
        return outcome

    return Exchange(request=request, answer=ListGroupsResponse, read=read)


def describe_classic(groups: Iterable[str], coordinator: int) -> Exchange:
    """Describes classic groups. A group that does not exist is an error: brokers differ in how they report
    it."""

    def read(response: classic.DescribeGroupsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for group in response.groups:
            missing = group.group_state == DEAD and not group.members
            code = group.error_code or (ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE)
            outcome.note(group.group_id, code, _nicer(code), _classic_group(group, coordinator))
        return outcome

    request = classic.DescribeGroupsRequest(groups=list(groups))
    return Exchange(request=request, answer=classic.DescribeGroupsResponse, read=read)


def describe_consumer(groups: Iterable[str], coordinator: int) -> Exchange:
    """Groups of the new protocol; others are GROUP_ID_NOT_FOUND here."""

    def read(response: consumer.ConsumerGroupDescribeResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for group in response.groups:
            members = tuple(_consumer_member(member) for member in group.members)
            description = _described(group, CONSUMER, PROTOCOL_TYPE, coordinator, members)
            outcome.note(group.group_id, group.error_code, _nicer(group.error_code), description)
        return outcome

    request = consumer.ConsumerGroupDescribeRequest(group_ids=list(groups))
    return Exchange(request=request, answer=consumer.ConsumerGroupDescribeResponse, read=read)


def describe_share(groups: Iterable[str], coordinator: int) -> Exchange:
    """Share groups (KIP-932); others are GROUP_ID_NOT_FOUND here."""

    def read(response: share.ShareGroupDescribeResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for group in response.groups:
            members = tuple(_share_member(member) for member in group.members)
            description = _described(group, SHARE, SHARE, coordinator, members)
            outcome.note(group.group_id, group.error_code, _nicer(group.error_code), description)
        return outcome

    request = share.ShareGroupDescribeRequest(group_ids=list(groups))
    return Exchange(request=request, answer=share.ShareGroupDescribeResponse, read=read)


def describe_streams(groups: Iterable[str], coordinator: int) -> Exchange:
    """Streams groups (KIP-1071); others are GROUP_ID_NOT_FOUND here."""

    def read(response: streams.StreamsGroupDescribeResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for group in response.groups:
            topics = _source_topics(group.topology)
            members = tuple(_streams_member(member, topics) for member in group.members)
            description = _described(group, STREAMS, STREAMS, coordinator, members)
            outcome.note(group.group_id, group.error_code, _nicer(group.error_code), description)
        return outcome

    request = streams.StreamsGroupDescribeRequest(group_ids=list(groups))
    return Exchange(request=request, answer=streams.StreamsGroupDescribeResponse, read=read)


def _source_topics(topology: streams.Topology | None) -> dict[str, list[str]]:
    """Returns the topics that each subtopology reads; none before the topics exist."""
    parts = None if topology is None else topology.subtopologies
    return {
        part.subtopology_id: [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
        for part in parts or ()
    }


def _described(
    group: consumer.DescribedGroup | share.DescribedGroup | streams.DescribedGroup,
    kind: str,
    protocol_type: str,
    coordinator: int,
    members: tuple[GroupMemberDescription, ...],
) -> GroupDescription:
    """Returns the description of a group whose members the broker assigns (KIP-848, KIP-932, KIP-1071)."""
    return GroupDescription(
        group_id=group.group_id,
        type=kind,
        protocol_type=protocol_type,
        state=group.group_state,
        assignor=group.assignor_name or "",
        coordinator=coordinator,
        epoch=group.group_epoch,
        members=members,
    )


def share_offsets(groups: Iterable[str]) -> Exchange:
    """Returns the start offsets of share groups, without partitions in which a group has not read."""

    def read(response: DescribeShareGroupOffsetsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for group in response.groups:
            offsets = {
                TopicPartition(topic.topic_name, partition.partition_index): partition.start_offset
                for topic in group.topics
                for partition in topic.partitions
                if not partition.error_code and partition.start_offset >= 0
            }
            outcome.note(group.group_id, group.error_code, _nicer(group.error_code), offsets)
        return outcome

    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None) for group in groups]
    )
    return Exchange(request=request, answer=DescribeShareGroupOffsetsResponse, read=read)


def delete_groups(wanted: Mapping[str, object], timeout_s: float) -> Exchange:
    def read(response: DeleteGroupsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for group in response.results:
            outcome.note(group.group_id, group.error_code, _nicer(group.error_code))
        return outcome

    request = DeleteGroupsRequest(groups_names=list(wanted))
    return Exchange(request=request, answer=DeleteGroupsResponse, read=read)


def delete_offsets(group_id: str, partitions: Iterable[TopicPartition]) -> Exchange:
    """Returns the exchange. The outcome's items are partitions; an error of the whole answer is raised."""

    def read(response: OffsetDeleteResponse) -> CallOutcome:
        _check(group_id, response.error_code)
        outcome = CallOutcome.none()
        for topic in response.topics:
            for partition in topic.partitions:
                outcome.note(
                    TopicPartition(topic.name, partition.partition_index), partition.error_code, None
                )
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


def alter_share_offsets(group_id: str, offsets: Mapping[TopicPartition, int]) -> Exchange:
    """Returns the exchange. The outcome's items are partitions; an error of the whole answer is raised."""

    def read(response: AlterShareGroupOffsetsResponse) -> CallOutcome:
        _check(group_id, response.error_code, response.error_message)
        outcome = CallOutcome.none()
        for topic in response.responses:
            for partition in topic.partitions:
                outcome.note(
                    TopicPartition(topic.topic_name, partition.partition_index),
                    partition.error_code,
                    partition.error_message,
                )
        return outcome

    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=offsets[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    return Exchange(request=request, answer=AlterShareGroupOffsetsResponse, read=read)


def delete_share_offsets(group_id: str, topics: Iterable[str]) -> Exchange:
    """Returns the exchange. The outcome's items are topics; an error of the whole answer is raised."""

    def read(response: DeleteShareGroupOffsetsResponse) -> CallOutcome:
        _check(group_id, response.error_code, response.error_message)
        outcome = CallOutcome.none()
        for topic in response.responses:
            outcome.note(topic.topic_name, topic.error_code, topic.error_message)
        return outcome

    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics],
    )
    return Exchange(request=request, answer=DeleteShareGroupOffsetsResponse, read=read)


def _check(group_id: str, error_code: int, message: str | None = None) -> None:
    """Raises the error of a whole answer."""
    code = ErrorCode.of(error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"group {group_id!r}: {_nicer(code) or message or code.meaning}")


def _nicer(code: int) -> str | None:
    """Returns a clearer message for codes whose general meaning is too vague; None for others."""
    if code == ErrorCode.NON_EMPTY_GROUP:
        return "the group has members; stop them first"
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return "there is no such group"
    return None


def _classic_group(group: classic.DescribedGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=CLASSIC,
        protocol_type=group.protocol_type,
        state=group.group_state,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=tuple(
            GroupMemberDescription(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                group_instance_id=member.group_instance_id,
                assignment=_assignment(group.protocol_type, member.member_assignment),
            )
            for member in group.members
        ),
    )


def _assignment(protocol_type: str, content: bytes) -> tuple[TopicPartition, ...]:
    if protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return read_assignment(content)
    except KafkaError:  # a client's own bytes: opaque
        return ()


def _consumer_member(member: consumer.Member) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        group_instance_id=member.instance_id,
        assignment=_partitions(member.assignment),
        target_assignment=_partitions(member.target_assignment),
        member_epoch=member.member_epoch,
    )


def _share_member(member: share.Member) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        assignment=_partitions(member.assignment),
        member_epoch=member.member_epoch,
    )


def _streams_member(member: streams.Member, topics: dict[str, list[str]]) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        group_instance_id=member.instance_id,
        assignment=_source_partitions(member.assignment, topics),
        target_assignment=_source_partitions(member.target_assignment, topics),
        member_epoch=member.member_epoch,
    )


def _source_partitions(
    assignment: streams.Assignment, topics: dict[str, list[str]]
) -> tuple[TopicPartition, ...]:
    """Returns the partitions that active tasks read."""
    return tuple(
        TopicPartition(topic, number)
        for tasks in assignment.active_tasks
        for topic in topics.get(tasks.subtopology_id, ())
        for number in tasks.partitions
    )


def _partitions(assignment: consumer.Assignment | share.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic_partition.topic_name, number)
        for topic_partition in assignment.topic_partitions
        for number in topic_partition.partitions
    )
