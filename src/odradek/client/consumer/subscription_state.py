"""The partitions a consumer reads, its position in each, and the requests that should be sent next, by broker.

Shared by two sides under one lock: the user's thread assigns, seeks, pauses and takes what was fetched; the fetching loop
plans requests and puts in what came. Two offsets per partition: `position`, the next record that the user gets, and
`fetch_offset`, the next one to ask for, ahead of it by what is buffered. A seek makes what is under way worthless: every
answer carries the partition's `generation` at the time of the question, and is dropped if that has changed.

No I/O and no clock: times are arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.client.consumer.completed_fetch import FetchedChunk
from odradek.client.consumer.fetch_session import PartitionFetch
from odradek.client.consumer.news import SharedNews
from odradek.client.network.metadata_snapshot import MetadataSnapshot, missing_partition
from odradek.client.settings.settings import ConsumerSettings
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError, OdradekError
from odradek.model.ids import NO_BROKER, NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.telemetry import events

_log = events.get("client")

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""Values that ListOffsets takes instead of a timestamp."""
COMMITTED: Final = -100
"""Starts at the group's committed offset, or by auto.offset.reset where there is none."""
BY_DURATION: Final = -101
"""Starts at a time as long ago as auto.offset.reset=by_duration:... says."""

_LEFT_MARGIN: Final = 1.1
_LEFT_BYTES_MIN: Final = 65_536

_RESET_BY_POLICY: Final[Mapping[str, int]] = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """One assigned partition."""

    topic_partition: TopicPartition
    position: int | None = None
    """The next record's offset; None until it is known."""
    fetch_offset: int | None = None
    stop_offset: int | None = None
    """Fetch nothing from here on; None: no end."""
    bytes_per_record: float = 0.0
    """About, by the last fetch; 0 before the first."""
    begin_at: int | None = None
    """The start in a topic that is created again under the same name: COMMITTED, or the reset policy."""
    reset_to: int | None = None
    """EARLIEST, LATEST, COMMITTED, BY_DURATION or a timestamp, if a broker must be asked for the position."""
    fetched_epoch: int = NO_EPOCH
    """The leader epoch of the last batch fetched: what truncation is noticed by (KIP-320)."""
    seen_leader_epoch: int = NO_EPOCH
    """The leader epoch under which `fetched_epoch` was last found to be part of the log."""
    topic_id: UUID = ZERO_UUID
    """The topic that `fetch_offset` is an offset of; ZERO_UUID while that is not known."""
    position_id: UUID = ZERO_UUID
    """The topic that `position` is an offset of; another one than `topic_id` while older records are buffered."""
    generation: int = 0
    busy: bool = False
    """A question about the position is under way."""
    paused: bool = False
    not_before: float = 0.0
    trouble_count: int = 0
    missing_since: float | None = None
    """The time since which the cluster has not known the partition, in seconds of the monotonic clock."""
    _problem: ErrorValue[Exception] | None = None
    chunks: deque[FetchedChunk] = field(default_factory=deque)
    current: FetchedChunk | None = None
    """The chunk being handed out; not counted as buffered any more, so that the next fetch overlaps with its use."""
    buffered_bytes: int = 0
    end_offset: int | None = None
    """The end of what may be read, by the last answer to a fetch."""
    read_replica: int = NO_BROKER
    """The follower that the leader named to read from (KIP-392)."""
    read_replica_until: float = 0.0
    """The time at which the leader is asked again, in seconds of the monotonic clock."""

    @property
    def problem(self) -> Exception | None:
        """The error that `poll` raises when nothing buffered is left. A new exception each time."""
        return self._problem.exception() if self._problem is not None else None

    @problem.setter
    def problem(self, error: Exception | None) -> None:
        self._problem = ErrorValue.of(error) if error is not None else None

    def move(self, offset: int | None, reset_to: int | None) -> None:
        """Changes the position."""
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.reset_to = reset_to
        self.fetched_epoch = NO_EPOCH
        self.topic_id = self.position_id = ZERO_UUID
        self.busy = False
        self.not_before = 0.0
        self.trouble_count = 0
        self.problem = None
        self.chunks.clear()
        self.current = None
        self.buffered_bytes = 0

    def read_from(self, replica: int, until: float) -> None:
        """Reads from a follower until then. `NO_BROKER`: from the leader."""
        self.read_replica, self.read_replica_until = replica, until

    def fetch_broker(self, leader: int, image: MetadataSnapshot, now: float) -> int:
        """Returns the broker to read from: the named follower while it is known to the cluster, else the leader."""
        if self.read_replica != NO_BROKER and (
            now >= self.read_replica_until or self.read_replica not in image.brokers
        ):
            self.read_from(NO_BROKER, 0.0)
        return leader if self.read_replica == NO_BROKER else self.read_replica

    def begin_again(self) -> None:
        """Looks up the next offset again: the topic was created again. Buffered records of the old topic stay."""
        self.generation += 1
        self.busy = False
        self.reset_to = self.begin_at
        self.fetch_offset = self.end_offset = None
        self.fetched_epoch = self.seen_leader_epoch = NO_EPOCH
        self.topic_id = ZERO_UUID
        if not self.has_records:
            self.position, self.position_id = None, ZERO_UUID

    @property
    def is_at_stop(self) -> bool:
        """Everything that was wanted has been fetched."""
        at = self.fetch_offset
        return self.stop_offset is not None and at is not None and at >= self.stop_offset

    def fetch_bytes(self, at_most: int) -> int:
        """Returns the bytes to request: near the stop offset at most the estimated rest."""
        if self.stop_offset is None or self.fetch_offset is None or not self.bytes_per_record:
            return at_most
        left = (self.stop_offset - self.fetch_offset) * self.bytes_per_record
        return min(at_most, int(left * _LEFT_MARGIN) + _LEFT_BYTES_MIN)

    @property
    def has_records(self) -> bool:
        return self.current is not None or bool(self.chunks)


