"""ListOffsets (2): the offset for a timestamp, or for one of the special questions.

Versions 1-11. Special timestamps: -1 latest, -2 earliest, -3 the record with the highest timestamp (v7, KIP-734), -4 earliest
local (v8, KIP-405), -5 latest tiered (v9), -6 earliest not yet uploaded (v11). Nothing is tiered here: -4 is the earliest, -5
and -6 are "none".

After an election the leader may not know yet what its predecessor had shown as committed. Until it does, the latest offset, and
what a timestamp finds behind the high watermark, are OFFSET_NOT_AVAILABLE (KIP-207; before v5 LEADER_NOT_AVAILABLE): offsets
that clients saw never seem to go back.

What depends on the end waits for records that were acknowledged with acks=1 and are on their way to this broker's disk.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.end_offsets import readable, unreadable
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.replication.partition import Partition
from odradek.runtime.turns import Turn
from odradek.storage.at_hand import Beside, NotAtHand, read_beside

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
_OF_THE_START = frozenset({_EARLIEST, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING})


async def handle(
    parts: Parts, circumstances: Circumstances, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    turn = parts.turns.begin()
    waits = unreadable(await _ends_asked_for(parts, turn, request))
    if waits:
        await turn.next()  # from here on this is a task of its own
        await readable(waits)
    return await _answered(parts, turn, circumstances, request)


async def _ends_asked_for(parts: Parts, turn: Turn, request: ListOffsetsRequest) -> list[Partition]:
    """The partitions led here whose end decides what is answered."""
    ends = []
    for topic in request.topics:
        for wanted in topic.partitions:
            if wanted.timestamp not in _OF_THE_START:
                await turn.step()
                try:
                    ends.append(parts.replicas.leader(topic.name, wanted.partition_index))
                except KafkaError:
                    continue  # said in the answer
    return ends


async def _answered(
    parts: Parts, turn: Turn, circumstances: Circumstances, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    committed_only = request.isolation_level == _READ_COMMITTED
    asked = Counter(
        (topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions
    )
    topics = []
    for topic in request.topics:
        unique = {one.partition_index: one for one in topic.partitions}

        def answer(
            wanted: ListOffsetsPartition, beside: Beside, name: str = topic.name
        ) -> ListOffsetsPartitionResponse:
            if asked[name, wanted.partition_index] == 1:
                return _answer(parts, circumstances, name, wanted, beside, committed_only=committed_only)
            return ListOffsetsPartitionResponse(
                partition_index=wanted.partition_index, error_code=ErrorCode.INVALID_REQUEST
            )

        partitions = []
        for wanted in unique.values():
            await turn.step()
            beside = Beside()
            try:
                partitions.append(answer(wanted, beside))
            except NotAtHand:
                await turn.next()  # from here on this is a task of its own
                partitions.append(await read_beside(parts.runtime.offload, partial(answer, wanted), beside))
        if partitions:
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _answer(
    parts: Parts,
    circumstances: Circumstances,
    topic: str,
    wanted: ListOffsetsPartition,
    beside: Beside,
    *,
    committed_only: bool,
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    try:
        if wanted.timestamp < 0 and circumstances.api_version < _SINCE.get(wanted.timestamp, 0):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted.timestamp} needs a newer ListOffsets"
            )
        partition = parts.replicas.leader(topic, index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        timestamp, offset = _find(partition, wanted.timestamp, beside, committed_only=committed_only)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and circumstances.api_version < _SINCE_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    told = circumstances.api_version >= _SINCE_LEADER_EPOCH and offset >= 0
    epoch = partition.log.epoch_of(offset) if told else -1
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _find(partition: Partition, timestamp: int, beside: Beside, *, committed_only: bool) -> tuple[int, int]:
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
        found = partition.log.max_timestamp_offset(end_offset=end_offset, beside=beside)
    elif timestamp < 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} means nothing in this version"
        )
    else:
        found = partition.log.offset_for_timestamp(timestamp, end_offset=end_offset, beside=beside)
    if found is None or found.offset >= end_offset:
        if partition.awaits_earlier_records:
            raise _not_available(partition)
        return -1, -1
    return found.timestamp, found.offset


def _not_available(partition: Partition) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{partition.name} was elected a leader that does not know yet how far it is committed: try again",
    )


SERVED = Served(2, handle, is_quick=True)
