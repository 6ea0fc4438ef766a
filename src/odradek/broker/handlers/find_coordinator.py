"""FindCoordinator (10). Versions 0-6; several keys at once from v4.

Groups and transactions are not served yet, so every key gets COORDINATOR_NOT_AVAILABLE with a sentence. The API is listed all
the same: librdkafka switches lz4 off where it is missing.
"""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_SINCE_BATCHES = 4
_KINDS = {0: "consumer groups", 1: "transactions", 2: "share groups"}


def handle(
    parts: Parts, circumstances: Circumstances, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    kind = _KINDS.get(request.key_type)
    if kind is None:
        code, message = ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is not known"
    else:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this broker does not serve {kind} yet"
    if circumstances.api_version < _SINCE_BATCHES:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )


SERVED = Served(10, handle)
