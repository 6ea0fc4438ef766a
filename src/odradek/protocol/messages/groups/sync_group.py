"""SyncGroup (key 14): the leader of a classic group hands in the assignment, everyone gets their part.

Versions
     1  response: throttle time
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  static members (KIP-345)
     4  flexible
     5  protocol type and name, both ways, so that mismatches are seen (KIP-559)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, bytestring, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = bytestring("0+")


class SyncGroupRequest(Message, api=14, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Message, api=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = bytestring("0+")
