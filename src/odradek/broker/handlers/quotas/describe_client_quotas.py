"""DescribeClientQuotas (48). Versions 0-1: the quotas whose users, client ids or addresses a filter names (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.quotas.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.security.quota_entities import Entity, Filter


async def handle(
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
    turn = broker.turns.begin()
    entries: list[EntryData] = []
    for entity, limits in broker.image.client_quotas.items():
        await turn.step()
        if wanted.accepts(entity):
            entries.append(_entry(entity, limits))
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=entries,
    )


def _entry(entity: Entity, limits: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in limits.items()],
    )


SERVED = ApiHandler(48, handle)
