"""Fetches ahead for a consumer. Runs on the event loop: requests and answers are callbacks, lookups are short tasks.

Each turn plans what to ask (`assignment`) and sends at most one Fetch to each broker, in that broker's session
(`fetch_session`). Whatever might change the plan (an answer, room in the buffer, a seek, a connection, new metadata, the
end of a pause) asks for another turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from odradek.client.consumer.fetch_session import (
    ClientFetchSession,
    PartitionFetch,
    SessionRequest,
)
from odradek.client.consumer.offset_lookup import (
    LeaderEpochEnd,
    left_out_of_answer,
    list_epoch_ends,
    list_leader_offsets,
)
from odradek.client.consumer.subscription_state import (
    BY_DURATION,
    LATEST,
    Assignment,
    FetchPlan,
    PartitionState,
)
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.connection import BrokerConnection
from odradek.client.network.errors import BrokerUnreachableError, ClientBrokenError, explain
from odradek.client.network.leaderless import LeaderlessWarnings
from odradek.client.network.metadata_snapshot import LEADER_MAY_HAVE_MOVED
from odradek.client.network.metrics import Measure
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ConsumerSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_BROKER, ZERO_UUID, TopicPartition
from odradek.protocol import api_by_name
from odradek.protocol.messages.data.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from odradek.telemetry import events

_log = events.get("client")

_FETCH: Final = api_by_name("Fetch")
_EPOCHS: Final = api_by_name("OffsetForLeaderEpoch")
_LAST_VERSION_WITH_NAMES: Final = 12
_LAST_VERSION_WITHOUT_SESSIONS: Final = 6
_REFUSALS_BEFORE_WARNING: Final = 5
_WITHOUT_FOLLOWERS_S: Final = 10.0
"""After trouble with a follower. By then the controller has noticed a dead one, at its default settings."""
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Mended by beginning a new session, at once."""
ISOLATION: Final[Mapping[str, int]] = {"read_uncommitted": 0, "read_committed": 1}

Generations = dict[TopicPartition, int]
FindCommitted = Callable[
    [list[TopicPartition]],
    Awaitable[tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, KafkaError]]],
]
"""Asks the group's coordinator; returns (offsets, None where nothing was committed; errors of refused partitions)."""


