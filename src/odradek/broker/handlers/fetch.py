"""Fetch (1): read batches from partitions, waiting for them when asked to.

Versions 4-18: fetch sessions from v7 (KIP-227, `broker/fetch_sessions.py`), divergence detection from v12 (KIP-595),
topic ids from v13. Readers see records below the high watermark only. The first partition with data gives at least one
whole batch, however large; the rest stays within the request's and the broker's limits. While clients leave
`queued.max.response.bytes` unread, fetches find nothing and wait. Not here yet: followers (a request
with a replica id is refused).

With isolation_level 1 (read_committed) reads stop at the last stable offset, long polls wait for it to move, and the response
names the aborted transactions whose records are among those it holds: clients leave them out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.fetch_sessions import FetchPlan, PartitionKey, Told, WantedPartition, identified, named
from odradek.broker.intake import ZSTD_SINCE_FETCH
from odradek.broker.throttling import fetch_bytes_max
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.replication.partition import Partition

_SINCE_SESSIONS = 7
_SINCE_TOPIC_IDS = 13
_SINCE_REPLICA_STATE = 15
_READ_COMMITTED = 1


def handle(
    parts: Parts, circumstances: Circumstances, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    try:
        plan = _plan(parts, circumstances, request)
    except KafkaError as error:
        return _refused(circumstances, request, error)
    reading = _Reading(parts, circumstances, request, plan.wanted)
    results = reading.read()
    waits = request.max_wait_ms > 0 and bool(plan.wanted)
    if waits and reading.found_bytes < request.min_bytes and not reading.has_news:
        return _Waiter(reading, plan, request).response
    return _response(plan, results)


def _refused(circumstances: Circumstances, request: FetchRequest, error: KafkaError) -> FetchResponse:
    """An error of the whole request, which before version 7 has no place but in its partitions."""
    if circumstances.api_version >= _SINCE_SESSIONS:
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic, partitions=[_failed(item.partition, error) for item in topic.partitions]
            )
            for topic in request.topics
        ]
    )


class _Waiter:
    """Answers when enough bytes became readable, when a partition failed, or when time is up.

    It watches from the moment it is made, so nothing that is appended in between can be missed, and stops when its
    `response` is settled or cancelled.
    """

    def __init__(self, reading: _Reading, plan: FetchPlan, request: FetchRequest) -> None:
        loop = asyncio.get_running_loop()
        self._reading = reading
        self._plan = plan
        self._missing_bytes = request.min_bytes - reading.found_bytes
        self._partitions = list(reading.partitions)
        self._timer = loop.call_later(request.max_wait_ms / 1000, self._answer)
        self.response: asyncio.Future[FetchResponse] = loop.create_future()
        self.response.add_done_callback(self._stop)
        for partition in self._partitions:
            partition.watch(self, committed_only=reading.committed_only)

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self._missing_bytes -= added_bytes
        if self._missing_bytes <= 0:
            self._answer()

    def ended(self, partition: Partition) -> None:
        self._answer()

    def _answer(self) -> None:
        if self.response.done():
            return
        self._stop(
            self.response
        )  # first: a disk error met in reading ends partitions, and they would call again
        try:
            self.response.set_result(_response(self._plan, self._reading.read()))
        except Exception as error:  # noqa: BLE001 - whoever called (a writer, a timer) has no part in it; the asker has
            self.response.set_exception(error)

    def _stop(self, _: asyncio.Future[FetchResponse]) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)


# -- what is asked


def _plan(parts: Parts, circumstances: Circumstances, request: FetchRequest) -> FetchPlan:
    version = circumstances.api_version
    replica_id = request.replica_state.replica_id if version >= _SINCE_REPLICA_STATE else request.replica_id
    if replica_id >= 0:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only a broker of this cluster may fetch as a replica"
        )
    by_id = version >= _SINCE_TOPIC_IDS
    wanted = [
        WantedPartition(
            key=identified(topic.topic_id, item.partition) if by_id else named(topic.topic, item.partition),
            fetch_offset=item.fetch_offset,
            max_bytes=item.partition_max_bytes,
            current_leader_epoch=item.current_leader_epoch,
            last_fetched_epoch=item.last_fetched_epoch,
        )
        for topic in request.topics
        for item in topic.partitions
    ]
    forgotten = [
        identified(topic.topic_id, number) if by_id else named(topic.topic, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    return parts.fetch_sessions.plan(
        session_id=request.session_id,
        epoch=request.session_epoch,
        wanted=wanted,
        forgotten=forgotten,
        uses_topic_ids=by_id,
        owner=circumstances.principal,
        now=parts.runtime.clock.monotonic(),
    )


# -- reading


@dataclass(frozen=True, slots=True)
class _Result:
    key: PartitionKey
    data: PartitionData
    has_records: bool
    has_news: bool


class _Reading:
    """Reads what a plan wants, within the limits; may be run again when more has arrived."""

    def __init__(
        self,
        parts: Parts,
        circumstances: Circumstances,
        request: FetchRequest,
        wanted: Sequence[WantedPartition],
    ) -> None:
        self._parts = parts
        self._circumstances = circumstances
        self._wanted = wanted
        self.committed_only = request.isolation_level == _READ_COMMITTED
        self._max_bytes = min(request.max_bytes, parts.config.fetch_max_bytes)
        if parts.quotas.active:
            self._max_bytes = min(self._max_bytes, fetch_bytes_max(parts, circumstances))
        self._limit_bytes = 0
        self._has_room = True
        self.found_bytes = 0
        self.has_news = False
        self.partitions: list[Partition] = []

    def read(self) -> list[_Result]:
        self.found_bytes = 0
        self.has_news = False
        self.partitions = []
        room = self._parts.config.queued_max_response_bytes - self._parts.unread_bytes()
        self._has_room = room > 0
        self._limit_bytes = min(self._max_bytes, room)
        return [self._read_one(wanted) for wanted in self._wanted]

    def _read_one(self, wanted: WantedPartition) -> _Result:
        try:
            data = self._data(wanted)
        except KafkaError as error:
            self.has_news = True
            return _Result(wanted.key, _failed(wanted.key.partition, error), False, True)
        found = len(data.records) if data.records is not None else 0
        self.found_bytes += found
        diverges = data.diverging_epoch.epoch != -1
        self.has_news = self.has_news or diverges
        return _Result(wanted.key, data, found > 0, diverges)

    def _data(self, wanted: WantedPartition) -> PartitionData:
        key = wanted.key
        replicas = self._parts.replicas
        partition = (
            replicas.leader(key.topic, key.partition)
            if key.topic
            else replicas.leader_by_id(key.topic_id, key.partition)
        )
        partition.check_leader_epoch(wanted.current_leader_epoch)
        if partition.config.compression_type == "zstd" and self._circumstances.api_version < ZSTD_SINCE_FETCH:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "this topic is zstd: fetch with version 10 or newer"
            )
        self.partitions.append(partition)
        diverging = _divergence(partition, wanted)
        none: list[AbortedTransaction] | None = [] if self.committed_only else None
        if diverging is not None:
            return _found(partition, key.partition, b"", none, diverging)
        end_offset = partition.last_stable_offset if self.committed_only else partition.high_watermark
        limit = min(wanted.max_bytes, self._limit_bytes - self.found_bytes)
        at_least_one = self.found_bytes == 0 and self._has_room
        _check_range(partition, wanted.fetch_offset)
        if wanted.fetch_offset >= end_offset or (limit <= 0 and not at_least_one):
            return _found(partition, key.partition, b"", none)
        read = partition.log.read(
            wanted.fetch_offset,
            max(limit, 0),
            end_offset=end_offset,
            at_least_one=at_least_one,
            to_send=self._circumstances.connection.sends_uncopied,
        )
        aborted = _aborted(partition, wanted.fetch_offset, read.next_offset) if self.committed_only else None
        return _found(partition, key.partition, read.records, aborted)


def _aborted(partition: Partition, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in partition.log.aborted_transactions(start_offset, end_offset)
    ]


def _check_range(partition: Partition, offset: int) -> None:
    """Between the log's start and its end. Between the high watermark and the end there is nothing to read yet."""
    if not partition.start_offset <= offset <= partition.log.end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.name} holds offsets {partition.start_offset} to {partition.high_watermark}, not {offset}",
        )


