"""One fetch loop of a follower, without its I/O: decides the next request to the leader, and interprets its answer.

Theory. A follower asks for each partition "from the offset up to which I have made everything durable, which I know to be of
epoch E". So the question itself is the acknowledgement, and the leader can tell whether the logs have parted: then it answers
where its own epoch E ended, and the follower cuts its log there. Nothing else cuts a log, least of all a high watermark.
That holds only of the end of a log: a leader that was deposed asks when its last records are durable, too. Asked from below
them, the new leader might see no difference, and what it answers would be taken for the successor of records that it lacks.

A fetch session (KIP-227) keeps the requests small: the leader remembers the partitions, and only changes are
sent. What may have changed is known (`_dirty`): thousands of partitions in which nothing happens cost
nothing. A partition that got an error leaves the session until its pause is over, for else the leader would
answer with that error at once, again and again.

A partition that is followed under another leader epoch is another `FollowedPartition`. The answer to a question that was
asked for the old one is recognised by that, and dropped. What the leader said of the old one counts no more, so the
partition leaves the session and comes back to it in one request: else the leader would be silent about a high watermark
that it sent before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.messages.data.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

_NO_SESSION: Final = 0
_FULL: Final = 0
_EPOCH_MAX: Final = 0x7FFF_FFFF
_UNKNOWN_OFFSET: Final = -1
_PAUSE_S_MIN: Final = 0.02
_DOUBLINGS_MAX: Final = 16
_TOGETHER_S: Final = 0.005
_TOGETHER_S_MAX: Final = 0.05
"""New partitions are first fetched together: when none has come for the shorter time, or after the longer one at the latest.
Their leaders make their logs at the same moment."""
_FLUSH_S: Final = 0.005
"""Seconds until the next check whether a log is durable up to its end."""
IDLE_FROM: Final = 2
"""How many empty answers in a row come before the waits grow."""
_IDLE_DOUBLINGS_MAX: Final = 10
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

PartitionKey = tuple[UUID, int]
"""Topic id and index: a topic that was made again under an old name is another one."""


class EpochLog(Protocol):
    """A log that knows which epochs wrote it."""

    @property
    def latest_epoch(self) -> int:
        """The one in which it ends; -1 when it is unknown."""

    @property
    def start_is_doubted(self) -> bool:
        """Whether the log may begin later than it seems."""


class FollowedReplica(Protocol):
    """The part of a partition that the decisions need: its log's end, and its leader epoch."""

    @property
    def name(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def durable_offset(self) -> int: ...
    @property
    def is_durable(self) -> bool: ...
    @property
    def log(self) -> EpochLog: ...


class FetchPosition(NamedTuple):
    """The position of a partition in a request to the leader. A tuple: compared for each partition of each answer."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    high_watermark: int


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """A partition, as it is followed under one leader epoch."""

    replica: FollowedReplica
    leader_epoch: LeaderEpoch
    failures: int = 0
    due_at: float = 0.0
    """It is not asked for before."""

    @property
    def key(self) -> PartitionKey:
        return self.replica.topic_id, self.replica.name.partition

    def fetch_position(self) -> FetchPosition:
        replica = self.replica
        return FetchPosition(
            self.leader_epoch,
            replica.durable_offset,
            replica.log.latest_epoch,
            _UNKNOWN_OFFSET if replica.log.start_is_doubted else replica.start_offset,
            replica.high_watermark,
        )


class FetchResultAction(Enum):
    """The action that a leader's answer about one partition requires."""

    TAKE = auto()
    """Append what it holds, if anything, and learn the marks."""
    TRUNCATE = auto()
    """The logs diverge: truncate ours."""
    BEGIN_AGAIN = auto()
    """The leader's log does not reach down to where ours ends."""
    PAUSE = auto()
    """It cannot be fetched now: try again later."""


def fetch_result_action(data: PartitionData) -> FetchResultAction:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchResultAction.BEGIN_AGAIN
    if data.error_code != ErrorCode.NONE:
        return FetchResultAction.PAUSE
    return FetchResultAction.TRUNCATE if data.diverging_epoch.epoch >= 0 else FetchResultAction.TAKE


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTerms:
    """How a broker fetches: who it is, and its settings."""

    me: BrokerId
    broker_epoch: int
    partition_bytes_max: int
    response_bytes_max: int
    bytes_min: int
    wait_ms_max: int
    idle_wait_ms_max: int
    """The longest wait, where nothing has happened for a while and every followed partition is in sync."""
    pause_s_max: float


class FetchState:
    """The partitions that one loop follows, and the session with their leader. Alternate `next` with one of `answered` and
    `lost`."""

    def __init__(self) -> None:
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._dirty: dict[PartitionKey, None] = {}
        self._paused: dict[PartitionKey, None] = {}
        self._new: dict[PartitionKey, None] = {}
        """Partitions of new topics that were not fetched yet, and that no request names before `_new_due_at`."""
        self._new_due_at = self._new_due_at_most = 0.0
        self._in_session: dict[PartitionKey, tuple[FollowedPartition, FetchPosition]] = {}
        """The partitions in the leader's session."""
        self._session_id = _NO_SESSION
        self._epoch = _FULL
        self._failures = 0
        self.idle_count = 0
        """How many answers in a row held nothing."""

    def __len__(self) -> int:
        return len(self._followed)

    # -- what is followed

    def follow(self, replica: FollowedReplica, now: float) -> bool:
        """Begins, or begins again under the replica's present leader epoch. Returns False when it is followed under that
        already."""
        key = replica.topic_id, replica.name.partition
        known = self._followed.get(key)
        if known is not None and known.replica is replica and known.leader_epoch == replica.leader_epoch:
            return False
        self.idle_count = 0
        self._followed[key] = FollowedPartition(replica, replica.leader_epoch)
        self._paused.pop(key, None)
        if known is None and replica.leader_epoch == 0 and replica.durable_offset == 0:
            self._expect_more(key, now)
        else:
            self._new.pop(key, None)
            self._dirty[key] = None
        return True

    def _expect_more(self, key: PartitionKey, now: float) -> None:
        """Leaves a new partition out until those that come with it are there."""
        if not self._new:
            self._new_due_at_most = now + _TOGETHER_S_MAX
        self._new_due_at = min(now + _TOGETHER_S, self._new_due_at_most)
        self._new[key] = None

    def unfollow(self, replica: FollowedReplica) -> None:
        key = replica.topic_id, replica.name.partition
        if (known := self._followed.get(key)) is not None and known.replica is replica:
            del self._followed[key]
            self._paused.pop(key, None)
            self._new.pop(key, None)
            self._dirty[key] = None

    @property
    def has_news(self) -> bool:
        """Whether partitions were added or removed, or must be fetched again, since the last request."""
        return bool(self._dirty) or bool(self._new)

    def news_due_in(self, now: float) -> float:
        """Seconds until the next request names all that is new."""
        return max(0.0, self._new_due_at - now) if self._new else 0.0

    @property
    def followed(self) -> Collection[FollowedPartition]:
        return self._followed.values()

    def follows(self, followed: FollowedPartition) -> bool:
        """Returns whether the partition is still followed as it was then."""
        return self._followed.get(followed.key) is followed

    # -- questions

    def next(self, now: float, terms: FetchTerms) -> FetchRequest | None:
        """Returns the next request; None when there is nothing to ask for at present."""
        self._resume_due(now)
        fetch_positions: dict[PartitionKey, FetchPosition] = {}
        forgotten: list[PartitionKey] = []
        if self._epoch == _FULL:
            self._in_session.clear()
            self._dirty = {key: None for key in self._followed if key not in self._new}
        for key in self._dirty:
            followed = self._followed.get(key)
            if followed is not None and (key in self._paused or self._awaits_flush(followed, now)):
                followed = None
            in_session = self._in_session.get(key)
            if in_session is not None and in_session[0] is not followed:
                del self._in_session[key]
                forgotten.append(key)
                in_session = None
            if followed is None:
                continue
            fetch_position = followed.fetch_position()
            if in_session is None or in_session[1] != fetch_position:
                fetch_positions[key] = fetch_position
                self._in_session[key] = followed, fetch_position
        self._dirty.clear()
        if not self._in_session:
            # The leader lets go of a session without partitions; so does this side.
            self._epoch = _FULL
            return None
        return self._request(fetch_positions, forgotten, terms, self._wait_ms(now, terms))

    def _awaits_flush(self, followed: FollowedPartition, now: float) -> bool:
        if followed.replica.is_durable:
            return False
        followed.due_at = now + _FLUSH_S
        self._paused[followed.key] = None
        return True

    def _resume_due(self, now: float) -> None:
        for key in [key for key in self._paused if self._followed[key].due_at <= now]:
            del self._paused[key]
            self._dirty[key] = None
        if self._new and self._new_due_at <= now:
            self._dirty.update(self._new)
            self._new.clear()

    def _wait_ms(self, now: float, terms: FetchTerms) -> int:
        """Returns the wait: longer with each empty answer, but not beyond the next try of a paused partition."""
        idle_ms = terms.wait_ms_max << max(0, min(self.idle_count - IDLE_FROM, _IDLE_DOUBLINGS_MAX))
        wait_ms = max(terms.wait_ms_max, min(idle_ms, terms.idle_wait_ms_max))
        left_s = self.due_in(now)
        return wait_ms if left_s is None else min(wait_ms, int(left_s * 1000) + 1)

    def hold(self, chosen: Callable[[FollowedPartition], bool], until: float) -> None:
        """Leaves the chosen partitions out until then; this is not a failure."""
        for key, followed in self._followed.items():
            if key not in self._paused and chosen(followed):
                followed.due_at = until
                self._paused[key] = None
                self._dirty[key] = None

    def resend(self, chosen: Iterable[FollowedPartition]) -> None:
        """Sends the partitions' positions again, though the leader knows them: a request that we gave up may have reached
        it late, and what it says of an earlier time is what the leader believes since. It does not look at what rests."""
        for followed in chosen:
            self._in_session.pop(followed.key, None)
            self._dirty[followed.key] = None

    def due_in(self, now: float) -> float | None:
        """Seconds until a partition that is left out now must be fetched; None when none is left out."""
        times = [self._followed[key].due_at for key in self._paused]
        if self._new:
            times.append(self._new_due_at)
        return max(0.0, min(times) - now) if times else None

    def _request(
        self,
        fetch_positions: dict[PartitionKey, FetchPosition],
        forgotten: list[PartitionKey],
        terms: FetchTerms,
        wait_ms: int,
    ) -> FetchRequest:
        topics: dict[UUID, list[FetchPartition]] = {}
        for (topic_id, index), fetch_position in fetch_positions.items():
            topics.setdefault(topic_id, []).append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=fetch_position.leader_epoch,
                    fetch_offset=fetch_position.fetch_offset,
                    last_fetched_epoch=fetch_position.last_fetched_epoch,
                    log_start_offset=fetch_position.log_start_offset,
                    partition_max_bytes=terms.partition_bytes_max,
                    high_watermark=fetch_position.high_watermark,
                )
            )
        gone: dict[UUID, list[int]] = {}
        for topic_id, index in forgotten:
            gone.setdefault(topic_id, []).append(index)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=terms.me, replica_epoch=terms.broker_epoch),
            max_wait_ms=wait_ms,
            min_bytes=terms.bytes_min,
            max_bytes=terms.response_bytes_max,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in gone.items()
            ],
        )

    # -- answers

    def answered(self, response: FetchResponse) -> list[tuple[FollowedPartition, PartitionData]] | None:
        """Returns the answers for partitions that are still followed as they were in the request. None when the leader refused
        the request as a whole: see `lost`."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = _NO_SESSION
            return None
        self._failures = 0
        self._count(response.session_id)
        answers: list[tuple[FollowedPartition, PartitionData]] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                in_session = self._in_session.get(key)
                if in_session is None or self._followed.get(key) is not in_session[0]:
                    continue
                self._dirty[key] = None
                answers.append((in_session[0], data))
        self.idle_count = 0 if answers else self.idle_count + 1
        return answers

    # -- short rounds: see `lone_rounds.py`

    def lone_answer(self, session_id: int, key: PartitionKey) -> FollowedPartition | None:
        """Returns the partition whose records the leader sent alone. None if the answer is not of this session, or the next
        request must name another partition, too."""
        in_session = self._in_session.get(key)
        if (
            in_session is None
            or self._followed.get(key) is not in_session[0]
            or session_id != self._session_id
            or self._epoch <= _FULL
            or not self._is_lone(key)
        ):
            return None
        return in_session[0]

    def _is_lone(self, key: PartitionKey) -> bool:
        dirty = self._dirty
        return not self._paused and not self._new and (not dirty or (len(dirty) == 1 and key in dirty))

    def lone_answered(self, followed: FollowedPartition) -> None:
        """Does what `answered` and `took` do for such an answer."""
        self._failures = self.idle_count = followed.failures = 0
        self._count(self._session_id)
        self._dirty[followed.key] = None

    def lone_next(self, followed: FollowedPartition) -> tuple[int, int, FetchPosition] | None:
        """Does what `next` does after such an answer: returns session id, epoch and position of a request that names this
        partition. None, with nothing done, if `next` would do anything else."""
        key = followed.key
        in_session = self._in_session.get(key)
        if (
            in_session is None
            or in_session[0] is not followed
            or not self.follows(followed)
            or self._epoch <= _FULL
            or not self._is_lone(key)
            or not followed.replica.is_durable
        ):
            return None
        fetch_position = followed.fetch_position()
        if in_session[1] == fetch_position:
            return None
        self._in_session[key] = followed, fetch_position
        self._dirty.clear()
        return self._session_id, self._epoch, fetch_position

    def _count(self, session_id: int) -> None:
        if session_id == _NO_SESSION:
            self._session_id, self._epoch = _NO_SESSION, _FULL
        elif self._epoch == _FULL or session_id != self._session_id:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = self._epoch + 1 if self._epoch < _EPOCH_MAX else 1

    def lost(self, code: ErrorCode, pause_s_max: float, chance: float) -> float:
        """Handles a lost or refused request: the next one contains everything again. Returns the seconds to wait before it."""
        self._epoch = _FULL
        self._failures += 1
        self.idle_count = 0
        if code in _SESSION_ERRORS and self._failures == 1:
            return 0.0
        return pause_s(self._failures, pause_s_max, chance)

    def abandoned(self) -> None:
        """Stops waiting for the answer to the last request: it is unknown whether it comes. It was no failure."""
        self._epoch = _FULL

    def took(self, followed: FollowedPartition) -> None:
        """Notes that the leader's answer for the partition was applied."""
        followed.failures = 0

    def pause(self, followed: FollowedPartition, now: float, pause_s_max: float, chance: float) -> None:
        """Leaves the partition out for a while, the longer the more often that happens in a row."""
        followed.failures += 1
        followed.due_at = now + pause_s(followed.failures, pause_s_max, chance)
        if self.follows(followed):
            self._paused[followed.key] = None
            self._dirty[followed.key] = None


def pause_s(failures: int, longest_s: float, chance: float) -> float:
    """Returns a pause that doubles after each failure, and is never in step with others."""
    exact = min(_PAUSE_S_MIN * 2.0 ** min(failures - 1, _DOUBLINGS_MAX), longest_s)
    return exact * (0.5 + chance)
