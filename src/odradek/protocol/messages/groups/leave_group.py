"""LeaveGroup (key 13): members leave a classic group.

Versions
     1  response: throttle time
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  several members at once, static ones by instance id: `members` takes the place of `member_id`
     (KIP-345) 4  flexible
     5  a reason, for logs (KIP-800)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, api=13, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")
