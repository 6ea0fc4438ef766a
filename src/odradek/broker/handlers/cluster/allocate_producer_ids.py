"""AllocateProducerIds (67). Version 0: a broker gets a block of producer ids from the controller (KIP-730)."""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.cluster.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    try:
        broker.controller.check_broker(BrokerId(request.broker_id), request.broker_epoch)
        ids = await broker.controller.allocate_producer_ids()
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))


SERVED = ApiHandler(67, handle)
