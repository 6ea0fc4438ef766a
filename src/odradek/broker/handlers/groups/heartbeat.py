"""Heartbeat (12): a member of a classic group is alive, and learns whether to join again. Versions 0-4."""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, LaterResponse, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.runtime.prompt import PromptFuture


def handle(
    broker: BrokerContext, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | LaterResponse:
    try:
        return LaterResponse(broker.groups.heartbeat(request), _answer)
    except KafkaError as error:
        return _refusal(error)


def _answer(response: PromptFuture[HeartbeatResponse]) -> HeartbeatResponse:
    if isinstance(error := response.exception(), KafkaError):
        return _refusal(error)
    return response.result()


def _refusal(error: KafkaError) -> HeartbeatResponse:
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()  # as Kafka: clients do not expect it, and the session begins again anyway
    return HeartbeatResponse(error_code=error.code)


SERVED = ApiHandler(12, handle)