def _divergence(partition: Partition, wanted: WantedPartition) -> EpochEndOffset | None:
    """Where the client's log parted from ours, when the epoch it last fetched says that it did."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.log.epoch_end_offset(wanted.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.name} knows no leader epoch {wanted.last_fetched_epoch} after which to go on",
        )
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _found(
    partition: Partition,
    index: int,
    records: bytes | bytearray | memoryview,
    aborted: list[AbortedTransaction] | None,
    diverging: EpochEndOffset | None = None,
) -> PartitionData:
    data = PartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.start_offset,
        aborted_transactions=aborted,
        records=records,
    )
    return data if diverging is None else data.replace(diverging_epoch=diverging)


def _failed(index: int, error: KafkaError) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error.code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


# -- answering


def _response(plan: FetchPlan, results: Iterable[_Result]) -> FetchResponse:
    session = plan.session
    if session is not None:
        kept = [result for result in results if session.changed(_told(result)) or not plan.incremental]
    else:
        kept = list(results)
    topics: dict[tuple[str, object], FetchableTopicResponse] = {}
    for result in kept:
        key = result.key
        topic = topics.get((key.topic, key.topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
            topics[key.topic, key.topic_id] = topic
        topic.partitions.append(result.data)
    return FetchResponse(session_id=plan.session_id, responses=list(topics.values()))


def _told(result: _Result) -> Told:
    return Told(
        key=result.key,
        high_watermark=result.data.high_watermark,
        log_start_offset=result.data.log_start_offset,
        has_records=result.has_records,
        has_news=result.has_news,
    )


SERVED = Served(1, handle, holds=True)
