"""Turns batches into requests and answers into deliveries. Runs on the event loop, without a task of its own.

Each turn closes what is due, plans requests (`request_plan`), and sends them; answers come back as callbacks and are
judged (`produce_verdict`, `partition_queue`). Whatever might change the plan (a full batch, an answer, a connection, new
metadata, the end of a pause) asks for another turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final
from uuid import UUID

from odradek.client.network.cluster import ClusterClient
from odradek.client.network.connection import BrokerConnection
from odradek.client.network.errors import ClientBrokenError, TimedOutError, explain
from odradek.client.network.leaderless import LeaderlessWarnings
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.delivery import ProducerBatch, split_batch
from odradek.client.producer.error_handling import ProduceErrorAction
from odradek.client.producer.failure_log import FailureLog
from odradek.client.producer.partition_queue import AttemptResult
from odradek.client.producer.producer_metrics import SendingFigures
from odradek.client.producer.request_plan import PlannedRequest, ProducePlan, ProducePlanner
from odradek.client.producer.retry_warnings import RetryWarnings
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ProducerSettings
from odradek.client.transactions.core import ProducerId
from odradek.client.transactions.service import ProducerTransactions
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_BROKER, ZERO_UUID, TopicPartition
from odradek.protocol import api_by_name
from odradek.protocol.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.messages.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.records import Codec
from odradek.telemetry import events

_log = events.get("client")

_PRODUCE: Final = api_by_name("Produce")
_LAST_VERSION_WITH_NAMES: Final = 12
_LAST_VERSION_FOR_CLASSIC_TRANSACTIONS: Final = 11
_NO_TIMEOUT_S: Final = 3_600.0

InFlight = dict[TopicPartition, ProducerBatch]
TopicNames = Mapping[UUID, str]
"""The names of a request's topics by id: when its answer comes, the image may have other ids, or none."""


