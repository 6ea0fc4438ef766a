"""Fetches the partitions that this broker follows: a few fetch loops for each leader.

One round of a loop: ask (a long poll); check the CRC of every batch that came, on another thread where it is much; append; wait
until all of it is durable, for which the flusher takes the partitions together; and ask again from there. The loops share
nothing, so a leader that is slow or dead holds up no other, and a partition in trouble only itself.

A loop that gets a partition more to follow does not leave that to the end of a long poll: a replica that is in sync holds up
the waiters for it. It asks the leader for nothing at all, on the same connection: a leader answers a poll at once when another
request follows it. So the session continues, and names only what is new.

While the leader sends records of one partition alone, rounds are short ones (`lone_rounds.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol
from zlib import crc32

from odradek.config.cluster import ReplicationConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.net.peer_connection import AnswerReceiver, PeerConnection
from odradek.net.peers import PeerUnreachable
from odradek.protocol import Message, api_by_name
from odradek.protocol.messages.data.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.records import BatchHeader
from odradek.replication.crowded_appends import append_with_room
from odradek.replication.fetched_batches import Batches, check_epochs, checked
from odradek.replication.following import (
    IDLE_FROM,
    FetchResultAction,
    FetchState,
    FetchTerms,
    FollowedPartition,
    fetch_result_action,
)
from odradek.replication.lone_rounds import INLINE_BYTES, ROUND_OVER, LoneRounds
from odradek.replication.partition import Partition
from odradek.replication.throttle import ReplicationThrottle
from odradek.runtime.ports import Runtime
from odradek.security.buckets import Window
from odradek.storage.files.leader_epochs import EpochEnd
from odradek.telemetry import events

_log = events.get("replication")
_FETCH: Final = api_by_name("Fetch").key
_LIST_OFFSETS: Final = api_by_name("ListOffsets").key
_EARLIEST: Final = -2
_TURN_BYTES: Final = 1024 * 1024
"""How many bytes are appended before other tasks get the event loop."""
_NUDGE_AFTER_S: Final = 0.005
"""Changes that follow each other are handled together. The leader may also not know yet that it leads."""
_NOTHING: Final = FetchRequest(
    replica_state=ReplicaState(replica_id=-1, replica_epoch=-1), max_wait_ms=0, session_id=0, session_epoch=-1
)

_POLLS_WITHIN_LAG: Final = 6
"""How often an idle follower still fetches within `replica.lag.time.max.ms`."""
_HELD_S_MIN: Final = 0.02
_HELD_S_MAX: Final = 1.0
"""The longest pause of a follower that copies too fast; the rate may change meanwhile."""


class PeerRequests(Protocol):
    """Sends requests to other brokers: `net.peers.Peers`."""

    def send(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
        receive: AnswerReceiver | None = None,
    ) -> Awaitable[Message]: ...

    def connection(self, broker: BrokerId, lane: str) -> PeerConnection | None: ...

    def hang_up(self, broker: BrokerId, lane: str) -> None: ...


class ReplicaFetchers:
    """Fetches the partitions that this broker follows from their leaders. `broker_epoch` and `config` are called for each
    request, since both change. Used on the event loop."""

    def __init__(
        self,
        runtime: Runtime,
        asking: PeerRequests,
        *,
        me: BrokerId,
        broker_epoch: Callable[[], int],
        config: Callable[[], ReplicationConfig],
    ) -> None:
        self.runtime = runtime
        self.asking = asking
        self.me = me
        self.broker_epoch = broker_epoch
        self.config = config
        self.throttle: Final = ReplicationThrottle(
            me, lambda: config().follower_replication_throttled_rate, self._window
        )
        self.on_copied: Callable[[int], None] = _ignore
        """Called with the bytes of batches that were appended."""
        self._loops: dict[tuple[BrokerId, int], _FetchLoop] = {}
        self._loops_by_partition: dict[Partition, _FetchLoop] = {}

    def follow(self, partition: Partition, leader: BrokerId) -> None:
        """Fetches from `leader` from now on, under the partition's present leader epoch. Cheap when nothing changed."""
        number = crc32(str(partition.name).encode()) % self.config().num_replica_fetchers
        loop = self._loops.get((leader, number))
        before = self._loops_by_partition.get(partition)
        if before is not None and before is not loop:
            before.unfollow(partition)
        if loop is None:
            loop = self._loops[leader, number] = _FetchLoop(self, leader, number)
        self._loops_by_partition[partition] = loop
        loop.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """Stops fetching the partition; answers under way are dropped. Does nothing when it is not followed."""
        loop = self._loops_by_partition.pop(partition, None)
        if loop is not None:
            loop.unfollow(partition)

    def ended(self, loop: _FetchLoop) -> None:
        if self._loops.get((loop.leader, loop.number)) is loop:
            del self._loops[loop.leader, loop.number]

    def terms(self) -> FetchTerms:
        config = self.config()
        return FetchTerms(
            me=self.me,
            broker_epoch=self.broker_epoch(),
            partition_bytes_max=config.replica_fetch_max_bytes,
            response_bytes_max=config.replica_fetch_response_max_bytes,
            bytes_min=config.replica_fetch_min_bytes,
            wait_ms_max=config.replica_fetch_wait_max_ms,
            idle_wait_ms_max=config.replica_lag_time_max_ms // _POLLS_WITHIN_LAG,
            pause_s_max=config.replica_fetch_backoff_ms / 1000,
        )

    def _window(self) -> Window:
        config = self.config()
        return Window(
            sample_count=config.replication_quota_window_num,
            sample_seconds=config.replication_quota_window_size_seconds,
        )

    async def close(self) -> None:
        """Stops following all partitions."""
        loops = list(self._loops.values())
        self._loops.clear()
        self._loops_by_partition.clear()
        await asyncio.gather(*(loop.stop() for loop in loops))


