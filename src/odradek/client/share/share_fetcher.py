"""Acquires records for a share consumer, and carries its acknowledgements. Runs on the event loop.

At most one request to each broker is under way, since requests of a share session are counted. ShareFetch is sent only while a
`poll` waits and nothing is buffered: the lock of a record begins when the broker acquires it, so nothing is fetched ahead.
Acknowledgements go with the next ShareFetch to their broker, by themselves soon after, or at once when a commit waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.client.groups.sharing import SharingMember
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.connection import BrokerConnection
from odradek.client.network.errors import BrokerUnreachableError, ClientBrokenError
from odradek.client.network.leaderless import LeaderlessWarnings
from odradek.client.network.metadata_snapshot import LEADER_MAY_HAVE_MOVED, MetadataSnapshot
from odradek.client.network.metrics import Measure
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ShareConsumerSettings
from odradek.client.share.acknowledgements import AcknowledgementGroup
from odradek.client.share.acquired_chunk import AcquiredChunk, DeliveredRange
from odradek.client.share.deliveries import Deliveries, session_over
from odradek.client.share.share_record import SharePartitionId, ShareSource
from odradek.client.share.share_requests import (
    RENEWAL_VERSION,
    acknowledge_request,
    fetch_request,
)
from odradek.client.share.share_session import CLOSING_EPOCH, ClientShareSession
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import api_by_name
from odradek.protocol.messages.share.share_acknowledge import ShareAcknowledgeResponse
from odradek.protocol.messages.share.share_fetch import PartitionData, ShareFetchResponse
from odradek.telemetry import events

_log = events.get("client")

_SHARE_ACKNOWLEDGE: Final = api_by_name("ShareAcknowledge")
ACKNOWLEDGE_WITHIN_S: Final = 0.1
"""Acknowledgements that no ShareFetch carries by then go by themselves."""
_SESSION_ERRORS: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
"""Mended by opening another session, at once."""
_HOPELESS: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})


AcknowledgementCodes = Mapping[tuple[UUID, int], tuple[int, str | None]]
"""The error code and message of each partition's acknowledgements, by topic id and partition."""


class _Pause(NamedTuple):
    """The reason why a partition is left out: a broker refused it `count` times in a row."""

    until: float
    refusal_count: int


class _BrokerSession:
    """The session with one broker, its connection, and its pauses after failures."""

    def __init__(self, broker: int) -> None:
        self.session: Final = ClientShareSession(broker)
        self.connection: BrokerConnection | None = None
        self.request: asyncio.Future[object] | None = None
        """The request under way."""
        self.carried: list[AcknowledgementGroup] = []
        """Acknowledgements in that request."""
        self.is_fetching = False
        """Whether that request is a ShareFetch."""
        self.acknowledged_last = False
        """Whether the last request was a ShareAcknowledge: a ShareFetch has its turn before another one."""
        self.not_before = 0.0
        self.failure_count = 0


ReadAnswer = Callable[[_BrokerSession, list[AcknowledgementGroup], Any], None]


