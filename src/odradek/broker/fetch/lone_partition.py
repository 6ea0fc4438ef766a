"""The short way of a follower's fetch (decision 0107): of the one partition of its session in which something happens.

A follower that keeps up with a partition asks for it alone, waits, and gets the batches of one append. Reader, plan, messages
and their codecs cost more than the work. Nothing is refused here: what is unusual has the general way, from its beginning when
the request comes, and from reading on when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.fetch.delayed_fetch import FollowerWaiting
from odradek.broker.fetch.reading import (
    COPIED_BYTES_MAX,
    FetchingBroker,
    FetchReader,
    check_range,
    divergence,
    fetching_broker,
    partition_for_follower,
    session_owner,
)
from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.broker.sessions.fetch_sessions import (
    PartitionKey,
    RequestedPartition,
    SentPartition,
    SessionFetchPlan,
)
from odradek.model.errors import KafkaError
from odradek.model.ids import Offset
from odradek.net.replies import Chunks, HeldReply, at_once
from odradek.protocol.follower_fetch import (
    JOINED_BYTES_MAX,
    VERSION,
    FollowerFetch,
    encode_fetched,
    read_follower_fetch,
)
from odradek.protocol.messages.data.fetch import FetchRequest, FetchResponse, ReplicaState
from odradek.runtime.mapped_range import is_mapped
from odradek.storage.files.at_hand import ReadProgress

if TYPE_CHECKING:
    from odradek.broker.requests.context import Encode
    from odradek.broker.sessions.fetch_sessions import FetchSession
    from odradek.net.connection import Connection
    from odradek.protocol import RequestHeader
    from odradek.replication.partition import Partition

ReadAgain = Callable[
    [BrokerContext, RequestContext, SessionFetchPlan, FetchReader, Sequence[RequestedPartition]],
    FetchResponse | Coroutine[object, None, FetchResponse],
]
"""Reads and answers in the general way, after a wait."""
_ANY_RECORDS: Final = 1
"""The `min_bytes` of a follower that waits for any record."""


def serve(
    broker: BrokerContext,
    connection: Connection,
    header: RequestHeader,
    frame: memoryview,
    position: int,
    encode: Encode,
    read_again: ReadAgain,
) -> Chunks | HeldReply | None:
    """Serves the fetch, or returns None with nothing done."""
    if header.api_version != VERSION or (asked := read_follower_fetch(frame, position)) is None:
        return None
    listener = broker.config.network.inter_broker_listener_name
    if (
        asked.min_bytes != _ANY_RECORDS
        or asked.max_wait_ms <= 0
        or broker.traces is not None
        or broker.replicas.leader_throttle.is_active
        or (listener is not None and connection.listener.name != listener)
    ):
        return None
    fetch = _Fetch(broker, connection, header, encode, asked, read_again)
    try:
        if not fetch.begin():
            return None
    except KafkaError:
        return None  # nothing was noted: the general way meets the same error, and answers with it
    connection.forget_frame()
    return fetch.reply()


class _Fetch:
    """One such request, from its arrival to its answer."""

    __slots__ = (
        "_asked",
        "_broker",
        "_connection",
        "_encode",
        "_follower",
        "_header",
        "_partition",
        "_read_again",
        "_session",
        "_wanted",
    )

    def __init__(
        self,
        broker: BrokerContext,
        connection: Connection,
        header: RequestHeader,
        encode: Encode,
        asked: FollowerFetch,
        read_again: ReadAgain,
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._header = header
        self._encode = encode
        self._asked = asked
        self._read_again = read_again
        self._follower: FetchingBroker
        self._session: FetchSession
        self._wanted: RequestedPartition
        self._partition: Partition

    def begin(self) -> bool:
        """Notes what the request acknowledges. Returns False, or raises KafkaError, with nothing noted."""
        broker, asked = self._broker, self._asked
        follower = self._follower = fetching_broker(broker, asked.replica_id, asked.replica_epoch)
        session = broker.fetch_sessions.of_follower(
            asked.session_id, asked.session_epoch, session_owner(follower)
        )
        key = tuple.__new__(PartitionKey, ("", asked.topic_id, asked.partition))
        if session is None or not session.is_alone(key):
            return False
        wanted = RequestedPartition(
            key=key,
            fetch_offset=asked.fetch_offset,
            max_bytes=asked.partition_max_bytes,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            log_start_offset=asked.log_start_offset,
            high_watermark=asked.high_watermark,
        )
        partition = partition_for_follower(broker, wanted, follower)
        if divergence(partition, wanted) is not None or session.lags_in_start(wanted, partition.start_offset):
            return False
        check_range(partition, asked.fetch_offset)
        now = broker.runtime.clock.monotonic()
        partition.leader().follower_fetched(
            follower.broker_id,
            follower.broker_epoch,
            asked.fetch_offset,
            now,
            start_offset=asked.log_start_offset,
        )
        broker.fetch_sessions.continue_with(session, (wanted,), (), now)
        self._session, self._wanted, self._partition = session, wanted, partition
        return True

    def reply(self) -> Chunks | HeldReply:
        partition, wanted = self._partition, self._wanted
        if wanted.fetch_offset < partition.log.end_offset:
            reply = self._answer()
            return HeldReply(reply) if isinstance(reply, Coroutine) else reply
        known = max(wanted.high_watermark, self._session.sent_high_watermark(wanted.key))
        waiting: FollowerWaiting[Chunks | None] = FollowerWaiting(
            {partition: Offset(known)},
            self._answer,
            nothing=self._nothing,
            wait_s=self._asked.max_wait_ms / 1000,
            missing_bytes=_ANY_RECORDS,
            resting=self._session.resting,
        )
        on_next = self._connection.on_next
        on_next[waiting] = waiting.hurry
        waiting.response.add_done_callback(lambda _: on_next.pop(waiting, None))
        return HeldReply(waiting.response)

    def _answer(self) -> Chunks | Coroutine[object, None, Chunks | None]:
        try:
            chunks = self._records()
        except KafkaError:
            chunks = None  # the general way meets the same error, and answers with it
        return self._general_answer() if chunks is None else chunks

    def _records(self) -> Chunks | None:
        """Returns the answer that has records of the partition; None, with nothing changed, for any other answer."""
        session, wanted, broker = self._session, self._wanted, self._broker
        if not session.is_alone(wanted.key):
            return None
        partition = partition_for_follower(broker, wanted, self._follower)
        if divergence(partition, wanted) is not None:
            return None
        check_range(partition, wanted.fetch_offset)
        limit = min(wanted.max_bytes, self._asked.max_bytes, broker.config.server.fetch_max_bytes)
        sends_uncopied = self._connection.sends_uncopied
        if not sends_uncopied:
            limit = min(limit, COPIED_BYTES_MAX)
        log = partition.log
        end_offset = log.end_offset
        if (
            limit <= 0
            or wanted.fetch_offset >= end_offset
            or log.not_at_hand(wanted.fetch_offset, limit, ReadProgress()) is not None
        ):
            return None
        known = partition.leader().followers[self._follower.broker_id]
        if known.sent_from == wanted.fetch_offset:
            return None  # it was sent these records before, and doubts them
        records = log.read(
            wanted.fetch_offset, limit, end_offset=end_offset, at_least_one=True, to_send=sends_uncopied
        ).records
        if not records:
            return None
        known.sent_from = wanted.fetch_offset
        high_watermark, start_offset = partition.high_watermark, partition.start_offset
        session.changed(
            SentPartition(
                key=wanted.key,
                high_watermark=high_watermark,
                log_start_offset=start_offset,
                has_records=True,
                has_news=False,
            )
        )
        size_bytes = len(records)
        broker.traffic.of(partition.name.topic).fetched(size_bytes, by_follower=True, failed=False)
        return encode_fetched(
            self._header.correlation_id,
            session.session_id,
            wanted.key.topic_id,
            wanted.key.partition,
            high_watermark=high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=start_offset,
            records=records,
            is_joined=size_bytes <= JOINED_BYTES_MAX and not is_mapped(records),
        )

    def _general_answer(self) -> Chunks | Coroutine[object, None, Chunks | None]:
        """Reads and answers in the general way. What the request acknowledges is noted already."""
        broker, header, session = self._broker, self._header, self._session
        asked = self._asked
        context = RequestContext.of(self._connection, header)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=asked.replica_id, replica_epoch=asked.replica_epoch),
            max_wait_ms=asked.max_wait_ms,
            min_bytes=asked.min_bytes,
            max_bytes=asked.max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
        )
        wanted = session.wanted()
        plan = SessionFetchPlan(wanted=wanted, session=session, incremental=True)
        reading = FetchReader(broker, context, request, wanted, self._follower, is_noted=True)
        response = self._read_again(broker, context, plan, reading, wanted)
        if isinstance(response, FetchResponse):
            chunks = self._encode(response)
            return _held(chunks) if isinstance(chunks, HeldReply) else chunks
        return self._encoded(response)

    async def _encoded(self, response: Coroutine[object, None, FetchResponse]) -> Chunks | None:
        chunks = self._encode(await response)
        return await chunks.chunks if isinstance(chunks, HeldReply) else chunks

    def _nothing(self) -> Chunks:
        return at_once(self._encode(FetchResponse(session_id=self._session.session_id)))


async def _held(reply: HeldReply) -> Chunks | None:
    return await reply.chunks
