"""AddPartitionsToTxn (24): partitions join a transaction, or are asked about.

Versions 0-3 come from clients, one transaction each. From v4 on brokers send it, several transactions at once, each to be added
to or only to be verified (KIP-890); a transaction that is being completed is reported at once then, not waited for: the others'
answers come with its own. One partition that may not join keeps all others of its transaction out: they get
OPERATION_NOT_ATTEMPTED. PRODUCER_FENCED from v2; before, INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import Final

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.coordinators.transactions import code_of
from odradek.cluster.image import INTERNAL_TOPICS, ClusterImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.transactions.state import ProducerIdentity, TransactionVersion

_SINCE_BATCHES: Final = 4
_SINCE_FENCED: Final = 2


def handle(
    broker: BrokerContext, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Awaitable[AddPartitionsToTxnResponse]:
    if context.api_version < _SINCE_BATCHES:
        return _of_client(broker, context, request)
    return _of_brokers(broker, request)


async def _of_client(
    broker: BrokerContext, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = await _codes(
        broker,
        transaction,
        client_version=TransactionVersion.CLASSIC,
        knows_fenced=context.api_version >= _SINCE_FENCED,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(transaction.topics, codes))


async def _of_brokers(
    broker: BrokerContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    codes_of = partial(_codes, broker, client_version=TransactionVersion.EPOCH_FOR_EACH, knows_fenced=True)
    results = await broker.turns.begin().gather(codes_of, request.transactions)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_results(transaction.topics, codes),
            )
            for transaction, codes in zip(request.transactions, results, strict=True)
        ]
    )


async def _codes(
    broker: BrokerContext,
    transaction: AddPartitionsToTxnTransaction,
    *,
    client_version: TransactionVersion,
    knows_fenced: bool,
) -> Mapping[TopicPartition, ErrorCode]:
    wanted = frozenset(_partitions(transaction.topics))
    by_client = client_version is TransactionVersion.CLASSIC
    refused = _refused(broker.image, wanted, by_client=by_client)
    if refused:
        return {partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in wanted}
    who = ProducerIdentity(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
    try:
        if transaction.verify_only:
            return await broker.transactions.verify_partitions(
                transaction.transactional_id, who, wanted, until_timeout=by_client
            )
        await broker.transactions.add_partitions(
            transaction.transactional_id, who, wanted, client_version=client_version, until_timeout=by_client
        )
    except KafkaError as error:
        return dict.fromkeys(wanted, code_of(error, knows_fenced=knows_fenced))
    return dict.fromkeys(wanted, ErrorCode.NONE)


def _refused(
    image: ClusterImage, wanted: Iterable[TopicPartition], *, by_client: bool
) -> dict[TopicPartition, ErrorCode]:
    """Partitions that do not exist, or that clients may not write."""
    refused = {}
    for name in wanted:
        topic = image.topics.get(name.topic)
        if by_client and name.topic in INTERNAL_TOPICS:
            refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= name.partition < len(topic.partitions):
            refused[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


SERVED = ApiHandler(24, handle)
