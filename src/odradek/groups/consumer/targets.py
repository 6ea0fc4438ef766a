"""The subscriptions of a consumer group, by name or by regular expression, and its assignor's inputs (`modern/targets.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from odradek.groups.consumer import formats
from odradek.groups.consumer.assignors import ASSIGNORS, AssignorMember
from odradek.groups.consumer.draft import SCHEMA, Draft, draft_of, finish
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.member import ConsumerMemberMetadata
from odradek.groups.consumer.timers import MemberTimers
from odradek.groups.modern import targets
from odradek.groups.modern.assignment import topic_ids
from odradek.groups.modern.targets import TargetQuestion
from odradek.groups.shard.large_targets import LargeTargets
from odradek.groups.shard.machine import ClusterTopics, GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.model.errors import KafkaError
from odradek.shards import Moment
from odradek.telemetry import events

_log = events.caused_by_peers("groups")

REGEX_REFRESH_LEAST_MS: Final = 1_000
"""Topics that are made one after another are taken up together (Kafka waits ten seconds, and looks on another thread)."""


def change_regex(draft: Draft, before: str, after: str, group_context: GroupContext) -> None:
    """Changes a member's expression from `before` (its profile is written) to `after`. INVALID_REGULAR_EXPRESSION."""
    group = draft.group
    if before and before in group.regexes and not group.regex_is_used(before):
        draft.write(formats.RegexKey(group_id=group.group_id, regular_expression=before), None)
    if after and after not in group.regexes:
        _write_regex(draft, after, group_context.matching(after), group_context)


def refresh_regexes(draft: Draft, group_context: GroupContext) -> bool:
    """Finds the topics that match the group's expressions, unless that was just done; returns whether they are up to date.

    As in Kafka, the member that asks decides for the group: topics that it may not describe are not there.
    """
    group = draft.group
    if not group.regexes:
        return True
    since_ms = group_context.now.wall_ms - max(regex.timestamp_ms for regex in group.regexes.values())
    if 0 <= since_ms < REGEX_REFRESH_LEAST_MS:
        return False
    for pattern, resolved in list(group.regexes.items()):
        try:
            matching = group_context.matching(pattern)
        except KafkaError as error:
            # It was valid when it came; it may ask for too much work once there are more topics.
            _log.warning("regex_not_resolved", group=group.group_id, reason=error.message)
            continue
        if matching != resolved.topics:
            _write_regex(draft, pattern, matching, group_context)
    return True


def _write_regex(draft: Draft, pattern: str, matching: frozenset[str], group_context: GroupContext) -> None:
    version, now_ms = group_context.topics.version, group_context.now.wall_ms
    draft.write(
        formats.RegexKey(group_id=draft.group.group_id, regular_expression=pattern),
        formats.RegexValue(topics=sorted(matching), version=version, timestamp=now_ms),
    )


def retarget(machine: GroupMachine, draft: Draft, group_context: GroupContext) -> None:
    """Computes a new target assignment if one is due; see `modern.targets.retarget`."""
    targets.retarget(draft, _ConsumerTargets(machine, draft.group.group_id, group_context))


class _ConsumerTargets:
    """The `TargetContext` of one consumer group."""

    schema: Final = SCHEMA

    def __init__(self, machine: GroupMachine, group_id: str, group_context: GroupContext) -> None:
        self._machine = machine
        self._group_id = group_id
        self._context = group_context

    @property
    def now(self) -> Moment:
        return self._context.now

    @property
    def assignment_interval_ms(self) -> int:
        return self._context.settings.assignment_interval_ms

    @property
    def large_targets(self) -> LargeTargets | None:
        return self._context.large_targets

    def partition_count(self, group: ConsumerGroup) -> int:
        return sum(map(self._context.topics.partition_count, group.subscribed_topics))

    def question_of(self, group: ConsumerGroup) -> TargetQuestion:
        allowed = self._context.settings.assignors
        preferred = group.preferred_assignor(allowed[0])
        candidates, partition_counts = candidates_of(group, self._context.topics)
        return TargetQuestion(
            group_id=group.group_id,
            epoch=group.epoch,
            assignor=ASSIGNORS[preferred if preferred in allowed else allowed[0]],
            members=candidates,
            partitions=partition_counts,
            targets=dict(group.targets),
        )

    def later(self, machine: GroupMachine, now: Moment) -> _ConsumerTargets:
        timers = MemberTimers(machine.deadlines, self._group_id, now)
        return _ConsumerTargets(machine, self._group_id, replace(self._context, now=now, timers=timers))

    def draft(self) -> Draft | None:
        group = self._machine.groups.get(self._group_id)
        return draft_of(group) if isinstance(group, ConsumerGroup) else None

    def finish(self, draft: Draft, step: GroupStep) -> None:
        finish(self._machine, draft, self._context, step)


def candidates_of(
    group: ConsumerGroup, topics: ClusterTopics
) -> tuple[dict[str, AssignorMember], Mapping[UUID, int]]:
    """Returns the members with the topics they subscribe to that exist, and these topics' partition counts."""
    ids = {
        name: topic_id for name in group.subscribed_topics if (topic_id := topics.topic_id(name)) is not None
    }
    subscriptions: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    candidates = {}
    for member_id, member in group.members.items():
        profile = member.profile
        wanted = subscriptions.get((profile.topics, profile.regex))
        if wanted is None:
            wanted = frozenset(ids[name] for name in group.topics_of(profile) if name in ids)
            subscriptions[profile.topics, profile.regex] = wanted
        candidates[member_id] = AssignorMember(topics=wanted, instance_id=profile.instance_id)
    return candidates, {topic_id: topics.partition_count(name) for name, topic_id in ids.items()}


def subscribed_ids(
    group: ConsumerGroup, profile: ConsumerMemberMetadata, topics: ClusterTopics
) -> frozenset[UUID]:
    """Returns the topics that a member subscribes to and that exist."""
    return topic_ids(group.topics_of(profile), topics)