class Fetcher:
    """The fetcher of one consumer. `turn` must be called on the loop."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: ClusterClient,
        assignment: Assignment,
        find_committed: FindCommitted | None = None,
    ) -> None:
        self._find_committed = find_committed
        self._settings = settings
        self._cluster = cluster
        self._assignment = assignment
        self._isolation = ISOLATION[settings.isolation_level]
        self._request_timeout_s = settings.request_timeout_ms / 1000
        self._sessions: dict[int, ClientFetchSession] = {}
        self._fetching: set[int] = set()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._stopped = False
        self._rack_from = 0.0
        """The time until which no rack is sent: a follower had a problem, so leaders are asked."""
        self._leaderless_warnings: Final = LeaderlessWarnings()
        self.latency: Final = Measure(cluster.clock)
        self.fetched_bytes: Final = Measure(cluster.clock)
        self.links: Final = cluster.more_links(self.turn_soon)
        """Answers come in the order of requests: on connections of its own, a Fetch that waits delays nothing else."""
        cluster.links.on_change = self.turn_soon
        cluster.metadata.on_news = self.turn_soon

    def turn_soon(self) -> None:
        """Takes a turn once the callback that runs now has finished. Called on the loop."""
        if self._soon is None and not self._stopped:
            self._soon = asyncio.get_running_loop().call_soon(self.turn)

    def turn(self) -> None:
        """Sends the requests that are due, and schedules the next turn. Called on the loop."""
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None
        if self._stopped:
            return
        try:
            now = self._cluster.clock.monotonic()
            metadata = self._cluster.metadata
            self._carry_out(self._assignment.plan(metadata.image, now, metadata.problem), now)
        except Exception as error:  # noqa: BLE001 - the root of the consumer's work: users must learn of it
            self._break_down(error)

    async def stop(self) -> None:
        """Ends all turns. Brokers drop unused sessions by themselves."""
        self._stopped = True
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.links.close()

    # -- one turn

    def _carry_out(self, plan: FetchPlan, now: float) -> None:
        self._leaderless_warnings.check(
            plan.leaderless, self._cluster.image, now, "nothing can be read from it"
        )
        if plan.leaderless:
            self._cluster.metadata.request_update()
        for broker, lookups in plan.lookups.items():
            self._begin(self._look_up(broker, lookups, self._assignment.generations(lookups)))
        if plan.committed and self._find_committed is not None:
            generations = self._assignment.generations(plan.committed)
            self._begin(self._look_up_committed(self._find_committed, plan.committed, generations))
        for broker, epochs in plan.validations.items():
            self._begin(self._validate(broker, epochs, self._assignment.generations(epochs)))
        for broker, partition_fetches in plan.partition_fetches.items():
            if broker not in self._fetching:
                connection = self._cluster.ready(broker, self.links)
                if connection is not None:
                    self._fetch(broker, connection, partition_fetches)
                elif self._cluster.is_unreachable(broker, self.links):
                    self._leave_follower(broker, partition_fetches)
        if plan.retry_at is not None:
            delay = max(0.0, plan.retry_at - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self.turn)

    def _begin(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work), name="odradek-consumer-lookup")
        self._tasks[task] = None

        def ended(done: asyncio.Task[None]) -> None:
            self._tasks.pop(done, None)
            work.close()  # a task that is cancelled before it begins never awaits its work

        task.add_done_callback(ended)

    async def _guarded(self, work: Coroutine[object, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the root of a task: users must learn of it
            self._break_down(error)

    def _break_down(self, error: Exception) -> None:
        _log.exception("consumer_broke_down")
        self._stopped = True
        self._assignment.fail(ClientBrokenError("consumer", error))

    # -- fetching

    def _fetch(
        self,
        broker: int,
        connection: BrokerConnection,
        partition_fetches: dict[TopicPartition, PartitionFetch],
    ) -> None:
        at_most = (
            _LAST_VERSION_WITH_NAMES
            if any(partition_fetch.topic_id == ZERO_UUID for partition_fetch in partition_fetches.values())
            else None
        )
        session = self._sessions.setdefault(broker, ClientFetchSession())
        try:
            version = connection.version_of(_FETCH, at_most=at_most)
        except KafkaError as error:
            self._assignment.fail(error)
            return
        if version <= _LAST_VERSION_WITHOUT_SESSIONS:
            session = ClientFetchSession()
        request = self._request(session.next(partition_fetches))
        generations = self._assignment.generations(partition_fetches)
        wait_s = self._request_timeout_s + self._settings.fetch_max_wait_ms / 1000
        self._fetching.add(broker)
        future = connection.send(request, at_most=at_most, timeout_s=wait_s)
        future.add_done_callback(
            partial(
                self._fetched,
                broker,
                session,
                partition_fetches,
                generations,
                self._cluster.clock.monotonic(),
            )
        )

    def _request(self, asked: SessionRequest) -> FetchRequest:
        topics: dict[tuple[str, UUID], FetchTopic] = {}
        for tp, partition_fetch in asked.partition_fetches.items():
            topic = topics.setdefault(
                (tp.topic, partition_fetch.topic_id),
                FetchTopic(topic=tp.topic, topic_id=partition_fetch.topic_id, partitions=[]),
            )
            topic.partitions.append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=partition_fetch.leader_epoch,
                    fetch_offset=partition_fetch.fetch_offset,
                    partition_max_bytes=partition_fetch.max_bytes,
                )
            )
        forgotten: dict[tuple[str, UUID], ForgottenTopic] = {}
        for tp, partition_fetch in asked.forgotten.items():
            gone = forgotten.setdefault(
                (tp.topic, partition_fetch.topic_id),
                ForgottenTopic(topic=tp.topic, topic_id=partition_fetch.topic_id, partitions=[]),
            )
            gone.partitions.append(tp.partition)
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._settings.fetch_max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=self._settings.fetch_max_bytes,
            isolation_level=self._isolation,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
            rack_id=self._rack(),
        )

    def _fetched(
        self,
        broker: int,
        session: ClientFetchSession,
        partition_fetches: dict[TopicPartition, PartitionFetch],
        generations: Generations,
        sent_at: float,
        future: asyncio.Future[FetchResponse],
    ) -> None:
        self._fetching.discard(broker)
        error = None if future.cancelled() else future.exception()
        if self._stopped or future.cancelled():
            return
        try:
            if error is None:
                self.latency.add(self._cluster.clock.monotonic() - sent_at)
                self._read(broker, session, partition_fetches, generations, future.result())
            elif isinstance(error, KafkaError):
                session.lost()
                self._leave_follower(broker, partition_fetches)
                self._trouble(partition_fetches, generations, error)
            else:
                raise error
        except Exception as error:  # noqa: BLE001 - the root of the consumer's work: users must learn of it
            self._break_down(error)
            return
        self.turn_soon()

    def _read(
        self,
        broker: int,
        session: ClientFetchSession,
        partition_fetches: dict[TopicPartition, PartitionFetch],
        generations: Generations,
        response: FetchResponse,
    ) -> None:
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            session.refused(code)
            if code not in _SESSION_ERRORS:
                self._leave_follower(broker, partition_fetches)
                self._trouble(partition_fetches, generations, KafkaError(code))
            return
        session.answered(response.session_id)
        self.fetched_bytes.add(
            sum(
                len(partition.records or b"")
                for topic in response.responses
                for partition in topic.partitions
            )
        )
        names = {partition_fetch.topic_id: tp.topic for tp, partition_fetch in partition_fetches.items()}
        endpoints = {
            node_endpoint.node_id: Address(node_endpoint.host, node_endpoint.port)
            for node_endpoint in response.node_endpoints
        }
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                partition_fetch = partition_fetches.get(tp)
                if partition_fetch is not None and tp in generations:
                    self._read_partition(tp, partition_fetch, generations[tp], partition, endpoints)

    def _read_partition(
        self,
        tp: TopicPartition,
        partition_fetch: PartitionFetch,
        generation: int,
        partition_data: PartitionData,
        endpoints: Mapping[int, Address],
    ) -> None:
        code = ErrorCode.of(partition_data.error_code)
        assignment = self._assignment
        with assignment.lock:
            state = assignment.state_for_answer(tp, generation)
            if state is None or state.fetch_offset != partition_fetch.fetch_offset or state.busy:
                return
            if code is not ErrorCode.NONE:
                self._refused(state, code, partition_data, endpoints)
                return
            if partition_data.preferred_read_replica != NO_BROKER:
                self._note_read_replica(state, partition_data.preferred_read_replica)
                return
            assignment.fetched_from(state, partition_fetch.topic_id)
            state.end_offset = self._end_of(partition_data)
            state.seen_leader_epoch = max(state.seen_leader_epoch, partition_fetch.leader_epoch)
            if not partition_data.records:
                state.trouble_count = 0
            else:
                aborted = [
                    (aborted_transaction.producer_id, aborted_transaction.first_offset)
                    for aborted_transaction in partition_data.aborted_transactions or ()
                ]
                try:
                    assignment.put(state, partition_data.records, aborted)
                except KafkaError as error:
                    self._pause(state)
                    what = f"{tp}: what was fetched at offset {partition_fetch.fetch_offset} cannot be read ({error.message})"
                    state.problem = KafkaError(error.code, what)
                    assignment.notify()

    def _note_read_replica(self, state: PartitionState, replica: int) -> None:
        """*locked.* The leader names a follower in place of records. It is asked again after `metadata.max.age.ms`."""
        if state.read_replica != NO_BROKER:  # a follower names another broker, or itself: that has no end
            self._pause(state)
            self._read_from_leader(state)
        elif replica in self._cluster.image.brokers:
            until = self._cluster.clock.monotonic() + self._settings.metadata_max_age_ms / 1000
            state.read_from(replica, until)
        else:  # a broker that this image does not have yet
            self._pause(state)
            self._cluster.metadata.request_update()

    def _rack(self) -> str:
        return self._settings.client_rack if self._cluster.clock.monotonic() >= self._rack_from else ""

    def _leave_follower(self, broker: int, partitions: Iterable[TopicPartition]) -> None:
        """Reads from their leaders whichever of these are read from this broker as a follower, which is in trouble."""
        with self._assignment.lock:
            for tp in partitions:
                state = self._assignment.states.get(tp)
                if state is not None and state.read_replica == broker:
                    self._read_from_leader(state)
                    self.turn_soon()

    def _read_from_leader(self, state: PartitionState) -> None:
        """*locked.* For a while no follower is asked for: the leader may not know yet that this one is in trouble."""
        state.read_from(NO_BROKER, 0.0)
        self._rack_from = self._cluster.clock.monotonic() + _WITHOUT_FOLLOWERS_S
        self._cluster.metadata.request_update()

    def _end_of(self, partition_data: PartitionData) -> int:
        """Returns the end offset of the records that may be read."""
        stable = partition_data.last_stable_offset
        return stable if self._isolation and stable >= 0 else partition_data.high_watermark

    def _refused(
        self,
        state: PartitionState,
        code: ErrorCode,
        partition_data: PartitionData,
        endpoints: Mapping[int, Address],
    ) -> None:
        """*locked.* One partition was answered with an error."""
        tp = state.topic_partition
        metadata = self._cluster.metadata
        if state.read_replica != NO_BROKER:  # a follower may lack what the leader has: the leader decides
            self._read_from_leader(state)
            return
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            _log.info("offset_out_of_range", partition=tp, offset=state.fetch_offset)
            self._pause(state)
            self._assignment.out_of_range(state)
            return
        leader = partition_data.current_leader
        moved = metadata.image.with_leader(tp, leader.leader_id, leader.leader_epoch, endpoints)
        if moved is not metadata.image:
            metadata.image = moved
            return
        self._pause(state)
        if code in LEADER_MAY_HAVE_MOVED or code.retriable:
            metadata.request_update()
            _warn_of_retries(state, KafkaError(code))
        else:
            state.problem = KafkaError(code, f"{tp}: {code.meaning}")
            self._assignment.notify()

    # -- positions

    async def _look_up_committed(
        self, find: FindCommitted, wanted: list[TopicPartition], generations: Generations
    ) -> None:
        ids = self._topic_ids(wanted)
        try:
            committed, problems = await find(wanted)
        except KafkaError as error:
            self._trouble(wanted, generations, error)
        else:
            with self._assignment.lock:
                for tp in [tp for tp in wanted if tp not in problems]:
                    state = self._assignment.state_for_answer(tp, generations.get(tp, -1))
                    offset = committed.get(tp)
                    if state is not None and offset is not None:
                        self._assignment.found(state, offset, ids[tp])
                    elif state is not None:
                        self._assignment.nothing_committed(state)
            for tp, problem in problems.items():
                self._trouble([tp], generations, problem)
        self.turn_soon()

    async def _look_up(
        self, broker: int, wanted: dict[TopicPartition, int], generations: Generations
    ) -> None:
        since_ms = self._cluster.clock.wall_ms() - self._settings.reset_duration_ms
        wanted = {tp: since_ms if time == BY_DURATION else time for tp, time in wanted.items()}
        ids = self._topic_ids(wanted)
        try:
            answers = await list_leader_offsets(
                self._cluster, broker, wanted, isolation=self._isolation, timeout_s=self._request_timeout_s
            )
        except KafkaError as error:
            self._trouble(wanted, generations, error)
        else:
            with self._assignment.lock:
                for tp, offset in answers.found.items():
                    state = self._assignment.state_for_answer(tp, generations.get(tp, -1))
                    if state is not None and offset is not None:
                        self._assignment.found(state, offset.offset, ids[tp])
                    elif state is not None:  # no record is that new
                        state.busy, state.reset_to = False, LATEST
            for tp, problem in answers.errors.items():
                self._trouble([tp], generations, problem)
            left_out = [tp for tp in wanted if tp not in answers.found and tp not in answers.errors]
            if left_out:
                self._trouble(left_out, generations, left_out_of_answer(left_out[0]))
        self.turn_soon()

    async def _validate(
        self, broker: int, epochs: dict[TopicPartition, int], generations: Generations
    ) -> None:
        """Checks whether a newer leader's log still holds what was fetched from the last one (KIP-320)."""
        ends: dict[TopicPartition, LeaderEpochEnd] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        try:
            connection = await self._cluster.connection(broker)
            if connection.offers(_EPOCHS):
                ends, errors = await list_epoch_ends(
                    self._cluster, broker, epochs, timeout_s=self._request_timeout_s
                )
        except KafkaError as error:
            errors = dict.fromkeys(epochs, error)
        for tp, problem in errors.items():
            self._trouble([tp], generations, problem)
        with self._assignment.lock:
            for tp in epochs:
                state = self._assignment.state_for_answer(tp, generations.get(tp, -1))
                if state is not None and tp not in errors:
                    self._validated(state, ends.get(tp))
        self.turn_soon()

    def _validated(self, state: PartitionState, end: LeaderEpochEnd | None) -> None:
        """*locked.* Go on, or go back to where the logs part."""
        state.busy = False
        known = self._cluster.image.partition(state.topic_partition)
        if known is not None:
            state.seen_leader_epoch = known.leader_epoch
        assert state.fetch_offset is not None
        if end is None or end.end_offset >= state.fetch_offset:
            return
        _log.warning(
            "log_truncated",
            partition=state.topic_partition,
            fetched_to=state.fetch_offset,
            log_ends_at=end.end_offset,
        )
        if end.end_offset < 0:
            self._assignment.out_of_range(state)
        else:
            self._assignment.found(state, end.end_offset, state.topic_id)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, UUID]:
        """Returns the ids before a question: an answer may be of an older topic than the image, never of a newer one."""
        return {tp: self._cluster.image.topic_id(tp.topic) for tp in partitions}

    # -- what goes wrong

    def _trouble(
        self, partitions: Iterable[TopicPartition], generations: Generations, error: KafkaError
    ) -> None:
        """A question about these partitions failed as a whole."""
        with self._assignment.lock:
            for tp in partitions:
                state = self._assignment.state_for_answer(tp, generations.get(tp, -1))
                if state is not None:
                    state.busy = False
                    self._pause(state)
                    if not error.retriable:
                        state.problem = error
                        self._assignment.notify()
                    elif not isinstance(error, BrokerUnreachableError):  # connections warn of these
                        _warn_of_retries(state, error)
        if error.code in LEADER_MAY_HAVE_MOVED or error.retriable:
            self._cluster.metadata.request_update()

    def _pause(self, state: PartitionState) -> None:
        """*locked.*"""
        delay_s = self._cluster.backoff.delay_s(state.trouble_count)
        state.trouble_count += 1
        state.not_before = self._cluster.clock.monotonic() + delay_s


def _warn_of_retries(state: PartitionState, error: KafkaError) -> None:
    """Logs one warning for each partition, until it has answered again."""
    if state.trouble_count == _REFUSALS_BEFORE_WARNING:
        _log.warning(
            "fetch_is_retried",
            partition=state.topic_partition,
            code=error.code.name,
            reason=explain(error),
            advice="look at the brokers with `odradek cluster status`",
        )
