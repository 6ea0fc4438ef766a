"""Targets of a group's offsets, and the offset that each partition gets. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """The offsets that a partition holds now, and the group's committed one."""

    begin: int
    end: int
    committed: int | None = None
    at_time: int | None = None
    """The first offset at the time asked for, or the end if all records are older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The offsets that a group's offsets are reset to. Exactly one of `word`, `offset`, `shift`, `timestamp_ms` and
    `by_partition` is set."""

    word: str = ""
    """earliest, latest or current."""
    offset: int | None = None
    shift: int | None = None
    timestamp_ms: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The topics that `by_partition` is of, where the file names their ids."""

    def check_topics(self, present: Mapping[str, UUID]) -> None:
        """Raises ConfigError when another topic has the name now: the file's offsets mean nothing in it."""
        for topic, topic_id in sorted(self.topic_ids.items()):
            now = present.get(topic, topic_id)
            if now != topic_id:
                raise ConfigError(
                    f"topic {topic!r} was deleted and made again since the file was written: its offsets are of the topic with"
                    f" id {topic_id}, and the name now belongs to id {now}. Take {topic!r} out of the file"
                )

    def offset_for(self, tp: TopicPartition, facts: PartitionFacts) -> int | None:
        """Returns the offset, limited to what the partition holds; None where there is none to shift or to keep."""
        wanted = self._wanted(tp, facts)
        return None if wanted is None else max(facts.begin, min(wanted, facts.end))

    def _wanted(self, tp: TopicPartition, facts: PartitionFacts) -> int | None:
        if self.by_partition is not None:
            return self.by_partition.get(tp)
        if self.offset is not None:
            return self.offset
        if self.shift is not None:
            return None if facts.committed is None else facts.committed + self.shift
        if self.timestamp_ms is not None:
            return facts.at_time
        return {"earliest": facts.begin, "latest": facts.end, "current": facts.committed}[self.word]
