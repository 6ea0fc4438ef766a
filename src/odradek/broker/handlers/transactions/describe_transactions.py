"""DescribeTransactions (65): the state of transactional ids that this broker coordinates (KIP-664). Version 0."""

from __future__ import annotations

from functools import partial
from itertools import groupby

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    turn = broker.turns.begin()
    unique = await turn.unique(request.transactional_ids)
    states = await turn.gather(partial(_describe, broker), unique)
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(broker: BrokerContext, transactional_id: str) -> TransactionState:
    try:
        transaction = await broker.transactions.find(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=[partition.partition for partition in ones])
            for topic, ones in groupby(sorted(transaction.partitions), key=lambda member: member.topic)
        ],
    )


SERVED = ApiHandler(65, handle)
