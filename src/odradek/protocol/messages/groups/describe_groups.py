"""DescribeGroups (key 15): state and members of classic groups.

Versions
     1  response: throttle time
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  operations that the asker is allowed, on request (KIP-430)
     4  static members (KIP-345)
     5  flexible
     6  an unknown group is GROUP_ID_NOT_FOUND with a message, no longer a group in state Dead (KIP-1043)
"""

from __future__ import annotations

from odradek.protocol.schema import (
    INT32_MIN,
    Message,
    Struct,
    array,
    boolean,
    bytestring,
    int16,
    int32,
    string,
)


class DescribeGroupsRequest(Message, api=15, versions="0-6", flexible="5+"):
    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = bytestring("0+")
    member_assignment: bytes = bytestring("0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=INT32_MIN)


class DescribeGroupsResponse(Message, api=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
