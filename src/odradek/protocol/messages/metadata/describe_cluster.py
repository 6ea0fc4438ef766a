"""DescribeCluster (key 60): cluster id, controller, brokers and their addresses (KIP-700).

Versions
     1  endpoints of brokers or of controllers (KIP-919)
     2  fenced brokers on request (KIP-1073)
"""

from __future__ import annotations

from odradek.protocol.schema import INT32_MIN, Message, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, api=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Message, api=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=INT32_MIN)
