"""ClusterSync (10000). Version 0: a broker reports to the controller, and pulls what is new about the cluster (a long poll)."""

from __future__ import annotations

from functools import partial
from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.sync import BrokerReport
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.cluster.cluster_sync import ClusterSyncRequest, ClusterSyncResponse

CLUSTER_SYNC: Final = 10000
_WAIT_MS_MAX: Final = 30_000


async def handle(
    broker: BrokerContext, context: RequestContext, request: ClusterSyncRequest
) -> ClusterSyncResponse:
    connection, broker_id = context.connection, BrokerId(request.broker_id)
    lost = partial(broker.cluster.lost_sight_of, broker_id, request.broker_epoch)
    connection.on_finished[CLUSTER_SYNC] = connection.on_lost[CLUSTER_SYNC] = lost
    image_age = broker.cluster.image_age
    try:
        if image_age is not None and image_age.is_over:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, "the registry has not confirmed this controller lately"
            )
        response = await broker.controller.sync(
            _report(request), max_wait_s=min(max(request.max_wait_ms, 0), _WAIT_MS_MAX) / 1000
        )
    except KafkaError as error:
        return ClusterSyncResponse(error_code=error.code)
    return ClusterSyncResponse(
        controller_epoch=response.controller_epoch,
        version=response.version,
        kind=response.kind,
        payload=response.payload,
    )


def _report(request: ClusterSyncRequest) -> BrokerReport:
    report = BrokerReport(
        broker_id=BrokerId(request.broker_id),
        broker_epoch=request.broker_epoch,
        controller_epoch=request.controller_epoch,
        version=request.version,
    )
    try:
        return report.with_data(request.payload)
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the broker's report cannot be read: {error}") from error


SERVED = ApiHandler(CLUSTER_SYNC, handle, holds=False)
