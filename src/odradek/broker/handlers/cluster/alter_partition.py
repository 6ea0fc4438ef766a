"""AlterPartition (56). Versions 2-3: a leader proposes who is in sync, and the controller decides (KIP-497, 841, 903).

Spoken between brokers. The answer holds the state of each partition after the change, or why it was refused; an error for the
whole request means that nothing was decided.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import PartitionImage
from odradek.cluster.isr_changes import ProposedIsr
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.cluster.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicResult,
)
from odradek.runtime.turns import Turn, slices

_SINCE_EPOCHS: Final = 3
_AT_ONCE: Final = 250
_RECOVERING: Final = 1


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    turn = broker.turns.begin()
    proposals = {}
    for topic in request.topics:
        for partition in topic.partitions:
            await turn.step()
            proposals[topic.topic_id, partition.partition_index] = await _proposal(
                turn, partition, context.api_version
            )
    outcomes: dict[tuple[UUID, int], PartitionImage | KafkaError] = {}
    try:
        for some in slices(list(proposals.items()), _AT_ONCE):
            await turn.step()
            outcomes |= await broker.controller.alter_partitions(
                BrokerId(request.broker_id), request.broker_epoch, dict(some)
            )
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    results: dict[UUID, list[PartitionResult]] = {}
    for (topic_id, index), outcome in outcomes.items():
        await turn.step()
        results.setdefault(topic_id, []).append(_result(index, outcome, request.broker_id))
    return AlterPartitionResponse(
        topics=[
            TopicResult(topic_id=topic_id, partitions=partitions) for topic_id, partitions in results.items()
        ]
    )


async def _proposal(turn: Turn, data: PartitionData, version: int) -> ProposedIsr:
    if version < _SINCE_EPOCHS:
        isr = await turn.map(lambda broker: (BrokerId(broker), -1), data.new_isr)
    else:
        isr = await turn.map(
            lambda member: (BrokerId(member.broker_id), member.broker_epoch), data.new_isr_with_epochs
        )
    return ProposedIsr(
        leader_epoch=data.leader_epoch,
        partition_epoch=data.partition_epoch,
        isr=tuple(isr),
        recovering=data.leader_recovery_state == _RECOVERING,
    )


def _result(index: int, outcome: PartitionImage | KafkaError, asker: int) -> PartitionResult:
    if isinstance(outcome, KafkaError):
        return PartitionResult(partition_index=index, error_code=outcome.code)
    moved = outcome.leader != asker  # the change completed a reassignment that takes the leadership away
    return PartitionResult(
        partition_index=index,
        error_code=ErrorCode.NEW_LEADER_ELECTED if moved else ErrorCode.NONE,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=_RECOVERING if outcome.recovering else 0,
        partition_epoch=outcome.partition_epoch,
    )


SERVED = ApiHandler(56, handle)
