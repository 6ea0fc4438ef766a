"""UnregisterBroker (64). Version 0: forget a broker (KIP-631).

It is refused for one that runs, which would register again at once. The registration of a broker goes with its session, so one
that is dead is not registered, and every other id neither.
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
        error_message=f"broker {wanted} is running: stop it first, and its registration ends by itself",
    )


SERVED = Served(64, handle)
