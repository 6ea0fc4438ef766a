"""Topics in memory, as planning sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.model.ids import TopicPartition
from odradek.spark.options.positions import EARLIEST, LATEST

FIRST_ID = UUID(int=1)


@dataclass
class Logs:
    """A `Catalog` of logs in memory: `spans` holds the first offset of each and the one after its last."""

    spans: dict[TopicPartition, tuple[int, int]]
    look_count: int = 0
    lag_looks: dict[TopicPartition, list[int]] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)
    """Topics that have another id than FIRST_ID."""
    group_ids: dict[str, UUID] = field(default_factory=dict)
    """Topics that groups have committed for, where those are not the topics of now."""
    ms_per_record: int = 1
    """Record n was written at n times so many milliseconds."""

    def topics(self) -> list[str]:
        return sorted({span.topic for span in self.spans})

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        counts = {topic: sum(span.topic == topic for span in self.spans) for topic in topics}
        return {topic: count for topic, count in counts.items() if count}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        return {topic: self.ids.get(topic, FIRST_ID) for topic in self.partition_counts(topics)}

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.look_count += LATEST in questions.values()
        return {
            topic: self._answer(topic, question)
            for topic, question in questions.items()
            if topic in self.spans
        }

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, int]:
        """A group's offsets were committed for topics with `group_ids`, or for those of now."""
        offsets = self.groups.get(group, {})
        return {
            partition: offsets[partition]
            for partition in partitions
            if partition in offsets
            and topic_ids.get(partition.topic)
            in (None, self.group_ids.get(partition.topic, self.ids.get(partition.topic, FIRST_ID)))
        }

    def _answer(self, partition: TopicPartition, question: int) -> int:
        first, end = self.spans[partition]
        if question == LATEST:
            stale = self.lag_looks.get(partition)
            return stale.pop(0) if stale else end
        if question == EARLIEST:
            return first
        wanted = max(first, -(-question // self.ms_per_record))
        return wanted if wanted < end else -1
