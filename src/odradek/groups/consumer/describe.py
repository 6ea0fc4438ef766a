"""Describes a consumer group for administrators: ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.member import ConsumerGroupMember
from odradek.groups.machine import ClusterTopics
from odradek.protocol.messages.groups.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from odradek.protocol.messages.groups.consumer_group_describe import Member as MemberEntry

CLASSIC_TYPE = 0
CONSUMER_TYPE = 1


def described(group: ConsumerGroup, topics: ClusterTopics, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerGroupMember, topics: ClusterTopics) -> MemberEntry:
    profile = member.profile
    return MemberEntry(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=member.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topics),
        subscribed_topic_regex=profile.regex,
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=CLASSIC_TYPE if member.is_classic else CONSUMER_TYPE,
    )


def _assignment(partitions: Mapping[UUID, Iterable[int]], topics: ClusterTopics) -> Assignment:
    """Topics that are gone have no name any more, and are left out."""
    named = [(name, topic) for topic in partitions if (name := topics.topic_name(topic)) is not None]
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(partitions[topic]))
            for name, topic in sorted(named)
        ]
    )
