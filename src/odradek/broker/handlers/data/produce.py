"""Produce (0): append batches to partitions.

Versions 3-13 (0-2 are listed for librdkafka's sake; a client that sends one is dropped, as Kafka does); topic ids from v13.

acks=0 has no response: the broker can report an error only by closing the connection. acks=1 answers once the batch is in the
log. acks=all answers once it is below the high watermark: on the disks of all in-sync replicas, unless `flush.before.ack` is
off. From v10 on a refusal because another broker leads names it (KIP-951).

The first batch of a transaction in a partition waits until its coordinator agreed (KIP-890,
`broker/produce/transaction_verification.py`): up to version 11 the partition must have been added to the transaction, from
version 12 on this adds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

from odradek.broker.access.conditions import has_transactional_batches
from odradek.broker.handlers.current_leader import LeaderHints
from odradek.broker.produce.acknowledging import AppendWaits, all_settled, settled
from odradek.broker.produce.record_validation import (
    Batches,
    InlineWork,
    OffloadRequired,
    ValidationTerms,
    checked_batches,
    plain_batch,
)
from odradek.broker.produce.transaction_verification import TransactionVerification
from odradek.broker.requests.context import (
    ApiHandler,
    BrokerContext,
    Encode,
    HeldResponse,
    RequestContext,
)
from odradek.broker.requests.dispatch import closing_error, with_timeout
from odradek.model.errors import ErrorCode, ErrorContent, KafkaError, RecordsRefusedError
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, Reply, at_once
from odradek.protocol import RequestHeader
from odradek.protocol.framing import RECEIVE_BYTES_MAX
from odradek.protocol.messages.data.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.single_batch import SingleBatch, encode_appended, read_single_batch
from odradek.records import BatchHeader, read_header
from odradek.replication.crowded_appends import ROOM_SECONDS, append_with_room
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition
from odradek.runtime.prompt import PromptFuture
from odradek.storage.log.health import CrowdedLogsError
from odradek.storage.log.results import AppendResult
from odradek.storage.producers.verification import UNVERIFIED

_SINCE_HINTS: Final = 10
_SINCE_TOPIC_IDS: Final = 13
_ALL: Final = -1
_STEP_BYTES_MAX: Final = 256 * 1024
"""A batch of a long request that expands to more bytes is checked on another thread."""
_NO_FRAME: Final = memoryview(b"")
_PARTITION_COSTS_BYTES: Final = 8192
"""The other work for a partition takes as long as checking this many bytes."""


def handle(
    broker: BrokerContext, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse] | HeldResponse | None:
    broker.appends.flush()  # what came before must be appended before
    is_transactional = has_transactional_batches(request)
    refusal = _refusal(request, is_transactional=is_transactional)
    if refusal is not None:
        return _refused(request, refusal)
    work = _Work(broker, context, request)
    if is_transactional:
        try:
            needs_coordinator = work.begin_verification()
        except KafkaError as error:
            return _refused(request, error)
        if needs_coordinator:
            return HeldResponse(work.verified())
    taken = work.append_inline()
    if taken is not None:
        return HeldResponse(work.held(taken))
    context.connection.forget_frame()
    if request.acks == 0:
        work.raise_first_error()
        return None
    if work.waiting:
        return work.acknowledged_at_once() or work.acknowledged()
    return work.response()


def handle_single(
    broker: BrokerContext,
    connection: Connection,
    header: RequestHeader,
    frame: memoryview,
    position: int,
    encode: Encode,
) -> Chunks | PromptFuture[Chunks | None] | None:
    """Serves a request of one plain batch, which nearly all small ones are. Returns None, with nothing done, for any other."""
    asked = read_single_batch(frame, position, header.api_version)
    if (
        asked is None
        or asked.acks not in (1, _ALL)
        or len(frame) > RECEIVE_BYTES_MAX
        or broker.traces is not None
    ):
        return None
    now_ms = broker.runtime.clock.wall_ms()
    topic, replicas = asked.topic, broker.replicas
    try:
        partition = (
            replicas.replica_by_id(topic, asked.partition)
            if isinstance(topic, UUID)
            else replicas.replica(topic, asked.partition)
        )
        replicas.check_writable_by_clients(partition)
        batch = plain_batch(asked.records, partition.log.config, now_ms)
    except KafkaError:
        return None  # nothing was appended: the general way meets the same error, and answers with it
    if batch is None:
        return None
    request = _SingleRequest(broker, connection, header, frame, encode, asked, partition, batch)
    return broker.appends.append(request, now_ms)


class _SingleRequest:
    """A request of one plain batch: implements `SingleRequest`."""

    __slots__ = (
        "_broker",
        "_connection",
        "_encode",
        "_frame",
        "_header",
        "_index",
        "_topic",
        "batch",
        "chunks",
        "last_offset",
        "partition",
        "reply",
        "timeout_ms",
        "waits_for_all",
    )

    def __init__(
        self,
        broker: BrokerContext,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        encode: Encode,
        asked: SingleBatch,
        partition: Partition,
        batch: tuple[BatchHeader, memoryview],
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._header = header
        self._frame = frame
        self._encode = encode
        acks, self.timeout_ms, self._topic, self._index, _ = asked  # not the records
        self.waits_for_all = acks == _ALL
        self.partition = partition
        self.batch = batch
        self.chunks: Chunks
        self.last_offset: int
        self.reply: PromptFuture[Chunks | None]

    def appended(self, base_offset: int, appended: AppendResult) -> None:
        header, records = self.batch
        traffic = self._broker.traffic.of(self.partition.name.topic)
        if appended.duplicate:
            traffic.produce_count += 1
        else:
            traffic.appended(header.last_offset_delta + 1, len(records))
        self._frame, self.batch = _NO_FRAME, (header, _NO_FRAME)
        self.last_offset = base_offset + header.last_offset_delta
        self.chunks = [
            encode_appended(
                self._header.api_version,
                self._header.correlation_id,
                self._topic,
                self._index,
                base_offset=base_offset,
                log_append_time_ms=appended.log_append_time_ms,
                log_start_offset=self.partition.log.start_offset,
            )
        ]

    def refused(self, ended: asyncio.Future[None]) -> Chunks:
        context = RequestContext.of(self._connection, self._header)
        nothing_left = ProduceRequest(acks=_ALL, timeout_ms=self.timeout_ms, topic_data=[])
        work = _Work(self._broker, context, nothing_left)
        return at_once(self._encode(work.refused_single(self._topic, self._index, self.partition, ended)))

    def forget_frame(self) -> None:
        self._connection.forget_frame()

    def serve_alone(self) -> Reply:
        return self._broker.serve(self._connection, self._frame, None)


def _writable(broker: BrokerContext, topic: str | UUID, index: int) -> Partition:
    """Returns the partition, by the name or id of its topic, if this broker leads it and clients may write to it. Raises what
    refuses it."""
    replicas = broker.replicas
    partition = (
        replicas.leader_by_id(topic, index) if isinstance(topic, UUID) else replicas.leader(topic, index)
    )
    replicas.check_writable_by_clients(partition)
    return partition


def _count(
    broker: BrokerContext,
    partition: Partition,
    batches: Sequence[tuple[BatchHeader, memoryview]],
    appended: AppendResult,
) -> None:
    traffic = broker.traffic.of(partition.name.topic)
    if appended.duplicate:
        traffic.produce_count += 1
        return
    size_bytes = sum([len(batch) for _, batch in batches])
    traffic.appended(appended.last_offset - appended.first_offset + 1, size_bytes)


def _refused(request: ProduceRequest, refusal: KafkaError) -> ProduceResponse:
    if request.acks == 0:
        raise closing_error(refusal)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_failed(data.index, refusal) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _refusal(request: ProduceRequest, *, is_transactional: bool) -> KafkaError | None:
    if request.acks not in (0, 1, _ALL):
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)"
        )
    if is_transactional and request.transactional_id is None:
        return KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "the request has transactional batches and no transactional id: set one",
        )
    return None


class _Work:
    """One request's appends, and the acknowledgements that they wait for."""

    def __init__(self, broker: BrokerContext, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._version = context.api_version
        self._topic_data: Sequence[TopicProduceData] = request.topic_data
        """The request's topics with their records, until these are appended."""
        self._transactional_id = request.transactional_id
        self._timeout_ms = request.timeout_ms
        self._acks = request.acks
        self._now_ms = broker.runtime.clock.wall_ms()
        self._topics: dict[tuple[str, UUID], TopicProduceResponse] = {}
        self._context = context
        self._share = context.connection.share_being_served
        """The share of the frame that holds the records, if the frame is large."""
        self._first_error: ErrorContent | None = None
        self._is_misled = False
        """Whether others lead one of the partitions."""
        self._admission: TransactionVerification | None = None
        self.waiting: dict[int, tuple[Partition, asyncio.Future[None]]] = {}
        """What responses wait for, by the `id()` of the response, which lives as long as this object."""
        self._monotonic = broker.runtime.clock.monotonic
        self._began = self._monotonic() if broker.traces is not None else 0.0
        self._waits = AppendWaits(self._monotonic)

    def append_inline(self) -> int | None:
        """Check and append every partition's batch, and note the responses; or stop before one that takes long: how many were
        taken.
        """
        inline = InlineWork()
        taken = 0
        for topic in self._topic_data:
            for data in topic.partition_data:
                try:
                    self._check_and_append(topic, data, inline)
                except (OffloadRequired, CrowdedLogsError):
                    return taken
                taken += 1
        self._forget_records()
        return None

    def _forget_records(self) -> None:
        """Drops the records, which are in the log: waiting with them would keep the whole frame in memory."""
        self._topic_data = ()
        if self._share is not None:
            self._share.release()

    def _check_and_append(
        self, topic: TopicProduceData, data: PartitionProduceData, inline: InlineWork
    ) -> None:
        """Checks and appends the batches. Raises OffloadRequired, with nothing done, if that takes too long for the loop, and
        CrowdedLogsError if the append has to wait for a descriptor.
        """
        inline.spend(_PARTITION_COSTS_BYTES)
        try:
            partition, terms = self._find(topic, data)
            response = self._append(partition, data, checked_batches(data.records, terms, inline))
        except CrowdedLogsError:
            raise
        except KafkaError as error:
            response = self._note_error(topic, data, error)
        self._note(topic, response)

    def begin_verification(self) -> bool:
        """Tells whether a coordinator must be asked about a batch. Raises INVALID_PRODUCER_ID_MAPPING for several producers."""
        assert self._transactional_id is not None
        self._admission = TransactionVerification(
            self._broker.verifier, self._transactional_id, self._version
        )
        for topic in self._topic_data:
            for data in topic.partition_data:
                try:
                    partition, _ = self._find(topic, data)
                    header = read_header(data.records or b"")
                except KafkaError:  # the append raises it again
                    continue
                if header.is_transactional:
                    self._admission.add(partition, header, self._now_ms)
        return self._admission.has_questions

    async def verified(self) -> ProduceResponse | None:
        """Handles the whole request, after questions to coordinators."""
        assert self._admission is not None
        await self._admission.verify()
        return await self.held(0)

    async def held(self, taken: int) -> ProduceResponse | None:
        """Appends the batches after the first `taken` ones: checked in turns, or on another thread. Later requests wait, so
        order is kept.
        """
        await self._append_rest(taken)  # of its own, so that none of its variables keeps the records
        self._forget_records()
        if self._acks == 0:
            self.raise_first_error()
            return None
        return await self.acknowledged()

    async def _append_rest(self, taken: int) -> None:
        turn = self._broker.turns.begin()
        pairs = ((topic, data) for topic in self._topic_data for data in topic.partition_data)
        for topic, data in islice(pairs, taken, None):
            await turn.step()
            try:
                self._check_and_append(topic, data, InlineWork(_STEP_BYTES_MAX))
            except (OffloadRequired, CrowdedLogsError):
                self._note(topic, await self._appended_later(topic, data))

    async def _appended_later(
        self, topic: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        try:
            partition, terms = self._find(topic, data)
            batches = await self._broker.runtime.offload.run(checked_batches, data.records, terms)
            return await append_with_room(
                partition.log, lambda: self._append(self._find(topic, data)[0], data, batches), self._room_s
            )
        except KafkaError as error:
            return self._note_error(topic, data, error)

    @property
    def _room_s(self) -> float:
        """How long an append waits for a descriptor. Only acks=all has a time by which it must be acknowledged."""
        timeout_s = max(self._timeout_ms, 0) / 1000
        return timeout_s if self._acks == _ALL else max(timeout_s, ROOM_SECONDS)

    def response(self) -> ProduceResponse:
        response = ProduceResponse(responses=list(self._topics.values()))
        return self._with_hints(response) if self._is_misled and self._version >= _SINCE_HINTS else response

    def _with_hints(self, response: ProduceResponse) -> ProduceResponse:
        """Adds the leader of each partition that another broker leads."""
        hints = LeaderHints(self._broker, self._context)
        for topic in response.responses:
            for position, data in enumerate(topic.partition_responses):
                if data.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                known = hints.leader_of(topic.name, topic.topic_id, data.index)
                if known is not None:
                    leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
                    topic.partition_responses[position] = data.replace(current_leader=leader)
        endpoints = [
            NodeEndpoint(
                node_id=endpoint.broker_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
            for endpoint in hints.endpoints()
        ]
        return response.replace(node_endpoints=endpoints) if endpoints else response

    def raise_first_error(self) -> None:
        if self._first_error is not None:
            raise closing_error(self._first_error.error())

    def _note(self, topic: TopicProduceData, response: PartitionProduceResponse) -> None:
        key = (topic.name, topic.topic_id)
        noted = self._topics.get(key)
        if noted is None:
            noted = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
            self._topics[key] = noted
        noted.partition_responses.append(response)

    def _note_error(
        self, topic: TopicProduceData, data: PartitionProduceData, error: KafkaError
    ) -> PartitionProduceResponse:
        if self._first_error is None:
            # Through a traceback this object would keep alive whatever the checks had expanded, in a cycle.
            self._first_error = ErrorContent.of(error)
        image = self._broker.image
        known = image.topics.get(topic.name) if topic.name else image.topics_by_id.get(topic.topic_id)
        if known is not None:
            is_too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
            self._broker.traffic.of(known.name).refused(len(data.records or b"") if is_too_large else 0)
        return self._refuse(data.index, error)

    def _refuse(self, index: int, error: KafkaError) -> PartitionProduceResponse:
        self._is_misled = self._is_misled or error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _failed(index, error)

    def _find(self, topic: TopicProduceData, data: PartitionProduceData) -> tuple[Partition, ValidationTerms]:
        by_id = self._version >= _SINCE_TOPIC_IDS
        partition = _writable(self._broker, topic.topic_id if by_id else topic.name, data.index)
        if self._acks == _ALL:
            leader = partition.leader()
            try:
                leader.check_in_sync()
            except KafkaError as error:
                raise self._judged(leader, error) from None
        return partition, ValidationTerms(
            config=partition.config, api_version=self._version, now_ms=self._now_ms
        )

    def _append(
        self, partition: Partition, data: PartitionProduceData, batches: Batches
    ) -> PartitionProduceResponse:
        guard = UNVERIFIED if self._admission is None else self._admission.guard_of(partition)
        leader = partition.leader()
        try:
            appended = leader.append(batches, now_ms=self._now_ms, guard=guard)
        except KafkaError as error:
            if batches[0][0].is_transactional:
                raise  # whatever went wrong, its producer aborts the transaction, and writes nothing twice
            raise self._judged(leader, error) from None
        _count(self._broker, partition, batches, appended)
        if self._broker.traces is not None:
            self._broker.traces.appended(
                partition, batches, appended, began=self._began, client_id=self._context.client_id
            )
        response = PartitionProduceResponse(
            index=data.index,
            error_code=ErrorCode.NONE,
            base_offset=appended.first_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=partition.start_offset,
        )
        if self._acks == _ALL:
            future = leader.acknowledgement(appended.last_offset)
            if future is not None:
                self.waiting[id(response)] = (partition, future)
                if leader.in_sync_count > 1:
                    self._waits.watch(partition)
        return response

    def _judged(self, leader: LeaderRole, refusal: KafkaError) -> KafkaError:
        return leader.judged(refusal, self._broker.runtime.clock.monotonic())

    def acknowledged_at_once(self) -> PromptFuture[ProduceResponse] | None:
        """Returns the response to a request with a single batch, made in the turn of the loop that acknowledges it; None for
        other requests."""
        if (
            len(self.waiting) > 1
            or sum(len(topic.partition_responses) for topic in self._topics.values()) > 1
        ):
            return None
        [(_, acknowledgement)] = self.waiting.values()
        if acknowledgement.done():
            return None
        began = self._monotonic()
        timer = asyncio.get_running_loop().call_later(max(self._timeout_ms, 0) / 1000, acknowledgement.cancel)
        response: PromptFuture[ProduceResponse] = PromptFuture()

        def settle(_: asyncio.Future[None]) -> None:
            timer.cancel()
            if response.done():
                return
            try:
                outcomes = self._outcomes(began)
            except Exception as error:  # noqa: BLE001 - the connection waits for this: it must learn of any end
                response.set_exception(error)
            else:
                response.set_result(outcomes)

        def give_up(_: PromptFuture[ProduceResponse]) -> None:
            if response.cancelled():
                acknowledgement.cancel()

        acknowledgement.add_done_callback(settle)
        response.add_done_callback(give_up)
        return response

    async def acknowledged(self) -> ProduceResponse:
        """Returns the response, once every append is durable, failed, or out of time."""
        futures = [future for _, future in self.waiting.values()]
        began = self._monotonic()
        if len(futures) == 1:
            await settled(futures[0], self._timeout_ms)
        elif futures:
            await with_timeout(all_settled(futures), self._timeout_ms)
        return self._outcomes(began)

    def _outcomes(self, began: float) -> ProduceResponse:
        if self.waiting:
            self._waits.note(self._broker.requests, began)
        return self._decided()

    def refused_single(
        self, topic: str | UUID, index: int, partition: Partition, acknowledgement: asyncio.Future[None]
    ) -> ProduceResponse:
        """Returns the response to a request of one batch that was appended, and that is not acknowledged."""
        asked = TopicProduceData(partition_data=[])
        asked = asked.replace(topic_id=topic) if isinstance(topic, UUID) else asked.replace(name=topic)
        response = PartitionProduceResponse(index=index)
        self._note(asked, response)
        self.waiting[id(response)] = (partition, acknowledgement)
        return self._decided()

    def _decided(self) -> ProduceResponse:
        for topic in self._topics.values():
            topic.partition_responses[:] = [
                self._outcome(partition_response) for partition_response in topic.partition_responses
            ]
        return self.response()

    def _outcome(self, response: PartitionProduceResponse) -> PartitionProduceResponse:
        waiting = self.waiting.get(id(response))
        if waiting is None:
            return response
        partition, future = waiting
        if not future.done() or future.cancelled():
            message = (
                f"{partition.name}: not yet durable on all in-sync replicas when the request's time was up"
            )
            return _failed(response.index, KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
        error = future.exception()
        return self._refuse(response.index, error) if isinstance(error, KafkaError) else response


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    named = error.records if isinstance(error, RecordsRefusedError) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message=why)
            for position, why in named
        ],
        error_message=error.message,
    )


SERVED = ApiHandler(0, handle, short=handle_single)
