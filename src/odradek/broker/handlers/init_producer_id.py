"""InitProducerId (22). Versions 0-5 (6 is unstable): an id for an idempotent producer, or a higher epoch for one it has.

Not here yet: transactional ids.
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    parts: Parts, circumstances: Circumstances, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        empty = request.transactional_id == ""
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return _fresh(parts)


async def _fresh(parts: Parts) -> InitProducerIdResponse:
    # Without a transactional id Kafka ignores the id that a client had: it gets a new one, with epoch 0.
    try:
        producer_id = await parts.producer_ids.next()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


SERVED = Served(22, handle)
