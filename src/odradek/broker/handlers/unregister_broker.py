"""UnregisterBroker (64). Version 0: forget a broker, which a cluster of one cannot do (KIP-631).

Its own registration is not given up: it runs, and would be a cluster of none. Kafka forgets a broker that runs, too, which then
has to be started again. Every other id is not registered.
"""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(
    parts: Parts, circumstances: Circumstances, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    wanted = request.broker_id
    if all(broker.broker_id != wanted for broker in parts.image.brokers):
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"broker {wanted} is not registered in this cluster",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"broker {wanted} is running and keeps the cluster's data: it cannot be unregistered",
    )


SERVED = Served(64, handle)
