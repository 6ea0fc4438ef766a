"""AlterConfigs (key 33): replace all settings of a resource; what is not named returns to its default.

Deprecated in favour of IncrementalAlterConfigs, still sent by older clients.

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string


class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Message, api=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


class AlterConfigsResponse(Message, api=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
