"""ShareFetch (78): acquire records as a member of a share group, and acknowledge earlier ones (KIP-932). Versions 1-2.

What is acknowledged along with it is taken first. Then it waits, up to `max_wait_ms`, until at least `min_bytes` can be had:
records that are written, and records that come back from others. A request that renews locks (v2) acquires nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek.broker.handlers.share_acknowledging import (
    AcknowledgementOutcome,
    AcknowledgementTask,
    ReadPartition,
    acknowledge,
    check_readable,
    close_session,
    lock_ms,
    member_of,
    open_session,
    session_of,
)
from odradek.broker.requests.context import ApiHandler, BrokerContext, HeldResponse, RequestContext
from odradek.broker.requests.throttling import fetch_bytes_max
from odradek.broker.sessions.share_sessions import CLOSING, OPENING, ShareSession, ShareSessionKey
from odradek.broker.share.partitions import LivePartition
from odradek.broker.share.reading import AcquiredBatches, FetchedRange, FetchLimits, acquire, read_acquirable
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError
from odradek.protocol.messages.share.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from odradek.replication.partition import Partition
from odradek.runtime.shielded import outcome_of
from odradek.storage.files.at_hand import Missing, NotAtHand, ReadProgress

_SINCE_MODES = 2
_RECORD_LIMIT = 1
_LOOK_BYTES = 1 << 20
"""The bytes of a partition that are read for one answer. Answers are limited in records, and seldom use all that is read."""


def handle(broker: BrokerContext, context: RequestContext, request: ShareFetchRequest) -> HeldResponse:
    return HeldResponse(_fetch(broker, context, request))


async def _fetch(
    broker: BrokerContext, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    epoch = request.share_session_epoch
    acknowledgements = [
        ((topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
        for topic in request.topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    ]
    try:
        key = member_of(broker, AcknowledgementTask(request.group_id, request.member_id, epoch))
        session = await _session(broker, context, request, key, acknowledges=bool(acknowledgements))
    except KafkaError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    renews = context.api_version >= _SINCE_MODES and request.is_renew_ack
    verdicts = await acknowledge(broker, key, acknowledgements, renews=renews, access=context.access)
    fetching = _SessionFetch(broker, context, request, key, session)
    if epoch == CLOSING:
        await close_session(broker, key)
    elif not renews:
        await fetching.run()
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms(broker, key.group_id),
        responses=await _topic_responses(broker, verdicts, fetching),
    )


async def _session(
    broker: BrokerContext,
    context: RequestContext,
    request: ShareFetchRequest,
    key: ShareSessionKey,
    *,
    acknowledges: bool,
) -> ShareSession:
    epoch, connection = request.share_session_epoch, context.connection
    if epoch == OPENING:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that opens a session acknowledges nothing")
        session = await open_session(broker, key, connection)
    else:
        session = session_of(broker, key, epoch, connection)
    broker.shares.sessions.change(
        session,
        [
            (topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ],
        [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions],
    )
    return session


@dataclass(slots=True)
class _SessionFetch:
    """Looks for records of a session's partitions until there are enough, or time is up."""

    broker: BrokerContext
    context: RequestContext
    request: ShareFetchRequest
    key: ShareSessionKey
    session: ShareSession
    found: dict[ReadPartition, AcquiredBatches] = field(default_factory=dict)
    refused: dict[ReadPartition, ErrorContent] = field(default_factory=dict)
    beside: ReadProgress = field(default_factory=ReadProgress)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(self.request.max_wait_ms, 0) / 1000
        if self.request.max_records <= 0:
            return
        while True:
            lives = await self._lives(max(deadline - loop.time(), 0.0))
            waking = _PartitionWatch(lives)
            try:
                is_over = loop.time() >= deadline
                missing = self._read(lives, is_over=is_over)
                if missing is not None:
                    await self.broker.runtime.offload.run(self.beside.do, missing)
                    continue
                if self.found or self.refused or is_over:
                    break
                await waking.wait(deadline - loop.time())
            finally:
                waking.stop()
        self.session.rotate()

    async def _lives(self, seconds: float) -> list[tuple[ReadPartition, LivePartition]]:
        """Returns the session's partitions that can be read; others are refused, and those still loading are read later."""
        shares = self.broker.shares
        turn = self.broker.turns.begin()
        loads: dict[ReadPartition, asyncio.Task[LivePartition]] = {}
        for read_partition in list(self.session.partitions):
            await turn.step()
            partition_key = SharePartitionKey(self.key.group_id, *read_partition)
            try:
                check_readable(self.broker, self.context.access, read_partition)
                if shares.loaded(partition_key) is None:
                    loads[read_partition] = shares.load(partition_key)
            except KafkaError as error:
                self.refused[read_partition] = ErrorContent.of(error)
        self.refused.update(await _ended(loads, seconds))
        live_partitions = []
        for read_partition in list(self.session.partitions):
            await turn.step()
            if read_partition not in self.refused:
                live = shares.loaded(SharePartitionKey(self.key.group_id, *read_partition))
                if live is not None:
                    live_partitions.append((read_partition, live))
        return live_partitions

    def _read(self, lives: Sequence[tuple[ReadPartition, LivePartition]], *, is_over: bool) -> Missing | None:
        """Returns what another thread should bring first; nothing is acquired then."""
        config = self.broker.config
        limit = min(self.request.max_bytes, config.server.fetch_max_bytes)
        limit = min(limit, self.broker.answer_room_bytes())
        if self.broker.quotas.active:
            limit = min(limit, max(fetch_bytes_max(self.broker, self.context), 1))
        enough = max(_LOOK_BYTES, self.request.min_bytes)
        seen: list[tuple[ReadPartition, FetchedRange]] = []
        total = 0
        for read_partition, live in lives:
            try:
                fetched_range = read_acquirable(
                    live,
                    min(limit - total, enough),
                    at_least_one=not seen and limit > 0,
                    beside=self.beside,
                )
            except NotAtHand as not_at_hand:
                return not_at_hand.missing
            except KafkaError as error:
                self.refused[read_partition] = ErrorContent.of(error)
                continue
            if fetched_range is not None:
                seen.append((read_partition, fetched_range))
                total += fetched_range.size_bytes
        if total >= self.request.min_bytes or is_over or self.refused:
            self._acquire(seen)
        return None

    def _acquire(self, seen: Sequence[tuple[ReadPartition, FetchedRange]]) -> None:
        request = self.request
        by_batches = self.context.api_version < _SINCE_MODES or request.share_acquire_mode != _RECORD_LIMIT
        room = FetchLimits(
            records=request.max_records,
            by_batches=by_batches,
            batch_size=request.batch_size,
        )
        now_ms = self.broker.shares.now_ms()
        for read_partition, fetched in seen:
            if room.records <= 0:
                break
            acquired = acquire(fetched, self.key.member_id, room, now_ms)
            if acquired is not None:
                self.found[read_partition] = acquired
                self._trace(fetched.live.partition, acquired)

    def _trace(self, partition: Partition, acquired: AcquiredBatches) -> None:
        """Makes spans of the traced records that the member acquired."""
        traces = self.broker.traces
        if traces is not None and traces.remembers(partition):
            traces.fetched(
                partition,
                [(span.first_offset, span.last_offset + 1) for span in acquired.acquired],
                began=self.context.connection.figures.arrived_at,
                client_id=self.context.client_id,
                by="share",
            )


