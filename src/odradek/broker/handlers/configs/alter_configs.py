"""AlterConfigs (33). Versions 0-2: replaces all of a resource's settings. Deprecated in favour of IncrementalAlterConfigs,
and still what older clients send."""

from __future__ import annotations

from odradek.broker.handlers.config_resources import alter, each_once, replacing
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.protocol.messages.configs.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    turn = broker.turns.begin()
    responses = []
    for resource, refusal in await each_once(turn, request.resources):
        await turn.step()
        responses.append(await _alter(broker, resource, refusal, validate_only=request.validate_only))
    return AlterConfigsResponse(responses=responses)


async def _alter(
    broker: BrokerContext,
    resource: AlterConfigsResource,
    refusal: ErrorContent | None,
    *,
    validate_only: bool,
) -> AlterConfigsResourceResponse:
    code, message = ErrorCode.NONE, None
    try:
        if refusal is not None:
            raise refusal.error()
        change = replacing(resource.configs)
        await alter(
            broker, resource.resource_type, resource.resource_name, change, validate_only=validate_only
        )
    except KafkaError as error:
        code, message = error.code, error.message
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


SERVED = ApiHandler(33, handle)
