"""What a group reads and who shall read it: its topics, its epoch, and the target assignment.

The group's epoch grows when what the members subscribe to changes, or the topics themselves do. A target is worked out for the
newest epoch, by the next heartbeat of any member, but not more often than the assignment interval allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Final
from uuid import UUID

from odradek.groups.consumer import formats
from odradek.groups.consumer.assignors import (
    ASSIGNORS,
    NOTHING,
    Assignment,
    Assignor,
    AssignorMember,
    Candidates,
    PartitionCounts,
    Targets,
)
from odradek.groups.consumer.draft import Draft, finish
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.group_context import GroupContext
from odradek.groups.consumer.member import ConsumerMemberMetadata, target_value
from odradek.groups.consumer.regex import TopicPatterns
from odradek.groups.consumer.timers import MemberTimers
from odradek.groups.large_targets import LargeTarget, is_large
from odradek.groups.machine import ClusterTopics, GroupMachine
from odradek.groups.step import GroupStep
from odradek.model.errors import KafkaError
from odradek.shards import Moment, NewRecord, Outcome
from odradek.telemetry import events

_log = events.caused_by_peers("groups")

REGEX_REFRESH_LEAST_MS: Final = 1_000
"""Topics that are made one after another are taken up together (Kafka waits ten seconds, and looks on another thread)."""


def metadata_hash(group: ConsumerGroup, topics: ClusterTopics) -> int:
    """A number that changes with the ids and partition counts of the topics that the group reads; 0 when it reads none."""
    digest = blake2b(digest_size=8)
    count = 0
    for name in sorted(group.subscribed_topics):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            count += 1
            digest.update(topic_id.bytes + topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if count else 0


def change_regex(
    draft: Draft, before: str, after: str, patterns: TopicPatterns, topics: ClusterTopics, now: Moment
) -> None:
    """A member left `before` (its profile is written) for `after`. INVALID_REGULAR_EXPRESSION."""
    group = draft.group
    if before and before in group.regexes and not group.regex_is_used(before):
        draft.write(formats.RegexKey(group_id=group.group_id, regular_expression=before), None)
    if after and after not in group.regexes:
        _write_regex(draft, after, patterns.matching(after, topics.names()), topics, now)


def refresh_regexes(draft: Draft, patterns: TopicPatterns, topics: ClusterTopics, now: Moment) -> bool:
    """Look which topics the group's expressions name now, unless that was done just before; whether it is up to date."""
    group = draft.group
    if not group.regexes:
        return True
    since_ms = now.wall_ms - max(regex.timestamp_ms for regex in group.regexes.values())
    if 0 <= since_ms < REGEX_REFRESH_LEAST_MS:
        return False
    for pattern, resolved in list(group.regexes.items()):
        try:
            matching = patterns.matching(pattern, topics.names())
        except KafkaError as error:
            # It was valid when it came; it may ask for too much work once there are more topics.
            _log.warning("regex_not_resolved", group=group.group_id, reason=error.message)
            continue
        if matching != resolved.topics:
            _write_regex(draft, pattern, matching, topics, now)
    return True


def _write_regex(
    draft: Draft, pattern: str, matching: frozenset[str], topics: ClusterTopics, now: Moment
) -> None:
    draft.write(
        formats.RegexKey(group_id=draft.group.group_id, regular_expression=pattern),
        formats.RegexValue(topics=sorted(matching), version=topics.version, timestamp=now.wall_ms),
    )


