"""The target assignment of a group: which member reads what (Kafka's TargetAssignmentBuilder).

A target is worked out for the newest epoch of a group, by the next heartbeat of any member, but not more often than the
assignment interval allows. A large one is worked out on another thread (`large_targets.py`), and written later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from odradek.groups.modern.assignment import NOTHING
from odradek.groups.modern.draft import GroupDraft, GroupSchema, ModernGroup
from odradek.groups.shard.large_targets import LargeTarget, LargeTargets, is_large
from odradek.groups.shard.machine import GroupMachine
from odradek.groups.shard.step import GroupStep
from odradek.protocol import Message
from odradek.shards import Moment, NewRecord, Outcome

G = TypeVar("G", bound="ModernGroup[Any, Any]")
K = TypeVar("K", bound=Message)
V = TypeVar("V", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetQuestion:
    """The input of an assignor for one epoch of a group. It never changes, so any thread may read it."""

    group_id: str
    epoch: int
    assignor: Callable[[Any, Any, Any], Mapping[str, object]]
    members: Mapping[str, Any]
    """The assignor's view of each member: its subscription, at least."""
    partitions: Mapping[Any, Any]
    """The topics, and their partitions or partition counts; or the subtopologies, and their tasks."""
    targets: Mapping[str, object]
    """The present target assignments, by member."""
    nothing: object = field(default_factory=lambda: NOTHING)
    """The target of a member that has none."""

    def changes(self) -> dict[str, Any]:
        """Returns the members whose target changes, with their new targets."""
        assignment = self.assignor(self.members, self.partitions, self.targets)
        return {
            member_id: share
            for member_id, share in assignment.items()
            if share != self.targets.get(member_id, self.nothing)
        }


class TargetContext(Protocol[G, K, V]):
    """The part of a target's computation that depends on the kind of group."""

    @property
    def schema(self) -> GroupSchema[K, V]: ...
    @property
    def now(self) -> Moment: ...
    @property
    def assignment_interval_ms(self) -> int: ...
    @property
    def large_targets(self) -> LargeTargets | None: ...

    def partition_count(self, group: G) -> int:
        """Returns how many partitions the topics that the group reads have together."""

    def question_of(self, group: G) -> TargetQuestion: ...

    def later(self, machine: GroupMachine, now: Moment) -> TargetContext[G, K, V]:
        """Returns the context for the decision about the same group when a large target is ready."""

    def draft(self) -> GroupDraft[G, K, V] | None:
        """Returns a draft of the group; None when it was deleted, or is of another kind by now."""

    def finish(self, draft: GroupDraft[G, K, V], step: GroupStep) -> None: ...


def retarget(draft: GroupDraft[G, K, V], context: TargetContext[G, K, V]) -> None:
    """Computes the target for the group's epoch, unless that is done already or was done too short a while ago.

    UNKNOWN_SERVER_ERROR if no batch can hold a large one. A group's first is never large: its member would get the epoch 0,
    which means that it has yet to join.
    """
    group, large_targets, now = draft.group, context.large_targets, context.now
    if group.epoch <= group.assignment_epoch:
        return
    is_first = group.assignment_epoch == 0
    if 0 <= now.wall_ms - group.assignment_ms < context.assignment_interval_ms and not is_first:
        return
    member_count = len(group.members)
    if large_targets is None or is_first or not is_large(context.partition_count(group), member_count):
        for member_id, share in context.question_of(group).changes().items():
            draft.write_target(member_id, share)
        draft.write_target_epoch(group.epoch, now.wall_ms)
    elif large_targets.is_wanted(group.group_id, group.epoch):
        question = context.question_of(group)
        large_targets.begin(
            LargeTarget(
                group_id=group.group_id,
                epoch=group.epoch,
                compute=partial(_records, context.schema, question),
                write=partial(_write_large, context, question),
            )
        )


def _records(schema: GroupSchema[K, V], question: TargetQuestion) -> list[NewRecord]:
    """Computes a large target's records, on another thread: for a thousand members this takes 50 ms."""
    return [
        schema.target_record(question.group_id, member_id, share).encoded()
        for member_id, share in question.changes().items()
    ]


def _write_large(
    before: TargetContext[G, K, V],
    question: TargetQuestion,
    machine: GroupMachine,
    now: Moment,
    records: Sequence[NewRecord],
) -> Outcome[None]:
    """Writes the target that was computed on the side, unless the group, or a topic, has changed: then it is computed again."""
    step, context = GroupStep(now), before.later(machine, now)
    draft = context.draft()
    if draft is None or draft.group.epoch <= draft.group.assignment_epoch:
        return Outcome(None)
    if context.question_of(draft.group) == question:
        draft.records += records  # not tried on the copy: nothing that follows looks at the targets
        draft.write_target_epoch(draft.group.epoch, now.wall_ms)
    else:
        retarget(draft, context)
    context.finish(draft, step)
    return step.outcome(None)
