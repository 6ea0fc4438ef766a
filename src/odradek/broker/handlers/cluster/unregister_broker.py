"""UnregisterBroker (64). Version 0: forget a broker (KIP-631).

A broker that is down is still one of the cluster: new topics may get replicas on it. That ends here. It is refused for one that
runs, which would register again at once.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.cluster.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        await broker.controller.unregister_broker(BrokerId(request.broker_id))
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()


SERVED = ApiHandler(64, handle)
