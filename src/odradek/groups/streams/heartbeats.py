"""StreamsGroupHeartbeat: one request that joins, brings the topology, keeps alive, reconciles and leaves (KIP-1071).

A heartbeat of a member does four things, each seeing what the one before wrote: it stores the member's
metadata; it compares the topology with the topics that exist, which may begin a new group epoch; it computes
a target for that epoch; and it brings this member one step closer to its target. Internal topics that are
missing are in the outcome: who called creates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.groups.modern.membership import invalid_request
from odradek.groups.shard.kinds import Caller
from odradek.groups.streams.draft import StreamsDraft, write_topology
from odradek.groups.streams.member import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    StreamsMember,
    StreamsMemberMetadata,
)
from odradek.groups.streams.tasks import (
    TaskAssignment,
    TaskId,
    TaskMap,
    TaskRole,
    grouped,
    in_order,
    task_map,
)
from odradek.groups.streams.topology import (
    ConfiguredTopology,
    StatusCode,
    StreamsInternalTopic,
    same_topology,
    stored_topology,
)
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TaskOffset,
)

_TAGS_MAX: Final = 100
"""The most client tags of a member: Kafka Streams allows five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """The response to a heartbeat, and the internal topics that must exist before tasks can be assigned."""

    response: StreamsGroupHeartbeatResponse
    missing_topics: tuple[StreamsInternalTopic, ...] = ()


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST, before anything is looked up."""
    if not request.member_id:
        raise invalid_request("MemberId can't be empty.")
    if not request.group_id:
        raise invalid_request("GroupId can't be empty.")
    if request.instance_id == "":
        raise invalid_request("InstanceId can't be empty.")
    if request.rack_id == "":
        raise invalid_request("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        if request.instance_id is None:
            raise invalid_request("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise invalid_request(
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
        )
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(tasks is None for tasks in owned) and any(tasks is not None for tasks in owned):
        raise invalid_request("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise invalid_request("Topology can only be provided when (re-)joining.")
    if len(request.client_tags or ()) > _TAGS_MAX:
        raise invalid_request(f"A member has at most {_TAGS_MAX} client tags.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
    for tasks, kind in (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    ):
        if tasks:
            raise invalid_request(f"{kind} must be empty when (re-)joining.")
    if request.topology is None:
        raise invalid_request("Topology must be non-null when (re-)joining.")
    if not request.process_id:
        raise invalid_request("ProcessId must be provided in first request.")


# -- a member's metadata


def profile_of(
    before: StreamsMemberMetadata, request: StreamsGroupHeartbeatRequest, caller: Caller
) -> StreamsMemberMetadata:
    """Returns the member's metadata after a heartbeat: fields that it omits have not changed, except the
    endpoint of a member that joins."""
    endpoint = request.user_endpoint
    advertised = None if endpoint is None else (endpoint.host, endpoint.port)
    timeout_ms, tags = request.rebalance_timeout_ms, request.client_tags
    is_joining = request.member_epoch == JOIN_EPOCH
    return StreamsMemberMetadata(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=before.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        endpoint=advertised if advertised is not None or is_joining else before.endpoint,
        tags=before.tags if tags is None else {tag.key: tag.value for tag in tags},
    )


def needs_epoch(before: StreamsMemberMetadata, after: StreamsMemberMetadata) -> bool:
    """Returns whether a change of a member's metadata may change the assignment."""
    return (before.topology_epoch, before.rack_id, before.tags, before.process_id) != (
        after.topology_epoch,
        after.rack_id,
        after.tags,
        after.process_id,
    )


def enter_topology(draft: StreamsDraft, request: StreamsGroupHeartbeatRequest) -> None:
    """Writes the topology that the first member brings. INVALID_REQUEST for a member with another one, unless it is older:
    such a member gets a status."""
    if request.topology is None:
        return
    present = draft.group.topology
    if present is not None and present.epoch > request.topology.epoch:
        return
    topology = stored_topology(request.topology)
    if present is None:
        write_topology(draft, topology)
    elif not same_topology(present, topology):
        raise invalid_request("Topology updates are not supported yet.")


