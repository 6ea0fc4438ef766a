"""A reset of a group's offsets: what it would change, partition by partition, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.client import EARLIEST, LATEST
from odradek.client.aio import AsyncAdmin
from odradek.client.groups.offset_target import PartitionFacts, Target
from odradek.client.groups.values import OffsetAndMetadata
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.java_numbers import is_digits, whole_number

CALL_S: Final = 15.0
_FIELDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReset:
    """The change of one partition's offset."""

    partition: TopicPartition
    before: int | None
    after: int
    begin: int
    end: int

    @property
    def read_again(self) -> int:
        """The number of offsets that are read a second time, of those that the partition still holds."""
        return 0 if self.before is None else max(0, min(self.before, self.end) - max(self.after, self.begin))

    @property
    def skipped(self) -> int:
        """The number of offsets that are not read at all."""
        return 0 if self.before is None else max(0, self.after - max(self.before, self.begin))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """What a reset would do. It is carried out as it was shown: `text` goes to the browser and comes back."""

    rows: tuple[PartitionReset, ...] = ()
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)

    @property
    def read_again(self) -> int:
        return sum(row.read_again for row in self.rows)

    @property
    def skipped(self) -> int:
        return sum(row.skipped for row in self.rows)

    @property
    def text(self) -> str:
        """The plan in one line: topic:partition:offset, and topic:id where the id is known."""
        offsets = [f"{row.partition.topic}:{row.partition.partition}:{row.after}" for row in self.rows]
        return " ".join([*offsets, *(f"{topic}:{topic_id}" for topic, topic_id in self.topic_ids.items())])


def parse_plan_line(text: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Parses `ResetPlan.text`. Raises ConfigError for anything else."""
    offsets: dict[TopicPartition, int] = {}
    ids: dict[str, UUID] = {}
    try:
        for part in text.split():
            fields = part.split(":")
            if len(fields) == _FIELDS:
                offsets[TopicPartition(fields[0], _number(fields[1], 9))] = _number(fields[2], 18)
            else:
                topic, topic_id = fields
                ids[topic] = UUID(topic_id)
    except ValueError as error:
        raise ConfigError("the plan of the reset cannot be read: make the preview again") from error
    return {
        tp: OffsetAndMetadata(offset, topic_id=ids.get(tp.topic, ZERO_UUID)) for tp, offset in offsets.items()
    }


def _number(text: str, digits_max: int) -> int:
    if not is_digits(text) or len(text) > digits_max:
        raise ValueError(f"{text!r:.40} is no number of at most {digits_max} digits")
    return whole_number(text)


async def planned(admin: AsyncAdmin, group_id: str, topics: Iterable[str], target: Target) -> ResetPlan:
    """Returns what the reset would do to these topics; by default to those that the group has offsets of.

    KafkaError with NON_EMPTY_GROUP while it has members, ConfigError where there is nothing to reset.
    """
    group = (await admin.describe_groups([group_id], timeout_s=CALL_S))[group_id]
    if group.active:
        clients = ", ".join(
            sorted({f"{member.client_id} at {member.client_host}" for member in group.members})
        )
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"the group has {len(group.members)} members ({clients}): stop them first",
        )
    committed = await admin.list_group_offsets(group_id, timeout_s=CALL_S)
    before = {TopicPartition(*tp): known.offset for tp, known in committed.items() if known is not None}
    names = sorted(set(topics)) or sorted({tp.topic for tp in before})
    if not names:
        raise ConfigError("the group has no offsets: name a topic")
    described = await admin.describe_topics(names, timeout_s=CALL_S)
    partitions = [tp for name in names for tp in described[name].topic_partitions]
    facts = await _facts(admin, partitions, before, target)
    rows = []
    for tp in partitions:
        after = target.offset_for(tp, facts[tp])
        if after is not None:
            rows.append(
                PartitionReset(
                    partition=tp,
                    before=before.get(tp),
                    after=after,
                    begin=facts[tp].begin,
                    end=facts[tp].end,
                )
            )
    ids = {name: topic.topic_id for name, topic in described.items() if topic.topic_id != ZERO_UUID}
    return ResetPlan(rows=tuple(rows), topic_ids=ids)


async def _facts(
    admin: AsyncAdmin,
    partitions: Iterable[TopicPartition],
    before: Mapping[TopicPartition, int],
    target: Target,
) -> dict[TopicPartition, PartitionFacts]:
    wanted = list(partitions)
    begins = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST), timeout_s=CALL_S)
    ends = await admin.list_offsets(dict.fromkeys(wanted, LATEST), timeout_s=CALL_S)
    at_times = {}
    if target.timestamp_ms is not None:
        at_times = await admin.list_offsets(dict.fromkeys(wanted, target.timestamp_ms), timeout_s=CALL_S)
    facts = {}
    for tp in wanted:
        at_time = at_times[tp].offset if tp in at_times else None
        facts[tp] = PartitionFacts(
            begin=begins[tp].offset,
            end=ends[tp].offset,
            committed=before.get(tp),
            at_time=ends[tp].offset if at_time is not None and at_time < 0 else at_time,
        )
    return facts
