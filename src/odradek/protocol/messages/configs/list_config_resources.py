"""ListConfigResources (key 74): names of resources that have settings of their own.

Versions
     0  known as ListClientMetricsResources: client-metrics subscriptions only (KIP-714)
     1  any types of resources, all when none is named (KIP-1142)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, api=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
