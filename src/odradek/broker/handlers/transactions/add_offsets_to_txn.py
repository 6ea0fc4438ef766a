"""AddOffsetsToTxn (25): a group's offsets join a transaction: the partition of `__consumer_offsets` that keeps the group.

Versions 0-4. PRODUCER_FENCED from v2; before, INVALID_PRODUCER_EPOCH. Clients of KIP-890 leave it out: TxnOffsetCommit adds.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.coordinators.transactions import code_of
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.transactions.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.transactions.state import ProducerIdentity

_SINCE_FENCED: Final = 2


async def handle(
    broker: BrokerContext, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    who = ProducerIdentity(producer_id=request.producer_id, producer_epoch=request.producer_epoch)
    try:
        await broker.transactions.add_offsets(request.transactional_id, who, request.group_id)
    except KafkaError as error:
        code = code_of(error, knows_fenced=context.api_version >= _SINCE_FENCED)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)


SERVED = ApiHandler(25, handle)
