"""DescribeAcls (key 29): access rules that match a filter; null names match everything.

Versions
     1  resource pattern type: literal or prefixed (KIP-290)
     2  flexible
     3  resources of type user (KIP-373)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Message, api=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class AclDescription(Struct):
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DescribeAclsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, "0+")


class DescribeAclsResponse(Message, api=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+")
