"""DescribeClientQuotas (48). Versions 0-1: the quotas whose users, client ids or addresses a filter names (KIP-546)."""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.quotas.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.security.quota_entities import Filter


def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        wanted = Filter(
            (
                (component.entity_type, component.match_type, component.match)
                for component in request.components
            ),
            strict=request.strict,
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in limits.items()],
            )
            for entity, limits in broker.image.client_quotas.items()
            if wanted.accepts(entity)
        ],
    )


SERVED = ApiHandler(48, handle)