def bump_epoch(draft: Draft, topics: ClusterTopics, *, always: bool) -> None:
    """The next epoch if the topics are not those that the epoch was made for, or in any case."""
    found = metadata_hash(draft.group, topics)
    if always or draft.group.epoch == 0 or found != draft.group.metadata_hash:
        draft.write_epoch(draft.group.epoch + 1, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetQuestion:
    """All that an assignor looks at, as it was for an epoch of the group. It never changes: any thread may read it."""

    group_id: str
    epoch: int
    assignor: Assignor
    candidates: Candidates
    partition_counts: PartitionCounts
    targets: Targets

    def answer(self) -> dict[str, Assignment]:
        return self.assignor(self.candidates, self.partition_counts, self.targets)

    def records(self) -> list[NewRecord]:
        """The answer as records for the members whose target changes: to make a thousand of them takes 50 ms."""
        return [
            formats.GroupRecord(
                formats.TargetMemberKey(group_id=self.group_id, member_id=member_id), target_value(share)
            ).encoded()
            for member_id, share in self.answer().items()
            if share != self.targets.get(member_id, NOTHING)
        ]


def retarget(draft: Draft, group_context: GroupContext) -> None:
    """Work out the target for the group's epoch, unless that is done already or was done too short a while ago.

    A large one is worked out on another thread, and written later. UNKNOWN_SERVER_ERROR if no batch can hold that. Not a
    group's first: its member would be told the epoch 0, which means that it has yet to join.
    """
    group, large_targets = draft.group, group_context.large_targets
    if group.epoch <= group.assignment_epoch:
        return
    since_ms = group_context.now.wall_ms - group.assignment_ms
    if 0 <= since_ms < group_context.settings.assignment_interval_ms and group.assignment_epoch > 0:
        return
    partition_count = sum(map(group_context.topics.partition_count, group.subscribed_topics))
    is_first = group.assignment_epoch == 0
    if large_targets is None or is_first or not is_large(partition_count, len(group.members)):
        question = question_of(group, group_context)
        write_target(draft, question.answer(), group_context.now)
    elif large_targets.is_wanted(group.group_id, group.epoch):
        question = question_of(group, group_context)
        large_targets.begin(
            LargeTarget(
                group_id=group.group_id,
                epoch=group.epoch,
                compute=question.records,
                write=partial(write_large_target, group_context, question),
            )
        )


def write_large_target(
    before: GroupContext,
    question: TargetQuestion,
    machine: GroupMachine,
    now: Moment,
    records: Sequence[NewRecord],
) -> Outcome[None]:
    """Write what was worked out beside, unless the group, or a topic, has changed: then ask for it again."""
    group_id, step = question.group_id, GroupStep(now)
    group_context = replace(before, now=now, timers=MemberTimers(machine.deadlines, group_id, now))
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or group.epoch <= group.assignment_epoch:
        return Outcome(None)
    draft = Draft(group)
    if question_of(group, group_context) == question:
        draft.records += records  # not tried on the copy: nothing that follows looks at the targets
        draft.write_target_epoch(group.epoch, now.wall_ms)
    else:
        retarget(draft, group_context)
    finish(machine, draft, group_context, step)
    return step.outcome(None)


def question_of(group: ConsumerGroup, group_context: GroupContext) -> TargetQuestion:
    allowed = group_context.settings.assignors
    preferred = group.preferred_assignor(allowed[0])
    candidates, partition_counts = candidates_of(group, group_context.topics)
    return TargetQuestion(
        group_id=group.group_id,
        epoch=group.epoch,
        assignor=ASSIGNORS[preferred if preferred in allowed else allowed[0]],
        candidates=candidates,
        partition_counts=partition_counts,
        targets=dict(group.targets),
    )


def write_target(draft: Draft, target: Mapping[str, Assignment], now: Moment) -> None:
    """Records for the members whose target changed, then the target's epoch."""
    group = draft.group
    before = group.targets
    for member_id, share in target.items():
        if share != before.get(member_id, NOTHING):
            draft.write_target(member_id, share)
    draft.write_target_epoch(group.epoch, now.wall_ms)


def candidates_of(
    group: ConsumerGroup, topics: ClusterTopics
) -> tuple[dict[str, AssignorMember], Mapping[UUID, int]]:
    """The members with the topics they subscribe to that exist, and these topics' partition counts."""
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
    """The topics that a member subscribes to and that exist."""
    found = (topics.topic_id(name) for name in group.topics_of(profile))
    return frozenset(topic_id for topic_id in found if topic_id is not None)
