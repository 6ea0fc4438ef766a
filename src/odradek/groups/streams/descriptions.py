"""Descriptions of streams groups for administrators."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.groups.shard.machine import ClusterTopics
from odradek.groups.streams import formats
from odradek.groups.streams.group import StreamsGroup
from odradek.groups.streams.heartbeats import listed_tasks
from odradek.groups.streams.member import StreamsMember
from odradek.groups.streams.tasks import TaskAssignment, TaskId
from odradek.groups.streams.topology import ConfiguredTopology
from odradek.protocol.messages.groups import streams_group_describe as describing
from odradek.protocol.messages.groups.streams_group_heartbeat import Endpoint, KeyValue, TaskOffset, TopicInfo


def described(group: StreamsGroup, topics: ClusterTopics, assignor: str) -> describing.DescribedGroup:
    topology = None if group.topology is None else _topology(group.topology, group.configured(topics))
    return describing.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=topology,
        members=[_member(group, member) for member in group.members.values()],
        assignor_name=assignor,
    )


def _topology(value: formats.StreamsTopologyValue, configured: ConfiguredTopology) -> describing.Topology:
    """Returns the subtopologies with the partition counts that follow from the topics; none where that is impossible."""
    if not configured.subtopologies:
        return describing.Topology(epoch=value.epoch, subtopologies=None)
    counts = {name: topic.partition_count for name, topic in configured.internal_topics.items()}
    parts = {part.subtopology_id: part for part in value.subtopologies}
    return describing.Topology(
        epoch=value.epoch,
        subtopologies=[
            describing.Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(parts[subtopology_id].source_topics),
                repartition_sink_topics=sorted(parts[subtopology_id].repartition_sink_topics),
                state_changelog_topics=[
                    _topic(topic, counts.get(topic.name, 0))
                    for topic in parts[subtopology_id].state_changelog_topics
                ],
                repartition_source_topics=[
                    _topic(topic, counts.get(topic.name, topic.partitions))
                    for topic in parts[subtopology_id].repartition_source_topics
                ],
            )
            for subtopology_id in configured.subtopologies
        ],
    )


def _topic(topic: formats.StoredTopicInfo, partition_count: int) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=partition_count,
        replication_factor=topic.replication_factor,
        topic_configs=[KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
    )


def _member(group: StreamsGroup, member: StreamsMember) -> describing.Member:
    profile, soft = member.profile, group.soft
    endpoint = profile.endpoint
    return describing.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        topology_epoch=profile.topology_epoch,
        process_id=profile.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=profile.tags[key]) for key in sorted(profile.tags)],
        task_offsets=_offsets(soft.task_offsets.get(member.member_id, {})),
        task_end_offsets=_offsets(soft.task_end_offsets.get(member.member_id, {})),
        assignment=_assignment(member.current.assigned),
        target_assignment=_assignment(group.target(member.member_id)),
        is_classic=False,
    )


def _assignment(tasks: TaskAssignment) -> describing.Assignment:
    return describing.Assignment(
        active_tasks=listed_tasks(tasks.active),
        standby_tasks=listed_tasks(tasks.standby),
        warmup_tasks=listed_tasks(tasks.warmup),
    )


def _offsets(offsets: Mapping[TaskId, int]) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=task.subtopology, partition=task.partition, offset=offsets[task])
        for task in sorted(offsets)
    ]
