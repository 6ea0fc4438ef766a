"""EndTxn (26): commit or abort a transaction. The answer comes when the decision is durable; markers follow.

Versions 0-5. With v5 each transaction ends its epoch, and the response has the producer's next id and epoch
(KIP-890). PRODUCER_FENCED from v2; before, INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.coordinators.transactions import code_of
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest, EndTxnResponse
from odradek.transactions.state import ProducerIdentity, TransactionVersion

_SINCE_FENCED: Final = 2
_SINCE_EPOCHS: Final = 5


async def handle(broker: BrokerContext, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    bumps = context.api_version >= _SINCE_EPOCHS
    try:
        identity = await broker.transactions.end(
            request.transactional_id,
            ProducerIdentity(producer_id=request.producer_id, producer_epoch=request.producer_epoch),
            commit=request.committed,
            client_version=TransactionVersion.EPOCH_FOR_EACH if bumps else TransactionVersion.CLASSIC,
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=code_of(error, knows_fenced=context.api_version >= _SINCE_FENCED))
    if not bumps:
        return EndTxnResponse(error_code=ErrorCode.NONE)
    return EndTxnResponse(
        error_code=ErrorCode.NONE, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


SERVED = ApiHandler(26, handle)