class ShareFetcher:
    """The fetcher of one share consumer. Methods are called on the loop, unless their docstring names another
    thread."""

    def __init__(
        self, settings: ShareConsumerSettings, cluster: ClusterClient, deliveries: Deliveries
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._deliveries = deliveries
        self._member: SharingMember | None = None
        self._is_limited = settings.share_acquire_mode == "record_limit"
        self._request_timeout_s = settings.request_timeout_ms / 1000
        self._brokers: dict[int, _BrokerSession] = {}
        self._last_fetched = -1
        """The broker of the last ShareFetch; with record_limit another one is next."""
        self._pauses: dict[SharePartitionId, _Pause] = {}
        """Partitions that a broker refused, until it serves them again."""
        self._reported: set[str] = set()
        """Topics whose hopeless errors were reported."""
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._stopped = False
        self._leaderless_warnings: Final = LeaderlessWarnings()
        self.record_count_wanted = 0
        """How many records the `poll` that waits may return; 0 while none waits. Set from any thread."""
        self.lock_timeout_ms: int | None = None
        """For how long a record is locked, by the last answer; None before one."""
        self.latency: Final = Measure(cluster.clock)
        self.fetched_bytes: Final = Measure(cluster.clock)
        self.acknowledged: Final = Measure(cluster.clock)
        """Acknowledgements that a broker has stored."""
        self.refused: Final = Measure(cluster.clock)
        """Acknowledgements that failed."""
        self.links: Final = cluster.more_links(self.turn_soon)
        """Answers come in the order of requests: on connections of its own, a ShareFetch that waits delays nothing else."""

    def read_for(self, member: SharingMember) -> None:
        """Reads the partitions of this member from now on."""
        self._member = member

    def turn_soon(self) -> None:
        """Takes a turn once the callback that runs now has finished."""
        if self._soon is None and not self._stopped:
            self._soon = asyncio.get_running_loop().call_soon(self._turn)

    # -- one turn

    def _turn(self) -> None:
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None
        if self._stopped:
            return
        try:
            self._run_once(self._cluster.clock.monotonic())
        except Exception as error:  # noqa: BLE001 - the root of the consumer's work: users must learn of it
            self._break_down(error)

    def _run_once(self, now: float) -> None:
        self._end_lost_sessions()
        wanted, retry_at = self._wanted(now)
        waiting = self._deliveries.sources_with_acknowledgements()
        with self._deliveries.lock:
            reads = self.record_count_wanted > 0 and not self._deliveries.has_chunks(now)
            since = self._deliveries.outgoing_since
        flush_at = None if since is None else since + ACKNOWLEDGE_WITHIN_S
        fetched = self._fetched_now(wanted) if reads else ()
        for broker in sorted({source.broker for source in waiting} | set(fetched)):
            state = self._brokers.setdefault(broker, _BrokerSession(broker))
            if state.request is not None:
                continue
            renews = waiting.get(state.session.source)
            is_due = flush_at is not None and now >= flush_at
            fetches = broker in fetched and state.not_before <= now
            if renews is not None and (renews or is_due) and not (fetches and state.acknowledged_last):
                self._acknowledge(state)
            elif fetches:
                self._fetch(state, wanted[broker], now)
            elif broker in fetched:
                retry_at = min(retry_at or state.not_before, state.not_before)
        if flush_at is not None and flush_at > now:
            retry_at = min(retry_at or flush_at, flush_at)
        if retry_at is not None and retry_at > now:
            self._timer = asyncio.get_running_loop().call_later(retry_at - now, self._turn)

    def _wanted(self, now: float) -> tuple[dict[int, list[SharePartitionId]], float | None]:
        """Returns the partitions to read, by the broker that leads them, and when the first refused one is tried again."""
        wanted: dict[int, list[SharePartitionId]] = {}
        member, image = self._member, self._cluster.image
        if member is None:
            return wanted, None
        leaderless, is_stale = [], False
        for topic_id, numbers in member.assigned.items():
            name = member.names.get(topic_id)
            if name is None or image.topic_id(name) != topic_id:
                is_stale = True
                continue
            for number in numbers:
                partition = SharePartitionId(name, topic_id, number)
                leader = image.leader(partition.topic_partition)
                if leader is None:
                    leaderless.append(partition.topic_partition)
                elif partition not in self._pauses or self._pauses[partition].until <= now:
                    wanted.setdefault(leader, []).append(partition)
        self._leaderless_warnings.check(leaderless, image, now, "nothing can be read from it")
        self._check_topics(member, image)
        if leaderless or is_stale:
            self._cluster.metadata.request_update()
        ends = (pause.until for pause in self._pauses.values() if pause.until > now)
        return wanted, min(ends, default=None)

    def _check_topics(self, member: SharingMember, image: MetadataSnapshot) -> None:
        """Reports topics that will never be read, once each."""
        for name in member.wants:
            code = image.topic_errors.get(name)
            if code in _HOPELESS and name not in self._reported:
                self._reported.add(name)
                self._deliveries.report(KafkaError(code, f"topic {name!r}: {code.meaning}"))
            elif code is None:
                self._reported.discard(name)

    def _fetched_now(self, wanted: Mapping[int, Sequence[SharePartitionId]]) -> Sequence[int]:
        """Returns the brokers to send a ShareFetch to: with record_limit one at a time, so that together they lock no more
        records than were asked for."""
        brokers = sorted(wanted)
        if not self._is_limited or not brokers:
            return brokers
        if any(state.request is not None and state.is_fetching for state in self._brokers.values()):
            return ()
        return [next((broker for broker in brokers if broker > self._last_fetched), brokers[0])]

    def _end_lost_sessions(self) -> None:
        """A session ends with its connection: the broker releases what was acquired in it."""
        for state in self._brokers.values():
            if state.connection is not None and state.connection.closed and state.request is None:
                self._end_session(state, session_over(state.session.source))

    def _ready(self, state: _BrokerSession) -> BrokerConnection | None:
        """Returns the session's connection, or a new one for a new session."""
        if state.connection is not None and not state.connection.closed:
            return state.connection
        return self._cluster.ready(state.session.broker, self.links)

    # -- requests

    def _fetch(self, state: _BrokerSession, partitions: Sequence[SharePartitionId], now: float) -> None:
        connection = self._ready(state)
        if connection is None:
            return
        state.acknowledged_last = False
        carried = frozenset(partitions)
        groups: list[AcknowledgementGroup] = []
        if state.session.is_open:
            groups = self._deliveries.drain_outgoing(
                state.session.source,
                lambda group: group.partition in carried and not group.renews,
            )
        planned = state.session.next_fetch(partitions)
        request = fetch_request(
            self._settings,
            self._member_id,
            planned,
            groups,
            record_count_max=self.record_count_wanted,
        )
        self._last_fetched = state.session.broker
        wait_s = self._request_timeout_s + self._settings.fetch_max_wait_ms / 1000
        state.is_fetching = True
        self._send(state, connection, request, groups, wait_s, partial(self._fetched, now))

    def _acknowledge(self, state: _BrokerSession, *, closes: bool = False) -> None:
        connection = self._ready(state)
        if connection is None or not state.session.is_open:
            return
        state.acknowledged_last = True
        groups = self._deliveries.drain_outgoing(state.session.source)
        if any(group.renews for group in groups) and (
            connection.version_of(_SHARE_ACKNOWLEDGE) < RENEWAL_VERSION
        ):
            too_old = KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {state.session.broker} does not renew locks (KIP-1222): accept, release or reject records",
            )
            for group in groups:
                if group.renews:
                    self._settle(group, too_old)
            groups = [group for group in groups if not group.renews]
        epoch = CLOSING_EPOCH if closes else state.session.next_acknowledgement()
        if not groups and not closes:
            return
        request = acknowledge_request(self._settings.group_id, self._member_id, epoch, groups)
        read = self._closed if closes else self._acknowledged
        self._send(state, connection, request, groups, self._request_timeout_s, read)

    def _send(
        self,
        state: _BrokerSession,
        connection: BrokerConnection,
        request: Any,
        groups: list[AcknowledgementGroup],
        wait_s: float,
        read: ReadAnswer,
    ) -> None:
        state.connection = connection
        state.carried = groups
        state.request = connection.send(request, timeout_s=wait_s)
        state.request.add_done_callback(partial(self._answered, state, read))

    @property
    def _member_id(self) -> str:
        assert self._member is not None
        return self._member.member_id

    # -- answers

    def _answered(self, state: _BrokerSession, read: ReadAnswer, future: asyncio.Future[object]) -> None:
        state.request, state.is_fetching = None, False
        groups, state.carried = state.carried, []
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            error = BrokerUnreachableError("the client was closed before the broker answered")
        try:
            if error is None:
                self._read_answer(state, groups, future.result(), read)
            elif isinstance(error, KafkaError):
                self._refused(state, groups, error)
            else:
                raise error
        except Exception as error:  # noqa: BLE001 - the root of the consumer's work: users must learn of it
            self._break_down(error)
            return
        self.turn_soon()

    def _read_answer(
        self, state: _BrokerSession, groups: list[AcknowledgementGroup], response: Any, read: ReadAnswer
    ) -> None:
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._refused(state, groups, KafkaError(code, response.error_message or code.meaning))
            return
        state.failure_count = 0
        state.session.succeeded()
        read(state, groups, response)

    def _refused(self, state: _BrokerSession, groups: list[AcknowledgementGroup], error: KafkaError) -> None:
        """Handles a request that failed as a whole: the broker's session differs from the client's, or has
        ended."""
        for group in groups:
            self._settle(group, error if group.needs_session else None)
        self._end_session(state, session_over(state.session.source))
        if error.code in _SESSION_ERRORS and state.failure_count == 0:
            state.failure_count = 1
            return
        state.not_before = self._cluster.clock.monotonic() + self._cluster.backoff.delay_s(
            state.failure_count
        )
        state.failure_count += 1
        if error.code in LEADER_MAY_HAVE_MOVED or error.retriable:
            self._cluster.metadata.request_update()
        elif error.code not in _SESSION_ERRORS:
            self._deliveries.report(
                KafkaError(error.code, f"group {self._settings.group_id!r}: {error.message}")
            )

    def _fetched(
        self,
        sent_at: float,
        state: _BrokerSession,
        groups: list[AcknowledgementGroup],
        response: ShareFetchResponse,
    ) -> None:
        now = self._cluster.clock.monotonic()
        self.latency.add(now - sent_at)
        answered = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.responses
            for partition in topic.partitions
        }
        self._settle_all(
            groups,
            {
                place: (partition.acknowledge_error_code, partition.acknowledge_error_message)
                for place, partition in answered.items()
            },
        )
        self.fetched_bytes.add(sum(len(partition.records or b"") for partition in answered.values()))
        self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        deadline = now + self.lock_timeout_ms / 1000
        for partition in state.session.partitions:
            data = answered.get((partition.topic_id, partition.partition))
            code = ErrorCode.NONE if data is None else ErrorCode.of(data.error_code)
            if data is not None and code is not ErrorCode.NONE:
                self._refused_partition(partition, code, data, _endpoints(response), now)
                continue
            self._pauses.pop(partition, None)
            if data is not None and data.acquired_records:
                self._acquired(state.session.source, partition, data, deadline)

    def _acquired(
        self, source: ShareSource, partition: SharePartitionId, data: PartitionData, deadline: float
    ) -> None:
        ranges = [
            DeliveredRange(acquired.first_offset, acquired.last_offset, acquired.delivery_count)
            for acquired in data.acquired_records
        ]
        try:
            chunk = AcquiredChunk(
                partition,
                source,
                data.records or b"",
                ranges,
                deadline=deadline,
                check_crcs=self._settings.check_crcs,
            )
        except KafkaError as error:
            self._deliveries.release_ranges(source, partition, ranges, self._cluster.clock.monotonic())
            self._deliveries.report(
                KafkaError(
                    error.code,
                    f"{partition}: records from offset {ranges[0].first_offset} on cannot be read ({error.message}); they were"
                    " released, and are delivered again up to the group's limit of deliveries",
                )
            )
        else:
            self._deliveries.add(chunk)

    def _refused_partition(
        self,
        partition: SharePartitionId,
        code: ErrorCode,
        data: PartitionData,
        endpoints: Mapping[int, Address],
        now: float,
    ) -> None:
        """Leaves a partition out for a while, unless the response names its leader."""
        metadata, leader = self._cluster.metadata, data.current_leader
        moved = metadata.image.with_leader(
            partition.topic_partition, leader.leader_id, leader.leader_epoch, endpoints
        )
        if moved is not metadata.image:
            metadata.image = moved
            return
        before = self._pauses.get(partition)
        count = 0 if before is None else before.refusal_count + 1
        self._pauses[partition] = _Pause(now + self._cluster.backoff.delay_s(count), count)
        if code in LEADER_MAY_HAVE_MOVED or code.retriable:
            metadata.request_update()
        elif count == 0:
            self._deliveries.report(KafkaError(code, f"{partition}: {data.error_message or code.meaning}"))

    def _acknowledged(
        self,
        state: _BrokerSession,
        groups: list[AcknowledgementGroup],
        response: ShareAcknowledgeResponse,
    ) -> None:
        self._settle_all(groups, _acknowledgement_codes(response))

    def _closed(
        self,
        state: _BrokerSession,
        groups: list[AcknowledgementGroup],
        response: ShareAcknowledgeResponse,
    ) -> None:
        self._settle_all(groups, _acknowledgement_codes(response))
        self._end_session(state, session_over(state.session.source))

    def _settle_all(self, groups: list[AcknowledgementGroup], codes: AcknowledgementCodes) -> None:
        for group in groups:
            number, message = codes.get((group.partition.topic_id, group.partition.partition), (0, None))
            code = ErrorCode.of(number)
            if code is ErrorCode.NONE:
                self._settle(group, None)
                continue
            if code in LEADER_MAY_HAVE_MOVED:
                self._cluster.metadata.request_update()
            self._settle(group, KafkaError(code, f"{group.partition}: {message or code.meaning}"))

    def _settle(self, group: AcknowledgementGroup, error: KafkaError | None) -> None:
        (self.acknowledged if error is None else self.refused).add(len(group.types))
        self._deliveries.settle(group, error)

    # -- the end

    def _end_session(self, state: _BrokerSession, reason: KafkaError) -> None:
        self._deliveries.session_ended(state.session.source, reason)
        state.session.end()
        state.connection = None

    async def close_sessions(self, timeout_s: float, *, ends_links: bool) -> None:
        """Closes every session with its last acknowledgements: brokers release the other records. One that does not answer in
        time is given up. `ends_links`: the connections end next, which closes sessions that have nothing to acknowledge, so
        no ShareFetch that waits is waited for."""
        states = [
            state
            for state in self._brokers.values()
            if not ends_links or not state.is_fetching or state.carried or self._has_outgoing(state)
        ]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*map(self._close_session, states))
        except TimeoutError:
            _log.info("share_sessions_not_closed", group=self._settings.group_id, timeout_s=timeout_s)

    def _has_outgoing(self, state: _BrokerSession) -> bool:
        return self._deliveries.has_outgoing(state.session.source)

    async def _close_session(self, state: _BrokerSession) -> None:
        if state.request is not None:
            await asyncio.gather(state.request, return_exceptions=True)
            await asyncio.sleep(0)  # its callback runs first
        if state.session.is_open:
            self._acknowledge(state, closes=True)
        if state.request is not None:
            await asyncio.gather(state.request, return_exceptions=True)
            await asyncio.sleep(0)
        self._end_session(state, session_over(state.session.source))

    def end_turns(self) -> None:
        """No request is sent from now on but those that close sessions."""
        self._stopped = True
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None

    async def stop(self) -> None:
        """Ends everything; sessions end with their connections."""
        self.end_turns()
        await self.links.close()

    def _break_down(self, error: Exception) -> None:
        _log.exception("share_consumer_broke_down")
        self.end_turns()
        self._deliveries.fail(ClientBrokenError("share consumer", error))


def _acknowledgement_codes(response: ShareAcknowledgeResponse) -> AcknowledgementCodes:
    return {
        (topic.topic_id, partition.partition_index): (partition.error_code, partition.error_message)
        for topic in response.responses
        for partition in topic.partitions
    }


def _endpoints(response: ShareFetchResponse) -> dict[int, Address]:
    return {endpoint.node_id: Address(endpoint.host, endpoint.port) for endpoint in response.node_endpoints}
