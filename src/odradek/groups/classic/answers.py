"""The responses of a classic group."""

from __future__ import annotations

from odradek.groups.classic.group import ClassicGroup
from odradek.groups.classic.member import ClassicGroupMember
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse


def join_refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def joined(
    group: ClassicGroup,
    member: ClassicGroupMember,
    *,
    tell_members: bool,
    leader_id: str | None = None,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """Returns the generation as it is. Only the leader gets the list of members, where that is wanted at all."""
    is_leader = group.leader_id == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(group.leader_id or "") if leader_id is None else leader_id,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=group_member.member_id,
                group_instance_id=group_member.instance_id,
                metadata=group_member.metadata(group.protocol_name),
            )
            for group_member in group.members.values()
        ]
        if tell_members and is_leader
        else [],
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