class _FetchLoop:
    """Fetches from one leader over one connection."""

    def __init__(self, fetchers: ReplicaFetchers, leader: BrokerId, number: int) -> None:
        self._fetchers = fetchers
        self.leader = leader
        self.number = number
        self._state = FetchState()
        self._lane = f"fetch {number}"
        self._lone_rounds = LoneRounds(fetchers, leader, self._lane, self._state, self._may_act)
        self._changed = asyncio.Event()
        self._poll: asyncio.Future[Message] | None = None
        self._nudge: asyncio.TimerHandle | None = None
        self._nudging: asyncio.Task[None] | None = None
        self._interrupted = False
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"fetching from broker {leader} ({number})"
        )

    # -- what is followed

    def follow(self, partition: Partition) -> None:
        if not self._state.follow(partition, self._fetchers.runtime.clock.monotonic()):
            return
        self._changed.set()
        self._nudge_soon()

    def unfollow(self, partition: Partition) -> None:
        self._state.unfollow(partition)
        self._changed.set()
        if not self._state and self._poll is not None and not self._poll.done():
            self._interrupted = True
            self._poll.cancel()

    def _nudge_soon(self, after_s: float = _NUDGE_AFTER_S) -> None:
        if self._poll is not None and self._nudge is None:
            self._nudge = asyncio.get_running_loop().call_later(after_s, self._begin_nudge)

    def _begin_nudge(self) -> None:
        self._nudge = None
        if not self._state.has_news:
            return
        due_in_s = self._state.news_due_in(self._fetchers.runtime.clock.monotonic())
        if self._nudging is not None or due_in_s > 0:
            self._nudge_soon(max(due_in_s, _NUDGE_AFTER_S))
        elif self._poll is not None and not self._poll.done():
            self._nudging = asyncio.get_running_loop().create_task(self._nudge_leader())

    async def _nudge_leader(self) -> None:
        """Sends a request whose answer does not matter: it makes the leader answer the poll."""
        try:
            with suppress(PeerUnreachable):  # the poll ends, too
                await self._fetchers.asking.send(self.leader, _FETCH, _NOTHING, lane=self._lane)
        finally:
            self._nudging = None

    async def stop(self) -> None:
        self._stop_nudging()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _stop_nudging(self) -> None:
        if self._nudge is not None:
            self._nudge.cancel()
        if self._nudging is not None:
            self._nudging.cancel()

    # -- the loop

    async def _run(self) -> None:
        while self._state:
            try:
                await self._round()
            except Exception:  # noqa: BLE001 - the root of a task: the others that are followed must not end with one
                _log.exception("fetch_loop_failed", leader=self.leader, fetcher=self.number)
                await self._wait(self._lost(ErrorCode.UNKNOWN_SERVER_ERROR))
        self._stop_nudging()
        self._fetchers.ended(self)
        self._fetchers.asking.hang_up(self.leader, self._lane)

    async def _round(self) -> None:
        now = self._fetchers.runtime.clock.monotonic()
        terms = self._fetchers.terms()
        self._changed.clear()
        throttled_s = self._fetchers.throttle.pause_s(now)
        if throttled_s > 0:
            self._state.hold(self._may_be_held, now + min(max(throttled_s, _HELD_S_MIN), _HELD_S_MAX))
        if self._state.idle_count > IDLE_FROM and (out_of_sync := self._out_of_sync()):
            terms = replace(terms, idle_wait_ms_max=terms.wait_ms_max)
            self._state.resend(out_of_sync)
        request = self._state.next(now, terms)
        if request is None:
            await self._wait(self._state.due_in(now))
            return
        try:
            response = await self._fetch(request)
        except PeerUnreachable as error:
            _log.debug("leader_unreachable", leader=self.leader, reason=error)
            await self._wait(self._lost(ErrorCode.NETWORK_EXCEPTION))
            return
        if response is None:
            self._state.abandoned()
            return
        if response is ROUND_OVER:
            return
        answers = self._state.answered(response)
        if answers is None:
            await self._wait(self._lost(ErrorCode.of(response.error_code)))
            return
        await self._append_fetched(answers)

    async def _fetch(self, request: FetchRequest) -> FetchResponse | None:
        """Returns the first answer that is not applied by a short round, or None when the poll was interrupted."""
        fetchers = self._fetchers
        self._interrupted = False
        poll = self._poll = asyncio.ensure_future(
            fetchers.asking.send(
                self.leader,
                _FETCH,
                request,
                timeout_s=(fetchers.config().replica_socket_timeout_ms + request.max_wait_ms) / 1000,
                lane=self._lane,
                receive=self._lone_rounds.receive,
            )
        )
        try:
            response = await poll
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._interrupted or (task is not None and task.cancelling()):
                raise
            fetchers.asking.hang_up(self.leader, self._lane)
            return None
        finally:
            self._poll = None
        assert isinstance(response, FetchResponse)
        return response

    async def _wait(self, seconds: float | None) -> None:
        """Waits for the time to pass, or for a change of what is followed: the leader may be available again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _lost(self, code: ErrorCode) -> float:
        longest_s = self._fetchers.config().replica_fetch_backoff_ms / 1000
        return self._state.lost(code, longest_s, self._fetchers.runtime.entropy.uniform())

    # -- answers

    async def _append_fetched(self, answers: list[tuple[FollowedPartition, PartitionData]]) -> None:
        batches = await self._checked(answers)
        appended: list[FollowedPartition] = []
        refused: list[tuple[FollowedPartition, KafkaError]] = []
        turn_bytes = 0
        for (followed, data), fetched in zip(answers, batches, strict=True):
            if not self._may_act(followed):
                continue
            try:
                await self._act(followed, data, fetched)
            except KafkaError as error:
                refused.append((followed, error.as_outcome()))
                continue
            if fetched:
                appended.append(followed)
                turn_bytes += len(data.records or b"")
                if turn_bytes >= _TURN_BYTES:
                    turn_bytes = 0
                    await asyncio.sleep(0)
        if refused:
            self._pause(refused)
        for followed in appended:
            await self._durable(followed)

    def _may_act(self, followed: FollowedPartition) -> bool:
        """Returns whether the partition still has the role and epoch under which the leader was asked."""
        partition = _partition_of(followed)
        return (
            self._state.follows(followed)
            and partition.retired is None
            and not partition.is_leader
            and partition.leader_epoch == followed.leader_epoch
        )

    def _out_of_sync(self) -> list[FollowedPartition]:
        """Returns partitions that must fetch from their leader again and again until they are in sync."""
        me = self._fetchers.me
        return [
            followed
            for followed in self._state.followed
            if (state := _partition_of(followed).state) is None or me not in state.isr
        ]

    def _is_covered(self, followed: FollowedPartition) -> bool:
        """Returns whether the partition's copying is throttled."""
        partition = _partition_of(followed)
        return self._fetchers.throttle.covers(
            partition.name.partition, partition.config.follower_replication_throttled_replicas
        )

    def _may_be_held(self, followed: FollowedPartition) -> bool:
        state = _partition_of(followed).state
        return (state is None or self._fetchers.me not in state.isr) and self._is_covered(followed)

    async def _checked(
        self, answers: list[tuple[FollowedPartition, PartitionData]]
    ) -> list[Batches | KafkaError]:
        """Returns the batches of each answer, or its error."""
        records = [
            data.records if fetch_result_action(data) is FetchResultAction.TAKE else None
            for _, data in answers
        ]
        if sum(len(record) for record in records if record) <= INLINE_BYTES:
            return checked(records)
        return await self._fetchers.runtime.offload.run(checked, records)

    async def _act(
        self, followed: FollowedPartition, data: PartitionData, batches: Batches | KafkaError
    ) -> None:
        if isinstance(batches, KafkaError):
            raise batches
        partition = _partition_of(followed)
        follower = partition.follower()
        match fetch_result_action(data):
            case FetchResultAction.TAKE:
                if batches:
                    check_epochs(batches, followed.leader_epoch)
                    if partition.log.starts_inside_batch(batches[0][0]):
                        await self._make_room(followed, partition, batches[0][0])
                    now_ms = self._fetchers.runtime.clock.wall_ms()
                    await append_with_room(
                        partition.log, lambda: follower.append_fetched(batches, now_ms=now_ms)
                    )
                    self._count(followed, data)
                if data.log_start_offset > partition.log.end_offset:
                    follower.restart_at(data.log_start_offset)
                follower.learned(data.high_watermark, data.log_start_offset)
            case FetchResultAction.TRUNCATE:
                end = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                follower.truncate(end)
            case FetchResultAction.BEGIN_AGAIN:
                await self._begin_again(followed, partition, data.log_start_offset)
            case FetchResultAction.PAUSE:
                code = ErrorCode.of(data.error_code)
                raise KafkaError(code, f"{partition.name}: the leader says: {code.meaning}")
        self._state.took(followed)

    async def _make_room(
        self, followed: FollowedPartition, partition: Partition, header: BatchHeader
    ) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER when its role ended meanwhile."""
        partition.follower().begin_with(header)
        waiting = partition.when_cut()
        if waiting is not None:
            await waiting
        if not self._may_act(followed):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is not followed as it was any more"
            )

    def _count(self, followed: FollowedPartition, data: PartitionData) -> None:
        throttle = self._fetchers.throttle
        self._fetchers.on_copied(len(data.records or b""))
        if throttle.is_active and data.records is not None and self._is_covered(followed):
            throttle.copied(len(data.records), self._fetchers.runtime.clock.monotonic())

    async def _begin_again(
        self, followed: FollowedPartition, partition: Partition, leader_start: int
    ) -> None:
        """Begins again where the leader has nothing at our end. It is below the leader's log, so our records are useless;
        or above it, which epochs would have shown if our log knew any: then it is empty."""
        if leader_start < 0:
            leader_start = await self._leader_start(followed, partition)
            if not self._may_act(followed):
                return
        end = partition.log.end_offset
        if leader_start <= end and partition.log.start_offset < end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.name}: broker {self.leader} has nothing at {end}, although its log begins at {leader_start}",
            )
        if leader_start == end:
            return
        partition.follower().restart_at(leader_start)

    async def _leader_start(self, followed: FollowedPartition, partition: Partition) -> int:
        name = partition.name
        asked = ListOffsetsPartition(
            partition_index=name.partition,
            current_leader_epoch=followed.leader_epoch,
            timestamp=_EARLIEST,
        )
        request = ListOffsetsRequest(
            replica_id=self._fetchers.me, topics=[ListOffsetsTopic(name=name.topic, partitions=[asked])]
        )
        try:
            start_offsets = await self._fetchers.asking.send(
                self.leader, _LIST_OFFSETS, request, lane="list offsets"
            )
        except PeerUnreachable as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        assert isinstance(start_offsets, ListOffsetsResponse)
        for response in (listed for topic in start_offsets.topics for listed in topic.partitions):
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(ErrorCode.of(response.error_code))
            return response.offset
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer about {name} is empty")

    def _pause(self, refused: list[tuple[FollowedPartition, KafkaError]]) -> None:
        """Leaves the partitions out for a while, all for the same time, so that they are fetched again together."""
        runtime = self._fetchers.runtime
        now, chance = runtime.clock.monotonic(), runtime.entropy.uniform()
        longest_s = self._fetchers.config().replica_fetch_backoff_ms / 1000
        noted: dict[ErrorCode, list[KafkaError]] = {}
        for followed, error in refused:
            self._state.pause(followed, now, longest_s, chance)
            if followed.failures == (_WORTH_NOTING if error.code in _EXPECTED else 1):
                noted.setdefault(error.code, []).append(error)
        for code, errors in noted.items():
            _log.warning(
                "partitions_not_fetched",
                leader=self.leader,
                code=code.name,
                partitions=len(errors),
                first=errors[0].message,
            )

    async def _durable(self, followed: FollowedPartition) -> None:
        """Waits until appended records are durable, or do not matter any more."""
        partition = _partition_of(followed)
        while self._may_act(followed):
            with suppress(KafkaError):  # its role, or the log, came to an end
                waiting = partition.when_durable()
                if waiting is None:
                    return
                await waiting


_EXPECTED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Leader and follower do not learn of a new topic, or a new leader, at the same moment."""
_WORTH_NOTING: Final = 8
"""The number of failures in a row that this does not explain any more."""


def _ignore(_: int) -> None:
    """Counts nothing."""


def _partition_of(followed: FollowedPartition) -> Partition:
    assert isinstance(followed.replica, Partition)
    return followed.replica
