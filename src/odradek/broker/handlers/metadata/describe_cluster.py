"""DescribeCluster (60). Versions 0-2: the brokers (or, from v1, the controllers, of which clients see none here)."""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.requests.authorization import CLUSTER_OPERATIONS, NOT_ASKED
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.metadata.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse | Awaitable[DescribeClusterResponse]:
    if broker.cluster.is_undecided:
        return _answer_when_decided(broker, context, request)
    return _answer(broker, context, request)


async def _answer_when_decided(
    broker: BrokerContext, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    await broker.cluster.decision()
    return _answer(broker, context, request)


def _answer(
    broker: BrokerContext, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if is_known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker's endpoint; ask for endpoint type 1 (brokers)",
            endpoint_type=_BROKERS,
        )
    brokers = []
    for node in broker.image.brokers:
        address = context.address_of(node)
        if address is not None:
            host, port = address
            brokers.append(
                DescribeClusterBroker(broker_id=node.broker_id, host=host, port=port, rack=node.rack)
            )
    return DescribeClusterResponse(
        cluster_id=broker.image.cluster_id,
        controller_id=broker.image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


SERVED = ApiHandler(60, handle)
