"""JoinGroup (key 11): enter a classic consumer group, and wait for the others.

The leader it elects receives everyone's metadata and hands out the assignment through SyncGroup.

Versions
     1  rebalance timeout apart from the session timeout (KIP-62); before, the session timeout serves for both
     2  response: throttle time
     3  quota violations are answered first and throttled afterwards (KIP-219)
     4  a newcomer without id is sent away with one: MEMBER_ID_REQUIRED (KIP-394)
     5  static members (KIP-345)
     6  flexible
     7  response: protocol type; the protocol name may be null (KIP-559)
     8  a reason, for logs (KIP-800)
     9  response: it may make the leader skip the assignment (KIP-814)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, boolean, bytestring, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = bytestring("0+")


class JoinGroupRequest(Message, api=11, versions="0-9", flexible="6+"):
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = bytestring("0+")


class JoinGroupResponse(Message, api=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")
