"""The names of changelog topics, and a sink's notes about those that its query left. Does not import Spark.

A changelog is right up to a decision of its sink: the last batch that wrote to it. When a program begins with a new
checkpoint and no longer has an operator, that operator's changelog remains. The sink's group notes the decision at which
that happened, as the metadata of an offset of the topic. An operator that comes back later would not know what came between.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from odradek.client import Admin
from odradek.client.groups.values import OffsetAndMetadata
from odradek.model.ids import TopicPartition
from odradek.spark.exactly_once.decision import Decision
from odradek.spark.options.sink_ids import group_of
from odradek.streams.plan.queries import CHANGELOG_SUFFIX


def changelogs_among(topics: Collection[str], sink_id: str) -> list[str]:
    """Returns the changelogs of a sink, and perhaps of another sink whose id begins with this one and a hyphen."""
    return sorted(
        name for name in topics if name.startswith(f"{sink_id}-") and name.endswith(CHANGELOG_SUFFIX)
    )


class AbandonedChangelogs:
    """A sink's notes about abandoned changelogs."""

    def __init__(self, admin: Admin, sink_id: str) -> None:
        self._admin = admin
        self._group = group_of(sink_id)

    def note(self, topics: Mapping[str, str], decision: Decision) -> None:
        """Notes that these topics, by id, have the state as of this decision, and nothing later. An older note stays."""
        known = self._notes(topics)
        new = {
            _partition_of(topic): OffsetAndMetadata(
                offset=decision.batch,
                metadata=json.dumps({"topic_id": topic_id, "driver": decision.driver}),
            )
            for topic, topic_id in topics.items()
            if (known.get(topic) or {}).get("topic_id") != topic_id
        }
        if new:
            self._admin.alter_group_offsets(self._group, new)

    def are_current(self, topic: str, topic_id: str, decision: Decision) -> bool:
        """Tells whether a changelog has all up to this decision. False: it was left at an earlier one."""
        note = self._notes([topic]).get(topic)
        if note is None or note.get("topic_id") != topic_id:
            return True
        return note.get("driver") == list(decision.driver)

    def resume(self, topic: str) -> None:
        """Notes that an operator uses the changelog again."""
        if self._notes([topic]):
            self._admin.delete_group_offsets(self._group, [_partition_of(topic)])

    def _notes(self, topics: Collection[str]) -> dict[str, dict[str, object]]:
        offsets = self._admin.list_group_offsets(self._group, [_partition_of(topic) for topic in topics])
        return {
            partition.topic: json.loads(committed.metadata)
            for partition, committed in offsets.items()
            if committed is not None and committed.metadata
        }


def _partition_of(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)
