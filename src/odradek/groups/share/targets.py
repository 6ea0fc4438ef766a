"""The inputs of a share group's assignor (`modern/targets.py`)."""

from __future__ import annotations

from typing import Final

from odradek.groups.large_targets import LargeTargets
from odradek.groups.machine import GroupMachine
from odradek.groups.modern import draft as modern
from odradek.groups.modern.assignment import topic_ids
from odradek.groups.modern.targets import TargetQuestion
from odradek.groups.share.assignor import assign
from odradek.groups.share.draft import SCHEMA, ShareDraft, draft_of
from odradek.groups.share.group import ShareGroup
from odradek.groups.share.settings import ShareSettings
from odradek.groups.step import GroupStep
from odradek.shards import Moment


class ShareTargets:
    """The `TargetContext` of one share group."""

    schema: Final = SCHEMA

    def __init__(self, machine: GroupMachine, group_id: str, settings: ShareSettings, now: Moment) -> None:
        self._machine = machine
        self._group_id = group_id
        self._settings = settings
        self.now: Final = now

    @property
    def assignment_interval_ms(self) -> int:
        return self._settings.assignment_interval_ms

    @property
    def large_targets(self) -> LargeTargets | None:
        return self._machine.dependencies.large_targets

    def partition_count(self, group: ShareGroup) -> int:
        return sum(len(topic.partitions) for topic in group.state_topics.values())

    def question_of(self, group: ShareGroup) -> TargetQuestion:
        topics = self._machine.dependencies.topics
        return TargetQuestion(
            group_id=group.group_id,
            epoch=group.epoch,
            assignor=assign,
            members={
                member_id: topic_ids(profile.topics, topics) for member_id, profile in group.members.items()
            },
            partitions={topic_id: topic.partitions for topic_id, topic in group.state_topics.items()},
            targets=dict(group.targets),
        )

    def later(self, machine: GroupMachine, now: Moment) -> ShareTargets:
        return ShareTargets(machine, self._group_id, self._settings, now)

    def draft(self) -> ShareDraft | None:
        group = self._machine.groups.get(self._group_id)
        return draft_of(group) if isinstance(group, ShareGroup) else None

    def finish(self, draft: ShareDraft, step: GroupStep) -> None:
        modern.finish(self._machine, draft, step)