class Sender:
    """The sender of one producer. `turn` must be called on the loop; `failures` collects errors that no one has seen."""

    def __init__(self, settings: ProducerSettings, cluster: ClusterClient, accumulator: Accumulator) -> None:
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._planner = ProducePlanner(
            accumulator,
            leader_of=lambda tp: cluster.image.leader(tp),
            capacity_of=self._capacity_of,
            idempotent=settings.enable_idempotence,
            request_bytes_max=settings.max_request_size,
            admits=self._admits if settings.transactional_id else None,
        )
        self._codec = Codec.from_name(settings.compression_type)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._soon: asyncio.Handle | None = None
        self._identifying: asyncio.Task[None] | None = None
        self._stopped = False
        self.transactions: ProducerTransactions | None = None
        """The transactions of a producer with a transactional id; None for others."""
        self.failures: Final = FailureLog()
        self._retry_warnings: Final = RetryWarnings()
        self._leaderless_warnings: Final = LeaderlessWarnings()
        self.figures: Final = SendingFigures(cluster.clock)
        cluster.links.on_change = self.turn_soon
        cluster.metadata.on_news = self._metadata_changed

    def identified(self, identity: ProducerId) -> None:
        """Sets the id and epoch of the next transactions."""
        self._accumulator.renumber()
        self._planner.producer_id = identity

    def turn_soon(self) -> None:
        """Takes a turn once the callback that runs now has finished. Called on the loop."""
        if self._soon is None and not self._stopped:
            self._soon = asyncio.get_running_loop().call_soon(self.turn)

    def turn(self) -> None:
        """Does the work that is due, and schedules the next turn. Called on the loop."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._stopped:
            return
        try:
            now = self._cluster.clock.monotonic()
            for batch in self._accumulator.collect(now):
                self._expire(batch)
            if self._accumulator.revived:
                self._cluster.metadata.want(self._accumulator.revived)
                self._accumulator.revived.clear()
            with self._accumulator.lock:
                plan = self._planner.plan(now)
            for request in plan.requests:
                self._send(request)
            self._follow_up(plan, now)
        except Exception as error:  # noqa: BLE001 - the root of the producer's work: users must learn of it
            self._break_down(error)

    async def stop(self) -> None:
        """Ends all turns. Unsettled batches stay unsettled."""
        self._stopped = True
        for handle in (self._timer, self._soon):
            if handle is not None:
                handle.cancel()
        if self._identifying is not None:
            self._identifying.cancel()
            await asyncio.gather(self._identifying, return_exceptions=True)

    # -- one turn

    def _admits(self, tp: TopicPartition) -> bool:
        return self.transactions is not None and self.transactions.core.admits(tp)

    def _capacity_of(self, broker: int) -> int:
        connection = self._cluster.ready(broker)
        if connection is None or not connection.writable:
            return 0
        return self._settings.max_in_flight_requests_per_connection - connection.in_flight

    def _follow_up(self, plan: ProducePlan, now: float) -> None:
        limit_ms = self._settings.delivery_timeout_ms
        consequence = f"records wait, and fail after {limit_ms} ms (delivery.timeout.ms)"
        self._leaderless_warnings.check(plan.leaderless, self._cluster.image, now, consequence)
        if plan.leaderless:
            self._cluster.metadata.request_update()
        if plan.not_admitted and self.transactions is not None and self.transactions.core.to_add:
            self.transactions.add_partitions_soon()
        if plan.producer_id_wanted and self._identifying is None and self.transactions is None:
            self._identifying = asyncio.get_running_loop().create_task(
                self._identify(), name="odradek-producer-id"
            )
        times = [time for time in (self._accumulator.next_due(), plan.retry_at) if time is not None]
        self._set_timer(min(times, default=None))

    def _set_timer(self, due: float | None) -> None:
        if self._timer is not None:
            if due == self._timer_due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer_due = due
            delay = max(0.0, due - self._cluster.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._timed_turn)

    def _timed_turn(self) -> None:
        self._timer = None
        self.turn()

    def _expire(self, batch: ProducerBatch) -> None:
        self._accumulator.abandon(batch)
        self._fail(batch, self._too_late(batch, batch.last_problem or self._cluster.metadata.problem))

    def _too_late(self, batch: ProducerBatch, cause: Exception | None) -> TimedOutError:
        limit_ms = self._settings.delivery_timeout_ms
        what = f"{batch.record_count} record(s) for {batch.topic_partition} were not acknowledged within {limit_ms} ms"
        return TimedOutError(what, cause)

    def _fail(self, batch: ProducerBatch, error: Exception) -> None:
        if not batch.done:
            self.failures.note(batch, error)
            self.figures.failed.add(batch.record_count)
            batch.settle(error=error)
            if self.transactions is not None:
                self.transactions.batch_failed(error)

    def _break_down(self, error: Exception) -> None:
        _log.exception("producer_broke_down")
        self._stopped = True
        self.give_up(ClientBrokenError("producer", error))

    def give_up(self, failure: Exception) -> None:
        """Fail everything that is not settled, and every record to come."""
        for batch in self._accumulator.fail_all(failure):
            self._fail(batch, failure)

    # -- requests

    def _send(self, request: PlannedRequest) -> None:
        connection = self._cluster.ready(request.broker)
        in_flight = {batch.topic_partition: batch for batch in request.batches}
        if connection is None:
            self._answer_all(in_flight, _lost("the connection was lost"))
            return
        try:
            message, at_most = self._message(request.batches)
            self.figures.sending(request.batches)
            if self._settings.acks == 0:
                connection.send_unanswered(message, at_most=at_most)
                self._answer_all(in_flight, AttemptResult(code=ErrorCode.NONE))
                return
        except KafkaError as error:
            self._answer_all(in_flight, AttemptResult(code=error.code, error=error))
            return
        names = {topic.topic_id: topic.name for topic in message.topic_data}
        future = connection.send(message, at_most=at_most)
        future.add_done_callback(
            partial(self._answered, in_flight, names, connection, self._cluster.clock.monotonic())
        )

    def _message(self, batches: list[ProducerBatch]) -> tuple[ProduceRequest, int | None]:
        """Returns the request, and the highest version that it can be sent in."""
        image = self._cluster.image
        topics: dict[str, TopicProduceData] = {}
        at_most = None
        for batch in batches:
            tp = batch.topic_partition
            topic = topics.get(tp.topic)
            if topic is None:
                topic_id = image.topic_id(tp.topic)
                if topic_id == ZERO_UUID:
                    at_most = _LAST_VERSION_WITH_NAMES
                topic = topics[tp.topic] = TopicProduceData(
                    name=tp.topic, topic_id=topic_id, partition_data=[]
                )
            topic.partition_data.append(PartitionProduceData(index=tp.partition, records=batch.encode()))
        if self.transactions is not None and not self.transactions.core.epoch_per_transaction:
            at_most = _LAST_VERSION_FOR_CLASSIC_TRANSACTIONS
        message = ProduceRequest(
            transactional_id=None if self.transactions is None else self.transactions.core.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        return message, at_most

    # -- answers

    def _answered(
        self,
        in_flight: InFlight,
        names: TopicNames,
        connection: BrokerConnection,
        sent_at: float,
        future: asyncio.Future[ProduceResponse],
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if self._stopped or future.cancelled():
            return
        try:
            if error is None:
                self.figures.request_latency.add(self._cluster.clock.monotonic() - sent_at)
                self._read(in_flight, names, connection, future.result())
            elif isinstance(error, KafkaError):
                self._answer_all(in_flight, AttemptResult(code=error.code, error=error))
            else:
                raise error
        except Exception as error:  # noqa: BLE001 - the root of the producer's work: users must learn of it
            self._break_down(error)
            return
        self.turn_soon()

    def _read(
        self,
        in_flight: InFlight,
        names: TopicNames,
        connection: BrokerConnection,
        response: ProduceResponse,
    ) -> None:
        endpoints = {
            node_endpoint.node_id: Address(node_endpoint.host, node_endpoint.port)
            for node_endpoint in response.node_endpoints
        }
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for partition_response in topic.partition_responses:
                batch = in_flight.pop(TopicPartition(name, partition_response.index), None)
                if batch is not None:
                    self._resolve(
                        batch,
                        self._answer(batch, partition_response),
                        self._learn_leader(batch, partition_response, endpoints),
                    )
        if in_flight:
            left_out = f"the answer of {connection.address} left the partition out"
            self._answer_all(in_flight, _lost(left_out))

    def _answer(self, batch: ProducerBatch, response: PartitionProduceResponse) -> AttemptResult:
        if response.error_code == ErrorCode.NONE:
            return AttemptResult(
                code=ErrorCode.NONE,
                base_offset=response.base_offset,
                log_append_time_ms=response.log_append_time_ms,
            )
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return AttemptResult(code=code)
        reason = response.error_message or code.meaning
        bad = [
            f"record {record_error.batch_index} of the batch: {record_error.batch_index_error_message}"
            for record_error in response.record_errors
        ]
        details = f" ({'; '.join(bad[:3])})" if bad else ""
        return AttemptResult(code=code, error=KafkaError(code, f"{batch.topic_partition}: {reason}{details}"))

    def _learn_leader(
        self, batch: ProducerBatch, response: PartitionProduceResponse, endpoints: Mapping[int, Address]
    ) -> bool:
        """Tells whether the refusal named a newer leader, so that there is no need to ask or wait (KIP-951)."""
        if response.error_code == ErrorCode.NONE or response.current_leader.leader_id < 0:
            return False
        metadata = self._cluster.metadata
        leader = response.current_leader
        newer = metadata.image.with_leader(
            batch.topic_partition, leader.leader_id, leader.leader_epoch, endpoints
        )
        moved = newer is not metadata.image
        metadata.image = newer
        return moved

    def _answer_all(self, in_flight: InFlight, attempt: AttemptResult) -> None:
        for batch in in_flight.values():
            self._resolve(batch, attempt, leader_known=False)
        self.turn_soon()

    def _resolve(self, batch: ProducerBatch, attempt: AttemptResult, leader_known: bool) -> None:
        """Act on the verdict about one batch."""
        now = self._cluster.clock.monotonic()
        may_retry = batch.attempt_count <= self._settings.retries and now < batch.deadline
        gives_up = self.transactions is not None and self.transactions.core.gives_up
        accumulator = self._accumulator
        with accumulator.lock:
            queue = accumulator.queue_of(batch)
            verdict = queue.answered(batch, attempt, may_retry=may_retry, gives_up=gives_up)
            if verdict in (ProduceErrorAction.DELIVERED, ProduceErrorAction.GIVE_UP):
                accumulator.release(batch)
            elif verdict is ProduceErrorAction.RETRY or (
                verdict is ProduceErrorAction.RETRY_ELSEWHERE and not leader_known
            ):
                queue.not_before = now + self._cluster.backoff.delay_s(batch.attempt_count - 1)
            accumulator.mark(queue)
        if verdict is ProduceErrorAction.DELIVERED:
            self._retry_warnings.delivered(batch.topic_partition)
            batch.settle(base_offset=attempt.base_offset, log_append_time_ms=attempt.log_append_time_ms)
            return
        if verdict is ProduceErrorAction.GIVE_UP:
            error = attempt.error or KafkaError(attempt.code)
            self._fail(
                batch,
                self._too_late(batch, error) if attempt.code.retriable and now >= batch.deadline else error,
            )
            return
        _log.debug(
            "produce_retry", partition=batch.topic_partition, code=attempt.code.name, verdict=verdict.name
        )
        if verdict is not ProduceErrorAction.SPLIT:
            self.figures.retried.add(batch.record_count)
        if verdict in (ProduceErrorAction.RETRY, ProduceErrorAction.RETRY_ELSEWHERE):
            self._retry_warnings.retried(
                batch.topic_partition,
                attempt.code,
                attempt.error,
                attempts=batch.attempt_count,
                timeout_ms=self._settings.delivery_timeout_ms,
            )
        if verdict is ProduceErrorAction.SPLIT:
            self.figures.split.add(1)
            parts = split_batch(batch, self._codec, self._settings.codec_level)
            batch.split_into(parts)
            with accumulator.lock:
                accumulator.replace(batch, parts)
        elif verdict is ProduceErrorAction.RETRY_ELSEWHERE and not leader_known:
            self._cluster.metadata.request_update()

    # -- metadata and producer id

    def _metadata_changed(self) -> None:
        idle_since = self._cluster.clock.monotonic() - self._settings.metadata_max_idle_ms / 1000
        self._cluster.metadata.remove_interest(self._accumulator.rest(idle_since))
        for name, topic in self._cluster.image.topics.items():
            if name in self._accumulator.topics:
                self._accumulator.update(name, len(topic.partitions), topic.available)
        self.turn_soon()

    async def _identify(self) -> None:
        """Get a producer id; a fatal error ends the producer."""
        try:
            self._planner.producer_id = await self._cluster.retrying(
                "getting a producer id", _NO_TIMEOUT_S, self._request_producer_id
            )
        except KafkaError as error:
            if not error.retriable:
                self.give_up(_cannot_be_idempotent(error))
        except Exception as error:  # noqa: BLE001 - the root of a task: users must learn of it
            self._break_down(error)
        finally:
            self._identifying = None
        self.turn_soon()

    async def _request_producer_id(self, timeout_s: float) -> ProducerId:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        response = await self._cluster.send(NO_BROKER, request, InitProducerIdResponse, timeout_s=timeout_s)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code))
        return ProducerId(producer_id=response.producer_id, producer_epoch=response.producer_epoch)


def _lost(problem: str) -> AttemptResult:
    return AttemptResult(
        code=ErrorCode.NETWORK_EXCEPTION, error=KafkaError(ErrorCode.NETWORK_EXCEPTION, problem)
    )


def _cannot_be_idempotent(error: KafkaError) -> KafkaError:
    return KafkaError(
        error.code,
        f"the cluster gives this producer no id ({explain(error)}): set enable_idempotence=False to do without",
    )
