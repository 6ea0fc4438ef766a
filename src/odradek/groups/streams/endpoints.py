"""The partitions that each instance of an application serves: interactive queries find the instance that has a key by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.groups.streams.group import StreamsGroup
from odradek.groups.streams.member import StreamsMember
from odradek.groups.streams.reconcile import joined
from odradek.groups.streams.tasks import TaskMap
from odradek.groups.streams.topology import ConfiguredTopology, SubtopologyTasks
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    TopicPartition,
)


def endpoint_partitions(group: StreamsGroup, configured: ConfiguredTopology) -> list[EndpointToPartitions]:
    """Returns an entry for each member with an endpoint."""
    return [
        _of_member(member, configured.subtopologies)
        for member in group.members.values()
        if member.profile.endpoint is not None
    ]


def _of_member(member: StreamsMember, subtopologies: Mapping[str, SubtopologyTasks]) -> EndpointToPartitions:
    host, port = member.profile.endpoint or ("", 0)
    assigned = member.current.assigned
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=host, port=port),
        active_partitions=list(_partitions(assigned.active, subtopologies)),
        standby_partitions=list(_partitions(joined(assigned.standby, assigned.warmup), subtopologies)),
    )


def _partitions(tasks: TaskMap, subtopologies: Mapping[str, SubtopologyTasks]) -> Iterable[TopicPartition]:
    """Yields the source partitions of tasks; a topic with fewer partitions than the largest has none for the last tasks."""
    for subtopology in sorted(tasks):
        known = subtopologies.get(subtopology)
        for topic, count in (known.source_topics if known is not None else {}).items():
            numbers = sorted(number for number in tasks[subtopology] if number < count)
            if numbers:
                yield TopicPartition(topic=topic, partitions=numbers)
