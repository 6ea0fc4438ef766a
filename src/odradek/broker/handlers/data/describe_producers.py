"""DescribeProducers (61): the producers that a partition knows, and their open transactions (KIP-664). Version 0.

A partition that this broker does not lead, or whose name no one can have, is refused alone.
"""

from __future__ import annotations

from functools import partial

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import check_topic_name
from odradek.protocol.messages.data.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.storage.producers import producer_state


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    turn = broker.turns.begin()
    topics: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=name, partitions=await turn.map(partial(_partition, broker, name), indexes))
            for name, indexes in topics.items()
        ]
    )


def _partition(broker: BrokerContext, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        partition = broker.replicas.leader(topic, index)
    except KafkaError as error:
        # For a topic that exists Kafka returns the code alone.
        message = None if topic in broker.image.topics else error.message
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=message)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[_producer(state) for state in partition.log.producers],
    )


def _producer(state: producer_state.ProducerState) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.transaction_first_offset,
    )


SERVED = ApiHandler(61, handle, is_quick=True)
