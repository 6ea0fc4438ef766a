"""IncrementalAlterConfigs (44). Versions 0-1: set, delete, append to or subtract from settings one by one (KIP-339).

Of topics, brokers (one, or all by the name ""), groups, subscriptions to clients' metrics, and a broker's loggers (levels).
"""

from __future__ import annotations

from odradek.broker.handlers.config_resources import (
    BROKER_LOGGER,
    alter,
    alter_loggers,
    each_once,
    incremental,
)
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    turn = broker.turns.begin()
    responses = []
    for resource, refusal in await each_once(turn, request.resources):
        await turn.step()
        responses.append(await _alter(broker, resource, refusal, validate_only=request.validate_only))
    return IncrementalAlterConfigsResponse(responses=responses)


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
        change = incremental(resource.configs, resource.resource_type)
        kind, name = resource.resource_type, resource.resource_name
        if kind == BROKER_LOGGER:
            alter_loggers(broker, name, resource.configs, validate_only=validate_only)
        else:
            await alter(broker, kind, name, change, validate_only=validate_only)
    except KafkaError as error:
        code, message = error.code, error.message
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


SERVED = ApiHandler(44, handle)