def owned_of(
    request: StreamsGroupHeartbeatRequest, configured: ConfiguredTopology, member: StreamsMember
) -> TaskAssignment | None:
    """Returns the tasks that the member reports; None when it omits them, because nothing changed. INVALID_REQUEST for tasks
    that neither the topology has nor the member: its topics may have been made again with fewer partitions."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    owned = grouped(task for role in TaskRole for task in member.current.held(role))
    for entries in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        _check_tasks(entries, configured, owned)
    return TaskAssignment(
        active=task_map(request.active_tasks),
        standby=task_map(request.standby_tasks),
        warmup=task_map(request.warmup_tasks),
    )


def _check_tasks(entries: list[TaskIds], configured: ConfiguredTopology, owned: TaskMap) -> None:
    """Counts first: a hostile list may be long, but the topology bounds an honest one."""
    most = len(configured.tasks.keys() | owned.keys())
    if len(entries) > most:
        raise invalid_request(
            f"The tasks of {len(entries)} subtopologies were sent; the member can have tasks of {most}."
        )
    for entry in entries:
        subtopology, own = configured.tasks.get(entry.subtopology_id), owned.get(entry.subtopology_id)
        if subtopology is None and own is None:
            raise invalid_request(f"Subtopology {entry.subtopology_id} does not exist in the topology.")
        count, own = 0 if subtopology is None else subtopology.task_count, own or frozenset()
        wrong = (number for number in entry.partitions if not 0 <= number < count and number not in own)
        first = count if len(entry.partitions) > count + len(own) else next(wrong, None)
        if first is not None:
            raise invalid_request(
                f"Task {first} for subtopology {entry.subtopology_id} is invalid. "
                f"Number of tasks for this subtopology: {count}"
            )


def offsets_of(entries: Iterable[TaskOffset], configured: ConfiguredTopology) -> dict[TaskId, int]:
    """Returns the changelog positions of tasks that the topology has."""
    offsets = {}
    for entry in entries:
        subtopology = configured.tasks.get(entry.subtopology_id)
        if subtopology is not None and 0 <= entry.partition < subtopology.task_count:
            offsets[TaskId(entry.subtopology_id, entry.partition)] = entry.offset
    return offsets


# -- what it learns


def statuses(
    draft: StreamsDraft, member: StreamsMember, configured: ConfiguredTopology, *, is_delayed: bool
) -> list[Status]:
    group = draft.group
    reported: list[Status] = []
    assert group.topology is not None, "the first member brings the topology"
    if member.profile.topology_epoch < group.topology.epoch:
        reported.append(
            _status(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {member.profile.topology_epoch} is lower than the group's topology epoch "
                f"{group.topology.epoch}.",
            )
        )
    if is_delayed:
        reported.append(
            _status(
                StatusCode.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured initial rebalance delay or assignment interval.",
            )
        )
    if configured.problem is not None:
        detail = configured.problem.detail
        if configured.missing and group.soft.creation_error:
            detail = f"{detail}; {group.soft.creation_error}"
        reported.append(_status(configured.problem.code, detail))
    if group.soft.shutdown_by is not None:
        reported.append(
            _status(
                StatusCode.SHUTDOWN_APPLICATION,
                f"Streams group member {group.soft.shutdown_by} encountered a fatal error and requested a shutdown for the "
                "entire application.",
            )
        )
    return reported


def missing_tags(member: StreamsMember, keys: Sequence[str]) -> list[Status]:
    """Returns the status of a member without some of the tags that rack-aware assignment goes by; it works nevertheless."""
    missing = [key for key in keys if key not in member.profile.tags]
    if not missing:
        return []
    return [
        _status(
            StatusCode.MISSING_CLIENT_TAGS,
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
            "Configure them via 'client.tag.<tagKey>' in your Streams config.",
        )
    ]


def _status(code: StatusCode, detail: str) -> Status:
    return Status(status_code=code, status_detail=detail)


def listed_tasks(tasks: TaskMap) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology, partitions=partitions)
        for subtopology, partitions in in_order(tasks)
    ]