async def _ended(
    loads: dict[ReadPartition, asyncio.Task[LivePartition]], seconds: float
) -> dict[ReadPartition, ErrorContent]:
    """Wait for the partitions that are being loaded; those that cannot be. They are loaded on when time is up."""
    refused: dict[ReadPartition, ErrorContent] = {}
    try:
        async with asyncio.timeout(max(seconds, 0.001)):
            for read_partition, task in loads.items():
                try:
                    await outcome_of(task)
                except KafkaError as error:
                    refused[read_partition] = ErrorContent.of(error)
    except TimeoutError:
        pass
    return refused


class _PartitionWatch:
    """Watches partitions, from the moment it is made, for anything that may bring records."""

    def __init__(self, lives: Sequence[tuple[ReadPartition, LivePartition]]) -> None:
        self._lives = [live for _, live in lives]
        self._event = asyncio.Event()
        for live in self._lives:
            live.watch(self._event.set)
            live.partition.watch(self, committed_only=live.settings.committed_only)

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self._event.set()

    def ended(self, partition: Partition) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._event.wait()
        except TimeoutError:
            return

    def stop(self) -> None:
        for live in self._lives:
            live.unwatch(self._event.set)
            live.partition.unwatch(self)


async def _topic_responses(
    broker: BrokerContext, verdicts: dict[ReadPartition, AcknowledgementOutcome], fetching: _SessionFetch
) -> list[ShareFetchableTopicResponse]:
    turn = broker.turns.begin()
    topics: dict[object, ShareFetchableTopicResponse] = {}
    for read_partition in dict.fromkeys([*verdicts, *fetching.refused, *fetching.found]):
        await turn.step()
        topic_id, index = read_partition
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
        verdict = verdicts.get(read_partition, AcknowledgementOutcome(ErrorCode.NONE))
        refused = fetching.refused.get(read_partition)
        acquired = fetching.found.get(read_partition)
        topic.partitions.append(
            PartitionData(
                partition_index=index,
                error_code=ErrorCode.NONE if refused is None else refused.code,
                error_message=None if refused is None else refused.message,
                acknowledge_error_code=verdict.code,
                acknowledge_error_message=verdict.message,
                records=b"" if acquired is None else acquired.records,
                acquired_records=[] if acquired is None else _acquired(acquired),
            )
        )
    return list(topics.values())


def _acquired(acquired: AcquiredBatches) -> list[AcquiredRecords]:
    return [
        AcquiredRecords(
            first_offset=span.first_offset, last_offset=span.last_offset, delivery_count=span.delivery_count
        )
        for span in acquired.acquired
    ]


SERVED = ApiHandler(78, handle, holds=True)
