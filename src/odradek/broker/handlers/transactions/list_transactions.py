"""ListTransactions (66): transactional ids that this broker coordinates (KIP-664), as they are filtered for.

Versions 0-2: by state and producer id; from v1 by how long the transaction runs (KIP-994); from v2 by a pattern that the whole
id must match (KIP-1152): see `groups.consumer.regex`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from odradek.broker.requests.access import Access
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.protocol.messages.transactions.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from odradek.runtime.turns import Turn
from odradek.transactions.state import STATES_BY_TITLE, Transaction
from odradek.transactions.state import TransactionState as TransactionStatus

_ANY_DURATION: Final = -1


async def handle(
    broker: BrokerContext, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    turn = broker.turns.begin()
    unknown: list[str] = []
    states: set[TransactionStatus] = set()
    for title in await turn.unique(request.state_filters):
        await turn.step()
        if title in STATES_BY_TITLE:
            states.add(STATES_BY_TITLE[title])
        else:
            unknown.append(title)
    try:
        wanted = _filter(request, states, broker.runtime.clock.wall_ms())
        listed = await broker.transactions.select(turn, wanted)
        if request.transactional_id_pattern:
            listed = await _matching(broker, turn, context.access, listed, request.transactional_id_pattern)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=unknown)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown,
        transaction_states=await turn.map(_entry, listed),
    )


def _entry(listed: tuple[str, Transaction]) -> TransactionState:
    transactional_id, transaction = listed
    return TransactionState(
        transactional_id=transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.title,
    )


def _filter(
    request: ListTransactionsRequest, states: Collection[TransactionStatus], now_ms: int
) -> Callable[[str, Transaction], bool]:
    producer_ids = set(request.producer_id_filters)

    def wanted(transactional_id: str, transaction: Transaction) -> bool:
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if request.state_filters and transaction.state not in states:
            return False
        return (
            request.duration_filter <= _ANY_DURATION
            or now_ms - transaction.started_ms > request.duration_filter
        )

    return wanted


async def _matching(
    broker: BrokerContext,
    turn: Turn,
    access: Access | None,
    listed: Sequence[tuple[str, Transaction]],
    pattern: str,
) -> list[tuple[str, Transaction]]:
    """Returns the transactions whose id matches. Ids that the client may not see are left out first: they must not cost time.

    Raises INVALID_REGULAR_EXPRESSION, even where there is nothing to list, as in Kafka.
    """
    visible: dict[str, Transaction] = {}
    for transactional_id, transaction in listed:
        await turn.step()
        if access is None or access.may_quietly(
            AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            visible[transactional_id] = transaction
    matched = await broker.regexes.matching(broker.runtime.offload, pattern, list(visible))
    return [(transactional_id, visible[transactional_id]) for transactional_id in matched]


SERVED = ApiHandler(66, handle)
