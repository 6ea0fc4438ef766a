"""ShareGroupHeartbeat: one request that joins, keeps alive, subscribes and leaves (KIP-932).

A heartbeat stores the member's metadata, which may begin a new group epoch; it computes a target for that
epoch; and the member takes its target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from odradek.groups.modern.assignment import Assignment as Assigned
from odradek.groups.modern.assignment import topic_ids
from odradek.groups.modern.membership import check_room, invalid_request, unknown_member
from odradek.groups.shard.kinds import Caller
from odradek.groups.shard.machine import ClusterTopics
from odradek.groups.share.draft import ShareDraft, write_state_topics
from odradek.groups.share.group import (
    ShareCurrentAssignment,
    ShareGroup,
    ShareMemberMetadata,
    StateTopic,
    target_of,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    TopicPartitions,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
MEMBER_ID_LENGTH_MAX: Final = 36


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST, before anything is looked up."""
    check_member_id(request.member_id)
    if not request.group_id:
        raise invalid_request("GroupId can't be empty.")
    if request.rack_id == "":
        raise invalid_request("RackId can't be empty.")
    if request.member_epoch < LEAVE_EPOCH:
        raise invalid_request(f"MemberEpoch {request.member_epoch} is invalid.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise invalid_request("SubscribedTopicNames must be set in first request.")


def check_member_id(member_id: str) -> None:
    """Raises INVALID_REQUEST. Members make up their ids: clients use UUIDs, in Kafka's form or in the longer one with
    dashes."""
    if not member_id:
        raise invalid_request("MemberId can't be empty.")
    if len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise invalid_request(
            f"MemberId has {len(member_id)} characters; it may have {MEMBER_ID_LENGTH_MAX}."
        )


def check_member(group: ShareGroup, request: ShareGroupHeartbeatRequest, size_max: int) -> None:
    member_id, epoch = request.member_id, request.member_epoch
    if member_id not in group.members:
        if epoch != JOIN_EPOCH:
            raise unknown_member(group.group_id, member_id)
        check_room(group, member_id, size_max)
    current = group.currents.get(member_id)
    known = () if current is None else (current.epoch, current.previous_epoch)
    if epoch != JOIN_EPOCH and epoch not in known:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member_id!r} is at epoch {group.epoch_of(member_id)}, not {epoch}: it must join again",
        )


def enter(
    draft: ShareDraft, request: ShareGroupHeartbeatRequest, caller: Caller, topics: ClusterTopics
) -> bool:
    """Writes a member's metadata, and a new group epoch if that, or the cluster, changed the subscribed topics.

    True when it may have changed."""
    member_id, names = request.member_id, request.subscribed_topic_names
    before = draft.group.members.get(member_id, ShareMemberMetadata())
    profile = ShareMemberMetadata(
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=before.topics if names is None else frozenset(names),
    )
    is_new = member_id not in draft.group.members
    if is_new or profile != before:
        draft.write_profile(member_id, profile)
    changed = is_new or profile.topics != before.topics
    if changed or draft.group.checked_version != topics.version:
        draft.bump_epoch(topics, always=changed)
        draft.group.checked_version = topics.version
        return True
    return False


def begin_to_read(draft: ShareDraft, topics: ClusterTopics) -> None:
    """Notes the partitions that the members subscribe to: the group has a state in them from now on; deleted
    topics' partitions are removed.

    What is new is shared out with the next target, which is due an assignment interval later: the first to join does not
    have everything until the others are there. Kafka does the same, because it first sets up the state.
    """
    known = {
        topic_id: topic
        for topic_id, topic in draft.group.state_topics.items()
        if topics.topic_name(topic_id) is not None
    }
    is_more = False
    for name in sorted(draft.group.subscribed_topics):
        topic_id = topics.topic_id(name)
        if topic_id is None:
            continue
        before = known.get(topic_id)
        had = frozenset() if before is None else before.partitions
        has = had | frozenset(range(topics.partition_count(name)))
        if has != had:
            known[topic_id] = StateTopic(name=name, partitions=has)
            is_more = True
    if known != draft.group.state_topics:
        write_state_topics(draft, known)
    if is_more:
        draft.bump_epoch(topics, always=True)


def settle(draft: ShareDraft, member_id: str, topics: ClusterTopics) -> None:
    """Gives the member its target, in the target's epoch.

    Only what it subscribes to now: a target that knows its new subscription may be worked out only later.
    """
    group = draft.group
    before = group.currents.get(member_id)
    epoch, target = group.assignment_epoch, target_of(group, member_id)
    subscribed = topic_ids(group.members[member_id].topics, topics)
    if not target.keys() <= subscribed:
        target = {topic_id: share for topic_id, share in target.items() if topic_id in subscribed}
    if before is None:
        current = ShareCurrentAssignment(epoch=epoch, assigned=target)
    elif before.epoch != epoch:
        current = ShareCurrentAssignment(epoch=epoch, previous_epoch=before.epoch, assigned=target)
    elif before.assigned != target:
        current = replace(before, assigned=target)
    else:
        return
    draft.write_current(member_id, current)


def as_assignment(assigned: Assigned) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned, key=lambda uuid: uuid.bytes)
        ]
    )
