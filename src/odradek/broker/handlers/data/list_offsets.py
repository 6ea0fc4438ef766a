"""ListOffsets (2): the offset for a timestamp, or for one of the special questions.

Versions 1-11. Special timestamps: -1 latest, -2 earliest, -3 the record with the highest timestamp (v7, KIP-734), -4 earliest
local (v8, KIP-405), -5 latest tiered (v9), -6 earliest not yet uploaded (v11). Nothing is tiered here: -4 is the earliest, -5
and -6 are "none".

After an election the leader may not know yet what its predecessor had shown as committed. Until it does, the
latest offset, and a timestamp's offset above the high watermark, are OFFSET_NOT_AVAILABLE (KIP-207; before v5
LEADER_NOT_AVAILABLE): offsets that clients saw never seem to go back.

What depends on the end waits for records that were acknowledged with acks=1 and are on their way to this broker's disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from functools import partial

from odradek.broker.fetch.end_offsets import readable, unreadable
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from odradek.replication.partition import Partition
from odradek.runtime.turns import Turn, in_one_go
from odradek.storage.files.at_hand import NotAtHand, ReadProgress, read_off_loop

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
_SINCE = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING: 11}
_SINCE_LEADER_EPOCH = 4
_SINCE_NOT_AVAILABLE = 5
_READ_COMMITTED = 1
_FEW_PARTITIONS = 32
"""Answers about more are made in turns."""
_OF_THE_START = frozenset({_EARLIEST, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING})


def handle(
    broker: BrokerContext, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    if sum([len(topic.partitions) for topic in request.topics]) > _FEW_PARTITIONS:
        return _answer_many(broker, context, request)
    ends: list[Partition] = []
    for topic in request.topics:
        for wanted in topic.partitions:
            _add_end_asked_for(ends, broker, topic.name, wanted)
    if waits := unreadable(ends):
        return _answer_when_readable(broker, context, request, waits)
    try:
        return _answer_few(broker, context, request)
    except NotAtHand:
        return _answer_in_turns(broker, broker.turns.begin(), context, request)


def _answer_few(
    broker: BrokerContext, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    response = _answers(broker, context, request, in_one_go(_named_twice(request)))
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[response(topic.name, wanted, ReadProgress()) for wanted in _unique(topic)],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )


async def _answer_many(
    broker: BrokerContext, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    turn = broker.turns.begin()
    ends: list[Partition] = []
    for topic in request.topics:
        for wanted in topic.partitions:
            await turn.step()
            _add_end_asked_for(ends, broker, topic.name, wanted)
    if waits := unreadable(ends):
        await readable(waits)
    return await _answer_in_turns(broker, turn, context, request)


async def _answer_when_readable(
    broker: BrokerContext,
    context: RequestContext,
    request: ListOffsetsRequest,
    waits: list[asyncio.Future[None]],
) -> ListOffsetsResponse:
    await readable(waits)
    return await _answer_in_turns(broker, broker.turns.begin(), context, request)


async def _answer_in_turns(
    broker: BrokerContext, turn: Turn, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    topics = []
    response = _answers(broker, context, request, await turn.drive(_named_twice(request)))
    for topic in request.topics:
        await turn.step()
        partitions = []
        for wanted in _unique(topic):
            await turn.step()
            attempt = partial(response, topic.name, wanted)
            partitions.append(await read_off_loop(broker.runtime.offload, attempt))
        if partitions:
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _add_end_asked_for(
    ends: list[Partition], broker: BrokerContext, topic: str, wanted: ListOffsetsPartition
) -> None:
    """The partition, if it is led here and its end decides what is answered."""
    if wanted.timestamp not in _OF_THE_START:
        try:
            ends.append(broker.replicas.leader(topic, wanted.partition_index))
        except KafkaError:
            return  # the response reports it


def _answers(
    broker: BrokerContext,
    context: RequestContext,
    request: ListOffsetsRequest,
    twice: Collection[tuple[str, int]],
) -> Callable[[str, ListOffsetsPartition, ReadProgress], ListOffsetsPartitionResponse]:
    """Returns the function that answers for a partition of a topic. A partition that the request names twice is refused."""
    committed_only = request.isolation_level == _READ_COMMITTED

    def answer(name: str, wanted: ListOffsetsPartition, beside: ReadProgress) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        if twice and (name, index) in twice:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
        return _answer(broker, context, name, wanted, beside, committed_only=committed_only)

    return answer


def _named_twice(request: ListOffsetsRequest) -> Generator[None, None, set[tuple[str, int]]]:
    """Returns the topics and partitions that the request names more than once."""
    named: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            yield
            partition_name = topic.name, wanted.partition_index
            (twice if partition_name in named else named).add(partition_name)
    return twice


def _unique(topic: ListOffsetsTopic) -> Iterable[ListOffsetsPartition]:
    return {wanted.partition_index: wanted for wanted in topic.partitions}.values()


def _answer(
    broker: BrokerContext,
    context: RequestContext,
    topic: str,
    wanted: ListOffsetsPartition,
    beside: ReadProgress,
    *,
    committed_only: bool,
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        if wanted.timestamp < 0 and context.api_version < _SINCE.get(wanted.timestamp, 0):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {wanted.timestamp} needs version {_SINCE[wanted.timestamp]} of ListOffsets",
            )
        partition = broker.replicas.leader(topic, index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        timestamp, offset = _find(partition, wanted.timestamp, beside, committed_only=committed_only)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < _SINCE_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    has_leader_epoch = context.api_version >= _SINCE_LEADER_EPOCH and offset >= 0
    epoch = partition.log.epoch_of(offset) if has_leader_epoch else -1
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _find(
    partition: Partition, timestamp: int, beside: ReadProgress, *, committed_only: bool
) -> tuple[int, int]:
    """(timestamp, offset); -1 for what there is not. NotAtHand for what another thread should do first."""
    end_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp == _LATEST:
        if partition.awaits_earlier_records:
            raise _not_available(partition)
        return -1, end_offset
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, partition.start_offset
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING):
        return -1, -1
    if timestamp == _MAX_TIMESTAMP:
        timestamped_offset = partition.log.max_timestamp_offset(end_offset=end_offset, beside=beside)
    elif timestamp < 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in ListOffsets"
        )
    else:
        timestamped_offset = partition.log.offset_for_timestamp(
            timestamp, end_offset=end_offset, beside=beside
        )
    if timestamped_offset is None or timestamped_offset.offset >= end_offset:
        if partition.awaits_earlier_records:
            raise _not_available(partition)
        return -1, -1
    return timestamped_offset.timestamp, timestamped_offset.offset


def _not_available(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"the new leader of {partition.name} does not know its high watermark yet: try again",
    )


SERVED = ApiHandler(2, handle)