@dataclass(slots=True, kw_only=True)
class FetchPlan:
    """The requests to send now. Keys of the outer mappings are brokers."""

    partition_fetches: dict[int, dict[TopicPartition, PartitionFetch]] = field(default_factory=dict)
    lookups: dict[int, dict[TopicPartition, int]] = field(default_factory=dict)
    """Positions to ask for: the timestamp, EARLIEST, LATEST or BY_DURATION."""
    committed: list[TopicPartition] = field(default_factory=list)
    """Positions to ask the group's coordinator for."""
    validations: dict[int, dict[TopicPartition, int]] = field(default_factory=dict)
    """Fetched epochs to be held against the new leader's log."""
    leaderless: list[TopicPartition] = field(default_factory=list)
    """Partitions that have no known leader: ask for metadata."""
    retry_at: float | None = None


class Assignment:
    """The partitions that a consumer reads, with their positions and buffered records. Methods marked *locked* are called
    with `lock` held; the others take it."""

    def __init__(self, settings: ConsumerSettings) -> None:
        by_duration = settings.auto_offset_reset.startswith("by_duration:")
        self._policy = BY_DURATION if by_duration else _RESET_BY_POLICY.get(settings.auto_offset_reset)
        self._partition_bytes_max = settings.max_partition_fetch_bytes
        self._buffer_bytes_max = settings.prefetch_max_bytes
        self._api_timeout_s = settings.default_api_timeout_ms / 1000
        self._check_crcs = settings.check_crcs
        self._read_committed = settings.isolation_level == "read_committed"
        self.news: Final = SharedNews()
        self.lock: Final = self.news.lock
        self.states: Final[dict[TopicPartition, PartitionState]] = {}
        self._buffered_bytes = 0
        self._waits_for_room = False
        """A plan left out a partition only because enough is buffered."""
        self._failure: ErrorValue[Exception] | None = None
        """The error after which nothing can be read; None before."""

    # -- the user's side

    def assign(self, partitions: Iterable[TopicPartition], *, committed: bool = False) -> None:
        """Read exactly these; those assigned already stay where they are. `committed`: others begin where their group
        has committed, if it has."""
        wanted = dict.fromkeys(partitions)
        with self.lock:
            for tp in [tp for tp in self.states if tp not in wanted]:
                self._drop_buffered(self.states.pop(tp))
            for tp in wanted:
                if tp not in self.states:
                    start = COMMITTED if committed else self._policy
                    self.states[tp] = PartitionState(topic_partition=tp, reset_to=start, begin_at=start)
            self.notify()

    def positions(self) -> dict[TopicPartition, int]:
        """Returns the offset of the next record to return, of every partition where it is known."""
        with self.lock:
            return {tp: state.position for tp, state in self.states.items() if state.position is not None}

    def lags(self, kept_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the number of offsets between each position and the end, where both are known. `kept_starts`: positions that
        the user has not passed yet."""
        with self.lock:
            positions = {tp: kept_starts.get(tp, state.position) for tp, state in self.states.items()}
            return {
                tp: max(0, end - position)
                for tp, position in positions.items()
                if position is not None and (end := self.states[tp].end_offset) is not None
            }

    def tied_positions(self) -> dict[TopicPartition, tuple[int, UUID]]:
        """Returns the positions that are known, each with the id of the topic that it is an offset of."""
        with self.lock:
            return {
                tp: (state.position, state.position_id)
                for tp, state in self.states.items()
                if state.position is not None
            }

    def seek(
        self,
        tp: TopicPartition,
        offset: int | None,
        reset_to: int | None = None,
        *,
        leader_epoch: int = NO_EPOCH,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        """Set the position to `offset`, or to the offset that ListOffsets returns for `reset_to`.
        `leader_epoch`: the epoch of the record before it.

        `topic_id`: the topic that the offset belongs to; by default the one that answers first.
        """
        with self.lock:
            state = self.state_of(tp)
            self._drop_buffered(state)
            state.move(offset, reset_to)
            state.topic_id = state.position_id = topic_id
            state.fetched_epoch = leader_epoch
            state.seen_leader_epoch = NO_EPOCH if leader_epoch >= 0 else state.seen_leader_epoch
            self.notify()

    def stop_at(self, tp: TopicPartition, offset: int | None) -> None:
        """Fetch nothing at or after `offset` from now on; None: whatever comes."""
        with self.lock:
            self.state_of(tp).stop_offset = offset
            self.notify()

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Paused partitions are not fetched, and what is buffered of them waits."""
        with self.lock:
            for state in [self.state_of(tp) for tp in partitions]:
                state.paused = paused
            self.notify()

    def state_of(self, tp: TopicPartition) -> PartitionState:
        """*locked.*"""
        state = self.states.get(tp)
        if state is None:
            raise OdradekError(f"{tp} is not assigned to this consumer")
        return state

    def next_chunk(self, *, quiet: bool = False) -> FetchedChunk | None:
        """*locked.* Returns a chunk with records left in it, of the partition that has waited longest; None without any.

        Unless `quiet`, raises the problem of a partition that has nothing buffered, once."""
        if self._failure is not None:
            raise self._failure.exception()
        partition_state = None
        for state in self.states.values():
            if state.has_records:
                if partition_state is None and not state.paused:
                    partition_state = state
            elif state.problem is not None and not quiet:
                problem, state.problem = state.problem, None
                raise problem
        if partition_state is None:
            return None
        if partition_state.current is None:
            partition_state.current = partition_state.chunks.popleft()
            partition_state.position = partition_state.current.position
            partition_state.position_id = partition_state.current.topic_id
            partition_state.buffered_bytes -= partition_state.current.size_bytes
            self._buffered_bytes -= partition_state.current.size_bytes
        return partition_state.current

    def begin_use(self, chunk: FetchedChunk) -> bool:
        """*locked.* Returns whether the fetcher must plan again, now that `chunk` is not buffered any more."""
        wakes = self._waits_for_room and chunk.position == chunk.start_offset
        if wakes:
            self._waits_for_room = False
        return wakes

    def used(self, chunk: FetchedChunk) -> None:
        """*locked.* Notes the position after the caller has taken records from `chunk`; another partition is next."""
        tp = chunk.topic_partition
        state = self.states.get(tp)
        if state is None or state.current is not chunk:
            return
        state.position = chunk.position
        if chunk.empty:
            state.current = None
            if not state.chunks and state.position_id != state.topic_id:
                state.position, state.position_id = state.fetch_offset, state.topic_id
            del self.states[tp]  # to the end of the line
            self.states[tp] = state

    # -- the loop's side

    def plan(self, image: MetadataSnapshot, now: float, problem: Exception | None = None) -> FetchPlan:
        """Returns the requests to send now. `problem`: why the image could not be refreshed."""
        plan = FetchPlan()
        with self.lock:
            room = self._buffered_bytes < self._buffer_bytes_max
            self._waits_for_room = False
            for tp, state in self.states.items():
                if state.busy:
                    continue
                self._check_topic(state, image)
                if state.paused and state.reset_to is None:
                    self._tie(state, image)
                    continue
                if state.not_before > now:
                    plan.retry_at = min(plan.retry_at or state.not_before, state.not_before)
                elif self._needs_nothing(state) or state.is_at_stop:
                    continue
                else:
                    self._plan_one(plan, tp, state, image, now, room, problem)
        return plan

    def _check_topic(self, state: PartitionState, image: MetadataSnapshot) -> None:
        """Drops an offset of a deleted topic: it does not apply to the topic that has its name now."""
        topic_id = image.topic_id(state.topic_partition.topic)
        if ZERO_UUID in (topic_id, state.topic_id) or topic_id == state.topic_id:
            return
        _log.warning(
            "topic_made_again",
            partition=state.topic_partition,
            offset=state.fetch_offset,
            old=state.topic_id,
            new=topic_id,
        )
        state.begin_again()
        self.notify()

    def _tie(self, state: PartitionState, image: MetadataSnapshot) -> None:
        """Ties a position to the topic that has the name now, where no fetch is about to tell which topic it is an offset
        of."""
        if state.topic_id == ZERO_UUID and state.fetch_offset is not None:
            self._tied(state, image.topic_id(state.topic_partition.topic))

    def _tied(self, state: PartitionState, topic_id: UUID) -> None:
        state.topic_id = topic_id
        if not state.has_records:
            state.position_id = topic_id

    def _needs_nothing(self, state: PartitionState) -> bool:
        """Returns whether a partition has no position and no way to find one: that is the user's problem, which `poll`
        raises."""
        if state.fetch_offset is None and state.reset_to is None:
            if state.problem is None and not state.has_records:
                state.problem = KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{state.topic_partition} has no position, and auto.offset.reset=none: seek first",
                )
                self.notify()
            return True
        return False

    def _plan_one(
        self,
        plan: FetchPlan,
        tp: TopicPartition,
        state: PartitionState,
        image: MetadataSnapshot,
        now: float,
        room: bool,
        problem: Exception | None,
    ) -> None:
        if state.reset_to == COMMITTED and not image.is_gone(tp.topic):
            state.busy = True
            plan.committed.append(tp)
            return
        partition = image.partition(tp)
        leader = image.leader(tp)
        if partition is None or leader is None:
            plan.leaderless.append(tp)
            self._note_missing(state, image, now, problem)
            return
        state.missing_since = None
        if state.reset_to is not None:
            state.busy = True
            plan.lookups.setdefault(leader, {})[tp] = state.reset_to
        elif state.fetched_epoch >= 0 and partition.leader_epoch > max(
            state.seen_leader_epoch, state.fetched_epoch
        ):
            state.busy = True
            plan.validations.setdefault(leader, {})[tp] = state.fetched_epoch
        elif room and state.buffered_bytes < self._partition_bytes_max:
            assert state.fetch_offset is not None
            broker = state.fetch_broker(leader, image, now)
            plan.partition_fetches.setdefault(broker, {})[tp] = PartitionFetch(
                image.topic_id(tp.topic),
                state.fetch_offset,
                partition.leader_epoch,
                state.fetch_bytes(self._partition_bytes_max),
            )
        else:
            self._waits_for_room = True
            self._tie(state, image)

    def _note_missing(
        self, state: PartitionState, image: MetadataSnapshot, now: float, problem: Exception | None
    ) -> None:
        """Lets `poll` raise that the partition was not found: after default.api.timeout.ms, or at once if it is hopeless."""
        if state.missing_since is None:
            state.missing_since = now
        hopeless = isinstance(problem, OdradekError) and not (
            isinstance(problem, KafkaError) and problem.retriable
        )
        if hopeless or now - state.missing_since >= self._api_timeout_s:
            state.missing_since = None
            state.problem = problem or missing_partition(state.topic_partition, image, self._api_timeout_s)
            self.notify()

    def generations(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the partitions' generations, which come back with the answers to the requests sent now."""
        with self.lock:
            return {tp: self.states[tp].generation for tp in partitions if tp in self.states}

    def state_for_answer(self, tp: TopicPartition, generation: int) -> PartitionState | None:
        """*locked.* Returns the state that an answer is for, or None if the answer is out of date."""
        state = self.states.get(tp)
        return state if state is not None and state.generation == generation else None

    def put(
        self,
        state: PartitionState,
        records: memoryview | bytes | bytearray,
        aborted: Iterable[tuple[int, int]],
    ) -> None:
        """*locked.* Records came, asked from `fetch_offset` on. KafkaError when they cannot be read or lead nowhere."""
        assert state.fetch_offset is not None
        chunk = FetchedChunk(
            state.topic_partition,
            records,
            start_offset=state.fetch_offset,
            aborted=aborted if self._read_committed else (),
            check_crcs=self._check_crcs,
            topic_id=state.topic_id,
        )
        if chunk.next_offset == state.fetch_offset:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{state.topic_partition}: the broker sent no whole batch at offset {state.fetch_offset} within "
                f"max.partition.fetch.bytes ({self._partition_bytes_max}): set it higher",
            )
        state.trouble_count = 0
        state.bytes_per_record = chunk.size_bytes / (chunk.next_offset - state.fetch_offset)
        state.fetch_offset = chunk.next_offset
        state.fetched_epoch = max(state.fetched_epoch, chunk.last_epoch)
        if chunk.empty and not state.has_records:
            state.position = chunk.next_offset  # nothing but markers and what was aborted
        else:
            state.chunks.append(chunk)
            state.buffered_bytes += chunk.size_bytes
            self._buffered_bytes += chunk.size_bytes
        self.notify()

    def found(self, state: PartitionState, offset: int, topic_id: UUID = ZERO_UUID) -> None:
        """*locked.* Handles the answer to a lookup: the partition is fetched from `offset` on. `topic_id`: the topic that
        was asked about, if known."""
        state.busy = False
        state.reset_to = None
        state.fetch_offset = offset
        state.fetched_epoch = NO_EPOCH
        state.trouble_count = 0
        if not state.has_records:
            state.position = offset
        self._tied(state, topic_id)
        self.notify()

    def nothing_committed(self, state: PartitionState) -> None:
        """*locked.* Handles a group without an offset for the partition: applies auto.offset.reset, or notes the problem."""
        state.busy = False
        state.reset_to = self._policy
        state.trouble_count = 0

    def fetched_from(self, state: PartitionState, topic_id: UUID) -> None:
        """*locked.* This topic holds `fetch_offset`."""
        if state.topic_id == ZERO_UUID:
            self._tied(state, topic_id)

    def out_of_range(self, state: PartitionState) -> None:
        """*locked.* Handles an offset that the partition does not hold (any more): applies auto.offset.reset, or notes the
        problem."""
        if self._policy is not None:
            state.reset_to = self._policy
            return
        state.problem = KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{state.topic_partition} does not hold offset {state.fetch_offset}, and auto.offset.reset=none: seek to another",
        )
        self.notify()

    @property
    def failure(self) -> Exception | None:
        """The error after which nothing can be read; None before. A new exception each time."""
        return self._failure.exception() if self._failure is not None else None

    @failure.setter
    def failure(self, error: Exception | None) -> None:
        self._failure = ErrorValue.of(error) if error is not None else None

    def fail(self, failure: Exception) -> None:
        """Stops all reading; `poll` raises `failure` from now on."""
        with self.lock:
            self.failure = failure
            self.notify()

    def notify(self) -> None:
        """*locked.* Something changed."""
        self.news.publish()

    def _drop_buffered(self, state: PartitionState) -> None:
        self._buffered_bytes -= state.buffered_bytes
        state.buffered_bytes = 0
