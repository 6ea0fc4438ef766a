"""The short rounds of a follower that keeps up with one partition (decision 0107): an answer, its append, the next request.

They run in the callbacks that bring the answer, and that note the end of its flush. No message is made, and no task is woken:
an acknowledgement waits for each of these steps. What is appended is durable before it is acknowledged by the next request, as
in general rounds. Whatever is not an answer with records of one partition, or needs more than an append, ends them. That
answer, or the next round, is left to `replica_fetchers.py`, with nothing changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId
from odradek.net.peers import PeerUnreachable
from odradek.protocol import Message, api_by_name
from odradek.protocol.follower_fetch import (
    VERSION,
    Fetched,
    FollowerFetch,
    encode_follower_fetch,
    read_fetched,
)
from odradek.protocol.messages.data.fetch import FetchResponse
from odradek.replication.fetched_batches import check_epochs, checked
from odradek.replication.partition import Partition

if TYPE_CHECKING:
    from odradek.config.cluster import ReplicationConfig
    from odradek.net.peer_connection import PeerConnection
    from odradek.replication.following import FetchState, FollowedPartition
    from odradek.replication.throttle import ReplicationThrottle
    from odradek.runtime.ports import Runtime
    from odradek.runtime.prompt import PromptFuture

ROUND_OVER: Final = FetchResponse()
"""What takes the place of an answer when short rounds end, and nothing is left to apply."""
INLINE_BYTES: Final = 128 * 1024
"""The most bytes that are checked on the event loop; more goes to another thread."""
_FETCH: Final = api_by_name("Fetch")

Answer = asyncio.Future[Message]


class OpenConnections(Protocol):
    """The open connections to other brokers: `net.peers.Peers`."""

    def connection(self, broker: BrokerId, lane: str) -> PeerConnection | None: ...


class LoneFetcher(Protocol):
    """The parts of `ReplicaFetchers` that short rounds need."""

    runtime: Runtime
    me: BrokerId
    broker_epoch: Callable[[], int]
    config: Callable[[], ReplicationConfig]
    on_copied: Callable[[int], None]

    @property
    def throttle(self) -> ReplicationThrottle: ...
    @property
    def asking(self) -> OpenConnections: ...


class LoneRounds:
    """The short rounds of one fetch loop. `may_act`: whether a partition still has the role in which the leader was asked."""

    __slots__ = ("_fetchers", "_lane", "_leader", "_may_act", "_state")

    def __init__(
        self,
        fetchers: LoneFetcher,
        leader: BrokerId,
        lane: str,
        state: FetchState,
        may_act: Callable[[FollowedPartition], bool],
    ) -> None:
        self._fetchers = fetchers
        self._leader = leader
        self._lane = lane
        self._state = state
        self._may_act = may_act

    def receive(self, frame: memoryview, reply: Answer) -> bool:
        """Applies the leader's answer and goes on. Returns False, with nothing done, for one that a general round applies."""
        if reply.done():
            return False
        try:
            followed = self._apply(frame)
            if followed is None:
                return False
            self._acknowledge(followed, reply)
        except Exception as error:  # noqa: BLE001 - the fetch loop logs it, and goes on
            reply.set_exception(error)
        return True

    def _apply(self, frame: memoryview) -> FollowedPartition | None:
        """Appends the records of the answer; returns None if that needs a general round."""
        fetched = read_fetched(frame)
        if (
            fetched is None
            or len(fetched.records) > INLINE_BYTES
            or self._fetchers.throttle.is_active
            or (
                followed := self._state.lone_answer(fetched.session_id, (fetched.topic_id, fetched.partition))
            )
            is None
            or not self._may_act(followed)
        ):
            return None
        try:
            if not self._append(followed, fetched):
                return None
        except KafkaError:
            return None  # a general round meets the same error, and handles it
        self._state.lone_answered(followed)
        return followed

    def _append(self, followed: FollowedPartition, fetched: Fetched) -> bool:
        partition = followed.replica
        assert isinstance(partition, Partition)
        (batches,) = checked((fetched.records,))
        if isinstance(batches, KafkaError) or not batches:
            return False
        check_epochs(batches, followed.leader_epoch)
        if (
            partition.log.starts_inside_batch(batches[0][0])
            or fetched.log_start_offset > batches[-1][0].next_offset
        ):
            return False
        follower = partition.follower()
        follower.append_fetched(batches, now_ms=self._fetchers.runtime.clock.wall_ms())
        self._fetchers.on_copied(len(fetched.records))
        follower.learned(fetched.high_watermark, fetched.log_start_offset)
        return True

    def _acknowledge(self, followed: FollowedPartition, reply: Answer) -> None:
        """Sends the next request once all that was appended is durable."""
        if reply.done():  # a reader of the new records met a disk error, and nothing is followed any more
            return
        partition = followed.replica
        assert isinstance(partition, Partition)
        try:
            waiting = partition.follower().when_durable()
        except KafkaError:  # the role ended
            reply.set_result(ROUND_OVER)
            return
        if waiting is None:
            self._request(followed, reply)
        else:
            waiting.add_done_callback(partial(self._durable, followed, reply))

    def _durable(self, followed: FollowedPartition, reply: Answer, waiting: PromptFuture[None]) -> None:
        if reply.done():  # the loop was stopped, or follows nothing any more
            return
        if waiting.cancelled() or waiting.exception() is not None:  # the role ended
            reply.set_result(ROUND_OVER)
            return
        try:
            self._request(followed, reply)
        except Exception as error:  # noqa: BLE001 - the fetch loop logs it, and goes on
            reply.set_exception(error)

    def _request(self, followed: FollowedPartition, reply: Answer) -> None:
        fetchers = self._fetchers
        connection = fetchers.asking.connection(self._leader, self._lane)
        if connection is None or not self._may_act(followed):
            reply.set_result(ROUND_OVER)
            return
        asked = self._state.lone_next(followed)
        if asked is None:
            reply.set_result(ROUND_OVER)
            return
        session_id, session_epoch, position = asked
        topic_id, index = followed.key
        config = fetchers.config()
        fetch = FollowerFetch(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topic_id=topic_id,
            partition=index,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=config.replica_fetch_max_bytes,
            high_watermark=position.high_watermark,
            replica_id=fetchers.me,
            replica_epoch=fetchers.broker_epoch(),
        )
        try:
            connection.send_body(
                _FETCH,
                VERSION,
                encode_follower_fetch(fetch),
                timeout_s=(config.replica_socket_timeout_ms + fetch.max_wait_ms) / 1000,
                reply=reply,
                receive=self.receive,
            )
        except PeerUnreachable as error:
            reply.set_exception(error)
