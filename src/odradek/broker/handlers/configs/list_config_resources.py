"""ListConfigResources (74): names of what has settings (KIP-1142).

Version 0 is the older ListClientMetricsResources, which asks for subscriptions to clients' metrics alone. From version 1 on
for any types, all of them when none is named. Groups and subscriptions are listed when they have settings of their own, brokers
and topics always.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.broker.handlers.config_resources import BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.documents import BROKER
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.configs.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTED: Final = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)


def handle(
    broker: BrokerContext, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if context.api_version == 0:
        names = [ConfigResource(resource_name=name) for name in _names(broker, CLIENT_METRICS)]
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=names)
    wanted = request.resource_types or _LISTED
    if any(kind not in _LISTED for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in _names(broker, kind)
        ],
    )


def _names(broker: BrokerContext, kind: int) -> Iterable[str]:
    if kind == TOPIC:
        return broker.image.topics
    if kind in (BROKER, BROKER_LOGGER):
        return [str(node.broker_id) for node in broker.image.brokers]
    return [name for (other, name) in broker.image.resource_configs if other == kind]


SERVED = ApiHandler(74, handle)
