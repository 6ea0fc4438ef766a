"""InitProducerId (22): an id and an epoch to write under, for idempotence, and under a transactional id for transactions.

Versions 0-5; 6 (KIP-939) is unstable: `transaction.two.phase.commit.enable` allows two-phase commit, and a
prepared transaction is never kept, as in Kafka 4.4. PRODUCER_FENCED from v4; before, INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import TRANSACTION_STATE
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.model.lazy import lazy
from odradek.protocol.messages.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from odradek.broker.coordinators import transactions
    from odradek.transactions import state
else:
    transactions = lazy("odradek.broker.coordinators.transactions")
    state = lazy("odradek.transactions.state")

_SINCE_FENCED: Final = 4


def handle(
    broker: BrokerContext, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    knows = (request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH)
    if any(knows) and not all(knows):
        return _refused(ErrorCode.INVALID_REQUEST)  # an id without its epoch, or the other way round
    if request.transactional_id is None:
        return _fresh(broker)
    return _transactional(broker, context, request, request.transactional_id, expects=all(knows))


async def _fresh(broker: BrokerContext) -> InitProducerIdResponse:
    # Without a transactional id Kafka ignores the id that a client had: it gets a new one, with epoch 0.
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return _refused(error.code)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


async def _transactional(
    broker: BrokerContext,
    context: RequestContext,
    request: InitProducerIdRequest,
    transactional_id: str,
    *,
    expects: bool,
) -> InitProducerIdResponse:
    await broker.coordinators.import_on_thread(TRANSACTION_STATE)
    expected = state.ProducerIdentity(producer_id=request.producer_id, producer_epoch=request.producer_epoch)
    try:
        identity = await broker.transactions.init_producer(
            transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=expected if expects else None,
            enable_2pc=request.enable_2pc,
            keep_prepared=request.keep_prepared_txn,
        )
    except KafkaError as error:
        return _refused(transactions.code_of(error, knows_fenced=context.api_version >= _SINCE_FENCED))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


SERVED = ApiHandler(22, handle)
