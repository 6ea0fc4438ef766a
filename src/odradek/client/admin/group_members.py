"""Removal of members from groups (KIP-345): the messages of the call, and how its answer is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.admin.calls import AlreadyDone, CallOutcome, Exchange
from odradek.client.admin.group_descriptions import GroupMemberDescription
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_REASON: Final = "member was removed by an admin"
_REASON_CHARS_MAX: Final = 255
"""Clients cut longer reasons off (KIP-800)."""

LEFT: Final = AlreadyDone(code=ErrorCode.UNKNOWN_MEMBER_ID, result=lambda member: None)
"""The outcome of a removal whose first answer was lost."""


def static_members(instance_ids: Iterable[str]) -> dict[str, MemberIdentity]:
    """Returns the identity of each static member, by `group.instance.id`."""
    return {name: MemberIdentity(group_instance_id=name) for name in instance_ids}


def present_members(members: Iterable[GroupMemberDescription]) -> dict[str, MemberIdentity]:
    """Returns identities by member id. A static member that restarts meanwhile has a new id: it is named by its instance."""
    return {
        member.member_id: MemberIdentity(group_instance_id=member.group_instance_id)
        if member.group_instance_id is not None
        else MemberIdentity(member_id=member.member_id)
        for member in members
    }


def remove_members(group_id: str, wanted: Mapping[str, MemberIdentity], reason: str | None) -> Exchange:
    """Returns the exchange. An error of the whole answer is the error of each member."""
    words = f"{_REASON}: {reason}" if reason else _REASON
    members = [identity.replace(reason=words[:_REASON_CHARS_MAX]) for identity in wanted.values()]
    subjects = {_identity(identity): subject for subject, identity in wanted.items()}

    def read(response: LeaveGroupResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            error = KafkaError(code, f"group {group_id!r}: {code.meaning}")
            outcome.errors.update(dict.fromkeys(wanted, error))
            return outcome
        for member in response.members:
            subject = subjects.get(_identity(member))
            if subject is not None:
                outcome.note(subject, member.error_code, _nicer(group_id, member.error_code))
        return outcome

    request = LeaveGroupRequest(group_id=group_id, members=members)
    return Exchange(request=request, answer=LeaveGroupResponse, read=read)


def _identity(member: MemberIdentity | MemberResponse) -> tuple[str | None, str | None]:
    """Returns the instance id of a static member, whose member id brokers may add, or the member id."""
    name = member.group_instance_id
    return (name, None) if name is not None else (None, member.member_id)


def _nicer(group_id: str, code: int) -> str | None:
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return f"group {group_id!r} has no such member, or it is no group of consumers"
    return None
