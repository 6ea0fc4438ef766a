"""UnregisterController (94). Version 0: forget a KRaft controller that is down (KIP-1331).

No controller registers itself here: the controller is one of the brokers, chosen by the registry. So no id is registered.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.cluster.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    return UnregisterControllerResponse(
        error_code=ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
        error_message=f"Controller ID {request.controller_id} is not currently registered: there are no KRaft controllers, "
        "a broker is the controller, and UnregisterBroker forgets one",
    )


SERVED = ApiHandler(94, handle, is_quick=True)
