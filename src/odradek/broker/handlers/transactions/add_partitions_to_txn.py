"""AddPartitionsToTxn (24): partitions join a transaction, or are asked about.

Versions 0-3 come from clients, one transaction each. From v4 on brokers send it, several transactions at once, each to be added
to or only to be verified (KIP-890); a transaction that is being completed is reported at once then, not waited for: the others'
answers come with its own. One partition that may not join keeps all others of its transaction out: they get
OPERATION_NOT_ATTEMPTED. PRODUCER_FENCED from v2; before, INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import Final

from odradek.broker.coordinators.transactions import code_of
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
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
from odradek.runtime.turns import Turn
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
    results = await _results(broker.turns.begin(), transaction.topics, codes)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _of_brokers(
    broker: BrokerContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    codes_of = partial(_codes, broker, client_version=TransactionVersion.EPOCH_FOR_EACH, knows_fenced=True)
    turn = broker.turns.begin()
    by_transaction = await turn.gather(codes_of, request.transactions)
    results = []
    for transaction, codes in zip(request.transactions, by_transaction, strict=True):
        await turn.step()
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _results(turn, transaction.topics, codes),
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _codes(
    broker: BrokerContext,
    transaction: AddPartitionsToTxnTransaction,
    *,
    client_version: TransactionVersion,
    knows_fenced: bool,
) -> Mapping[TopicPartition, ErrorCode]:
    turn = broker.turns.begin()
    wanted = await _partitions(turn, transaction.topics)
    by_client = client_version is TransactionVersion.CLASSIC
    refused = await _refused(turn, broker.image, wanted, by_client=by_client)
    if refused:
        return defaultdict(lambda: ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
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


async def _refused(
    turn: Turn, image: ClusterImage, wanted: Iterable[TopicPartition], *, by_client: bool
) -> dict[TopicPartition, ErrorCode]:
    """Returns the partitions that do not exist, or that clients may not write."""
    refused = {}
    for name in wanted:
        await turn.step()
        topic = image.topics.get(name.topic)
        if by_client and name.topic in INTERNAL_TOPICS:
            refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or not 0 <= name.partition < len(topic.partitions):
            refused[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


async def _partitions(turn: Turn, topics: Iterable[AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    wanted: set[TopicPartition] = set()
    for topic in topics:
        for index in topic.partitions:
            await turn.step()
            wanted.add(TopicPartition(topic.name, index))
    return frozenset(wanted)


async def _results(
    turn: Turn, topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    results = []
    for topic in topics:
        await turn.step()
        partitions = await turn.map(partial(_result, topic.name, codes), topic.partitions)
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
    return results


def _result(
    topic: str, codes: Mapping[TopicPartition, ErrorCode], index: int
) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=codes[TopicPartition(topic, index)]
    )


SERVED = ApiHandler(24, handle)
